// The contract of the prefix cache, transcribed: what tests compare the real index with.
//
// One std::map node for each block, keyed by all tokens up to its end, with a use count and a stamp of its own, as
// the contract words it. Everything is O(n); nothing is shared with src/. Not thread-safe.
#ifndef CAIRN_TESTS_SUPPORT_NAIVE_PREFIX_CACHE_H_
#define CAIRN_TESTS_SUPPORT_NAIVE_PREFIX_CACHE_H_

#include <cairn/radix_tree.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace cairn::testing {

class NaivePrefixCache final : public PrefixCache {
 public:
  using EpochInsert = RadixTree::EpochInsert;
  using EpochSnapshotInsert = RadixTree::EpochSnapshotInsert;

  explicit NaivePrefixCache(RadixTreeOptions options = {});

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
  [[nodiscard]] std::size_t peek_matched_tokens(std::span<const TokenId> tokens, std::size_t block_size,
                                                AdapterId adapter_id) const override;
  std::optional<TierEvict> evict_snapshot_to_tier(std::size_t min_tokens) override;
  bool promote_snapshot(TierKey key, SnapshotId new_slot) override;
  bool forget_snapshot_tier_key(TierKey key) override;
  SnapshotRef find_snapshot(std::span<const TokenId> tokens, std::size_t max_tokens, SessionHash session_hash,
                            AdapterId adapter_id) override;
  std::vector<TierKey> take_orphaned_tier_keys() override;
  Cleared clear(AdapterId adapter_id) override;
  Cleared clear() override;
  [[nodiscard]] std::uint64_t epoch(AdapterId adapter_id) const override;

  // The overloads of RadixTree that take an epoch. Arguments are checked first, also where the epoch has passed.
  EpochInsert insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                     std::span<const DiskBlockId> disk_block_ids, std::size_t block_size, std::size_t matched_tokens,
                     AdapterId adapter_id, std::uint64_t epoch);
  EpochSnapshotInsert insert_with_snapshot(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                           std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                           SnapshotId snapshot_id, SessionHash session_hash,
                                           std::size_t matched_tokens, AdapterId adapter_id, std::uint64_t epoch);
  std::optional<SnapshotId> insert_intermediate_snapshot(std::span<const TokenId> tokens,
                                                         std::span<const BlockId> block_table,
                                                         std::span<const DiskBlockId> disk_block_ids,
                                                         std::size_t block_size, SnapshotId snapshot_id,
                                                         SessionHash session_hash, std::size_t matched_tokens,
                                                         AdapterId adapter_id, std::uint64_t epoch);
  std::vector<SnapshotId> insert_tail_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                               SessionHash session_hash, AdapterId adapter_id, std::uint64_t epoch);
  std::optional<SnapshotId> insert_tail_sibling_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                                         SessionHash session_hash, AdapterId adapter_id,
                                                         std::uint64_t epoch);
  void release(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter_id, std::uint64_t epoch);
  void release_matched(std::span<const TokenId> tokens, std::size_t block_size, std::size_t matched_tokens,
                       AdapterId adapter_id, std::uint64_t epoch);

  // What a handle means: the tokens whose nodes it holds one use on.
  struct Holding {
    bool valid = false;
    AdapterId adapter_id = 0;
    std::uint64_t epoch = 0;
    std::vector<TokenId> tokens;
  };
  struct Acquired {
    Holding handle;
    PrefixMatch match;
  };
  Acquired acquire(std::span<const TokenId> tokens, SessionHash session_hash, AdapterId adapter_id);

  // What a pin means: nobody else gets this slot.
  struct Pin {
    bool valid = false;
    SnapshotId slot = 0;
  };
  struct AcquiredPinned {
    Holding handle;
    PrefixMatch match;
    Pin pin;
    std::vector<TierKey> stored_blocks;
  };
  struct PinnedSnapshot {
    SnapshotRef snapshot;
    Pin pin;
  };
  AcquiredPinned acquire(std::span<const TokenId> tokens, const ReadOptions& options);
  PinnedSnapshot find_snapshot(std::span<const TokenId> tokens, const ReadOptions& options);
  std::optional<SnapshotId> unpin_snapshot(Pin& pin);
  [[nodiscard]] RadixTree::Peek peek(std::span<const TokenId> tokens, const ReadOptions& options);
  [[nodiscard]] SnapshotRef peek_snapshot(std::span<const TokenId> tokens, const ReadOptions& options);

  EpochInsert extend(Holding& handle, std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                     std::span<const DiskBlockId> disk_block_ids);
  void truncate(Holding& handle, std::size_t tokens);
  void release(Holding& handle);

  // ---- Blocks in a store ----

  BlockSpills evict_blocks_to_tier(std::size_t num_blocks, std::size_t min_tokens);
  BlockSpills save_blocks(const Holding& handle, std::size_t num_blocks, std::size_t min_tokens);
  // In which order all are saved is the tree's to say: takes over its answer, after a look at each block of it. Throws
  // Violation.
  void take_over_saved(const BlockSpills& saved, std::size_t num_blocks, std::size_t min_tokens);
  bool forget_tier_key(TierKey key);
  std::optional<RadixTree::SpilledSnapshot> spilled_snapshot(TierKey key, bool from_start = false);
  Pin promote_and_pin(TierKey key, SnapshotId new_slot);
  bool register_stored_block(const StoredBlock& block);
  bool register_spilled_snapshot(const StoredSnapshot& snapshot);
  [[nodiscard]] std::size_t recorded_blocks() const;
  // What a store must keep: the keys of records and of spilled snapshots.
  [[nodiscard]] std::vector<TierKey> stored_keys() const;

  [[nodiscard]] RadixTreeCounters counters() const;

  // For checks of the pools: how many nodes hold each block and disk block, and the slots of resident snapshots and of
  // those that are gone and pinned.
  [[nodiscard]] std::map<BlockId, std::size_t> block_holders() const;
  [[nodiscard]] std::map<DiskBlockId, std::size_t> disk_block_holders() const;
  [[nodiscard]] std::vector<SnapshotId> taken_slots() const;

 private:
  using Tokens = std::vector<TokenId>;
  struct Place {
    AdapterId adapter_id = 0;
    Tokens tokens;
    auto operator<=>(const Place&) const = default;
  };
  struct Node {
    BlockId block = 0;
    DiskBlockId disk_block = kNoDiskBlock;
    std::uint64_t stamp = 0;
    std::uint64_t uses = 0;
  };
  enum class Kind { kPlain, kTail, kSibling };
  struct Snapshot {
    Kind kind = Kind::kPlain;
    SessionHash session = 0;
    std::uint64_t stamp = 0;
    std::optional<SnapshotId> slot;  // resident
    TierKey tier_key = 0;            // else spilled under this key
    std::uint64_t use_number = 0;    // its last use was the n-th of any
  };
  // Of a session's tail.
  struct Lease {
    SessionHash session = 0;
    std::uint64_t renewed_at = 0;  // evictions that had passed
  };
  // A place that has a key.
  struct Name {
    TierKey key = 0;
    bool recorded = false;
  };
  using Names = std::map<Place, Name>;
  using Nodes = std::map<Place, Node>;
  using Snapshots = std::map<Place, Snapshot>;

  void check_block_size(std::size_t block_size) const;
  void check_insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                    std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                    std::size_t matched_tokens) const;
  void check_put(std::span<const TokenId> tokens, SnapshotId snapshot_id) const;
  [[nodiscard]] bool is_taken(SnapshotId slot) const;

  PrefixMatch look_up(std::span<const TokenId> tokens, const ReadOptions& options, Pin& pin);
  Pin pin(const Snapshot& snapshot);
  [[nodiscard]] SnapshotRef ref_of(Snapshots::const_iterator found) const;

  // The nodes along the full blocks of `tokens`, from the root as far as they exist.
  [[nodiscard]] std::vector<Nodes::iterator> chain(std::span<const TokenId> tokens, AdapterId adapter_id);
  // Inserts the full blocks of `tokens` from `first_block` on, whose ids start at table index 0; adds one use to
  // the nodes from `used_from_block` on; stamps all.
  InsertAcquired insert_blocks(std::span<const TokenId> tokens, std::size_t first_block,
                               std::span<const BlockId> block_table, std::span<const DiskBlockId> disk_block_ids,
                               std::size_t used_from_block, AdapterId adapter_id);
  InsertAcquired insert_checked(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                std::span<const DiskBlockId> disk_block_ids, std::size_t matched_tokens,
                                AdapterId adapter_id);
  void drop_uses(std::span<const TokenId> tokens, std::size_t from_block, std::size_t to_block, AdapterId adapter_id);
  [[nodiscard]] bool has_child(Nodes::const_iterator node) const;
  [[nodiscard]] Nodes::iterator next_to_evict();

  std::optional<SnapshotId> put(std::span<const TokenId> tokens, Kind kind, SnapshotId slot, SessionHash session,
                                AdapterId adapter_id);
  // What becomes of the place of a snapshot that is replaced or swept: a slot to free, or an orphaned key.
  std::optional<SnapshotId> retire(const Snapshot& snapshot);
  // The slot, unless it is pinned: then it waits for the last unpin.
  std::optional<SnapshotId> give_back(SnapshotId slot);
  [[nodiscard]] Snapshots::iterator find_of_session(Kind kind, SessionHash session);
  [[nodiscard]] bool is_visible(const Snapshot& snapshot, SessionHash session) const;
  [[nodiscard]] Snapshots::iterator choose(std::span<const TokenId> tokens, std::size_t max_tokens,
                                           const ReadOptions& options);
  void count_hit(const Snapshot& snapshot);
  // Policies (naive_snapshot_policies.cc).
  [[nodiscard]] Snapshots::iterator next_snapshot_to_evict();
  [[nodiscard]] Snapshots::iterator session_choice(const std::vector<Snapshots::iterator>& candidates);
  [[nodiscard]] Snapshots::iterator flop_choice(const std::vector<Snapshots::iterator>& candidates);
  [[nodiscard]] std::size_t deepest_above(Snapshots::const_iterator found) const;
  [[nodiscard]] std::size_t snapshot_bytes() const;
  void use(Snapshot& snapshot, SessionHash by);  // now
  void note_resident(const Snapshot& snapshot);
  void renew_lease(SessionHash session);
  void forget_idle_sessions();
  [[nodiscard]] Snapshots::iterator find_spilled(TierKey key);

  [[nodiscard]] std::vector<TierKey> stored_after(std::span<const TokenId> tokens, std::size_t matched_tokens,
                                                  AdapterId adapter_id) const;
  [[nodiscard]] Place parent_of(const Place& place) const;
  [[nodiscard]] Names::iterator find_name(TierKey key);
  [[nodiscard]] bool is_recorded(const Place& place) const;
  TierKey name(const Place& place);
  // A record, or a snapshot.
  [[nodiscard]] bool anything_stored_at_or_below(const Place& place) const;
  [[nodiscard]] bool is_worth_saving(const Place& place, std::size_t min_tokens) const;
  void tell(const Place& place, const Node& node, BlockSpill::Action action, BlockSpills& out);
  // A key ends with its place: when nothing keeps the place's tokens any more.
  void drop_names();
  Cleared clear_if(std::optional<AdapterId> adapter_id);

  RadixTreeOptions options_;
  Nodes nodes_;
  Snapshots snapshots_;
  std::uint64_t clock_ = 0;
  TierKey next_tier_key_;
  Names names_;
  std::vector<TierKey> orphaned_keys_;
  std::map<AdapterId, std::uint64_t> clears_;
  std::uint64_t clears_of_all_ = 0;
  RadixTreeCounters counters_;
  std::map<SnapshotId, std::size_t> pins_;       // of resident ones and of those in gone_
  std::uint64_t uses_ = 0;                       // of snapshots
  std::uint64_t evictions_ = 0;                  // that the policy chose for
  std::map<SessionHash, std::uint64_t> active_;  // when a session with resident snapshots was last active
  std::vector<Lease> leases_;                    // renewed longest ago first
  std::set<SnapshotId> gone_;                    // slots whose snapshot is gone, and which are still pinned
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_NAIVE_PREFIX_CACHE_H_
