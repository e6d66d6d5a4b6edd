// The options of `cairn replay` that are about tiers, and about stopping and going on with them.
#ifndef CAIRN_TOOLS_CAIRN_REPLAY_TIER_OPTIONS_H_
#define CAIRN_TOOLS_CAIRN_REPLAY_TIER_OPTIONS_H_

#include <CLI/CLI.hpp>

#include "replay/replay_tiers.h"
#include "replay/verified_replayer.h"
#include "sweep_options.h"

namespace cairn::tool {

struct TierArguments {
  replay::TierOptions tiers;
  std::size_t skip = replay::VerifiedReplayOptions{}.skip;
  std::size_t stop_after = replay::VerifiedReplayOptions{}.stop_after;

  // Whether there are tiers.
  [[nodiscard]] bool given() const { return tiers.ram_bytes > 0 || tiers.has_file_tier(); }
};

// `arguments` must live as long as the command.
void add_tier_options(CLI::App& command, TierArguments& arguments);
// What one option asks of another. Throws CLI::ValidationError.
void check_tier_combinations(const CLI::App& command, const TierArguments& arguments, bool verify,
                             const SweepArguments& sweep);

}  // namespace cairn::tool

#endif  // CAIRN_TOOLS_CAIRN_REPLAY_TIER_OPTIONS_H_
