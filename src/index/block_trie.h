// The trie of cached blocks: edges, the children that hang on them, who uses what, and the order of eviction.
//
// A block is found by walking: compare the tokens along an edge; where they part, look for a child edge at that
// boundary by the tokens of its first block (one hash table for the whole trie, tokens compared before it is
// believed). Every block-aligned token sequence of an adapter has at most one position.
//
// Uses and stamps are recorded at the *end* of a chain only. A block is in use if a use ends at it or below it, and
// its last use is the newest stamp at or below it; since only a block without children can be evicted, looking at
// ends is enough. What is recorded at a boundary is a Stop; the stop at an edge's resident end, where most chains
// end and where eviction looks, lies in the edge itself (Edge::end_*), all others in Edge::stops:
//
//     at boundary == resident:  uses, handles, children, stamp in the edge;  anchors in Edge::stops
//                               (hits in EdgeStore::end_hits, if the eviction policy counts them)
//     elsewhere:                all of them in Edge::stops
//
// Threads (Gate has the rules): walk() runs beside anything. It reads an edge's version, then the edge; stepping to a
// child, it reads the child's version, checks that the child is what it looks for, then that the contents of the edge
// it leaves are still those it compared. The walk stands, all of it, if the version of the edge where it ended is
// unchanged in a commit: a child that hangs there still proves that the blocks above it were there all along, because
// what is cached (or kept) is closed under prefix. Versions change with every change that a walk could have missed:
//     contents   the edge lost blocks or tokens, or is gone
//     links      it grew, or a child was hung on it, or one's blocks became cached
#ifndef CAIRN_INDEX_BLOCK_TRIE_H_
#define CAIRN_INDEX_BLOCK_TRIE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/containers.h"
#include "cairn/prefix_cache.h"
#include "cairn/radix_tree.h"
#include "index/block_keys.h"
#include "index/child_table.h"
#include "index/edge_store.h"
#include "index/gate.h"
#include "index/use_log.h"
#include "policy/block_policies.h"
#include "policy/lru_policy.h"

namespace cairn {

// What an insert says about the blocks: parallel to its full blocks. disk_blocks is empty if none is given.
struct BlockIds {
  std::span<const BlockId> blocks;
  std::span<const DiskBlockId> disk_blocks;
};

// What somebody leaves at the end of a chain.
enum class Claim { kNone, kUse, kHandle };

class BlockTrie {
 public:
  // Which blocks a walk goes through: cached ones, or also those whose tokens alone are kept.
  enum class Extent { kResident, kKept };

  // `hash_seed` keeps callers from choosing prompts that collide in the table of children.
  BlockTrie(const RadixTreeOptions& options, std::uint64_t hash_seed, Gate& gate);
  BlockTrie(const BlockTrie&) = delete;
  BlockTrie& operator=(const BlockTrie&) = delete;

  // ---- Readers ----

  struct Walk {
    Position at;
    std::size_t blocks = 0;     // walked
    std::uint64_t version = 0;  // of the edge at which it ended
  };
  // Along the full blocks of `tokens`, as far as they go. Within a Gate::Reader, or by a writer.
  [[nodiscard]] Walk walk(AdapterId adapter_id, std::span<const TokenId> tokens, Extent extent) const;

  // The rest of this part within a commit, or by a writer with the gate closed.

  // Whether a walk made before still stands.
  [[nodiscard]] bool stands(const Walk& walk) const { return edges_[walk.at.edge].version == walk.version; }
  // The ids of the blocks from the top to `at`, all of them cached, into `blocks` and, if any has one,
  // `disk_blocks`: both as large as the depth. False if no block has a disk id.
  bool gather(Position at, std::span<BlockId> blocks, std::span<DiskBlockId> disk_blocks) const;
  // The ids of those deeper than `from_depth` alone; `blocks` is as large as they are many.
  void gather_below(Position at, std::size_t from_depth, std::span<BlockId> blocks) const;
  [[nodiscard]] bool any_disk_blocks() const { return resident_disk_blocks_.get() > 0; }
  // Adds a claim and stamps. Allocates at most before it changes anything.
  void claim(Position at, Claim claim, Stamp now);
  // A lookup that has a claim there used what lies above: for policies that want to know.
  void note_hit(Position at, Stamp now) noexcept {
    if (!edges_.counts_hits()) return;
    add_hits(at, 1);
    if (use_log_) use_log_->add({at, now});
  }
  // Takes away a claim that ends exactly at `at`. False if there is none.
  bool take_claim(Position at, Claim claim) noexcept;
  // Takes away the deepest use that ends above `at` on the way to it, if any: for a caller that released more than
  // it can have held. O(blocks above).
  void take_use_above(Position at) noexcept;

  // ---- Positions; any thread that may look at them ----

  // Blocks from the top to `at`.
  [[nodiscard]] std::size_t depth(Position at) const { return std::size_t{edges_[at.edge].start} + at.boundary; }
  // The position `depth` blocks below the top on the way to `at`, which is at least that deep.
  [[nodiscard]] Position ancestor(Position at, std::size_t depth) const;

  // ---- Writers: adding ----

  // To cache the full blocks of `tokens`, of which there is at least one, below `from`. `ids` is parallel to them.
  // The end gets `claim`; if there is one, the caller's earlier claim, `held` blocks below the top, is taken away,
  // should there be one.
  struct Extend {
    AdapterId adapter_id = 0;
    Position from;
    std::span<const TokenId> tokens;
    BlockIds ids;
    Claim claim = Claim::kNone;
    std::size_t held = 0;
  };
  class Extension;  // ready to be linked
  // `acquired` gets the blocks of the nodes that extend() will create. With the gate open. Allocates.
  [[nodiscard]] Extension prepare_extend(const Extend& what, InsertAcquired& acquired);
  // Links it, stamps the end, which it returns, and adds to `acquired` the disk ids that nodes took. If it throws
  // std::bad_alloc, nothing has changed.
  Position extend(const Gate::Closed&, Extension extension, Stamp now, InsertAcquired& acquired);

  // Keeps the tokens of the full blocks of `tokens`, cached or not, and returns their end, at which it has added an
  // anchor. Closes the gate. Allocates.
  Position add_anchor(AdapterId adapter_id, std::span<const TokenId> tokens);

  // ---- Writers, with the gate closed (the first argument shows it) ----

  // Lets go of what is not needed any more.
  void drop_anchor(const Gate::Closed&, Position at) noexcept;
  // In the order of the policy. `now`: no stamp so far is newer, every later one is. After prepare_evict().
  void evict(const Gate::Closed&, std::size_t num_blocks, Stamp now, EvictedBlocks& out) noexcept {
    evict(num_blocks, now, out, {});
  }
  // The same, and says in `spills` what becomes of each. After prepare_spills() and prepare_evict().
  void evict_to_store(const Gate::Closed&, std::size_t num_blocks, Stamp now, std::size_t min_tokens,
                      EvictedBlocks& out, BlockSpills& spills) noexcept {
    evict(num_blocks, now, out, {&spills, depth_of(min_tokens)});
  }
  // Everything of one adapter, or of all. `out` has room (reserve_cleared). No snapshots are left there.
  void clear(const Gate::Closed&, std::optional<AdapterId> adapter_id, Cleared& out) noexcept;

  // ---- Writers, with the gate open ----

  // Makes room in `out` and chooses what evict() will most likely take. Throws std::bad_alloc.
  void prepare_evict(std::size_t num_blocks, EvictedBlocks& out);
  void prepare_spills(std::size_t num_blocks, BlockSpills& out);  // throws std::bad_alloc
  // Marks the cached blocks from `from_depth` to `to_depth` on the way to `at`, which is that deep. Nothing if the
  // policy takes no marks. Throws std::bad_alloc.
  void mark_blocks(Position at, std::size_t from_depth, std::size_t to_depth, const BlockMark& mark);
  void reserve_cleared(std::optional<AdapterId> adapter_id, Cleared& out) const;
  // Frees the memory that no reader can be reading any more.
  void reclaim() noexcept;

  // ---- Writers, with the gate open: records in a store. What isn't noexcept allocates before it changes anything
  // ----

  [[nodiscard]] BlockKeys& keys() { return keys_; }
  [[nodiscard]] const BlockKeys& keys() const { return keys_; }
  [[nodiscard]] bool any_records() const { return keys_.recorded() > 0; }  // also within a commit
  // Whether tokens are kept for the block with which `rest` starts, after `at`. Also within a commit.
  [[nodiscard]] bool is_kept_after(Position at, AdapterId adapter_id, std::span<const TokenId> rest) const;
  // The keys of the blocks that follow `at` along `rest`, as far as each of them has a record.
  [[nodiscard]] std::vector<TierKey> recorded_after(Position at, AdapterId adapter_id,
                                                    std::span<const TokenId> rest) const;
  // Up to `num_blocks` cached blocks without a record, from the top on: of the chain that ends at `end`, those after
  // the first `from_depth` of it, or of all. They have one from now on.
  void save_chain(Position end, std::size_t from_depth, std::size_t num_blocks, std::size_t min_tokens,
                  BlockSpills& out);
  void save_all(std::size_t num_blocks, std::size_t min_tokens, BlockSpills& out);
  // The top for 0; none if no block of that adapter has a record with that key.
  [[nodiscard]] std::optional<Position> find_stored_parent(TierKey parent, AdapterId adapter_id) const;
  // False if its parent has no record, or key or place are taken.
  bool register_block(const StoredBlock& block);
  bool forget_record(TierKey key) noexcept;
  // One more anchor where tokens are kept already. Closes the gate.
  void add_anchor_at(Position at);

  [[nodiscard]] CacheStats stats() const { return {resident_edges_, resident_blocks_}; }
  [[nodiscard]] std::size_t block_size() const { return edges_.block_size(); }
  [[nodiscard]] EdgeStore& edges() { return edges_; }
  [[nodiscard]] const EdgeStore& edges() const { return edges_; }

  // Empty, or what is wrong, given how many snapshots hang at each position. Allocates.
  using AnchorCounts = IdMap<std::uint32_t>;  // by Position::key
  [[nodiscard]] std::string validate(const Gate::Closed&, const AnchorCounts& snapshot_anchors) const;

 private:
  // Tokens that nobody can see yet: a new edge below `at`, or more of the edge that ends there.
  struct Growth {
    Position at;
    std::uint32_t num_blocks = 0;
    EdgeId edge = kNoEdge;               // the new edge
    Run run;                             // or, where it needs new memory, the old edge's memory from now on
    TokenForm form = TokenForm::kPlain;  // of run
  };

  [[nodiscard]] std::string validate_stops(EdgeId id, const AnchorCounts& children, const AnchorCounts& anchors) const;

  // ---- Walking ----
  struct Child {
    EdgeId edge = kNoEdge;
    std::uint64_t version = 0;
  };
  [[nodiscard]] bool try_walk(Walk& walk, AdapterId adapter_id, std::span<const TokenId> tokens, Extent extent) const;
  [[nodiscard]] Walk walk_from(Position from, AdapterId adapter_id, std::span<const TokenId> tokens,
                               Extent extent) const;
  [[nodiscard]] std::uint32_t child_hash(Position parent, AdapterId adapter_id, const TokenId* first_block) const;
  [[nodiscard]] Child find_child(Position parent, AdapterId adapter_id, const TokenId* first_block) const;

  // ---- Stops ----
  [[nodiscard]] bool at_end(Position at) const { return at.boundary == edges_[at.edge].resident; }
  static std::atomic<std::uint32_t>& end_count(Edge& edge, Claim claim);
  static std::uint32_t& stop_count(Stop& stop, Claim claim);
  [[nodiscard]] static const Stop* find_stop(const Edge& edge, std::uint32_t boundary);
  static Stop& stop_at(Edge& edge, std::uint32_t boundary);              // creates it; allocates
  static void settle_stop(Edge& edge, std::uint32_t boundary) noexcept;  // erases it if it says nothing
  static void settle_stop(Edge& edge, Stops::iterator found) noexcept;
  [[nodiscard]] static std::uint32_t anchors_at(const Edge& edge, std::uint32_t boundary);
  static void raise_stamp(std::atomic<Stamp>& stamp, Stamp now) noexcept;
  void add_hits(Position at, std::uint32_t count) noexcept;
  static void add_hits(std::atomic<std::uint32_t>& hits, std::uint32_t count) noexcept;
  [[nodiscard]] std::uint32_t take_end_hits(EdgeId id) noexcept;
  void add_child(Position at) noexcept;
  void drop_child(Position at, EdgeId child, Stamp child_stamp) noexcept;
  void tell_of_dropped_child(Position at, EdgeId child) noexcept;
  void raise_resident(EdgeId id, std::uint32_t resident) noexcept;
  void take_over_end(EdgeId id, Edge& edge) noexcept;

  // ---- Adding ----
  Growth prepare_growth(Position kept, AdapterId adapter_id, std::span<const TokenId> tokens, bool disk_blocks);
  void discard(Growth growth) noexcept;
  Position link(Growth growth) noexcept;
  void prepare_link(const Growth& growth);
  void prepare_end_move(Position cached);
  void prepare_disk_blocks(Position at, std::size_t above_depth, const Growth& growth);
  void make_resident(Position from, Position to, const Extend& what, Stamp now) noexcept;
  void take_disk_blocks(Position at, std::size_t ids_depth, BlockIds ids, InsertAcquired& acquired) noexcept;

  // ---- Evicting ----
  [[nodiscard]] static bool in_use(const Edge& edge);
  [[nodiscard]] static bool evictable(const Edge& edge);
  void arrange_turn(EdgeId id) noexcept;
  void hand_over(EdgeId id) noexcept;
  void take_handed_over() noexcept;
  void settle_policy();
  void fetch_ahead(const LruPolicy& lru) const noexcept;
  void fetch_end(const Edge& edge, std::size_t num_blocks) const noexcept;
  [[nodiscard]] BlockEnd end_of(EdgeId id) const noexcept;
  void evict_from(EdgeId id, std::size_t num_blocks, EvictedBlocks& out) noexcept;
  void evict_from(BlockPolicy& policy, EdgeId id, std::size_t num_blocks, EvictedBlocks& out) noexcept;
  void give_back(Edge& edge, std::uint32_t num_blocks, EvictedBlocks& out) noexcept;
  void drop_unused(EdgeId id) noexcept;
  struct Spilling {
    BlockSpills* out = nullptr;  // none: what is evicted is gone, unless it has a record
    std::size_t min_depth = 0;   // of blocks worth a record
  };
  void evict(std::size_t num_blocks, Stamp now, EvictedBlocks& out, const Spilling& spilling) noexcept;
  void evict_by(LruPolicy& lru, std::size_t num_blocks, EvictedBlocks& out, const Spilling& spilling) noexcept;
  void evict_by(BlockPolicy& policy, EvictionMoment moment, std::size_t num_blocks, EvictedBlocks& out,
                const Spilling& spilling) noexcept;

  // ---- Records in a store ----
  [[nodiscard]] Position before(Position at) const;
  [[nodiscard]] static std::uint32_t deepest_kept(const Edge& edge);
  [[nodiscard]] std::size_t depth_of(std::size_t tokens) const;
  void spill_from(EdgeId id, std::size_t count, std::size_t min_depth, BlockSpills& out) noexcept;
  void tell(Position at, BlockSpill::Action action, BlockSpills& out) noexcept;
  void record(Position at, TierKey key) noexcept;
  [[nodiscard]] bool is_anything_below(Position at) const;
  [[nodiscard]] std::vector<std::uint32_t> worth_keeping(std::size_t min_depth) const;
  void save(std::span<const Position> ends, std::size_t from_depth, std::size_t num_blocks, BlockSpills& out);
  Position keep_block(Position parent, AdapterId adapter_id, std::span<const TokenId> tokens);
  [[nodiscard]] std::string validate_keys() const;

  const BlockPolicyKind& policy_kind_;
  EdgeStore edges_;
  ChildTable children_;
  const std::uint64_t hash_seed_;
  alignas(64) Gate& gate_;  // from here on, what walks don't read
  const std::unique_ptr<BlockPolicy> policy_;
  LruPolicy* const lru_;                      // policy_, if it is this one: called without a look at its type
  const std::unique_ptr<UseLog> use_log_;     // if the policy hears of uses
  std::vector<Use> uses_;                     // taken from it
  std::atomic<EdgeId> handed_over_{kNoEdge};  // by readers; linked through Edge::next
  Shared<std::size_t> resident_blocks_;
  Shared<std::size_t> resident_edges_;
  Shared<std::size_t> resident_disk_blocks_;
  BlockKeys keys_;
  // The record that was made last, and where the last one of its edge ended before, if that was above it: a block that
  // is evicted, and whose record is refused then, costs no search for the one before it.
  TierKey last_record_ = 0;
  std::uint32_t recorded_before_ = 0;
};

class BlockTrie::Extension {
 public:
  // Where the nodes end that are there already.
  [[nodiscard]] Position cached() const { return cached_.at; }

 private:
  friend class BlockTrie;
  Extend what_;
  Walk cached_;    // from what_.from
  Position kept_;  // where the tokens that are kept end, from there
  Growth growth_;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_BLOCK_TRIE_H_
