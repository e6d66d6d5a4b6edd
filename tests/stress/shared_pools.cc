#include "stress/shared_pools.h"

namespace cairn::testing {

std::uint64_t digest_of(std::span<const TokenId> tokens, AdapterId adapter_id) {
  std::uint64_t digest = 0xCBF29CE484222325 ^ adapter_id;
  for (const TokenId token : tokens) {
    digest = (digest ^ token) * 0x100000001B3;
    digest ^= digest >> 29;
  }
  return digest;
}

void Complaints::add(const std::string& complaint) {
  const std::lock_guard lock(mutex_);
  complaints_.push_back(complaint);
  any_.store(true, std::memory_order_relaxed);
}

std::vector<std::string> Complaints::all() const {
  const std::lock_guard lock(mutex_);
  return complaints_;
}

// ---- Blocks ----

SharedBlocks::SharedBlocks(std::size_t count, Complaints& complaints) : blocks_(count), complaints_(complaints) {
  for (std::size_t block = 0; block < count; ++block) free_.push_back(static_cast<BlockId>(block));
}

std::optional<BlockId> SharedBlocks::allocate(std::uint64_t digest) {
  BlockId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    id = free_.back();
    free_.pop_back();
  }
  Block& block = blocks_[id];
  if (block.references.fetch_add(1, std::memory_order_acq_rel) != 0) {
    complaints_.add("block " + std::to_string(id) + " was free and referenced");
  }
  block.digest.store(digest, std::memory_order_relaxed);
  return id;
}

void SharedBlocks::add_reference(BlockId id) {
  if (blocks_.at(id).references.fetch_add(1, std::memory_order_acq_rel) < 1) {
    complaints_.add("a reference was taken on block " + std::to_string(id) + ", which nobody holds");
  }
}

void SharedBlocks::drop_reference(BlockId id) {
  const std::int64_t before = blocks_.at(id).references.fetch_sub(1, std::memory_order_acq_rel);
  if (before < 1) complaints_.add("block " + std::to_string(id) + " was given back more often than taken");
  if (before != 1) return;
  const std::lock_guard lock(mutex_);
  free_.push_back(id);
}

void SharedBlocks::drop_references(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) drop_reference(block);
}

std::uint64_t SharedBlocks::digest(BlockId block) const {
  return blocks_.at(block).digest.load(std::memory_order_relaxed);
}

std::size_t SharedBlocks::free_count() const {
  const std::lock_guard lock(mutex_);
  return free_.size();
}

// ---- Slots ----

SharedSlots::SharedSlots(std::size_t count, Complaints& complaints) : complaints_(complaints), digests_(count) {
  for (SnapshotId slot = 0; slot < count; ++slot) free_.insert(slot);
}

std::optional<SnapshotId> SharedSlots::take(std::uint64_t digest) {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const SnapshotId slot = *free_.begin();
  free_.erase(free_.begin());
  digests_[slot] = digest;
  return slot;
}

void SharedSlots::give_back(SnapshotId slot) {
  const std::lock_guard lock(mutex_);
  if (!free_.insert(slot).second) complaints_.add("slot " + std::to_string(slot) + " was given back twice");
}

std::uint64_t SharedSlots::digest(SnapshotId slot) const {
  const std::lock_guard lock(mutex_);
  return digests_.at(slot);
}

std::size_t SharedSlots::free_count() const {
  const std::lock_guard lock(mutex_);
  return free_.size();
}

// ---- Tier ----

void SharedTier::store(TierKey key, std::uint64_t digest) {
  const std::lock_guard lock(mutex_);
  if (!digests_.emplace(key, digest).second) {
    complaints_.add("tier key " + std::to_string(key) + " was handed out twice");
  }
}

std::optional<std::uint64_t> SharedTier::find(TierKey key) const {
  const std::lock_guard lock(mutex_);
  const auto found = digests_.find(key);
  if (found == digests_.end()) return std::nullopt;
  return found->second;
}

TierKey SharedTier::some_key(std::size_t which) const {
  const std::lock_guard lock(mutex_);
  if (digests_.empty()) return 0;
  constexpr std::size_t kLately = 16;
  auto entry = digests_.end();
  for (std::size_t back = which % kLately + 1; back > 0 && entry != digests_.begin(); --back) --entry;
  return entry->first;
}

}  // namespace cairn::testing
