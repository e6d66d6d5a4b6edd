// What Lease::explain asks of the index: the tokens of a chain, and what is cached beside it.
#include <algorithm>
#include <utility>

#include "index/index.h"

namespace cairn {

std::vector<TokenId> Index::tokens_of(Position at, AdapterId adapter_id, std::uint64_t epoch) const {
  const MutexLock lock(writer_);
  return epoch == epoch_in_commit(adapter_id) ? path_tokens(at) : std::vector<TokenId>{};
}

std::vector<TokenId> Index::path_tokens(Position at) const {
  std::vector<TokenId> tokens(trie_.depth(at) * block_size());
  for (; at.edge != kTop; at = trie_.edges()[at.edge].parent()) {
    const Edge& edge = trie_.edges()[at.edge];
    edge.tokens.get().read(0, std::span(tokens).subspan(edge.start * block_size(), at.boundary * block_size()));
  }
  return tokens;
}

RadixTree::Neighbours Index::neighbours(Position at, std::size_t depth, const Neighbourhood& what) const {
  constexpr EdgeId kEdgesAtOnce = 4096;
  RadixTree::Neighbours found;
  Position hung_at;
  std::vector<TokenId> block(block_size());
  std::vector<Stamp> stamps;  // of those found
  const auto consider = [&](const Edge& edge, std::uint32_t boundary) {
    const StoredTokens tokens = edge.tokens;
    tokens.read(boundary * block_size(), block);
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(block, what.rest).in1 - block.begin());
    if (common == block_size()) {
      found.same = true;
      return;
    }
    if (!found.nearest.empty() && common < found.nearest.front().common_tokens) return;
    if (!found.nearest.empty() && common > found.nearest.front().common_tokens) {
      found.nearest.clear();
      stamps.clear();
    }
    const Stamp stamp = edge.end_stamp.load(std::memory_order_relaxed);
    auto place = found.nearest.size();
    if (place == RadixTree::Neighbours::kNearestMax) {
      place = static_cast<std::size_t>(std::ranges::min_element(stamps) - stamps.begin());
      if (stamps[place] >= stamp) return;
    } else {
      found.nearest.emplace_back();
      stamps.emplace_back();
    }
    const std::size_t blocks =
        std::min<std::size_t>(edge.resident - boundary, std::max<std::size_t>(1, what.tokens_max / block_size()));
    RadixTree::Neighbours::Neighbour& neighbour = found.nearest[place];
    stamps[place] = stamp;
    neighbour.common_tokens = common;
    neighbour.tokens.resize(blocks * block_size());
    tokens.read(boundary * block_size(), neighbour.tokens);
  };

  // The caller's handle keeps `hung_at` once it is known to be of this epoch; what hangs there may change between two
  // pieces.
  for (EdgeId from = kTop + 1, limit = 0; from == kTop + 1 || from < limit; from += kEdgesAtOnce) {
    const MutexLock lock(writer_);
    if (what.epoch != epoch_in_commit(what.adapter_id)) return {};
    const EdgeStore& edges = trie_.edges();
    if (depth > 0) hung_at = trie_.ancestor(at, depth);
    if (from == kTop + 1 && hung_at.edge != kTop && hung_at.boundary < edges[hung_at.edge].resident) {
      consider(edges[hung_at.edge], hung_at.boundary);
    }
    limit = edges.id_limit();
    for (EdgeId id = from; id < std::min(limit, from + kEdgesAtOnce); ++id) {
      const Edge& edge = edges[id];
      if (!edge.live || edge.resident == 0 || edge.parent() != hung_at || edge.adapter_id != what.adapter_id) continue;
      consider(edge, 0);
    }
  }
  return found;
}

}  // namespace cairn
