#include "support/ledgers.h"

#include <limits>

namespace cairn::testing {

std::vector<std::uint32_t> BlockLedger::take_free(std::size_t count) const {
  std::vector<std::uint32_t> ids;
  ids.reserve(count);
  for (std::uint32_t index = 0; ids.size() < count; ++index) {
    const std::uint32_t id = index == 0 ? first_index_id_ : index;
    if (!references_.contains(id)) ids.push_back(id);
  }
  return ids;
}

void BlockLedger::acquire(std::span<const std::uint32_t> ids) {
  for (const std::uint32_t id : ids) ++references_[id];
}

void BlockLedger::give_back(std::span<const std::uint32_t> ids) {
  for (const std::uint32_t id : ids) {
    const auto entry = references_.find(id);
    if (entry == references_.end()) {
      throw Violation("block " + std::to_string(id) + " was given back more often than it was acquired");
    }
    if (--entry->second == 0) references_.erase(entry);
  }
}

SlotLedger::SlotLedger(std::size_t slots) {
  free_.insert(std::numeric_limits<SnapshotId>::max());
  for (SnapshotId slot = 0; slot + 1 < slots; ++slot) free_.insert(slot);
}

std::optional<SnapshotId> SlotLedger::free_slot() const {
  if (free_.empty()) return std::nullopt;
  return *free_.begin();
}

void SlotLedger::hand_in(SnapshotId slot) {
  if (free_.erase(slot) == 0) throw Violation("the test handed in slot " + std::to_string(slot) + " twice");
  in_cache_.insert(slot);
}

void SlotLedger::give_back(SnapshotId slot) {
  if (in_cache_.erase(slot) == 0) {
    throw Violation("slot " + std::to_string(slot) + " was given back, but the cache did not have it");
  }
  free_.insert(slot);
}

}  // namespace cairn::testing
