// Stand-ins for the engine's pools: they follow the answers of a cache and refuse what breaks its promises.
#ifndef CAIRN_TESTS_SUPPORT_LEDGERS_H_
#define CAIRN_TESTS_SUPPORT_LEDGERS_H_

#include <cairn/prefix_cache.h>

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace cairn::testing {

// A promise of the contract that did not hold, or an answer that differs from the model's.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The references that the cache holds on the blocks of one pool.
class BlockLedger {
 public:
  // `first_index_id` is the id of the pool's first block; the others count up from 1.
  explicit BlockLedger(std::uint32_t first_index_id) : first_index_id_(first_index_id) {}

  // `count` different ids that the cache does not hold, the smallest ones: an id is used again at once.
  [[nodiscard]] std::vector<std::uint32_t> take_free(std::size_t count) const;
  void acquire(std::span<const std::uint32_t> ids);
  // Throws Violation if an id is given back more often than it was acquired.
  void give_back(std::span<const std::uint32_t> ids);
  [[nodiscard]] const std::map<std::uint32_t, std::size_t>& references() const { return references_; }

 private:
  std::uint32_t first_index_id_;
  std::map<std::uint32_t, std::size_t> references_;  // ids held at least once
};

// The slots of a snapshot pool, and which of them the cache has.
class SlotLedger {
 public:
  explicit SlotLedger(std::size_t slots);

  [[nodiscard]] std::optional<SnapshotId> free_slot() const;
  void hand_in(SnapshotId slot);
  // Throws Violation if the cache did not have the slot.
  void give_back(SnapshotId slot);
  [[nodiscard]] const std::set<SnapshotId>& in_cache() const { return in_cache_; }

 private:
  std::set<SnapshotId> free_;
  std::set<SnapshotId> in_cache_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_LEDGERS_H_
