// Why requests were not cached, summed up by cause, for people and for programs. Described in docs/insight.md.
#ifndef CAIRN_REPLAY_EXPLAIN_REPORT_H_
#define CAIRN_REPLAY_EXPLAIN_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/explainer.h"
#include "replay/pool_size.h"
#include "replay/report.h"
#include "replay/workload.h"

namespace cairn::replay {

// Tokens that had to be computed for one and the same reason.
struct MissGroup {
  std::string cause;  // as name_of(MissCause), or "shorter_than_a_block"
  std::string what;
  std::string to_do;
  std::uint64_t tokens = 0;
  std::size_t requests = 0;
  std::size_t example = 0;  // index into ExplainResult::requests: of its requests the one with most of these tokens
};

// All groups, the costliest first; those of equal cost in order of their examples. Their tokens add up to all
// that were not matched. O(requests * log groups).
[[nodiscard]] std::vector<MissGroup> group_misses(const Workload& workload, const ExplainResult& result);

// What happened to one request, as a sentence without a full stop: "8,192 of 9,000 tokens matched; then evicted 12 s
// ago, ..".
[[nodiscard]] std::string describe(const Workload& workload, const Explanation& explanation);

struct ExplainReport : WorkloadSource {
  static constexpr std::size_t kGroupsShown = 10;

  PoolSize pool = PoolSize::parse("10%");
  std::size_t pool_blocks = 0;
  std::size_t distinct_blocks = 0;
  ReplayOptions replay;
  bool found_equal_again = true;               // ExplainOptions::find_equal_again
  std::optional<SnapshotOptions> snapshots{};  // ExplainOptions::snapshots
  ExplainResult result;
  std::uint64_t optimum_matched_tokens = 0;  // find_optimum with the same pool
};

// `with_requests` adds a line, or an object, for each request.
[[nodiscard]] std::string table(const Workload& workload, const ExplainReport& report, bool with_requests);
// schema_version 1.
[[nodiscard]] std::string json(const Workload& workload, const ExplainReport& report, bool with_requests);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_EXPLAIN_REPORT_H_
