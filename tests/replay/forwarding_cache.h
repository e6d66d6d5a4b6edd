// A cache that passes every call on to a RadixTree: tests override what they want to watch or to break.
#ifndef CAIRN_TESTS_REPLAY_FORWARDING_CACHE_H_
#define CAIRN_TESTS_REPLAY_FORWARDING_CACHE_H_

#include <cairn/prefix_cache.h>
#include <cairn/radix_tree.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace cairn::replay {

class ForwardingCache : public PrefixCache {
 public:
  using Tokens = std::span<const TokenId>;
  using Blocks = std::span<const BlockId>;
  using DiskBlocks = std::span<const DiskBlockId>;

  explicit ForwardingCache(std::size_t block_size) : tree_({.block_size = block_size}) {}

  PrefixMatch lookup(Tokens tokens, std::size_t block_size, SessionHash session, AdapterId adapter) override {
    return tree_.lookup(tokens, block_size, session, adapter);
  }
  InsertAcquired insert(Tokens tokens, Blocks table, DiskBlocks disk, std::size_t block_size, std::size_t matched,
                        AdapterId adapter) override {
    return tree_.insert(tokens, table, disk, block_size, matched, adapter);
  }
  void release(Tokens tokens, std::size_t block_size, AdapterId adapter) override {
    tree_.release(tokens, block_size, adapter);
  }
  void release_matched(Tokens tokens, std::size_t block_size, std::size_t matched, AdapterId adapter) override {
    tree_.release_matched(tokens, block_size, matched, adapter);
  }
  EvictedBlocks evict(std::size_t blocks) override { return tree_.evict(blocks); }
  [[nodiscard]] CacheStats stats() const override { return tree_.stats(); }

  // The replay uses no snapshots.
  SnapshotInsert insert_with_snapshot(Tokens, Blocks, DiskBlocks, std::size_t, SnapshotId, SessionHash, std::size_t,
                                      AdapterId) override {
    return {};
  }
  std::optional<SnapshotId> insert_intermediate_snapshot(Tokens, Blocks, DiskBlocks, std::size_t, SnapshotId,
                                                         SessionHash, std::size_t, AdapterId) override {
    return std::nullopt;
  }
  std::vector<SnapshotId> insert_tail_snapshot(Tokens, SnapshotId, SessionHash, AdapterId) override { return {}; }
  std::optional<SnapshotId> insert_tail_sibling_snapshot(Tokens, SnapshotId, SessionHash, AdapterId) override {
    return std::nullopt;
  }
  std::optional<SnapshotId> evict_snapshot_lru() override { return std::nullopt; }
  [[nodiscard]] std::size_t snapshot_count() const override { return 0; }

 protected:
  RadixTree tree_;
};

}  // namespace cairn::replay

#endif  // CAIRN_TESTS_REPLAY_FORWARDING_CACHE_H_
