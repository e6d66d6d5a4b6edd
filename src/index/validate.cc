// Every invariant of the index, checked one by one. For tests: O(everything cached).
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "index/block_trie.h"
#include "index/snapshot_table.h"

namespace cairn {
namespace {

std::string edge_says(EdgeId id, const std::string& what) {
  return "edge " + std::to_string(id) + ": " + what;
}

}  // namespace

std::string BlockTrie::validate(const Gate::Closed&, const AnchorCounts& snapshot_anchors) const {
  std::size_t live = 0, blocks = 0, resident_edges = 0, disk_blocks = 0, queued = 0;
  AnchorCounts children;                    // cached child edges, by Position::key
  AnchorCounts anchors = snapshot_anchors;  // by Position::key
  IdMap<std::uint32_t> hanging;             // by edge
  std::vector<TokenId> first_block(block_size());

  for (EdgeId id = 0; id < edges_.id_limit(); ++id) {
    const Edge& edge = edges_[id];
    if (!edge.live) continue;
    ++live;
    blocks += edge.resident;
    if (edge.resident > 0) ++resident_edges;
    for (std::uint32_t block = 0; edge.run.disk_blocks && block < edge.resident; ++block) {
      if (edge.run.disk_blocks[block] != kNoDiskBlock) ++disk_blocks;
    }
    if (edge.resident > edge.length) return edge_says(id, "more cached blocks than tokens");
    if (edge.length > edge.run.written || edge.length > edge.run.capacity) {
      return edge_says(id, "longer than its memory");
    }
    const Turn turn = edge.turn.load();
    if (turn == Turn::kQueued) ++queued;
    if (evictable(edge) && turn != Turn::kQueued && turn != Turn::kHanded) {
      return edge_says(id, "can be evicted but is not queued");
    }
    if (edge.stops && edge.stops->empty()) return edge_says(id, "has an empty table of stops");
    if (id == kTop) continue;

    const Position at = edge.parent();
    const Edge& parent = edges_[at.edge];
    if (!parent.live) return edge_says(id, "hangs on an edge that is gone");
    if (at.edge != kTop && parent.adapter_id != edge.adapter_id) return edge_says(id, "hangs on another adapter");
    if (at.edge != kTop && at.boundary == 0) return edge_says(id, "hangs at boundary 0");
    if (at.boundary > parent.length) return edge_says(id, "hangs beyond its parent's tokens");
    if (edge.resident > 0 && at.boundary > parent.resident) return edge_says(id, "cached below a gap");
    if (edge.start != depth(at)) return edge_says(id, "wrong depth");
    if (edge.length == 0) return edge_says(id, "without tokens");
    edge.tokens.get().read(0, first_block);
    if (find_child(at, edge.adapter_id, first_block.data()).edge != id) {
      return edge_says(id, "is not found at its parent");
    }
    if (at.boundary < parent.length &&
        parent.tokens.get().matching(at.boundary * block_size(), first_block.data(), block_size()) == block_size()) {
      return edge_says(id, "repeats a block of its parent");
    }
    ++anchors[at.key()];
    ++hanging[at.edge];
    if (edge.resident > 0) ++children[at.key()];
  }
  if (live != edges_.live_count() || children_.size() + 1 != live) return "wrong count of edges";
  if (blocks != resident_blocks_ || resident_edges != resident_edges_ || disk_blocks != resident_disk_blocks_) {
    return "wrong count of cached blocks, edges or disk blocks";
  }
  std::vector<EdgeId> entries = policy_->entries();
  if (queued != entries.size()) return "eviction queue: wrong count of entries";
  std::ranges::sort(entries);
  if (std::ranges::adjacent_find(entries) != entries.end()) return "eviction queue: an edge is queued twice";
  for (const EdgeId id : entries) {
    if (edges_[id].turn.load() != Turn::kQueued) return edge_says(id, "queued without knowing");
  }
  if (std::string wrong = policy_->validate(edges_); !wrong.empty()) return wrong;
  for (EdgeId id = 0; id < edges_.id_limit(); ++id) {
    const Edge& edge = edges_[id];
    if (!edge.live) continue;
    if (edge.hanging != hanging[id]) return edge_says(id, "wrong count of child edges");
    std::string wrong = validate_stops(id, children, anchors);
    if (!wrong.empty()) return wrong;
  }
  for (const auto& [key, expected] : anchors) {
    const Position at = Position::of_key(key);
    if (anchors_at(edges_[at.edge], at.boundary) != expected) return edge_says(at.edge, "lacks an anchor");
  }
  return validate_keys();
}

std::string BlockTrie::validate_keys() const {
  IdMap<std::uint32_t> deepest;  // block with a record, by edge
  std::string wrong;
  const bool sound = keys_.check([&](TierKey key, Position at, bool recorded) {
    const Edge& edge = edges_[at.edge];
    if (at.edge == kTop || !edge.live || at.boundary == 0 || at.boundary > edge.length) {
      wrong = "key " + std::to_string(key) + ": its place is gone";
    } else if (recorded && before(at).edge != kTop && keys_.at(before(at)) == 0) {
      wrong = "key " + std::to_string(key) + ": has a record, but the block before it has no key";
    }
    if (recorded) deepest[at.edge] = std::max(deepest[at.edge], at.boundary);
    return wrong.empty();
  });
  if (!wrong.empty()) return wrong;
  if (!sound) return "keys of blocks: wrong count, or one place with two";
  for (EdgeId id = 0; id < edges_.id_limit(); ++id) {
    if (edges_[id].live && edges_[id].recorded != deepest[id]) return edge_says(id, "wrong end of what has records");
  }
  return {};
}

std::string BlockTrie::validate_stops(EdgeId id, const AnchorCounts& children, const AnchorCounts& anchors) const {
  const Edge& edge = edges_[id];
  const auto count = [id](const AnchorCounts& counts, std::uint32_t boundary) {
    const auto found = counts.find(Position{id, boundary}.key());
    return found == counts.end() ? 0 : found->second;
  };
  if (edge.end_children != count(children, edge.resident)) {
    return edge_says(id, "wrong count of cached children at its end");
  }
  if (edge.length > edge.resident && edge.length > edge.recorded && anchors_at(edge, edge.length) == 0) {
    return edge_says(id, "keeps tokens for nothing");
  }
  if (!edge.stops) return {};
  for (const auto& [boundary, stop] : *edge.stops) {
    if (boundary > edge.length) return edge_says(id, "has a stop beyond its tokens");
    if (stop.anchors != count(anchors, boundary)) return edge_says(id, "wrong count of anchors");
    const bool inside = boundary < edge.resident;
    if (!inside && (stop.uses > 0 || stop.handles > 0 || stop.children > 0 || stop.hits > 0)) {
      return edge_says(id, "has a use, a hit or a cached child where nothing is cached");
    }
    if (inside && stop.children != count(children, boundary)) {
      return edge_says(id, "wrong count of cached children");
    }
    if (stop.uses == 0 && stop.handles == 0 && stop.children == 0 && stop.anchors == 0 && stop.hits == 0 &&
        stop.stamp == 0) {
      return edge_says(id, "has a stop that says nothing");
    }
  }
  return {};
}

std::string SnapshotTable::validate(const Gate::Closed&, BlockTrie::AnchorCounts& anchors) const {
  const auto says = [](Index index, const std::string& what) {
    return "snapshot " + std::to_string(index) + ": " + what;
  };
  std::size_t live = 0, resident = 0, lane_nodes = 0, tails = 0, siblings = 0;
  std::size_t pinned = 0, gone_and_pinned = 0;
  IdMap<std::uint32_t> on_edge;
  for (Index index = 0; index < snapshots_.size(); ++index) {
    const Snapshot& snapshot = snapshots_[index];
    if (snapshot.pins > 0) ++pinned;
    if (!snapshot.live) {
      if (snapshot.pins == 0) continue;
      ++gone_and_pinned;
      const auto slot = by_slot_.find(snapshot.slot);
      if (slot == by_slot_.end() || slot->second != index)
        return says(index, "is gone and pinned, but its slot is free");
      continue;
    }
    ++live;
    ++anchors[snapshot.at.key()];
    ++on_edge[snapshot.at.edge];
    if (!trie_.edges()[snapshot.at.edge].live) return says(index, "hangs on an edge that is gone");
    if (snapshot.residual.size() >= block_size()) return says(index, "has a residual of a block or more");
    if (snapshot.tokens == 0 || snapshot.tokens != boundary_tokens(snapshot.at) + snapshot.residual.size()) {
      return says(index, "wrong depth");
    }
    if (find_place(snapshot.at, snapshot.adapter_id, snapshot.residual) != index)
      return says(index, "is not found at its place");
    if (snapshot.resident) {
      ++resident;
      const auto slot = by_slot_.find(snapshot.slot);
      if (slot == by_slot_.end() || slot->second != index) return says(index, "is not found by its slot");
    } else if (snapshot.pins > 0) {
      return says(index, "is spilled and pinned");
    } else if (find_key(snapshot.key) != index || trie_.keys().is_known(snapshot.key)) {
      return says(index, "is not found by its tier key, or a block has it too");
    }
    if (edges_ && snapshot.above_tokens != deepest_above(snapshot)) {
      return says(index, "is not told of the deepest one above it");
    }
    if (snapshot.kind != SnapshotKind::kTail) lane_nodes += 2;
    if (snapshot.kind == SnapshotKind::kPlain) continue;
    const bool is_tail = snapshot.kind == SnapshotKind::kTail;
    ++(is_tail ? tails : siblings);
    const auto session = sessions_.find(snapshot.session);
    if (session == sessions_.end() || (is_tail ? session->second.tail : session->second.sibling) != index) {
      return says(index, "is not known to its session");
    }
  }
  if (live != size_ || places_.size() != size_) return "wrong count of snapshots";
  if (by_slot_.size() != resident + gone_and_pinned) return "wrong count of slots that are taken";
  if (pinned_ != pinned) return "wrong count of pinned snapshots";
  if (resident_bytes_ != resident * bytes_each_) return "wrong count of the bytes of resident snapshots";
  if (const std::string wrong = policy_->validate(resident); !wrong.empty()) return "policy: " + wrong;
  if (by_key_.size() != live - resident) return "wrong count of spilled snapshots";
  // Each node of a lane is that of a snapshot which belongs there; as many as there should be, so all of them.
  for (const auto& [key, lane] : lanes_) {
    if (lane.empty()) return "a lane without snapshots";
    std::size_t tokens = 0;
    for (const LaneNode& node : lane) {
      const Snapshot& snapshot = snapshots_[node.index];
      const bool any_session = key.any_session != 0;
      if (&node != &snapshot.lane_nodes[any_session ? 1 : 0] || !snapshot.live ||
          snapshot.kind == SnapshotKind::kTail || lane_of(snapshot, any_session) != key) {
        return says(node.index, "is in a lane that is not its own");
      }
      if (node.tokens != snapshot.tokens || node.tokens < tokens)
        return says(node.index, "is out of order in its lane");
      tokens = node.tokens;
      --lane_nodes;
    }
  }
  if (lane_nodes != 0) return "wrong count of snapshots in lanes";
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
