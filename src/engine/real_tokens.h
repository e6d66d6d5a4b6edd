// Tokens that a caller may give: those that are not ours.
#ifndef CAIRN_ENGINE_REAL_TOKENS_H_
#define CAIRN_ENGINE_REAL_TOKENS_H_

#include <algorithm>
#include <span>
#include <string>

#include "base/refuse.h"
#include "cairn/prefix_cache.h"
#include "engine/names.h"

namespace cairn {

inline void check_real_tokens(std::span<const TokenId> tokens) {
  // Each admission does this with its whole prompt: four quarters at once, so that no step waits for the one before
  // it.
  const std::size_t quarter = tokens.size() / 4;
  const TokenId* const t = tokens.data();
  TokenId a = 0, b = 0, c = 0, d = 0;
  for (std::size_t i = 0; i < quarter; ++i) {
    a |= t[i];
    b |= t[quarter + i];
    c |= t[2 * quarter + i];
    d |= t[3 * quarter + i];
  }
  for (const TokenId token : tokens.subspan(4 * quarter)) a |= token;
  if ((a | b | c | d) < kFirstReservedToken) return;
  const auto wrong = std::ranges::find_if(tokens, [](TokenId token) { return token >= kFirstReservedToken; });
  refuse("tokens", "token " + std::to_string(wrong - tokens.begin()) + " has the id " + std::to_string(*wrong) +
                       "; ids from 2^31 on are reserved for media");
}

}  // namespace cairn

#endif  // CAIRN_ENGINE_REAL_TOKENS_H_
