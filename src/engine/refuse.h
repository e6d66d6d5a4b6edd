// How the engine layer refuses what a caller could have known to be wrong.
#ifndef CAIRN_ENGINE_REFUSE_H_
#define CAIRN_ENGINE_REFUSE_H_

#include <stdexcept>
#include <string>

#include "cairn/prefix_cache.h"
#include "engine/names.h"

namespace cairn {

[[noreturn]] inline void refuse(const std::string& what, const std::string& rule) {
  throw std::invalid_argument("cairn: " + what + ": " + rule);
}

inline void check_real_token(TokenId token) {
  if (token < kFirstReservedToken) return;
  refuse("tokens", "token id " + std::to_string(token) + " is 2^31 or more; those are reserved for media");
}

}  // namespace cairn

#endif  // CAIRN_ENGINE_REFUSE_H_
