// How far two runs of tokens agree.
#ifndef CAIRN_INDEX_TOKEN_COMPARE_H_
#define CAIRN_INDEX_TOKEN_COMPARE_H_

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cairn/prefix_cache.h"

namespace cairn {

// The number of leading tokens, of `count`, in which `a` and `b` agree. Reads both once, by memcmp in pieces, and
// the piece that differs a second time.
inline std::size_t matching_tokens(const TokenId* a, const TokenId* b, std::size_t count) noexcept {
  constexpr std::size_t kPiece = 1024;
  std::size_t done = 0;
  while (done < count) {
    const std::size_t piece = std::min(kPiece, count - done);
    if (std::memcmp(a + done, b + done, piece * sizeof(TokenId)) != 0) {
      return done + static_cast<std::size_t>(std::mismatch(a + done, a + done + piece, b + done).first - (a + done));
    }
    done += piece;
  }
  return count;
}

}  // namespace cairn

#endif  // CAIRN_INDEX_TOKEN_COMPARE_H_
