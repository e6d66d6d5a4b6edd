// `cairn replay --sweep`, `--sweep-snapshots` and `--sweep-tiers`.
#ifndef CAIRN_TOOLS_SWEEP_OPTIONS_H_
#define CAIRN_TOOLS_SWEEP_OPTIONS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "replay/report.h"
#include "replay/verified_replayer.h"
#include "replay/workload.h"

namespace CLI {
class App;
}

namespace cairn::tool {

struct SweepArguments {
  bool blocks = false;
  bool snapshots = false;
  bool tiers = false;
  std::vector<std::string> sizes;
  std::vector<std::size_t> slots;
  std::vector<std::string> shares;
  std::vector<std::string> tier_sizes;
  std::vector<std::string> policies;
  std::vector<std::string> snapshot_policies;
  std::size_t jobs = 0;  // 0: as many as there are cores
  std::string csv;
  std::string plot;

  [[nodiscard]] bool any() const { return blocks || snapshots || tiers; }
  // The option that asks for it, if any() does.
  [[nodiscard]] const char* name() const {
    return blocks ? "--sweep" : snapshots ? "--sweep-snapshots" : "--sweep-tiers";
  }
};

// Of the two sweeps by the verifying engine.
struct VerifiedSweepSettings {
  std::string blocks;  // a PoolSize
  replay::VerifiedReplayOptions verified;
};

// To be called when the command has its options for engine and verifying engine. `arguments` must live as long as the
// app.
void add_sweep_options(CLI::App& command, SweepArguments& arguments);

// Writes what is asked for: the table or, with `json` "-", JSON to standard output, and the files. Throws as
// replay::Sweep, replay::sweep_snapshots, replay::sweep_tiers and write_file_atomically.
void sweep_blocks(const replay::Workload& workload, const replay::WorkloadSource& source,
                  const SweepArguments& arguments, const replay::ReplayOptions& options, const std::string& json);
void sweep_snapshot_slots(const replay::Workload& workload, const replay::WorkloadSource& source,
                          const SweepArguments& arguments, const VerifiedSweepSettings& settings,
                          const std::string& json);
void sweep_tier_sizes(const replay::Workload& workload, const replay::WorkloadSource& source,
                      const SweepArguments& arguments, const VerifiedSweepSettings& settings, const std::string& json);

}  // namespace cairn::tool

#endif  // CAIRN_TOOLS_SWEEP_OPTIONS_H_
