// How many requests have used each block that the cache holds.
#ifndef CAIRN_ENGINE_BLOCK_USES_H_
#define CAIRN_ENGINE_BLOCK_USES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/prefix_cache.h"

namespace cairn {

// Thread-safe without a lock. Only a hint, for what is worth storing.
class BlockUses {
 public:
  explicit BlockUses(std::size_t blocks) : uses_(blocks) {}

  // They are to hold other tokens, for one request.
  void begin(std::span<const BlockId> blocks) noexcept {
    if (uses_.empty()) return;
    for (const BlockId block : blocks) {
      if (block < uses_.size()) uses_[block].store(1, std::memory_order_relaxed);
    }
  }
  void use(std::span<const BlockId> blocks) noexcept {
    for (const BlockId block : blocks) {
      if (block < uses_.size()) uses_[block].fetch_add(1, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] std::uint32_t get(BlockId block) const noexcept {
    return block < uses_.size() ? uses_[block].load(std::memory_order_relaxed) : 0;
  }

 private:
  std::vector<std::atomic<std::uint32_t>> uses_;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_BLOCK_USES_H_
