// What a replay found, for people (a table) and for programs (JSON). Both are described in docs/replay.md.
#ifndef CAIRN_REPLAY_REPORT_H_
#define CAIRN_REPLAY_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/builtin_workload.h"
#include "replay/comparison.h"
#include "replay/trace_reader.h"
#include "replay/verified_replayer.h"

namespace cairn::replay {

// Where the requests came from: exactly one of the two sources.
struct WorkloadSource {
  struct TraceSource {
    std::string name;
    TraceOptions options;
    TraceFormat format = TraceFormat::kAuto;  // the one found
    std::uint64_t bad_lines = 0;
    std::vector<std::string> bad_line_reasons;
  };
  std::optional<TraceSource> trace;
  std::optional<BuiltinWorkloadOptions> builtin;

  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
};

struct Report : WorkloadSource {
  ComparisonOptions options;
  Comparison comparison;  // with a verified run: no runs, and distinct_blocks only if they had to be counted, else 0

  struct VerifiedRun {
    VerifiedReplayOptions options;
    VerifiedResult result;
  };
  std::optional<VerifiedRun> verified;
};

[[nodiscard]] std::string table(const Report& report);
// schema_version 1.
[[nodiscard]] std::string json(const Report& report);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_REPORT_H_
