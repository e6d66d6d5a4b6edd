// Handles that are shared, and what an extend says of the blocks that were there: RadixTree::share and
// RadixTree::Extended.
#include <memory>
#include <stdexcept>
#include <utility>

#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SharedHandlesTest : public RadixTreeTest {
 protected:
  // A handle at the end of `sequence`, which it caches.
  PrefixHandle hold(const Tokens& sequence, const Blocks& table, Who who = {}) {
    auto [handle, match] = tree_.acquire({}, who);
    tree_.extend(handle, sequence, table);
    return std::move(handle);
  }
};

void expect_refusal(const auto& call, const char* what) {
  try {
    call();
    ADD_FAILURE() << "did not throw";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr(what));
  }
}

// ---- share ----

TEST_F(SharedHandlesTest, AShareHoldsTheSameNodesForItself) {
  PrefixHandle first = hold(tokens("aaaa bbbb"), {1, 2}, {.adapter = 5});
  PrefixHandle second = tree_.index().share(first);
  EXPECT_TRUE(first.valid());
  EXPECT_TRUE(second.valid());
  EXPECT_EQ(second.tokens(), 8u);
  EXPECT_EQ(second.adapter_id(), 5u);
  EXPECT_EQ(second.epoch(), first.epoch());
  tree_.release(first);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(second);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

TEST_F(SharedHandlesTest, AShareOutlivedByTheHandleItWasMadeFromTakesNothingWithIt) {
  PrefixHandle first = hold(tokens("aaaa bbbb"), {1, 2});
  PrefixHandle second = tree_.index().share(first);
  tree_.release(second);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(first);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

TEST_F(SharedHandlesTest, SharesGrowApart) {
  PrefixHandle first = hold(tokens("aaaa"), {1});
  PrefixHandle second = tree_.index().share(first);
  tree_.extend(first, tokens("bbbb"), {2});
  tree_.extend(second, tokens("cccc dddd"), {3, 4});
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb")).matched_blocks, ElementsAre(1, 2));
  EXPECT_THAT(tree_.touch(tokens("aaaa cccc dddd")).matched_blocks, ElementsAre(1, 3, 4));
  tree_.release(first);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2));
  tree_.release(second);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(4, 3, 1));
}

TEST_F(SharedHandlesTest, SharesAreTruncatedApart) {
  PrefixHandle first = hold(tokens("aaaa bbbb cccc"), {1, 2, 3});
  PrefixHandle second = tree_.index().share(first);
  tree_.truncate(first, 4);
  EXPECT_EQ(second.tokens(), 12u);
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
  tree_.release(second);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3, 2));
  tree_.release(first);
}

TEST_F(SharedHandlesTest, AHandleInTheMidstOfARunIsSharedThere) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  auto [first, match] = tree_.acquire(tokens("aaaa bbbb"));
  PrefixHandle second = tree_.index().share(first);
  tree_.release(first);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(3));
  tree_.extend(second, tokens("dddd"), {4});
  EXPECT_THAT(tree_.touch(tokens("aaaa bbbb dddd")).matched_blocks, ElementsAre(1, 2, 4));
  tree_.release(second);
}

TEST_F(SharedHandlesTest, ManySharesEachCountOnce) {
  PrefixHandle first = hold(tokens("aaaa bbbb"), {1, 2});
  std::vector<PrefixHandle> shares;
  shares.reserve(50);
  for (int i = 0; i < 50; ++i) shares.push_back(tree_.index().share(i % 2 == 0 ? first : shares.back()));
  tree_.release(first);
  for (PrefixHandle& share : shares) {
    EXPECT_THAT(tree_.evict(9).physical, IsEmpty());
    tree_.release(share);
  }
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

TEST_F(SharedHandlesTest, ShareStampsNothingAndCountsNoLookup) {
  PrefixHandle first = hold(tokens("aaaa"), {1});
  tree_.cache(tokens("bbbb"), {2});
  const auto before = counter_values(tree_.counters());
  PrefixHandle second = tree_.index().share(first);
  EXPECT_EQ(counter_values(tree_.counters()), before);
  tree_.release(first);
  tree_.release(second);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1, 2));
}

TEST_F(SharedHandlesTest, AHandleThatHoldsNoNodeIsSharedAsWell) {
  auto [first, match] = tree_.acquire(tokens("aaaa"), {.adapter = 5});
  PrefixHandle second = tree_.index().share(first);
  tree_.release(first);
  EXPECT_TRUE(second.valid());
  EXPECT_EQ(second.tokens(), 0u);
  tree_.extend(second, tokens("aaaa"), {1});
  EXPECT_EQ(tree_.peek(tokens("aaaa"), 5), 4u);
  tree_.release(second);
}

TEST_F(SharedHandlesTest, AShareOfAHandleFromBeforeAClearIsAsHarmlessAsThat) {
  PrefixHandle first = hold(tokens("aaaa bbbb"), {1, 2});
  PrefixHandle before = tree_.index().share(first);
  tree_.clear(0);
  PrefixHandle after = tree_.index().share(first);
  EXPECT_EQ(after.epoch(), 0u);
  EXPECT_EQ(after.tokens(), 8u);
  PrefixHandle fresh = hold(tokens("aaaa bbbb"), {3, 4});
  for (PrefixHandle* old : {&first, &before, &after}) {
    EXPECT_TRUE(tree_.extend(*old, tokens("cccc"), {5}).epoch_passed);
    tree_.release(*old);
  }
  EXPECT_THAT(tree_.evict(9).physical, IsEmpty()) << "the uses of since the clear are not theirs to drop";
  tree_.release(fresh);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(4, 3));
}

// ---- What an extend says of the nodes that were there ----

TEST_F(SharedHandlesTest, ExtendTellsTheBlocksOfTheNodesThatWereThere) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  auto [handle, match] = tree_.acquire({});
  const auto extended = tree_.index().extend(handle, tokens("aaaa bbbb cccc"), Blocks{7, 8, 9}, {});
  tree_.note_acquired(extended);
  EXPECT_THAT(extended.existing_blocks, ElementsAre(1, 2));
  EXPECT_THAT(extended.blocks, ElementsAre(9));
  const auto again = tree_.index().extend(handle, tokens("dddd"), Blocks{10}, {});
  tree_.note_acquired(again);
  EXPECT_THAT(again.existing_blocks, IsEmpty()) << "of what is extended, not of what was held before";
  EXPECT_THAT(again.blocks, ElementsAre(10));
  tree_.release(handle);
}

TEST_F(SharedHandlesTest, WhatWasThereIsToldAcrossPiecesAndFromWhereverTheHandleIs) {
  tree_.cache(tokens("aaaa bbbb cccc"), {1, 2, 3});
  tree_.cache(tokens("aaaa xxxx yyyy"), {1, 4, 5});
  tree_.cache(tokens("aaaa xxxx zzzz wwww"), {1, 4, 6, 7});
  const Tokens sequence = tokens("aaaa xxxx zzzz wwww");
  const Blocks all = {1, 4, 6, 7};
  for (std::size_t from = 0; from < all.size(); ++from) {
    for (std::size_t to = from + 1; to <= all.size(); ++to) {
      auto [handle, match] = tree_.acquire(Tokens(sequence.begin(), sequence.begin() + static_cast<int>(from * 4)));
      const auto extended = tree_.index().extend(handle, std::span(sequence).subspan(from * 4, (to - from) * 4),
                                                 block_range(90, to - from), {});
      EXPECT_THAT(extended.existing_blocks, ElementsAreArray(std::span(all).subspan(from, to - from)));
      EXPECT_THAT(extended.blocks, IsEmpty());
      tree_.release(handle);
    }
  }
}

TEST_F(SharedHandlesTest, WithoutAFullBlockOrAfterAClearNothingWasThere) {
  PrefixHandle handle = hold(tokens("aaaa"), {1});
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  EXPECT_THAT(tree_.index().extend(handle, tokens("bbb"), Blocks{9}, {}).existing_blocks, IsEmpty());
  tree_.clear_all();
  tree_.cache(tokens("aaaa bbbb"), {3, 4});
  const auto extended = tree_.index().extend(handle, tokens("bbbb"), Blocks{9}, {});
  EXPECT_TRUE(extended.epoch_passed);
  EXPECT_THAT(extended.existing_blocks, IsEmpty());
  tree_.release(handle);
}

// ---- What is refused ----

TEST_F(SharedHandlesTest, AShareOfAHandleThatIsNotValidOrOfAnotherTreeIsRefused) {
  PrefixHandle handle = hold(tokens("aaaa bbbb"), {1, 2});
  PrefixHandle none;
  expect_refusal([&] { (void)tree_.index().share(none); }, "handle");
  RadixTree other({.block_size = 4});
  expect_refusal([&] { (void)other.share(handle); }, "handle");
  tree_.release(handle);
  expect_refusal([&] { (void)tree_.index().share(handle); }, "handle");
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(2, 1));
}

}  // namespace
}  // namespace cairn
