// Where matches have ended before: a branch point is worth a snapshot the second time it is seen.
//
// A place in the trie is named by the block that the cache holds there: while it is cached, no other place has it.
#ifndef CAIRN_ENGINE_BRANCH_SIGHTS_H_
#define CAIRN_ENGINE_BRANCH_SIGHTS_H_

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "cairn/prefix_cache.h"

namespace cairn {

// Thread-safe without a lock. Only a hint: a sight that is lost or too much costs a snapshot, never a wrong answer.
class BranchSights {
 public:
  explicit BranchSights(std::size_t blocks) : seen_(blocks) {}

  // A match ended at this block and the prompt went on otherwise. True if that was seen before.
  bool see(BlockId block) noexcept {
    return block < seen_.size() && seen_[block].exchange(true, std::memory_order_relaxed);
  }
  // The blocks have left the cache.
  void forget(std::span<const BlockId> blocks) noexcept {
    for (const BlockId block : blocks) {
      if (block < seen_.size()) seen_[block].store(false, std::memory_order_relaxed);
    }
  }

 private:
  std::vector<std::atomic<bool>> seen_;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_BRANCH_SIGHTS_H_
