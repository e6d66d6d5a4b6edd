#include "policy/block_policies.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "base/refuse.h"
#include "policy/learned_policy.h"
#include "policy/lfu_policy.h"
#include "policy/lru_policy.h"
#include "policy/priority_policy.h"
#include "policy/s3_fifo_policy.h"
#include "policy/slru_policy.h"

namespace cairn {
namespace {

using Parts = BlockPolicyKind::Parts;
using Made = std::unique_ptr<BlockPolicy>;

Made make_priority(const Parts& parts) {
  if (parts.options.clock) return std::make_unique<PriorityPolicy>(parts.options.clock);
  return std::make_unique<PriorityPolicy>([] { return std::chrono::steady_clock::now(); });
}

// The one place where policies have their names.
constexpr std::array kKinds = {
    BlockPolicyKind{.name = "lru", .make = [](const Parts&) -> Made { return std::make_unique<LruPolicy>(); }},
    BlockPolicyKind{.name = "lfu",
                    .counts_hits = true,
                    .make = [](const Parts&) -> Made { return std::make_unique<LfuPolicy>(); }},
    BlockPolicyKind{.name = "slru",
                    .counts_hits = true,
                    .make = [](const Parts& parts) -> Made { return std::make_unique<SlruPolicy>(parts.edges); }},
    BlockPolicyKind{
        .name = "s3fifo",
        .counts_hits = true,
        .make = [](const Parts& parts) -> Made { return std::make_unique<S3FifoPolicy>(parts.edges, parts.seed); }},
    BlockPolicyKind{
        .name = "learned",
        .counts_hits = true,
        .hears_uses = true,
        .make = [](const Parts& parts) -> Made { return std::make_unique<LearnedPolicy>(parts.edges, parts.seed); }},
    BlockPolicyKind{.name = "priority", .make = make_priority},
};

}  // namespace

std::span<const BlockPolicyKind> block_policy_kinds() {
  return kKinds;
}

const BlockPolicyKind& block_policy_kind(std::string_view name) {
  const auto found = std::ranges::find(kKinds, name, &BlockPolicyKind::name);
  if (found != kKinds.end()) return *found;
  std::string names;
  for (const BlockPolicyKind& kind : kKinds) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  refuse("block_policy", "there is none named '" + std::string(name) + "'; there are " + names);
}

std::vector<std::string> block_policy_names() {
  std::vector<std::string> names;
  names.reserve(std::size(kKinds));
  for (const BlockPolicyKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

}  // namespace cairn
