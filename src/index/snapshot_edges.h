// The edges on which snapshots hang, or that lead to some: where to look for those below a place.
//
// Only kept for policies that want to know what a snapshot saves, which changes when one above it comes or goes.
// Writers alone look at it and change it. A node is there for as long as somebody holds its edge, or one below it.
#ifndef CAIRN_INDEX_SNAPSHOT_EDGES_H_
#define CAIRN_INDEX_SNAPSHOT_EDGES_H_

#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/containers.h"
#include "index/edge_store.h"

namespace cairn {

class SnapshotEdges {
 public:
  // A snapshot's place among those of its edge. It lies in the snapshot, which does not move.
  struct Node : boost::intrusive::set_base_hook<boost::intrusive::optimize_size<true>> {
    std::size_t tokens = 0;
    std::uint32_t boundary = 0;
    std::uint32_t index = 0;
  };

  explicit SnapshotEdges(const EdgeStore& edges) : edges_(edges) {}
  SnapshotEdges(const SnapshotEdges&) = delete;
  SnapshotEdges& operator=(const SnapshotEdges&) = delete;
  ~SnapshotEdges() {
    for (auto& [id, edge] : nodes_) {
      edge->snapshots.clear();
      edge->children.clear();  // a hook has to be out when it goes
    }
  }

  // One more hold on the edge. Allocates.
  void hold(EdgeId id) { ++make_path(id)->holds; }
  void release(EdgeId id) noexcept {
    const auto found = nodes_.find(id);
    CAIRN_CHECK(found != nodes_.end());
    --found->second->holds;
    drop_unused(found->second.get());
  }

  void insert(EdgeId id, Node& node) noexcept { nodes_.find(id)->second->snapshots.insert(node); }
  void erase(EdgeId id, Node& node) noexcept {
    Snapshots& snapshots = nodes_.find(id)->second->snapshots;
    snapshots.erase(Snapshots::s_iterator_to(node));
  }

  // Visits the snapshots whose path passes `at`, of more than `tokens` tokens. None are visited below one for which
  // `visit` answers true. O(edges and snapshots visited).
  template <class Visit>
  void for_each_below(Position at, std::size_t tokens, Visit visit) {
    const auto found = nodes_.find(at.edge);
    if (found == nodes_.end()) return;
    Edge* const top = found->second.get();
    Edge* edge = top;
    scan(*edge, tokens, visit);
    Edge* next = first_child(*edge, at.boundary);
    while (next != nullptr || edge != top) {
      if (next != nullptr) {
        edge = next;
        scan(*edge, tokens, visit);
        next = first_child(*edge, 0);
      } else {
        Edge* const parent = edge->parent;
        next = child_or_none(*parent, std::next(Children::s_iterator_to(*edge)));
        edge = parent;
      }
    }
  }

 private:
  struct ByTokens {
    using type = std::size_t;
    type operator()(const Node& node) const { return node.tokens; }
  };
  using Snapshots = boost::intrusive::multiset<Node, boost::intrusive::key_of_value<ByTokens>,
                                               boost::intrusive::constant_time_size<false>>;
  struct Edge;
  struct ByBoundary {
    using type = std::uint32_t;
    type operator()(const Edge& edge) const { return edge.hangs_at; }
  };
  using Children = boost::intrusive::multiset<Edge, boost::intrusive::key_of_value<ByBoundary>,
                                              boost::intrusive::constant_time_size<false>>;
  struct Edge : boost::intrusive::set_base_hook<> {
    EdgeId id = kNoEdge;
    Edge* parent = nullptr;  // null for the top alone
    std::uint32_t hangs_at = 0;
    std::uint32_t end = 0;  // while it is visited: children from this boundary on are left out
    std::size_t holds = 0;
    Snapshots snapshots;
    Children children;
  };

  template <class Visit>
  static void scan(Edge& edge, std::size_t tokens, Visit& visit) {
    edge.end = std::numeric_limits<std::uint32_t>::max();
    std::optional<std::size_t> last;
    for (auto node = edge.snapshots.upper_bound(tokens); node != edge.snapshots.end(); ++node) {
      if (last && node->tokens > *last) return;
      if (!visit(node->index) || last) continue;
      last = node->tokens;
      edge.end = node->boundary;
    }
  }
  static Edge* child_or_none(Edge& edge, const Children::iterator& child) {
    return child != edge.children.end() && child->hangs_at < edge.end ? &*child : nullptr;
  }
  static Edge* first_child(Edge& edge, std::uint32_t from) {
    return child_or_none(edge, edge.children.lower_bound(from));
  }

  // The edge's node; it and those above it are made as far as they are missing.
  Edge* make_path(EdgeId id) {
    if (const auto found = nodes_.find(id); found != nodes_.end()) return found->second.get();
    std::vector<std::unique_ptr<Edge>> missing;
    Edge* above = nullptr;
    for (EdgeId at = id; above == nullptr; at = edges_[at].parent().edge) {
      if (const auto found = nodes_.find(at); found != nodes_.end()) {
        above = found->second.get();
        break;
      }
      missing.push_back(std::make_unique<Edge>());
      missing.back()->id = at;
      if (at == kTop) break;
      missing.back()->hangs_at = edges_[at].parent().boundary;
    }
    make_room(nodes_, missing.size());
    for (; !missing.empty(); missing.pop_back()) {
      std::unique_ptr<Edge>& edge = missing.back();
      edge->parent = above;
      if (above != nullptr) above->children.insert(*edge);
      above = edge.get();
      nodes_.emplace(above->id, std::move(edge));
    }
    return above;
  }

  void drop_unused(Edge* edge) noexcept {
    while (edge->holds == 0 && edge->children.empty()) {
      Edge* const parent = edge->parent;
      if (parent != nullptr) parent->children.erase(Children::s_iterator_to(*edge));
      nodes_.erase(edge->id);
      if (parent == nullptr) return;
      edge = parent;
    }
  }

  const EdgeStore& edges_;
  IdMap<std::unique_ptr<Edge>> nodes_;  // by EdgeId
};

}  // namespace cairn

#endif  // CAIRN_INDEX_SNAPSHOT_EDGES_H_
