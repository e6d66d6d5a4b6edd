#include "index/block_trie.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/check.h"

namespace cairn {

BlockTrie::BlockTrie(const RadixTreeOptions& options, std::uint64_t hash_seed, Gate& gate)
    : policy_kind_(block_policy_kind(options.block_policy)),
      edges_(options.block_size, gate, policy_kind_.counts_hits),
      children_(gate),
      hash_seed_(hash_seed),
      gate_(gate),
      policy_(policy_kind_.make({edges_, options, hash_seed})),
      lru_(dynamic_cast<LruPolicy*>(policy_.get())),
      use_log_(policy_kind_.hears_uses ? std::make_unique<UseLog>() : nullptr),
      uses_(policy_kind_.hears_uses ? UseLog::kUsesMax : 0),
      keys_(options.first_tier_key) {}

// ---- Walking ----

std::uint32_t BlockTrie::child_hash(Position parent, AdapterId adapter_id, const TokenId* first_block) const {
  // Below the top, the parent says which adapter it is.
  const std::uint64_t context = parent.edge == kTop ? ~adapter_id : parent.key();
  return static_cast<std::uint32_t>(hash_tokens({first_block, block_size()}, context ^ hash_seed_));
}

BlockTrie::Child BlockTrie::find_child(Position parent, AdapterId adapter_id, const TokenId* first_block) const {
  Child child;
  const auto matches = [&](EdgeId id) {
    const Edge& edge = edges_[id];
    child.version = edge.version;  // first, so that the version covers what is read below
    return edge.parent_key == parent.key() && edge.adapter_id == adapter_id &&
           edge.tokens.get().start_with({first_block, block_size()});
  };
  child.edge = children_.find(child_hash(parent, adapter_id, first_block), kNoEdge, matches);
  return child;
}

BlockTrie::Walk BlockTrie::walk(AdapterId adapter_id, std::span<const TokenId> tokens, Extent extent) const {
  return walk_from({}, adapter_id, tokens, extent);
}

BlockTrie::Walk BlockTrie::walk_from(Position from, AdapterId adapter_id, std::span<const TokenId> tokens,
                                     Extent extent) const {
  Walk walk;
  do {
    walk = {from, 0, edges_[from.edge].version};
  } while (!try_walk(walk, adapter_id, tokens, extent));
  return walk;
}

// False if an edge changed while it was looked at.
bool BlockTrie::try_walk(Walk& walk, AdapterId adapter_id, std::span<const TokenId> tokens, Extent extent) const {
  const std::size_t num_blocks = tokens.size() / block_size();
  while (walk.blocks < num_blocks) {
    const Edge& edge = edges_[walk.at.edge];
    const TokenId* rest = tokens.data() + walk.blocks * block_size();
    const StoredTokens kept = edge.tokens;
    const std::uint32_t limit = extent == Extent::kResident ? edge.resident : edge.length;
    if (edge.tokens != kept) return false;  // `limit` may be that of its new memory
    if (walk.at.boundary < limit) {
      const std::size_t count = std::min<std::size_t>(limit - walk.at.boundary, num_blocks - walk.blocks);
      const std::size_t same =
          kept.matching(walk.at.boundary * block_size(), rest, count * block_size()) / block_size();
      walk.at.boundary += static_cast<std::uint32_t>(same);
      walk.blocks += same;
      if (walk.blocks == num_blocks) return true;
      rest += same * block_size();
    }
    if (edge.hanging == 0) return true;
    const Child child = find_child(walk.at, adapter_id, rest);
    if (child.edge == kNoEdge) return true;
    if (extent == Extent::kResident && edges_[child.edge].resident == 0) return true;
    if ((edge.version & ~Edge::kLinks) != (walk.version & ~Edge::kLinks)) return false;
    walk.at = {child.edge, 1};
    walk.version = child.version;
    ++walk.blocks;
  }
  return true;
}

Position BlockTrie::ancestor(Position at, std::size_t depth) const {
  while (edges_[at.edge].start >= depth && at.edge != kTop) at = edges_[at.edge].parent();
  return {at.edge, static_cast<std::uint32_t>(depth - edges_[at.edge].start)};
}

bool BlockTrie::gather(Position at, std::span<BlockId> blocks, std::span<DiskBlockId> disk_blocks) const {
  bool any = false;
  for (Position p = at; p.edge != kTop; p = edges_[p.edge].parent()) {
    const Edge& edge = edges_[p.edge];
    std::copy_n(edges_.blocks(edge), p.boundary, blocks.data() + edge.start);
    if (disk_blocks.empty()) continue;
    DiskBlockId* const disk = disk_blocks.data() + edge.start;
    if (edge.run.disk_blocks) {
      std::copy_n(edge.run.disk_blocks.get(), p.boundary, disk);
    } else {
      std::fill_n(disk, p.boundary, kNoDiskBlock);
    }
    any = any || std::any_of(disk, disk + p.boundary, [](DiskBlockId id) { return id != kNoDiskBlock; });
  }
  return any;
}

void BlockTrie::gather_below(Position at, std::size_t from_depth, std::span<BlockId> blocks) const {
  for (Position p = at; p.edge != kTop && depth(p) > from_depth; p = edges_[p.edge].parent()) {
    const Edge& edge = edges_[p.edge];
    const std::size_t first = from_depth > edge.start ? from_depth - edge.start : 0;
    std::copy(edges_.blocks(edge) + first, edges_.blocks(edge) + p.boundary,
              blocks.data() + (edge.start + first - from_depth));
  }
}

// ---- Stops ----

std::atomic<std::uint32_t>& BlockTrie::end_count(Edge& edge, Claim claim) {
  return claim == Claim::kUse ? edge.end_uses : edge.end_handles;
}

std::uint32_t& BlockTrie::stop_count(Stop& stop, Claim claim) {
  return claim == Claim::kUse ? stop.uses : stop.handles;
}

const Stop* BlockTrie::find_stop(const Edge& edge, std::uint32_t boundary) {
  if (!edge.stops) return nullptr;
  const auto found = edge.stops->find(boundary);
  return found == edge.stops->end() ? nullptr : &found->second;
}

Stop& BlockTrie::stop_at(Edge& edge, std::uint32_t boundary) {
  if (edge.stops) return (*edge.stops)[boundary];
  auto stops = std::make_unique<Stops>();
  Stop& stop = (*stops)[boundary];
  edge.stops = std::move(stops);
  return stop;
}

void BlockTrie::settle_stop(Edge& edge, std::uint32_t boundary) noexcept {
  if (!edge.stops) return;
  const auto found = edge.stops->find(boundary);
  if (found != edge.stops->end()) settle_stop(edge, found);
}

void BlockTrie::settle_stop(Edge& edge, Stops::iterator found) noexcept {
  const auto& [boundary, stop] = *found;
  if (stop.uses > 0 || stop.handles > 0 || stop.children > 0 || stop.anchors > 0) return;
  // A stamp alone is worth keeping where it is newer than what lies deeper.
  if (boundary < edge.resident && stop.stamp > edge.end_stamp.load(std::memory_order_relaxed)) return;
  if (boundary < edge.resident && stop.hits > 0) return;
  edge.stops->erase(found);
  if (edge.stops->empty()) edge.stops.reset();
}

std::uint32_t BlockTrie::anchors_at(const Edge& edge, std::uint32_t boundary) {
  const Stop* stop = find_stop(edge, boundary);
  return stop ? stop->anchors : 0;
}

// Readers whose commits overlap may come in another order than their stamps.
void BlockTrie::raise_stamp(std::atomic<Stamp>& stamp, Stamp now) noexcept {
  Stamp seen = stamp.load(std::memory_order_relaxed);
  while (seen < now && !stamp.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

void BlockTrie::claim(Position at, Claim claim, Stamp now) {
  Edge& edge = edges_[at.edge];
  if (at_end(at)) {
    raise_stamp(edge.end_stamp, now);
    if (claim != Claim::kNone) end_count(edge, claim).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const SpinLockGuard lock(edge.stops_lock);
  Stop& stop = stop_at(edge, at.boundary);
  stop.stamp = std::max(stop.stamp, now);
  if (claim != Claim::kNone) ++stop_count(stop, claim);
}

bool BlockTrie::take_claim(Position at, Claim claim) noexcept {
  Edge& edge = edges_[at.edge];
  if (at_end(at)) {
    std::atomic<std::uint32_t>& count = end_count(edge, claim);
    std::uint32_t seen = count.load(std::memory_order_relaxed);
    do {
      if (seen == 0) return false;
    } while (!count.compare_exchange_weak(seen, seen - 1, std::memory_order_relaxed));
    if (seen == 1) hand_over(at.edge);
    return true;
  }
  const SpinLockGuard lock(edge.stops_lock);
  if (!find_stop(edge, at.boundary)) return false;
  std::uint32_t& count = stop_count(stop_at(edge, at.boundary), claim);
  if (count == 0) return false;
  --count;
  settle_stop(edge, at.boundary);
  return true;
}

void BlockTrie::take_use_above(Position at) noexcept {
  while (at.edge != kTop && !take_claim(at, Claim::kUse)) {
    const Edge& edge = edges_[at.edge];
    if (at.boundary > 1) {
      --at.boundary;
    } else {
      at = edge.parent();
    }
  }
}

void BlockTrie::drop_anchor(const Gate::Closed&, Position at) noexcept {
  Edge& edge = edges_[at.edge];
  CAIRN_CHECK(edge.stops);
  const auto stop = edge.stops->find(at.boundary);
  CAIRN_CHECK(stop != edge.stops->end() && stop->second.anchors > 0);
  --stop->second.anchors;
  settle_stop(edge, stop);
  drop_unused(at.edge);
}

void BlockTrie::add_child(Position at) noexcept {
  Edge& edge = edges_[at.edge];
  ++(at_end(at) ? edge.end_children : stop_at(edge, at.boundary).children);  // the child is anchored there
  edge.links_changed();
}

void BlockTrie::drop_child(Position at, EdgeId child, Stamp child_stamp) noexcept {
  Edge& edge = edges_[at.edge];
  if (!lru_) tell_of_dropped_child(at, child);
  if (at_end(at)) {
    --edge.end_children;
    raise_stamp(edge.end_stamp, child_stamp);
    arrange_turn(at.edge);
    return;
  }
  Stop& stop = stop_at(edge, at.boundary);
  --stop.children;
  stop.stamp = std::max(stop.stamp, child_stamp);
  settle_stop(edge, at.boundary);
}

void BlockTrie::tell_of_dropped_child(Position at, EdgeId child) noexcept {
  if (edges_.counts_hits()) add_hits(at, take_end_hits(child));
  if (at_end(at) && edges_[at.edge].end_children == 1) policy_->uncovered(at.edge, child);
}

// They stay where they are: more than 2^32 are not told from that many.
void BlockTrie::add_hits(std::atomic<std::uint32_t>& hits, std::uint32_t count) noexcept {
  std::uint32_t seen = hits.load(std::memory_order_relaxed);
  while (!hits.compare_exchange_weak(seen, seen + std::min(count, ~seen), std::memory_order_relaxed)) {
  }
}

// Where there is a stop, or the resident end.
void BlockTrie::add_hits(Position at, std::uint32_t count) noexcept {
  if (at_end(at)) return add_hits(edges_.end_hits(at.edge), count);
  Edge& edge = edges_[at.edge];
  const SpinLockGuard lock(edge.stops_lock);
  std::uint32_t& hits = stop_at(edge, at.boundary).hits;
  hits += std::min(count, ~hits);
}

std::uint32_t BlockTrie::take_end_hits(EdgeId id) noexcept {
  return edges_.counts_hits() ? edges_.end_hits(id).exchange(0, std::memory_order_relaxed) : 0;
}

// ---- Adding ----

BlockTrie::Extension BlockTrie::prepare_extend(const Extend& what, InsertAcquired& acquired) {
  if (!lru_) settle_policy();
  Extension extension;
  extension.what_ = what;
  extension.cached_ = walk_from(what.from, what.adapter_id, what.tokens, Extent::kResident);
  const std::size_t cached_blocks = extension.cached_.blocks;
  const auto new_blocks = what.ids.blocks.subspan(cached_blocks);
  acquired.blocks.assign(new_blocks.begin(), new_blocks.end());
  acquired.disk_block_ids.reserve(what.ids.disk_blocks.size());

  const auto missing = what.tokens.subspan(cached_blocks * block_size());
  const Walk kept = walk_from(extension.cached_.at, what.adapter_id, missing, Extent::kKept);
  extension.kept_ = kept.at;
  const auto rest = missing.subspan(kept.blocks * block_size());
  extension.growth_ = prepare_growth(kept.at, what.adapter_id, rest, !what.ids.disk_blocks.empty());
  return extension;
}

Position BlockTrie::extend(const Gate::Closed&, Extension extension, Stamp now, InsertAcquired& acquired) {
  const Extend& what = extension.what_;
  const Position cached = extension.cached_.at;
  const Position kept = extension.kept_;
  try {
    prepare_end_move(cached);
    prepare_link(extension.growth_);
    if (!what.ids.disk_blocks.empty()) prepare_disk_blocks(kept, depth(what.from), extension.growth_);
    if (extension.growth_.num_blocks == 0) claim(kept, Claim::kNone, now);
  } catch (...) {
    settle_stop(edges_[cached.edge], cached.boundary);
    settle_stop(edges_[kept.edge], kept.boundary);
    discard(std::move(extension.growth_));
    throw;
  }
  const Position end = link(std::move(extension.growth_));
  make_resident(cached, end, what, now);
  if (!what.ids.disk_blocks.empty()) take_disk_blocks(end, depth(what.from), what.ids, acquired);
  claim(end, what.claim, now);
  if (what.claim != Claim::kNone && what.held > 0) take_claim(ancestor(end, what.held), what.claim);
  arrange_turn(end.edge);
  settle_stop(edges_[cached.edge], cached.boundary);
  return end;
}

Position BlockTrie::add_anchor(AdapterId adapter_id, std::span<const TokenId> tokens) {
  const Walk kept = walk(adapter_id, tokens, Extent::kKept);
  Growth growth = prepare_growth(kept.at, adapter_id, tokens.subspan(kept.blocks * block_size()), false);
  const Gate::Closed closed(gate_);
  try {
    prepare_link(growth);
    const bool at_new_edge = growth.edge != kNoEdge;
    stop_at(edges_[at_new_edge ? growth.edge : kept.at.edge],
            at_new_edge ? growth.num_blocks : kept.at.boundary + growth.num_blocks);
  } catch (...) {
    settle_stop(edges_[kept.at.edge], kept.at.boundary);
    discard(std::move(growth));
    throw;
  }
  const Position end = link(std::move(growth));
  ++stop_at(edges_[end.edge], end.boundary).anchors;
  return end;
}

void BlockTrie::add_anchor_at(Position at) {
  const Gate::Closed closed(gate_);
  ++stop_at(edges_[at.edge], at.boundary).anchors;
}

// Memory and tokens for the full blocks of `tokens`, which follow `kept`. Beside readers.
BlockTrie::Growth BlockTrie::prepare_growth(Position kept, AdapterId adapter_id, std::span<const TokenId> tokens,
                                            bool disk_blocks) {
  const std::size_t num_blocks = tokens.size() / block_size();
  if (num_blocks > std::numeric_limits<std::uint32_t>::max() - depth(kept)) {
    throw std::length_error("cairn: a sequence of more than 2^32 - 1 blocks");
  }
  Growth growth{kept, static_cast<std::uint32_t>(num_blocks), kNoEdge, {}, StoredTokens::form_for(block_size())};
  if (num_blocks == 0) return growth;
  tokens = tokens.first(num_blocks * block_size());
  Edge& old = edges_[kept.edge];
  // New memory with `tokens` from block `at` on: in the form of the growth or, if they can't be kept so, the plain
  // one.
  const auto make_run = [&](std::size_t capacity, std::size_t at, bool with_disk_blocks) {
    growth.run = edges_.make_run(capacity, growth.form, with_disk_blocks);
    if (growth.run.tokens(growth.form).write(at * block_size(), tokens)) return;
    growth.run = Run{};
    growth.form = TokenForm::kPlain;
    growth.run = edges_.make_run(capacity, growth.form, with_disk_blocks);
    CAIRN_CHECK(growth.run.tokens(growth.form).write(at * block_size(), tokens));
  };

  if (kept.edge == kTop || kept.boundary < old.length) {
    make_run(num_blocks, 0, disk_blocks);
    growth.run.written = growth.num_blocks;
    edges_.prepare_create();
    policy_->reserve(edges_.live_count() + 1, edges_.id_limit() + 1);
    children_.prepare_insert();
    growth.edge = edges_.create();
    Edge& edge = edges_[growth.edge];
    edge.adapter_id = adapter_id;
    edge.start = static_cast<std::uint32_t>(depth(kept));
    edge.first_hash = child_hash(kept, adapter_id, tokens.data());
    edge.tokens = growth.run.tokens(growth.form);
    edge.run = std::move(growth.run);
    edge.length = growth.num_blocks;
    return growth;
  }

  growth.form = old.tokens.get().form();
  const std::size_t length = old.length + num_blocks;
  if (length <= old.run.capacity && old.run.written == old.length) {
    // Readers may still be looking at what was written in this memory: only what comes after that can be used.
    if (old.run.tokens(growth.form).write(old.length * block_size(), tokens)) return growth;
    growth.form = TokenForm::kPlain;
  }
  const std::size_t slack = old.length / 4;  // amortises a sequence that grows block by block
  make_run(std::max<std::size_t>(length, old.length + slack), old.length, disk_blocks || old.run.disk_blocks);
  edges_.copy_to(growth.run, growth.form, old);
  return growth;
}

void BlockTrie::discard(Growth growth) noexcept {
  if (growth.edge == kNoEdge) return;
  edges_[growth.edge].stops.reset();
  edges_.free(growth.edge);
}

Position BlockTrie::link(Growth growth) noexcept {
  if (growth.num_blocks == 0) return growth.at;
  Edge& old = edges_[growth.at.edge];
  Position end;
  if (growth.edge == kNoEdge) {
    if (growth.run.words) edges_.adopt_run(old, std::move(growth.run), growth.form);
    old.run.written = old.length + growth.num_blocks;
    old.length = old.run.written;
    end = {growth.at.edge, old.length};
  } else {
    Edge& edge = edges_[growth.edge];
    edge.parent_key = growth.at.key();
    old.hanging = old.hanging + 1;
    ++stop_at(old, growth.at.boundary).anchors;
    children_.insert(edge.first_hash, growth.edge);
    end = {growth.edge, growth.num_blocks};
  }
  old.links_changed();
  return end;
}

// The stop that linking needs, so that nothing fails then.
void BlockTrie::prepare_link(const Growth& growth) {
  if (growth.edge != kNoEdge) stop_at(edges_[growth.at.edge], growth.at.boundary);
}

// If the cached part of this edge grows, the facts at its end come to lie in the midst of it: their stop.
void BlockTrie::prepare_end_move(Position cached) {
  Edge& edge = edges_[cached.edge];
  if (cached.edge == kTop || !at_end(cached) || cached.boundary == 0) return;
  const bool has_hits = edges_.counts_hits() && edges_.end_hits(cached.edge).load(std::memory_order_relaxed) > 0;
  if (in_use(edge) || edge.end_children > 0 || has_hits) stop_at(edge, cached.boundary);
}

// From `from`, the end of what is cached, to `to`, below it: upwards, because each edge knows its parent.
void BlockTrie::make_resident(Position from, Position to, const Extend& what, Stamp now) noexcept {
  const BlockIds& ids = what.ids;
  const std::size_t ids_depth = depth(what.from);
  for (Position at = to;;) {
    Edge& edge = edges_[at.edge];
    if (at.boundary > edge.resident) {
      const std::uint32_t first = edge.resident;
      const BlockId* source = ids.blocks.data() + (edge.start + first - ids_depth);
      std::copy_n(source, at.boundary - first, edges_.blocks(edge) + first);
      if (edge.run.disk_blocks) {
        std::fill(edge.run.disk_blocks.get() + first, edge.run.disk_blocks.get() + at.boundary, kNoDiskBlock);
      }
      raise_resident(at.edge, at.boundary);
      if (!lru_) policy_->inserted({.edge = at.edge, .first = first, .last = at.boundary, .stamp = now});
    }
    if (at.edge == from.edge) return;
    at = edge.parent();
    add_child(at);
  }
}

void BlockTrie::raise_resident(EdgeId id, std::uint32_t resident) noexcept {
  Edge& edge = edges_[id];
  const std::uint32_t hits = take_end_hits(id);
  if (in_use(edge) || edge.end_children > 0 || hits > 0) {
    Stop& stop = stop_at(edge, edge.resident);  // prepared
    stop.hits += std::min(hits, ~stop.hits);
    stop.uses = edge.end_uses.exchange(0, std::memory_order_relaxed);
    stop.handles = edge.end_handles.exchange(0, std::memory_order_relaxed);
    stop.children = std::exchange(edge.end_children, 0);
  }
  if (edge.resident == 0) resident_edges_ = resident_edges_ + 1;
  resident_blocks_ = resident_blocks_ + (resident - edge.resident);
  edge.resident = resident;
  edge.links_changed();
  take_over_end(id, edge);
}

// The facts at the resident end, after it moved, from the stops into the edge.
void BlockTrie::take_over_end(EdgeId id, Edge& edge) noexcept {
  if (!find_stop(edge, edge.resident)) return;
  Stop& stop = stop_at(edge, edge.resident);
  edge.end_uses.fetch_add(std::exchange(stop.uses, 0), std::memory_order_relaxed);
  edge.end_handles.fetch_add(std::exchange(stop.handles, 0), std::memory_order_relaxed);
  edge.end_children += std::exchange(stop.children, 0);
  raise_stamp(edge.end_stamp, std::exchange(stop.stamp, 0));
  if (stop.hits > 0) add_hits(edges_.end_hits(id), std::exchange(stop.hits, 0));
  settle_stop(edge, edge.resident);
}

// On the way from `above_depth` down to `at`, and where an edge grows in its own memory.
void BlockTrie::prepare_disk_blocks(Position at, std::size_t above_depth, const Growth& growth) {
  if (growth.num_blocks > 0 && growth.edge == kNoEdge) edges_.add_disk_blocks(edges_[growth.at.edge]);
  for (; depth(at) > above_depth; at = edges_[at.edge].parent()) edges_.add_disk_blocks(edges_[at.edge]);
}

void BlockTrie::take_disk_blocks(Position at, std::size_t ids_depth, BlockIds ids, InsertAcquired& acquired) noexcept {
  for (; depth(at) > ids_depth; at = edges_[at.edge].parent()) {
    const Edge& edge = edges_[at.edge];
    for (std::uint32_t block = at.boundary; block-- > 0 && edge.start + block >= ids_depth;) {
      const DiskBlockId offered = ids.disk_blocks[edge.start + block - ids_depth];
      DiskBlockId& held = edge.run.disk_blocks[block];
      if (held != kNoDiskBlock || offered == kNoDiskBlock) continue;
      held = offered;
      acquired.disk_block_ids.push_back(offered);
    }
  }
  resident_disk_blocks_ = resident_disk_blocks_ + acquired.disk_block_ids.size();
  std::ranges::reverse(acquired.disk_block_ids);
}

}  // namespace cairn
