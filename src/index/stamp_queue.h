// The order of eviction, for blocks and for snapshots: a heap of (stamp, id), oldest first, that is corrected lazily.
//
// Stamps change with every lookup; the queue hears nothing of it. An entry's stamp is no newer than that of what it
// stands for, so whoever takes the oldest entry looks there, and drops the entry or puts it back with the present
// stamp. What cannot be evicted at present need have no entry.
#ifndef CAIRN_INDEX_STAMP_QUEUE_H_
#define CAIRN_INDEX_STAMP_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/containers.h"
#include "index/edge_store.h"

namespace cairn {

// A 4-ary heap: half as deep as a binary one, and four children lie in one or two cache lines.
class StampQueue {
 public:
  struct Entry {
    Stamp stamp = 0;
    std::uint32_t id = 0;

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  // Room for `count` entries in all. Throws std::bad_alloc.
  void reserve(std::size_t count) {
    if (count > entries_.size()) make_room(entries_, count - entries_.size());
  }

  // Gives back the memory of an empty queue; room has to be reserved again.
  void free_memory() {
    if (entries_.empty()) std::vector<Entry>().swap(entries_);
  }

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] const Entry& oldest() const { return entries_.front(); }
  // The oldest first, then its children in the heap, and so on.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  // O(log n); within the room reserved it doesn't allocate.
  void push(Entry entry) {
    entries_.push_back(entry);
    std::size_t hole = entries_.size() - 1;
    for (; hole > 0 && entry < entries_[(hole - 1) / kArity]; hole = (hole - 1) / kArity) {
      entries_[hole] = entries_[(hole - 1) / kArity];
    }
    entries_[hole] = entry;
  }

  void pop() {
    const Entry last = entries_.back();
    entries_.pop_back();
    if (!entries_.empty()) sink(0, last);
  }

  // O(n).
  template <class Predicate>
  void remove_if(Predicate predicate) {
    std::erase_if(entries_, predicate);
    for (std::size_t i = entries_.size() / kArity + 1; i-- > 0;) {
      if (i < entries_.size()) sink(i, entries_[i]);
    }
  }

 private:
  static constexpr std::size_t kArity = 4;

  // Puts `entry` at `hole` or below it.
  void sink(std::size_t hole, Entry entry) {
    while (true) {
      const std::size_t first = hole * kArity + 1;
      if (first >= entries_.size()) break;
      const std::size_t end = std::min(first + kArity, entries_.size());
      std::size_t least = first;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (entries_[child] < entries_[least]) least = child;
      }
      if (!(entries_[least] < entry)) break;
      entries_[hole] = entries_[least];
      hole = least;
    }
    entries_[hole] = entry;
  }

  std::vector<Entry> entries_;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_STAMP_QUEUE_H_
