#include "index/child_table.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/check.h"

namespace cairn {
namespace {

// At most this part of the entries is used up before the table is made anew, at most half full.
constexpr std::size_t kUsedMost = 3;
constexpr std::size_t kUsedOf = 4;
constexpr std::size_t kSmallest = 16;

}  // namespace

void ChildTable::prepare_insert() {
  if ((used_ + 1) * kUsedOf <= capacity() * kUsedMost) return;
  rebuild(std::max(kSmallest, std::bit_ceil(2 * (size_ + 1))));
}

void ChildTable::insert(std::uint32_t hash, std::uint32_t id) noexcept {
  Slot* entries = memory_.get() + 1;
  const std::size_t mask = capacity() - 1;
  std::size_t i = hash & mask;
  while (entries[i].load(std::memory_order_relaxed) > kTombstone) i = (i + 1) & mask;
  if (entries[i].load(std::memory_order_relaxed) == kEmpty) ++used_;
  entries[i].store(make_entry(hash, id), std::memory_order_release);  // pairs with find
  ++size_;
}

void ChildTable::erase(std::uint32_t hash, std::uint32_t id) noexcept {
  Slot* entries = memory_.get() + 1;
  const std::size_t mask = capacity() - 1;
  std::size_t i = hash & mask;
  while (entries[i].load(std::memory_order_relaxed) != make_entry(hash, id)) {
    CAIRN_CHECK(entries[i].load(std::memory_order_relaxed) != kEmpty);
    i = (i + 1) & mask;
  }
  entries[i].store(kTombstone, std::memory_order_release);
  --size_;
  // Where the run ends here, the tombstones at its end keep nothing together.
  if (entries[(i + 1) & mask].load(std::memory_order_relaxed) != kEmpty) return;
  for (; entries[i].load(std::memory_order_relaxed) == kTombstone; i = (i - 1) & mask) {
    entries[i].store(kEmpty, std::memory_order_release);
    --used_;
  }
}

void ChildTable::trim() noexcept {
  constexpr std::size_t kEighth = 8;
  if (capacity() <= kSmallest || size_ * kEighth >= capacity()) return;
  try {
    rebuild(std::max(kSmallest, std::bit_ceil(2 * size_ + 1)));
  } catch (const std::bad_alloc&) {
    return;
  }
}

void ChildTable::rebuild(std::size_t new_capacity) {
  gate_.prepare_retire();
  auto memory = std::make_unique<Slot[]>(new_capacity + 1);
  const std::size_t mask = new_capacity - 1;
  memory[0].store(mask, std::memory_order_relaxed);
  Slot* entries = memory.get() + 1;
  for (std::size_t i = 0; i < capacity(); ++i) {
    const std::uint64_t entry = memory_[i + 1].load(std::memory_order_relaxed);
    if (entry <= kTombstone) continue;
    std::size_t j = (entry >> 32) & mask;
    while (entries[j].load(std::memory_order_relaxed) != kEmpty) j = (j + 1) & mask;
    entries[j].store(entry, std::memory_order_relaxed);
  }
  slots_.store(memory.get(), std::memory_order_release);  // pairs with find
  gate_.retire(std::exchange(memory_, std::move(memory)));
  used_ = size_;
}

}  // namespace cairn
