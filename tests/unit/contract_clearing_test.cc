// "Clearing" in the contract: clear, epochs, and the calls that take the epoch they started in.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class ClearingTest : public RadixTreeTest {};

TEST_F(ClearingTest, NothingCachedBeforeAClearIsFoundAfterIt) {
  tree_.insert_with_snapshot(tokens("aaaa bbbb"), {1, 2}, 50);
  tree_.put_plain(tokens("cc"), 51);
  tree_.clear_all();
  EXPECT_TRUE(tree_.lookup(tokens("aaaa bbbb")).empty());
  EXPECT_EQ(tree_.peek(tokens("aaaa bbbb")), 0u);
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8), IsNoSnapshot());
  EXPECT_THAT(tree_.find(tokens("cc"), 2), IsNoSnapshot());
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
  EXPECT_EQ(tree_.stats().entries, 0u);
  EXPECT_EQ(tree_.snapshot_count(), 0u);
}

TEST_F(ClearingTest, AClearReturnsEveryBlockAndDiskIdInUseOrNot) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.disk = {11, kNoDiskBlock}});
  tree_.insert(tokens("aaaa cccc"), {1, 3}, {.disk = {kNoDiskBlock, 33}});
  const Cleared cleared = tree_.clear_all();
  EXPECT_THAT(cleared.blocks.physical, UnorderedElementsAre(1, 2, 3));
  EXPECT_THAT(cleared.blocks.disk_block_ids, UnorderedElementsAre(11, 33));
  EXPECT_THAT(cleared.slots, IsEmpty());
  EXPECT_THAT(cleared.tier_keys, IsEmpty());
}

TEST_F(ClearingTest, AClearReturnsResidentSlotsAndTheKeysOfSpilledSnapshots) {
  tree_.put_plain(tokens("aaaa"), 50);
  const auto spilled = tree_.spill();
  tree_.put_tail(tokens("bbbb"), 51, {.session = 7});
  tree_.put_sibling(tokens("bb"), 52, {.session = 7});
  const Cleared cleared = tree_.clear_all();
  EXPECT_THAT(cleared.slots, UnorderedElementsAre(51, 52));
  EXPECT_THAT(cleared.tier_keys, ElementsAre(spilled->key));
  EXPECT_TRUE(cleared.blocks.empty());
  EXPECT_FALSE(tree_.promote(spilled->key, 50));
  EXPECT_THAT(tree_.take_orphans(), IsEmpty()) << "the clear has named them already";
}

TEST_F(ClearingTest, KeysThatWereOrphanedBeforeAClearAreTakenAfterIt) {
  tree_.put_plain(tokens("aaaa"), 50);
  const auto spilled = tree_.spill();
  tree_.put_plain(tokens("aaaa"), 51);
  EXPECT_THAT(tree_.clear_all().tier_keys, IsEmpty());
  EXPECT_THAT(tree_.take_orphans(), ElementsAre(spilled->key));
}

TEST_F(ClearingTest, AClearOfAnAdapterLeavesTheOthersAlone) {
  tree_.cache(tokens("aaaa"), {1}, {.disk = {11}});
  tree_.cache(tokens("aaaa"), {2}, {.adapter = 5, .disk = {22}});
  tree_.insert(tokens("bbbb"), {3}, {.adapter = 5});
  tree_.put_plain(tokens("aaaa"), 50);
  const TierKey base_key = tree_.spill()->key;
  tree_.put_plain(tokens("aaaa"), 51, {.adapter = 5});
  const TierKey adapter_key = tree_.spill()->key;
  tree_.put_plain(tokens("bbbb"), 52);
  tree_.put_plain(tokens("bbbb"), 53, {.adapter = 5});

  const Cleared cleared = tree_.clear(5);
  EXPECT_THAT(cleared.blocks.physical, UnorderedElementsAre(2, 3));
  EXPECT_THAT(cleared.blocks.disk_block_ids, ElementsAre(22));
  EXPECT_THAT(cleared.slots, ElementsAre(53));
  EXPECT_THAT(cleared.tier_keys, ElementsAre(adapter_key));
  EXPECT_THAT(tree_.touch(tokens("aaaa")).matched_blocks, ElementsAre(1));
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsSpilled(base_key, 4));
  EXPECT_THAT(tree_.find(tokens("bbbb"), 4), IsResident(52, 4));
  EXPECT_TRUE(tree_.touch(tokens("aaaa"), {.adapter = 5}).empty());
  EXPECT_EQ(tree_.stats().cached_blocks, 1u);
}

TEST_F(ClearingTest, AClearOfTheBaseModelIsAClearOfAdapterZeroOnly) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.cache(tokens("aaaa"), {2}, {.adapter = 5});
  EXPECT_THAT(tree_.clear(0).blocks.physical, ElementsAre(1));
  EXPECT_EQ(tree_.peek(tokens("aaaa"), 5), 4u);
}

TEST_F(ClearingTest, AClearOfAllTakesEveryAdapter) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.cache(tokens("aaaa"), {2}, {.adapter = 5});
  tree_.insert(tokens("aaaa"), {3}, {.adapter = 6});
  EXPECT_THAT(tree_.clear_all().blocks.physical, UnorderedElementsAre(1, 2, 3));
}

TEST_F(ClearingTest, AClearOfAnEmptyCacheReturnsNothingAndCounts) {
  const Cleared of_adapter = tree_.clear(5);
  EXPECT_TRUE(of_adapter.blocks.empty());
  const Cleared of_all = tree_.clear_all();
  EXPECT_TRUE(of_all.blocks.empty());
  EXPECT_THAT(of_all.slots, IsEmpty());
  EXPECT_EQ(tree_.epoch(5), 2u);
}

TEST_F(ClearingTest, EpochCountsTheClearsOfAnAdapter) {
  EXPECT_EQ(tree_.epoch(0), 0u);
  EXPECT_EQ(tree_.epoch(5), 0u);
  tree_.clear(5);
  EXPECT_EQ(tree_.epoch(5), 1u);
  EXPECT_EQ(tree_.epoch(0), 0u);
  tree_.clear_all();
  EXPECT_EQ(tree_.epoch(5), 2u);
  EXPECT_EQ(tree_.epoch(0), 1u);
  EXPECT_EQ(tree_.epoch(12345), 1u) << "a clear of all counts for each, also for one never seen";
  tree_.clear(0);
  EXPECT_EQ(tree_.epoch(0), 2u);
}

TEST_F(ClearingTest, TheTreeIsUsedAfterAClearAsBefore) {
  tree_.insert_with_snapshot(tokens("aaaa bbbb"), {1, 2}, 50);
  tree_.clear_all();
  EXPECT_THAT(tree_.insert(tokens("aaaa bbbb"), {3, 4}).blocks, ElementsAre(3, 4));
  EXPECT_EQ(tree_.put_plain(tokens("aaaa bbbb"), 50), std::nullopt) << "its slot was given back";
  EXPECT_TRUE(tree_.evict(9).empty());
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(4, 3));
}

TEST_F(ClearingTest, UsesAreGoneWithTheirNodes) {
  tree_.insert(tokens("aaaa"), {1});
  tree_.clear_all();
  tree_.cache(tokens("aaaa"), {2});
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2)) << "the use from before does not hold the new node";
}

TEST_F(ClearingTest, ASessionLosesTheTailOfAClearedAdapterOnly) {
  tree_.put_tail(tokens("aaaa"), 50, {.session = 7, .adapter = 5});
  tree_.put_tail(tokens("aaaa"), 51, {.session = 8});
  tree_.clear(5);
  EXPECT_EQ(tree_.put_sibling(tokens("aa"), 52, {.session = 7, .adapter = 5}), 52u) << "no tail any more";
  EXPECT_EQ(tree_.put_sibling(tokens("aa"), 53, {.session = 8}), std::nullopt);
  EXPECT_THAT(tree_.put_tail(tokens("aaaa"), 54, {.session = 7}), ElementsAre(51));
}

// ---- The calls that take an epoch ----

class EpochTest : public RadixTreeTest {
 protected:
  const Tokens kSequence = tokens("aaaa bbbb");
  const Blocks kTable = {1, 2};
};

TEST_F(EpochTest, InTheirOwnEpochTheyDoWhatTheOthersDo) {
  RadixTree& index = tree_.index();
  tree_.clear(5);
  const std::uint64_t epoch = tree_.epoch(5);
  const RadixTree::EpochInsert inserted = index.insert(tokens("aaaa"), kTable, {}, 4, 0, 5, epoch);
  tree_.note_acquired(inserted);
  EXPECT_FALSE(inserted.epoch_passed);
  EXPECT_THAT(inserted.blocks, ElementsAre(1));
  const auto with_snapshot = index.insert_with_snapshot(kSequence, kTable, {}, 4, 50, 7, 4, 5, epoch);
  tree_.note_acquired(with_snapshot.acquired);
  tree_.note_put(50, with_snapshot.displaced);
  EXPECT_FALSE(with_snapshot.epoch_passed);
  EXPECT_EQ(with_snapshot.displaced, std::nullopt);
  EXPECT_THAT(with_snapshot.acquired.blocks, ElementsAre(2));
  EXPECT_EQ(index.insert_intermediate_snapshot(kSequence, kTable, {}, 4, 51, 7, 0, 5, epoch), 50u);
  tree_.note_put(51, 50);
  EXPECT_THAT(index.insert_tail_snapshot(kSequence, 52, 7, 5, epoch), ElementsAre(51));
  tree_.note_put(52, 51);
  EXPECT_EQ(index.insert_tail_sibling_snapshot(tokens("aaaa"), 53, 7, 5, epoch), std::nullopt);
  tree_.note_put(53, {});
  EXPECT_EQ(tree_.snapshot_count(), 2u);
  index.release_matched(kSequence, 4, 8, 5, epoch);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

TEST_F(EpochTest, AnInsertFromBeforeAClearDoesNothingAndSaysSo) {
  const std::uint64_t epoch = tree_.epoch(0);
  tree_.clear(0);
  const auto inserted = tree_.index().insert(kSequence, kTable, DiskBlocks{11, 22}, 4, 0, 0, epoch);
  EXPECT_TRUE(inserted.epoch_passed);
  EXPECT_THAT(inserted.blocks, IsEmpty());
  EXPECT_THAT(inserted.disk_block_ids, IsEmpty());
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
}

TEST_F(EpochTest, AClearOfAllEndsAnEpochToo) {
  const std::uint64_t epoch = tree_.epoch(5);
  tree_.clear_all();
  EXPECT_TRUE(tree_.index().insert(kSequence, kTable, {}, 4, 0, 5, epoch).epoch_passed);
}

TEST_F(EpochTest, AClearOfAnotherAdapterEndsNoEpoch) {
  const std::uint64_t epoch = tree_.epoch(5);
  tree_.clear(6);
  const auto inserted = tree_.index().insert(kSequence, kTable, {}, 4, 0, 5, epoch);
  tree_.note_acquired(inserted);
  EXPECT_FALSE(inserted.epoch_passed);
  EXPECT_EQ(inserted.blocks.size(), 2u);
}

TEST_F(EpochTest, ASnapshotFromBeforeAClearComesBackAsDisplaced) {
  RadixTree& index = tree_.index();
  const std::uint64_t epoch = tree_.epoch(0);
  tree_.clear(0);
  tree_.put_tail(tokens("cccc"), 60, {.session = 7});
  tree_.put_plain(kSequence, 61);
  const auto with_snapshot = index.insert_with_snapshot(kSequence, kTable, {}, 4, 50, 7, 0, 0, epoch);
  EXPECT_TRUE(with_snapshot.epoch_passed);
  EXPECT_EQ(with_snapshot.displaced, 50u);
  EXPECT_THAT(with_snapshot.acquired.blocks, IsEmpty());
  EXPECT_EQ(index.insert_intermediate_snapshot(kSequence, kTable, {}, 4, 51, 7, 0, 0, epoch), 51u);
  EXPECT_THAT(index.insert_tail_snapshot(kSequence, 52, 7, 0, epoch), ElementsAre(52));
  EXPECT_EQ(index.insert_tail_sibling_snapshot(tokens("aaaa"), 53, 7, 0, epoch), 53u);
  EXPECT_EQ(tree_.snapshot_count(), 2u);
  EXPECT_THAT(tree_.find(kSequence, 8), IsResident(61, 8)) << "what is there since the clear stays";
  EXPECT_THAT(tree_.find(tokens("cccc"), 4, {.session = 7}), IsResidentTail(60, 4));
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
}

TEST_F(EpochTest, AReleaseFromBeforeAClearTakesNoUseOfTheNodesCreatedSince) {
  tree_.insert(kSequence, kTable);
  const std::uint64_t epoch = tree_.epoch(0);
  tree_.clear(0);
  tree_.insert(kSequence, {3, 4});
  tree_.index().release(kSequence, 4, 0, epoch);
  tree_.index().release_matched(kSequence, 4, 8, 0, epoch);
  EXPECT_TRUE(tree_.evict(9).empty());
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
  tree_.index().release(kSequence, 4, 0, tree_.epoch(0));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(4, 3));
}

}  // namespace
}  // namespace cairn
