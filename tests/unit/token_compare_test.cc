// How far runs of tokens agree.
#include "index/token_compare.h"

#include <gtest/gtest.h>

#include <vector>

namespace cairn {
namespace {

TEST(MatchingTokens, AnswersTheFirstDifference) {
  constexpr std::size_t kCount = 2'600;  // two pieces and a part of one
  std::vector<TokenId> a(kCount);
  for (std::size_t i = 0; i < kCount; ++i) a[i] = static_cast<TokenId>(i);
  std::vector<TokenId> b = a;
  EXPECT_EQ(matching_tokens(a.data(), b.data(), 0), 0U);
  EXPECT_EQ(matching_tokens(a.data(), b.data(), kCount), kCount);
  for (std::size_t first = 0; first < kCount; ++first) {
    b[first] ^= 0x80000000U;
    b.back() ^= 1U;  // what follows does not count
    EXPECT_EQ(matching_tokens(a.data(), b.data(), kCount), first);
    EXPECT_EQ(matching_tokens(a.data(), b.data(), first), first) << "what is not to be compared differs";
    b.back() ^= 1U;
    b[first] = a[first];
  }
}

}  // namespace
}  // namespace cairn
