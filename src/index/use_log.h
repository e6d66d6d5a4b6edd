// Where lookups ended since a writer last asked: for policies that learn when blocks are used again.
#ifndef CAIRN_INDEX_USE_LOG_H_
#define CAIRN_INDEX_USE_LOG_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "index/edge_store.h"

namespace cairn {

struct Use {
  Position at;
  Stamp stamp = 0;
};

// Readers add in commits, each in an entry of its own; writers take with the gate closed, which is what makes the
// entries visible. If more lookups come in between than there is room for, the rest is left out: a sample will do.
class UseLog {
 public:
  static constexpr std::size_t kUsesMax = 256;

  // In a commit.
  void add(const Use& use) noexcept {
    if (count_.load(std::memory_order_relaxed) >= kUsesMax) return;  // most often in a cache that is only read
    const std::uint32_t mine = count_.fetch_add(1, std::memory_order_relaxed);
    if (mine < kUsesMax) uses_[mine] = use;
  }
  // With the gate closed: moves them to `to`, which has room for kUsesMax. How many there were.
  std::size_t take(std::span<Use> to) noexcept {
    const std::size_t count = std::min<std::size_t>(count_.exchange(0, std::memory_order_relaxed), kUsesMax);
    std::copy_n(uses_.begin(), count, to.begin());
    return count;
  }

 private:
  std::atomic<std::uint32_t> count_{0};
  std::array<Use, kUsesMax> uses_;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_USE_LOG_H_
