#include "replay/content_digest.h"

#include <gtest/gtest.h>

#include <vector>

namespace cairn::replay {
namespace {

std::vector<ContentDigest> digests_of(const std::vector<TokenId>& tokens, std::size_t block_size, AdapterId adapter) {
  std::vector<ContentDigest> digests;
  append_digests(tokens, block_size, adapter, digests);
  return digests;
}

TEST(ContentDigest, CoversTheAdapterAndAllTokensUpToTheBlocksEnd) {
  const std::vector<ContentDigest> base = digests_of({1, 2, 3, 4, 5, 6}, 2, 0);
  ASSERT_EQ(base.size(), 3U);
  const std::vector<ContentDigest> other_start = digests_of({9, 2, 3, 4, 5, 6}, 2, 0);
  const std::vector<ContentDigest> other_middle = digests_of({1, 2, 3, 9, 5, 6}, 2, 0);
  const std::vector<ContentDigest> other_adapter = digests_of({1, 2, 3, 4, 5, 6}, 2, 1);
  for (std::size_t i = 0; i < base.size(); ++i) {
    EXPECT_NE(base[i], other_start[i]);
    EXPECT_EQ(base[i] == other_middle[i], i == 0);
    EXPECT_NE(base[i], other_adapter[i]);
  }
  EXPECT_EQ(digests_of({1, 2, 3, 4, 7}, 2, 0)[1], base[1]);
}

TEST(ContentDigest, EqualBlocksAtDifferentPlacesDiffer) {
  const std::vector<ContentDigest> digests = digests_of({1, 2, 1, 2}, 2, 0);
  EXPECT_NE(digests[0], digests[1]);
}

TEST(ContentDigest, LeavesOutALastBlockThatIsNotFull) {
  EXPECT_EQ(digests_of({1, 2, 3}, 2, 0).size(), 1U);
  EXPECT_TRUE(digests_of({1}, 2, 0).empty());
}

TEST(ContentDigest, GoesOnWhereItStopped) {
  std::vector<ContentDigest> digests = digests_of({1, 2, 3, 4}, 2, 5);
  const std::vector<TokenId> longer = {1, 2, 3, 4, 5, 6};
  append_digests(longer, 2, 5, digests);
  EXPECT_EQ(digests, digests_of(longer, 2, 5));
}

}  // namespace
}  // namespace cairn::replay
