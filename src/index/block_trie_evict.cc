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
  if (turn == Turn::kHanded) return;
  if (turn == Turn::kQueued) {  // looked at again when its turn comes
    // Of uses alone, an end's rank only rises. But the end of an edge that grew may rank lower than the old one.
    if (!lru_ && edge.resident > 0 && edge.end_children == 0) policy_->push(end_of(id));
    return;
  }
  if (edge.resident == 0 || edge.end_children > 0) {
    edge.turn.store(Turn::kNone, std::memory_order_relaxed);
  } else if (in_use(edge)) {
    edge.turn.store(Turn::kParked, std::memory_order_relaxed);
  } else {
    edge.turn.store(Turn::kQueued, std::memory_order_relaxed);
    if (lru_) {
      lru_->queue().push({edge.end_stamp.load(std::memory_order_relaxed), id});
    } else {
      policy_->push(end_of(id));
    }
  }
}

BlockEnd BlockTrie::end_of(EdgeId id) const noexcept {
  const Edge& edge = edges_[id];
  return {.edge = id,
          .boundary = edge.resident,
          .depth = edge.start + edge.resident,
          .hits = edges_.counts_hits() ? edges_.end_hits(id).load(std::memory_order_relaxed) : 0,
          .stamp = edge.end_stamp.load(std::memory_order_relaxed)};
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
  if (!lru_) {  // what goes depends on what went before: chosen behind the closed gate
    settle_policy();
    policy_->prepare_evict(std::min<std::size_t>(num_blocks, resident_blocks_));
    return;
  }
  constexpr std::size_t kChosenMost = 1024;
  LruPolicy& lru = *lru_;
  StampQueue& queue = lru.queue();
  std::size_t looks = queue.entries().size();
  lru.reserve_chosen(std::min({num_blocks, looks, kChosenMost}));

  for (std::size_t blocks = 0; looks > 0 && blocks < num_blocks && lru.may_choose(); --looks) {
    const auto [stamp, id] = queue.oldest();
    queue.pop();
    fetch_ahead(lru);
    const Edge& edge = edges_[id];
    const Stamp newest = edge.end_stamp.load(std::memory_order_relaxed);
    if (!evictable(edge)) {  // evict() parks it: only behind the closed gate is nobody about to drop the last use
      lru.choose({stamp, id});
    } else if (newest > stamp) {
      queue.push({newest, id});
    } else {
      lru.choose({stamp, id});
      blocks += edge.resident;
      fetch_end(edge, num_blocks);
    }
  }
}

void BlockTrie::evict(std::size_t num_blocks, Stamp now, EvictedBlocks& out, const Spilling& spilling) noexcept {
  take_handed_over();
  if (lru_) {
    evict_by(*lru_, num_blocks, out, spilling);
  } else {
    evict_by(*policy_, {.now = now, .blocks = 0}, num_blocks, out, spilling);
  }
}

void BlockTrie::evict_by(LruPolicy& lru, std::size_t num_blocks, EvictedBlocks& out,
                         const Spilling& spilling) noexcept {
  while (out.size() < num_blocks && !lru.empty()) {
    const LruPolicy::Candidate candidate = lru.take();
    if (!candidate.was_chosen) fetch_ahead(lru);
    const auto [stamp, id] = candidate.entry;
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
  lru.give_up_chosen();
}

void BlockTrie::evict_by(BlockPolicy& policy, EvictionMoment moment, std::size_t num_blocks, EvictedBlocks& out,
                         const Spilling& spilling) noexcept {
  while (out.size() < num_blocks) {
    moment.blocks = resident_blocks_;
    const EdgeId id = policy.pop(moment);
    if (id == kNoEdge) break;
    Edge& edge = edges_[id];
    edge.turn.store(Turn::kNone, std::memory_order_relaxed);
    if (evictable(edge)) {
      const BlockPolicy::Verdict verdict = policy.judge(end_of(id));
      if (verdict == BlockPolicy::Verdict::kKeepAndForgetHits) static_cast<void>(take_end_hits(id));
      if (verdict == BlockPolicy::Verdict::kEvict) {
        const std::size_t before = out.size();
        evict_from(policy, id, num_blocks - before, out);
        if (spilling.out != nullptr) spill_from(id, out.size() - before, spilling.min_depth, *spilling.out);
      }
    }
    arrange_turn(id);
    if (edge.resident < edge.length) drop_unused(id);
  }
}

// Asks the processor for the memory of the next turns, which lies all over the place, while the present one is dealt
// with: the next edge is the oldest entry, the one after that most likely one of its four children in the heap.
void BlockTrie::fetch_ahead(const LruPolicy& lru) const noexcept {
  constexpr std::size_t kAhead = 5;
  const std::vector<StampQueue::Entry>& entries = lru.queue().entries();
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
    if (edge.stops) take_over_end(id, edge);
    num_blocks -= step;
  }
  edge.contents_changed();
  if (edge.resident > 0) return;
  resident_edges_ = resident_edges_ - 1;
  drop_child(edge.parent(), id, stamp);
}

// One after the other, as long as the policy says so.
void BlockTrie::evict_from(BlockPolicy& policy, EdgeId id, std::size_t num_blocks, EvictedBlocks& out) noexcept {
  Edge& edge = edges_[id];
  const Stamp stamp = edge.end_stamp.load(std::memory_order_relaxed);
  do {
    policy.evicted(end_of(id));
    give_back(edge, 1, out);
    take_over_end(id, edge);
    --num_blocks;
  } while (num_blocks > 0 && evictable(edge) && policy.goes_too(end_of(id)));
  edge.contents_changed();
  if (edge.resident > 0) return;
  resident_edges_ = resident_edges_ - 1;
  drop_child(edge.parent(), id, stamp);
}

void BlockTrie::settle_policy() {
  std::size_t count = 0;
  if (use_log_) {
    const Gate::Closed closed(gate_);
    count = use_log_->take(uses_);
  }
  policy_->settle(std::span(uses_).first(count), resident_blocks_);
}

void BlockTrie::mark_blocks(Position at, std::size_t from_depth, std::size_t to_depth, const BlockMark& mark) {
  if (!policy_->takes_marks() || to_depth <= from_depth) return;
  for (Position p = ancestor(at, to_depth); p.edge != kTop && depth(p) > from_depth; p = edges_[p.edge].parent()) {
    const Edge& edge = edges_[p.edge];
    const std::size_t first = from_depth > edge.start ? from_depth - edge.start : 0;
    policy_->mark(p.edge, static_cast<std::uint32_t>(first), p.boundary, mark);
    if (edge.turn.load(std::memory_order_relaxed) == Turn::kQueued) arrange_turn(p.edge);
  }
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
  policy_->forget_if([&](EdgeId id) { return goes(edges_[id]); });
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
    static_cast<void>(take_end_hits(id));
    children_.erase(edge.first_hash, id);
    edges_.free(id);
  }
  settle_stop(top, 0);
}

void BlockTrie::reclaim() noexcept {
  children_.trim();
  if (edges_.live_count() == 1) {
    policy_->free_memory();
    keys_.free_memory();
  }
  if (gate_.has_retired() || edges_.has_waiting()) edges_.reclaim(gate_.reclaim());
}

}  // namespace cairn
