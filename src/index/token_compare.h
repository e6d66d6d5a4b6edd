// How far two runs of tokens agree.
#ifndef CAIRN_INDEX_TOKEN_COMPARE_H_
#define CAIRN_INDEX_TOKEN_COMPARE_H_

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cairn/prefix_cache.h"

namespace cairn {

// The number of leading tokens, of `count`, in which `a` and `b` agree. Reads both once, by memcmp in pieces; of the
// piece that differs, the half that differs, and so on, again.
inline std::size_t matching_tokens(const TokenId* a, const TokenId* b, std::size_t count) noexcept {
  constexpr std::size_t kPiece = 1024;
  constexpr std::size_t kFew = 16;
  const auto differ = [&](std::size_t from, std::size_t num_tokens) {
    return std::memcmp(a + from, b + from, num_tokens * sizeof(TokenId)) != 0;
  };
  std::size_t same = 0;
  std::size_t piece = std::min(kPiece, count);
  while (!differ(same, piece)) {
    same += piece;
    if (same == count) return count;
    piece = std::min(kPiece, count - same);
  }
  while (piece > kFew) {
    const std::size_t half = piece / 2;
    if (differ(same, half)) {
      piece = half;
    } else {
      same += half;
      piece -= half;
    }
  }
  while (a[same] == b[same]) ++same;
  return same;
}

}  // namespace cairn

#endif  // CAIRN_INDEX_TOKEN_COMPARE_H_
