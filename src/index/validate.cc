// Every invariant of the index, checked one by one. For tests: O(everything cached).
#include <algorithm>
#include <set>
#include <string>

#include "index/block_trie.h"
#include "index/snapshot_table.h"

namespace cairn {
namespace {

std::string edge_says(EdgeId id, const std::string& what) {
  return "edge " + std::to_string(id) + ": " + what;
}

}  // namespace

std::string BlockTrie::validate(const AnchorCounts& snapshot_anchors) const {
  std::size_t live = 0, blocks = 0, resident_edges = 0, disk_blocks = 0, roots = 0, queued = 0;
  IdMap<std::uint32_t> children;                    // cached child edges, by stop_key
  IdMap<std::uint32_t> anchors = snapshot_anchors;  // by stop_key
  IdMap<std::uint32_t> stops;                       // by edge
  for (const auto& [key, stop] : stops_) ++stops[key >> 32];

  for (EdgeId id = 0; id < edges_.id_limit(); ++id) {
    const Edge& edge = edges_[id];
    if (!edge.live) continue;
    ++live;
    blocks += edge.resident;
    if (edge.resident > 0) ++resident_edges;
    if (edge.queued) ++queued;
    for (std::uint32_t block = 0; edge.run.disk_blocks && block < edge.resident; ++block) {
      if (edge.run.disk_blocks[block] != kNoDiskBlock) ++disk_blocks;
    }
    if (edge.resident > edge.length) return edge_says(id, "more cached blocks than tokens");
    if (edge.length > edge.run.capacity) return edge_says(id, "longer than its memory");
    if (edge.stops != (stops.contains(id) ? stops[id] : 0)) return edge_says(id, "wrong count of stops");
    if (evictable(edge) && !edge.queued) return edge_says(id, "can be evicted but is not queued");
    if (edge.parent.edge == kNoEdge) {
      ++roots;
      const auto root = roots_.find(edge.adapter_id);
      if (root == roots_.end() || root->second != id) return edge_says(id, "a root that is not found");
      if (edge.length > 0 || edge.stops == 0) return edge_says(id, "a root with blocks or without children");
      continue;
    }
    const Edge& parent = edges_[edge.parent.edge];
    if (!parent.live || parent.adapter_id != edge.adapter_id) return edge_says(id, "hangs on a wrong edge");
    if (edge.parent.boundary > parent.length) return edge_says(id, "hangs beyond its parent's tokens");
    if (edge.resident > 0 && edge.parent.boundary > parent.resident) return edge_says(id, "cached below a gap");
    if (edge.start != depth(edge.parent)) return edge_says(id, "wrong depth");
    if (edge.length == 0) return edge_says(id, "without tokens");
    if (find_child(edge.parent, edges_.tokens(edge)) != id) return edge_says(id, "is not found at its parent");
    if (edge.parent.boundary < parent.length &&
        std::ranges::equal(edges_.block_tokens(parent, edge.parent.boundary), edges_.block_tokens(edge, 0))) {
      return edge_says(id, "repeats a block of its parent");
    }
    ++anchors[stop_key(edge.parent)];
    if (edge.resident > 0) ++children[stop_key(edge.parent)];
  }
  if (live != edges_.live_count()) return "wrong count of edges";
  if (roots != roots_.size() || children_.size() + roots != live) return "wrong count of roots or children";
  if (blocks != resident_blocks_ || resident_edges != resident_edges_ || disk_blocks != resident_disk_blocks_) {
    return "wrong count of cached blocks, edges or disk blocks";
  }
  if (queued != queue_.entries().size()) return "eviction queue: wrong count of entries";
  for (const auto& [stamp, id] : queue_.entries()) {
    if (!edges_[id].queued) return edge_says(id, "queued without knowing");
    if (evictable(edges_[id]) && stamp > edges_[id].end_stamp) return edge_says(id, "queued with too new a stamp");
  }
  return validate_stops(children, anchors);
}

std::string BlockTrie::validate_stops(const AnchorCounts& children, const AnchorCounts& anchors) const {
  const auto count = [](const AnchorCounts& counts, std::uint64_t key) {
    const auto found = counts.find(key);
    return found == counts.end() ? 0 : found->second;
  };
  for (const auto& [key, stop] : stops_) {
    const Position at{static_cast<EdgeId>(key >> 32), static_cast<std::uint32_t>(key)};
    const Edge& edge = edges_[at.edge];
    if (!edge.live) return edge_says(at.edge, "is gone but has a stop");
    if (at.boundary > edge.length) return edge_says(at.edge, "has a stop beyond its tokens");
    if (stop.anchors != count(anchors, key)) return edge_says(at.edge, "wrong count of anchors");
    const bool inside = at.boundary < edge.resident;
    if (!inside && (stop.uses > 0 || stop.handles > 0 || stop.children > 0)) {
      return edge_says(at.edge, "has a use or a cached child where nothing is cached");
    }
    if (inside && stop.children != count(children, key)) return edge_says(at.edge, "wrong count of cached children");
    if (stop.uses == 0 && stop.handles == 0 && stop.children == 0 && stop.anchors == 0 && stop.stamp == 0) {
      return edge_says(at.edge, "has a stop that says nothing");
    }
  }
  for (const auto& [key, expected] : anchors) {
    const Position at{static_cast<EdgeId>(key >> 32), static_cast<std::uint32_t>(key)};
    if (anchors_at(at) != expected) return edge_says(at.edge, "lacks an anchor");
  }
  for (EdgeId id = 0; id < edges_.id_limit(); ++id) {
    const Edge& edge = edges_[id];
    if (!edge.live) continue;
    if (edge.end_children != count(children, stop_key({id, edge.resident}))) {
      return edge_says(id, "wrong count of cached children at its end");
    }
    if (edge.length > edge.resident && anchors_at({id, edge.length}) == 0) {
      return edge_says(id, "keeps tokens for nothing");
    }
  }
  return {};
}

std::string SnapshotTable::validate(BlockTrie::AnchorCounts& anchors) const {
  const auto says = [](Index index, const std::string& what) {
    return "snapshot " + std::to_string(index) + ": " + what;
  };
  std::size_t live = 0, resident = 0, lane_entries = 0, tails = 0, siblings = 0;
  IdMap<std::uint32_t> on_edge;
  for (Index index = 0; index < snapshots_.size(); ++index) {
    const Snapshot& snapshot = snapshots_[index];
    if (!snapshot.live) continue;
    ++live;
    ++anchors[BlockTrie::stop_key(snapshot.at)];
    ++on_edge[snapshot.at.edge];
    if (!trie_.edges()[snapshot.at.edge].live) return says(index, "hangs on an edge that is gone");
    if (snapshot.residual.size() >= block_size()) return says(index, "has a residual of a block or more");
    if (snapshot.tokens == 0 || snapshot.tokens != boundary_tokens(snapshot.at) + snapshot.residual.size()) {
      return says(index, "wrong depth");
    }
    if (find_place(snapshot.at, snapshot.residual) != index) return says(index, "is not found at its place");
    if (snapshot.resident) {
      ++resident;
      if (!lru_.contains({snapshot.stamp, index})) return says(index, "is not in the order of eviction");
      const auto slot = by_slot_.find(snapshot.slot);
      if (slot == by_slot_.end() || slot->second != index) return says(index, "is not found by its slot");
    } else if (find_key(snapshot.key) != index) {
      return says(index, "is not found by its tier key");
    }
    if (snapshot.kind != SnapshotKind::kTail) {
      lane_entries += 2;
      for (const bool any : {false, true}) {
        if (!lanes_.contains({snapshot.at.edge, any, any ? 0 : snapshot.session, snapshot.tokens, index})) {
          return says(index, "is not in its lane");
        }
      }
    }
    if (snapshot.kind == SnapshotKind::kPlain) continue;
    const bool is_tail = snapshot.kind == SnapshotKind::kTail;
    ++(is_tail ? tails : siblings);
    const auto session = sessions_.find(snapshot.session);
    if (session == sessions_.end() || (is_tail ? session->second.tail : session->second.sibling) != index) {
      return says(index, "is not known to its session");
    }
  }
  if (live != size_ || places_.size() != size_) return "wrong count of snapshots";
  if (lru_.size() != resident || by_slot_.size() != resident) return "wrong count of resident snapshots";
  if (by_key_.size() != live - resident) return "wrong count of spilled snapshots";
  if (lanes_.size() != lane_entries) return "wrong count of lane entries";
  for (const auto& [session, of] : sessions_) {
    if (of.tail == kNone && of.sibling == kNone) return "a session without tail and sibling";
    if (of.tail != kNone) --tails;
    if (of.sibling != kNone) --siblings;
  }
  if (tails != 0 || siblings != 0) return "wrong count of tails or siblings";
  for (EdgeId id = 0; id < trie_.edges().id_limit(); ++id) {
    const auto count = on_edge.find(id);
    if (trie_.edges()[id].snapshots != (count == on_edge.end() ? 0 : count->second)) {
      return edge_says(id, "wrong count of snapshots");
    }
  }
  return {};
}

}  // namespace cairn
