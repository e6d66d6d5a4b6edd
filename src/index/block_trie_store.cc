// Blocks in a store: which places have records there, and what is said of a block that goes there.
//
// Edge::recorded keeps an edge's tokens up to its last block with a record. What lies above it is kept with it: the
// edge's own tokens, and those of the edges above because this one hangs there.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/spin.h"
#include "index/block_trie.h"

namespace cairn {

// ---- Looking ----

bool BlockTrie::is_kept_after(Position at, AdapterId adapter_id, std::span<const TokenId> rest) const {
  return rest.size() >= block_size() && walk_from(at, adapter_id, rest.first(block_size()), Extent::kKept).blocks > 0;
}

std::vector<TierKey> BlockTrie::recorded_after(Position at, AdapterId adapter_id,
                                               std::span<const TokenId> rest) const {
  const Walk kept = walk_from(at, adapter_id, rest, Extent::kKept);
  std::vector<TierKey> keys(kept.blocks);
  Position p = kept.at;
  for (std::size_t i = keys.size(); i-- > 0; p = before(p)) keys[i] = keys_.recorded_at(p);
  keys.erase(std::ranges::find(keys, TierKey{0}), keys.end());
  return keys;
}

Position BlockTrie::before(Position at) const {
  return at.boundary > 1 ? Position{at.edge, at.boundary - 1} : edges_[at.edge].parent();
}

// Where the last block of an edge ends that has a record, or on which a snapshot or an edge hangs.
std::uint32_t BlockTrie::deepest_kept(const Edge& edge) {
  if (!edge.stops) return edge.recorded;
  for (auto stop = edge.stops->rbegin(); stop != edge.stops->rend() && stop->first > edge.recorded; ++stop) {
    if (stop->second.anchors > 0) return stop->first;
  }
  return edge.recorded;
}

// ---- Evicting ----

std::size_t BlockTrie::depth_of(std::size_t tokens) const {
  return tokens / block_size() + (tokens % block_size() > 0 ? 1 : 0);
}

void BlockTrie::prepare_spills(std::size_t num_blocks, BlockSpills& out) {
  const std::size_t most = std::min<std::size_t>(num_blocks, resident_blocks_);
  keys_.reserve(2 * most);  // each block's and that of the one before it
  out.blocks.reserve(most);
  out.tokens.reserve(most * block_size());
}

// Of `count` blocks that were the last cached ones of an edge until a moment ago, and whose tokens are there yet.
void BlockTrie::spill_from(EdgeId id, std::size_t count, std::size_t min_depth, BlockSpills& out) noexcept {
  const Edge& edge = edges_[id];
  std::uint32_t kept = deepest_kept(edge);
  for (auto boundary = static_cast<std::uint32_t>(edge.resident + count); boundary > edge.resident; --boundary) {
    const Position at{id, boundary};
    if (keys_.recorded_at(at) != 0) {
      tell(at, BlockSpill::Action::kStored, out);
    } else if (kept >= boundary || depth(at) >= min_depth) {
      tell(at, BlockSpill::Action::kSpill, out);
      kept = std::max(kept, boundary);
    } else {
      tell(at, BlockSpill::Action::kDrop, out);
    }
  }
}

// Adds the block that ends at `at` to what is said, and names it and records it as that implies.
void BlockTrie::tell(Position at, BlockSpill::Action action, BlockSpills& out) noexcept {
  const Edge& edge = edges_[at.edge];
  BlockSpill spill;
  spill.action = action;
  spill.block = edges_.blocks(edge)[at.boundary - 1];
  spill.adapter_id = edge.adapter_id;
  spill.first_token = (depth(at) - 1) * block_size();
  if (action != BlockSpill::Action::kDrop) {
    const Position parent = before(at);
    spill.parent = parent.edge == kTop ? 0 : keys_.name(parent);
    spill.key = keys_.name(at);
  }
  if (action == BlockSpill::Action::kSpill) record(at, spill.key);
  out.blocks.push_back(spill);
  out.tokens.resize(out.tokens.size() + block_size());
  edge.tokens.get().read((at.boundary - 1) * block_size(), std::span(out.tokens).last(block_size()));
}

void BlockTrie::record(Position at, TierKey key) noexcept {
  keys_.set_recorded(key, true);
  Edge& edge = edges_[at.edge];
  last_record_ = edge.recorded < at.boundary ? key : 0;
  recorded_before_ = edge.recorded;
  edge.recorded = std::max(edge.recorded, at.boundary);
}

// ---- Saving ----

void BlockTrie::save_chain(Position end, std::size_t from_depth, std::size_t num_blocks, std::size_t min_tokens,
                           BlockSpills& out) {
  if (end.edge == kTop) return;
  if (depth(end) < depth_of(min_tokens) && !is_anything_below(end)) return;
  std::vector<Position> ends;  // of the parts of the chain, the deepest first
  for (Position at = end; at.edge != kTop && depth(at) > from_depth; at = edges_[at.edge].parent()) ends.push_back(at);
  std::ranges::reverse(ends);
  save(ends, from_depth, num_blocks, out);
}

// Blocks or snapshots that are kept. Readers may be leaving their stops there.
bool BlockTrie::is_anything_below(Position at) const {
  Edge& edge = edges_[at.edge];
  if (at.boundary < edge.length) return true;
  const SpinLockGuard lock(edge.stops_lock);
  return anchors_at(edge, at.boundary) > 0 || deepest_kept(edge) >= at.boundary;
}

void BlockTrie::save_all(std::size_t num_blocks, std::size_t min_tokens, BlockSpills& out) {
  std::vector<std::uint32_t> worth = worth_keeping(depth_of(min_tokens));
  std::vector<Position> ends;
  for (EdgeId id = kTop + 1; id < edges_.id_limit(); ++id) {
    const std::uint32_t boundary = std::min<std::uint32_t>(worth[id], edges_[id].resident);
    if (edges_[id].live && boundary > 0) ends.push_back({id, boundary});
  }
  std::ranges::sort(ends, {}, [&](Position at) { return std::pair(edges_[at.edge].start, at.edge); });
  save(ends, 0, num_blocks, out);
}

// For each edge, where the last block ends that ends as deep as `min_depth` or has something below it that does, or
// that has a record, or a snapshot.
std::vector<std::uint32_t> BlockTrie::worth_keeping(std::size_t min_depth) const {
  IdMap<std::uint32_t> hanging;  // edges, by Position::key: what else is anchored there is a snapshot
  for (EdgeId id = kTop + 1; id < edges_.id_limit(); ++id) {
    if (edges_[id].live && edges_[edges_[id].parent().edge].snapshots > 0) ++hanging[edges_[id].parent().key()];
  }
  std::vector<std::uint32_t> worth(edges_.id_limit());
  for (EdgeId id = kTop + 1; id < edges_.id_limit(); ++id) {
    Edge& edge = edges_[id];
    if (!edge.live) continue;
    std::uint32_t deepest = edge.recorded;
    if (edge.start + edge.resident >= min_depth) deepest = std::max<std::uint32_t>(deepest, edge.resident);
    if (edge.snapshots > 0) {
      const SpinLockGuard lock(edge.stops_lock);  // readers may be leaving theirs
      for (const auto& [boundary, stop] : *edge.stops) {
        if (stop.anchors > hanging[Position{id, boundary}.key()]) deepest = std::max(deepest, boundary);
      }
    }
    // Up to where it is known already that there is something below.
    for (Position at{id, deepest}; at.edge != kTop && at.boundary > worth[at.edge]; at = edges_[at.edge].parent()) {
      const bool was_known = std::exchange(worth[at.edge], at.boundary) > 0;
      if (was_known) break;
    }
  }
  return worth;
}

// Of the edges named, up to the boundary named, the blocks below `from_depth` without a record; each edge after the
// one it hangs on.
void BlockTrie::save(std::span<const Position> ends, std::size_t from_depth, std::size_t num_blocks,
                     BlockSpills& out) {
  std::vector<Position> saved;
  for (const Position end : ends) {
    const std::size_t start = edges_[end.edge].start;
    const auto above = static_cast<std::uint32_t>(from_depth - std::min(from_depth, start));
    for (Position at{end.edge, above + 1}; at.boundary <= end.boundary && saved.size() < num_blocks; ++at.boundary) {
      if (keys_.recorded_at(at) == 0) saved.push_back(at);
    }
  }
  keys_.reserve(2 * saved.size());
  out.blocks.reserve(saved.size());
  out.tokens.reserve(saved.size() * block_size());
  for (const Position at : saved) tell(at, BlockSpill::Action::kSpill, out);
}

// ---- Records that were there, and that are gone ----

std::optional<Position> BlockTrie::find_stored_parent(TierKey parent, AdapterId adapter_id) const {
  if (parent == 0) return Position{};
  const auto found = keys_.find_record(parent);
  return found && edges_[found->edge].adapter_id == adapter_id ? found : std::nullopt;
}

bool BlockTrie::register_block(const StoredBlock& block) {
  const auto parent = find_stored_parent(block.parent, block.adapter_id);
  if (!parent) return false;
  keys_.reserve(1);
  const Walk kept = walk_from(*parent, block.adapter_id, block.tokens, Extent::kKept);
  Position at = kept.at;
  const TierKey present = kept.blocks > 0 ? keys_.at(at) : 0;
  if (present != block.key) {
    if (present != 0 || keys_.is_known(block.key)) return false;
    if (kept.blocks == 0) at = keep_block(*parent, block.adapter_id, block.tokens);
    keys_.assign(at, block.key);
  }
  record(at, block.key);
  return true;
}

// Its tokens, which are not there, from now on; what they are kept for is the caller's to say at once.
Position BlockTrie::keep_block(Position parent, AdapterId adapter_id, std::span<const TokenId> tokens) {
  Growth growth = prepare_growth(parent, adapter_id, tokens, false);
  const Gate::Closed closed(gate_);
  try {
    prepare_link(growth);
  } catch (...) {
    settle_stop(edges_[parent.edge], parent.boundary);
    discard(std::move(growth));
    throw;
  }
  return link(std::move(growth));
}

bool BlockTrie::forget_record(TierKey key) noexcept {
  const auto found = keys_.find_record(key);
  if (!found) return false;
  keys_.set_recorded(key, false);
  Edge& edge = edges_[found->edge];
  if (found->boundary < edge.recorded) return true;
  edge.recorded = key == last_record_ ? recorded_before_ : edge.recorded - 1;
  while (edge.recorded > 0 && keys_.recorded_at({found->edge, edge.recorded}) == 0) --edge.recorded;
  if (edge.length == edge.resident) return true;
  const Gate::Closed closed(gate_);
  drop_unused(found->edge);
  return true;
}

}  // namespace cairn
