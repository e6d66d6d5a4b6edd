// The same workload through no cache, a cache of the given size, and an unbounded one.
#ifndef CAIRN_REPLAY_COMPARISON_H_
#define CAIRN_REPLAY_COMPARISON_H_

#include <cstddef>
#include <vector>

#include "replay/pool_size.h"
#include "replay/replayer.h"
#include "replay/workload.h"

namespace cairn::replay {

struct ComparisonOptions {
  PoolSize pool = PoolSize::parse("10%");
  ReplayOptions replay{};  // on_request_done is called from several threads at once
};

struct Comparison {
  std::size_t pool_blocks = 0;      // of the runs "none" and "lru"
  std::size_t distinct_blocks = 0;  // that the unbounded cache took: all distinct full blocks of the workload
  std::vector<RunResult> runs;      // "none", "lru", "unbounded"
};

// The runs share nothing but the workload and go side by side on threads of their own. Each one's tree is validated
// at its end. Throws as Replayer and PoolSize::blocks do.
[[nodiscard]] Comparison compare(const Workload& workload, const ComparisonOptions& options);

// All distinct full blocks of the workload, by an unbounded run. Throws as compare.
[[nodiscard]] std::size_t count_distinct_blocks(const Workload& workload, const ReplayOptions& options);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_COMPARISON_H_
