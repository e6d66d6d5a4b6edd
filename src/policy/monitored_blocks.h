// When and how often blocks were used, cached or not: a table of fixed size that gives up what was not used longest.
#ifndef CAIRN_POLICY_MONITORED_BLOCKS_H_
#define CAIRN_POLICY_MONITORED_BLOCKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "index/edge_store.h"

namespace cairn {

// Sets of a few entries each. Blocks are told apart by fingerprints: two that clash are taken for one.
class MonitoredBlocks {
 public:
  struct Entry {
    std::uint64_t fingerprint = 0;
    Stamp last = 0;
    std::uint64_t uses = 0;  // 0: not in use
  };

  // Room for so many, roughly. If that is much more than before, what is known moves over. Throws std::bad_alloc.
  void reserve(std::size_t entries) {
    if (entries <= entries_.size() + entries_.size() / 4) return;
    std::vector<Entry> old(std::max<std::size_t>(1, entries / kWays) * kWays);
    old.swap(entries_);
    filled_ = 0;
    for (const Entry& entry : old) {
      if (entry.uses == 0) continue;
      Entry& place = place_for(entry.fingerprint);
      if (place.uses == 0) ++filled_;
      if (place.last < entry.last) place = entry;
    }
  }
  [[nodiscard]] std::span<const Entry> all() const { return entries_; }
  [[nodiscard]] std::size_t filled() const { return filled_; }

  // Null if it is not there.
  [[nodiscard]] Entry* find(std::uint64_t fingerprint) {
    const auto ways = ways_of(fingerprint);
    const auto found = std::ranges::find_if(
        ways, [&](const Entry& entry) { return entry.uses > 0 && entry.fingerprint == fingerprint; });
    return found == ways.end() ? nullptr : &*found;
  }
  // The entry that has to make way for it: to be overwritten, with a use at least.
  [[nodiscard]] Entry& make_way(std::uint64_t fingerprint) {
    Entry& place = place_for(fingerprint);
    if (place.uses == 0) ++filled_;
    return place;
  }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  void free_memory() noexcept {
    std::vector<Entry>().swap(entries_);
    filled_ = 0;
  }

 private:
  static constexpr std::size_t kWays = 8;

  [[nodiscard]] std::span<Entry> ways_of(std::uint64_t fingerprint) {
    return std::span(entries_).subspan(fingerprint % (entries_.size() / kWays) * kWays, kWays);
  }
  [[nodiscard]] Entry& place_for(std::uint64_t fingerprint) {
    return *std::ranges::min_element(ways_of(fingerprint), {},
                                     [](const Entry& entry) { return std::pair(entry.uses > 0, entry.last); });
  }

  std::vector<Entry> entries_;
  std::size_t filled_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_POLICY_MONITORED_BLOCKS_H_
