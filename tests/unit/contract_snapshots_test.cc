// "Snapshots" in the contract: where they live, how they are put and replaced, tails and siblings, and their order of
// eviction. Which of them a lookup returns is in contract_snapshot_choice_test.cc.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class SnapshotsTest : public RadixTreeTest {};

// ---- A place is an adapter and an exact token sequence ----

TEST_F(SnapshotsTest, ASnapshotMayHaveAnyLengthFromOneTokenOn) {
  const Tokens sequence = token_range(100, 9);
  for (std::size_t length = 1; length <= 9; ++length) {
    tree_.put_plain(Tokens(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(length)), length);
  }
  for (std::size_t length = 1; length <= 9; ++length) {
    EXPECT_THAT(tree_.find(sequence, length), IsResident(length, length));
  }
}

TEST_F(SnapshotsTest, ASnapshotBelongsToExactlyItsTokens) {
  tree_.put_plain(tokens("aaaa bb"), 1);
  EXPECT_THAT(tree_.find(tokens("aaaa bb"), 6), IsResident(1, 6));
  EXPECT_THAT(tree_.find(tokens("aaaa bbc"), 7), IsResident(1, 6)) << "it lies on longer sequences";
  EXPECT_THAT(tree_.find(tokens("aaaa b"), 5), IsNoSnapshot());
  EXPECT_THAT(tree_.find(tokens("aaaa bx"), 6), IsNoSnapshot());
  EXPECT_THAT(tree_.find(tokens("xaaa bb"), 6), IsNoSnapshot());
}

TEST_F(SnapshotsTest, OneDifferentTokenAnywhereHidesASnapshot) {
  const Tokens original = token_range(100, 10);
  tree_.put_plain(original, 1);
  for (std::size_t i = 0; i < original.size(); ++i) {
    Tokens other = original;
    other[i] ^= 0x80000000U;
    EXPECT_THAT(tree_.find(other, 10), IsNoSnapshot()) << "token " << i;
  }
}

TEST_F(SnapshotsTest, ASnapshotBelongsToItsAdapter) {
  tree_.put_plain(tokens("aaaa"), 1, {.adapter = 5});
  tree_.put_plain(tokens("aaaa"), 2, {.adapter = 6});
  EXPECT_EQ(tree_.snapshot_count(), 2u);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.adapter = 5}), IsResident(1, 4));
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.adapter = 6}), IsResident(2, 4));
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsNoSnapshot());
}

TEST_F(SnapshotsTest, ThereIsAtMostOneSnapshotForEachAdapterAndTokens) {
  tree_.put_plain(tokens("aaaa b"), 1, {.session = 7});
  EXPECT_EQ(tree_.put_plain(tokens("aaaa b"), 2, {.session = 8}), 1u);
  EXPECT_EQ(tree_.snapshot_count(), 1u);
}

TEST_F(SnapshotsTest, ManyUnalignedSnapshotsAfterTheSameBlocksAreToldApart) {
  for (SnapshotId i = 0; i < 64; ++i) {
    Tokens sequence = tokens("aaaa");
    sequence.push_back(static_cast<TokenId>(1000 + i));
    EXPECT_EQ(tree_.put_plain(sequence, i), std::nullopt);
  }
  for (SnapshotId i = 0; i < 64; ++i) {
    Tokens sequence = tokens("aaaa");
    sequence.push_back(static_cast<TokenId>(1000 + i));
    sequence.push_back(1);
    EXPECT_THAT(tree_.find(sequence, 9), IsResident(i, 5));
  }
}

// ---- Apart from nodes ----

TEST_F(SnapshotsTest, EvictingBlocksRemovesNoSnapshot) {
  tree_.insert_with_snapshot(tokens("aaaa bbbb"), {1, 2}, 50);
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_EQ(tree_.evict(9).size(), 2u);
  EXPECT_EQ(tree_.snapshot_count(), 1u);
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8), IsResident(50, 8));
  EXPECT_THAT(snapshot_of(tree_.touch(tokens("aaaa bbbb"))), IsNoSnapshot()) << "a lookup needs a block";
  tree_.cache(tokens("aaaa bbbb"), {3, 4});
  EXPECT_THAT(snapshot_of(tree_.touch(tokens("aaaa bbbb"))), IsResident(50, 8));
}

TEST_F(SnapshotsTest, EvictingASnapshotRemovesNoBlock) {
  tree_.insert_with_snapshot(tokens("aaaa bbbb"), {1, 2}, 50);
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb")).matched_blocks, ElementsAre(1, 2));
}

TEST_F(SnapshotsTest, ASnapshotIsNoUseAndNoChild) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa bb"), 50);
  tree_.put_plain(tokens("aaaa"), 51);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1));
}

TEST_F(SnapshotsTest, PiecesThatHoldSnapshotsButNoBlockAreNoEntries) {
  tree_.put_plain(tokens("aaaa bbbb cc"), 50);
  tree_.put_tail(tokens("aaaa xxxx"), 51, {.session = 7});
  EXPECT_EQ(tree_.stats().entries, 0u);
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
  EXPECT_EQ(tree_.snapshot_count(), 2u);
}

TEST_F(SnapshotsTest, BlocksInsertedOnAndBesideAPathThatHeldSnapshotsOnlyAreNodesLikeAnyOther) {
  tree_.put_plain(tokens("aaaa bbbb cccc"), 50);
  EXPECT_THAT(tree_.insert(tokens("aaaa bbbb"), {1, 2}).blocks, ElementsAre(1, 2));
  EXPECT_THAT(tree_.insert(tokens("aaaa xxxx"), {1, 3}).blocks, ElementsAre(3));
  EXPECT_EQ(tree_.peek(tokens("aaaa bbbb cccc")), 8u);
  tree_.release(tokens("aaaa bbbb"));
  tree_.release(tokens("aaaa xxxx"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 3, 1));
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb cccc"), 12), IsResident(50, 12));
}

// ---- Replacing ----

TEST_F(SnapshotsTest, AReplacementTakesTheNewSlotSessionAndKind) {
  tree_.put_plain(tokens("aaaa"), 1, {.session = 7});
  EXPECT_THAT(tree_.put_tail(tokens("aaaa"), 2, {.session = 8}), ElementsAre(1));
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 8}), IsResidentTail(2, 4));
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 7}), IsNoSnapshot());
  EXPECT_EQ(tree_.put_plain(tokens("aaaa"), 3, {.session = 9}), 2u);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 9}), IsResident(3, 4));
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 8}), IsNoSnapshot());
}

TEST_F(SnapshotsTest, AReplacedSpilledSnapshotReturnsNoSlotAndItsKeyIsDead) {
  tree_.put_plain(tokens("aaaa"), 1);
  const auto spilled = tree_.spill();
  ASSERT_TRUE(spilled);
  EXPECT_EQ(tree_.put_plain(tokens("aaaa"), 2), std::nullopt);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsResident(2, 4)) << "resident again";
  EXPECT_FALSE(tree_.promote(spilled->key, 3));
  EXPECT_FALSE(tree_.forget(spilled->key));
  EXPECT_EQ(tree_.snapshot_count(), 1u);
}

TEST_F(SnapshotsTest, ASlotThatWasGivenBackMayBePutAgain) {
  tree_.put_plain(tokens("aaaa"), 1);
  EXPECT_EQ(tree_.put_plain(tokens("aaaa"), 2), 1u);
  EXPECT_EQ(tree_.put_plain(tokens("bbbb"), 1), std::nullopt);
  EXPECT_EQ(tree_.snapshot_count(), 2u);
}

// ---- insert_with_snapshot, insert_intermediate_snapshot ----

TEST_F(SnapshotsTest, InsertWithSnapshotIsAnInsertAndAPlainSnapshotAtAllItsTokens) {
  const SnapshotInsert result =
      tree_.insert_with_snapshot(tokens("aaaa bbbb cc"), {1, 2, 3}, 50, {.disk = {11, kNoDiskBlock, 33}});
  EXPECT_EQ(result.displaced, std::nullopt);
  EXPECT_THAT(result.acquired.blocks, ElementsAre(1, 2));
  EXPECT_THAT(result.acquired.disk_block_ids, ElementsAre(11));
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty()) << "the insert took uses";
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb cc"), 10), IsResident(50, 10));
  tree_.release(tokens("aaaa bbbb cc"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

TEST_F(SnapshotsTest, InsertWithSnapshotReturnsTheSlotItDisplaces) {
  tree_.insert_with_snapshot(tokens("aaaa"), {1}, 50);
  const SnapshotInsert result = tree_.insert_with_snapshot(tokens("aaaa"), {2}, 51, {.matched_tokens = 4});
  EXPECT_EQ(result.displaced, 50u);
  EXPECT_THAT(result.acquired.blocks, IsEmpty());
  tree_.release(tokens("aaaa"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1)) << "and it added no second use to the matched part";
}

TEST_F(SnapshotsTest, InsertWithSnapshotMayPutOneShorterThanABlock) {
  EXPECT_THAT(tree_.insert_with_snapshot(tokens("aa"), {1}, 50).acquired.blocks, IsEmpty());
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsResident(50, 2));
}

TEST_F(SnapshotsTest, AnIntermediateSnapshotLeavesNodesUsesAndStampsAlone) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("zzzz"), {9});
  EXPECT_EQ(tree_.index().insert_intermediate_snapshot(tokens("aaaa bbbb cccc"), Blocks{1, 2, 3},
                                                       DiskBlocks{11, 22, 33}, 4, 50, 0, 0, 0),
            std::nullopt);
  tree_.note_put(50, {});
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb cccc"), 12), IsResident(50, 12));
  EXPECT_EQ(tree_.stats().cached_blocks, 3u);
  const PrefixMatch match = tree_.touch(tokens("zzzz"));
  EXPECT_THAT(match.matched_disk_block_ids, IsEmpty());
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1, 9));
}

TEST_F(SnapshotsTest, AnIntermediateSnapshotFillsInNoDiskIds) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.index().insert_intermediate_snapshot(tokens("aaaa"), Blocks{1}, DiskBlocks{11}, 4, 50, 0, 4, 0);
  tree_.note_put(50, {});
  EXPECT_THAT(tree_.touch(tokens("aaaa")).matched_disk_block_ids, IsEmpty());
}

// ---- insert_tail_snapshot ----

TEST_F(SnapshotsTest, ANewTailRemovesTheEarlierTailAndSiblingOfItsSession) {
  EXPECT_THAT(tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7}), IsEmpty());
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 2, {.session = 7}), std::nullopt);
  EXPECT_THAT(tree_.put_tail(tokens("aaaa bbbb cccc"), 3, {.session = 7}), UnorderedElementsAre(1, 2));
  EXPECT_EQ(tree_.snapshot_count(), 1u);
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb cccc"), 11, {.session = 7}), IsNoSnapshot());
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb cccc"), 12, {.session = 7}), IsResidentTail(3, 12));
}

TEST_F(SnapshotsTest, ASessionsTailAndSiblingAreSweptWhereverTheyAre) {
  tree_.put_tail(tokens("xxxx yy"), 1, {.session = 7, .adapter = 1});
  tree_.put_sibling(tokens("zz"), 2, {.session = 7, .adapter = 2});
  EXPECT_THAT(tree_.put_tail(tokens("aaaa"), 3, {.session = 7}), UnorderedElementsAre(1, 2))
      << "a session's one tail and one sibling span all adapters";
}

TEST_F(SnapshotsTest, ATailAtTheSamePlaceAsItsSessionsEarlierOneFreesThatSlotOnce) {
  tree_.put_tail(tokens("aaaa"), 1, {.session = 7});
  EXPECT_THAT(tree_.put_tail(tokens("aaaa"), 2, {.session = 7}), ElementsAre(1));
  EXPECT_EQ(tree_.snapshot_count(), 1u);
}

TEST_F(SnapshotsTest, ATailAtThePlaceOfItsSessionsEarlierSiblingFreesBothOnce) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 2, {.session = 7});
  EXPECT_THAT(tree_.put_tail(tokens("aaaa"), 3, {.session = 7}), UnorderedElementsAre(1, 2));
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 7}), IsResidentTail(3, 4));
}

TEST_F(SnapshotsTest, ATailReturnsSweptAndDisplacedSlotsTogether) {
  tree_.put_plain(tokens("bbbb"), 1);
  tree_.put_tail(tokens("aaaa"), 2, {.session = 7});
  tree_.put_sibling(tokens("aa"), 3, {.session = 7});
  EXPECT_THAT(tree_.put_tail(tokens("bbbb"), 4, {.session = 7}), UnorderedElementsAre(1, 2, 3));
}

TEST_F(SnapshotsTest, ASweptSpilledTailReturnsNoSlot) {
  tree_.put_tail(tokens("aaaa"), 1, {.session = 7});
  const auto spilled = tree_.spill();
  ASSERT_TRUE(spilled);
  EXPECT_THAT(tree_.put_tail(tokens("bbbb"), 2, {.session = 7}), IsEmpty());
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 7}), IsNoSnapshot());
  EXPECT_FALSE(tree_.promote(spilled->key, 3));
}

TEST_F(SnapshotsTest, ATailOfSessionZeroIsNotKept) {
  tree_.put_plain(tokens("aaaa"), 1);
  EXPECT_THAT(tree_.put_tail(tokens("aaaa"), 2, {}), ElementsAre(2));
  EXPECT_THAT(tree_.put_tail(tokens("bbbb"), 3, {}), ElementsAre(3));
  EXPECT_EQ(tree_.snapshot_count(), 1u);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsResident(1, 4));
}

TEST_F(SnapshotsTest, TailAndSiblingTouchNoNode) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("zzzz"), {9});
  tree_.put_tail(tokens("aaaa bbbb cccc"), 50, {.session = 7});
  tree_.put_sibling(tokens("aaaa bbbb"), 51, {.session = 7});
  EXPECT_EQ(tree_.stats().cached_blocks, 3u);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1, 9));
}

TEST_F(SnapshotsTest, ALaterTailOfAnotherSessionAtTheSamePlaceReplacesTheEarlierAndIsCounted) {
  tree_.put_tail(tokens("aaaa"), 1, {.session = 7});
  EXPECT_THAT(tree_.put_tail(tokens("aaaa"), 2, {.session = 8}), ElementsAre(1));
  EXPECT_EQ(tree_.counters().tails_replaced, 1u);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 7}), IsNoSnapshot());
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 8}), IsResidentTail(2, 4));
}

TEST_F(SnapshotsTest, SweepingASessionWhoseTailWasReplacedRemovesNothingOfTheOthers) {
  tree_.put_tail(tokens("aaaa"), 1, {.session = 7});
  tree_.put_tail(tokens("aaaa"), 2, {.session = 8});
  EXPECT_THAT(tree_.put_tail(tokens("bbbb"), 3, {.session = 7}), IsEmpty());
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 8}), IsResidentTail(2, 4));
  EXPECT_EQ(tree_.snapshot_count(), 2u);
}

TEST_F(SnapshotsTest, SweepingASessionWhoseTailBecamePlainLeavesThePlainSnapshot) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 2, {.session = 7});
  EXPECT_EQ(tree_.put_plain(tokens("aaaa bbbb"), 3), 1u);
  EXPECT_THAT(tree_.put_tail(tokens("cccc"), 4, {.session = 7}), ElementsAre(2)) << "the sibling is still its own";
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8), IsResident(3, 8));
}

// ---- insert_tail_sibling_snapshot ----

TEST_F(SnapshotsTest, ASiblingJoinsTheTailOfItsSession) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 2, {.session = 7}), std::nullopt);
  EXPECT_EQ(tree_.snapshot_count(), 2u);
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 7, {.session = 7}), IsResident(2, 4));
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8, {.session = 7}), IsResidentTail(1, 8));
}

TEST_F(SnapshotsTest, ASiblingReturnsTheSlotItDisplaces) {
  tree_.put_plain(tokens("aaaa"), 1);
  tree_.put_tail(tokens("aaaa bbbb"), 2, {.session = 7});
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 3, {.session = 7}), 1u);
  EXPECT_EQ(tree_.snapshot_count(), 2u);
}

TEST_F(SnapshotsTest, ASiblingOfSessionZeroIsNotKept) {
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 1, {}), 1u);
  EXPECT_EQ(tree_.snapshot_count(), 0u);
}

TEST_F(SnapshotsTest, ASiblingWithoutATailIsNotKept) {
  tree_.put_plain(tokens("aaaa"), 1, {.session = 7});
  tree_.put_tail(tokens("cccc"), 2, {.session = 8});
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 3, {.session = 7}), 3u);
  EXPECT_EQ(tree_.snapshot_count(), 2u);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4, {.session = 7}), IsResident(1, 4)) << "and displaces nothing";
}

TEST_F(SnapshotsTest, ASecondSiblingIsNotKept) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 2, {.session = 7});
  EXPECT_EQ(tree_.put_sibling(tokens("aa"), 3, {.session = 7}), 3u);
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 4, {.session = 7}), 4u);
  EXPECT_EQ(tree_.snapshot_count(), 2u);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsResident(2, 4));
}

TEST_F(SnapshotsTest, EachNewTailMayHaveASiblingAgain) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 2, {.session = 7});
  tree_.put_tail(tokens("aaaa bbbb cccc"), 3, {.session = 7});
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa bbbb"), 4, {.session = 7}), std::nullopt);
}

TEST_F(SnapshotsTest, ASessionWhoseTailIsGoneGetsNoSibling) {
  tree_.put_tail(tokens("aaaa"), 1, {.session = 7});
  EXPECT_EQ(tree_.evict_snapshot(), 1u);
  EXPECT_EQ(tree_.put_sibling(tokens("aa"), 2, {.session = 7}), 2u);
  tree_.put_tail(tokens("aaaa"), 3, {.session = 7});
  tree_.put_tail(tokens("aaaa"), 4, {.session = 8});
  EXPECT_EQ(tree_.put_sibling(tokens("aa"), 5, {.session = 7}), 5u) << "replaced by another session's";
  EXPECT_EQ(tree_.put_sibling(tokens("aa"), 6, {.session = 8}), std::nullopt);
}

TEST_F(SnapshotsTest, ASessionWhoseSiblingIsGoneMayPutAnother) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 2, {.session = 7});
  EXPECT_EQ(tree_.put_plain(tokens("aaaa"), 3), 2u);
  EXPECT_EQ(tree_.put_sibling(tokens("aa"), 4, {.session = 7}), std::nullopt);
}

TEST_F(SnapshotsTest, ASpilledTailIsStillItsSessionsTail) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  ASSERT_TRUE(tree_.spill());
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 2, {.session = 7}), std::nullopt);
  EXPECT_EQ(tree_.put_sibling(tokens("aa"), 3, {.session = 7}), 3u);
}

TEST_F(SnapshotsTest, ASpilledSiblingIsStillItsSessionsSibling) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 2, {.session = 7});
  ASSERT_EQ(tree_.find(tokens("aaaa bbbb"), 8, {.session = 7}).slot, 1u);
  ASSERT_EQ(tree_.spill()->slot, 2u);
  EXPECT_EQ(tree_.put_sibling(tokens("aa"), 3, {.session = 7}), 3u);
}

TEST_F(SnapshotsTest, ASiblingPutOnItsOwnTailReplacesIt) {
  tree_.put_tail(tokens("aaaa"), 1, {.session = 7});
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 2, {.session = 7}), 1u);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsResident(2, 4));
  EXPECT_THAT(tree_.put_tail(tokens("bbbb"), 3, {.session = 7}), ElementsAre(2));
}

// ---- evict_snapshot_lru, snapshot_count ----

TEST_F(SnapshotsTest, EvictSnapshotTakesTheLeastRecentlyUsedOne) {
  tree_.put_plain(tokens("aaaa"), 1);
  tree_.put_tail(tokens("bbbb"), 2, {.session = 7});
  tree_.put_sibling(tokens("bb"), 3, {.session = 7});
  EXPECT_EQ(tree_.find(tokens("aaaa"), 4).slot, 1u);
  EXPECT_EQ(tree_.evict_snapshot(), 2u);
  EXPECT_EQ(tree_.evict_snapshot(), 3u);
  EXPECT_EQ(tree_.evict_snapshot(), 1u);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
}

TEST_F(SnapshotsTest, APutStampsTheSnapshotAlsoWhenItReplacesOne) {
  tree_.put_plain(tokens("aaaa"), 1);
  tree_.put_plain(tokens("bbbb"), 2);
  tree_.put_plain(tokens("aaaa"), 3);
  EXPECT_EQ(tree_.evict_snapshot(), 2u);
  EXPECT_EQ(tree_.evict_snapshot(), 3u);
}

TEST_F(SnapshotsTest, EvictSnapshotPassesOverSpilledOnes) {
  tree_.put_plain(tokens("aaaa"), 1);
  tree_.put_plain(tokens("bbbb"), 2);
  ASSERT_EQ(tree_.spill()->slot, 1u);
  EXPECT_EQ(tree_.evict_snapshot(), 2u);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  EXPECT_EQ(tree_.snapshot_count(), 1u);
}

TEST_F(SnapshotsTest, AnEvictedSnapshotIsNotFound) {
  tree_.put_plain(tokens("aaaa"), 1);
  tree_.put_plain(tokens("aaaa bbbb"), 2);
  ASSERT_EQ(tree_.find(tokens("aaaa"), 4).slot, 1u);
  EXPECT_EQ(tree_.evict_snapshot(), 2u);
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8), IsResident(1, 4));
}

TEST_F(SnapshotsTest, SnapshotCountCountsResidentAndSpilledOnes) {
  EXPECT_EQ(tree_.snapshot_count(), 0u);
  tree_.put_plain(tokens("aaaa"), 1);
  tree_.put_plain(tokens("bbbb"), 2);
  ASSERT_TRUE(tree_.spill());
  EXPECT_EQ(tree_.snapshot_count(), 2u);
  EXPECT_EQ(tree_.evict_snapshot(), 2u);
  EXPECT_EQ(tree_.snapshot_count(), 1u);
}

}  // namespace
}  // namespace cairn
