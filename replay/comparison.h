// The same workload through no cache, a cache of the given size, and an unbounded one; and the most that the given
// size can give.
#ifndef CAIRN_REPLAY_COMPARISON_H_
#define CAIRN_REPLAY_COMPARISON_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replay/block_trace.h"
#include "replay/pool_size.h"
#include "replay/replayer.h"
#include "replay/workload.h"

namespace cairn::replay {

struct ComparisonOptions {
  PoolSize pool = PoolSize::parse("10%");
  std::string policy = "lru";  // of the cache with a pool of that size
  ReplayOptions replay{};      // on_request_done is called from several threads at once
};

struct Comparison {
  std::size_t pool_blocks = 0;      // of all runs but "unbounded"
  std::size_t distinct_blocks = 0;  // full ones, of the workload; the unbounded cache took as many
  std::vector<RunResult> runs;      // "none", the policy's, "optimum", "unbounded"
};

// The runs share nothing but the workload and go side by side on threads of their own. Each one's tree is validated
// at its end. Throws as Replayer and PoolSize::blocks do.
[[nodiscard]] Comparison compare(const Workload& workload, const ComparisonOptions& options);

// The eviction policies that there are, the default first.
[[nodiscard]] const std::vector<std::string>& policy_names();
[[nodiscard]] bool is_policy(std::string_view name);
// One run with the eviction policy of that name; without `blocks` the pool never ends. The policies of the index are
// to be told apart here and nowhere else. Throws std::invalid_argument: there is none of that name; else as Replayer.
[[nodiscard]] RunResult run_policy(const std::string& name, const Workload& workload, const ReplayOptions& options,
                                   std::optional<std::size_t> blocks);
// The run "unbounded". Throws as Replayer; ReplayError if the tree did not take each distinct block once.
[[nodiscard]] RunResult run_unbounded(const Workload& workload, const BlockTrace& blocks,
                                      const ReplayOptions& options);

// All distinct full blocks of the workload. Throws as BlockTrace.
[[nodiscard]] std::size_t count_distinct_blocks(const Workload& workload, const ReplayOptions& options);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_COMPARISON_H_
