#include "engine/evicted_memory.h"

#include <algorithm>
#include <new>

namespace cairn {

Fingerprint fingerprint_of_start(AdapterId adapter, std::uint64_t epoch) noexcept {
  const std::uint64_t start[] = {adapter, epoch};
  return hash_bytes(std::as_bytes(std::span(start)), 0) | 1;
}

Fingerprint fingerprint_after(Fingerprint before, std::span<const TokenId> tokens) noexcept {
  const Fingerprint fingerprint = hash_tokens(tokens, before);
  return fingerprint == 0 ? 1 : fingerprint;
}

EvictedMemory::EvictedMemory(const Limits& limits)
    : remembered_max_(limits.remembered_max),
      blocks_now_(limits.remembered_max > 0 ? limits.blocks : 0),
      slots_now_(limits.remembered_max > 0 ? limits.slots : 0) {
  const std::size_t reserved = std::min(remembered_max_, kReservedMax);
  if (limits.blocks > 0) {
    blocks_.entries.reserve(reserved);
    newest_.reserve(reserved);
  }
  if (limits.slots > 0) snapshots_.entries.reserve(reserved);
}

void EvictedMemory::set_block(BlockId block, Fingerprint fingerprint) noexcept {
  if (block < blocks_now_.size()) blocks_now_[block].store(fingerprint, std::memory_order_relaxed);
}

Fingerprint EvictedMemory::of_block(BlockId block) const noexcept {
  return block < blocks_now_.size() ? blocks_now_[block].load(std::memory_order_relaxed) : 0;
}

void EvictedMemory::set_snapshot(SnapshotId slot, const SnapshotPlace& place) noexcept {
  if (!is_on()) return;
  const MutexLock lock(mutex_);
  if (slot < slots_now_.size()) slots_now_[slot] = place;
}

void EvictedMemory::blocks_left(std::span<const BlockId> blocks, std::uint64_t admission) noexcept {
  if (blocks.empty()) return;
  if (!is_on()) {
    blocks_left_.fetch_add(blocks.size(), std::memory_order_relaxed);
    return;
  }
  const Eviction eviction{.admission = admission, .when = Clock::now()};
  const MutexLock lock(mutex_);
  try {
    for (const BlockId block : blocks) {
      if (const Fingerprint fingerprint = of_block(block); fingerprint != 0) add_block(fingerprint, eviction);
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // The rest is not remembered, then.
  }
  blocks_left_.store(blocks_.left, std::memory_order_relaxed);
}

void EvictedMemory::add_block(Fingerprint fingerprint, const Eviction& eviction) {
  make_room(newest_, 1);
  if (blocks_.entries.size() == remembered_max_) {
    // Its place is taken over. What came before it is gone already.
    const std::uint64_t oldest = blocks_.left - remembered_max_;
    const auto found = newest_.find(blocks_.entries[oldest % remembered_max_].fingerprint);
    if (found != newest_.end() && found->second == oldest) newest_.erase(found);
  }
  const auto found = newest_.find(fingerprint);
  const std::uint64_t number = blocks_.left;
  blocks_.add(
      {.fingerprint = fingerprint, .eviction = eviction, .earlier = found == newest_.end() ? kNone : found->second},
      remembered_max_);
  newest_[fingerprint] = number;
}

void EvictedMemory::snapshot_left(SnapshotId slot, How how, std::uint64_t admission) noexcept {
  if (!is_on()) {
    snapshots_left_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const Eviction eviction{.admission = admission, .when = Clock::now(), .how = how};
  const MutexLock lock(mutex_);
  if (slot >= slots_now_.size() || slots_now_[slot].fingerprint == 0) return;
  try {
    snapshots_.add({.place = slots_now_[slot], .eviction = eviction}, remembered_max_);
  } catch (const std::bad_alloc&) {
    return;
  }
  slots_now_[slot] = {};
  snapshots_left_.store(snapshots_.left, std::memory_order_relaxed);
}

EvictedMemory::Moment EvictedMemory::now() const noexcept {
  return {.blocks = blocks_left_.load(std::memory_order_relaxed),
          .snapshots = snapshots_left_.load(std::memory_order_relaxed)};
}

std::optional<EvictedMemory::Eviction> EvictedMemory::find_block(Fingerprint fingerprint, const Moment& moment) const {
  const MutexLock lock(mutex_);
  const auto found = newest_.find(fingerprint);
  if (found == newest_.end()) return std::nullopt;
  for (std::uint64_t number = found->second; number != kNone && number + remembered_max_ >= blocks_.left;) {
    const Block& block = blocks_.entries[number % remembered_max_];
    if (number < moment.blocks) return block.eviction;
    number = block.earlier;
  }
  return std::nullopt;
}

bool EvictedMemory::has_forgotten_blocks(const Moment& moment) const noexcept {
  if (!is_on()) return moment.blocks > 0;
  const MutexLock lock(mutex_);
  return moment.blocks > 0 && blocks_.left > blocks_.entries.size();
}

bool EvictedMemory::has_forgotten_snapshots(const Moment& moment) const noexcept {
  if (!is_on()) return moment.snapshots > 0;
  const MutexLock lock(mutex_);
  return moment.snapshots > 0 && snapshots_.left > snapshots_.entries.size();
}

std::size_t EvictedMemory::copy_snapshots(std::uint64_t& before, std::span<Snapshot> piece) const {
  const MutexLock lock(mutex_);
  const std::uint64_t oldest = snapshots_.left - snapshots_.entries.size();
  before = std::min(before, snapshots_.left);
  std::size_t count = 0;
  for (; count < piece.size() && before > oldest; ++count) {
    --before;
    piece[count] = snapshots_.entries[before % remembered_max_];
  }
  return count;
}

std::size_t EvictedMemory::remembered() const {
  const MutexLock lock(mutex_);
  return blocks_.entries.size() + snapshots_.entries.size();
}

std::size_t EvictedMemory::memory_bytes() const {
  const MutexLock lock(mutex_);
  return blocks_now_.size() * sizeof(Fingerprint) + slots_now_.size() * sizeof(SnapshotPlace) +
         blocks_.entries.capacity() * sizeof(Block) + snapshots_.entries.capacity() * sizeof(Snapshot) +
         newest_.bucket_count() * sizeof(decltype(newest_)::value_type);
}

}  // namespace cairn
