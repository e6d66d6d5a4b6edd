#include "cairn/prefix_cache.h"

namespace cairn {

PrefixCache::~PrefixCache() = default;

bool PrefixCache::is_active() const {
  return true;
}

std::size_t PrefixCache::peek_matched_tokens(std::span<const TokenId>, std::size_t, AdapterId) const {
  return 0;
}

std::optional<TierEvict> PrefixCache::evict_snapshot_to_tier(std::size_t) {
  return std::nullopt;
}

bool PrefixCache::promote_snapshot(TierKey, SnapshotId) {
  return false;
}

bool PrefixCache::forget_snapshot_tier_key(TierKey) {
  return false;
}

SnapshotRef PrefixCache::find_snapshot(std::span<const TokenId>, std::size_t, SessionHash, AdapterId) {
  return {};
}

std::vector<TierKey> PrefixCache::take_orphaned_tier_keys() {
  return {};
}

Cleared PrefixCache::clear(AdapterId) {
  return {};
}

Cleared PrefixCache::clear() {
  return {};
}

std::uint64_t PrefixCache::epoch(AdapterId) const {
  return 0;
}

}  // namespace cairn
