// RadixTreeOptions::snapshot_policy: what each policy promises. The model test compares their choices with a naive
// reference.
#include <cairn/model_shape.h>
#include <cairn/snapshot_policy.h>

#include <stdexcept>
#include <string>

#include "support/every_hash.h"
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RadixTreeOptions with_policy(const std::string& name, const SnapshotPolicyOptions& options = {}) {
  return {.block_size = 4, .snapshot_policy = name, .snapshot_policy_options = options};
}

// All that can go, in the order in which it goes.
std::vector<SnapshotId> evict_all(TrackedTree& tree) {
  std::vector<SnapshotId> slots;
  while (const auto slot = tree.evict_snapshot()) slots.push_back(*slot);
  return slots;
}

class SnapshotPoliciesTest : public ::testing::Test {
 protected:
  TrackedTree& start(const std::string& name, const SnapshotPolicyOptions& options = {}) {
    tree_.emplace(with_policy(name, options));
    return *tree_;
  }
  void TearDown() override {
    if (tree_) tree_->check_books();
  }

  std::optional<TrackedTree> tree_;
};

TEST_F(SnapshotPoliciesTest, AreChosenByNameAndOthersRefused) {
  EXPECT_THAT(snapshot_policy_names(), ElementsAre("lru", "session", "flop"));
  for (const std::string& name : snapshot_policy_names()) EXPECT_NO_THROW(RadixTree(with_policy(name)));
  const auto refused = [](const RadixTreeOptions& options) -> std::string {
    try {
      const RadixTree tree(options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused(with_policy("fifo")),
              HasSubstr("snapshot_policy: \"fifo\": there is no such policy; there are lru"));
  EXPECT_THAT(refused(with_policy("flop", {.flop_alpha = -1})), HasSubstr("flop_alpha"));
  EXPECT_THAT(refused(with_policy("flop", {.model = {.attention_layers = 1, .width = 8}})), HasSubstr("Mamba"));
  EXPECT_THAT(refused(with_policy("flop", {.model = {}, .snapshot_bytes = 1})), HasSubstr("model"));
}

// ---- "lru" ----

TEST_F(SnapshotPoliciesTest, LruTakesTheOneUsedLongestAgo) {
  TrackedTree& tree = start("lru");
  tree.put_tail(tokens("aaaa"), 1, {.session = 7});
  tree.put_plain(tokens("bbbb"), 2);
  tree.put_plain(tokens("cccc"), 3);
  (void)tree.find(tokens("bbbb"), 4);
  EXPECT_THAT(evict_all(tree), ElementsAre(1, 3, 2));
}

// ---- "session" ----

TEST_F(SnapshotPoliciesTest, TheSessionIdleLongestLosesFirstTheOldestOfIt) {
  TrackedTree& tree = start("session", {.session_leases_max = 0});
  tree.put_plain(tokens("aaaa"), 1, {.session = 7});
  tree.put_plain(tokens("bbbb"), 2, {.session = 8});
  tree.put_plain(tokens("cccc"), 3);
  tree.put_plain(tokens("aaaa aaaa"), 4, {.session = 7});
  // Session 7 has been active since, so its oldest snapshot outlives that of 8.
  EXPECT_THAT(evict_all(tree), ElementsAre(2, 3, 1, 4));
}

TEST_F(SnapshotPoliciesTest, WhatASessionFindsKeepsItAlive) {
  TrackedTree& tree = start("session", {.session_leases_max = 0});
  tree.put_plain(tokens("aaaa"), 1, {.session = 7});
  tree.put_plain(tokens("bbbb"), 2, {.session = 8});
  tree.put_plain(tokens("cccc"), 3);
  (void)tree.find(tokens("cccc"), 4, {.session = 7});
  EXPECT_THAT(evict_all(tree), ElementsAre(2, 3, 1)) << "3 belongs to nobody, and was used at the same moment";
}

TEST_F(SnapshotPoliciesTest, TheTailOfALiveSessionIsLeasedUntilSoManyEvictionsHavePassed) {
  TrackedTree& tree = start("session", {.session_leases_max = 8, .session_lease_evictions = 3});
  tree.put_tail(tokens("aaaa"), 1, {.session = 7});
  for (SnapshotId slot = 2; slot < 8; ++slot) tree.put_plain(token_range(static_cast<TokenId>(slot), 4), slot);
  EXPECT_EQ(tree.evict_snapshot(), 2U);
  EXPECT_EQ(tree.evict_snapshot(), 3U);
  EXPECT_EQ(tree.evict_snapshot(), 4U);
  EXPECT_EQ(tree.evict_snapshot(), 1U) << "three have passed";
  EXPECT_EQ(tree.evict_snapshot(), 5U);
}

TEST_F(SnapshotPoliciesTest, ASessionThatComesBackRenewsItsLease) {
  TrackedTree& tree = start("session", {.session_leases_max = 8, .session_lease_evictions = 3});
  tree.put_tail(tokens("aaaa"), 1, {.session = 7});
  for (SnapshotId slot = 2; slot < 9; ++slot) tree.put_plain(token_range(static_cast<TokenId>(slot), 4), slot);
  EXPECT_EQ(tree.evict_snapshot(), 2U);
  EXPECT_EQ(tree.evict_snapshot(), 3U);
  (void)tree.find(tokens("aaaa"), 4, {.session = 7});
  EXPECT_EQ(tree.evict_snapshot(), 4U);
  EXPECT_EQ(tree.evict_snapshot(), 5U);
  EXPECT_EQ(tree.evict_snapshot(), 6U);
  EXPECT_EQ(tree.evict_snapshot(), 7U) << "the session was active after that was put";
  EXPECT_EQ(tree.evict_snapshot(), 8U);
  EXPECT_EQ(tree.evict_snapshot(), 1U);
}

TEST_F(SnapshotPoliciesTest, LeasesAreBoundedInNumber) {
  TrackedTree& tree = start("session", {.session_leases_max = 2, .session_lease_evictions = 100});
  for (SnapshotId slot = 1; slot <= 3; ++slot) {
    tree.put_tail(token_range(static_cast<TokenId>(slot), 4), slot, {.session = slot});
  }
  tree.put_plain(tokens("zzzz"), 9);
  EXPECT_EQ(tree.evict_snapshot(), 1U) << "the third lease has ended the first";
  EXPECT_EQ(tree.evict_snapshot(), 9U) << "the two others are leased";
}

TEST_F(SnapshotPoliciesTest, WhenAllIsLeasedTheLeaseRenewedLongestAgoIsBroken) {
  TrackedTree& tree = start("session", {.session_leases_max = 8, .session_lease_evictions = 100});
  for (SnapshotId slot = 1; slot <= 3; ++slot) {
    tree.put_tail(token_range(static_cast<TokenId>(slot), 4), slot, {.session = slot});
  }
  (void)tree.find(token_range(1, 4), 4, {.session = 1});
  auto [snapshot, pin] = tree.find_with(token_range(2, 4), {.session_hash = 2, .pin_snapshot = true});
  (void)tree.find(token_range(3, 4), 4, {.session = 3});
  EXPECT_THAT(evict_all(tree), ElementsAre(1, 3)) << "2 is pinned";
  EXPECT_EQ(tree.unpin(pin), std::nullopt);
  EXPECT_EQ(tree.evict_snapshot(), 2U);
}

TEST_F(SnapshotPoliciesTest, ASpilledTailHasNoLeaseAndGetsOneWhenItComesBack) {
  TrackedTree& tree = start("session", {.session_leases_max = 8, .session_lease_evictions = 100});
  tree.put_tail(tokens("aaaa"), 1, {.session = 7});
  const auto spilled = tree.spill();
  ASSERT_TRUE(spilled);
  EXPECT_EQ(spilled->slot, 1U);
  ASSERT_TRUE(tree.promote(spilled->key, 2));
  tree.put_plain(tokens("bbbb"), 3);
  EXPECT_THAT(evict_all(tree), ElementsAre(3, 2));
}

// ---- "flop" ----

TEST(ModelShapes, CountAsMarconiDoes) {
  const ModelShape one{.attention_layers = 1, .mlp_layers = 1, .mamba_layers = 1, .width = 8, .state_size = 2};
  constexpr double kTokens = 10;
  EXPECT_EQ(one.flops(10), 8 * kTokens * 64 + 4 * kTokens * kTokens * 8 + 16 * kTokens * 64 +
                               (12 * kTokens * 64 + 16 * kTokens * 16 + 10 * kTokens * 8));
  EXPECT_EQ(one.kv_bytes(10), 4U * 10 * 8);
  EXPECT_EQ(one.snapshot_bytes(), 2U * 8 * 2 + 8 * (2 * 8 + 2 * 2));
}

TEST(ModelShapes, OfPublishedModelsAreKnownByName) {
  for (const ModelPreset& preset : model_presets()) {
    EXPECT_EQ(find_model_preset(preset.name), preset.shape);
    EXPECT_THAT(std::string(preset.source), HasSubstr("arXiv"));
  }
  EXPECT_EQ(find_model_preset("unheard of"), std::nullopt);
  EXPECT_EQ(find_model_preset("mamba2-hybrid-8b")->snapshot_bytes(), 24U * (2 * 4096 * 128 + 8 * (8192 + 256)));
}

TEST_F(SnapshotPoliciesTest, WithoutWeightForEfficiencyFlopIsLru) {
  TrackedTree& tree = start("flop", {.flop_alpha = 0.0});
  tree.put_plain(token_range(1, 400), 1);
  tree.put_plain(token_range(2, 4), 2);
  tree.put_plain(token_range(3, 40), 3);
  (void)tree.find(token_range(1, 400), 400);
  EXPECT_THAT(evict_all(tree), ElementsAre(2, 3, 1));
}

TEST_F(SnapshotPoliciesTest, WhatSavesMoreStaysThoughItIsOlder) {
  TrackedTree& tree = start("flop", {.flop_alpha = 4.0});
  tree.put_plain(token_range(1, 4000), 1);
  tree.put_plain(token_range(2, 4), 2);
  tree.put_plain(token_range(3, 400), 3);
  EXPECT_THAT(evict_all(tree), ElementsAre(2, 3, 1));
}

TEST_F(SnapshotPoliciesTest, WhatLiesAboveCountsUntilItGoes) {
  TrackedTree& tree = start("flop", {.flop_alpha = 100.0});
  const Tokens deep = token_range(1, 4000);
  tree.put_plain(deep, 1);
  tree.put_plain(token_range(2, 100), 2);
  const Tokens above(deep.begin(), deep.begin() + 3992);
  tree.put_plain(above, 3);
  EXPECT_EQ(tree.evict_snapshot(), 1U) << "it saves two blocks more than the one above it";
  tree.put_plain(deep, 4);
  (void)tree.find(above, 3992);
  EXPECT_EQ(tree.evict_snapshot(), 4U) << "the same, put below it";
  EXPECT_EQ(tree.evict_snapshot(), 2U);
  EXPECT_EQ(tree.evict_snapshot(), 3U);
}

TEST_F(SnapshotPoliciesTest, ASnapshotOfAnotherSessionSavesNothingForThisOne) {
  TrackedTree& tree = start("flop", {.flop_alpha = 4.0});
  const Tokens deep = token_range(1, 4000);
  const Tokens above(deep.begin(), deep.begin() + 3992);
  tree.put_plain(deep, 1, {.session = 7});
  tree.put_plain(token_range(2, 100), 2);
  tree.put_plain(above, 3, {.session = 8});
  EXPECT_EQ(tree.evict_snapshot(), 2U);
  tree.put_plain(above, 4, {.session = 7});
  EXPECT_EQ(tree.evict_snapshot(), 1U) << "one that it sees has taken the place";
  EXPECT_THAT(evict_all(tree), ElementsAre(4));
}

// In a tree that keeps state in its nodes, one with a single child can be evicted only if its KV joins the child's.
// Here blocks and snapshots have separate lives: nothing but the slot goes, whatever hangs below.
TEST_F(SnapshotPoliciesTest, APlaceWithOneChildGivesUpItsStateAsAnyOther) {
  TrackedTree& tree = start("flop", {.flop_alpha = 4.0, .snapshot_bytes = 1000});
  const Tokens deep = token_range(1, 400);
  tree.cache(deep, block_range(1, 100));
  tree.put_plain(Tokens(deep.begin(), deep.begin() + 40), 1);
  tree.put_plain(deep, 2);
  EXPECT_EQ(tree.counters().resident_snapshot_bytes, 2000U);
  EXPECT_EQ(tree.evict_snapshot(), 1U);
  EXPECT_EQ(tree.counters().resident_snapshot_bytes, 1000U) << "what is freed is what was accounted for it";
  EXPECT_EQ(tree.stats().cached_blocks, 100U) << "its KV stays, for what is below it";
  EXPECT_EQ(snapshot_of(tree.touch(deep)).slot, 2U);
  EXPECT_EQ(tree.evict_snapshot(), 2U);
  EXPECT_EQ(tree.counters().resident_snapshot_bytes, 0U);
  EXPECT_EQ(tree.evict(100).size(), 100U);
}

TEST_F(SnapshotPoliciesTest, BytesAreAccountedUntilASnapshotIsSpilledReplacedSweptOrCleared) {
  for (const std::string& name : snapshot_policy_names()) {
    TrackedTree& tree = start(name, {.snapshot_bytes = 10});
    const auto bytes = [&] { return tree.counters().resident_snapshot_bytes; };
    tree.put_tail(tokens("aaaa"), 1, {.session = 7});
    tree.put_plain(tokens("bbbb"), 2);
    tree.put_plain(tokens("bbbb"), 3);
    EXPECT_EQ(bytes(), 20U) << name;
    tree.put_tail(tokens("aaaa aaaa"), 4, {.session = 7});
    EXPECT_EQ(bytes(), 20U) << name;
    const auto spilled = tree.spill();
    ASSERT_TRUE(spilled);
    EXPECT_EQ(bytes(), 10U) << name;
    ASSERT_TRUE(tree.promote(spilled->key, 5));
    EXPECT_EQ(bytes(), 20U) << name;
    tree.clear_all();
    EXPECT_EQ(bytes(), 0U) << name;
    tree.check_books();
  }
}

// ---- "flop", tuned ----

// Long conversations that come back, among many short prompts that never do. Returns what was found.
std::size_t play(TrackedTree& tree, std::size_t rounds) {
  constexpr std::size_t kSlots = 16;
  constexpr std::size_t kConversations = 8;
  std::vector<SnapshotId> free;
  for (SnapshotId slot = 0; slot < kSlots; ++slot) free.push_back(slot);
  std::size_t found = 0;
  const auto put = [&](const Tokens& prompt) {
    if (free.empty()) free.push_back(tree.evict_snapshot().value());
    const SnapshotId slot = free.back();
    free.pop_back();
    if (const auto displaced = tree.put_plain(prompt, slot)) free.push_back(*displaced);
  };
  for (std::size_t round = 0; round < rounds; ++round) {
    for (TokenId conversation = 0; conversation < kConversations; ++conversation) {
      const Tokens prompt = token_range(1000 * (conversation + 1), 400);
      found += tree.find(prompt, prompt.size()).tokens;
      put(prompt);
      for (TokenId i = 0; i < 3; ++i) {
        const auto number = static_cast<TokenId>((round * kConversations + conversation) * 3 + i);
        put(token_range(1'000'000 + 10 * number, 4));
      }
    }
  }
  return found;
}

TEST_F(SnapshotPoliciesTest, ATunedWeightFindsOutThatEfficiencyPays) {
  if (testing::every_hash_is_equal()) GTEST_SKIP() << "windows that are replayed tell places apart by their hashes";
  constexpr std::size_t kRounds = 200;
  const std::size_t tuned = play(start("flop", {.flop_alpha = std::nullopt}), kRounds);
  tree_->check_books();
  const std::size_t lru = play(start("lru"), kRounds);
  tree_->check_books();
  const std::size_t weighted = play(start("flop", {.flop_alpha = 8.0}), kRounds);
  EXPECT_EQ(lru, 0U) << "each conversation is gone before it comes back";
  EXPECT_GT(weighted, 0U);
  EXPECT_GT(tuned, weighted / 2) << "once its windows were replayed";
}

}  // namespace
}  // namespace cairn
