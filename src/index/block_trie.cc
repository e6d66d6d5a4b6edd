#include "index/block_trie.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "index/token_compare.h"

namespace cairn {

BlockTrie::BlockTrie(std::size_t block_size, std::uint64_t hash_seed)
    : edges_(block_size), children_(0, ChildHash{&edges_}, ChildEqual{&edges_}), hash_seed_(hash_seed) {}

// ---- Finding ----

bool BlockTrie::ChildEqual::operator()(EdgeId id, const ChildKey& key) const {
  const Edge& edge = (*edges)[id];
  return edge.parent == key.parent && edge.first_hash == key.hash &&
         std::ranges::equal(edges->block_tokens(edge, 0), key.first_block);
}

BlockTrie::ChildKey BlockTrie::child_key(Position parent, const TokenId* first_block) const {
  const std::span<const TokenId> tokens(first_block, block_size());
  return {parent, tokens, hash_tokens(tokens, stop_key(parent) ^ hash_seed_)};
}

EdgeId BlockTrie::find_child(Position parent, const TokenId* first_block) const {
  if (edges_[parent.edge].stops == 0) return kNoEdge;  // a child anchors its place
  const auto found = children_.find(child_key(parent, first_block));
  return found == children_.end() ? kNoEdge : *found;
}

BlockTrie::Walk BlockTrie::walk(AdapterId adapter_id, std::span<const TokenId> tokens, Extent extent) const {
  const auto root = roots_.find(adapter_id);
  if (root == roots_.end()) return {};
  return walk_from({root->second, 0}, tokens, extent);
}

BlockTrie::Walk BlockTrie::walk_from(Position from, std::span<const TokenId> tokens, Extent extent) const {
  const std::size_t num_blocks = tokens.size() / block_size();
  Walk walk{from, 0};
  while (walk.blocks < num_blocks) {
    const Edge& edge = edges_[walk.at.edge];
    const TokenId* rest = tokens.data() + walk.blocks * block_size();
    const std::uint32_t limit = extent == Extent::kResident ? edge.resident : edge.length;
    if (walk.at.boundary < limit) {
      const std::size_t count = std::min<std::size_t>(limit - walk.at.boundary, num_blocks - walk.blocks);
      const std::size_t same =
          matching_tokens(edges_.tokens(edge, walk.at.boundary), rest, count * block_size()) / block_size();
      walk.at.boundary += static_cast<std::uint32_t>(same);
      walk.blocks += same;
      if (walk.blocks == num_blocks) break;
      rest += same * block_size();
    }
    const EdgeId child = find_child(walk.at, rest);
    if (child == kNoEdge) break;
    if (extent == Extent::kResident && edges_[child].resident == 0) break;
    walk.at = {child, 1};
    ++walk.blocks;
  }
  return walk;
}

std::size_t BlockTrie::depth(Position at) const {
  return at.edge == kNoEdge ? 0 : std::size_t{edges_[at.edge].start} + at.boundary;
}

Position BlockTrie::ancestor(Position at, std::size_t depth) const {
  while (edges_[at.edge].start >= depth && edges_[at.edge].parent.edge != kNoEdge) at = edges_[at.edge].parent;
  return {at.edge, static_cast<std::uint32_t>(depth - edges_[at.edge].start)};
}

void BlockTrie::gather(Position at, std::vector<BlockId>& blocks, std::vector<DiskBlockId>& disk_blocks) const {
  blocks.resize(depth(at));
  for (Position p = at; p.edge != kNoEdge; p = edges_[p.edge].parent) {
    const Edge& edge = edges_[p.edge];
    std::copy_n(edges_.blocks(edge), p.boundary, blocks.data() + edge.start);
  }
  if (resident_disk_blocks_ == 0) return;

  bool any = false;
  disk_blocks.assign(depth(at), kNoDiskBlock);
  for (Position p = at; p.edge != kNoEdge; p = edges_[p.edge].parent) {
    const Edge& edge = edges_[p.edge];
    if (!edge.run.disk_blocks) continue;
    const std::span<const DiskBlockId> ids(edge.run.disk_blocks.get(), p.boundary);
    any = any || std::ranges::any_of(ids, [](DiskBlockId id) { return id != kNoDiskBlock; });
    std::ranges::copy(ids, disk_blocks.data() + edge.start);
  }
  if (!any) disk_blocks.clear();
}

// ---- Stops ----

const BlockTrie::Stop* BlockTrie::find_stop(Position at) const {
  if (edges_[at.edge].stops == 0) return nullptr;
  const auto found = stops_.find(stop_key(at));
  return found == stops_.end() ? nullptr : &found->second;
}

BlockTrie::Stop& BlockTrie::stop_at(Position at) noexcept {
  const auto [found, created] = stops_.try_emplace(stop_key(at));
  if (created) ++edges_[at.edge].stops;
  return found->second;
}

void BlockTrie::settle_stop(Position at) noexcept {
  Edge& edge = edges_[at.edge];
  const auto found = stops_.find(stop_key(at));
  if (found == stops_.end()) return;
  const Stop& stop = found->second;
  if (stop.uses > 0 || stop.handles > 0 || stop.children > 0 || stop.anchors > 0) return;
  // A stamp alone is worth keeping where it is newer than what lies deeper.
  if (at.boundary < edge.resident && stop.stamp > edge.end_stamp) return;
  stops_.erase(found);
  --edge.stops;
}

std::uint32_t BlockTrie::anchors_at(Position at) const {
  const Stop* stop = find_stop(at);
  return stop ? stop->anchors : 0;
}

void BlockTrie::stamp(Position at, Stamp now) noexcept {
  (at_end(at) ? edges_[at.edge].end_stamp : stop_at(at).stamp) = now;
}

void BlockTrie::add_use(Position at) noexcept {
  ++(at_end(at) ? edges_[at.edge].end_uses : stop_at(at).uses);
}

void BlockTrie::add_handle(Position at) noexcept {
  ++(at_end(at) ? edges_[at.edge].end_handles : stop_at(at).handles);
}

bool BlockTrie::take_use(Position at) noexcept {
  if (at_end(at)) {
    if (edges_[at.edge].end_uses == 0) return false;
    --edges_[at.edge].end_uses;
    queue_if_evictable(at.edge);
    return true;
  }
  const Stop* stop = find_stop(at);
  if (!stop || stop->uses == 0) return false;
  --stop_at(at).uses;
  settle_stop(at);
  return true;
}

void BlockTrie::take_use_above(Position at) noexcept {
  while (at.edge != kNoEdge && !take_use(at)) {
    const Edge& edge = edges_[at.edge];
    if (at.boundary > 1 && edge.stops > 0) {
      --at.boundary;
    } else {
      at = edge.parent;
    }
  }
}

void BlockTrie::take_handle(Position at) noexcept {
  if (at_end(at)) {
    CAIRN_CHECK(edges_[at.edge].end_handles > 0);
    --edges_[at.edge].end_handles;
    queue_if_evictable(at.edge);
    return;
  }
  Stop& stop = stop_at(at);
  CAIRN_CHECK(stop.handles > 0);
  --stop.handles;
  settle_stop(at);
}

void BlockTrie::add_anchor(Position at) noexcept {
  ++stop_at(at).anchors;
}

void BlockTrie::drop_anchor(Position at) noexcept {
  Stop& stop = stop_at(at);
  CAIRN_CHECK(stop.anchors > 0);
  --stop.anchors;
  settle_stop(at);
  drop_unused(at);
}

void BlockTrie::add_child(Position at) noexcept {
  ++(at_end(at) ? edges_[at.edge].end_children : stop_at(at).children);
}

void BlockTrie::drop_child(Position at, Stamp child_stamp) noexcept {
  if (at_end(at)) {
    Edge& edge = edges_[at.edge];
    --edge.end_children;
    edge.end_stamp = std::max(edge.end_stamp, child_stamp);
    queue_if_evictable(at.edge);
    return;
  }
  Stop& stop = stop_at(at);
  --stop.children;
  stop.stamp = std::max(stop.stamp, child_stamp);
  settle_stop(at);
}

// ---- Adding ----

Position BlockTrie::extend(const Extend& what, InsertAcquired& acquired) {
  const std::size_t num_blocks = what.tokens.size() / block_size();
  const auto is_real = [](DiskBlockId id) { return id != kNoDiskBlock; };
  const auto num_disk_blocks = std::ranges::count_if(what.ids.disk_blocks, is_real);
  const Position top = what.from.edge == kNoEdge ? ensure_root(what.adapter_id) : what.from;
  try {
    const Walk cached = walk_from(top, what.tokens, Extent::kResident);
    // The end of the edge that grows, the end of an edge that is cached again, and where this chain ends.
    constexpr std::size_t kNewStops = 3;
    make_room(stops_, kNewStops + 1);  // and the anchor of a new edge
    acquired.blocks.reserve(num_blocks - cached.blocks);
    if (num_disk_blocks > 0) {
      acquired.disk_block_ids.reserve(static_cast<std::size_t>(num_disk_blocks));
      const Walk kept = walk_from(cached.at, what.tokens.subspan(cached.blocks * block_size()), Extent::kKept);
      prepare_disk_blocks(kept.at, depth(top));
    }
    const Position end =
        keep_tokens_from(cached.at, what.tokens.subspan(cached.blocks * block_size()), num_disk_blocks > 0);

    make_resident(cached.at, end, depth(top), what.ids);
    acquired.blocks.assign(what.ids.blocks.begin() + static_cast<std::ptrdiff_t>(cached.blocks),
                           what.ids.blocks.begin() + static_cast<std::ptrdiff_t>(num_blocks));
    if (num_disk_blocks > 0) take_disk_blocks(end, depth(top), what.ids, acquired);
    stamp(end, what.now);
    return end;
  } catch (...) {
    drop_unused(top);
    throw;
  }
}

Position BlockTrie::keep_tokens(AdapterId adapter_id, std::span<const TokenId> tokens) {
  const Position root = ensure_root(adapter_id);
  try {
    return keep_tokens_from(root, tokens, false);
  } catch (...) {
    drop_unused(root);
    throw;
  }
}

Position BlockTrie::ensure_root(AdapterId adapter_id) {
  if (const auto root = roots_.find(adapter_id); root != roots_.end()) return {root->second, 0};
  make_room(roots_, 1);
  edges_.prepare_create();
  const EdgeId id = edges_.create();
  edges_[id].adapter_id = adapter_id;
  roots_.emplace(adapter_id, id);
  return {id, 0};
}

Position BlockTrie::keep_tokens_from(Position at, std::span<const TokenId> tokens, bool with_disk_blocks) {
  const Walk kept = walk_from(at, tokens, Extent::kKept);
  const std::size_t num_blocks = tokens.size() / block_size();
  if (kept.blocks == num_blocks) return kept.at;
  if (num_blocks > std::numeric_limits<std::uint32_t>::max() - depth(at)) {
    throw std::length_error("cairn: a sequence of more than 2^32 - 1 blocks");
  }
  const auto rest = tokens.subspan(kept.blocks * block_size(), (num_blocks - kept.blocks) * block_size());
  const Edge& edge = edges_[kept.at.edge];
  const bool is_root = edge.parent.edge == kNoEdge;
  if (is_root || kept.at.boundary < edge.length) return append_edge(kept.at, rest, with_disk_blocks);
  lengthen_edge(kept.at.edge, rest, with_disk_blocks);
  return {kept.at.edge, edge.length};
}

Position BlockTrie::append_edge(Position at, std::span<const TokenId> tokens, bool with_disk_blocks) {
  const std::size_t num_blocks = tokens.size() / block_size();
  Run run = edges_.make_run(num_blocks, with_disk_blocks);
  edges_.prepare_create();
  queue_.reserve(edges_.live_count() + 1);
  make_room(children_, 1);
  make_room(stops_, 1);

  const EdgeId id = edges_.create();
  Edge& edge = edges_[id];
  edge.parent = at;
  edge.adapter_id = edges_[at.edge].adapter_id;
  edge.start = static_cast<std::uint32_t>(depth(at));
  edge.first_hash = child_key(at, tokens.data()).hash;
  edge.run = std::move(run);
  edge.length = static_cast<std::uint32_t>(num_blocks);
  std::ranges::copy(tokens, edges_.tokens(edge));
  children_.insert(id);
  add_anchor(at);
  return {id, edge.length};
}

void BlockTrie::lengthen_edge(EdgeId id, std::span<const TokenId> tokens, bool with_disk_blocks) {
  Edge& edge = edges_[id];
  const std::size_t length = edge.length + tokens.size() / block_size();
  const bool disk_blocks = with_disk_blocks || edge.run.disk_blocks;
  if (length > edge.run.capacity) {
    const std::size_t slack = edge.length / 4;  // amortises a sequence that grows block by block
    edges_.adopt_run(edge, edges_.make_run(std::max<std::size_t>(length, edge.length + slack), disk_blocks));
  } else if (disk_blocks) {
    edges_.add_disk_blocks(edge);
  }
  std::ranges::copy(tokens, edges_.tokens(edge, edge.length));
  edge.length = static_cast<std::uint32_t>(length);
}

// From `from`, the end of what is cached, to `to`, below it: upwards, because each edge knows its parent.
void BlockTrie::make_resident(Position from, Position to, std::size_t ids_depth, BlockIds ids) noexcept {
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
    }
    if (at.edge == from.edge) return;
    at = edge.parent;
    add_child(at);
  }
}

void BlockTrie::raise_resident(EdgeId id, std::uint32_t resident) noexcept {
  Edge& edge = edges_[id];
  if (edge.end_uses > 0 || edge.end_handles > 0 || edge.end_children > 0) {
    Stop& stop = stop_at({id, edge.resident});
    stop.uses = std::exchange(edge.end_uses, 0);
    stop.handles = std::exchange(edge.end_handles, 0);
    stop.children = std::exchange(edge.end_children, 0);
  }
  if (edge.resident == 0) ++resident_edges_;
  resident_blocks_ += resident - edge.resident;
  edge.resident = resident;
  take_over_end(id);
}

// The facts at the resident end, after it moved, from the table into the edge.
void BlockTrie::take_over_end(EdgeId id) noexcept {
  Edge& edge = edges_[id];
  const Position end{id, edge.resident};
  if (!find_stop(end)) return;
  Stop& stop = stop_at(end);
  edge.end_uses += std::exchange(stop.uses, 0);
  edge.end_handles += std::exchange(stop.handles, 0);
  edge.end_children += std::exchange(stop.children, 0);
  edge.end_stamp = std::max(edge.end_stamp, std::exchange(stop.stamp, 0));
  settle_stop(end);
}

void BlockTrie::prepare_disk_blocks(Position at, std::size_t above_depth) {
  for (; at.edge != kNoEdge && depth(at) > above_depth; at = edges_[at.edge].parent) {
    edges_.add_disk_blocks(edges_[at.edge]);
  }
}

void BlockTrie::take_disk_blocks(Position at, std::size_t ids_depth, BlockIds ids, InsertAcquired& acquired) noexcept {
  for (; at.edge != kNoEdge && depth(at) > ids_depth; at = edges_[at.edge].parent) {
    const Edge& edge = edges_[at.edge];
    for (std::uint32_t block = at.boundary; block-- > 0 && edge.start + block >= ids_depth;) {
      const DiskBlockId offered = ids.disk_blocks[edge.start + block - ids_depth];
      DiskBlockId& held = edge.run.disk_blocks[block];
      if (held != kNoDiskBlock || offered == kNoDiskBlock) continue;
      held = offered;
      acquired.disk_block_ids.push_back(offered);
      ++resident_disk_blocks_;
    }
  }
  std::ranges::reverse(acquired.disk_block_ids);
}

// ---- Removing ----

bool BlockTrie::evictable(const Edge& edge) const {
  return edge.resident > 0 && edge.end_uses == 0 && edge.end_handles == 0 && edge.end_children == 0;
}

void BlockTrie::queue_if_evictable(EdgeId id) noexcept {
  Edge& edge = edges_[id];
  if (edge.queued || !evictable(edge)) return;
  edge.queued = true;
  queue_.push({edge.end_stamp, id});
}

EvictedBlocks BlockTrie::evict(std::size_t num_blocks) {
  EvictedBlocks out;
  out.physical.reserve(std::min(num_blocks, resident_blocks_));
  out.disk_block_ids.reserve(std::min(num_blocks, resident_disk_blocks_));
  while (out.size() < num_blocks && !queue_.empty()) {
    const auto [stamp, id] = queue_.oldest();
    Edge& edge = edges_[id];
    queue_.pop();
    edge.queued = false;
    if (evictable(edge) && edge.end_stamp == stamp) {
      evict_from(id, num_blocks - out.size(), out);
    }
    queue_if_evictable(id);
    if (edge.resident < edge.length) drop_unused({id, edge.length});
  }
  return out;
}

// Takes blocks off the end as long as they are the least recently used ones, which are those with the same stamp.
void BlockTrie::evict_from(EdgeId id, std::size_t num_blocks, EvictedBlocks& out) noexcept {
  Edge& edge = edges_[id];
  const Stamp stamp = edge.end_stamp;
  while (num_blocks > 0 && evictable(edge) && edge.end_stamp == stamp) {
    const std::size_t step = edge.stops == 0 ? std::min<std::size_t>(num_blocks, edge.resident) : 1;
    give_back(edge, static_cast<std::uint32_t>(step), out);
    take_over_end(id);
    num_blocks -= step;
  }
  if (edge.resident > 0) return;
  --resident_edges_;
  drop_child(edge.parent, stamp);
}

// The last cached blocks of an edge, deepest first.
void BlockTrie::give_back(Edge& edge, std::uint32_t num_blocks, EvictedBlocks& out) noexcept {
  for (std::uint32_t i = 0; i < num_blocks; ++i) {
    --edge.resident;
    out.physical.push_back(edges_.blocks(edge)[edge.resident]);
    if (!edge.run.disk_blocks || edge.run.disk_blocks[edge.resident] == kNoDiskBlock) continue;
    out.disk_block_ids.push_back(edge.run.disk_blocks[edge.resident]);
    --resident_disk_blocks_;
  }
  resident_blocks_ -= num_blocks;
}

void BlockTrie::drop_unused(Position at) noexcept {
  for (EdgeId id = at.edge; id != kNoEdge;) {
    Edge& edge = edges_[id];
    const Position parent = edge.parent;
    if (parent.edge == kNoEdge) {
      if (edge.stops > 0) return;
      roots_.erase(edge.adapter_id);
      edges_.free(id);
      return;
    }
    if (edge.stops == 0) edge.length = edge.resident;
    while (edge.length > edge.resident && anchors_at({id, edge.length}) == 0) --edge.length;
    edges_.trim_run(edge);
    if (edge.length > 0) return;
    remove_edge(id);
    --stop_at(parent).anchors;
    settle_stop(parent);
    id = parent.edge;
  }
}

void BlockTrie::remove_edge(EdgeId id) noexcept {
  children_.erase(id);
  edges_.free(id);
}

void BlockTrie::reserve_cleared(std::optional<AdapterId> adapter_id, EvictedBlocks& out) const {
  std::size_t blocks = 0;
  std::size_t disk_blocks = 0;
  for (EdgeId id = 0; id < edges_.id_limit(); ++id) {
    const Edge& edge = edges_[id];
    if (!edge.live || (adapter_id && edge.adapter_id != *adapter_id)) continue;
    blocks += edge.resident;
    if (edge.run.disk_blocks) disk_blocks += edge.resident;
  }
  out.physical.reserve(blocks);
  out.disk_block_ids.reserve(std::min(disk_blocks, resident_disk_blocks_));
}

void BlockTrie::clear(std::optional<AdapterId> adapter_id, EvictedBlocks& out) noexcept {
  const auto goes = [&](EdgeId id) { return !adapter_id || edges_[id].adapter_id == *adapter_id; };
  boost::unordered::erase_if(stops_, [&](const auto& stop) { return goes(static_cast<EdgeId>(stop.first >> 32)); });
  queue_.remove_if([&](const EvictionQueue::Entry& entry) { return goes(entry.edge); });
  for (EdgeId id = 0; id < edges_.id_limit(); ++id) {
    Edge& edge = edges_[id];
    if (!edge.live || !goes(id)) continue;
    if (edge.resident > 0) --resident_edges_;
    give_back(edge, edge.resident, out);
    if (edge.parent.edge == kNoEdge) roots_.erase(edge.adapter_id);
    remove_edge(id);
  }
}

}  // namespace cairn
