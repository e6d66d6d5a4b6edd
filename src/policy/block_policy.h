// The order in which cached blocks leave memory: what every eviction policy does, and how the trie talks to it.
//
// Only an *end* can go: the last cached block of an edge, with no cached child and in nobody's use. So what is cached
// stays closed under prefix whatever a policy chooses, and a policy speaks of edges, each of which has one end. When
// the end of an edge is given up, the block before it becomes the end; when an edge is empty, the block on which it
// hung may.
//
// Lookups tell the policy nothing: in a commit they raise the stamp of the end where they stopped and, if the policy
// counts hits, its hits. A policy remembers what it saw when an end was queued and looks again when its turn comes:
//
//     push(end)    the end can go; it has no entry
//     pop()        whose turn it is, most likely; the entry is gone
//     judge(end)   that end as it is now: it goes, or it is kept (and pushed again)
//
// Facts of an end that a policy sees: BlockEnd. Both stamp and hits of a block are those of its own and of all below
// it, also of those that have gone since: what is given up leaves them to the block before it.
//
// Threads: writers alone, one at a time; where not said otherwise with the gate closed. What isn't noexcept is called
// with the gate open and throws std::bad_alloc before it changes anything that can be seen.
#ifndef CAIRN_POLICY_BLOCK_POLICY_H_
#define CAIRN_POLICY_BLOCK_POLICY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "index/edge_store.h"
#include "index/use_log.h"

namespace cairn {

struct BlockEnd {
  EdgeId edge = kNoEdge;
  std::uint32_t boundary = 0;  // it is the last of so many cached blocks of the edge
  std::uint32_t depth = 0;     // and of so many from the top
  std::uint32_t hits = 0;      // lookups that used it since it was cached or its hits were forgotten
  Stamp stamp = 0;             // its last use

  [[nodiscard]] Position at() const { return {edge, boundary}; }
};

// What an eviction knows beside its ends.
struct EvictionMoment {
  Stamp now = 0;           // no stamp so far is newer, every later one is
  std::size_t blocks = 0;  // cached at present
};

// The blocks of an edge after boundary `first` up to `last`, cached at that moment.
struct NewBlocks {
  EdgeId edge = kNoEdge;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  Stamp stamp = 0;
};

// What a request says of a block that it uses.
struct BlockMark {
  using TimePoint = std::chrono::steady_clock::time_point;

  int priority = 0;
  TimePoint expires = TimePoint::max();
};

class BlockPolicy {
 public:
  enum class Verdict { kEvict, kKeep, kKeepAndForgetHits };

  BlockPolicy() = default;
  BlockPolicy(const BlockPolicy&) = delete;
  BlockPolicy& operator=(const BlockPolicy&) = delete;
  virtual ~BlockPolicy() = default;

  // ---- With the gate open ----

  // Room for `ends` ends in all, of edges with ids below `id_limit`.
  virtual void reserve(std::size_t ends, EdgeId id_limit) = 0;
  // Before each insert and eviction: what lookups used since the last time, if the policy hears of uses (else none),
  // and how many blocks are cached. Reads of edges are allowed here: long work belongs here.
  virtual void settle(std::span<const Use> uses, std::size_t blocks) {
    static_cast<void>(uses), static_cast<void>(blocks);
  }
  // Then, if up to `num_blocks` are to be evicted.
  virtual void prepare_evict(std::size_t num_blocks) { static_cast<void>(num_blocks); }
  // Whether mark() means anything to it.
  [[nodiscard]] virtual bool takes_marks() const { return false; }
  // The cached blocks of one edge from boundary `first` to `last`. An end among them that has an entry is pushed again
  // afterwards.
  virtual void mark(EdgeId edge, std::uint32_t first, std::uint32_t last, const BlockMark& mark) {
    static_cast<void>(edge), static_cast<void>(first), static_cast<void>(last), static_cast<void>(mark);
  }

  // ---- Whose turn it is ----

  // Also for an end that has an entry already, which it replaces, if the policy takes marks.
  virtual void push(const BlockEnd& end) noexcept = 0;
  // kNoEdge: there is none.
  virtual EdgeId pop(const EvictionMoment& moment) noexcept = 0;
  // Of the end popped last, if it can go.
  virtual Verdict judge(const BlockEnd& end) noexcept = 0;
  // After an end that was judged so has gone: whether the block before it on the same edge goes too, which it would
  // if it were pushed, popped and judged. False is always right, but slower.
  virtual bool goes_too(const BlockEnd& end) noexcept {
    static_cast<void>(end);
    return false;
  }

  // ---- What happens to blocks ----

  // Blocks of an edge are cached now. Of an insert, the deepest edge first.
  virtual void inserted(const NewBlocks& blocks) noexcept { static_cast<void>(blocks); }
  // The end is about to be given up; its tokens are there yet.
  virtual void evicted(const BlockEnd& end) noexcept { static_cast<void>(end); }
  // The last child of the end of `parent` has gone, which was `child`.
  virtual void uncovered(EdgeId parent, EdgeId child) noexcept { static_cast<void>(parent), static_cast<void>(child); }
  // All of these edges' blocks are about to go.
  virtual void forget_if(const std::function<bool(EdgeId)>& goes) noexcept = 0;
  // Nothing is cached: gives back what memory it can. Room has to be reserved again.
  virtual void free_memory() noexcept = 0;

  // ---- For tests ----

  // The edges that have an entry, in any order.
  [[nodiscard]] virtual std::vector<EdgeId> entries() const = 0;
  // Empty, or what is wrong.
  [[nodiscard]] virtual std::string validate(const EdgeStore& edges) const {
    static_cast<void>(edges);
    return {};
  }
};

}  // namespace cairn

#endif  // CAIRN_POLICY_BLOCK_POLICY_H_
