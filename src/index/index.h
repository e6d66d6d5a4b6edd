// The contract's steps on the trie of blocks and the table of snapshots. Each call is one step; whoever calls it
// makes it atomic (RadixTree does, with a lock).
//
// Every call that allocates does so before it changes anything, so that std::bad_alloc leaves all as it was.
#ifndef CAIRN_INDEX_INDEX_H_
#define CAIRN_INDEX_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/containers.h"
#include "cairn/prefix_cache.h"
#include "cairn/radix_tree.h"
#include "index/block_trie.h"
#include "index/snapshot_table.h"

namespace cairn {

class Index {
 public:
  Index(const RadixTreeOptions& options, std::uint64_t hash_seed);

  // ---- Blocks ----

  // Who claims the chain that was found or made.
  enum class Claim { kUse, kHandle };
  struct Found {
    PrefixMatch match;
    Position end;  // no edge if nothing matched
  };
  Found lookup(std::span<const TokenId> tokens, SessionHash session, AdapterId adapter_id, Claim claim);
  [[nodiscard]] std::size_t peek(std::span<const TokenId> tokens, AdapterId adapter_id) const;

  struct Insert {
    std::span<const TokenId> tokens;
    std::span<const BlockId> block_table;
    std::span<const DiskBlockId> disk_block_ids;  // empty or as long as block_table
    std::size_t matched_tokens = 0;
    AdapterId adapter_id = 0;
  };
  InsertAcquired insert(const Insert& what);
  // The first `matched_tokens` of them. Counts a protocol error if nobody can have held that.
  void release(std::span<const TokenId> tokens, std::size_t matched_tokens, AdapterId adapter_id) noexcept;

  // Inserts below `at` (no edge: the root), which the caller holds by handle, and moves the hold to the new end.
  InsertAcquired extend(Position& at, const Insert& what);
  // Moves the hold up to `depth` blocks.
  void truncate(Position& at, std::size_t depth);
  void release_handle(Position at) noexcept;

  EvictedBlocks evict(std::size_t num_blocks);

  // ---- Snapshots ----

  SnapshotInsert insert_with_snapshot(const Insert& what, const SnapshotTable::Put& snapshot);
  std::optional<SnapshotId> put(const SnapshotTable::Put& snapshot);  // returns the slot displaced
  std::vector<SnapshotId> put_tail(const SnapshotTable::Put& snapshot);
  std::optional<SnapshotId> put_tail_sibling(const SnapshotTable::Put& snapshot);
  SnapshotRef find_snapshot(std::span<const TokenId> tokens, std::size_t max_tokens, SessionHash session,
                            AdapterId adapter_id);
  std::optional<SnapshotId> evict_snapshot();
  std::optional<TierEvict> evict_snapshot_to_tier(std::size_t min_tokens);
  bool promote(TierKey key, SnapshotId new_slot);
  bool forget(TierKey key) noexcept;
  std::vector<TierKey> take_orphaned() noexcept { return snapshots_.take_orphaned(); }
  [[nodiscard]] std::size_t snapshot_count() const { return snapshots_.size(); }
  // Throws std::invalid_argument if a snapshot is in that slot.
  void check_slot_is_free(const char* argument, SnapshotId slot) const;

  // ---- The rest ----

  Cleared clear(std::optional<AdapterId> adapter_id);
  [[nodiscard]] std::uint64_t epoch(AdapterId adapter_id) const;
  [[nodiscard]] CacheStats stats() const { return trie_.stats(); }
  [[nodiscard]] const RadixTreeCounters& counters() const { return counters_; }
  [[nodiscard]] std::string validate() const;

 private:
  [[nodiscard]] std::size_t block_size() const { return trie_.block_size(); }
  [[nodiscard]] std::size_t full_blocks(const Insert& what) const;
  Position insert_blocks(const Insert& what, Position from, InsertAcquired& acquired);
  void count_hit(const SnapshotTable::Snapshot& snapshot);

  BlockTrie trie_;
  SnapshotTable snapshots_;
  Stamp clock_ = 0;
  IdMap<std::uint64_t> clears_;  // by AdapterId: clears of it alone
  std::uint64_t clears_of_all_ = 0;
  RadixTreeCounters counters_;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_INDEX_H_
