// Where child edges are found: one open-addressing hash table for the whole trie, read while it is written.
#ifndef CAIRN_INDEX_CHILD_TABLE_H_
#define CAIRN_INDEX_CHILD_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "index/gate.h"

namespace cairn {

// Holds edge ids by a hash; the caller decides equality. Linear probing; a removed entry leaves a tombstone, and the
// table is made anew when it is mostly used up or mostly empty, the old one being retired.
//
// A reader may run beside a writer: it sees an entry that is inserted or removed meanwhile, or not. The trie's
// versions tell the reader whether that mattered.
class ChildTable {
 public:
  explicit ChildTable(Gate& gate) : gate_(gate) {}
  ChildTable(const ChildTable&) = delete;
  ChildTable& operator=(const ChildTable&) = delete;

  // The first id with this hash that `matches(id)`, or `none`. Any thread, within a Gate::Reader, or a writer.
  template <class Matches>
  [[nodiscard]] std::uint32_t find(std::uint32_t hash, std::uint32_t none, Matches matches) const {
    const Slot* slots = slots_.load(std::memory_order_acquire);  // pairs with the release in rebuild
    if (!slots) return none;
    const std::size_t mask = slots[0].load(std::memory_order_relaxed);  // never changes
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const std::uint64_t entry = slots[i + 1].load(std::memory_order_acquire);  // pairs with insert
      if (entry == kEmpty) return none;
      if (entry != kTombstone && entry >> 32 == hash && matches(id_of(entry))) return id_of(entry);
    }
  }

  // The rest is for writers.
  void prepare_insert();  // so that the next insert doesn't allocate; throws std::bad_alloc
  void prefetch(std::uint32_t hash) const noexcept {
    if (memory_) __builtin_prefetch(&memory_[1 + (hash & (capacity() - 1))]);
  }
  void insert(std::uint32_t hash, std::uint32_t id) noexcept;
  void erase(std::uint32_t hash, std::uint32_t id) noexcept;
  [[nodiscard]] std::size_t size() const { return size_; }
  // Gives memory back where most of it is unused and as much can be had as it takes.
  void trim() noexcept;

 private:
  // An entry is the hash, then the id plus 2, so that none is empty or a tombstone.
  using Slot = std::atomic<std::uint64_t>;
  static constexpr std::uint64_t kEmpty = 0;
  static constexpr std::uint64_t kTombstone = 1;
  static std::uint32_t id_of(std::uint64_t entry) { return static_cast<std::uint32_t>(entry) - 2; }
  static std::uint64_t make_entry(std::uint32_t hash, std::uint32_t id) {
    return std::uint64_t{hash} << 32 | (std::uint64_t{id} + 2);
  }

  [[nodiscard]] std::size_t capacity() const { return memory_ ? memory_[0].load(std::memory_order_relaxed) + 1 : 0; }
  void rebuild(std::size_t capacity);

  alignas(64) std::atomic<const Slot*> slots_{nullptr};  // what readers see of memory_
  alignas(64) Gate& gate_;
  std::unique_ptr<Slot[]> memory_;  // the mask, then mask + 1 entries
  std::size_t size_ = 0;
  std::size_t used_ = 0;  // entries and tombstones
};

}  // namespace cairn

#endif  // CAIRN_INDEX_CHILD_TABLE_H_
