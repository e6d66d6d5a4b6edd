// The cache that caches nothing: the baseline, and what an engine runs with when prefix caching is switched off.
#ifndef CAIRN_NO_PREFIX_CACHING_H_
#define CAIRN_NO_PREFIX_CACHING_H_

#include <cairn/prefix_cache.h>

namespace cairn {

// Every answer is empty and is_active() is false. It never takes ownership: what a caller passes in stays the
// caller's, so a caller asks is_active() before it fills a slot. It checks no arguments and holds no state.
class NoPrefixCaching final : public PrefixCache {
 public:
  PrefixMatch lookup(std::span<const TokenId> tokens, std::size_t block_size, SessionHash session_hash,
                     AdapterId adapter_id) override;
  InsertAcquired insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                        std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                        std::size_t matched_tokens, AdapterId adapter_id) override;
  SnapshotInsert insert_with_snapshot(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                      std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                      SnapshotId snapshot_id, SessionHash session_hash, std::size_t matched_tokens,
                                      AdapterId adapter_id) override;
  std::optional<SnapshotId> insert_intermediate_snapshot(std::span<const TokenId> tokens,
                                                         std::span<const BlockId> block_table,
                                                         std::span<const DiskBlockId> disk_block_ids,
                                                         std::size_t block_size, SnapshotId snapshot_id,
                                                         SessionHash session_hash, std::size_t matched_tokens,
                                                         AdapterId adapter_id) override;
  std::vector<SnapshotId> insert_tail_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                               SessionHash session_hash, AdapterId adapter_id) override;
  std::optional<SnapshotId> insert_tail_sibling_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                                         SessionHash session_hash, AdapterId adapter_id) override;
  void release(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter_id) override;
  void release_matched(std::span<const TokenId> tokens, std::size_t block_size, std::size_t matched_tokens,
                       AdapterId adapter_id) override;
  EvictedBlocks evict(std::size_t num_blocks) override;
  std::optional<SnapshotId> evict_snapshot_lru() override;
  [[nodiscard]] std::size_t snapshot_count() const override;
  [[nodiscard]] CacheStats stats() const override;
  [[nodiscard]] bool is_active() const override;
};

}  // namespace cairn

#endif  // CAIRN_NO_PREFIX_CACHING_H_
