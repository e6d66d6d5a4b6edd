// By what a policy knows a block again that is not cached any more.
#ifndef CAIRN_POLICY_BLOCK_FINGERPRINT_H_
#define CAIRN_POLICY_BLOCK_FINGERPRINT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "index/edge_store.h"

namespace cairn {

// Of a block's tokens, its depth and its adapter; not of the tokens before it. Two blocks may have the same one: a
// policy then errs about one of them, and nothing else depends on it.
class BlockFingerprints {
 public:
  BlockFingerprints(std::size_t block_size, std::uint64_t seed) : seed_(seed), tokens_(block_size) {}

  [[nodiscard]] std::uint64_t of(AdapterId adapter_id, std::size_t depth, std::span<const TokenId> tokens) const {
    return hash_tokens(tokens, seed_ ^ IdHash()(adapter_id) ^ depth);
  }
  // Of the block that ends at `at`, whose tokens are kept. By writers.
  [[nodiscard]] std::uint64_t of(const EdgeStore& edges, Position at) {
    const Edge& edge = edges[at.edge];
    edge.tokens.get().read((at.boundary - 1) * tokens_.size(), tokens_);
    return of(edge.adapter_id, std::size_t{edge.start} + at.boundary, tokens_);
  }

 private:
  const std::uint64_t seed_;
  std::vector<TokenId> tokens_;  // of one block
};

}  // namespace cairn

#endif  // CAIRN_POLICY_BLOCK_FINGERPRINT_H_
