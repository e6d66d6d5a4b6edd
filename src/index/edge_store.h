// Edges of the trie and the memory they hold.
//
// An edge is a run of blocks: their tokens and their block ids lie contiguously, so that a lookup compares with
// memcmp and copies with memcpy. Edges are never split: a branch hangs at a block boundary of the edge (Position), so
// a position stays valid for as long as something is recorded there.
//
//      boundary 0       1       2       3       4        an edge with
//               | blk 0 | blk 1 | blk 2 | blk 3 |          length   = 4 blocks of tokens kept
//               |-- resident --|- tokens only -|           resident = 2 of them cached
//                       ^ a child edge hangs at boundary 1
//
// Blocks from `resident` on are gone; their tokens are kept as long as a snapshot, or an edge with snapshots, hangs
// there. The blocks that are cached are closed under prefix, so they are the first ones of each edge.
#ifndef CAIRN_INDEX_EDGE_STORE_H_
#define CAIRN_INDEX_EDGE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "cairn/prefix_cache.h"

namespace cairn {

using EdgeId = std::uint32_t;
inline constexpr EdgeId kNoEdge = 0xFFFFFFFF;

// The moment of a use, from one clock for the whole index: later is larger, no two steps share one.
using Stamp = std::uint64_t;

// A block boundary of an edge: after its first `boundary` blocks. Boundary 0 is used with root edges only; elsewhere
// it is the position at which the edge hangs. No edge: above every root, depth 0.
struct Position {
  EdgeId edge = kNoEdge;
  std::uint32_t boundary = 0;

  friend bool operator==(const Position&, const Position&) = default;
};

// Memory of one edge for `capacity` blocks: tokens, then block ids; disk ids apart, only where there are any.
struct Run {
  std::unique_ptr<std::uint32_t[]> words;
  std::unique_ptr<DiskBlockId[]> disk_blocks;
  std::uint32_t capacity = 0;
};

struct Edge {
  Position parent;                 // where it hangs; no edge for a root
  AdapterId adapter_id = 0;        // of its root
  std::uint64_t first_hash = 0;    // hash under which it is found at its parent
  Stamp end_stamp = 0;             // of the last cached block (the newest at or below it)
  Run run;                         //
  std::uint32_t start = 0;         // blocks above it
  std::uint32_t length = 0;        // blocks whose tokens are kept
  std::uint32_t resident = 0;      // blocks that are cached
  std::uint32_t end_uses = 0;      // at boundary `resident`: uses that end there, by tokens
  std::uint32_t end_handles = 0;   // the same, by handle
  std::uint32_t end_children = 0;  // child edges with cached blocks that hang there
  std::uint32_t stops = 0;         // its entries in the trie's table of stops
  std::uint32_t snapshots = 0;     // snapshots that hang at any of its boundaries
  bool queued = false;             // has an entry in the eviction queue
  bool live = false;               // false: on the free list
};

// Owns the edges. Ids are reused; references to an Edge stay valid until it is freed.
class EdgeStore {
 public:
  explicit EdgeStore(std::size_t block_size) : block_size_(block_size) {}

  Edge& operator[](EdgeId id) { return edges_[id]; }
  const Edge& operator[](EdgeId id) const { return edges_[id]; }

  // Ids run from 0 to id_limit() - 1; those that are not live are free.
  [[nodiscard]] EdgeId id_limit() const { return static_cast<EdgeId>(edges_.size()); }
  [[nodiscard]] std::size_t live_count() const { return live_count_; }
  [[nodiscard]] std::size_t block_size() const { return block_size_; }

  // Makes sure that the next create() doesn't allocate. Throws std::bad_alloc or std::length_error.
  void prepare_create();
  EdgeId create() noexcept;
  void free(EdgeId id) noexcept;

  // Memory for `capacity` blocks. Disk ids start as kNoDiskBlock. Throws std::bad_alloc.
  [[nodiscard]] Run make_run(std::size_t capacity, bool with_disk_blocks) const;
  // Gives an edge room for disk ids, if it has none. Throws std::bad_alloc.
  void add_disk_blocks(Edge& edge) const;
  // Moves what `edge` keeps into `run`, which becomes the edge's memory; `run` has room for it.
  void adopt_run(Edge& edge, Run run) const noexcept;
  // Gives memory back where less than half of it is used; where no memory can be had for that, it stays.
  void trim_run(Edge& edge) const noexcept;

  [[nodiscard]] TokenId* tokens(const Edge& edge, std::size_t boundary = 0) const {
    return edge.run.words.get() + boundary * block_size_;
  }
  [[nodiscard]] std::span<const TokenId> block_tokens(const Edge& edge, std::size_t block) const {
    return {tokens(edge, block), block_size_};
  }
  [[nodiscard]] BlockId* blocks(const Edge& edge) const {
    return edge.run.words.get() + edge.run.capacity * block_size_;
  }

 private:
  const std::size_t block_size_;
  std::deque<Edge> edges_;
  EdgeId first_free_ = kNoEdge;  // linked through Edge::parent.edge
  std::size_t live_count_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_EDGE_STORE_H_
