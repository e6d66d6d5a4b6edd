// The options of a hybrid model: its states, where they are kept, which goes first.
#ifndef CAIRN_TOOLS_SNAPSHOT_OPTIONS_H_
#define CAIRN_TOOLS_SNAPSHOT_OPTIONS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "replay/verified_replayer.h"

namespace CLI {
class App;
}

namespace cairn::tool {

struct SnapshotArguments {
  std::optional<std::size_t> slots;
  replay::SnapshotOptions options;  // but for the slots, and what the rest says
  std::vector<std::string> captures{"tails", "siblings", "branch-points"};
  std::string policy = "lru";  // of replay_policy_names()
  std::string model;           // of model_presets()

  [[nodiscard]] replay::SnapshotOptions complete() const;
};

// `arguments` must live as long as the app.
void add_snapshot_options(CLI::App& command, SnapshotArguments& arguments);
// What one option asks of another; `swept_policies`, if not null, are those of a sweep over slots. Throws
// CLI::ValidationError.
void check_snapshot_combinations(const CLI::App& command, const SnapshotArguments& arguments,
                                 const std::vector<std::string>* swept_policies);
// The same, of --checkpoint-every alone.
void check_checkpoints(std::size_t every, std::size_t block_size);

}  // namespace cairn::tool

#endif  // CAIRN_TOOLS_SNAPSHOT_OPTIONS_H_
