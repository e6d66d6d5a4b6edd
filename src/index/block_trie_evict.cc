// What leaves the trie: blocks by eviction, all of them by a clear, tokens that nothing needs any more.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "index/block_trie.h"

namespace cairn {

bool BlockTrie::in_use(const Edge& edge) {
  return edge.end_uses.load(std::memory_order_relaxed) > 0 || edge.end_handles.load(std::memory_order_relaxed) > 0;
}

bool BlockTrie::evictable(const Edge& edge) {
  return edge.resident > 0 && edge.end_children == 0 && !in_use(edge);
}

// ---- Whose turn it is ----

// After the end of an edge moved, lost a child, or was claimed or not by a writer.
void BlockTrie::arrange_turn(EdgeId id) noexcept {
  Edge& edge = edges_[id];
  const Turn turn = edge.turn.load(std::memory_order_relaxed);
  if (turn == Turn::kQueued || turn == Turn::kHanded) return;  // looked at again when its turn comes
  if (edge.resident == 0 || edge.end_children > 0) {
    edge.turn.store(Turn::kNone, std::memory_order_relaxed);
  } else if (in_use(edge)) {
    edge.turn.store(Turn::kParked, std::memory_order_relaxed);
  } else {
    edge.turn.store(Turn::kQueued, std::memory_order_relaxed);
    queue_.push({edge.end_stamp.load(std::memory_order_relaxed), id});
  }
}

// By whoever dropped the last use, or what may be the last.
void BlockTrie::hand_over(EdgeId id) noexcept {
  Edge& edge = edges_[id];
  Turn parked = Turn::kParked;
  if (edge.turn.load(std::memory_order_relaxed) != parked) return;  // most often; a look leaves the line with others
  if (!edge.turn.compare_exchange_strong(parked, Turn::kHanded, std::memory_order_relaxed)) return;
  edge.next = handed_over_.load(std::memory_order_relaxed);
  while (!handed_over_.compare_exchange_weak(edge.next, id, std::memory_order_release)) {  // pairs with the exchange
  }
}

void BlockTrie::take_handed_over() noexcept {
  EdgeId id = handed_over_.exchange(kNoEdge, std::memory_order_acquire);
  while (id != kNoEdge) {
    const EdgeId next = std::exchange(edges_[id].next, kNoEdge);
    edges_[id].turn.store(Turn::kNone, std::memory_order_relaxed);
    arrange_turn(id);
    id = next;
  }
}

// ---- Evicting ----

void BlockTrie::prepare_evict(std::size_t num_blocks, EvictedBlocks& out) {
  out.physical.reserve(std::min<std::size_t>(num_blocks, resident_blocks_));
  out.disk_block_ids.reserve(std::min<std::size_t>(num_blocks, resident_disk_blocks_));
  constexpr std::size_t kChosenMost = 1024;
  std::size_t looks = queue_.entries().size();
  chosen_.reserve(std::min({num_blocks, looks, kChosenMost}));

  for (std::size_t blocks = 0; looks > 0 && blocks < num_blocks && chosen_.size() < chosen_.capacity(); --looks) {
    const auto [stamp, id] = queue_.oldest();
    queue_.pop();
    fetch_ahead();
    const Edge& edge = edges_[id];
    const Stamp newest = edge.end_stamp.load(std::memory_order_relaxed);
    if (!evictable(edge)) {  // evict() parks it: only behind the closed gate is nobody about to drop the last use
      chosen_.push_back({stamp, id});
    } else if (newest > stamp) {
      queue_.push({newest, id});
    } else {
      chosen_.push_back({stamp, id});
      blocks += edge.resident;
      fetch_end(edge, num_blocks);
    }
  }
}

void BlockTrie::evict(std::size_t num_blocks, EvictedBlocks& out, const Spilling& spilling) noexcept {
  take_handed_over();
  std::size_t next =
      0;  // of those chosen, which are older than what was left in the queue, but not than what came since
  while (out.size() < num_blocks && (next < chosen_.size() || !queue_.empty())) {
    const bool was_chosen = next < chosen_.size() && (queue_.empty() || chosen_[next] < queue_.oldest());
    const auto [stamp, id] = was_chosen ? chosen_[next++] : queue_.oldest();
    if (!was_chosen) {
      queue_.pop();
      fetch_ahead();
    }
    Edge& edge = edges_[id];
    edge.turn.store(Turn::kNone, std::memory_order_relaxed);
    if (evictable(edge) && edge.end_stamp.load(std::memory_order_relaxed) == stamp) {
      const std::size_t before = out.size();
      evict_from(id, num_blocks - before, out);
      if (spilling.out != nullptr) spill_from(id, out.size() - before, spilling.min_depth, *spilling.out);
    }
    arrange_turn(id);
    if (edge.resident < edge.length) drop_unused(id);
  }
  for (; next < chosen_.size(); ++next) queue_.push(chosen_[next]);
  chosen_.clear();
}

// Asks the processor for the memory of the next turns, which lies all over the place, while the present one is dealt
// with: the next edge is the oldest entry, the one after that most likely one of its four children in the heap.
void BlockTrie::fetch_ahead() const noexcept {
  constexpr std::size_t kAhead = 5;
  const std::vector<StampQueue::Entry>& entries = queue_.entries();
  if (entries.empty()) return;
  for (std::size_t i = 1; i < std::min(entries.size(), kAhead); ++i) edges_.prefetch(entries[i].id);
  const Edge& next = edges_[entries.front().id];
  children_.prefetch(next.first_hash);
  __builtin_prefetch(next.run.words.get());
  __builtin_prefetch(edges_.blocks(next) + next.resident - 1);
}

// Has in the caches what evict() will look at, now rather than behind the closed gate: reads it, since the processor
// need not wait for what it is only asked to fetch.
void BlockTrie::fetch_end(const Edge& edge, std::size_t num_blocks) const noexcept {
  constexpr std::size_t kStep = 64 / sizeof(BlockId);
  const volatile BlockId* const blocks = edges_.blocks(edge);
  const std::size_t resident = edge.resident;
  for (std::size_t i = resident - std::min(resident, num_blocks); i < resident; i += kStep)
    static_cast<void>(blocks[i]);
  children_.prefetch(edge.first_hash);
  edges_.prefetch(edge.parent().edge);
}

// Takes blocks off the end as long as they are the least recently used ones, which are those with the same stamp.
void BlockTrie::evict_from(EdgeId id, std::size_t num_blocks, EvictedBlocks& out) noexcept {
  Edge& edge = edges_[id];
  const Stamp stamp = edge.end_stamp.load(std::memory_order_relaxed);
  while (num_blocks > 0 && evictable(edge) && edge.end_stamp.load(std::memory_order_relaxed) == stamp) {
    const std::size_t step = edge.stops ? 1 : std::min<std::size_t>(num_blocks, edge.resident);
    give_back(edge, static_cast<std::uint32_t>(step), out);
    take_over_end(edge);
    num_blocks -= step;
  }
  edge.contents_changed();
  if (edge.resident > 0) return;
  resident_edges_ = resident_edges_ - 1;
  drop_child(edge.parent(), stamp);
}

// The last cached blocks of an edge, deepest first.
void BlockTrie::give_back(Edge& edge, std::uint32_t num_blocks, EvictedBlocks& out) noexcept {
  const std::uint32_t resident = edge.resident;
  const std::span<const BlockId> last(edges_.blocks(edge) + resident - num_blocks, num_blocks);
  out.physical.insert(out.physical.end(), last.rbegin(), last.rend());
  for (std::uint32_t block = resident; edge.run.disk_blocks && block-- > resident - num_blocks;) {
    if (edge.run.disk_blocks[block] == kNoDiskBlock) continue;
    out.disk_block_ids.push_back(edge.run.disk_blocks[block]);
    resident_disk_blocks_ = resident_disk_blocks_ - 1;
  }
  edge.resident = resident - num_blocks;
  resident_blocks_ = resident_blocks_ - num_blocks;
}

void BlockTrie::drop_unused(EdgeId id) noexcept {
  while (id != kTop) {
    Edge& edge = edges_[id];
    const std::uint32_t needed = std::max<std::uint32_t>(edge.resident, edge.recorded);
    std::uint32_t length = edge.stops ? edge.length.get() : needed;
    while (length > needed && anchors_at(edge, length) == 0) --length;
    if (length < edge.length) {
      // A key must not outlive the tokens: others may come to lie in this place.
      if (keys_.size() > 0) {
        for (Position at{id, edge.length}; at.boundary > length; --at.boundary) keys_.erase(at);
      }
      edge.length = length;
      edge.contents_changed();
    }
    if (length > 0) {
      edges_.trim_run(edge);
      return;
    }
    const Position parent = edge.parent();
    children_.erase(edge.first_hash, id);
    edges_.free(id);
    Edge& above = edges_[parent.edge];
    above.hanging = above.hanging - 1;
    --stop_at(above, parent.boundary).anchors;
    settle_stop(above, parent.boundary);
    id = parent.edge;
  }
}

// ---- Clearing ----

void BlockTrie::reserve_cleared(std::optional<AdapterId> adapter_id, Cleared& out) const {
  std::size_t blocks = 0;
  std::size_t disk_blocks = 0;
  for (EdgeId id = kTop + 1; id < edges_.id_limit(); ++id) {
    const Edge& edge = edges_[id];
    if (!edge.live || (adapter_id && edge.adapter_id != *adapter_id)) continue;
    blocks += edge.resident;
    if (edge.run.disk_blocks) disk_blocks += edge.resident;
  }
  out.blocks.physical.reserve(blocks);
  out.blocks.disk_block_ids.reserve(std::min<std::size_t>(disk_blocks, resident_disk_blocks_));
  out.tier_keys.reserve(out.tier_keys.capacity() + keys_.recorded());  // beside those of snapshots
}

void BlockTrie::clear(const Gate::Closed&, std::optional<AdapterId> adapter_id, Cleared& out) noexcept {
  const auto goes = [&](const Edge& edge) { return !adapter_id || edge.adapter_id == *adapter_id; };
  keys_.clear([&](Position at) { return goes(edges_[at.edge]); }, [&](TierKey key) { out.tier_keys.push_back(key); });
  take_handed_over();
  queue_.remove_if([&](const StampQueue::Entry& entry) { return goes(edges_[entry.id]); });
  Edge& top = edges_[kTop];
  for (EdgeId id = kTop + 1; id < edges_.id_limit(); ++id) {
    Edge& edge = edges_[id];
    if (!edge.live || !goes(edge)) continue;
    if (edge.parent().edge == kTop) {
      if (edge.resident > 0) --top.end_children;
      top.hanging = top.hanging - 1;
      --stop_at(top, 0).anchors;
    }
    if (edge.resident > 0) resident_edges_ = resident_edges_ - 1;
    give_back(edge, edge.resident, out.blocks);
    edge.stops.reset();
    children_.erase(edge.first_hash, id);
    edges_.free(id);
  }
  settle_stop(top, 0);
}

void BlockTrie::reclaim() noexcept {
  children_.trim();
  if (edges_.live_count() == 1) {
    queue_.free_memory();
    keys_.free_memory();
    std::vector<StampQueue::Entry>().swap(chosen_);
  }
  if (gate_.has_retired() || edges_.has_waiting()) edges_.reclaim(gate_.reclaim());
}

}  // namespace cairn
