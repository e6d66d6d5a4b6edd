// evict in the contract: which node goes next, and what is returned.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EvictionTest : public RadixTreeTest {};

TEST_F(EvictionTest, EvictTakesTheLeastRecentlyUsedNodeFirst) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.cache(tokens("bbbb"), {2});
  tree_.cache(tokens("cccc"), {3});
  tree_.touch(tokens("aaaa"));
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(2));
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(3));
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(1));
}

TEST_F(EvictionTest, OneEvictOfManyEqualsManyEvictsOfOne) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("cccc"), {3});
  tree_.cache(tokens("aaaa dddd"), {1, 4});
  EXPECT_THAT(tree_.evict(4).physical, ElementsAre(2, 3, 4, 1));
}

TEST_F(EvictionTest, EvictReturnsFewerIfThereAreNoMore) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.insert(tokens("bbbb"), {2});
  EXPECT_EQ(tree_.evict(0).size(), 0u);
  EXPECT_EQ(tree_.evict(5).size(), 1u);
  EXPECT_TRUE(tree_.evict(5).empty());
}

TEST_F(EvictionTest, ANodeWithAChildIsNotEvicted) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.touch(tokens("aaaa"));
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(2));
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(1));
}

TEST_F(EvictionTest, ANodeInUseIsNotEvictedHoweverOld) {
  tree_.insert(tokens("aaaa"), {1});
  tree_.cache(tokens("bbbb"), {2});
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2));
  tree_.release(tokens("aaaa"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1));
}

TEST_F(EvictionTest, AUseAtTheEndOfAChainKeepsTheWholeChain) {
  tree_.insert(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.cache(tokens("aaaa xxxx"), {1, 4});
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(4));
  EXPECT_EQ(tree_.peek(tokens("aaaa bbbb cccc")), 12u);
}

TEST_F(EvictionTest, AParentIsJudgedByItsOwnLastUseOnceItsChildrenAreGone) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("zzzz"), {9});
  tree_.cache(tokens("aaaa cccc"), {1, 3});
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 9, 3, 1));
}

TEST_F(EvictionTest, AParentInheritsNoYoungerStampThanItsOwn) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("zzzz"), {9});
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1, 9));
}

TEST_F(EvictionTest, ALookupThatWentThroughAParentCountsForItAfterTheChildIsGone) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("aaaa cccc"), {1, 3});  // hangs in the middle of a stored piece
  tree_.cache(tokens("aaaa bbbb dddd"), {1, 2, 4});
  tree_.cache(tokens("aaaa bbbb eeee"), {1, 2, 5});  // and this one at the end of what was stored first
  tree_.insert(tokens("zzzz"), {9});
  tree_.insert(tokens("yyyy"), {8});
  tree_.touch(tokens("aaaa cccc"));
  tree_.touch(tokens("aaaa bbbb eeee"));
  EXPECT_THAT(tree_.evict(3).physical, ElementsAre(4, 3, 5)) << "the strangers are older, but in use";
  tree_.release(tokens("zzzz"));
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(9)) << "older than the lookup through bbbb";
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(2));
  tree_.release(tokens("yyyy"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(8, 1)) << "older than the lookups through aaaa";
}

TEST_F(EvictionTest, ALookupThatWentThroughTheMiddleOfAPieceCountsForThatPlaceAfterTheBranchIsGone) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("aaaa cccc"), {1, 3});
  tree_.insert(tokens("zzzz"), {9});
  tree_.touch(tokens("aaaa cccc"));
  EXPECT_THAT(tree_.evict(2).physical, ElementsAre(2, 3));
  tree_.release(tokens("zzzz"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(9, 1));
}

TEST_F(EvictionTest, ABranchThatIsEvictedBeforeWhatFollowsItLeavesItsStampAtItsPlace) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("aaaa cccc"), {1, 3});
  tree_.lookup(tokens("aaaa bbbb"));  // in use: the branch goes first, although it is used later
  tree_.insert(tokens("zzzz"), {9});
  tree_.touch(tokens("aaaa cccc"));
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(3));
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(2));
  tree_.release(tokens("zzzz"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(9, 1));
}

TEST_F(EvictionTest, LookupsThatEndAtDifferentDepthsOfOneRunEvictInTheOrderOfTheirStamps) {
  tree_.cache(tokens("aaaa bbbb cccc dddd"), {1, 2, 3, 4});
  tree_.cache(tokens("xxxx"), {10});
  tree_.touch(tokens("aaaa bbbb cccc"));
  tree_.cache(tokens("yyyy"), {11});
  tree_.touch(tokens("aaaa"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(4, 10, 3, 2, 11, 1));
}

TEST_F(EvictionTest, ADeepLookupMakesAnEarlierShallowOneIrrelevantForTheOrder) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.touch(tokens("aaaa"));
  tree_.cache(tokens("xxxx"), {10});
  tree_.touch(tokens("aaaa bbbb cccc"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(10, 3, 2, 1));
}

TEST_F(EvictionTest, EvictionGoesAcrossAdaptersInOneOrder) {
  tree_.cache(tokens("aaaa"), {1}, {.adapter = 1});
  tree_.cache(tokens("aaaa"), {2});
  tree_.cache(tokens("aaaa"), {3}, {.adapter = 2});
  tree_.touch(tokens("aaaa"), {.adapter = 1});
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 3, 1));
}

TEST_F(EvictionTest, EvictListsRealDiskIdsOnlyInTheOrderOfTheBlocks) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.disk = {11, kNoDiskBlock, 33}});
  const EvictedBlocks evicted = tree_.evict(9);
  EXPECT_THAT(evicted.physical, ElementsAre(3, 2, 1));
  EXPECT_THAT(evicted.disk_block_ids, ElementsAre(33, 11));
  EXPECT_EQ(evicted.size(), 3u);
}

TEST_F(EvictionTest, EvictedDiskIdsAreParallelIfEveryBlockHadOne) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.disk = {11, 22}});
  const EvictedBlocks evicted = tree_.evict(9);
  EXPECT_THAT(evicted.physical, ElementsAre(2, 1));
  EXPECT_THAT(evicted.disk_block_ids, ElementsAre(22, 11));
}

TEST_F(EvictionTest, AnEvictedBlockIsNotFoundAndComesBackOnlyAfterItWasAcquiredAgain) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.disk = {11, 22}});
  tree_.evict(1);
  const PrefixMatch match = tree_.touch(tokens("aaaa bbbb"));
  EXPECT_THAT(match.matched_blocks, ElementsAre(1));
  EXPECT_THAT(match.matched_disk_block_ids, ElementsAre(11));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1));
  EXPECT_TRUE(tree_.evict(9).empty());
}

TEST_F(EvictionTest, ANodeCreatedAgainHasNoDiskIdFromItsEarlierLife) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.disk = {11, 22}});
  tree_.evict(1);
  EXPECT_THAT(tree_.cache(tokens("aaaa bbbb"), {1, 5}).disk_block_ids, IsEmpty());
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb")).matched_disk_block_ids, ElementsAre(11, kNoDiskBlock));
}

TEST_F(EvictionTest, ANodeCreatedAgainStartsWithANewStamp) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.evict(1);
  tree_.cache(tokens("zzzz"), {9});
  tree_.cache(tokens("aaaa cccc"), {1, 3});
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(9, 3, 1));
}

}  // namespace
}  // namespace cairn
