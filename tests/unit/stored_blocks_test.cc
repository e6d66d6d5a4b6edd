// "Blocks in a store" in <cairn/radix_tree.h>: evict_blocks_to_tier, save_blocks, forget_tier_key, and what lookups
// say of blocks that have a record.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Action = BlockSpill::Action;

MATCHER_P4(Is, block, action, key, parent, "") {
  return arg.block == static_cast<BlockId>(block) && arg.action == action && arg.key == static_cast<TierKey>(key) &&
         arg.parent == static_cast<TierKey>(parent);
}

class StoredBlocksTest : public RadixTreeTest {
 protected:
  // What an engine does that has read the records: the blocks are there again.
  void fetch(const char* text, const Blocks& blocks) { tree_.cache(tokens(text), blocks); }
};

// ---- evict_blocks_to_tier ----

TEST_F(StoredBlocksTest, EvictedBlocksAreStoredUnderKeysThatNameTheirLineage) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3}, {.adapter = 5});
  const BlockSpills spills = tree_.evict_to_tier(3);
  ASSERT_EQ(spills.blocks.size(), 3u);
  const auto& [c, b, a] = std::tie(spills.blocks[0], spills.blocks[1], spills.blocks[2]);
  EXPECT_EQ(c.block, 3u) << "the least recently used end first, as evict";
  EXPECT_EQ(b.block, 2u);
  EXPECT_EQ(a.block, 1u);
  for (const BlockSpill& spill : spills.blocks) {
    EXPECT_EQ(spill.action, Action::kSpill);
    EXPECT_EQ(spill.adapter_id, 5u);
  }
  EXPECT_EQ(a.parent, 0u);
  EXPECT_EQ(b.parent, a.key);
  EXPECT_EQ(c.parent, b.key);
  EXPECT_EQ(c.first_token, 8u);
  EXPECT_EQ(a.first_token, 0u);
  EXPECT_EQ(spills.tokens, tokens("cccc bbbb aaaa"));
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
  EXPECT_EQ(tree_.index().recorded_blocks(), 3u);
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb cccc dddd"), 5), ElementsAre(a.key, b.key, c.key));
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb cccc dddd"), 6), IsEmpty()) << "another adapter's";
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb cxcc"), 5), ElementsAre(a.key, b.key));
}

TEST_F(StoredBlocksTest, TheDiskIdsOfEvictedBlocksComeBack) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.disk = {11, kNoDiskBlock}});
  EXPECT_THAT(tree_.evict_to_tier(2).disk_block_ids, ElementsAre(11u));
}

TEST_F(StoredBlocksTest, ItEvictsWhatEvictWould) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.cache(tokens("bbbb"), {2});
  tree_.insert(tokens("cccc"), {3});
  tree_.touch(tokens("aaaa"));
  const BlockSpills spills = tree_.evict_to_tier(9);
  ASSERT_EQ(spills.blocks.size(), 2u) << "one is in use";
  EXPECT_EQ(spills.blocks[0].block, 2u);
  EXPECT_EQ(spills.blocks[1].block, 1u);
  EXPECT_EQ(tree_.counters().nodes_evicted, 2u);
  EXPECT_EQ(tree_.counters().blocks_spilled, 2u);
  tree_.release(tokens("cccc"));
}

TEST_F(StoredBlocksTest, AShortChainIsDroppedAndLeavesNothingBehind) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  const BlockSpills spills = tree_.evict_to_tier(2, 9);
  EXPECT_THAT(spills.blocks, ElementsAre(Is(2, Action::kDrop, 0, 0), Is(1, Action::kDrop, 0, 0)));
  EXPECT_EQ(spills.tokens, tokens("bbbb aaaa"));
  EXPECT_EQ(tree_.index().recorded_blocks(), 0u);
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb")), IsEmpty());
}

TEST_F(StoredBlocksTest, ABlockThatEndsAtMinTokensIsSpilledAndThoseAboveItToo) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  const BlockSpills spills = tree_.evict_to_tier(3, 12);
  for (const BlockSpill& spill : spills.blocks) EXPECT_EQ(spill.action, Action::kSpill) << spill.block;
}

TEST_F(StoredBlocksTest, AShortChainIsSpilledUpToTheSnapshotOnIt) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.put_plain(tokens("aaaa bbbb"), 50);
  const BlockSpills spills = tree_.evict_to_tier(3, 100);
  ASSERT_EQ(spills.blocks.size(), 3u);
  EXPECT_EQ(spills.blocks[0].action, Action::kDrop);
  EXPECT_EQ(spills.blocks[1].action, Action::kSpill) << "the snapshot at its end is worth nothing without it";
  EXPECT_EQ(spills.blocks[2].action, Action::kSpill);
}

TEST_F(StoredBlocksTest, ABranchThatIsStoredKeepsTheStemBelowWhichItHangs) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("aaaa cccc dddd"), {1, 3, 4});
  const BlockSpills spills = tree_.evict_to_tier(4, 12);
  ASSERT_EQ(spills.blocks.size(), 4u);
  EXPECT_THAT(spills.blocks[0], Is(2, Action::kDrop, 0, 0)) << "8 tokens, and nothing below";
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(spills.blocks[i].action, Action::kSpill);
  EXPECT_EQ(tree_.stored(tokens("aaaa cccc dddd")).size(), 3u);
  EXPECT_EQ(tree_.stored(tokens("aaaa bbbb")).size(), 1u);
}

// ---- Keys and records ----

TEST_F(StoredBlocksTest, AnInsertOverStoredBlocksMakesThemResidentAndTheirRecordsGoOnToCount) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  const BlockSpills first = tree_.evict_to_tier(2);
  EXPECT_THAT(tree_.cache(tokens("aaaa bbbb"), {8, 9}).blocks, ElementsAre(8, 9));
  EXPECT_EQ(tree_.index().recorded_blocks(), 2u);
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb")), IsEmpty()) << "they match";
  const BlockSpills second = tree_.evict_to_tier(2);
  EXPECT_THAT(second.blocks, ElementsAre(Is(9, Action::kStored, first.blocks[0].key, first.blocks[0].parent),
                                         Is(8, Action::kStored, first.blocks[1].key, 0)));
}

TEST_F(StoredBlocksTest, PlainEvictStoresABlockThatHasARecord) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  const BlockSpills spills = tree_.evict_to_tier(2);
  fetch("aaaa bbbb cccc", {1, 2, 3});
  EXPECT_EQ(tree_.evict(3).size(), 3u);
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb cccc")), ElementsAre(spills.blocks[1].key, spills.blocks[0].key));
}

TEST_F(StoredBlocksTest, AHandleGoesOnOverStoredBlocks) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.evict_to_tier(2);
  auto acquired = tree_.acquire_with(tokens("aaaa bbbb cccc dddd"), {.stored_blocks = true});
  EXPECT_EQ(acquired.handle.tokens(), 4u);
  EXPECT_EQ(acquired.stored_blocks.size(), 2u);
  EXPECT_THAT(tree_.extend(acquired.handle, tokens("bbbb cccc dddd"), {7, 8, 9}).blocks, ElementsAre(7, 8, 9));
  EXPECT_EQ(tree_.touch(tokens("aaaa bbbb cccc dddd")).matched_tokens, 16u);
  tree_.release(acquired.handle);
}

TEST_F(StoredBlocksTest, ABlockWhoseRecordIsGoneEndsWhatIsStoredAndGetsItsOldKeyBack) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  const BlockSpills spills = tree_.evict_to_tier(3);
  const TierKey a = spills.blocks[2].key, b = spills.blocks[1].key, c = spills.blocks[0].key;
  EXPECT_TRUE(tree_.forget_record(b));
  EXPECT_FALSE(tree_.forget_record(b));
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb cccc")), ElementsAre(a));
  fetch("aaaa bbbb", {4, 5});
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb cccc")), ElementsAre(c)) << "resident again above it";
  EXPECT_THAT(tree_.evict_to_tier(2).blocks, ElementsAre(Is(5, Action::kSpill, b, a), Is(4, Action::kStored, a, 0)));
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb cccc")), ElementsAre(a, b, c)) << "and stored again";
}

TEST_F(StoredBlocksTest, APlaceThatNothingKeepsGetsANewKeyNextTime) {
  tree_.cache(tokens("aaaa"), {1});
  const TierKey first = tree_.evict_to_tier(1).blocks[0].key;
  EXPECT_TRUE(tree_.forget_record(first));
  EXPECT_THAT(tree_.stored(tokens("aaaa")), IsEmpty());
  tree_.cache(tokens("aaaa"), {1});
  EXPECT_GT(tree_.evict_to_tier(1).blocks[0].key, first);
  EXPECT_FALSE(tree_.forget_record(first));
}

// The one unforgivable mistake: the end of an edge is cut, and other tokens come to lie in the same place.
TEST_F(StoredBlocksTest, AKeyNeverComesToNameOtherTokens) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  const BlockSpills spills = tree_.evict_to_tier(2);
  for (const BlockSpill& spill : spills.blocks) EXPECT_TRUE(tree_.forget_record(spill.key));
  fetch("aaaa xxxx yyyy", {1, 4, 5});
  EXPECT_EQ(tree_.index().recorded_blocks(), 0u);
  const BlockSpills others = tree_.evict_to_tier(2);
  ASSERT_EQ(others.blocks.size(), 2u);
  for (const BlockSpill& other : others.blocks) {
    EXPECT_EQ(other.action, Action::kSpill);
    for (const BlockSpill& spill : spills.blocks) EXPECT_NE(other.key, spill.key);
  }
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb cccc")), IsEmpty());
}

TEST_F(StoredBlocksTest, KeysOfBlocksAndSnapshotsComeFromOneCount) {
  tree_.put_plain(tokens("aaaa x"), 50);
  EXPECT_EQ(tree_.spill()->key, 1u);
  tree_.cache(tokens("aaaa"), {1});
  EXPECT_EQ(tree_.evict_to_tier(1).blocks[0].key, 2u);
  tree_.put_plain(tokens("bbbb"), 50);
  EXPECT_EQ(tree_.spill()->key, 3u);
}

TEST_F(StoredBlocksTest, ForgettingTakesSpilledSnapshotsToo) {
  tree_.put_plain(tokens("aaaa x"), 50);
  const TierKey key = tree_.spill()->key;
  EXPECT_TRUE(tree_.forget_record(key));
  EXPECT_EQ(tree_.snapshot_count(), 0u);
  EXPECT_FALSE(tree_.forget_record(key));
  EXPECT_FALSE(tree_.forget_record(77));
  EXPECT_EQ(tree_.counters().forgotten_keys, 1u);
  EXPECT_EQ(tree_.counters().forgotten_blocks, 0u);
}

TEST_F(StoredBlocksTest, ForgettingASnapshotsKeyLeavesBlocksAlone) {
  tree_.cache(tokens("aaaa"), {1});
  const TierKey key = tree_.evict_to_tier(1).blocks[0].key;
  EXPECT_FALSE(tree_.forget(key));
  EXPECT_THAT(tree_.stored(tokens("aaaa")), ElementsAre(key));
}

TEST_F(StoredBlocksTest, AClearNamesTheKeysOfRecordsResidentOrNot) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("aaaa"), {3}, {.adapter = 5});
  auto [handle, match] = tree_.acquire(tokens("aaaa"), {.adapter = 5});
  const TierKey of_five = tree_.save(handle).blocks[0].key;
  const BlockSpills spills = tree_.evict_to_tier(2);
  EXPECT_THAT(tree_.clear(5).tier_keys, ElementsAre(of_five));
  EXPECT_FALSE(tree_.forget_record(of_five));
  EXPECT_EQ(tree_.index().recorded_blocks(), 2u);
  EXPECT_THAT(tree_.clear_all().tier_keys, UnorderedElementsAre(spills.blocks[0].key, spills.blocks[1].key));
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb")), IsEmpty());
  tree_.release(handle);
}

// ---- save_blocks ----

TEST_F(StoredBlocksTest, SavedBlocksStayResidentAndAreStoredWhenTheyAreEvicted) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  auto [handle, match] = tree_.acquire(tokens("aaaa bbbb cccc"));
  const BlockSpills saved = tree_.save(handle, 2);
  ASSERT_EQ(saved.blocks.size(), 2u);
  const TierKey a = saved.blocks[0].key, b = saved.blocks[1].key;
  EXPECT_THAT(saved.blocks, ElementsAre(Is(1, Action::kSpill, a, 0), Is(2, Action::kSpill, b, a)));
  EXPECT_EQ(saved.tokens, tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.save(handle).blocks, ElementsAre(Is(3, Action::kSpill, b + 1, b))) << "what was left";
  EXPECT_THAT(tree_.save(handle).blocks, IsEmpty());
  EXPECT_EQ(tree_.counters().blocks_saved, 3u);
  EXPECT_EQ(tree_.counters().blocks_spilled, 0u);
  tree_.release(handle);
  for (const BlockSpill& spill : tree_.evict_to_tier(3).blocks) EXPECT_EQ(spill.action, Action::kStored);
}

TEST_F(StoredBlocksTest, AShortHandlesBlocksAreSavedOnlyIfSomethingIsKeptBelow) {
  tree_.cache(tokens("aaaa"), {1});
  auto [handle, match] = tree_.acquire(tokens("aaaa"));
  EXPECT_THAT(tree_.save(handle, 9, 5).blocks, IsEmpty());
  tree_.put_plain(tokens("aaaa"), 50);
  EXPECT_EQ(tree_.save(handle, 9, 5).blocks.size(), 1u);
  tree_.release(handle);
}

TEST_F(StoredBlocksTest, AHandleOfAnEpochThatHasPassedSavesNothing) {
  tree_.cache(tokens("aaaa"), {1});
  auto [handle, match] = tree_.acquire(tokens("aaaa"));
  tree_.clear_all();
  EXPECT_THAT(tree_.save(handle).blocks, IsEmpty());
  tree_.release(handle);
  EXPECT_THROW(static_cast<void>(tree_.index().save_blocks(handle, 1)), std::invalid_argument);
}

TEST_F(StoredBlocksTest, AllThatIsWorthItIsSavedParentsFirst) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.cache(tokens("aaaa xxxx"), {1, 4});
  tree_.cache(tokens("zzzz"), {5}, {.adapter = 5});
  tree_.cache(tokens("yyyy"), {6});
  tree_.put_plain(tokens("yyyy y"), 50);
  const BlockSpills saved = tree_.save_all(9, 12);
  std::map<TierKey, BlockId> block_of;
  for (const BlockSpill& spill : saved.blocks) {
    EXPECT_TRUE(spill.parent == 0 || block_of.contains(spill.parent)) << spill.block;
    block_of[spill.key] = spill.block;
  }
  std::set<BlockId> blocks;
  for (const auto& [key, block] : block_of) blocks.insert(block);
  EXPECT_THAT(blocks, ElementsAre(1, 2, 3, 6)) << "neither the short branch nor the short chain";
  EXPECT_EQ(tree_.save_all(9, 12).blocks.size(), 0u);
  EXPECT_EQ(tree_.save_all(1).blocks.size(), 1u);
  EXPECT_EQ(tree_.save_all().blocks.size(), 1u);
}

// ---- Snapshots ----

TEST_F(StoredBlocksTest, TheDeepestResidentSnapshotCanBeAskedFor) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.put_plain(tokens("aaaa bbbb cccc"), 52);
  tree_.put_plain(tokens("aaaa bb"), 50);
  tree_.put_tail(tokens("aaaa bbbb c"), 53, {.session = 7});
  tree_.put_plain(tokens("aaaa bbbb"), 51);
  tree_.find(tokens("aaaa bb"), 6);
  tree_.spill(), tree_.spill(), tree_.spill();
  const ReadOptions any{.session_hash = 7};
  const ReadOptions resident{.session_hash = 7, .resident_snapshots_only = true};
  const Tokens prompt = tokens("aaaa bbbb cccc");
  EXPECT_EQ(tree_.index().peek(prompt, any).snapshot.tokens, 12u);
  EXPECT_THAT(tree_.index().peek(prompt, resident).snapshot, IsResident(50, 6));
  EXPECT_THAT(tree_.index().peek_snapshot(prompt, resident), IsResident(50, 6));
  EXPECT_THAT(tree_.find_with(prompt, resident).snapshot, IsResident(50, 6));
  auto acquired = tree_.acquire_with(prompt, resident);
  EXPECT_THAT(snapshot_of(acquired.match), IsResident(50, 6));
  tree_.release(acquired.handle);
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
  EXPECT_THAT(tree_.find_with(prompt, resident).snapshot, IsNoSnapshot());
}

TEST_F(StoredBlocksTest, ASpilledSnapshotSaysWhatItIs) {
  tree_.put_tail(tokens("aaaa bb"), 50, {.session = 7, .adapter = 5});
  const TierKey key = tree_.spill()->key;
  const auto spilled = tree_.index().spilled_snapshot(key);
  ASSERT_TRUE(spilled);
  EXPECT_EQ(spilled->kind, StoredSnapshot::Kind::kTail);
  EXPECT_EQ(spilled->adapter_id, 5u);
  EXPECT_EQ(spilled->session_hash, 7u);
  EXPECT_EQ(spilled->first_token, 4u);
  EXPECT_EQ(spilled->tokens, tokens("bb"));
  tree_.cache(tokens("aaaa"), {1}, {.adapter = 5});
  EXPECT_THAT(tree_.evict_to_tier(1).blocks, ElementsAre(Is(1, Action::kSpill, spilled->parent, 0)));
  EXPECT_FALSE(tree_.index().spilled_snapshot(key + 100));
}

TEST_F(StoredBlocksTest, ASpilledSnapshotShorterThanABlockHasNoParent) {
  tree_.put_plain(tokens("aa"), 50);
  const auto spilled = tree_.index().spilled_snapshot(tree_.spill()->key);
  EXPECT_EQ(spilled->parent, 0u);
  EXPECT_EQ(spilled->tokens, tokens("aa"));
}

TEST_F(StoredBlocksTest, APromotedSnapshotCanBePinnedInTheSameStep) {
  tree_.put_plain(tokens("aaaa"), 50);
  const TierKey key = tree_.spill()->key;
  SnapshotPin pin = tree_.promote_and_pin(key, 51);
  EXPECT_TRUE(pin.valid());
  EXPECT_EQ(pin.slot(), 51u);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  EXPECT_FALSE(tree_.promote_and_pin(key, 52).valid());
  EXPECT_EQ(tree_.unpin(pin), std::nullopt);
  EXPECT_EQ(tree_.evict_snapshot(), 51u);
}

}  // namespace
}  // namespace cairn
