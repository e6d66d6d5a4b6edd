// A set of cached blocks that is closed under prefix, as what is cached is: with a block, all before it are in it. So
// of each edge it has the first so many.
#ifndef CAIRN_POLICY_PREFIX_SEGMENT_H_
#define CAIRN_POLICY_PREFIX_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "index/edge_store.h"
#include "policy/end_heap.h"

namespace cairn {

class PrefixSegment {
 public:
  // Throws std::bad_alloc.
  void reserve(EdgeId id_limit) { make_room_by_edge(up_to_, id_limit, std::uint32_t{0}); }
  void free_memory() noexcept { std::vector<std::uint32_t>().swap(up_to_); }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool contains(Position at) const { return at.boundary <= up_to_[at.edge]; }
  // The block that ends at `at`, and all before it. O(edges above that it adds to).
  void add(Position at, const EdgeStore& edges) noexcept {
    for (; at.edge != kTop && up_to_[at.edge] < at.boundary; at = edges[at.edge].parent()) {
      size_ += at.boundary - up_to_[at.edge];
      up_to_[at.edge] = at.boundary;
    }
  }
  // The last cached block of its edge, if it is in the set.
  void remove(Position at) noexcept {
    if (!contains(at)) return;
    --size_;
    --up_to_[at.edge];
  }
  void forget(EdgeId edge) noexcept {
    size_ -= up_to_[edge];
    up_to_[edge] = 0;
  }
  void forget_if(const auto& goes) noexcept {
    for (EdgeId edge = 0; edge < up_to_.size(); ++edge) {
      if (up_to_[edge] > 0 && goes(edge)) forget(edge);
    }
  }

  // Empty, or what is wrong.
  [[nodiscard]] std::string validate(const EdgeStore& edges) const {
    std::size_t size = 0;
    for (EdgeId edge = 0; edge < up_to_.size() && edge < edges.id_limit(); ++edge) {
      size += up_to_[edge];
      if (up_to_[edge] == 0) continue;
      const std::string name = "edge " + std::to_string(edge) + ": ";
      if (!edges[edge].live || up_to_[edge] > edges[edge].resident)
        return name + "a policy has more of it than cached";
      const Position parent = edges[edge].parent();
      if (parent.edge != kTop && !contains(parent)) return name + "a policy has it, but not what lies above";
    }
    return size == size_ ? std::string() : "a policy's segment: wrong count";
  }

 private:
  std::vector<std::uint32_t> up_to_;  // by edge: its first blocks that are in the set
  std::size_t size_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_POLICY_PREFIX_SEGMENT_H_
