// Which prefixes are pinned, and how many blocks that keeps: one that several pins share counts once.
//
// A pin is a use at the end of its prefix, beside those of handles; this is the list of them. Writers alone.
#ifndef CAIRN_INDEX_PINNED_PREFIXES_H_
#define CAIRN_INDEX_PINNED_PREFIXES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/containers.h"
#include "index/edge_store.h"

namespace cairn {

class PinnedPrefixes {
 public:
  [[nodiscard]] std::size_t blocks() const { return blocks_; }
  // Blocks that a pin on what ends at `at` would keep and no other one does. O(edges above).
  [[nodiscard]] std::size_t would_add(Position at, const EdgeStore& edges) const {
    std::size_t blocks = 0;
    for (; at.edge != kTop && kept_of(at.edge) < at.boundary; at = edges[at.edge].parent()) {
      blocks += at.boundary - kept_of(at.edge);
    }
    return blocks;
  }

  // Throws std::bad_alloc.
  void prepare_add(Position at, const EdgeStore& edges) {
    std::size_t crossed = 0;
    for (; at.edge != kTop; at = edges[at.edge].parent()) ++crossed;
    make_room(pins_, 1);
    make_room(kept_, crossed);
  }
  // Returns its id.
  std::uint64_t add(Position at, AdapterId adapter_id, const EdgeStore& edges) noexcept {
    pins_[++last_id_] = {at, adapter_id};
    keep(at, edges);
    return last_id_;
  }
  // Where it was; none if there is no such pin. O(pins * edges above).
  std::optional<Position> remove(std::uint64_t id, const EdgeStore& edges) noexcept {
    const auto pin = pins_.find(id);
    if (pin == pins_.end()) return std::nullopt;
    const Position at = pin->second.at;
    pins_.erase(pin);
    recount(edges);
    return at;
  }
  // Those of one adapter, or all.
  void forget(std::optional<AdapterId> adapter_id, const EdgeStore& edges) noexcept {
    if (pins_.empty()) return;
    boost::unordered::erase_if(pins_,
                               [&](const auto& pin) { return !adapter_id || pin.second.adapter_id == *adapter_id; });
    recount(edges);
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [id, pin] : pins_) visit(pin.at);
  }

  // Empty, or what is wrong.
  [[nodiscard]] std::string validate(const EdgeStore& edges, std::size_t blocks_max) const {
    if (blocks_ > blocks_max) return "pins: more blocks than allowed";
    IdMap<std::uint32_t> kept;
    for (const auto& [id, pin] : pins_) {
      for (Position at = pin.at; at.edge != kTop; at = edges[at.edge].parent()) {
        if (!edges[at.edge].live || edges[at.edge].resident < at.boundary) return "pins: a pinned block is not cached";
        kept[at.edge] = std::max(kept[at.edge], at.boundary);
      }
    }
    std::size_t blocks = 0;
    for (const auto& [edge, count] : kept) blocks += count;
    return blocks == blocks_ ? std::string() : "pins: wrong count of blocks";
  }

 private:
  struct Pin {
    Position at;
    AdapterId adapter_id = 0;
  };

  [[nodiscard]] std::uint32_t kept_of(EdgeId edge) const {
    const auto kept = kept_.find(edge);
    return kept == kept_.end() ? 0 : kept->second;
  }
  void keep(Position at, const EdgeStore& edges) noexcept {
    blocks_ += would_add(at, edges);
    for (; at.edge != kTop && kept_of(at.edge) < at.boundary; at = edges[at.edge].parent())
      kept_[at.edge] = at.boundary;
  }
  // No more edges than before: there is room.
  void recount(const EdgeStore& edges) noexcept {
    kept_.clear();
    blocks_ = 0;
    for (const auto& [id, pin] : pins_) keep(pin.at, edges);
  }

  IdMap<Pin> pins_;            // by id
  IdMap<std::uint32_t> kept_;  // by edge: its first blocks that pins keep
  std::size_t blocks_ = 0;     // the sum of kept_
  std::uint64_t last_id_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_PINNED_PREFIXES_H_
