// Pinned prefixes stay, and never keep more than they may.
#include <gmock/gmock.h>

#include <random>
#include <stdexcept>

#include "policy/block_cache.h"

namespace cairn::testing {
namespace {

using Outcome = PrefixPin::Outcome;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PinnedPrefixes, StayUntilTheyAreUnpinnedWithAnyPolicy) {
  for (const std::string& name : block_policy_names()) {
    SCOPED_TRACE(name);
    BlockCache cache(name, 2);
    cache.serve({1, 2, 3}, 0);
    const PrefixPin pin = cache.tree().pin_prefix(Tokens{1, 2}, 0);
    EXPECT_EQ(pin.outcome, Outcome::kPinned);
    EXPECT_EQ(pin.blocks, 2U);
    EXPECT_THAT(cache.evict(9), ElementsAre(3));
    EXPECT_THAT(cache.evict(9), IsEmpty());
    EXPECT_TRUE(cache.tree().unpin_prefix(pin.id));
    EXPECT_THAT(cache.evict(9), ElementsAre(2, 1));
    EXPECT_FALSE(cache.tree().unpin_prefix(pin.id));
  }
}

TEST(PinnedPrefixes, AreRefusedWhenTheBudgetIsFull) {
  BlockCache cache("lru", 3);
  cache.serve({1, 2, 3}, 0);
  cache.serve({1, 2, 4}, 10);
  cache.serve({5}, 20);
  const PrefixPin first = cache.tree().pin_prefix(Tokens{1, 2, 3}, 0);
  EXPECT_EQ(first.outcome, Outcome::kPinned);
  const PrefixPin branch = cache.tree().pin_prefix(Tokens{1, 2, 4}, 0);
  EXPECT_EQ(branch.outcome, Outcome::kOverBudget);
  EXPECT_EQ(branch.blocks, 1U);  // the shared ones count once
  EXPECT_EQ(branch.id, 0U);
  EXPECT_EQ(cache.tree().pin_prefix(Tokens{1, 2}, 0).outcome, Outcome::kPinned);  // costs nothing
  EXPECT_EQ(cache.tree().pinned_blocks(), 3U);
  EXPECT_TRUE(cache.tree().unpin_prefix(first.id));
  EXPECT_EQ(cache.tree().pinned_blocks(), 2U);
  EXPECT_EQ(cache.tree().pin_prefix(Tokens{5}, 0).outcome, Outcome::kPinned);
}

TEST(PinnedPrefixes, HaveToBeCached) {
  BlockCache cache("lru", 9);
  cache.serve({1, 2}, 0);
  const PrefixPin pin = cache.tree().pin_prefix(Tokens{1, 2, 3, 4}, 0);
  EXPECT_EQ(pin.outcome, Outcome::kNotCached);
  EXPECT_EQ(pin.blocks, 2U);
  EXPECT_EQ(cache.tree().pinned_blocks(), 0U);
  EXPECT_THROW(static_cast<void>(cache.tree().pin_prefix(Tokens{}, 0)), std::invalid_argument);
}

TEST(PinnedPrefixes, WithoutABudgetThereAreNone) {
  BlockCache cache("lru");
  cache.serve({1}, 0);
  EXPECT_EQ(cache.tree().pin_prefix(Tokens{1}, 0).outcome, Outcome::kOverBudget);
}

TEST(PinnedPrefixes, GoWithAClear) {
  BlockCache cache("lru", 2);
  cache.serve({1, 2}, 0);
  const PrefixPin pin = cache.tree().pin_prefix(Tokens{1, 2}, 0);
  EXPECT_EQ(cache.tree().clear().blocks.size(), 2U);
  EXPECT_EQ(cache.tree().pinned_blocks(), 0U);
  EXPECT_FALSE(cache.tree().unpin_prefix(pin.id));
  cache.serve({1, 2}, 10);
  EXPECT_THAT(cache.evict(9), ElementsAre(12, 11));
}

// validate() compares the count with what the pins keep, and with the budget.
TEST(PinnedPrefixes, NeverExceedTheirBudgetWhateverIsPinned) {
  constexpr std::size_t kBudget = 12;
  std::mt19937_64 random(5);
  BlockCache cache("lru", kBudget);
  std::vector<std::uint64_t> pins;
  std::size_t refused = 0;
  for (BlockId i = 0; i < 2000; ++i) {
    Tokens tokens(1 + random() % 6);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 3);
    cache.serve(tokens, i * 10);
    if (random() % 3 == 0 && !pins.empty()) {
      EXPECT_TRUE(cache.tree().unpin_prefix(pins.back()));
      pins.pop_back();
    }
    const PrefixPin pin = cache.tree().pin_prefix(tokens, 0);
    if (pin.outcome == Outcome::kPinned) pins.push_back(pin.id);
    if (pin.outcome == Outcome::kOverBudget) ++refused;
    ASSERT_LE(cache.tree().pinned_blocks(), kBudget);
    ASSERT_EQ(cache.tree().validate(), "");
    cache.evict(random() % 4);
  }
  EXPECT_GT(refused, 100U);
  cache.tree().unpin_prefixes();
  EXPECT_EQ(cache.tree().pinned_blocks(), 0U);
  cache.evict(9999);
  EXPECT_EQ(cache.tree().stats().cached_blocks, 0U);
}

}  // namespace
}  // namespace cairn::testing
