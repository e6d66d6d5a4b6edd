// RadixTree: the prefix cache as a path-compressed trie over token blocks.
//
// Beside the token-based calls of PrefixCache it offers handles. A handle remembers where a sequence ends in the
// tree, so that an engine that adds tokens for hours pays for the new tokens only:
//
//     auto [handle, match] = tree.acquire(prompt, session, adapter);   // a lookup that keeps its place
//     tree.extend(handle, tokens_that_follow, their_blocks, {});       // an insert of what follows
//     tree.release(handle);                                            // O(1)
//
// and pins, for whoever reads a snapshot that others may evict or replace meanwhile:
//
//     auto [handle, match, pin, stored] = tree.acquire(prompt, {.pin_snapshot = true});
//     if (pin.valid()) restore_from(pin.slot());                       // nobody reuses the slot meanwhile
//     if (auto slot = tree.unpin_snapshot(pin)) free(*slot);           // ours to free if the snapshot is gone
//
// Complexity below is in full blocks (of block_size tokens): p of the call's tokens, and e edges (stored pieces)
// that the path crosses. Comparing p blocks reads their tokens once.
#ifndef CAIRN_RADIX_TREE_H_
#define CAIRN_RADIX_TREE_H_

#include <cairn/block_retention.h>
#include <cairn/prefix_cache.h>
#include <cairn/snapshot_policy.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cairn {

struct RadixTreeOptions {
  std::size_t block_size = 16;                   // tokens in a KV block; every call has to name the same
  bool share_snapshots_across_sessions = false;  // tails stay private either way
  TierKey first_tier_key = 1;                    // tier keys count up from here; not 0
  // Of the hash tables; 0: drawn at random. No answer depends on it, but for policies that remember what they evicted:
  // they know it by a hash.
  std::uint64_t hash_seed = 0;
  std::string block_policy = "lru";   // in which order blocks are evicted: one of block_policy_names()
  std::size_t pinned_blocks_max = 0;  // that pin_prefix may keep, all pins together
  // What time it is, for marks that expire (prioritize). None: std::chrono::steady_clock. Called by writers, and must
  // not call the tree.
  std::function<std::chrono::steady_clock::time_point()> clock{};
  std::string snapshot_policy = "lru";  // in which order snapshots are evicted: one of snapshot_policy_names()
  SnapshotPolicyOptions snapshot_policy_options{};
};

// Counts since construction: but for the last two they only grow. Clears do not reset them.
struct RadixTreeCounters {
  std::uint64_t lookups = 0;        // lookup and acquire
  std::uint64_t hit_tokens = 0;     // sum of matched_tokens over those
  std::uint64_t missed_tokens = 0;  // sum of tokens.size() - matched_tokens over those

  std::uint64_t nodes_created = 0;
  std::uint64_t nodes_evicted = 0;  // by evict
  std::uint64_t nodes_cleared = 0;  // by clear: created - evicted - cleared == cached_blocks

  // Snapshots that lookup, acquire or find_snapshot returned, by kind, resident or spilled.
  std::uint64_t plain_snapshot_hits = 0;
  std::uint64_t tail_snapshot_hits = 0;
  std::uint64_t sibling_snapshot_hits = 0;
  std::uint64_t spilled_snapshot_hits = 0;  // of the three above, those that were spilled
  std::uint64_t snapshot_gap_tokens = 0;    // lookups that returned one: sum of matched_tokens - its tokens

  std::uint64_t snapshots_put = 0;
  std::uint64_t snapshots_replaced = 0;  // a put found its place taken
  std::uint64_t tails_replaced = 0;      // of those, a tail by another session's tail
  std::uint64_t snapshots_evicted = 0;   // evict_snapshot_lru, and kDrop of evict_snapshot_to_tier
  std::uint64_t spills = 0;              // kSpill of evict_snapshot_to_tier
  std::uint64_t promotions = 0;          // promote_snapshot that answered true
  std::uint64_t forgotten_keys = 0;      // forgets that answered true for a snapshot
  std::uint64_t orphaned_keys = 0;       // keys that take_orphaned_tier_keys returned or will return

  std::uint64_t blocks_spilled = 0;    // kSpill of evict_blocks_to_tier
  std::uint64_t blocks_saved = 0;      // by save_blocks
  std::uint64_t forgotten_blocks = 0;  // forget_tier_key that answered true for a block

  std::uint64_t protocol_errors = 0;  // releases, by tokens, of what no caller can have held

  // One that goes down as well: snapshots with a pin at present, those included that are gone and whose slot waits
  // for its unpin_snapshot.
  std::uint64_t pinned_snapshots = 0;
  // The other one: of resident snapshots at present, each as SnapshotPolicyOptions::snapshot_bytes. What is evicted
  // frees what was accounted for it.
  std::uint64_t resident_snapshot_bytes = 0;
};

// One use on each node of a chain, held by its end. Move-only. Made by RadixTree::acquire; afterwards owned by the
// caller, who gives it back with RadixTree::release. It survives every change elsewhere in the tree. After a clear
// of its adapter it holds nothing any more, and every call with it is harmless. Dropping it without a release leaves
// its nodes in use until the next clear. One handle must not be used by two threads at once; different ones may.
class PrefixHandle {
 public:
  PrefixHandle() = default;
  PrefixHandle(PrefixHandle&& other) noexcept { *this = static_cast<PrefixHandle&&>(other); }
  PrefixHandle& operator=(PrefixHandle&& other) noexcept;
  PrefixHandle(const PrefixHandle&) = delete;
  PrefixHandle& operator=(const PrefixHandle&) = delete;
  ~PrefixHandle() = default;

  // Tokens whose nodes it holds: a multiple of block_size.
  [[nodiscard]] std::size_t tokens() const { return tokens_; }
  [[nodiscard]] AdapterId adapter_id() const { return adapter_id_; }
  // The adapter's epoch when it was acquired.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  // False for a handle that was default-constructed, moved from or released.
  [[nodiscard]] bool valid() const { return tree_ != 0; }

 private:
  friend class RadixTree;
  std::uint64_t tree_ = 0;  // which tree made it; 0: none
  AdapterId adapter_id_ = 0;
  std::uint64_t epoch_ = 0;
  std::size_t tokens_ = 0;
  std::uint32_t edge_ = 0;      // meaningless while tokens_ is 0
  std::uint32_t boundary_ = 0;  // the same
};

// Keeps the slot of a resident snapshot from being given back. Move-only. Made by the calls of RadixTree that take
// ReadOptions; afterwards owned by the caller, who gives it back with RadixTree::unpin_snapshot as soon as the slot
// has been read. A snapshot may have several pins. While it has one:
//   - evict_snapshot_lru and evict_snapshot_to_tier pass it over;
//   - a put that replaces it, a sweep of its session and a clear remove it from the cache at once, as ever, but do not
//     return its slot: the last unpin_snapshot does. Until then the slot counts as taken.
// A clear does not end it: the slot is still being read. Dropping it without unpin_snapshot keeps the slot for as long
// as the tree lives. One pin must not be used by two threads at once; otherwise any thread may use it, also another
// than the one that got it.
class SnapshotPin {
 public:
  SnapshotPin() = default;
  SnapshotPin(SnapshotPin&& other) noexcept { *this = static_cast<SnapshotPin&&>(other); }
  SnapshotPin& operator=(SnapshotPin&& other) noexcept;
  SnapshotPin(const SnapshotPin&) = delete;
  SnapshotPin& operator=(const SnapshotPin&) = delete;
  ~SnapshotPin() = default;

  // False for a pin that was default-constructed, moved from or given back, and where no resident snapshot was found.
  [[nodiscard]] bool valid() const { return tree_ != 0; }
  // The slot that it keeps; meaningless if it is not valid.
  [[nodiscard]] SnapshotId slot() const { return slot_; }

 private:
  friend class RadixTree;
  std::uint64_t tree_ = 0;  // which tree made it; 0: none
  SnapshotId slot_ = 0;
  std::uint32_t index_ = 0;  // of the snapshot
};

// Which snapshot a read may return, and whether it is pinned.
struct ReadOptions {
  SessionHash session_hash = 0;
  AdapterId adapter_id = 0;
  // None deeper than this. An engine that has to compute the last token of the prompt passes one less than its length.
  std::size_t max_snapshot_tokens = std::numeric_limits<std::size_t>::max();
  bool pin_snapshot = false;  // if it is resident, in the same step
  // The deepest of those that are visible and not spilled. Looks at each spilled one that is deeper.
  bool resident_snapshots_only = false;
  bool stored_blocks = false;  // also says which blocks a store has after those that match: acquire, peek
};

// A block that leaves memory for a store, or is to be copied to one.
struct BlockSpill {
  BlockId block = 0;
  TierKey key = 0;     // names its place in the tree for as long as the tree keeps its tokens
  TierKey parent = 0;  // that of the block before it; 0: it is a first one
  AdapterId adapter_id = 0;
  std::size_t first_token = 0;  // tokens before its own
  // kStored: its record is there already, nothing has to be copied. kSpill: it has none yet, and counts as stored from
  // now on: store it under `key`, or say forget_tier_key. kDrop: it is gone.
  enum class Action : std::uint8_t { kStored, kSpill, kDrop };
  Action action = Action::kDrop;
};
struct BlockSpills {
  std::vector<BlockSpill> blocks;
  std::vector<TokenId> tokens;              // block_size of each, in the same order
  std::vector<DiskBlockId> disk_block_ids;  // evict_blocks_to_tier: drop one disk reference on each
};

// A record that a store had when the process started.
struct StoredBlock {
  TierKey key = 0;
  TierKey parent = 0;  // 0: it is a first block
  AdapterId adapter_id = 0;
  std::span<const TokenId> tokens;  // block_size of them
};
struct StoredSnapshot {
  enum class Kind : std::uint8_t { kPlain, kTail, kTailSibling };
  Kind kind = Kind::kPlain;
  TierKey key = 0;
  TierKey parent = 0;  // of the last full block before its end; 0: there is none
  AdapterId adapter_id = 0;
  SessionHash session_hash = 0;
  std::span<const TokenId> tokens;  // those after the parent: fewer than block_size, but all of them without a parent
};

class RadixTree final : public PrefixCache {
 public:
  // Throws std::invalid_argument: block_size zero; first_tier_key zero; no such block_policy or snapshot_policy, or an
  // option of it that can not be.
  explicit RadixTree(const RadixTreeOptions& options = {});
  ~RadixTree() override;
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // ---- PrefixCache; semantics in <cairn/prefix_cache.h> ----

  // O(p + e), and O(log snapshots) for each edge on the way that has some.
  PrefixMatch lookup(std::span<const TokenId> tokens, std::size_t block_size, SessionHash session_hash,
                     AdapterId adapter_id) override;
  // O(p + e). If matched_tokens is more than the caller holds, and the insert goes beyond it, the caller gets a use on
  // every node of the sequence, beside what it holds already.
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
  // O(p + e); never allocates.
  void release(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter_id) override;
  void release_matched(std::span<const TokenId> tokens, std::size_t block_size, std::size_t matched_tokens,
                       AdapterId adapter_id) override;
  // In the order of RadixTreeOptions::block_policy; with "lru" as PrefixCache says. With any, leaves go first, and
  // nothing that is in use. O(log edges) for each block, also for each that the policy looks at and keeps.
  EvictedBlocks evict(std::size_t num_blocks) override;
  // Whichever RadixTreeOptions::snapshot_policy chooses; with "lru" as PrefixCache says, and so is
  // evict_snapshot_to_tier. O(log snapshots).
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
  // O(everything cached, whatever the adapter).
  Cleared clear(AdapterId adapter_id) override;
  Cleared clear() override;
  [[nodiscard]] std::uint64_t epoch(AdapterId adapter_id) const override;

  // ---- The same, for callers that may be overtaken by a clear ----
  //
  // `epoch` is epoch(adapter_id) from when the caller's lookup or computation began. It is compared inside the step;
  // if it has passed, nothing is done: the inserts set `epoch_passed` and acquire nothing, and a snapshot comes
  // back as displaced. A caller by tokens reads the epoch before its lookup; a clear that comes between the two leaves
  // it with uses of the newer epoch, which it finds out by reading the epoch once more after the lookup. A handle
  // knows its epoch by itself.

  struct EpochInsert : InsertAcquired {
    bool epoch_passed = false;
  };
  struct EpochSnapshotInsert : SnapshotInsert {
    bool epoch_passed = false;
  };
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

  // ---- Handles ----

  struct Acquired {
    PrefixHandle handle;
    PrefixMatch match;
  };

  // lookup, with a handle on where it ended. The handle is valid even if nothing matched (it then holds no node):
  // extend starts from it all the same. O(p + e) as lookup.
  Acquired acquire(std::span<const TokenId> tokens, SessionHash session_hash, AdapterId adapter_id);

  struct Extended : EpochInsert {
    // What the nodes hold that existed already, in order. They come before those that were created.
    std::vector<BlockId> existing_blocks;
  };

  // Inserts what follows the handle: the first min(tokens.size() / block_size, block_table.size()) full blocks of
  // `tokens`, which start at token handle.tokens() of the sequence. Existing nodes keep their blocks, as in insert.
  // The handle moves to the end of what was inserted. All nodes of its chain are stamped, except when no full block
  // follows: then nothing happens. O(p) in the new blocks.
  // If the adapter was cleared since the handle was acquired, `epoch_passed` is set and nothing happens.
  // Throws std::invalid_argument: a handle that is not valid or of another tree; disk_block_ids neither empty nor as
  // long as block_table.
  Extended extend(PrefixHandle& handle, std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                  std::span<const DiskBlockId> disk_block_ids);

  // Gives up the nodes past the first `tokens` (rounded down to a block); the nodes stay cached. Stamps nothing.
  // O(edges crossed). Throws std::invalid_argument: a handle that is not valid or of another tree; tokens beyond
  // handle.tokens().
  void truncate(PrefixHandle& handle, std::size_t tokens);

  // Drops the handle's uses; it is not valid afterwards. A handle that is not valid is let pass. O(1); never
  // allocates. Throws std::invalid_argument: a handle of another tree.
  void release(PrefixHandle& handle);

  // Another handle on the same nodes, for a sequence that goes on from the same tokens. Stamps nothing. O(1). Throws
  // std::invalid_argument: a handle that is not valid or of another tree.
  [[nodiscard]] PrefixHandle share(const PrefixHandle& handle);

  // Marks the blocks of the handle's chain that have tokens from `from_token` to `to_token`, which is cut off at
  // handle.tokens(). A later mark of a block replaces the earlier one; it goes with the block. Does nothing unless the
  // policy is "priority", or if the adapter was cleared meanwhile. O(blocks marked). Throws std::invalid_argument: a
  // handle that is not valid or of another tree.
  void prioritize(const PrefixHandle& handle, std::size_t from_token, std::size_t to_token,
                  const BlockPriority& priority);

  // ---- Pinned prefixes ----
  //
  // Blocks that stay whatever the policy says: as if a sequence used them, until they are unpinned or cleared. All
  // pins together keep no more than RadixTreeOptions::pinned_blocks_max blocks; one that several pins share counts
  // once.

  // The full blocks of `tokens`. Pinned all or not at all. Stamps nothing. O(p + e). Throws std::invalid_argument:
  // less than a block.
  [[nodiscard]] PrefixPin pin_prefix(std::span<const TokenId> tokens, AdapterId adapter_id);
  // False if there is no such pin: it was given back, or its adapter was cleared. O(pins * edges).
  bool unpin_prefix(std::uint64_t id);
  // All of them.
  void unpin_prefixes();
  [[nodiscard]] std::size_t pinned_blocks() const;

  // ---- Pinned snapshots, and looking without an effect ----

  struct AcquiredPinned {
    PrefixHandle handle;
    PrefixMatch match;
    SnapshotPin pin;  // valid if it was asked for and match.ssm_snapshot is set
    // If asked for: the keys of the blocks that follow those that match, as far as each of them is stored.
    std::vector<TierKey> stored_blocks;
  };
  struct PinnedSnapshot {
    SnapshotRef snapshot;
    SnapshotPin pin;  // valid if it was asked for and snapshot.slot is set
  };

  // acquire, of which the snapshot is the deepest visible one no deeper than min(matched_tokens, max_snapshot_tokens);
  // if it is resident, it is pinned on request, in the same step. O(p + e) as lookup. With stored_blocks, where tokens
  // are kept beyond what matches, it waits its turn as a writer; so does peek.
  AcquiredPinned acquire(std::span<const TokenId> tokens, const ReadOptions& options);

  // find_snapshot with the same options, for models that are purely recurrent: no block has to match. O(p + e).
  PinnedSnapshot find_snapshot(std::span<const TokenId> tokens, const ReadOptions& options);

  // Gives a pin back; it is not valid afterwards. Returns the slot, for the caller to free, if the snapshot is gone
  // and this was its last pin. A pin that is not valid is let pass. Never runs out of memory. While the snapshot is in
  // the cache, O(1) beside anything as release of a handle is, or O(log snapshots) if an eviction passed it over; once
  // it is gone, it waits its turn as a writer. Throws std::invalid_argument: a pin of another tree.
  [[nodiscard]] std::optional<SnapshotId> unpin_snapshot(SnapshotPin& pin);

  // What acquire and find_snapshot would answer with the same options, but for the pin: for schedulers. Nothing is
  // used, stamped, pinned or counted, so what the answer names may be gone when the caller looks. O(p + e).
  struct Peek {
    std::size_t matched_tokens = 0;
    SnapshotRef snapshot;
    std::size_t stored_tokens = 0;  // after those that match, if asked for
  };
  [[nodiscard]] Peek peek(std::span<const TokenId> tokens, const ReadOptions& options) const;
  [[nodiscard]] SnapshotRef peek_snapshot(std::span<const TokenId> tokens, const ReadOptions& options) const;

  // ---- Blocks in a store ----
  //
  // A block can have a record in a store, under a key of its own; it is resident or not apart from that. One that is
  // not resident and has a record is *stored*: its tokens are kept, acquire names it (ReadOptions::stored_blocks) if
  // all blocks before it are resident or stored, and an insert over it makes it resident again: its record goes on to
  // count. evict turns a resident block that has a record into a stored one. A key stands for one place (adapter and
  // all tokens up to the block's end) from when it is first named to when the tree keeps its tokens no more, also if
  // its record is lost and made again meanwhile; keys are never used again. Keys of blocks and of snapshots come from
  // one count. A clear names the keys of records among Cleared::tier_keys.

  // Evicts as evict does, in the same order. A victim that ends at less than `min_tokens` tokens is dropped, unless it
  // has a record or something is kept below it, blocks or snapshots (one at its end among them). O(log edges) for each
  // block.
  [[nodiscard]] BlockSpills evict_blocks_to_tier(std::size_t num_blocks, std::size_t min_tokens = 0);
  // Up to `num_blocks` resident blocks without a record, each after the one that it follows; they count as having one
  // from now on (kSpill). The handle's own, or all of the tree. Chains that end at less than `min_tokens` tokens are
  // left out, unless something is kept below them or at their end: the handle's own chain as a whole; of all of them,
  // each up to where something is kept. The caller sees to it that they stay resident until they are copied, by a
  // handle, say. O(p), or O(everything cached).
  // Throws std::invalid_argument: a handle that is not valid or of another tree.
  [[nodiscard]] BlockSpills save_blocks(const PrefixHandle& handle, std::size_t num_blocks, std::size_t min_tokens = 0,
                                        std::size_t from_tokens = 0);
  [[nodiscard]] BlockSpills save_blocks(std::size_t num_blocks, std::size_t min_tokens = 0);
  // The record of a block, or a spilled snapshot, is gone: what hangs below a block that is not resident can't be
  // reused until it is resident or stored again. False if no record has that key. O(log), and for the last record of
  // an edge the distance to the one before it.
  bool forget_tier_key(TierKey key);
  // A spill of a snapshot says what it is: for the store. None if no snapshot is spilled under that key. With
  // `from_start` it hangs on no block, and its tokens are all of them: for models that have no blocks. O(tokens
  // given).
  struct SpilledSnapshot {
    StoredSnapshot::Kind kind = StoredSnapshot::Kind::kPlain;
    AdapterId adapter_id = 0;
    SessionHash session_hash = 0;
    TierKey parent = 0;
    std::size_t first_token = 0;  // tokens before its own
    std::vector<TokenId> tokens;  // those after the parent
  };
  [[nodiscard]] std::optional<SpilledSnapshot> spilled_snapshot(TierKey key, bool from_start = false);

  // promote_snapshot, and a pin on it in the same step: invalid if there is no such snapshot.
  [[nodiscard]] SnapshotPin promote_and_pin(TierKey key, SnapshotId new_slot);

  // For the start: what a store has. Parents before children, blocks before the snapshots on them. False, and nothing
  // is registered: no block of that adapter has a record with the key `parent`; the key is taken, or the place by
  // another; the session has such a snapshot already, or is 0 for one of a session. Throws std::invalid_argument: a
  // key that is 0, or not below first_tier_key; the wrong number of tokens. O(log + tokens given).
  bool register_stored_block(const StoredBlock& block);
  bool register_spilled_snapshot(const StoredSnapshot& snapshot);

  // Blocks that have a record, resident or not.
  [[nodiscard]] std::size_t recorded_blocks() const;

  // ---- Explaining: for Lease::explain ----

  // The tokens of the nodes that the handle holds; none if its adapter was cleared since. Takes its turn as a writer,
  // for O(p). Throws std::invalid_argument: a handle that is not valid or of another tree.
  [[nodiscard]] std::vector<TokenId> tokens_of(const PrefixHandle& handle) const;

  struct Neighbours {
    static constexpr std::size_t kNearestMax = 4;
    struct Neighbour {
      std::size_t common_tokens = 0;  // with `rest`, less than a block
      std::vector<TokenId> tokens;    // of it and of what follows in its edge
    };
    std::vector<Neighbour> nearest;  // those that have most in common with `rest`, all as much; used last, if many
    bool same = false;               // a node for the first block of `rest` is there
  };
  // The nodes that follow the first `after_tokens` tokens of the handle: those whose block begins most like `rest`,
  // with up to `tokens_max` tokens each. Changes nothing. Reads the parents of all edges, 4096 at a time, and keeps
  // writers out for as long as each of these pieces takes, but no reader. Throws std::invalid_argument: a handle that
  // is not valid or of another tree; after_tokens beyond handle.tokens(); less than a block in `rest`.
  [[nodiscard]] Neighbours neighbours(const PrefixHandle& handle, std::size_t after_tokens,
                                      std::span<const TokenId> rest, std::size_t tokens_max) const;

  // ---- Watching ----

  [[nodiscard]] RadixTreeCounters counters() const;

  // Checks every invariant of the structure. Empty if all hold, else what is wrong. For tests and debugging: it
  // holds the lock for O(everything cached).
  [[nodiscard]] std::string validate() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

#endif  // CAIRN_RADIX_TREE_H_
