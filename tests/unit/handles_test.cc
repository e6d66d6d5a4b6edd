// Handles, as <cairn/radix_tree.h> documents them: acquire, extend, truncate, release, and their agreement with the
// calls that name tokens.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HandlesTest : public RadixTreeTest {};

// ---- acquire ----

TEST_F(HandlesTest, AcquireAnswersWhatLookupAnswers) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.adapter = 5, .disk = {kNoDiskBlock, 22}});
  tree_.put_plain(tokens("aaaa bb"), 50, {.session = 7, .adapter = 5});
  const PrefixMatch expected = tree_.touch(tokens("aaaa bbbb cccc"), {.session = 7, .adapter = 5});
  auto [handle, match] = tree_.acquire(tokens("aaaa bbbb cccc"), {.session = 7, .adapter = 5});
  EXPECT_EQ(match.matched_blocks, expected.matched_blocks);
  EXPECT_EQ(match.matched_disk_block_ids, expected.matched_disk_block_ids);
  EXPECT_EQ(match.matched_tokens, 8u);
  EXPECT_THAT(snapshot_of(match), IsResident(50, 6));
  EXPECT_TRUE(handle.valid());
  EXPECT_EQ(handle.tokens(), 8u);
  EXPECT_EQ(handle.adapter_id(), 5u);
  EXPECT_EQ(handle.epoch(), 0u);
  tree_.release(handle);
}

TEST_F(HandlesTest, AcquireHoldsAUseUntilTheHandleIsReleased) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  auto [handle, match] = tree_.acquire(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3));
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

TEST_F(HandlesTest, AcquireStampsItsChainAndTheSnapshotItReturns) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.cache(tokens("bbbb"), {2});
  tree_.put_plain(tokens("bbbb"), 51);
  auto [handle, match] = tree_.acquire(tokens("aaaa"));
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
  EXPECT_EQ(tree_.evict_snapshot(), 51u);
}

TEST_F(HandlesTest, AHandleIsValidEvenIfNothingMatched) {
  auto [handle, match] = tree_.acquire(tokens("aaaa"), {.adapter = 5});
  EXPECT_TRUE(match.empty());
  EXPECT_TRUE(handle.valid());
  EXPECT_EQ(handle.tokens(), 0u);
  EXPECT_EQ(handle.adapter_id(), 5u);
  EXPECT_THAT(tree_.extend(handle, tokens("aaaa"), {1}).blocks, ElementsAre(1));
  EXPECT_EQ(handle.tokens(), 4u);
  EXPECT_EQ(tree_.peek(tokens("aaaa"), 5), 4u);
  EXPECT_EQ(tree_.peek(tokens("aaaa"), 0), 0u);
  tree_.release(handle);
}

TEST_F(HandlesTest, AHandleNamesTheEpochItWasAcquiredIn) {
  tree_.clear(5);
  tree_.clear_all();
  auto [handle, match] = tree_.acquire(tokens("aaaa"), {.adapter = 5});
  EXPECT_EQ(handle.epoch(), 2u);
  tree_.release(handle);
}

// ---- extend ----

TEST_F(HandlesTest, ExtendInsertsWhatFollowsAndMovesTheHandle) {
  auto [handle, match] = tree_.acquire(tokens("aaaa bbbb"));
  const auto first = tree_.extend(handle, tokens("aaaa bbbb"), {1, 2}, {11, kNoDiskBlock});
  EXPECT_FALSE(first.epoch_passed);
  EXPECT_THAT(first.blocks, ElementsAre(1, 2));
  EXPECT_THAT(first.disk_block_ids, ElementsAre(11));
  EXPECT_EQ(handle.tokens(), 8u);
  EXPECT_THAT(tree_.extend(handle, tokens("cccc"), {3}).blocks, ElementsAre(3));
  EXPECT_EQ(handle.tokens(), 12u);
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb cccc")).matched_blocks, ElementsAre(1, 2, 3));
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2, 1));
}

TEST_F(HandlesTest, ExtendStopsAtTheLastFullBlockAndAtTheEndOfTheTable) {
  auto [handle, match] = tree_.acquire({});
  EXPECT_THAT(tree_.extend(handle, tokens("aaaa bbb"), {1, 2}).blocks, ElementsAre(1));
  EXPECT_EQ(handle.tokens(), 4u);
  EXPECT_THAT(tree_.extend(handle, tokens("bbbb cccc"), {2}).blocks, ElementsAre(2));
  EXPECT_EQ(handle.tokens(), 8u);
  tree_.release(handle);
}

TEST_F(HandlesTest, ExtendWithoutAFullBlockDoesNothingAndStampsNothing) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa"), {1});
  tree_.cache(tokens("bbbb"), {2});
  EXPECT_THAT(tree_.extend(handle, tokens("aaa"), {9}).blocks, IsEmpty());
  EXPECT_THAT(tree_.extend(handle, tokens("aaaa"), {}).blocks, IsEmpty());
  EXPECT_EQ(handle.tokens(), 4u);
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1, 2));
}

TEST_F(HandlesTest, ExtendStampsAllNodesOfTheChain) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa"), {1});
  tree_.cache(tokens("zzzz"), {9});
  tree_.extend(handle, tokens("bbbb"), {2});
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(9, 2, 1));
}

TEST_F(HandlesTest, ExtendOverExistingNodesKeepsTheirBlocksAndFillsInDiskIds) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.disk = {11, kNoDiskBlock}});
  auto [handle, match] = tree_.acquire(tokens("aaaa"));
  const auto extended = tree_.extend(handle, tokens("bbbb cccc"), {8, 9}, {88, 99});
  EXPECT_THAT(extended.blocks, ElementsAre(9));
  EXPECT_THAT(extended.disk_block_ids, ElementsAre(88, 99));
  EXPECT_EQ(handle.tokens(), 12u);
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb cccc")).matched_blocks, ElementsAre(1, 2, 9));
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(9, 2, 1));
}

TEST_F(HandlesTest, TwoHandlesAtOneEndGrowApart) {
  tree_.cache(tokens("aaaa"), {1});
  auto [one, match_one] = tree_.acquire(tokens("aaaa"));
  auto [two, match_two] = tree_.acquire(tokens("aaaa"));
  tree_.extend(one, tokens("bbbb"), {2});
  tree_.extend(two, tokens("cccc dddd"), {3, 4});
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb")).matched_blocks, ElementsAre(1, 2));
  EXPECT_THAT(tree_.touch(tokens("aaaa cccc dddd")).matched_blocks, ElementsAre(1, 3, 4));
  tree_.release(one);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2));
  tree_.release(two);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(4, 3, 1));
}

TEST_F(HandlesTest, ExtendRefusesDiskIdsOfAnotherLengthAndChangesNothing) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa"), {1});
  EXPECT_THROW(tree_.extend(handle, tokens("bbbb cccc"), {2, 3}, {22}), std::invalid_argument);
  EXPECT_EQ(handle.tokens(), 4u);
  EXPECT_EQ(tree_.stats().cached_blocks, 1u);
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1));
}

// ---- truncate ----

TEST_F(HandlesTest, TruncateGivesUpTheUsesPastWhatIsKept) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.truncate(handle, 4);
  EXPECT_EQ(handle.tokens(), 4u);
  EXPECT_TRUE(handle.valid());
  EXPECT_EQ(tree_.peek(tokens("aaaa bbbb cccc")), 12u) << "the nodes stay cached";
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2));
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1));
}

TEST_F(HandlesTest, TruncateRoundsDownToABlock) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa bbbb"), {1, 2});
  tree_.truncate(handle, 7);
  EXPECT_EQ(handle.tokens(), 4u);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2));
  tree_.release(handle);
}

TEST_F(HandlesTest, TruncateToItsOwnLengthChangesNothing) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa bbbb"), {1, 2});
  tree_.truncate(handle, 8);
  EXPECT_EQ(handle.tokens(), 8u);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(handle);
}

TEST_F(HandlesTest, TruncateStampsNothing) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa bbbb"), {1, 2});
  tree_.cache(tokens("zzzz"), {9});
  tree_.truncate(handle, 4);
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1, 9));
}

TEST_F(HandlesTest, AfterTruncateTheHandleGoesOnAlongAnotherBranch) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.truncate(handle, 4);
  EXPECT_THAT(tree_.extend(handle, tokens("xxxx"), {4}).blocks, ElementsAre(4));
  EXPECT_THAT(tree_.touch(tokens("aaaa xxxx")).matched_blocks, ElementsAre(1, 4));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2));
  tree_.truncate(handle, 0);
  EXPECT_EQ(handle.tokens(), 0u);
  EXPECT_THAT(tree_.extend(handle, tokens("yyyy"), {5}).blocks, ElementsAre(5));
  EXPECT_EQ(tree_.peek(tokens("yyyy")), 4u);
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(4, 1, 5));
}

TEST_F(HandlesTest, TruncateAcrossPiecesFindsItsPlace) {
  for (const char* branch : {"aaaa x001", "aaaa bbbb x002", "aaaa bbbb cccc x003"}) {
    tree_.cache(tokens(branch), block_range(100, tokens(branch).size() / 4));
  }
  auto [handle, match] = tree_.acquire(tokens("aaaa bbbb cccc x003"));
  tree_.extend(handle, tokens("dddd"), {4});
  for (std::size_t kept = handle.tokens(); kept > 0; kept -= 4) {
    tree_.truncate(handle, kept);
    EXPECT_EQ(handle.tokens(), kept);
    EXPECT_EQ(tree_.index().validate(), "");
  }
  tree_.release(handle);
  EXPECT_EQ(tree_.evict(100).size(), 7u);
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
}

TEST_F(HandlesTest, TruncateBeyondTheEndIsRefused) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa"), {1});
  EXPECT_THROW(tree_.truncate(handle, 5), std::invalid_argument);
  EXPECT_EQ(handle.tokens(), 4u);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(handle);
}

// ---- release ----

TEST_F(HandlesTest, AReleasedHandleIsNotValidAndASecondReleaseIsLetPass) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.lookup(tokens("aaaa"));
  auto [handle, match] = tree_.acquire(tokens("aaaa"));
  tree_.release(handle);
  EXPECT_FALSE(handle.valid());
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty()) << "the lookup's use is still held";
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
  tree_.release(tokens("aaaa"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1));
}

TEST_F(HandlesTest, ReleaseStampsNothing) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa"), {1});
  tree_.cache(tokens("bbbb"), {2});
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1, 2));
}

TEST_F(HandlesTest, AHandleDroppedWithoutAReleaseKeepsItsNodesInUseUntilAClear) {
  tree_.cache(tokens("aaaa"), {1});
  {
    auto acquired = tree_.acquire(tokens("aaaa"));
  }
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  EXPECT_THAT(tree_.clear_all().blocks.physical, ElementsAre(1));
}

// ---- A handle that is not valid, or of another tree ----

TEST_F(HandlesTest, ADefaultHandleIsNotValidAndHoldsNothing) {
  PrefixHandle handle;
  EXPECT_FALSE(handle.valid());
  EXPECT_EQ(handle.tokens(), 0u);
  tree_.release(handle);
  EXPECT_THROW(tree_.extend(handle, tokens("aaaa"), {1}), std::invalid_argument);
  EXPECT_THROW(tree_.truncate(handle, 0), std::invalid_argument);
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
}

TEST_F(HandlesTest, MovingAHandleMovesItsUse) {
  tree_.cache(tokens("aaaa"), {1});
  auto acquired = tree_.acquire(tokens("aaaa"));
  PrefixHandle moved(std::move(acquired.handle));
  EXPECT_FALSE(acquired.handle.valid());  // NOLINT(bugprone-use-after-move): what is left is documented
  EXPECT_EQ(acquired.handle.tokens(), 0u);
  EXPECT_TRUE(moved.valid());
  EXPECT_EQ(moved.tokens(), 4u);
  tree_.release(acquired.handle);
  EXPECT_THROW(tree_.extend(acquired.handle, tokens("bbbb"), {2}), std::invalid_argument);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());

  PrefixHandle assigned;
  assigned = std::move(moved);
  EXPECT_FALSE(moved.valid());  // NOLINT(bugprone-use-after-move): what is left is documented
  EXPECT_THAT(tree_.extend(assigned, tokens("bbbb"), {2}).blocks, ElementsAre(2));
  tree_.release(assigned);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

TEST_F(HandlesTest, AHandleOfAnotherTreeIsRefused) {
  RadixTree other({.block_size = 4});
  other.insert(tokens("aaaa"), Blocks{1}, {}, 4, 4, 0);
  tree_.cache(tokens("aaaa"), {2});
  auto [handle, match] = other.acquire(tokens("aaaa"), 0, 0);
  const auto expect_refusal = [](const auto& call) {
    try {
      call();
      ADD_FAILURE() << "did not throw";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("handle"));
    }
  };
  expect_refusal([&, &h = handle] { tree_.extend(h, tokens("bbbb"), {3}); });
  expect_refusal([&, &h = handle] { tree_.truncate(h, 0); });
  expect_refusal([&, &h = handle] { tree_.release(h); });
  EXPECT_TRUE(handle.valid());
  EXPECT_EQ(handle.tokens(), 4u);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2));
  EXPECT_TRUE(other.evict(9).empty());
  other.release(handle);
  EXPECT_EQ(other.evict(9).size(), 1u);
  EXPECT_EQ(other.validate(), "");
}

TEST_F(HandlesTest, AHandleMayOutliveItsTreeAndFitsNoOther) {
  auto first = std::make_unique<RadixTree>(RadixTreeOptions{.block_size = 4});
  auto [handle, match] = first->acquire(tokens("aaaa"), 0, 0);
  first.reset();
  RadixTree second({.block_size = 4});
  EXPECT_THROW(second.release(handle), std::invalid_argument);
}

// ---- What a handle survives ----

TEST_F(HandlesTest, AHandleSurvivesBranchesInsertedIntoItsChain) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa bbbb cccc dddd"), {1, 2, 3, 4});
  for (const char* branch : {"zzzz", "aaaa xxxx", "aaaa bbbb xxxx", "aaaa bbbb cccc xxxx"}) {
    tree_.cache(tokens(branch), block_range(10, 4));
  }
  EXPECT_THAT(tree_.extend(handle, tokens("eeee"), {5}).blocks, ElementsAre(5));
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb cccc dddd eeee")).matched_blocks, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(tree_.evict(100).size(), 4u) << "only the branches can go";
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(100).physical, ElementsAre(5, 4, 3, 2, 1));
}

TEST_F(HandlesTest, AHandleSurvivesEvictionPastItAndBesideIt) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.cache(tokens("aaaa xxxx"), {1, 4});
  auto [handle, match] = tree_.acquire(tokens("aaaa bbbb"));
  EXPECT_EQ(tree_.evict(100).size(), 2u);
  EXPECT_EQ(handle.tokens(), 8u);
  EXPECT_THAT(tree_.extend(handle, tokens("dddd"), {5}).blocks, ElementsAre(5));
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb dddd")).matched_blocks, ElementsAre(1, 2, 5));
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(100).physical, ElementsAre(5, 2, 1));
}

TEST_F(HandlesTest, AHandleThatHoldsNothingSurvivesTheEvictionOfEverything) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  auto [handle, match] = tree_.acquire(tokens("zzzz"));
  EXPECT_EQ(tree_.evict(100).size(), 2u);
  EXPECT_THAT(tree_.extend(handle, tokens("aaaa"), {3}).blocks, ElementsAre(3));
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(100).physical, ElementsAre(3));
}

TEST_F(HandlesTest, AHandleSurvivesSnapshotsPutSpilledAndRemovedOnItsChain) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aaaa bbbb cc"), 51);
  tree_.put_tail(tokens("aaaa bb"), 52, {.session = 7});
  ASSERT_TRUE(tree_.spill());
  ASSERT_EQ(tree_.evict_snapshot(), 51u);
  EXPECT_THAT(tree_.extend(handle, tokens("cccc"), {3}).blocks, ElementsAre(3));
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(100).physical, ElementsAre(3, 2, 1));
}

TEST_F(HandlesTest, AHandleSurvivesTheExtensionOfItsPieceByAnother) {
  auto [handle, match] = tree_.acquire({});
  tree_.extend(handle, tokens("aaaa"), {1});
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  EXPECT_THAT(tree_.extend(handle, tokens("bbbb xxxx"), {8, 9}).blocks, ElementsAre(9));
  EXPECT_EQ(tree_.evict(100).size(), 1u);
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(100).physical, ElementsAre(9, 2, 1));
}

TEST_F(HandlesTest, ManyHandlesAtManyDepthsOfOneRunEachProtectTheirOwnPart) {
  const std::size_t depth_max = 40;
  const Tokens sequence = token_range(1, depth_max * 4);
  tree_.cache(sequence, block_range(100, depth_max));
  std::vector<PrefixHandle> handles;
  for (std::size_t depth = 1; depth <= depth_max; ++depth) {
    const Tokens start(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(depth * 4));
    handles.push_back(tree_.acquire(start).handle);
  }
  for (std::size_t depth = depth_max; depth > 0; --depth) {
    EXPECT_EQ(tree_.evict(100).size(), depth == depth_max ? 0u : 1u);
    tree_.release(handles[depth - 1]);
  }
  EXPECT_EQ(tree_.evict(100).size(), 1u);
}

// ---- After a clear ----

TEST_F(HandlesTest, AfterAClearEveryCallWithAHandleIsHarmless) {
  auto [extended, m1] = tree_.acquire({});
  auto [truncated, m2] = tree_.acquire({});
  auto [released, m3] = tree_.acquire({});
  auto [moved, m4] = tree_.acquire({});
  for (PrefixHandle* handle : {&extended, &truncated, &released, &moved}) {
    tree_.extend(*handle, tokens("aaaa bbbb"), {1, 2});
  }
  tree_.clear_all();
  tree_.insert(tokens("aaaa bbbb"), {3, 4});  // another sequence, since the clear, at the same place

  const auto inserted = tree_.extend(extended, tokens("cccc"), {5});
  EXPECT_TRUE(inserted.epoch_passed);
  EXPECT_THAT(inserted.blocks, IsEmpty());
  EXPECT_NO_THROW(tree_.truncate(truncated, 4));
  EXPECT_NO_THROW(tree_.truncate(truncated, 0));
  EXPECT_NO_THROW(tree_.release(released));
  EXPECT_FALSE(released.valid());
  PrefixHandle target(std::move(moved));
  EXPECT_NO_THROW(tree_.release(target));

  EXPECT_EQ(tree_.stats().cached_blocks, 2u);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty()) << "the new sequence kept its uses";
  tree_.release(extended);
  tree_.release(truncated);
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(4, 3));
}

TEST_F(HandlesTest, AHandleWithoutNodesIsAlsoEndedByAClear) {
  auto [handle, match] = tree_.acquire(tokens("aaaa"));
  tree_.clear(0);
  EXPECT_TRUE(tree_.extend(handle, tokens("aaaa"), {1}).epoch_passed);
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
  tree_.release(handle);
}

TEST_F(HandlesTest, AClearOfAnotherAdapterLeavesAHandleAlone) {
  auto [handle, match] = tree_.acquire({}, {.adapter = 5});
  tree_.extend(handle, tokens("aaaa"), {1});
  tree_.cache(tokens("aaaa"), {2}, {.adapter = 6});
  tree_.clear(6);
  tree_.clear(0);
  const auto inserted = tree_.extend(handle, tokens("bbbb"), {3});
  EXPECT_FALSE(inserted.epoch_passed);
  EXPECT_THAT(inserted.blocks, ElementsAre(3));
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 1));
}

TEST_F(HandlesTest, HandlesAcquiredAfterAClearAreWholeAgain) {
  auto [old_handle, m1] = tree_.acquire({});
  tree_.extend(old_handle, tokens("aaaa"), {1});
  tree_.clear(0);
  auto [new_handle, m2] = tree_.acquire(tokens("aaaa"));
  EXPECT_TRUE(m2.empty());
  EXPECT_THAT(tree_.extend(new_handle, tokens("aaaa"), {2}).blocks, ElementsAre(2));
  tree_.release(old_handle);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(new_handle);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2));
}

// ---- Agreement with the calls that name tokens ----

TEST_F(HandlesTest, ByHandleAndByTokensTheSameSequencesLeaveTheSameTree) {
  RadixTree by_tokens({.block_size = 4});
  RadixTree by_handle({.block_size = 4});
  const std::vector<Tokens> sequences = {tokens("aaaa bbbb cccc dd"),
                                         tokens("aaaa bbbb xxxx yyyy"),
                                         tokens("zzzz bbbb"),
                                         tokens("aaaa bbbb"),
                                         tokens("aaaa b"),
                                         tokens("aaaa bbbb cccc dddd eeee")};
  BlockId next_block = 1;
  for (const Tokens& sequence : sequences) {
    const Blocks table = block_range(next_block, sequence.size() / 4);
    next_block += 10;

    const PrefixMatch match = by_tokens.lookup(sequence, 4, 0, 0);
    const InsertAcquired expected = by_tokens.insert(sequence, table, {}, 4, match.matched_tokens, 0);
    by_tokens.release(sequence, 4, 0);

    auto [handle, handle_match] = by_handle.acquire(sequence, 0, 0);
    EXPECT_EQ(handle_match.matched_blocks, match.matched_blocks);
    const std::size_t held_blocks = handle.tokens() / 4;
    const auto extended = by_handle.extend(handle, std::span<const TokenId>(sequence).subspan(handle.tokens()),
                                           std::span<const BlockId>(table).subspan(held_blocks), {});
    EXPECT_EQ(extended.blocks, expected.blocks);
    by_handle.release(handle);
    EXPECT_EQ(by_tokens.validate(), "");
    EXPECT_EQ(by_handle.validate(), "");
  }
  EXPECT_EQ(by_handle.stats().cached_blocks, by_tokens.stats().cached_blocks);
  EXPECT_EQ(counter_values(by_handle.counters()), counter_values(by_tokens.counters()));
  EXPECT_EQ(by_handle.evict(100).physical, by_tokens.evict(100).physical);
}

TEST_F(HandlesTest, ACallerByTokensAndACallerByHandleCountTheirUsesOnTheSameNodes) {
  tree_.insert(tokens("aaaa bbbb"), {1, 2});
  auto [handle, match] = tree_.acquire(tokens("aaaa bbbb"));
  tree_.release(tokens("aaaa bbbb"));
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.lookup(tokens("aaaa bbbb"));
  tree_.release(handle);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release_matched(tokens("aaaa bbbb"), 8);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

}  // namespace
}  // namespace cairn
