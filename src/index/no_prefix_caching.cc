#include "cairn/no_prefix_caching.h"

namespace cairn {

PrefixMatch NoPrefixCaching::lookup(std::span<const TokenId>, std::size_t, SessionHash, AdapterId) {
  return {};
}

InsertAcquired NoPrefixCaching::insert(std::span<const TokenId>, std::span<const BlockId>,
                                       std::span<const DiskBlockId>, std::size_t, std::size_t, AdapterId) {
  return {};
}

SnapshotInsert NoPrefixCaching::insert_with_snapshot(std::span<const TokenId>, std::span<const BlockId>,
                                                     std::span<const DiskBlockId>, std::size_t, SnapshotId,
                                                     SessionHash, std::size_t, AdapterId) {
  return {};
}

std::optional<SnapshotId> NoPrefixCaching::insert_intermediate_snapshot(std::span<const TokenId>,
                                                                        std::span<const BlockId>,
                                                                        std::span<const DiskBlockId>, std::size_t,
                                                                        SnapshotId, SessionHash, std::size_t,
                                                                        AdapterId) {
  return std::nullopt;
}

std::vector<SnapshotId> NoPrefixCaching::insert_tail_snapshot(std::span<const TokenId>, SnapshotId, SessionHash,
                                                              AdapterId) {
  return {};
}

std::optional<SnapshotId> NoPrefixCaching::insert_tail_sibling_snapshot(std::span<const TokenId>, SnapshotId,
                                                                        SessionHash, AdapterId) {
  return std::nullopt;
}

void NoPrefixCaching::release(std::span<const TokenId>, std::size_t, AdapterId) {}

void NoPrefixCaching::release_matched(std::span<const TokenId>, std::size_t, std::size_t, AdapterId) {}

EvictedBlocks NoPrefixCaching::evict(std::size_t) {
  return {};
}

std::optional<SnapshotId> NoPrefixCaching::evict_snapshot_lru() {
  return std::nullopt;
}

std::size_t NoPrefixCaching::snapshot_count() const {
  return 0;
}

CacheStats NoPrefixCaching::stats() const {
  return {};
}

bool NoPrefixCaching::is_active() const {
  return false;
}

}  // namespace cairn
