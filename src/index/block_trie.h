// The trie of cached blocks: edges, the children that hang on them, who uses what, and the order of eviction.
//
// A block is found by walking: compare the tokens along an edge; where they part, look for a child edge at that
// boundary by the tokens of its first block (one hash table for the whole trie, tokens compared before it is
// believed). Every block-aligned token sequence has at most one position.
//
// Uses and stamps are recorded at the *end* of a chain only. A block is in use if a use ends at it or below it, and
// its last use is the newest stamp at or below it; since only a block without children can be evicted, looking at
// ends is enough. What is recorded at a boundary is a Stop; the stop at an edge's resident end, where most chains
// end and where eviction looks, lies in the edge itself (Edge::end_*), all others in one hash table:
//
//     at boundary == resident:  uses, handles, children, stamp in the edge;  anchors in the table
//     elsewhere:                all of them in the table
//
// Not synchronised. Calls that may allocate say so and give the strong guarantee; all others never throw.
#ifndef CAIRN_INDEX_BLOCK_TRIE_H_
#define CAIRN_INDEX_BLOCK_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/containers.h"
#include "cairn/prefix_cache.h"
#include "index/edge_store.h"
#include "index/eviction_queue.h"

namespace cairn {

// What an insert says about the blocks: parallel to its full blocks. disk_blocks is empty if none is given.
struct BlockIds {
  std::span<const BlockId> blocks;
  std::span<const DiskBlockId> disk_blocks;
};

class BlockTrie {
 public:
  // Which blocks a walk goes through: cached ones, or also those whose tokens alone are kept.
  enum class Extent { kResident, kKept };

  // `hash_seed` keeps callers from choosing prompts that collide in the table of children.
  BlockTrie(std::size_t block_size, std::uint64_t hash_seed);
  BlockTrie(const BlockTrie&) = delete;
  BlockTrie& operator=(const BlockTrie&) = delete;

  // ---- Finding ----

  struct Walk {
    Position at;
    std::size_t blocks = 0;  // walked
  };
  // From the root of an adapter, along the full blocks of `tokens`. No edge if the adapter has no root.
  [[nodiscard]] Walk walk(AdapterId adapter_id, std::span<const TokenId> tokens, Extent extent) const;
  [[nodiscard]] Walk walk_from(Position from, std::span<const TokenId> tokens, Extent extent) const;

  // Blocks from the root to `at`.
  [[nodiscard]] std::size_t depth(Position at) const;
  // The position `depth` blocks below the root on the way to `at`, which is at least that deep.
  [[nodiscard]] Position ancestor(Position at, std::size_t depth) const;

  // The ids of the blocks from the root to `at`, all of them cached. Disk ids: empty if none has one. Allocates.
  void gather(Position at, std::vector<BlockId>& blocks, std::vector<DiskBlockId>& disk_blocks) const;

  // ---- Adding ----

  // Caches the full blocks of `tokens` below `from` (no edge: below the root of `adapter_id`) and stamps their end,
  // which it returns. `ids` is parallel to those blocks, of which there is at least one. `acquired` gets the blocks
  // of the nodes created and the disk ids that nodes took. The caller claims the end (add_use, add_handle), for
  // which there is room, or offers it for eviction. Allocates.
  struct Extend {
    AdapterId adapter_id = 0;
    Position from;
    std::span<const TokenId> tokens;
    BlockIds ids;
    Stamp now = 0;
  };
  Position extend(const Extend& what, InsertAcquired& acquired);

  void offer(Position end) noexcept { queue_if_evictable(end.edge); }

  // Keeps the tokens of the full blocks of `tokens`, cached or not, and returns their end. The caller anchors
  // something there, or calls drop_unused. Allocates.
  Position keep_tokens(AdapterId adapter_id, std::span<const TokenId> tokens);

  // ---- Uses ----

  // Makes sure that the next calls of add_use, add_handle, stamp and add_anchor, at one position, don't allocate.
  void prepare_stop() { make_room(stops_, 1); }
  void stamp(Position at, Stamp now) noexcept;
  void add_use(Position at) noexcept;
  void add_handle(Position at) noexcept;
  // Takes away a use that ends exactly at `at`. False if there is none.
  bool take_use(Position at) noexcept;
  // Takes away the deepest use that ends above `at` on the way to it, if any: for a caller that released more than
  // it can have held. O(blocks above).
  void take_use_above(Position at) noexcept;
  void take_handle(Position at) noexcept;

  // ---- Snapshots' places ----

  void add_anchor(Position at) noexcept;   // after prepare_stop
  void drop_anchor(Position at) noexcept;  // and lets go of what is not needed any more
  void drop_unused(Position at) noexcept;  // lets go of tokens kept for nothing

  // ---- Removing ----

  // The least recently used first. Allocates.
  EvictedBlocks evict(std::size_t num_blocks);
  // Everything of one adapter, or of all. `out` gets the blocks; it has to have room (reserve_cleared).
  void reserve_cleared(std::optional<AdapterId> adapter_id, EvictedBlocks& out) const;
  void clear(std::optional<AdapterId> adapter_id, EvictedBlocks& out) noexcept;

  [[nodiscard]] CacheStats stats() const { return {resident_edges_, resident_blocks_}; }
  [[nodiscard]] std::size_t block_size() const { return edges_.block_size(); }
  [[nodiscard]] EdgeStore& edges() { return edges_; }
  [[nodiscard]] const EdgeStore& edges() const { return edges_; }

  // Empty, or what is wrong, given how many snapshots hang at each position. Allocates.
  using AnchorCounts = IdMap<std::uint32_t>;  // by stop_key
  [[nodiscard]] std::string validate(const AnchorCounts& snapshot_anchors) const;
  // A position as one number, for hash tables.
  static std::uint64_t stop_key(Position at) { return std::uint64_t{at.edge} << 32 | at.boundary; }

 private:
  [[nodiscard]] std::string validate_stops(const AnchorCounts& children, const AnchorCounts& anchors) const;

  struct Stop {
    std::uint32_t uses = 0;      // by tokens
    std::uint32_t handles = 0;   // by handle: apart, so that no call by tokens can take a handle's use
    std::uint32_t children = 0;  // child edges with cached blocks
    std::uint32_t anchors = 0;   // snapshots, and child edges whether cached or not: what keeps tokens up to here
    Stamp stamp = 0;
  };

  // The table of children is a set of edges, found by where they hang and the tokens of their first block.
  struct ChildKey {
    Position parent;
    std::span<const TokenId> first_block;
    std::uint64_t hash = 0;
  };
  struct ChildHash {
    using is_transparent = void;
    using is_avalanching = void;
    const EdgeStore* edges = nullptr;
    std::size_t operator()(EdgeId id) const { return (*edges)[id].first_hash; }
    std::size_t operator()(const ChildKey& key) const { return key.hash; }
  };
  struct ChildEqual {
    using is_transparent = void;
    const EdgeStore* edges = nullptr;
    bool operator()(EdgeId a, EdgeId b) const { return a == b; }
    bool operator()(EdgeId id, const ChildKey& key) const;
    bool operator()(const ChildKey& key, EdgeId id) const { return (*this)(id, key); }
  };
  using ChildSet = boost::unordered_flat_set<EdgeId, ChildHash, ChildEqual>;

  [[nodiscard]] ChildKey child_key(Position parent, const TokenId* first_block) const;
  [[nodiscard]] EdgeId find_child(Position parent, const TokenId* first_block) const;

  [[nodiscard]] bool at_end(Position at) const { return at.boundary == edges_[at.edge].resident; }
  [[nodiscard]] const Stop* find_stop(Position at) const;
  Stop& stop_at(Position at) noexcept;     // creates it; within the room made
  void settle_stop(Position at) noexcept;  // erases it if it says nothing
  [[nodiscard]] std::uint32_t anchors_at(Position at) const;
  void add_child(Position at) noexcept;
  void drop_child(Position at, Stamp child_stamp) noexcept;
  void raise_resident(EdgeId id, std::uint32_t resident) noexcept;
  void take_over_end(EdgeId id) noexcept;

  [[nodiscard]] bool evictable(const Edge& edge) const;
  void queue_if_evictable(EdgeId id) noexcept;
  void evict_from(EdgeId id, std::size_t num_blocks, EvictedBlocks& out) noexcept;
  void give_back(Edge& edge, std::uint32_t num_blocks, EvictedBlocks& out) noexcept;

  Position ensure_root(AdapterId adapter_id);
  Position keep_tokens_from(Position at, std::span<const TokenId> tokens, bool with_disk_blocks);
  Position append_edge(Position at, std::span<const TokenId> tokens, bool with_disk_blocks);
  void lengthen_edge(EdgeId id, std::span<const TokenId> tokens, bool with_disk_blocks);
  void prepare_disk_blocks(Position at, std::size_t above_depth);
  void make_resident(Position from, Position to, std::size_t ids_depth, BlockIds ids) noexcept;
  void take_disk_blocks(Position at, std::size_t ids_depth, BlockIds ids, InsertAcquired& acquired) noexcept;
  void remove_edge(EdgeId id) noexcept;

  EdgeStore edges_;
  IdMap<EdgeId> roots_;  // by AdapterId
  ChildSet children_;
  IdMap<Stop> stops_;  // by stop_key
  EvictionQueue queue_;
  const std::uint64_t hash_seed_;
  std::size_t resident_blocks_ = 0;
  std::size_t resident_edges_ = 0;
  std::size_t resident_disk_blocks_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_BLOCK_TRIE_H_
