// CacheManager::admit: what a request finds, what it has to compute, and what is reserved for it.
#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using ::testing::IsEmpty;

using AdmissionTest = AttentionTest;
using HybridAdmissionTest = HybridTest;
using RecurrentAdmissionTest = RecurrentTest;

// ---- Attention only ----

TEST_F(AdmissionTest, WithNothingCachedEverythingIsComputedInBlocksOfItsOwn) {
  const Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  EXPECT_TRUE(lease.valid());
  EXPECT_EQ(lease.block_table().size(), 3U);
  EXPECT_EQ(used_blocks(), 3U);
  EXPECT_EQ(lease.cached_tokens(), 0U);
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  EXPECT_FALSE(lease.restore_point());
  EXPECT_THAT(lease.copies(), IsEmpty());
  EXPECT_THAT(lease.capture_points(), IsEmpty());
  EXPECT_EQ(lease.prompt_tokens(), 9U);
  EXPECT_EQ(lease.tokens(), 9U);
  EXPECT_EQ(lease.accepted_tokens(), 9U);
  EXPECT_EQ(lease.written_tokens(), 0U);
  EXPECT_EQ(lease.published_tokens(), 0U);
}

TEST_F(AdmissionTest, WhatAnotherRequestPublishedIsSharedAndNotComputed) {
  Lease first = admit({.tokens = tokens("aaaa bbbb c")});
  const Blocks before = table_of(first);
  compute(first);
  first.finish();
  const Lease second = admit({.tokens = tokens("aaaa bbbb d")});
  EXPECT_EQ(second.cached_tokens(), 8U);
  EXPECT_EQ(second.first_token_to_compute(), 8U);
  EXPECT_EQ(second.written_tokens(), 8U);
  EXPECT_EQ(second.published_tokens(), 8U);
  EXPECT_EQ(second.block_table()[0], before[0]);
  EXPECT_EQ(second.block_table()[1], before[1]);
  EXPECT_EQ(used_blocks(), 3U) << "two that are cached and one for the rest";
  EXPECT_EQ(blocks_->references(before[0]), 1U) << "a lease needs no reference on what its handle holds";
}

TEST_F(AdmissionTest, AFullMatchEndsOneTokenBeforeTheEndRoundedDownToABlock) {
  cache({.tokens = tokens("aaaa bbbb cccc")});
  const Lease same = admit({.tokens = tokens("aaaa bbbb cccc")});
  EXPECT_EQ(same.cached_tokens(), 8U);
  EXPECT_EQ(same.first_token_to_compute(), 8U);
  EXPECT_EQ(used_blocks(), 4U) << "the last block is computed into one of its own";
  const Lease longer = admit({.tokens = tokens("aaaa bbbb cccc d")});
  EXPECT_EQ(longer.first_token_to_compute(), 12U);
}

TEST_F(AdmissionTest, APromptOfOneTokenIsComputed) {
  cache({.tokens = tokens("aaaa")});
  const Lease lease = admit({.tokens = tokens("a")});
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  EXPECT_EQ(lease.block_table().size(), 1U);
}

TEST_F(AdmissionTest, ReuseTokensMaxLimitsTheMatch) {
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  for (const auto& [most, first] : {std::pair{0U, 0U}, {3U, 0U}, {4U, 4U}, {11U, 8U}, {12U, 12U}, {99U, 12U}}) {
    const Lease lease = admit({.tokens = tokens("aaaa bbbb cccc d"), .reuse_tokens_max = most});
    EXPECT_EQ(lease.first_token_to_compute(), first) << "reuse_tokens_max " << most;
    EXPECT_EQ(lease.cached_tokens(), first);
  }
}

TEST_F(AdmissionTest, NoReadComputesEverythingAndPublishesAllTheSame) {
  cache({.tokens = tokens("aaaa b")});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c"), .no_read = true});
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  EXPECT_EQ(lease.cached_tokens(), 0U);
  compute(lease);
  lease.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 8U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c"), .no_read = true}), 0U);
}

TEST_F(AdmissionTest, NoPublishReadsAndLeavesNothingBehind) {
  cache({.tokens = tokens("aaaa b")});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c"), .no_publish = true});
  EXPECT_EQ(lease.first_token_to_compute(), 4U);
  compute(lease);
  EXPECT_EQ(lease.publish(), 4U) << "what was cached before it";
  lease.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 4U);
  EXPECT_EQ(used_blocks(), 1U);
}

TEST_F(AdmissionTest, ReserveTokensSaysForHowManyTokensThereIsRoom) {
  cache({.tokens = tokens("aaaa bbbb c")});
  const auto table_size = [&](std::optional<std::size_t> reserve) {
    return admit({.tokens = tokens("aaaa bbbb cccc d"), .reserve_tokens = reserve}).block_table().size();
  };
  EXPECT_EQ(table_size(std::nullopt), 4U) << "the whole prompt";
  EXPECT_EQ(table_size(0), 2U) << "what is cached has its place anyway";
  EXPECT_EQ(table_size(9), 3U);
  EXPECT_EQ(table_size(12), 3U);
  EXPECT_EQ(table_size(30), 8U);
}

TEST_F(AdmissionTest, WhatNobodyUsesIsEvictedToMakeRoomTheOldestFirst) {
  start({.blocks = 4});
  cache({.tokens = tokens("aaaa bbbb c")});
  cache({.tokens = tokens("xxxx y")});
  (void)admit({.tokens = tokens("aaaa bbbb c")});  // used once more
  const Lease lease = admit({.tokens = tokens("zzzz zzzz")});
  EXPECT_EQ(matched({.tokens = tokens("xxxx y")}), 0U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 8U);
  EXPECT_EQ(stats().evicted_blocks, 1U);
}

TEST_F(AdmissionTest, WhatALeaseUsesIsNotEvicted) {
  start({.blocks = 4});
  cache({.tokens = tokens("aaaa bbbb c")});
  const Lease user = admit({.tokens = tokens("aaaa bbbb c")});
  const Admission refused = manager().admit({.tokens = tokens("zzzz zzzz")});
  EXPECT_FALSE(refused.lease);
  EXPECT_EQ(refused.missing_blocks, 1U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 8U);
}

TEST_F(AdmissionTest, TooFewBlocksLeaveEverythingAsItWas) {
  start({.blocks = 5});
  cache({.tokens = tokens("aaaa b")});
  const Lease running = admit({.tokens = tokens("xxxx xxxx xxxx")});
  const ManagerStats before = stats();
  const Admission refused = manager().admit({.tokens = tokens("aaaa bbbb cccc")});
  EXPECT_FALSE(refused.lease);
  EXPECT_EQ(refused.missing_blocks, 1U);
  EXPECT_FALSE(refused.never_fits);
  EXPECT_EQ(used_blocks(), 4U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa b")}), 4U);

  const ManagerStats after = stats();
  EXPECT_EQ(after.refused_admissions, before.refused_admissions + 1);
  EXPECT_EQ(after.requests, before.requests);
  EXPECT_EQ(after.prompt_tokens, before.prompt_tokens);
  EXPECT_EQ(after.reused_tokens, before.reused_tokens);
  EXPECT_EQ(after.matched_tokens, before.matched_tokens);
  EXPECT_EQ(after.abandoned, before.abandoned);
  EXPECT_EQ(after.live_leases, before.live_leases);
}

TEST_F(AdmissionTest, ARefusedRequestHoldsNothingAndGetsInWhenThereIsRoom) {
  start({.blocks = 4});
  cache({.tokens = tokens("aaaa b")});
  Lease running = admit({.tokens = tokens("xxxx xxxx")});
  EXPECT_FALSE(manager().admit({.tokens = tokens("aaaa bbbb cccc")}).lease);
  // What it had matched can be evicted again.
  const Lease other = admit({.tokens = tokens("yyyy yyyy")});
  EXPECT_EQ(matched({.tokens = tokens("aaaa b")}), 0U);
  running.abandon();
  EXPECT_TRUE(manager().admit({.tokens = tokens("zzzz zzzz")}).lease);
}

TEST_F(AdmissionTest, ARequestForMoreBlocksThanThereAreNeverFits) {
  start({.blocks = 4});
  cache({.tokens = tokens("aaaa bbbb c")});
  const Admission refused = manager().admit({.tokens = tokens("xxxx xxxx xxxx xxxx x")});
  EXPECT_FALSE(refused.lease);
  EXPECT_TRUE(refused.never_fits);
  EXPECT_GT(refused.missing_blocks, 0U);
  EXPECT_TRUE(manager().admit({.tokens = tokens("xxxx xxxx xxxx xxxx x"), .no_read = true}).never_fits);
  EXPECT_FALSE(manager().admit({.tokens = tokens("xxxx xxxx xxxx xxxx"), .reserve_tokens = 17}).lease);
  EXPECT_EQ(stats().refused_admissions, 3U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 8U) << "nothing is evicted for what can't be had";
  EXPECT_TRUE(manager().admit({.tokens = tokens("xxxx xxxx xxxx xxxx")}).lease);
}

TEST_F(AdmissionTest, NothingIsEvictedWhereEvenThatWouldNotDo) {
  start({.blocks = 6});
  cache({.tokens = tokens("aaaa bbbb c")});
  const Lease running = admit({.tokens = tokens("xxxx xxxx xxxx")});
  const Admission refused = manager().admit({.tokens = tokens("yyyy yyyy yyyy yyyy")});
  EXPECT_FALSE(refused.lease);
  EXPECT_EQ(refused.missing_blocks, 1U);
  EXPECT_EQ(stats().evicted_blocks, 0U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 8U);
}

TEST_F(AdmissionTest, AllBlocksButThoseThatMatchMayBeMissing) {
  start({.blocks = 4});
  cache({.tokens = tokens("aaaa bbbb c")});
  const Lease running = admit({.tokens = tokens("xxxx xxxx")});
  const Admission refused = manager().admit({.tokens = tokens("aaaa bbbb cccc dddd")});
  EXPECT_FALSE(refused.lease);
  EXPECT_EQ(refused.missing_blocks, 2U);
  EXPECT_FALSE(refused.never_fits);
}

// ---- Attention and recurrent layers ----

TEST_F(HybridAdmissionTest, ReuseGoesAsFarAsThereIsStateForIt) {
  cache_with_states({.tokens = tokens("aaaa bbbb cccc d")}, {8});
  const Lease lease = admit({.tokens = tokens("aaaa bbbb cccc d")});
  ASSERT_TRUE(lease.restore_point());
  EXPECT_EQ(lease.restore_point()->tokens, 8U);
  EXPECT_EQ(state_in(lease.restore_point()->slot), 8U);
  EXPECT_EQ(lease.cached_tokens(), 8U);
  EXPECT_EQ(lease.first_token_to_compute(), 8U);
  EXPECT_EQ(stats().stateless_tokens, 4U);
}

TEST_F(HybridAdmissionTest, WhereStateLiesBelowTheMatchTheBlocksFromThereOnAreItsOwn) {
  Lease first = admit({.tokens = tokens("aaaa bbbb cccc d")});
  Blocks published = table_of(first);
  published.pop_back();
  compute_and_capture(first, {4});
  first.finish();
  const Lease lease = admit({.tokens = tokens("aaaa bbbb cccc d")});
  ASSERT_EQ(lease.block_table().size(), 4U);
  EXPECT_EQ(lease.block_table()[0], published[0]);
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_THAT(published, ::testing::Not(::testing::Contains(lease.block_table()[i])));
  EXPECT_THAT(lease.copies(), IsEmpty());
  EXPECT_EQ(lease.published_tokens(), 4U);
  EXPECT_EQ(used_blocks(), 3U + 3U);
}

TEST_F(HybridAdmissionTest, BlocksWithoutAnyStateAreComputedAgain) {
  cache({.tokens = tokens("aaaa bbbb c")});
  const Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  EXPECT_FALSE(lease.restore_point());
  EXPECT_EQ(lease.cached_tokens(), 0U);
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  EXPECT_EQ(stats().matched_tokens, 8U);
  EXPECT_EQ(stats().stateless_tokens, 8U);
  EXPECT_EQ(used_blocks(), 2U + 3U);
}

TEST_F(HybridAdmissionTest, AFullMatchGoesOnFromTheDeepestStateBelowTheEnd) {
  cache_with_states({.tokens = tokens("aaaa bbbb")}, {3, 4, 8});
  const Lease same = admit({.tokens = tokens("aaaa bbbb")});
  ASSERT_TRUE(same.restore_point());
  EXPECT_EQ(same.restore_point()->tokens, 4U);
  EXPECT_EQ(same.first_token_to_compute(), 4U);
  const Lease longer = admit({.tokens = tokens("aaaa bbbb c")});
  EXPECT_EQ(longer.first_token_to_compute(), 8U);
}

TEST_F(HybridAdmissionTest, AnUnalignedStateGivesABlockToCopy) {
  Lease first = admit({.tokens = tokens("aaaa bbbb c")});
  const Blocks published = table_of(first);
  compute_and_capture(first, {6});
  first.finish();
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  EXPECT_EQ(lease.cached_tokens(), 6U);
  EXPECT_EQ(lease.first_token_to_compute(), 6U);
  EXPECT_EQ(lease.published_tokens(), 4U);
  ASSERT_EQ(lease.copies().size(), 1U);
  const BlockCopy copy = lease.copies()[0];
  EXPECT_EQ(copy.from, published[1]);
  EXPECT_EQ(copy.to, lease.block_table()[1]);
  EXPECT_NE(copy.to, published[1]);
  EXPECT_EQ(copy.tokens, 2U);

  EXPECT_EQ(blocks_->references(copy.from), 2U) << "it stays until it is copied";
  lease.restored();
  EXPECT_THAT(lease.copies(), IsEmpty());
  EXPECT_EQ(blocks_->references(copy.from), 1U);
}

TEST_F(HybridAdmissionTest, TheBlockToCopyHasItsPlaceHoweverLittleIsReserved) {
  cache_with_states({.tokens = tokens("aaaa bbbb c")}, {6});
  const Lease lease = admit({.tokens = tokens("aaaa bbbb c"), .reserve_tokens = 0});
  EXPECT_EQ(lease.block_table().size(), 2U);
  ASSERT_EQ(lease.copies().size(), 1U);
  EXPECT_EQ(lease.copies()[0].to, lease.block_table()[1]);
}

TEST_F(HybridAdmissionTest, StateWithoutTheBlocksBelowItIsOfNoUse) {
  Lease first = admit({.tokens = tokens("aaaa bbbb c")});
  compute_and_capture(first, {4, 8});
  first.publish(4);
  first.abandon();
  EXPECT_EQ(slots_->used_slots(), 2U);
  const Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  EXPECT_EQ(lease.first_token_to_compute(), 4U);
  const Lease other = admit({.tokens = tokens("aaaa bbbb c"), .reuse_tokens_max = 3});
  EXPECT_EQ(other.first_token_to_compute(), 0U);
}

TEST_F(HybridAdmissionTest, ReuseTokensMaxAndNoReadLimitTheState) {
  cache_with_states({.tokens = tokens("aaaa bbbb cccc d")}, {4, 6, 8});
  for (const auto& [most, first] : {std::pair{12U, 8U}, {8U, 8U}, {7U, 4U}, {5U, 4U}, {3U, 0U}, {0U, 0U}}) {
    EXPECT_EQ(admit({.tokens = tokens("aaaa bbbb cccc d"), .reuse_tokens_max = most}).first_token_to_compute(), first)
        << "reuse_tokens_max " << most;
  }
  const Lease lease = admit({.tokens = tokens("aaaa bbbb cccc d"), .no_read = true});
  EXPECT_FALSE(lease.restore_point());
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
}

TEST_F(HybridAdmissionTest, ARefusedRequestLetsGoOfStateAndBlocks) {
  start({.blocks = 4, .slots = 2});
  cache_with_states({.tokens = tokens("aaaa bbbb c")}, {6});
  const Lease running = admit({.tokens = tokens("xxxx xxxx"), .no_publish = true});
  const Admission refused = manager().admit({.tokens = tokens("aaaa bbbb cccc")});
  EXPECT_FALSE(refused.lease);
  EXPECT_EQ(refused.missing_blocks, 1U);
  EXPECT_EQ(stats().pinned_snapshots, 0U);
  EXPECT_EQ(stats().live_leases, 1U);
  EXPECT_EQ(used_slots(), 1U);
}

TEST_F(HybridAdmissionTest, ARequestIsNotRefusedForWhatItCouldComputeByItself) {
  start({.blocks = 3, .slots = 2});
  cache_with_states({.tokens = tokens("aaaa bbbb c")}, {6});
  // Block "bbbb" can't be copied where there is no block for the copy beside it.
  const Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  EXPECT_EQ(lease.cached_tokens(), 0U);
  EXPECT_FALSE(lease.restore_point());
  EXPECT_THAT(lease.copies(), IsEmpty());
  EXPECT_EQ(lease.block_table().size(), 3U);
  EXPECT_EQ(stats().pinned_snapshots, 0U);
  EXPECT_EQ(stats().refused_admissions, 0U);
  EXPECT_EQ(stats().reused_tokens + stats().computed_tokens, 2U * 9U);
}

// ---- Recurrent layers only ----

TEST_F(RecurrentAdmissionTest, TheSameCallsWorkWithoutBlocks) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  EXPECT_THAT(lease.block_table(), IsEmpty());
  EXPECT_EQ(lease.cached_tokens(), 0U);
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  EXPECT_EQ(lease.reserve(1000), 0U);
  compute_and_capture(lease, {7});
  EXPECT_EQ(lease.written_tokens(), 9U);
  EXPECT_EQ(lease.publish(), 0U);
  lease.finish();

  const Lease next = admit({.tokens = tokens("aaaa bbb x yyyy")});
  ASSERT_TRUE(next.restore_point());
  EXPECT_EQ(next.restore_point()->tokens, 7U);
  EXPECT_EQ(state_in(next.restore_point()->slot), 7U);
  EXPECT_EQ(next.first_token_to_compute(), 7U);
  EXPECT_EQ(next.written_tokens(), 7U);
  EXPECT_EQ(next.cached_tokens(), 0U);
  EXPECT_THAT(next.copies(), IsEmpty());
  EXPECT_THAT(next.block_table(), IsEmpty());
}

TEST_F(RecurrentAdmissionTest, AFullMatchGoesOnFromTheDeepestStateBelowTheEnd) {
  cache_with_states({.tokens = tokens("aaaa bbbb")}, {5, 8});
  EXPECT_EQ(admit({.tokens = tokens("aaaa bbbb")}).first_token_to_compute(), 5U);
  EXPECT_EQ(admit({.tokens = tokens("aaaa bbbb c")}).first_token_to_compute(), 8U);
  EXPECT_EQ(admit({.tokens = tokens("aaaa bbbb c"), .reuse_tokens_max = 7}).first_token_to_compute(), 5U);
  EXPECT_EQ(admit({.tokens = tokens("aaaa bbbb c"), .no_read = true}).first_token_to_compute(), 0U);
  EXPECT_EQ(admit({.tokens = tokens("aaaa x")}).first_token_to_compute(), 0U);
}

TEST_F(RecurrentAdmissionTest, ReusedAndComputedTokensAreCountedByState) {
  cache_with_states({.tokens = tokens("aaaa bbbb")}, {5});
  (void)admit({.tokens = tokens("aaaa bbbb")});
  EXPECT_EQ(stats().reused_tokens, 5U);
  EXPECT_EQ(stats().computed_tokens, 8U + 3U);
  EXPECT_EQ(stats().stateless_tokens, 0U);
}

}  // namespace
}  // namespace cairn
