// Edges of the trie and the memory they hold.
//
// An edge is a run of blocks: their tokens and their block ids lie contiguously, so that a lookup compares and copies
// in one go. Edges are never split: a branch hangs at a block boundary of the edge (Position), so a position stays
// valid for as long as something is recorded there.
//
//      boundary 0       1       2       3       4        an edge with
//               | blk 0 | blk 1 | blk 2 | blk 3 |          length   = 4 blocks of tokens kept
//               |-- resident --|- tokens only -|           resident = 2 of them cached
//                       ^ a child edge hangs at boundary 1
//
// Blocks from `resident` on are gone; their tokens are kept as long as a store has a record of one (`recorded`), or a
// snapshot or an edge that is kept hangs there. The blocks that are cached are closed under prefix, so they are the
// first ones of each edge.
//
// One edge, kTop, has no tokens and lives as long as the store: the first blocks of all sequences hang on it.
#ifndef CAIRN_INDEX_EDGE_STORE_H_
#define CAIRN_INDEX_EDGE_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/shared.h"
#include "base/spin.h"
#include "cairn/prefix_cache.h"
#include "index/gate.h"
#include "index/stored_tokens.h"
#include "index/token_arena.h"

namespace cairn {

using EdgeId = std::uint32_t;
inline constexpr EdgeId kNoEdge = 0xFFFFFFFF;
inline constexpr EdgeId kTop = 0;

// The moment of a use, from one clock for the whole index: later is larger, no two steps share one.
using Stamp = std::uint64_t;

// A block boundary of an edge: after its first `boundary` blocks. Boundary 0 is used with kTop only; elsewhere it is
// the position at which the edge hangs.
struct Position {
  EdgeId edge = kTop;
  std::uint32_t boundary = 0;

  friend bool operator==(const Position&, const Position&) = default;

  // As one number, for hashing and for atomics.
  [[nodiscard]] std::uint64_t key() const { return std::uint64_t{edge} << 32 | boundary; }
  static Position of_key(std::uint64_t key) {
    return {static_cast<EdgeId>(key >> 32), static_cast<std::uint32_t>(key)};
  }
};
inline constexpr std::uint64_t kNoPositionKey = std::uint64_t{kNoEdge} << 32;

// What is recorded at a boundary; BlockTrie says where and why.
struct Stop {
  std::uint32_t uses = 0;      // by tokens
  std::uint32_t handles = 0;   // by handle: apart, so that no call by tokens can take a handle's use
  std::uint32_t children = 0;  // child edges with cached blocks
  std::uint32_t anchors = 0;   // snapshots, and child edges whether cached or not: what keeps tokens up to here
  std::uint32_t hits = 0;      // if they are counted: lookups that ended here
  Stamp stamp = 0;
};
using Stops = std::map<std::uint32_t, Stop>;  // by boundary

// How an edge comes to lose its last cached block.
enum class Turn : std::uint8_t {
  kNone,    // it has no cached block, or a cached child hangs at its end
  kQueued,  // it has an entry in the eviction queue
  kParked,  // it is in use: whoever drops the last use hands it over (the one change that a reader makes)
  kHanded,  // it waits to be queued by the next writer that evicts
};

// Memory of one edge for `capacity` blocks: tokens, in a form that Edge::tokens says, then block ids; disk ids apart,
// only where there are any.
struct Run {
  TokenArena::Words words;
  std::unique_ptr<DiskBlockId[]> disk_blocks;
  std::uint32_t capacity = 0;
  std::uint32_t written = 0;  // blocks whose tokens readers may have seen: never written again

  [[nodiscard]] StoredTokens tokens(TokenForm form) const { return {words.get(), form}; }
};

// Who may touch what: "walk" is read by walks while one writer changes it; "commit" is changed by readers in a
// commit, atomically, and by writers with the gate closed; the rest is written with the gate closed, or before
// anybody can find the edge, and read in commits and by writers.
struct alignas(64) Edge {
  Shared<std::uint64_t> version;                      // walk: contents << 32 | links; see BlockTrie
  Shared<StoredTokens> tokens;                        // walk: of run; never written again where they can be seen
  Shared<std::uint64_t> parent_key = kNoPositionKey;  // walk: where it hangs; none for kTop and for free edges
  Shared<AdapterId> adapter_id;                       // walk: meaningless for kTop
  Shared<std::uint32_t> first_hash;                   // walk: hash under which it is found at its parent
  Shared<std::uint32_t> length;                       // walk: blocks whose tokens are kept
  Shared<std::uint32_t> resident;                     // walk: blocks that are cached
  Shared<std::uint32_t> hanging;                      // walk: child edges
  std::atomic<Stamp> end_stamp{0};                    // commit: of the last cached block (the newest at or below it)
  std::atomic<std::uint32_t> end_uses{0};             // commit: at boundary `resident`, uses that end there, by tokens
  std::atomic<std::uint32_t> end_handles{0};          // commit: the same, by handle
  // ---- a cache line ends here ----
  std::unique_ptr<Stops> stops;  // commit, under stops_lock: at all other boundaries; none if there are none
  SpinLock stops_lock;           //
  std::atomic<Turn> turn{Turn::kNone};
  bool live = false;
  std::uint32_t end_children = 0;  // child edges with cached blocks that hang at its resident end
  Run run;
  std::uint32_t start = 0;      // blocks above it
  std::uint32_t snapshots = 0;  // snapshots that hang at any of its boundaries
  EdgeId next = kNoEdge;        // in a list: of free edges, of those waiting to be free, or of those handed over
  // Where the last block ends that has a record in a store: what keeps tokens up to here. By writers alone.
  std::uint32_t recorded = 0;

  [[nodiscard]] Position parent() const { return Position::of_key(parent_key); }
  // To be called after a change, with the gate closed: a walk that saw the new version has to see the change.
  void contents_changed() noexcept { version = version + (std::uint64_t{1} << 32); }
  void links_changed() noexcept { version = (version & ~kLinks) | ((version + 1) & kLinks); }
  static constexpr std::uint64_t kLinks = 0xFFFFFFFF;
};
static_assert(sizeof(Edge) == 128);
static_assert(sizeof(StoredTokens) == sizeof(void*));  // read atomically without a lock

// Owns the edges. An id is used again only when no reader can still be looking at the edge it stood for.
class EdgeStore {
 public:
  EdgeStore(std::size_t block_size, Gate& gate, bool counts_hits);
  EdgeStore(const EdgeStore&) = delete;
  EdgeStore& operator=(const EdgeStore&) = delete;

  // Any thread, for an id found within the same Gate::Reader or by a writer.
  Edge& operator[](EdgeId id) const {
    Edge* const* chunks = chunks_seen_.load(std::memory_order_acquire);  // pairs with prepare_create
    return chunks[id / kChunk][id % kChunk];
  }
  [[nodiscard]] std::size_t block_size() const { return block_size_; }
  // Whether the eviction policy asks for the hits of ends.
  [[nodiscard]] bool counts_hits() const { return counts_hits_; }
  // If so: as Edge::end_stamp, what Stop::hits is elsewhere. Raised in commits; else by writers with the gate closed.
  [[nodiscard]] std::atomic<std::uint32_t>& end_hits(EdgeId id) const {
    return hits_seen_.load(std::memory_order_acquire)[id / kChunk][id % kChunk];  // pairs with prepare_create
  }

  // The rest is for writers.

  void prefetch(EdgeId id) const noexcept {
    const Edge& edge = (*this)[id];
    __builtin_prefetch(&edge);
    __builtin_prefetch(&edge.run);
  }

  // Ids run from 0 to id_limit() - 1; those that are not live are free.
  [[nodiscard]] EdgeId id_limit() const { return id_limit_; }
  [[nodiscard]] std::size_t live_count() const { return live_count_; }

  // Makes sure that the next create() doesn't allocate. Throws std::bad_alloc or std::length_error.
  void prepare_create();
  EdgeId create() noexcept;
  // Nobody can find the edge any more.
  void free(EdgeId id) noexcept;
  // Frees the memory that was replaced before `epoch`, and that of edges freed before, and their ids.
  void reclaim(std::uint64_t epoch) noexcept;
  [[nodiscard]] bool has_waiting() const { return first_waiting_ != kNoEdge || !retired_.empty(); }

  // Memory for `capacity` blocks, tokens kept as `form`. Disk ids start as kNoDiskBlock. A later adopt_run can retire
  // what it replaces. Throws std::bad_alloc.
  [[nodiscard]] Run make_run(std::size_t capacity, TokenForm form, bool with_disk_blocks);
  // Copies what `edge` keeps into `run`, whose tokens are kept as `form`: the edge's own or the plain one.
  void copy_to(Run& run, TokenForm form, const Edge& edge) const noexcept;
  // With the gate closed: `run`, which holds a copy of what the edge keeps, becomes its memory.
  void adopt_run(Edge& edge, Run run, TokenForm form) noexcept;
  // The same: gives an edge room for disk ids, if it has none. Throws std::bad_alloc.
  void add_disk_blocks(Edge& edge) const;
  // The same: gives memory back where less than half of it is used; if no memory can be had for that, it stays.
  void trim_run(Edge& edge) noexcept;

  [[nodiscard]] BlockId* blocks(const Edge& edge) const { return blocks(edge.run, edge.tokens.get().form()); }

 private:
  static constexpr std::size_t kChunk = 1024;

  // Replaced, but a walk may still be reading it.
  struct Retired {
    std::uint64_t epoch;
    TokenArena::Words words;
  };

  [[nodiscard]] BlockId* blocks(const Run& run, TokenForm form) const {
    return run.words.get() + StoredTokens::num_words(run.capacity * block_size_, form);
  }

  using Hits = std::atomic<std::uint32_t>;

  void grow_directories();

  const std::size_t block_size_;
  const bool counts_hits_;
  Gate& gate_;
  TokenArena arena_;              // outlives all that was made in it
  std::vector<Retired> retired_;  // in order of epoch
  std::vector<std::unique_ptr<Edge[]>> chunks_;
  std::vector<std::unique_ptr<Hits[]>> hits_chunks_;  // parallel to chunks_, if hits are counted
  std::unique_ptr<Edge*[]> directory_;                // of the chunks
  std::unique_ptr<Hits*[]> hits_directory_;
  std::size_t directory_size_ = 0;
  alignas(64) std::atomic<Edge* const*> chunks_seen_{nullptr};  // directory_, for readers
  std::atomic<Hits* const*> hits_seen_{nullptr};                // hits_directory_, for readers
  alignas(64) EdgeId id_limit_ = 0;
  EdgeId first_free_ = kNoEdge;
  EdgeId first_waiting_ = kNoEdge;  // freed, in order of epoch (kept in end_stamp)
  EdgeId last_waiting_ = kNoEdge;
  std::size_t live_count_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_EDGE_STORE_H_
