// A stand-in for a model: it says which bytes every KV block and every recurrent state must hold.
//
// It computes them from what a request asks for alone (adapter, its generation, salt, tokens, media, positions), never
// from anything that a cache has said. So an engine that is handed the wrong block, or a state that is one token off,
// sees it in the bytes.
//
//     d[0]     = digest of adapter, generation, salt and the version of the weights
//     d[i + 1] = mix(d[i], token i, i)         in the place of a medium's token: its content id and the offset in it
//     KV of token i         = d[i + 1], 8 bytes as they lie in memory
//     state after t tokens  = d[t], expanded to as many bytes as a slot has, differently for every shard
//
// mix is XXH3 with 64 bits: collisions are as rare as chance has them.
#ifndef CAIRN_REPLAY_VERIFYING_MODEL_H_
#define CAIRN_REPLAY_VERIFYING_MODEL_H_

#include <cairn/cache_manager.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cairn::replay {

inline constexpr std::size_t kKvBytesPerToken = sizeof(std::uint64_t);

// What the model computes for one sequence. Copyable: a copy is a fork. 8 bytes for each token.
class ModelSequence {
 public:
  // The request's tokens, adapter, generation, salt and media; nothing else of it counts, and no view is kept.
  // `weights` tells apart what is computed before and after an update of the weights that no adapter generation shows.
  // Media must ascend and not overlap.
  explicit ModelSequence(const cairn::Request& request, std::uint64_t weights = 0);

  [[nodiscard]] std::size_t tokens() const { return digests_.size() - 1; }
  // Decoded or drafted tokens, at the next positions. Strong guarantee if it throws std::bad_alloc.
  void append(std::span<const TokenId> tokens);
  // Forgets what comes after the first `tokens` tokens. Throws std::out_of_range: more than there are.
  void truncate(std::size_t tokens);

  // The KV of tokens [from, to), kKvBytesPerToken each. Valid until the sequence changes. Throws std::out_of_range.
  [[nodiscard]] std::span<const std::byte> kv(std::size_t from, std::size_t to) const;
  // Fills `to` with the bytes of one shard of the state after `tokens` tokens. Every byte depends on all of them.
  // Throws std::out_of_range.
  void state(std::size_t tokens, std::size_t shard, std::span<std::byte> to) const;

 private:
  void check_range(std::size_t from, std::size_t to) const;

  std::vector<std::uint64_t> digests_;  // d[0] and one more for each token
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_VERIFYING_MODEL_H_
