// "Which one a lookup returns" and "find_snapshot" in the contract.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

constexpr SessionHash kMine = 7;
constexpr SessionHash kOthers = 8;

class SnapshotChoiceTest : public RadixTreeTest {
 protected:
  explicit SnapshotChoiceTest(const RadixTreeOptions& options = {.block_size = 4}) : RadixTreeTest(options) {}

  SnapshotRef looked_up(const char* text, Who who = {}) { return snapshot_of(tree_.touch(tokens(text), who)); }
};

// ---- Depth ----

TEST_F(SnapshotChoiceTest, LookupReturnsTheDeepestSnapshotOnItsTokens) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aaaa bb"), 51);
  tree_.put_plain(tokens("aaaa xx"), 52);
  EXPECT_THAT(looked_up("aaaa bbbb cccc"), IsResident(51, 6));
  EXPECT_THAT(looked_up("aaaa"), IsResident(50, 4));
}

TEST_F(SnapshotChoiceTest, ASnapshotAtMatchedTokensIsReturnedAndADeeperOneIsNot) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa bbbb"), 50);
  tree_.put_plain(tokens("aaaa bbbb c"), 51);
  EXPECT_THAT(looked_up("aaaa bbbb cc"), IsResident(50, 8));
}

TEST_F(SnapshotChoiceTest, ASnapshotMayLieBelowMatchedTokens) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("a"), 50);
  const PrefixMatch match = tree_.touch(tokens("aaaa bbbb"));
  EXPECT_EQ(match.matched_tokens, 8u);
  EXPECT_THAT(snapshot_of(match), IsResident(50, 1));
}

TEST_F(SnapshotChoiceTest, ASnapshotPastTheBlocksThatAreLeftIsNotReturned) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa bbbb"), 50);
  tree_.put_plain(tokens("aaaa"), 51);
  tree_.evict(1);
  EXPECT_THAT(looked_up("aaaa bbbb"), IsResident(51, 4));
}

TEST_F(SnapshotChoiceTest, LookupWithoutAMatchedBlockReturnsNoSnapshot) {
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aa"), 51);
  EXPECT_THAT(looked_up("aaaa bbbb"), IsNoSnapshot());
}

TEST_F(SnapshotChoiceTest, LookupReturnsNoSnapshotOfAnotherAdapter) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.cache(tokens("aaaa"), {2}, {.adapter = 5});
  tree_.put_plain(tokens("aaaa"), 50, {.adapter = 5});
  EXPECT_THAT(looked_up("aaaa"), IsNoSnapshot());
  EXPECT_THAT(looked_up("aaaa", {.adapter = 5}), IsResident(50, 4));
}

TEST_F(SnapshotChoiceTest, ASnapshotOnAnotherBranchIsNotReturned) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("aaaa cccc"), {1, 3});
  tree_.put_plain(tokens("aaaa bbbb"), 50);
  EXPECT_THAT(looked_up("aaaa cccc"), IsNoSnapshot());
}

// ---- Visibility ----

TEST_F(SnapshotChoiceTest, ATailIsVisibleToItsOwnSessionOnly) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_tail(tokens("aaaa"), 50, {.session = kMine});
  EXPECT_THAT(looked_up("aaaa", {.session = kMine}), IsResidentTail(50, 4));
  EXPECT_THAT(looked_up("aaaa", {.session = kOthers}), IsNoSnapshot());
  EXPECT_THAT(looked_up("aaaa", {.session = 0}), IsNoSnapshot());
}

TEST_F(SnapshotChoiceTest, APlainSnapshotOfASessionIsVisibleToThatSessionAndToSessionZero) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50, {.session = kMine});
  EXPECT_THAT(looked_up("aaaa", {.session = kMine}), IsResident(50, 4));
  EXPECT_THAT(looked_up("aaaa", {.session = 0}), IsResident(50, 4));
  EXPECT_THAT(looked_up("aaaa", {.session = kOthers}), IsNoSnapshot());
}

TEST_F(SnapshotChoiceTest, APlainSnapshotOfSessionZeroIsVisibleToAll) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50);
  EXPECT_THAT(looked_up("aaaa", {.session = kMine}), IsResident(50, 4));
  EXPECT_THAT(looked_up("aaaa", {.session = 0}), IsResident(50, 4));
}

TEST_F(SnapshotChoiceTest, ASiblingIsVisibleAsAPlainSnapshotIs) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_tail(tokens("aaaa bbbb"), 50, {.session = kMine});
  tree_.put_sibling(tokens("aaaa"), 51, {.session = kMine});
  EXPECT_THAT(looked_up("aaaa", {.session = kMine}), IsResident(51, 4));
  EXPECT_THAT(looked_up("aaaa bbbb", {.session = 0}), IsResident(51, 4));
  EXPECT_THAT(looked_up("aaaa bbbb", {.session = kOthers}), IsNoSnapshot());
}

TEST_F(SnapshotChoiceTest, AnInvisibleSnapshotDoesNotHideAShallowerVisibleOne) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aaaa bbb"), 51, {.session = kOthers});
  tree_.put_tail(tokens("aaaa bbbb cc"), 52, {.session = kOthers});
  EXPECT_THAT(looked_up("aaaa bbbb cccc", {.session = kMine}), IsResident(50, 4));
  EXPECT_THAT(looked_up("aaaa bbbb cccc", {.session = 0}), IsResident(51, 7));
  EXPECT_THAT(looked_up("aaaa bbbb cccc", {.session = kOthers}), IsResidentTail(52, 10));
}

class SharedSnapshotsTest : public SnapshotChoiceTest {
 protected:
  SharedSnapshotsTest() : SnapshotChoiceTest({.block_size = 4, .share_snapshots_across_sessions = true}) {}
};

TEST_F(SharedSnapshotsTest, PlainSnapshotsAndSiblingsAreVisibleToAllAndTailsStayPrivate) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.put_plain(tokens("aaaa"), 50, {.session = kMine});
  tree_.put_tail(tokens("aaaa bbbb cccc"), 51, {.session = kMine});
  EXPECT_THAT(looked_up("aaaa bbbb cccc", {.session = kOthers}), IsResident(50, 4));
  tree_.put_sibling(tokens("aaaa bbbb"), 52, {.session = kMine});
  EXPECT_THAT(looked_up("aaaa bbbb cccc", {.session = kOthers}), IsResident(52, 8));
  EXPECT_THAT(looked_up("aaaa bbbb cccc", {.session = 0}), IsResident(52, 8));
  EXPECT_THAT(looked_up("aaaa bbbb cccc", {.session = kMine}), IsResidentTail(51, 12));
}

TEST_F(SharedSnapshotsTest, AdaptersStillShareNothing) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50, {.session = kMine, .adapter = 5});
  EXPECT_THAT(looked_up("aaaa", {.session = kMine}), IsNoSnapshot());
}

// ---- Resident or spilled ----

TEST_F(SnapshotChoiceTest, ASpilledSnapshotIsReturnedByItsKey) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa b"), 50);
  const auto spilled = tree_.spill();
  ASSERT_TRUE(spilled);
  const PrefixMatch match = tree_.touch(tokens("aaaa bbbb"));
  EXPECT_EQ(match.ssm_snapshot, std::nullopt);
  EXPECT_EQ(match.ssm_snapshot_tokens, 0u);
  EXPECT_EQ(match.ssm_snapshot_tier_key, spilled->key);
  EXPECT_EQ(match.ssm_snapshot_tier_tokens, 5u);
}

TEST_F(SnapshotChoiceTest, AResidentSnapshotFillsNoTierFields) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa b"), 50);
  const PrefixMatch match = tree_.touch(tokens("aaaa bbbb"));
  EXPECT_EQ(match.ssm_snapshot, 50u);
  EXPECT_EQ(match.ssm_snapshot_tokens, 5u);
  EXPECT_EQ(match.ssm_snapshot_tier_key, std::nullopt);
  EXPECT_EQ(match.ssm_snapshot_tier_tokens, 0u);
}

TEST_F(SnapshotChoiceTest, TheDeepestWinsEvenIfItIsSpilledAndAShallowerOneIsResident) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa bbbb"), 50);
  tree_.put_plain(tokens("aaaa"), 51);
  const auto spilled = tree_.spill();
  ASSERT_EQ(spilled->slot, 50u);
  EXPECT_THAT(looked_up("aaaa bbbb"), IsSpilled(spilled->key, 8));
}

TEST_F(SnapshotChoiceTest, ASpilledTailIsMarkedAsTailAndStaysPrivate) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_tail(tokens("aaaa"), 50, {.session = kMine});
  const auto spilled = tree_.spill();
  ASSERT_TRUE(spilled);
  EXPECT_THAT(looked_up("aaaa", {.session = kMine}), IsSpilledTail(spilled->key, 4));
  EXPECT_THAT(looked_up("aaaa", {.session = kOthers}), IsNoSnapshot());
  EXPECT_THAT(looked_up("aaaa"), IsNoSnapshot());
}

TEST_F(SnapshotChoiceTest, ASpilledPlainSnapshotStaysVisibleAsBefore) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50, {.session = kMine});
  const auto spilled = tree_.spill();
  ASSERT_TRUE(spilled);
  EXPECT_THAT(looked_up("aaaa", {.session = kMine}), IsSpilled(spilled->key, 4));
  EXPECT_THAT(looked_up("aaaa"), IsSpilled(spilled->key, 4));
  EXPECT_THAT(looked_up("aaaa", {.session = kOthers}), IsNoSnapshot());
}

// ---- Stamps ----

TEST_F(SnapshotChoiceTest, LookupStampsTheSnapshotItReturnsAndNoOther) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa bbbb"), 50);
  tree_.put_plain(tokens("aaaa"), 51);
  tree_.put_plain(tokens("zzzz"), 52);
  EXPECT_THAT(looked_up("aaaa bbbb"), IsResident(50, 8));
  EXPECT_EQ(tree_.evict_snapshot(), 51u);
  EXPECT_EQ(tree_.evict_snapshot(), 52u);
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
}

TEST_F(SnapshotChoiceTest, LookupThatReturnsNoSnapshotStampsNone) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50, {.session = kMine});
  tree_.put_plain(tokens("zzzz"), 51);
  EXPECT_THAT(looked_up("aaaa", {.session = kOthers}), IsNoSnapshot());
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
}

TEST_F(SnapshotChoiceTest, AReturnedSlotIsNotPinned) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50);
  EXPECT_EQ(tree_.lookup(tokens("aaaa")).ssm_snapshot, 50u);
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
}

TEST_F(SnapshotChoiceTest, PeekAndInsertStampNoSnapshot) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("zzzz"), 51);
  EXPECT_EQ(tree_.peek(tokens("aaaa")), 4u);
  tree_.cache(tokens("aaaa"), {1});
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
}

// ---- find_snapshot ----

TEST_F(SnapshotChoiceTest, FindNeedsNoBlock) {
  tree_.put_plain(tokens("aa"), 50);
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8), IsResident(50, 2));
}

TEST_F(SnapshotChoiceTest, FindReturnsTheDeepestNoDeeperThanMaxTokens) {
  const Tokens sequence = tokens("aaaa bbbb cc");
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aaaa bbb"), 51);
  tree_.put_plain(sequence, 52);
  EXPECT_THAT(tree_.find(sequence, 0), IsNoSnapshot());
  EXPECT_THAT(tree_.find(sequence, 3), IsNoSnapshot());
  EXPECT_THAT(tree_.find(sequence, 4), IsResident(50, 4));
  EXPECT_THAT(tree_.find(sequence, 6), IsResident(50, 4));
  EXPECT_THAT(tree_.find(sequence, 7), IsResident(51, 7));
  EXPECT_THAT(tree_.find(sequence, 9), IsResident(51, 7));
  EXPECT_THAT(tree_.find(sequence, 10), IsResident(52, 10));
}

TEST_F(SnapshotChoiceTest, MaxTokensBeyondTheEndMeansTheEnd) {
  tree_.put_plain(tokens("aaaa bb"), 50);
  tree_.put_plain(tokens("aaaa bbbb"), 51);
  EXPECT_THAT(tree_.find(tokens("aaaa bbb"), 1000), IsResident(50, 6));
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), static_cast<std::size_t>(-1)), IsResident(51, 8));
  EXPECT_THAT(tree_.find({}, 1000), IsNoSnapshot());
}

TEST_F(SnapshotChoiceTest, AFullyCachedPromptReanchorsBelowItsEnd) {
  tree_.insert_with_snapshot(tokens("aaaa bbbb"), {1, 2}, 50);
  tree_.put_plain(tokens("aaaa"), 51);
  EXPECT_THAT(looked_up("aaaa bbbb"), IsResident(50, 8));
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 7), IsResident(51, 4));
  tree_.release(tokens("aaaa bbbb"));
}

TEST_F(SnapshotChoiceTest, FindTakesNoUseAndStampsNoNode) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.cache(tokens("bbbb"), {2});
  tree_.put_plain(tokens("aaaa"), 50);
  EXPECT_EQ(tree_.find(tokens("aaaa"), 4).slot, 50u);
  EXPECT_EQ(tree_.evict(9).physical, (Blocks{1, 2}));
}

TEST_F(SnapshotChoiceTest, FindStampsTheOneItReturns) {
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aa"), 51);
  tree_.put_plain(tokens("zzzz"), 52);
  EXPECT_EQ(tree_.find(tokens("aaaa"), 4).slot, 50u);
  EXPECT_EQ(tree_.evict_snapshot(), 51u);
  EXPECT_EQ(tree_.evict_snapshot(), 52u);
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
}

TEST_F(SnapshotChoiceTest, FindSeesWhatALookupOfTheSameSessionSees) {
  tree_.put_plain(tokens("aa"), 50);
  tree_.put_plain(tokens("aaaa"), 51, {.session = kMine});
  tree_.put_tail(tokens("aaaa bb"), 52, {.session = kMine});
  EXPECT_THAT(tree_.find(tokens("aaaa bb"), 6, {.session = kMine}), IsResidentTail(52, 6));
  EXPECT_THAT(tree_.find(tokens("aaaa bb"), 6, {.session = 0}), IsResident(51, 4));
  EXPECT_THAT(tree_.find(tokens("aaaa bb"), 6, {.session = kOthers}), IsResident(50, 2));
  EXPECT_THAT(tree_.find(tokens("aaaa bb"), 6, {.session = kMine, .adapter = 1}), IsNoSnapshot());
}

TEST_F(SnapshotChoiceTest, FindReturnsSpilledOnesByTheirKey) {
  tree_.put_tail(tokens("aaaa bb"), 50, {.session = kMine});
  const auto spilled = tree_.spill();
  ASSERT_TRUE(spilled);
  EXPECT_THAT(tree_.find(tokens("aaaa bb"), 6, {.session = kMine}), IsSpilledTail(spilled->key, 6));
}

}  // namespace
}  // namespace cairn
