// The contract of the prefix cache: which physical KV block holds which tokens in which context, and at which
// token counts a snapshot of the recurrent state exists.
//
// The cache stores ids, never bytes. Blocks live in the engine's block pool, snapshots in a snapshot pool, spilled
// bytes in a spill store. Nothing here does I/O.
//
// Terms used below:
//   node       one cached block: block i of a sequence, reached by the tokens of blocks 0..i under one adapter.
//              Two blocks are the same node only if all tokens up to their end are equal; tokens are compared,
//              never hashes alone.
//   use        a running sequence's claim on a node. A node with a use or with a child is not evicted.
//   stamp      the moment of the last use; eviction takes the oldest stamp first.
//   snapshot   recurrent state after an exact number of tokens. It belongs to an adapter and an exact token
//              sequence; there is at most one for each. It is resident in a slot or spilled under a tier key.
//
// Thread safety: every member may be called from any thread at any time. Each call is one atomic step, and all
// threads agree on one order of the steps. No call blocks on I/O.
//
// Errors: a call that breaks a rule which the cache can check throws std::invalid_argument, naming the argument and
// the rule, and changes nothing. Running out of memory throws std::bad_alloc and leaves the cache as it was.
#ifndef CAIRN_PREFIX_CACHE_H_
#define CAIRN_PREFIX_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cairn {

using TokenId = std::uint32_t;
using BlockId = std::uint32_t;      // physical KV block
using DiskBlockId = std::uint32_t;  // the same block's copy in the engine's swap file
using SnapshotId = std::size_t;     // slot in the snapshot pool
using SessionHash = std::uint64_t;  // 0: no session tracking
using AdapterId = std::uint64_t;    // 0: base model, no LoRA adapter
using TierKey = std::uint64_t;      // names one spilled snapshot; opaque to callers
inline constexpr DiskBlockId kNoDiskBlock = 0xFFFFFFFF;

struct PrefixMatch {
  std::vector<BlockId> matched_blocks;              // in token order
  std::vector<DiskBlockId> matched_disk_block_ids;  // empty, or parallel to matched_blocks (kNoDiskBlock: none)
  std::size_t matched_tokens = 0;                   // multiple of block_size
  std::optional<SnapshotId> ssm_snapshot;           // resident: restore from this slot
  std::size_t ssm_snapshot_tokens = 0;              // tokens that snapshot covers
  std::optional<TierKey> ssm_snapshot_tier_key;     // spilled: fault in by this key
  std::size_t ssm_snapshot_tier_tokens = 0;
  bool ssm_snapshot_is_tail = false;

  [[nodiscard]] bool empty() const { return matched_tokens == 0; }
};

struct InsertAcquired {
  std::vector<BlockId> blocks;              // take one reference on each
  std::vector<DiskBlockId> disk_block_ids;  // take one disk reference on each
};

struct SnapshotInsert {
  std::optional<SnapshotId> displaced;  // free this slot
  InsertAcquired acquired;
};

// `disk_block_ids` lists real ids only, in the order of `physical`: parallel to it exactly when every evicted block
// had one.
struct EvictedBlocks {
  std::vector<BlockId> physical;            // drop one reference on each
  std::vector<DiskBlockId> disk_block_ids;  // drop one disk reference on each

  [[nodiscard]] bool empty() const { return physical.empty(); }
  [[nodiscard]] std::size_t size() const { return physical.size(); }
};

struct TierEvict {
  enum class Action { kSpill, kDrop };
  Action action = Action::kDrop;
  SnapshotId slot = 0;     // freed for reuse in either case, after the bytes are saved if kSpill
  TierKey key = 0;         // kSpill only: store the bytes under this key
  std::size_t tokens = 0;  // depth of the victim
};

// Both zero for an empty cache. `entries` counts the stored pieces that hold the nodes; pieces that hold snapshots
// but no block do not count.
struct CacheStats {
  std::size_t entries = 0;
  std::size_t cached_blocks = 0;
};

// Neither slot nor key: none found.
struct SnapshotRef {
  std::optional<SnapshotId> slot;
  std::optional<TierKey> tier_key;
  std::size_t tokens = 0;
  bool is_tail = false;
};

// What a clear gives back: one reference for each block and disk id, each slot, and the tier keys that died.
struct Cleared {
  EvictedBlocks blocks;
  std::vector<SnapshotId> slots;
  std::vector<TierKey> tier_keys;
};

class PrefixCache {
 public:
  virtual ~PrefixCache();

  // ---- Blocks ----

  // Finds the longest chain of nodes for the full blocks of `tokens`, adds one use to each of them and stamps them.
  // The caller owes one release_matched(tokens, matched_tokens), or an insert that continues from there and then a
  // release. A sequence shorter than a block matches nothing.
  //
  // If at least one block matched, the answer also names the deepest visible snapshot that lies on the tokens and is
  // no deeper than matched_tokens, and stamps it. A tail is visible only to its own non-zero session. Any other
  // snapshot is visible if its session or `session_hash` is 0, or they are equal, or the implementation shares
  // snapshots across sessions. A spilled snapshot wins over a shallower resident one. The slot is not pinned.
  //
  // Throws std::invalid_argument: block_size zero or not the cache's.
  virtual PrefixMatch lookup(std::span<const TokenId> tokens, std::size_t block_size, SessionHash session_hash,
                             AdapterId adapter_id) = 0;

  // Caches the first min(tokens.size() / block_size, block_table.size()) blocks of the sequence. A block without a
  // node gets one that holds block_table[i] and, if given, disk_block_ids[i]; a node that exists keeps its block,
  // and takes the disk id if it has none. All nodes on the way are stamped. Nodes past `matched_tokens` (rounded
  // down to a block) get one use added: it says how much of the start the caller holds a use on already. It may
  // exceed that; a node created before it has no use (chunked prefill publishes with matched_tokens ==
  // tokens.size(), and its final insert takes the uses).
  //
  // Returns the blocks of exactly the nodes created and the disk ids of exactly the nodes that took one: the caller
  // takes one reference on each for the cache.
  //
  // Throws std::invalid_argument: block_size zero or not the cache's; disk_block_ids neither empty nor as long as
  // block_table; matched_tokens beyond tokens.size().
  virtual InsertAcquired insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                std::size_t matched_tokens, AdapterId adapter_id) = 0;

  // Drops one use from each node along the full blocks of `tokens`: for a caller that holds a use on every one of
  // them. Stamps nothing. A caller that releases what it does not hold breaks the protocol: no use goes below zero,
  // and where the cache can tell, it counts one protocol error.
  // Throws std::invalid_argument: block_size zero or not the cache's.
  virtual void release(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter_id) = 0;

  // The same for the first `matched_tokens` (rounded down to a block) only: what a caller needs that looked up and
  // then did not go on.
  // Throws std::invalid_argument: as release; matched_tokens beyond tokens.size().
  virtual void release_matched(std::span<const TokenId> tokens, std::size_t block_size, std::size_t matched_tokens,
                               AdapterId adapter_id) = 0;

  // Removes up to num_blocks nodes, one after the other, each time the least recently used of those that have no use
  // and no child. Returns what they held, in order of removal; the caller drops one reference on each.
  virtual EvictedBlocks evict(std::size_t num_blocks) = 0;

  // ---- Snapshots ----
  //
  // A put at a place that is taken replaces the snapshot there. The slot of a resident one is returned for the
  // caller to free; the tier key of a spilled one dies (take_orphaned_tier_keys). A put stamps the snapshot.
  // Each put throws std::invalid_argument for a snapshot at zero tokens and for a slot that is resident already.

  // insert, then a plain snapshot at `tokens`, as one step.
  virtual SnapshotInsert insert_with_snapshot(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                              std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                              SnapshotId snapshot_id, SessionHash session_hash,
                                              std::size_t matched_tokens, AdapterId adapter_id) = 0;

  // Puts a plain snapshot at `tokens`; leaves nodes and uses alone (the block arguments are checked as for insert).
  // Returns the displaced slot.
  virtual std::optional<SnapshotId> insert_intermediate_snapshot(std::span<const TokenId> tokens,
                                                                 std::span<const BlockId> block_table,
                                                                 std::span<const DiskBlockId> disk_block_ids,
                                                                 std::size_t block_size, SnapshotId snapshot_id,
                                                                 SessionHash session_hash, std::size_t matched_tokens,
                                                                 AdapterId adapter_id) = 0;

  // Puts the session's tail, after removing its earlier tail and sibling, wherever they are. Returns every slot
  // that this frees. With session 0 it keeps nothing and returns snapshot_id itself. Touches no node.
  virtual std::vector<SnapshotId> insert_tail_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                                       SessionHash session_hash, AdapterId adapter_id) = 0;

  // Puts the sibling of the tail just put, normally one block shorter. If the session is 0, has no tail or has a
  // sibling already, it keeps nothing and returns snapshot_id; otherwise the displaced slot. Touches no node.
  virtual std::optional<SnapshotId> insert_tail_sibling_snapshot(std::span<const TokenId> tokens,
                                                                 SnapshotId snapshot_id, SessionHash session_hash,
                                                                 AdapterId adapter_id) = 0;

  // Removes the least recently used resident snapshot and returns its slot. Spilled ones are passed over.
  virtual std::optional<SnapshotId> evict_snapshot_lru() = 0;

  // Resident and spilled ones.
  [[nodiscard]] virtual std::size_t snapshot_count() const = 0;

  [[nodiscard]] virtual CacheStats stats() const = 0;

  // ---- Provided: an implementation without the feature inherits these ----

  // False if the cache never keeps anything: it then never takes ownership of what is passed in.
  [[nodiscard]] virtual bool is_active() const;  // true

  // What lookup would put in matched_tokens; changes and counts nothing. Throws as lookup.
  [[nodiscard]] virtual std::size_t peek_matched_tokens(std::span<const TokenId> tokens, std::size_t block_size,
                                                        AdapterId adapter_id) const;  // 0

  // Picks the victim of evict_snapshot_lru. If it is shallower than min_tokens it is removed (kDrop, key 0); else it
  // stays findable as spilled, under a key that this cache has never handed out before (kSpill). Others may find it
  // before its bytes are stored: a caller with several threads serialises spilling, faulting in and taking orphans.
  virtual std::optional<TierEvict> evict_snapshot_to_tier(std::size_t min_tokens);  // nullopt

  // The spilled snapshot with that key becomes resident in new_slot and its key dies; its stamp stays. False, and
  // nothing changes, if there is none: the caller frees new_slot.
  // Throws std::invalid_argument: the key is alive and new_slot is resident already.
  virtual bool promote_snapshot(TierKey key, SnapshotId new_slot);  // false

  // Removes the spilled snapshot with that key, because its bytes are gone. False if there is none.
  virtual bool forget_snapshot_tier_key(TierKey key);  // false

  // The choice of lookup alone, with max_tokens in the place of matched_tokens and no block needed. Takes no use.
  // max_tokens beyond the end means the end.
  virtual SnapshotRef find_snapshot(std::span<const TokenId> tokens, std::size_t max_tokens, SessionHash session_hash,
                                    AdapterId adapter_id);  // none

  // The keys that died because their snapshot was replaced or swept while spilled, each once.
  virtual std::vector<TierKey> take_orphaned_tier_keys();  // {}

  // ---- Clearing: for weight and adapter updates ----

  // Nothing cached before can be found again. Uses go with their nodes: a sequence from before must not be released
  // any more.
  virtual Cleared clear(AdapterId adapter_id);  // {}
  virtual Cleared clear();                      // {}

  // Counts the clears of an adapter; a clear of all counts for each.
  [[nodiscard]] virtual std::uint64_t epoch(AdapterId adapter_id) const;  // 0
};

}  // namespace cairn

#endif  // CAIRN_PREFIX_CACHE_H_
