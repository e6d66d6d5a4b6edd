#include "snapshot_options.h"

#include <cairn/model_shape.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <utility>

#include "given_options.h"
#include "replay/workload.h"

namespace cairn::tool {
namespace {

constexpr std::size_t kSnapshotsMax = 10'000'000;
constexpr std::size_t kSnapshotBytesMax = std::size_t{1} << 32;
constexpr const char* kTails = "tails";
constexpr const char* kSiblings = "siblings";
constexpr const char* kBranchPoints = "branch-points";
constexpr const char* kLastToken = "last-token";
constexpr const char* kNone = "none";

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelPreset& preset : model_presets()) names.emplace_back(preset.name);
  return names;
}

// Those that say nothing unless there is a model with states.
constexpr const char* kOfAHybridModel[] = {
    "--snapshot-bytes", "--checkpoint-every", "--captures",       "--snapshot-policy",
    "--model",          "--flop-alpha",       "--session-leases", "--session-lease-evictions"};

// Those that say nothing to any other snapshot policy.
constexpr std::pair<const char*, const char*> kOfOnePolicy[] = {
    {"--flop-alpha", "flop"}, {"--session-leases", "session"}, {"--session-lease-evictions", "session"}};

void add_places(CLI::App& command, SnapshotArguments& arguments, const char* group) {
  command
      .add_option("--checkpoint-every", arguments.options.checkpoint_every_tokens,
                  "Keep the state every so many tokens of a prompt, beside --captures; 0: do not")
      ->check(CLI::Range(std::uint64_t{0}, replay::kSequenceTokensMax))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--captures", arguments.captures,
                  fmt::format("Where else states are kept: of {}, {}, {}, {}, or {}", kTails, kSiblings, kBranchPoints,
                              kLastToken, kNone))
      ->check(CLI::IsMember({kTails, kSiblings, kBranchPoints, kLastToken, kNone}))
      ->delimiter(',')
      ->type_name("KIND,...")
      ->capture_default_str()
      ->group(group);
}

void add_policy(CLI::App& command, SnapshotArguments& arguments, const char* group) {
  SnapshotPolicyOptions& options = arguments.options.policy_options;
  command
      .add_option("--snapshot-policy", arguments.policy,
                  fmt::format("Which state goes first: {}", fmt::join(replay::replay_policy_names(), ", ")))
      ->check(CLI::IsMember(replay::replay_policy_names()))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--flop-alpha", options.flop_alpha,
                  fmt::format("flop: the weight of FLOPs saved per byte against recency (default: {})",
                              options.flop_alpha.value()))
      ->check(CLI::NonNegativeNumber)
      ->type_name("X")
      ->group(group);
  command.add_option("--session-leases", options.session_leases_max, "session: tails that are leased at most")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--session-lease-evictions", options.session_lease_evictions,
                  "session: evictions after which a lease ends")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  arguments.model = model_names().front();
  command
      .add_option("--model", arguments.model,
                  fmt::format("Whose FLOPs are reckoned: {}", fmt::join(model_names(), ", ")))
      ->check(CLI::IsMember(model_names()))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
}

}  // namespace

replay::SnapshotOptions SnapshotArguments::complete() const {
  replay::SnapshotOptions complete = options;
  complete.slots = slots.value_or(0);
  const auto captured = [this](const char* kind) { return std::ranges::find(captures, kind) != captures.end(); };
  complete.tails = captured(kTails);
  complete.siblings = captured(kSiblings);
  complete.branch_points = captured(kBranchPoints);
  complete.last_token = captured(kLastToken);
  if (const auto shape = find_model_preset(model)) complete.policy_options.model = *shape;
  replay::choose_policy(complete, policy);
  return complete;
}

void add_snapshot_options(CLI::App& command, SnapshotArguments& arguments) {
  constexpr const char* kGroup = "Hybrid model (verifying engine, or --sweep-snapshots)";
  command.add_option("--snapshots", arguments.slots, "A hybrid model, with slots for so many states")
      ->check(CLI::Range(std::size_t{1}, kSnapshotsMax))
      ->type_name("N")
      ->group(kGroup);
  command.add_option("--snapshot-bytes", arguments.options.slot_bytes, "Size of a state")
      ->check(CLI::Range(std::size_t{1}, kSnapshotBytesMax))
      ->type_name("BYTES")
      ->capture_default_str()
      ->group(kGroup);
  add_places(command, arguments, kGroup);
  add_policy(command, arguments, kGroup);
}

void check_snapshot_combinations(const CLI::App& command, const SnapshotArguments& arguments,
                                 const std::vector<std::string>* swept_policies) {
  const GivenOptions given(command);
  for (const char* name : kOfAHybridModel) {
    if (given.has(name) && !arguments.slots && swept_policies == nullptr) {
      given.refuse(name, "without --snapshots no state is kept; add --snapshots N");
    }
  }
  if (swept_policies != nullptr && given.has("--snapshot-policy")) {
    given.refuse("--snapshot-policy", "not with --sweep-snapshots; take --snapshot-policies");
  }
  const std::vector<std::string> policies =
      swept_policies != nullptr ? *swept_policies : std::vector{arguments.policy};
  const char* const of_policies = swept_policies != nullptr ? "--snapshot-policies" : "--snapshot-policy";
  for (const auto& [name, policy] : kOfOnePolicy) {
    if (!given.has(name) || std::ranges::find(policies, policy) != policies.end()) continue;
    given.refuse(name, fmt::format("only the snapshot policy {} uses it, not {}; add {} {}", policy,
                                   fmt::join(policies, ", "), of_policies, policy));
  }
  if (arguments.captures.size() > 1 && std::ranges::find(arguments.captures, kNone) != arguments.captures.end()) {
    throw CLI::ValidationError("--captures", fmt::format("{}: stands alone", kNone));
  }
}

void check_checkpoints(std::size_t every, std::size_t block_size) {
  if (every % block_size == 0) return;
  const std::size_t below = every / block_size * block_size;
  throw CLI::ValidationError(
      "--checkpoint-every", fmt::format("{}: must be a multiple of the block size {}; take {}{}", every, block_size,
                                        below > 0 ? fmt::format("{} or ", below) : std::string(), below + block_size));
}

}  // namespace cairn::tool
