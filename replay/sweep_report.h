// What a sweep found: a table, JSON, CSV and a plot. Described in docs/insight.md.
#ifndef CAIRN_REPLAY_SWEEP_REPORT_H_
#define CAIRN_REPLAY_SWEEP_REPORT_H_

#include <string>

#include "replay/report.h"
#include "replay/sweep.h"

namespace cairn::replay {

struct SweepReport : WorkloadSource {
  ReplayOptions replay;
  SweepResult result;
};

[[nodiscard]] std::string table(const SweepReport& report);
// schema_version 1.
[[nodiscard]] std::string json(const SweepReport& report);
// A head, and a line for each policy and size.
[[nodiscard]] std::string csv(const SweepReport& report);
// Throws as svg.
[[nodiscard]] std::string plot(const SweepReport& report);

struct SnapshotSweepReport : WorkloadSource {
  VerifiedReplayOptions verified;
  SnapshotSweepResult result;
};

[[nodiscard]] std::string table(const SnapshotSweepReport& report);
[[nodiscard]] std::string json(const SnapshotSweepReport& report);
[[nodiscard]] std::string csv(const SnapshotSweepReport& report);
[[nodiscard]] std::string plot(const SnapshotSweepReport& report);

struct TierSweepReport : WorkloadSource {
  VerifiedReplayOptions verified;
  TierSweepResult result;
};

[[nodiscard]] std::string table(const TierSweepReport& report);
[[nodiscard]] std::string json(const TierSweepReport& report);
[[nodiscard]] std::string csv(const TierSweepReport& report);
[[nodiscard]] std::string plot(const TierSweepReport& report);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_SWEEP_REPORT_H_
