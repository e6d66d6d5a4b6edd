// What the reports of a replay, of a sweep and of an explanation have in common. Not for users of the library.
#ifndef CAIRN_REPLAY_REPORT_PARTS_H_
#define CAIRN_REPLAY_REPORT_PARTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "replay/replayer.h"
#include "replay/report.h"
#include "replay/verified_replayer.h"

namespace cairn::replay {

using Json = nlohmann::ordered_json;

inline constexpr int kSchemaVersion = 1;

// 1234567 as "1,234,567".
[[nodiscard]] std::string grouped(std::uint64_t number);
// 0.125 as "12.50 %".
[[nodiscard]] std::string percent(double share);

// Lines of a table's head, and what follows it; the latter is empty if no line was malformed.
[[nodiscard]] std::string workload_line(const WorkloadSource& source);
[[nodiscard]] std::string overlap_text(const ReplayOptions& options);
[[nodiscard]] std::string bad_lines_note(const WorkloadSource& source);

// The settings that say where the requests come from, and those that say which run at once.
[[nodiscard]] Json json_source(const WorkloadSource& source);
void add_overlap(const ReplayOptions& options, Json& settings);
void add_bad_lines(const WorkloadSource& source, Json& document);
// The name that choose_policy was given.
[[nodiscard]] std::string policy_name(const SnapshotOptions& snapshots);
// Fields of the settings; all null with attention layers alone.
[[nodiscard]] Json json_snapshots(const std::optional<SnapshotOptions>& snapshots);
[[nodiscard]] Json json_spill(const SpillOptions& spill);
// Block policy, prefill chunk and snapshots of a run by the verifying engine.
void add_verified(const VerifiedReplayOptions& options, Json& settings);
[[nodiscard]] Json json_rejected(const std::vector<RejectedRequest>& first);
[[nodiscard]] Json json_run(const RunResult& run);
// Indented. File names need not be UTF-8: what is not is replaced.
[[nodiscard]] std::string dumped(const Json& document);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_REPORT_PARTS_H_
