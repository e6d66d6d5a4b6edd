// The policies for snapshots that there are, by name.
#include <cmath>

#include "base/refuse.h"
#include "policy/snapshot_flop_policy.h"
#include "policy/snapshot_lru_policy.h"
#include "policy/snapshot_policy.h"
#include "policy/snapshot_session_policy.h"

namespace cairn {
namespace {

constexpr std::string_view kLru = "lru";
constexpr std::string_view kSession = "session";
constexpr std::string_view kFlop = "flop";

void check_flop(const SnapshotPolicyOptions& options) {
  if (options.flop_alpha && !(std::isfinite(*options.flop_alpha) && *options.flop_alpha >= 0)) {
    refuse("flop_alpha", std::to_string(*options.flop_alpha) + ": a finite number from 0 up is allowed");
  }
  if (options.model.flops(1) <= 0) refuse("model", "it has no layer or no width, so that no snapshot saves anything");
  if (options.snapshot_bytes == 0) {
    refuse("snapshot_bytes, model", "both say that a snapshot has no bytes: the model has no Mamba layer");
  }
}

}  // namespace

std::vector<std::string> snapshot_policy_names() {
  return {std::string(kLru), std::string(kSession), std::string(kFlop)};
}

std::unique_ptr<SnapshotPolicy> make_snapshot_policy(std::string_view name, const SnapshotPolicyOptions& options) {
  if (name == kLru) return std::make_unique<SnapshotLruPolicy>();
  if (name == kSession) return std::make_unique<SnapshotSessionPolicy>(options);
  if (name == kFlop) {
    SnapshotPolicyOptions complete = options;
    if (complete.snapshot_bytes == 0) complete.snapshot_bytes = options.model.snapshot_bytes();
    check_flop(complete);
    return std::make_unique<SnapshotFlopPolicy>(complete);
  }
  std::string names;
  for (const std::string& known : snapshot_policy_names()) names += (names.empty() ? "" : ", ") + known;
  refuse("snapshot_policy", "\"" + std::string(name) + "\": there is no such policy; there are " + names);
}

}  // namespace cairn
