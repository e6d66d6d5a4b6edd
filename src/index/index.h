// The contract's steps on the trie of blocks and the table of snapshots. Thread-safe: each call is one atomic step.
//
// Readers (lookup, peeks, releases, find_snapshot, unpin) walk beside anything and take effect in a commit.
// All else are writers: one at a time, under writer_, taking effect with the gate closed. gate.h has the rules,
// docs/concurrency.md the whole story. Lock order: writer_, the gate, snapshots_lock_, Edge::stops_lock.
//
// Every call that allocates does so before it changes anything, so that std::bad_alloc leaves all as it was.
#ifndef CAIRN_INDEX_INDEX_H_
#define CAIRN_INDEX_INDEX_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/containers.h"
#include "base/mutex.h"
#include "cairn/prefix_cache.h"
#include "cairn/radix_tree.h"
#include "index/block_trie.h"
#include "index/gate.h"
#include "index/pinned_prefixes.h"
#include "index/snapshot_table.h"

namespace cairn {

class Index {
 public:
  Index(const RadixTreeOptions& options, std::uint64_t hash_seed);

  // If given, a call does nothing when the adapter's epoch is another one.
  using Epoch = std::optional<std::uint64_t>;

  // ---- Blocks ----

  struct Found {
    PrefixMatch match;
    Position end;  // the top if nothing matched
    std::uint64_t epoch = 0;
    SnapshotTable::Index pinned = SnapshotTable::kNone;
    std::vector<TierKey> stored_blocks;  // if asked for
  };
  Found lookup(std::span<const TokenId> tokens, const ReadOptions& options, Claim claim);
  [[nodiscard]] std::size_t peek(std::span<const TokenId> tokens, AdapterId adapter_id) const;
  // What lookup would match and return.
  [[nodiscard]] RadixTree::Peek peek(std::span<const TokenId> tokens, const ReadOptions& options) const;

  struct Insert {
    std::span<const TokenId> tokens;
    std::span<const BlockId> block_table;
    std::span<const DiskBlockId> disk_block_ids;  // empty or as long as block_table
    std::size_t matched_tokens = 0;
    AdapterId adapter_id = 0;
  };
  RadixTree::EpochInsert insert(const Insert& what, Epoch epoch);
  // The first `matched_tokens` of them. Counts a protocol error if nobody can have held that.
  void release(std::span<const TokenId> tokens, std::size_t matched_tokens, AdapterId adapter_id, Epoch epoch);

  // Inserts below `at`, which the caller holds by handle since `epoch`, and moves the hold to the new end.
  RadixTree::Extended extend(Position& at, const Insert& what, std::uint64_t epoch);
  // Moves the hold up to `depth` blocks, unless the epoch has passed.
  void truncate(Position& at, std::size_t depth, AdapterId adapter_id, std::uint64_t epoch);
  // One more hold at `at`, unless the epoch has passed.
  void share_handle(Position at, AdapterId adapter_id, std::uint64_t epoch);
  void release_handle(Position at, AdapterId adapter_id, std::uint64_t epoch) noexcept;

  // The chain's blocks from one depth to another, unless the epoch has passed.
  struct Prioritizing {
    std::size_t from_depth = 0;
    std::size_t to_depth = 0;
    BlockPriority priority;
  };
  void prioritize(Position at, AdapterId adapter_id, std::uint64_t epoch, const Prioritizing& what);
  // Of full blocks, one at least.
  PrefixPin pin_prefix(std::span<const TokenId> tokens, AdapterId adapter_id);
  bool unpin_prefix(std::uint64_t id);
  void unpin_prefixes();
  [[nodiscard]] std::size_t pinned_blocks() const;

  EvictedBlocks evict(std::size_t num_blocks);

  // ---- Blocks and snapshots in a store ----

  BlockSpills evict_to_store(std::size_t num_blocks, std::size_t min_tokens);
  // Of the chain that ends at `at`, which the caller holds by handle since `epoch`; nothing if it has passed.
  // What of a chain is to be saved: see RadixTree::save_blocks.
  struct Saving {
    std::size_t num_blocks = 0;
    std::size_t min_tokens = 0;
    std::size_t from_tokens = 0;
  };
  BlockSpills save_chain(Position at, AdapterId adapter_id, std::uint64_t epoch, const Saving& what);
  BlockSpills save_all(std::size_t num_blocks, std::size_t min_tokens);
  bool forget_record(TierKey key);  // of a block or a snapshot
  std::optional<RadixTree::SpilledSnapshot> spilled_snapshot(TierKey key, bool from_start);
  // They throw std::invalid_argument for a key that is 0 or could be given out yet.
  bool register_block(const StoredBlock& block);
  bool register_snapshot(const StoredSnapshot& snapshot);
  [[nodiscard]] std::size_t recorded_blocks() const;

  // ---- Snapshots ----
  // The puts throw std::invalid_argument if a snapshot is in that slot.

  RadixTree::EpochSnapshotInsert insert_with_snapshot(const Insert& what, const SnapshotTable::Put& snapshot,
                                                      Epoch epoch);
  // What is displaced, or the snapshot's own slot if it is not kept.
  std::optional<SnapshotId> put(const SnapshotTable::Put& snapshot, Epoch epoch);
  std::vector<SnapshotId> put_tail(const SnapshotTable::Put& snapshot, Epoch epoch);
  std::optional<SnapshotId> put_tail_sibling(const SnapshotTable::Put& snapshot, Epoch epoch);
  struct FoundSnapshot {
    SnapshotRef ref;
    SnapshotTable::Index pinned = SnapshotTable::kNone;
  };
  FoundSnapshot find_snapshot(std::span<const TokenId> tokens, const ReadOptions& options);
  [[nodiscard]] SnapshotRef peek_snapshot(std::span<const TokenId> tokens, const ReadOptions& options) const;
  // The slot, if the snapshot is gone and this was its last pin.
  std::optional<SnapshotId> unpin(SnapshotTable::Index pinned);
  std::optional<SnapshotId> evict_snapshot();
  std::optional<TierEvict> evict_snapshot_to_tier(std::size_t min_tokens);
  // None if there is no spilled snapshot with that key.
  SnapshotTable::Index promote(TierKey key, SnapshotId new_slot, bool pin);
  bool forget(TierKey key);
  std::vector<TierKey> take_orphaned();
  [[nodiscard]] std::size_t snapshot_count() const;

  // ---- Explaining (index_explain.cc) ----

  [[nodiscard]] std::vector<TokenId> tokens_of(Position at, AdapterId adapter_id, std::uint64_t epoch) const;
  struct Neighbourhood {
    AdapterId adapter_id = 0;
    std::uint64_t epoch = 0;
    std::span<const TokenId> rest;  // at least a block
    std::size_t tokens_max = 0;
  };
  // Of what hangs `depth` blocks below the top on the way to `at`, which the caller holds by handle since the epoch.
  [[nodiscard]] RadixTree::Neighbours neighbours(Position at, std::size_t depth, const Neighbourhood& what) const;

  // ---- The rest ----

  Cleared clear(std::optional<AdapterId> adapter_id);
  [[nodiscard]] std::uint64_t epoch(AdapterId adapter_id) const;
  [[nodiscard]] CacheStats stats() const;
  [[nodiscard]] RadixTreeCounters counters() const;
  [[nodiscard]] std::string validate() const;

 private:
  // A writer's turn. Reclaims memory at its end, after the gate was opened again.
  class CAIRN_SCOPED_CAPABILITY Writing {
   public:
    explicit Writing(Index& index) CAIRN_ACQUIRE(index.writer_) : index_(index) { index.writer_.lock(); }
    ~Writing() CAIRN_RELEASE() {
      index_.trie_.reclaim();
      index_.writer_.unlock();
    }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    Index& index_;
  };

  [[nodiscard]] std::size_t block_size() const { return trie_.block_size(); }
  // How a lookup that is asked for stored blocks goes: beside writers, and if there may be some, as one.
  enum class StoredBlocks { kIgnore, kStopIfAny, kFind };
  // False, and nothing has happened, if it stopped.
  template <StoredBlocks kStored>
  bool look_up(std::span<const TokenId> tokens, const ReadOptions& options, Claim claim, Found& found);
  bool look(std::span<const TokenId> tokens, const ReadOptions& options, StoredBlocks stored,
            RadixTree::Peek& peeked) const;
  void check_registered_key(TierKey key) const CAIRN_REQUIRES(writer_);
  [[nodiscard]] std::vector<TokenId> path_tokens(Position at) const CAIRN_REQUIRES(writer_);
  [[nodiscard]] std::size_t full_blocks(const Insert& what) const;
  [[nodiscard]] std::uint64_t epoch_in_commit(AdapterId adapter_id) const;
  void check_slot_is_free(const char* argument, SnapshotId slot) const;

  // Walks, calls prepare(walk), commits, and calls effect(walk, counters) if the walk stands; else again from the
  // start.
  template <class Prepare, class Effect>
  void read(AdapterId adapter_id, std::span<const TokenId> tokens, BlockTrie::Extent extent, Prepare prepare,
            Effect effect) const;
  // Stamps and counts the snapshot that a reader returns. If it is to be pinned, and is resident, it is: then true.
  bool use_snapshot(SnapshotTable::Index index, Stamp now, const ReadOptions& options) CAIRN_REQUIRES(snapshots_lock_);
  void return_snapshot(SnapshotTable::Index index, Found& found, Stamp now, const ReadOptions& options);
  void count_hit(const SnapshotTable::Snapshot& snapshot) CAIRN_REQUIRES(snapshots_lock_);
  [[nodiscard]] SnapshotRef ref_of(SnapshotTable::Index index) const;
  struct Inserted {
    InsertAcquired acquired;
    std::vector<BlockId> existing;  // of the nodes that were there, for handles
    Position end;
    std::optional<SnapshotId> displaced;
  };
  // The blocks of an insert and, if given, a snapshot's put, in one step.
  Inserted insert_step(const Insert& what, Position from, Claim claim, std::size_t held,
                       SnapshotTable::Pending* pending) CAIRN_REQUIRES(writer_);
  Inserted insert_by_tokens(const Insert& what, SnapshotTable::Pending* pending) CAIRN_REQUIRES(writer_);
  std::optional<SnapshotId> put_step(const SnapshotTable::Put& snapshot) CAIRN_REQUIRES(writer_);
  [[nodiscard]] Stamp tick() { return clock_.fetch_add(1, std::memory_order_relaxed) + 1; }  // only has to be unique

  // With the gate closed: no stamp so far is newer.
  [[nodiscard]] Stamp last_tick() const { return clock_.load(std::memory_order_relaxed); }

  mutable Gate gate_;
  mutable Mutex writer_;
  BlockTrie trie_;
  SnapshotTable snapshots_;
  PinnedPrefixes pins_ CAIRN_GUARDED_BY(writer_);
  const std::size_t pinned_blocks_max_;
  const std::function<std::chrono::steady_clock::time_point()> time_;
  alignas(64) std::atomic<Stamp> clock_{0};
  // Changed with the gate closed, read in commits and by writers.
  IdMap<std::uint64_t> clears_;  // by AdapterId: clears of it alone
  std::uint64_t clears_of_all_ = 0;

  // Readers that stamp, count, pin or unpin a snapshot, one at a time.
  alignas(64) mutable SpinLock snapshots_lock_;
  RadixTreeCounters counters_;  // those of the readers' slots excepted: writers, and hits under snapshots_lock_
};

}  // namespace cairn

#endif  // CAIRN_INDEX_INDEX_H_
