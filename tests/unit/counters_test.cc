// RadixTreeCounters: what each counter counts, exactly.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

class CountersTest : public RadixTreeTest {};

TEST_F(CountersTest, AllStartAtZero) {
  for (const std::uint64_t value : counter_values(tree_.counters())) EXPECT_EQ(value, 0u);
}

TEST_F(CountersTest, LookupAndAcquireCountLookupsAndTheirHitAndMissedTokens) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.touch(tokens("aaaa bbbb cc"));                     // 8 hit, 2 missed
  tree_.touch(tokens("xxxx xxxx"));                        // 8 missed
  auto [handle, match] = tree_.acquire(tokens("aaaa x"));  // 4 hit, 1 missed
  tree_.release(handle);
  tree_.touch({});
  EXPECT_EQ(tree_.counters().lookups, 4u);
  EXPECT_EQ(tree_.counters().hit_tokens, 12u);
  EXPECT_EQ(tree_.counters().missed_tokens, 11u);
}

TEST_F(CountersTest, PeekFindInsertAndReleaseCountNoLookup) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50);
  EXPECT_EQ(tree_.peek(tokens("aaaa bbbb")), 4u);
  EXPECT_EQ(tree_.find(tokens("aaaa"), 4).slot, 50u);
  EXPECT_EQ(tree_.counters().lookups, 0u);
  EXPECT_EQ(tree_.counters().hit_tokens, 0u);
  EXPECT_EQ(tree_.counters().missed_tokens, 0u);
}

TEST_F(CountersTest, NodesAreCountedWhenCreatedEvictedAndCleared) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("aaaa bbbb"), {3, 4});
  tree_.cache(tokens("aaaa cccc"), {1, 5}, {.adapter = 5});
  tree_.insert_with_snapshot(tokens("zzzz"), {6}, 50);
  auto [handle, match] = tree_.acquire(tokens("zzzz"));
  tree_.extend(handle, tokens("yyyy"), {7});
  EXPECT_EQ(tree_.counters().nodes_created, 6u);
  EXPECT_EQ(tree_.evict(1).size(), 1u);
  EXPECT_EQ(tree_.counters().nodes_evicted, 1u);
  EXPECT_EQ(tree_.clear(5).blocks.size(), 2u);
  EXPECT_EQ(tree_.counters().nodes_cleared, 2u);
  EXPECT_EQ(tree_.stats().cached_blocks, 3u) << "created - evicted - cleared";
  EXPECT_EQ(tree_.clear_all().blocks.size(), 3u);
  EXPECT_EQ(tree_.counters().nodes_cleared, 5u);
  EXPECT_EQ(tree_.counters().nodes_evicted, 1u);
}

TEST_F(CountersTest, ClearsResetNothing) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.touch(tokens("aaaa"));
  tree_.put_plain(tokens("aaaa"), 50);
  auto expected = tree_.counters();
  tree_.clear_all();
  expected.nodes_cleared = 1;
  expected.resident_snapshot_bytes = 0;  // the one that is not a count: what there is now
  EXPECT_EQ(counter_values(tree_.counters()), counter_values(expected));
}

TEST_F(CountersTest, SnapshotHitsAreCountedByKindForLookupAcquireAndFind) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_tail(tokens("aaaa bbbb cccc"), 51, {.session = 7});
  tree_.put_sibling(tokens("aaaa bbbb"), 52, {.session = 7});
  tree_.touch(tokens("aaaa"));                                // plain
  tree_.touch(tokens("aaaa bbbb cccc"), {.session = 7});      // tail
  tree_.touch(tokens("aaaa bbbb cccc"));                      // sibling
  auto [handle, match] = tree_.acquire(tokens("aaaa bbbb"));  // sibling
  tree_.release(handle);
  tree_.find(tokens("aaaa bbbb cccc"), 12, {.session = 7});  // tail
  tree_.find(tokens("aaaa bbbb cccc"), 7);                   // plain
  tree_.find(tokens("aaaa bbbb cccc"), 11, {.session = 7});  // sibling
  tree_.find(tokens("aaaa"), 3);                             // none
  tree_.touch(tokens("xxxx"));                               // none
  EXPECT_EQ(tree_.counters().plain_snapshot_hits, 2u);
  EXPECT_EQ(tree_.counters().tail_snapshot_hits, 2u);
  EXPECT_EQ(tree_.counters().sibling_snapshot_hits, 3u);
  EXPECT_EQ(tree_.counters().spilled_snapshot_hits, 0u);
}

TEST_F(CountersTest, SpilledHitsAreCountedAmongTheirKindsAndOfThoseApart) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_tail(tokens("aaaa bbbb"), 50, {.session = 7});
  tree_.put_plain(tokens("aaaa"), 51);
  ASSERT_EQ(tree_.spill()->slot, 50u);
  ASSERT_EQ(tree_.spill()->slot, 51u);
  tree_.touch(tokens("aaaa bbbb"), {.session = 7});
  tree_.touch(tokens("aaaa bbbb"));
  tree_.find(tokens("aaaa"), 4);
  EXPECT_EQ(tree_.counters().tail_snapshot_hits, 1u);
  EXPECT_EQ(tree_.counters().plain_snapshot_hits, 2u);
  EXPECT_EQ(tree_.counters().spilled_snapshot_hits, 3u);
}

TEST_F(CountersTest, TheGapIsSummedOverLookupsThatReturnedASnapshot) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaa"), 50);
  tree_.touch(tokens("aaaa bbbb"));                      // 8 - 3
  auto [handle, match] = tree_.acquire(tokens("aaaa"));  // 4 - 3
  tree_.release(handle);
  tree_.find(tokens("aaaa bbbb"), 8);  // no lookup
  EXPECT_EQ(tree_.counters().snapshot_gap_tokens, 6u);
  tree_.evict_snapshot();
  tree_.touch(tokens("aaaa bbbb"));  // returned none
  EXPECT_EQ(tree_.counters().snapshot_gap_tokens, 6u);
}

TEST_F(CountersTest, TheGapOfASpilledSnapshotCountsToo) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaaa"), 50);
  ASSERT_TRUE(tree_.spill());
  tree_.cache(tokens("aaaa aaaa"), {1, 3});
  tree_.touch(tokens("aaaa aaaa"));
  EXPECT_EQ(tree_.counters().snapshot_gap_tokens, 3u);
}

TEST_F(CountersTest, PutsAreCountedWhenTheyAreKept) {
  tree_.insert_with_snapshot(tokens("aaaa"), {1}, 50);
  tree_.put_plain(tokens("bbbb"), 51);
  tree_.put_tail(tokens("cccc"), 52, {.session = 7});
  tree_.put_sibling(tokens("cc"), 53, {.session = 7});
  EXPECT_EQ(tree_.counters().snapshots_put, 4u);
  tree_.put_tail(tokens("dddd"), 54, {});              // session 0
  tree_.put_sibling(tokens("c"), 55, {.session = 7});  // has one
  tree_.put_sibling(tokens("c"), 56, {.session = 8});  // has no tail
  EXPECT_EQ(tree_.counters().snapshots_put, 4u);
  EXPECT_EQ(tree_.counters().snapshots_replaced, 0u);
  tree_.release(tokens("aaaa"));
}

TEST_F(CountersTest, APutThatFindsItsPlaceTakenCountsAsReplacing) {
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aaaa"), 51);
  EXPECT_EQ(tree_.counters().snapshots_replaced, 1u);
  ASSERT_TRUE(tree_.spill());
  tree_.put_tail(tokens("aaaa"), 52, {.session = 7});
  EXPECT_EQ(tree_.counters().snapshots_replaced, 2u) << "a spilled one holds its place";
  EXPECT_EQ(tree_.counters().tails_replaced, 0u);
  tree_.put_plain(tokens("aaaa"), 53);
  EXPECT_EQ(tree_.counters().snapshots_replaced, 3u);
  EXPECT_EQ(tree_.counters().tails_replaced, 0u) << "replaced by a plain one";
  EXPECT_EQ(tree_.counters().snapshots_put, 4u);
}

TEST_F(CountersTest, ATailReplacedByAnotherSessionsTailIsCountedApart) {
  tree_.put_tail(tokens("aaaa"), 50, {.session = 7});
  tree_.put_tail(tokens("aaaa"), 51, {.session = 8});
  EXPECT_EQ(tree_.counters().snapshots_replaced, 1u);
  EXPECT_EQ(tree_.counters().tails_replaced, 1u);
  tree_.put_tail(tokens("bbbb"), 52, {.session = 8});
  EXPECT_EQ(tree_.counters().tails_replaced, 1u) << "a sweep replaces nothing";
  EXPECT_EQ(tree_.counters().snapshots_replaced, 1u);
}

TEST_F(CountersTest, EvictionsSpillsAndDropsAreCounted) {
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("bb"), 51);
  tree_.put_plain(tokens("cccc"), 52);
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
  EXPECT_EQ(tree_.spill(4)->action, TierEvict::Action::kDrop);
  EXPECT_EQ(tree_.spill(4)->action, TierEvict::Action::kSpill);
  EXPECT_FALSE(tree_.spill());
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  EXPECT_EQ(tree_.counters().snapshots_evicted, 2u);
  EXPECT_EQ(tree_.counters().spills, 1u);
}

TEST_F(CountersTest, PromotionsForgottenAndOrphanedKeysAreCountedWhenTheyHappen) {
  tree_.put_plain(tokens("aaaa"), 50);
  const TierKey promoted = tree_.spill()->key;
  tree_.put_plain(tokens("bbbb"), 51);
  const TierKey forgotten = tree_.spill()->key;
  tree_.put_plain(tokens("cccc"), 52);
  ASSERT_TRUE(tree_.spill());
  tree_.put_tail(tokens("dddd"), 53, {.session = 7});
  ASSERT_TRUE(tree_.spill());

  EXPECT_TRUE(tree_.promote(promoted, 54));
  EXPECT_FALSE(tree_.promote(promoted, 55));
  EXPECT_TRUE(tree_.forget(forgotten));
  EXPECT_FALSE(tree_.forget(forgotten));
  tree_.put_plain(tokens("cccc"), 56);                 // orphans by replacing
  tree_.put_tail(tokens("eeee"), 57, {.session = 7});  // orphans by sweeping
  EXPECT_EQ(tree_.counters().promotions, 1u);
  EXPECT_EQ(tree_.counters().forgotten_keys, 1u);
  EXPECT_EQ(tree_.counters().orphaned_keys, 2u) << "counted when they die, before they are taken";
  EXPECT_EQ(tree_.take_orphans().size(), 2u);
  EXPECT_EQ(tree_.counters().orphaned_keys, 2u);
}

TEST_F(CountersTest, KeysThatDieInAClearAreNotOrphaned) {
  tree_.put_plain(tokens("aaaa"), 50);
  ASSERT_TRUE(tree_.spill());
  EXPECT_EQ(tree_.clear_all().tier_keys.size(), 1u);
  EXPECT_EQ(tree_.counters().orphaned_keys, 0u);
  EXPECT_EQ(tree_.counters().forgotten_keys, 0u);
  EXPECT_EQ(tree_.counters().snapshots_evicted, 0u);
}

TEST_F(CountersTest, ACallThatFollowsTheProtocolCountsNoError) {
  const PrefixMatch match = tree_.lookup(tokens("aaaa bbbb"));
  tree_.insert(tokens("aaaa bbbb"), {1, 2}, {.matched_tokens = match.matched_tokens});
  tree_.insert(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.matched_tokens = 8});
  tree_.release(tokens("aaaa bbbb cccc"));
  tree_.lookup(tokens("aaaa bbbb xxxx"));
  tree_.release_matched(tokens("aaaa bbbb xxxx"), 8);
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

TEST_F(CountersTest, EachReleaseOfWhatNobodyHoldsCountsOneErrorHoweverManyBlocksItNames) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.release(tokens("aaaa bbbb cccc"));
  EXPECT_EQ(tree_.counters().protocol_errors, 1u);
  tree_.release_matched(tokens("aaaa bbbb"), 8);
  EXPECT_EQ(tree_.counters().protocol_errors, 2u);
}

}  // namespace
}  // namespace cairn
