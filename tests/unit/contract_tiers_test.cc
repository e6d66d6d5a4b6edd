// Spilling in the contract: evict_snapshot_to_tier, promote_snapshot, forget_snapshot_tier_key,
// take_orphaned_tier_keys.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Action = TierEvict::Action;

class TiersTest : public RadixTreeTest {
 protected:
  explicit TiersTest(const RadixTreeOptions& options = {.block_size = 4}) : RadixTreeTest(options) {}

  // Puts a plain snapshot and spills it at once; there must be no older resident one.
  TierKey put_spilled(const char* text, SnapshotId slot, Who who = {}) {
    tree_.put_plain(tokens(text), slot, who);
    const auto evicted = tree_.spill();
    EXPECT_TRUE(evicted && evicted->slot == slot);
    return evicted ? evicted->key : 0;
  }
};

// ---- evict_snapshot_to_tier ----

TEST_F(TiersTest, WithoutResidentSnapshotsThereIsNothingToSpill) {
  EXPECT_FALSE(tree_.spill());
  put_spilled("aaaa", 1);
  EXPECT_FALSE(tree_.spill()) << "a spilled one is no victim";
}

TEST_F(TiersTest, SpillingPicksTheLeastRecentlyUsedResidentSnapshot) {
  tree_.put_plain(tokens("aaaa"), 1);
  tree_.put_plain(tokens("bbbb"), 2);
  tree_.put_plain(tokens("cccc"), 3);
  ASSERT_EQ(tree_.find(tokens("aaaa"), 4).slot, 1u);
  EXPECT_EQ(tree_.spill()->slot, 2u);
  EXPECT_EQ(tree_.spill()->slot, 3u);
  EXPECT_EQ(tree_.spill()->slot, 1u);
  EXPECT_FALSE(tree_.spill());
}

TEST_F(TiersTest, ASpilledSnapshotStaysFindableUnderItsKey) {
  tree_.put_plain(tokens("aaaa bb"), 1);
  const auto evicted = tree_.spill();
  ASSERT_TRUE(evicted);
  EXPECT_EQ(evicted->action, Action::kSpill);
  EXPECT_EQ(evicted->slot, 1u);
  EXPECT_EQ(evicted->tokens, 6u);
  EXPECT_EQ(tree_.snapshot_count(), 1u);
  EXPECT_THAT(tree_.find(tokens("aaaa bb"), 6), IsSpilled(evicted->key, 6));
}

TEST_F(TiersTest, AVictimShallowerThanMinTokensIsDropped) {
  tree_.put_plain(tokens("aaaa bb"), 1);
  const auto evicted = tree_.spill(7);
  ASSERT_TRUE(evicted);
  EXPECT_EQ(evicted->action, Action::kDrop);
  EXPECT_EQ(evicted->slot, 1u);
  EXPECT_EQ(evicted->key, 0u);
  EXPECT_EQ(evicted->tokens, 6u);
  EXPECT_EQ(tree_.snapshot_count(), 0u);
  EXPECT_THAT(tree_.find(tokens("aaaa bb"), 6), IsNoSnapshot());
}

TEST_F(TiersTest, AVictimOfExactlyMinTokensIsSpilled) {
  tree_.put_plain(tokens("aaaa bb"), 1);
  EXPECT_EQ(tree_.spill(6)->action, Action::kSpill);
}

TEST_F(TiersTest, WithMinTokensZeroNothingIsDropped) {
  tree_.put_plain(tokens("a"), 1);
  EXPECT_EQ(tree_.spill(0)->action, Action::kSpill);
}

TEST_F(TiersTest, MinTokensDoesNotChangeTheVictim) {
  tree_.put_plain(tokens("aa"), 1);
  tree_.put_plain(tokens("bbbb bbbb"), 2);
  const auto first = tree_.spill(4);
  EXPECT_EQ(first->slot, 1u) << "the oldest goes, even if it is too shallow to be spilled";
  EXPECT_EQ(first->action, Action::kDrop);
  const auto second = tree_.spill(4);
  EXPECT_EQ(second->slot, 2u);
  EXPECT_EQ(second->action, Action::kSpill);
}

TEST_F(TiersTest, KeysCountUpFromTheFirstOneAndAreNeverReused) {
  EXPECT_EQ(put_spilled("aaaa", 1), 1u);
  EXPECT_EQ(put_spilled("bbbb", 1), 2u);
  EXPECT_TRUE(tree_.forget(2));
  EXPECT_EQ(put_spilled("cccc", 1), 3u);
  EXPECT_TRUE(tree_.promote(3, 1));
  EXPECT_EQ(tree_.spill()->key, 4u) << "a promoted snapshot that is spilled again gets a new key";
  tree_.clear_all();
  EXPECT_EQ(put_spilled("aaaa", 1), 5u);
}

TEST_F(TiersTest, ADropUsesUpNoKey) {
  tree_.put_plain(tokens("aa"), 1);
  EXPECT_EQ(tree_.spill(4)->action, Action::kDrop);
  EXPECT_EQ(put_spilled("aaaa", 1), 1u);
}

class FirstTierKeyTest : public TiersTest {
 protected:
  FirstTierKeyTest() : TiersTest({.block_size = 4, .first_tier_key = 1'000'000'000'000}) {}
};

TEST_F(FirstTierKeyTest, KeysStartAtTheOption) {
  EXPECT_EQ(put_spilled("aaaa", 1), 1'000'000'000'000u);
  EXPECT_EQ(put_spilled("bbbb", 1), 1'000'000'000'001u);
}

TEST_F(TiersTest, TheSlotOfASpilledSnapshotIsFreeForReuse) {
  const TierKey key = put_spilled("aaaa", 1);
  EXPECT_EQ(tree_.put_plain(tokens("bbbb"), 1), std::nullopt);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsSpilled(key, 4));
  EXPECT_THAT(tree_.find(tokens("bbbb"), 4), IsResident(1, 4));
}

TEST_F(TiersTest, SpillingTouchesNoBlock) {
  tree_.insert_with_snapshot(tokens("aaaa"), {1}, 50);
  ASSERT_TRUE(tree_.spill());
  EXPECT_EQ(tree_.stats().cached_blocks, 1u);
  EXPECT_TRUE(tree_.evict(9).empty());
  tree_.release(tokens("aaaa"));
  EXPECT_EQ(tree_.evict(9).size(), 1u);
  EXPECT_EQ(tree_.snapshot_count(), 1u) << "and evicting blocks removes no spilled snapshot";
}

// ---- promote_snapshot ----

TEST_F(TiersTest, APromotedSnapshotIsResidentInItsNewSlotAndItsKeyIsDead) {
  const TierKey key = put_spilled("aaaa bb", 1);
  EXPECT_TRUE(tree_.promote(key, 9));
  EXPECT_THAT(tree_.find(tokens("aaaa bb"), 6), IsResident(9, 6));
  EXPECT_FALSE(tree_.promote(key, 10)) << "another thread was first";
  EXPECT_FALSE(tree_.forget(key));
  EXPECT_THAT(tree_.take_orphans(), IsEmpty());
  EXPECT_EQ(tree_.evict_snapshot(), 9u);
}

TEST_F(TiersTest, PromoteKeepsSessionAndKind) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 2, {.session = 7});
  const auto tail = tree_.spill();
  const auto sibling = tree_.spill();
  EXPECT_TRUE(tree_.promote(tail->key, 3));
  EXPECT_TRUE(tree_.promote(sibling->key, 4));
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8, {.session = 7}), IsResidentTail(3, 8));
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8, {.session = 8}), IsNoSnapshot());
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8), IsResident(4, 4));
  EXPECT_THAT(tree_.put_tail(tokens("cccc"), 5, {.session = 7}), UnorderedElementsAre(3, 4)) << "swept as ever";
}

TEST_F(TiersTest, PromoteDoesNotStamp) {
  const TierKey key = put_spilled("aaaa", 1);
  tree_.put_plain(tokens("bbbb"), 2);
  EXPECT_TRUE(tree_.promote(key, 3));
  EXPECT_EQ(tree_.evict_snapshot(), 3u);
  EXPECT_EQ(tree_.evict_snapshot(), 2u);
}

TEST_F(TiersTest, AHitStampsASpilledSnapshotAndThatStampSurvivesPromotion) {
  const TierKey key = put_spilled("aaaa", 1);
  tree_.put_plain(tokens("bbbb"), 2);
  ASSERT_EQ(tree_.find(tokens("aaaa"), 4).tier_key, key);
  EXPECT_TRUE(tree_.promote(key, 3));
  EXPECT_EQ(tree_.evict_snapshot(), 2u);
  EXPECT_EQ(tree_.evict_snapshot(), 3u);
}

TEST_F(TiersTest, PromoteOfAnUnknownKeyIsFalseAndChangesNothing) {
  const TierKey key = put_spilled("aaaa", 1);
  for (const TierKey unknown : {TierKey{0}, key + 1, key + 1000}) EXPECT_FALSE(tree_.promote(unknown, 5));
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsSpilled(key, 4));
  EXPECT_EQ(tree_.put_plain(tokens("bbbb"), 5), std::nullopt) << "slot 5 stayed the caller's";
}

TEST_F(TiersTest, ADeadKeyIsAnsweredBeforeTheNewSlotIsLookedAt) {
  tree_.put_plain(tokens("bbbb"), 1);
  EXPECT_NO_THROW(EXPECT_FALSE(tree_.promote(77, 1))) << "slot 1 is resident, but key 77 is dead";
}

// ---- forget_snapshot_tier_key ----

TEST_F(TiersTest, ForgettingAKeyRemovesItsSpilledSnapshot) {
  const TierKey key = put_spilled("aaaa", 1);
  EXPECT_TRUE(tree_.forget(key));
  EXPECT_EQ(tree_.snapshot_count(), 0u);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsNoSnapshot());
  EXPECT_FALSE(tree_.forget(key));
  EXPECT_FALSE(tree_.promote(key, 2));
  EXPECT_THAT(tree_.take_orphans(), IsEmpty()) << "the caller knows already";
}

TEST_F(TiersTest, ForgettingAnUnknownKeyIsFalse) {
  EXPECT_FALSE(tree_.forget(0));
  EXPECT_FALSE(tree_.forget(1));
}

TEST_F(TiersTest, AResidentSnapshotIsNeverForgotten) {
  const TierKey key = put_spilled("aaaa", 1);
  EXPECT_TRUE(tree_.promote(key, 2));
  EXPECT_FALSE(tree_.forget(key));
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsResident(2, 4));
}

TEST_F(TiersTest, ASessionWhoseTailWasForgottenHasNone) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  EXPECT_TRUE(tree_.forget(tree_.spill()->key));
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 2, {.session = 7}), 2u);
}

// ---- take_orphaned_tier_keys ----

TEST_F(TiersTest, TheKeyOfAReplacedSpilledSnapshotIsOrphanedOnce) {
  const TierKey key = put_spilled("aaaa", 1);
  EXPECT_THAT(tree_.take_orphans(), IsEmpty());
  tree_.put_plain(tokens("aaaa"), 2);
  EXPECT_THAT(tree_.take_orphans(), ElementsAre(key));
  EXPECT_THAT(tree_.take_orphans(), IsEmpty());
}

TEST_F(TiersTest, EveryKindOfPutOrphansTheKeyItReplaces) {
  const TierKey by_insert = put_spilled("aaaa", 1);
  const TierKey by_tail = put_spilled("bbbb bbbb", 1);
  const TierKey by_sibling = put_spilled("bbbb", 1);
  EXPECT_EQ(tree_.insert_with_snapshot(tokens("aaaa"), {1}, 2).displaced, std::nullopt);
  EXPECT_THAT(tree_.put_tail(tokens("bbbb bbbb"), 3, {.session = 7}), IsEmpty());
  EXPECT_EQ(tree_.put_sibling(tokens("bbbb"), 4, {.session = 7}), std::nullopt);
  EXPECT_THAT(tree_.take_orphans(), UnorderedElementsAre(by_insert, by_tail, by_sibling));
  tree_.release(tokens("aaaa"));
}

TEST_F(TiersTest, TheKeysOfASweptTailAndSiblingAreOrphaned) {
  tree_.put_tail(tokens("aaaa bbbb"), 1, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 2, {.session = 7});
  const auto tail = tree_.spill();
  const auto sibling = tree_.spill();
  EXPECT_THAT(tree_.put_tail(tokens("cccc"), 3, {.session = 7}), IsEmpty());
  EXPECT_THAT(tree_.take_orphans(), UnorderedElementsAre(tail->key, sibling->key));
}

TEST_F(TiersTest, DeclinedPutsOrphanNothing) {
  const TierKey key = put_spilled("aaaa", 1);
  EXPECT_THAT(tree_.put_tail(tokens("aaaa"), 2, {}), ElementsAre(2));
  EXPECT_EQ(tree_.put_sibling(tokens("aaaa"), 2, {.session = 7}), 2u);
  EXPECT_THAT(tree_.take_orphans(), IsEmpty());
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsSpilled(key, 4));
}

}  // namespace
}  // namespace cairn
