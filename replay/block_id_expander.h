// Turns the block ids of a trace into tokens.
#ifndef CAIRN_REPLAY_BLOCK_ID_EXPANDER_H_
#define CAIRN_REPLAY_BLOCK_ID_EXPANDER_H_

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replay/workload.h"

namespace cairn::replay {

enum class BlockIdKind {
  kChained,  // an id names a block and its whole prefix
  kPlain,    // an id names a block alone
};

// Each id owns a run of `block_tokens` token ids, so blocks of different ids share no token, and two blocks of equal
// ids hold equal tokens. Whether their prefixes are equal too, the cache sees by itself from the tokens before them.
// A last id that stands for a partial block takes the first tokens of its run. Tokens that no id covers get fresh
// token ids: they are the request's own.
class BlockIdExpander {
 public:
  // `token_ids` must outlive this. Throws std::invalid_argument: block_tokens zero or above kSequenceTokensMax.
  BlockIdExpander(TokenIdAllocator& token_ids, std::size_t block_tokens, BlockIdKind kind);

  // The prompt of input_length tokens that starts with those ids. Throws, with nothing changed, BadLineError: the
  // length does not reach the last id, is 0 or above kSequenceTokensMax; chained, an id whose predecessor is not the
  // one it was first seen with. Throws std::length_error: no token ids left.
  [[nodiscard]] std::vector<TokenRun> expand(std::span<const std::uint64_t> ids, std::uint64_t input_length);

 private:
  using Predecessor = std::optional<std::uint64_t>;  // nothing: the id starts the prompt
  struct Interned {
    std::uint64_t first_token = 0;
    Predecessor predecessor;
  };

  void check_length(std::size_t ids, std::uint64_t input_length) const;
  std::uint64_t intern(std::uint64_t id, Predecessor predecessor, std::vector<std::uint64_t>& added);

  TokenIdAllocator& token_ids_;
  std::size_t block_tokens_;
  BlockIdKind kind_;
  boost::unordered_flat_map<std::uint64_t, Interned> interned_;
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_BLOCK_ID_EXPANDER_H_
