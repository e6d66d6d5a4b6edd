// Which edge loses a block next: a heap of (stamp, edge) that is corrected lazily.
//
// Invariant, kept by the trie: each edge whose last cached block can be evicted has one entry, and the entry's stamp
// is no newer than that block's. Stamps of an edge's last block only ever grow, and uses come and go without a word
// to the queue; whoever takes the oldest entry compares it with the edge and drops or corrects it.
#ifndef CAIRN_INDEX_EVICTION_QUEUE_H_
#define CAIRN_INDEX_EVICTION_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "base/containers.h"
#include "index/edge_store.h"

namespace cairn {

class EvictionQueue {
 public:
  struct Entry {
    Stamp stamp = 0;
    EdgeId edge = kNoEdge;

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  // Room for `count` entries in all. Throws std::bad_alloc.
  void reserve(std::size_t count) {
    if (count > entries_.size()) make_room(entries_, count - entries_.size());
  }

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] const Entry& oldest() const { return entries_.front(); }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  // O(log n); within the reserved room it doesn't allocate.
  void push(Entry entry) {
    entries_.push_back(entry);
    std::push_heap(entries_.begin(), entries_.end(), std::greater<>{});
  }
  void pop() {
    std::pop_heap(entries_.begin(), entries_.end(), std::greater<>{});
    entries_.pop_back();
  }

  template <class Predicate>
  void remove_if(Predicate predicate) {
    std::erase_if(entries_, predicate);
    std::make_heap(entries_.begin(), entries_.end(), std::greater<>{});
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_EVICTION_QUEUE_H_
