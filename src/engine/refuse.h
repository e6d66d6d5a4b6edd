// How the engine layer refuses what a caller could have known to be wrong.
#ifndef CAIRN_ENGINE_REFUSE_H_
#define CAIRN_ENGINE_REFUSE_H_

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>

#include "cairn/prefix_cache.h"
#include "engine/names.h"

namespace cairn {

[[noreturn]] inline void refuse(const std::string& what, const std::string& rule) {
  throw std::invalid_argument("cairn: " + what + ": " + rule);
}

inline void check_real_tokens(std::span<const TokenId> tokens) {
  TokenId any = 0;  // one pass without a branch for each token
  for (const TokenId token : tokens) any |= token;
  if (any < kFirstReservedToken) return;
  const auto wrong = std::ranges::find_if(tokens, [](TokenId token) { return token >= kFirstReservedToken; });
  refuse("tokens", "token " + std::to_string(wrong - tokens.begin()) + " has the id " + std::to_string(*wrong) +
                       "; ids from 2^31 on are reserved for media");
}

}  // namespace cairn

#endif  // CAIRN_ENGINE_REFUSE_H_
