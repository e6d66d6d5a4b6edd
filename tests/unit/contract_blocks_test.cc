// "Blocks" in the contract: nodes, uses and stamps; lookup, peek, insert, release, stats. evict is in
// contract_eviction_test.cc.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BlocksTest : public RadixTreeTest {};

// ---- Nodes ----

TEST_F(BlocksTest, ARequestThatStartsLikeAnEarlierOneFindsTheBlocksOfThatStart) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  const PrefixMatch match = tree_.touch(tokens("aaaa bbbb zzzz yyyy"));
  EXPECT_THAT(match.matched_blocks, ElementsAre(1, 2));
  EXPECT_EQ(match.matched_tokens, 8u);
  EXPECT_FALSE(match.empty());
}

TEST_F(BlocksTest, EqualBlocksAfterDifferentStartsAreDifferentNodes) {
  tree_.cache(tokens("aaaa xxxx"), {1, 2});
  EXPECT_THAT(tree_.cache(tokens("bbbb xxxx"), {3, 4}).blocks, ElementsAre(3, 4));
  EXPECT_THAT(tree_.touch(tokens("aaaa xxxx")).matched_blocks, ElementsAre(1, 2));
  EXPECT_THAT(tree_.touch(tokens("bbbb xxxx")).matched_blocks, ElementsAre(3, 4));
  EXPECT_EQ(tree_.stats().cached_blocks, 4u);
}

TEST_F(BlocksTest, ABlockIsNotFoundWithoutTheBlocksBeforeIt) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  EXPECT_TRUE(tree_.touch(tokens("bbbb")).empty());
  EXPECT_TRUE(tree_.touch(tokens("xxxx bbbb")).empty());
}

TEST_F(BlocksTest, OneDifferentTokenAnywhereInABlockMakesADifferentNode) {
  const Tokens original = token_range(100, 8);
  tree_.cache(original, {1, 2});
  for (std::size_t i = 0; i < original.size(); ++i) {
    for (const TokenId flip : {1U, 0x100U, 0x80000000U}) {
      Tokens other = original;
      other[i] ^= flip;
      EXPECT_EQ(tree_.touch(other).matched_tokens, i < 4 ? 0u : 4u) << "token " << i << ", flip " << flip;
    }
  }
}

TEST_F(BlocksTest, ManySiblingsAreToldApartByTheirTokens) {
  tree_.cache(tokens("aaaa"), {1000});
  for (TokenId i = 0; i < 64; ++i) {
    Tokens sequence = tokens("aaaa");
    for (const TokenId token : {7U, 7U, 7U, i}) sequence.push_back(token);
    EXPECT_THAT(tree_.cache(sequence, {1000, i}).blocks, ElementsAre(i));
  }
  for (TokenId i = 0; i < 64; ++i) {
    Tokens sequence = tokens("aaaa");
    for (const TokenId token : {7U, 7U, 7U, i}) sequence.push_back(token);
    EXPECT_THAT(tree_.touch(sequence).matched_blocks, ElementsAre(1000, i));
  }
}

TEST_F(BlocksTest, NothingIsSharedAcrossAdapters) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.adapter = 5});
  EXPECT_TRUE(tree_.touch(tokens("aaaa bbbb")).empty());
  EXPECT_TRUE(tree_.touch(tokens("aaaa bbbb"), {.adapter = 6}).empty());
  EXPECT_EQ(tree_.peek(tokens("aaaa bbbb"), 6), 0u);
  EXPECT_THAT(tree_.cache(tokens("aaaa bbbb"), {3, 4}, {.adapter = 6}).blocks, ElementsAre(3, 4));
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb"), {.adapter = 5}).matched_blocks, ElementsAre(1, 2));
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb"), {.adapter = 6}).matched_blocks, ElementsAre(3, 4));
}

TEST_F(BlocksTest, AUseInOneAdapterDoesNotProtectTheSameTokensInAnother) {
  tree_.cache(tokens("aaaa"), {1}, {.adapter = 5});
  tree_.insert(tokens("aaaa"), {2}, {.adapter = 6});
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1));
  tree_.release(tokens("aaaa"), 6);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2));
}

TEST_F(BlocksTest, ANodeKeepsItsBlockForAsLongAsItLives) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  EXPECT_THAT(tree_.cache(tokens("aaaa bbbb"), {8, 9}).blocks, IsEmpty());
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb")).matched_blocks, ElementsAre(1, 2));
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(2));
  EXPECT_THAT(tree_.cache(tokens("aaaa bbbb"), {8, 9}).blocks, ElementsAre(9));
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb")).matched_blocks, ElementsAre(1, 9));
}

TEST_F(BlocksTest, TheCacheKeepsOneReferenceForEachNodeThatHoldsABlock) {
  EXPECT_THAT(tree_.cache(tokens("aaaa"), {7}).blocks, ElementsAre(7));
  EXPECT_THAT(tree_.cache(tokens("bbbb"), {7}).blocks, ElementsAre(7));
  EXPECT_THAT(tree_.cache(tokens("aaaa"), {7}, {.adapter = 1}).blocks, ElementsAre(7));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(7, 7, 7));
}

// ---- lookup ----

TEST_F(BlocksTest, LookupMatchesTheLongestChainOfFullBlocks) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  EXPECT_EQ(tree_.touch(tokens("aaaa")).matched_tokens, 4u);
  EXPECT_EQ(tree_.touch(tokens("aaaa bbb")).matched_tokens, 4u);
  EXPECT_EQ(tree_.touch(tokens("aaaa bbbb cccc")).matched_tokens, 12u);
  EXPECT_EQ(tree_.touch(tokens("aaaa bbbb cccc dddd")).matched_tokens, 12u);
  EXPECT_EQ(tree_.touch(tokens("aaaa bbbb cccx")).matched_tokens, 8u);
}

TEST_F(BlocksTest, ASequenceShorterThanABlockMatchesNothing) {
  tree_.cache(tokens("aaaa"), {1});
  EXPECT_TRUE(tree_.lookup(tokens("aaa")).empty());
  EXPECT_TRUE(tree_.lookup({}).empty());
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(1)) << "and takes no use";
}

TEST_F(BlocksTest, LookupInAnEmptyTreeMatchesNothing) {
  const PrefixMatch match = tree_.lookup(tokens("aaaa bbbb"));
  EXPECT_TRUE(match.empty());
  EXPECT_THAT(match.matched_blocks, IsEmpty());
  EXPECT_THAT(match.matched_disk_block_ids, IsEmpty());
  EXPECT_THAT(snapshot_of(match), IsNoSnapshot());
}

TEST_F(BlocksTest, LookupAddsOneUseToEachNodeOfTheChain) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  EXPECT_EQ(tree_.lookup(tokens("aaaa bbbb")).matched_tokens, 8u);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3)) << "the block past the match has no use";
  tree_.release_matched(tokens("aaaa bbbb"), 8);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1)) << "and the others had one use each";
}

TEST_F(BlocksTest, LookupStampsTheWholeChainAndNothingPastIt) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.cache(tokens("zzzz yyyy"), {8, 9});
  tree_.touch(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 9, 8, 2, 1));
}

TEST_F(BlocksTest, DiskIdsOfAMatchAreEmptyIfNoMatchedBlockHasOne) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.disk = {kNoDiskBlock, kNoDiskBlock, 33}});
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb")).matched_disk_block_ids, IsEmpty());
}

TEST_F(BlocksTest, DiskIdsOfAMatchAreParallelToItsBlocksIfAnyHasOne) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.disk = {kNoDiskBlock, 22, kNoDiskBlock}});
  const PrefixMatch match = tree_.touch(tokens("aaaa bbbb cccc"));
  EXPECT_THAT(match.matched_blocks, ElementsAre(1, 2, 3));
  EXPECT_THAT(match.matched_disk_block_ids, ElementsAre(kNoDiskBlock, 22, kNoDiskBlock));
}

TEST_F(BlocksTest, DiskIdsOfAMatchStayParallelAcrossPiecesWithAndWithoutThem) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.cache(tokens("aaaa bbbb dddd eeee"), {1, 2, 4, 5}, {.disk = {kNoDiskBlock, kNoDiskBlock, kNoDiskBlock, 55}});
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb cccc")).matched_disk_block_ids, IsEmpty());
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb dddd eeee")).matched_disk_block_ids,
              ElementsAre(kNoDiskBlock, kNoDiskBlock, kNoDiskBlock, 55));
}

// ---- peek_matched_tokens ----

TEST_F(BlocksTest, PeekAnswersWhatLookupWouldMatch) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.cache(tokens("aaaa xxxx"), {1, 4});
  for (const char* text : {"", "aaa", "aaaa", "aaaa b", "aaaa bbbb", "aaaa xxxx cccc", "aaaa bbbb cccc dd", "zzzz"}) {
    const std::size_t peeked = tree_.peek(tokens(text));
    EXPECT_EQ(peeked, tree_.touch(tokens(text)).matched_tokens) << text;
  }
}

TEST_F(BlocksTest, PeekTakesNoUseSetsNoStampAndCountsNothing) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.cache(tokens("bbbb"), {2});
  const auto before = counter_values(tree_.counters());
  EXPECT_EQ(tree_.peek(tokens("aaaa")), 4u);
  EXPECT_EQ(tree_.peek(tokens("cccc")), 0u);
  EXPECT_EQ(counter_values(tree_.counters()), before);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1, 2)) << "still the older one first, and nobody uses it";
}

// ---- insert ----

TEST_F(BlocksTest, InsertCreatesANodeForEachFullBlockThatHasNone) {
  EXPECT_THAT(tree_.insert(tokens("aaaa bbbb"), {1, 2}).blocks, ElementsAre(1, 2));
  EXPECT_THAT(tree_.insert(tokens("aaaa bbbb cccc dddd"), {1, 2, 3, 4}).blocks, ElementsAre(3, 4));
  EXPECT_THAT(tree_.insert(tokens("aaaa xxxx"), {1, 5}).blocks, ElementsAre(5));
  EXPECT_EQ(tree_.stats().cached_blocks, 5u);
}

TEST_F(BlocksTest, ALastBlockThatIsNotFullIsNeverCached) {
  EXPECT_THAT(tree_.insert(tokens("aaaa bbb"), {1, 2}).blocks, ElementsAre(1));
  EXPECT_EQ(tree_.peek(tokens("aaaa bbb")), 4u);
  EXPECT_THAT(tree_.insert(tokens("ccc"), {3}).blocks, IsEmpty());
  EXPECT_EQ(tree_.stats().cached_blocks, 1u);
}

TEST_F(BlocksTest, InsertStopsWhereTheBlockTableEnds) {
  EXPECT_THAT(tree_.insert(tokens("aaaa bbbb cccc"), {1, 2}).blocks, ElementsAre(1, 2));
  EXPECT_EQ(tree_.peek(tokens("aaaa bbbb cccc")), 8u);
  EXPECT_THAT(tree_.insert(tokens("dddd"), {}).blocks, IsEmpty());
  EXPECT_EQ(tree_.stats().cached_blocks, 2u);
}

TEST_F(BlocksTest, InsertIgnoresTheBlockTablePastTheFullBlocks) {
  EXPECT_THAT(tree_.insert(tokens("aaaa bb"), {1, 2, 3, 4}).blocks, ElementsAre(1));
  EXPECT_EQ(tree_.stats().cached_blocks, 1u);
}

TEST_F(BlocksTest, InsertOfNothingChangesNothing) {
  const InsertAcquired acquired = tree_.insert({}, {});
  EXPECT_THAT(acquired.blocks, IsEmpty());
  EXPECT_THAT(acquired.disk_block_ids, IsEmpty());
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
}

TEST_F(BlocksTest, ACreatedNodeTakesTheDiskIdThatIsGiven) {
  const InsertAcquired acquired = tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.disk = {11, 22}});
  EXPECT_THAT(acquired.disk_block_ids, ElementsAre(11, 22));
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb")).matched_disk_block_ids, ElementsAre(11, 22));
}

TEST_F(BlocksTest, ANodeWithoutADiskIdTakesOneFromALaterInsert) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.disk = {11, kNoDiskBlock, kNoDiskBlock}});
  const InsertAcquired acquired = tree_.cache(tokens("aaaa bbbb cccc"), {7, 8, 9}, {.disk = {77, 88, kNoDiskBlock}});
  EXPECT_THAT(acquired.blocks, IsEmpty());
  EXPECT_THAT(acquired.disk_block_ids, ElementsAre(88)) << "of exactly the nodes that took one";
  const PrefixMatch match = tree_.touch(tokens("aaaa bbbb cccc"));
  EXPECT_THAT(match.matched_blocks, ElementsAre(1, 2, 3));
  EXPECT_THAT(match.matched_disk_block_ids, ElementsAre(11, 88, kNoDiskBlock));
}

TEST_F(BlocksTest, OneInsertReportsTheDiskIdsItFilledInAndThoseOfNodesItCreated) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  const InsertAcquired acquired = tree_.cache(tokens("aaaa bbbb cccc dddd"), {1, 2, 3, 4},
                                              {.matched_tokens = 0, .disk = {kNoDiskBlock, 22, 33, kNoDiskBlock}});
  EXPECT_THAT(acquired.blocks, ElementsAre(3, 4));
  EXPECT_THAT(acquired.disk_block_ids, ElementsAre(22, 33));
}

TEST_F(BlocksTest, InsertStampsAllNodesOnTheWay) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("zzzz"), {9});
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  EXPECT_THAT(tree_.evict(1).physical, ElementsAre(9)) << "the existing nodes were stamped too";
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2, 1));
}

TEST_F(BlocksTest, InsertStampsAlsoThePartThatTheCallerHoldsAlready) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.lookup(tokens("aaaa"));
  tree_.cache(tokens("zzzz"), {9});
  tree_.insert(tokens("aaaa bbbb"), {1, 2}, {.matched_tokens = 4});
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(9, 2, 1));
}

TEST_F(BlocksTest, AfterLookupAndInsertTheCallerHoldsOneUseOnEachNode) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  const PrefixMatch match = tree_.lookup(tokens("aaaa bbbb cccc"));
  tree_.insert(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.matched_tokens = match.matched_tokens});
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(tokens("aaaa bbbb cccc"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2, 1));
}

TEST_F(BlocksTest, InsertAddsAUseToNodesThatAnotherCreatedPastTheMatch) {
  const PrefixMatch match = tree_.lookup(tokens("aaaa bbbb"));
  ASSERT_TRUE(match.empty());
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  EXPECT_THAT(tree_.insert(tokens("aaaa bbbb"), {8, 9}).blocks, IsEmpty());
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

TEST_F(BlocksTest, MatchedTokensOfInsertAreRoundedDownToABlock) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.lookup(tokens("aaaa"));
  tree_.insert(tokens("aaaa bbbb"), {1, 2}, {.matched_tokens = 7});
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty()) << "the second block got a use";
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1)) << "and the first one no second use";
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

TEST_F(BlocksTest, AnEarlierInsertOfTheSameSequenceCountsAsHeld) {
  tree_.insert(tokens("aaaa bbbb"), {1, 2});
  tree_.insert(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.matched_tokens = 8});
  tree_.release(tokens("aaaa bbbb cccc"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2, 1));
}

TEST_F(BlocksTest, ANodeCreatedBeforeMatchedTokensHasNoUse) {
  EXPECT_THAT(tree_.insert(tokens("aaaa bbbb"), {1, 2}, {.matched_tokens = 8}).blocks, ElementsAre(1, 2));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

TEST_F(BlocksTest, ChunkedPrefillPublishesChunksWithoutUsesAndItsFinalInsertTakesThem) {
  const Tokens prompt = tokens("aaaa bbbb cccc dd");
  const PrefixMatch match = tree_.lookup(prompt);
  tree_.insert(tokens("aaaa bbbb"), {1, 2}, {.matched_tokens = 8});
  EXPECT_EQ(tree_.peek(prompt), 8u);
  EXPECT_THAT(tree_.insert(prompt, {1, 2, 3, 4}, {.matched_tokens = match.matched_tokens}).blocks, ElementsAre(3));
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(prompt);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2, 1));
}

TEST_F(BlocksTest, ChunkedPrefillAfterAPartialMatchEndsWithOneUseOnEachNode) {
  tree_.cache(tokens("aaaa"), {1});
  const PrefixMatch match = tree_.lookup(tokens("aaaa bbbb cccc"));
  ASSERT_EQ(match.matched_tokens, 4u);
  tree_.insert(tokens("aaaa bbbb"), {1, 2}, {.matched_tokens = 8});
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2)) << "the published chunk has no use yet";
  tree_.insert(tokens("aaaa bbbb"), {1, 2}, {.matched_tokens = 8});
  tree_.insert(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.matched_tokens = 4});
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(tokens("aaaa bbbb cccc"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2, 1));
}

TEST_F(BlocksTest, AUsePastUnusedNodesKeepsThemBecauseTheyHaveAChild) {
  tree_.insert(tokens("aaaa bbbb"), {1, 2}, {.matched_tokens = 4});
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  EXPECT_EQ(tree_.stats().cached_blocks, 2u);
}

// ---- release, release_matched ----

TEST_F(BlocksTest, ReleaseDropsOneUseFromEachNode) {
  tree_.insert(tokens("aaaa bbbb"), {1, 2});
  tree_.insert(tokens("aaaa bbbb"), {1, 2});
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty()) << "the other caller still uses them";
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

TEST_F(BlocksTest, ReleaseLooksAtFullBlocksOnly) {
  tree_.insert(tokens("aaaa bbbb"), {1, 2});
  tree_.insert(tokens("aaaa bb"), {1});
  tree_.release(tokens("aaaa bb"));
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

TEST_F(BlocksTest, ReleaseDropsTheUsesOfTheNodesThatExistAndCountsTheBlocksNamedInVain) {
  tree_.insert(tokens("aaaa bbbb cccc"), {1, 2});
  tree_.release(tokens("aaaa bbbb cccc"));  // release_matched(.., 8) would have been right
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
  EXPECT_EQ(tree_.counters().protocol_errors, 1u);
}

TEST_F(BlocksTest, ReleaseOfOneBranchLeavesTheUsesOfTheOther) {
  tree_.insert(tokens("aaaa bbbb"), {1, 2});
  tree_.insert(tokens("aaaa cccc"), {1, 3});
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2));
  tree_.release(tokens("aaaa cccc"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 1));
}

TEST_F(BlocksTest, NeitherReleaseStamps) {
  tree_.insert(tokens("aaaa"), {1});
  tree_.cache(tokens("bbbb"), {2});
  tree_.release(tokens("aaaa"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1, 2));
  tree_.cache(tokens("aaaa"), {1});
  tree_.lookup(tokens("aaaa"));
  tree_.cache(tokens("bbbb"), {2});
  tree_.release_matched(tokens("aaaa"), 4);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1, 2));
}

TEST_F(BlocksTest, ReleaseMatchedDropsUsesOfTheMatchedStartOnly) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  const PrefixMatch match = tree_.lookup(tokens("aaaa bbbb cccc"));
  ASSERT_EQ(match.matched_tokens, 8u);
  tree_.insert(tokens("aaaa bbbb cccc"), {1, 2, 3});  // someone goes on in the meantime
  tree_.release_matched(tokens("aaaa bbbb cccc"), match.matched_tokens);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty()) << "the other one still uses all three";
  tree_.release(tokens("aaaa bbbb cccc"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2, 1));
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

TEST_F(BlocksTest, MatchedTokensOfReleaseAreRoundedDownToABlock) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.lookup(tokens("aaaa"));
  tree_.lookup(tokens("aaaa bbbb"));
  tree_.release_matched(tokens("aaaa bbbb"), 7);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty()) << "the use of the second block is still held";
  tree_.release_matched(tokens("aaaa bbbb"), 8);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

TEST_F(BlocksTest, ReleaseMatchedOfNothingIsFine) {
  tree_.insert(tokens("aaaa"), {1});
  tree_.release_matched(tokens("aaaa"), 0);
  tree_.release_matched(tokens("aaaa"), 3);
  tree_.release_matched({}, 0);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

TEST_F(BlocksTest, AReleaseOfWhatNobodyHoldsIsCountedAndTakesNoUseBelowZero) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_EQ(tree_.counters().protocol_errors, 1u);
  tree_.release_matched(tokens("aaaa bbbb"), 8);
  EXPECT_EQ(tree_.counters().protocol_errors, 2u);
  tree_.lookup(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty()) << "one lookup is one use, whatever was released before";
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
  EXPECT_EQ(tree_.counters().protocol_errors, 2u);
}

TEST_F(BlocksTest, AReleaseThatGoesDeeperThanAnyUseIsCountedAsOneError) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.lookup(tokens("aaaa"));
  tree_.release(tokens("aaaa bbbb cccc"));
  EXPECT_EQ(tree_.counters().protocol_errors, 1u);
  EXPECT_EQ(tree_.index().validate(), "");
}

// ---- stats ----

TEST_F(BlocksTest, StatsOfAnEmptyCacheAreZero) {
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
  EXPECT_EQ(tree_.stats().entries, 0u);
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.evict(9);
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
  EXPECT_EQ(tree_.stats().entries, 0u);
}

TEST_F(BlocksTest, StatsCountNodesAndThePiecesTheyAreKeptIn) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  EXPECT_EQ(tree_.stats().cached_blocks, 3u);
  EXPECT_EQ(tree_.stats().entries, 1u) << "one run of blocks is one stored piece";
  tree_.cache(tokens("aaaa xxxx"), {1, 4});
  EXPECT_EQ(tree_.stats().cached_blocks, 4u);
  EXPECT_GE(tree_.stats().entries, 2u);
  EXPECT_LE(tree_.stats().entries, 4u);
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.adapter = 1});
  EXPECT_EQ(tree_.stats().cached_blocks, 7u);
}

// ---- What may surprise, what must hold ----

TEST_F(BlocksTest, AMatchMayCoverTheWholePrompt) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  EXPECT_EQ(tree_.touch(tokens("aaaa bbbb")).matched_tokens, 8u);
}

TEST_F(BlocksTest, EqualTokensAreOnePromptWhateverTheirPlaceholdersStandFor) {
  const Tokens with_image_placeholders(8, 151655);
  tree_.cache(with_image_placeholders, {1, 2});
  EXPECT_EQ(tree_.touch(with_image_placeholders).matched_tokens, 8u) << "the caller keeps images apart";
}

TEST_F(BlocksTest, AfterEverySequenceIsReleasedAllBlocksCanBeEvictedAndTheTreeIsEmpty) {
  tree_.insert(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.insert(tokens("aaaa xxxx"), {1, 4}, {.matched_tokens = 0});
  tree_.lookup(tokens("aaaa bbbb"));
  tree_.insert(tokens("aaaa"), {5}, {.adapter = 9});
  tree_.release(tokens("aaaa"), 9);
  tree_.release_matched(tokens("aaaa bbbb"), 8);
  tree_.release(tokens("aaaa xxxx"));
  tree_.release(tokens("aaaa bbbb cccc"));
  EXPECT_EQ(tree_.evict(100).size(), 5u);
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
  EXPECT_EQ(tree_.stats().entries, 0u);
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

class BlocksOfOneTokenTest : public RadixTreeTest {
 protected:
  BlocksOfOneTokenTest() : RadixTreeTest({.block_size = 1}) {}
};

TEST_F(BlocksOfOneTokenTest, EveryTokenIsABlock) {
  EXPECT_THAT(tree_.cache(tokens("abc"), {1, 2, 3}).blocks, ElementsAre(1, 2, 3));
  EXPECT_THAT(tree_.cache(tokens("abd"), {1, 2, 4}).blocks, ElementsAre(4));
  EXPECT_THAT(tree_.touch(tokens("abdc")).matched_blocks, ElementsAre(1, 2, 4));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 4, 2, 1));
}

}  // namespace
}  // namespace cairn
