// The eviction policies for blocks that there are, by name.
#ifndef CAIRN_POLICY_BLOCK_POLICIES_H_
#define CAIRN_POLICY_BLOCK_POLICIES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "cairn/radix_tree.h"
#include "policy/block_policy.h"

namespace cairn {

struct BlockPolicyKind {
  std::string_view name;
  bool counts_hits = false;  // BlockEnd::hits
  bool hears_uses = false;   // BlockPolicy::settle
  struct Parts {
    const EdgeStore& edges;
    const RadixTreeOptions& options;
    std::uint64_t seed = 0;
  };
  std::unique_ptr<BlockPolicy> (*make)(const Parts& parts) = nullptr;
};

// The default first.
[[nodiscard]] std::span<const BlockPolicyKind> block_policy_kinds();
// Throws std::invalid_argument, naming those that there are.
[[nodiscard]] const BlockPolicyKind& block_policy_kind(std::string_view name);

}  // namespace cairn

#endif  // CAIRN_POLICY_BLOCK_POLICIES_H_
