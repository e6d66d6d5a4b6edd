// The keys of blocks in a store: which place has which key, and which of them have a record there.
//
// A key is given to a place (Position) when it is first named, and stays with it for as long as the trie keeps the
// place's tokens, with a record or without. Keys are never used again; those of spilled snapshots come from the same
// count. For writers, who need not close the gate: no walk and no commit looks here, but for how many records there
// are.
#ifndef CAIRN_INDEX_BLOCK_KEYS_H_
#define CAIRN_INDEX_BLOCK_KEYS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/containers.h"
#include "cairn/prefix_cache.h"
#include "index/edge_store.h"

namespace cairn {

class BlockKeys {
 public:
  explicit BlockKeys(TierKey first_key) : first_(first_key), next_(first_key) {}
  BlockKeys(const BlockKeys&) = delete;
  BlockKeys& operator=(const BlockKeys&) = delete;

  [[nodiscard]] TierKey first() const { return first_; }
  // One that nobody has had.
  TierKey take_next() noexcept { return next_++; }

  [[nodiscard]] std::size_t size() const { return by_key_.size(); }
  // Any thread. Relaxed: a reader that does not see a record yet came before it.
  [[nodiscard]] std::size_t recorded() const { return recorded_.load(std::memory_order_relaxed); }
  // That of a place, or 0.
  [[nodiscard]] TierKey at(Position at) const;
  // The same, if it has a record.
  [[nodiscard]] TierKey recorded_at(Position at) const;
  [[nodiscard]] bool is_known(TierKey key) const { return by_key_.contains(key); }
  [[nodiscard]] std::optional<Position> find_record(TierKey key) const;

  // Room for so many keys more. Throws std::bad_alloc.
  void reserve(std::size_t keys);
  // Gives the place one if it has none. Within the room reserved, as the next.
  TierKey name(Position at) noexcept;
  // The place has none, and the key no place.
  void assign(Position at, TierKey key) noexcept;
  void set_recorded(TierKey key, bool is_recorded) noexcept;
  // The place is no more; it has no record.
  void erase(Position at) noexcept;
  // Removes the keys of all places for which `goes(at)`, calling `record(key)` for each that has one.
  template <class Goes, class Record>
  void clear(Goes goes, Record record) noexcept {
    boost::unordered::erase_if(by_key_, [&](const auto& entry) {
      if (!goes(entry.second.at)) return false;
      if (entry.second.recorded) {
        record(entry.first);
        add_recorded(-1);
      }
      by_place_.erase(entry.second.at.key());
      return true;
    });
  }
  // Gives back the memory of empty tables.
  void free_memory() noexcept;

  // Calls `visit(key, at, recorded)` for each until it returns false. Whether each place has the key that is its own.
  template <class Visit>
  [[nodiscard]] bool check(Visit visit) const {
    std::size_t recorded = 0;
    for (const auto& [key, place] : by_key_) {
      if (at(place.at) != key || !visit(key, place.at, place.recorded)) return false;
      if (place.recorded) ++recorded;
    }
    return by_place_.size() == by_key_.size() && recorded == this->recorded();
  }

 private:
  struct Place {
    Position at;
    bool recorded = false;
  };

  // There is one writer at a time.
  void add_recorded(int change) noexcept {
    recorded_.store(recorded() + static_cast<std::size_t>(change), std::memory_order_relaxed);
  }

  const TierKey first_;
  TierKey next_;
  IdMap<TierKey> by_place_;  // by Position::key
  IdMap<Place> by_key_;
  std::atomic<std::size_t> recorded_{0};
};

}  // namespace cairn

#endif  // CAIRN_INDEX_BLOCK_KEYS_H_
