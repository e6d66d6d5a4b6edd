// Ends in some order, each at most once: the one that ranks lowest first. An end's entry can be replaced or erased.
#ifndef CAIRN_POLICY_END_HEAP_H_
#define CAIRN_POLICY_END_HEAP_H_

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/containers.h"
#include "index/edge_store.h"

namespace cairn {

// Room in something that is indexed by edge. Throws std::bad_alloc.
template <class T>
void make_room_by_edge(std::vector<T>& items, EdgeId id_limit, const T& none) {
  if (items.size() < id_limit) items.resize(std::max<std::size_t>(id_limit, 2 * items.size()), none);
}

// A 4-ary heap that knows where each end's entry is. O(log n) each, but for what is said.
class EndHeap {
 public:
  struct Rank {
    std::uint64_t major = 0;
    std::uint64_t minor = 0;

    friend auto operator<=>(const Rank&, const Rank&) = default;
  };
  struct Entry {
    Rank rank;
    EdgeId edge = kNoEdge;

    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  // Throws std::bad_alloc. Without it nothing may be pushed.
  void reserve(std::size_t ends, EdgeId id_limit) {
    if (ends > entries_.size()) make_room(entries_, ends - entries_.size());
    make_room_by_edge(places_, id_limit, kNowhere);
  }
  void free_memory() noexcept {
    CAIRN_DCHECK(entries_.empty());
    std::vector<Entry>().swap(entries_);
    std::vector<std::uint32_t>().swap(places_);
  }

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] const Entry& first() const { return entries_.front(); }
  [[nodiscard]] bool contains(EdgeId edge) const { return edge < places_.size() && places_[edge] != kNowhere; }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  // Replaces the end's entry, if it has one.
  void push(EdgeId edge, Rank rank) noexcept {
    erase(edge);
    entries_.push_back({});  // within the room reserved
    rise(entries_.size() - 1, {rank, edge});
  }
  Entry pop() noexcept {
    const Entry entry = entries_.front();
    erase(entry.edge);
    return entry;
  }
  void erase(EdgeId edge) noexcept {
    if (!contains(edge)) return;
    const std::size_t hole = places_[edge];
    places_[edge] = kNowhere;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (hole == entries_.size()) return;
    if (hole > 0 && last < entries_[(hole - 1) / kArity]) {
      rise(hole, last);
    } else {
      sink(hole, last);
    }
  }
  // O(n log n).
  template <class Predicate>
  void erase_if(const Predicate& goes) noexcept {
    for (std::size_t i = entries_.size(); i-- > 0;) {
      if (i < entries_.size() && goes(entries_[i].edge)) {
        erase(entries_[i].edge);
        ++i;  // another entry lies there now
      }
    }
  }

 private:
  static constexpr std::size_t kArity = 4;
  static constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();

  void put(std::size_t place, const Entry& entry) noexcept {
    entries_[place] = entry;
    places_[entry.edge] = static_cast<std::uint32_t>(place);
  }
  void rise(std::size_t hole, const Entry& entry) noexcept {
    for (; hole > 0 && entry < entries_[(hole - 1) / kArity]; hole = (hole - 1) / kArity) {
      put(hole, entries_[(hole - 1) / kArity]);
    }
    put(hole, entry);
  }
  void sink(std::size_t hole, const Entry& entry) noexcept {
    for (;;) {
      const std::size_t first = hole * kArity + 1;
      if (first >= entries_.size()) break;
      const std::size_t end = std::min(first + kArity, entries_.size());
      std::size_t least = first;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (entries_[child] < entries_[least]) least = child;
      }
      if (!(entries_[least] < entry)) break;
      put(hole, entries_[least]);
      hole = least;
    }
    put(hole, entry);
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> places_;  // by edge
};

}  // namespace cairn

#endif  // CAIRN_POLICY_END_HEAP_H_
