// What says which cached blocks stay: eviction policies, marks and pins.
#ifndef CAIRN_BLOCK_RETENTION_H_
#define CAIRN_BLOCK_RETENTION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

// The eviction policies for blocks, the default first. docs/policies.md says what each of them does.
[[nodiscard]] std::vector<std::string> block_policy_names();

// How much blocks are worth keeping, for the policy "priority". Others let it pass.
struct BlockPriority {
  static constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();

  int priority = 0;                              // higher ones go later; blocks without a mark have 0
  std::chrono::nanoseconds keep_for = kForever;  // from now on; then it counts as 0 again
};

// What became of the wish to pin a prefix: its full blocks, all or none.
struct PrefixPin {
  enum class Outcome : std::uint8_t {
    kPinned,
    kNotCached,   // not all of its blocks are cached
    kOverBudget,  // more blocks would be pinned than are allowed
  };
  Outcome outcome = Outcome::kPinned;
  std::uint64_t id = 0;    // to unpin it by; 0 if it is not pinned
  std::size_t blocks = 0;  // that other pins don't keep: that it keeps or would keep; kNotCached: that are missing
};

}  // namespace cairn

#endif  // CAIRN_BLOCK_RETENTION_H_
