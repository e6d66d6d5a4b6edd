// Lease::publish and CacheManager::clear: who finds what, and whose blocks it is in.
#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

using PublishingTest = AttentionTest;
using ClearTest = AttentionTest;
using HybridClearTest = HybridTest;

// ---- What is published ----

TEST_F(PublishingTest, AnEarlyPublishPublishesOnlyWhatIsWritten) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  Lease lease = admit({.tokens = prompt});
  EXPECT_EQ(lease.publish(), 0U);
  lease.writes(1, 0, 7);
  lease.writes(2, 7, 13);
  EXPECT_EQ(lease.publish(), 0U);
  EXPECT_EQ(matched({.tokens = prompt}), 0U);
  manager().step_done(1);
  EXPECT_EQ(lease.publish(), 4U) << "a block that is not full is not published";
  EXPECT_EQ(lease.published_tokens(), 4U);
  EXPECT_EQ(matched({.tokens = prompt}), 4U);
  manager().step_failed(2);
  EXPECT_EQ(lease.publish(), 4U);
  compute(lease);
  EXPECT_EQ(lease.publish(), 12U);
  EXPECT_EQ(matched({.tokens = prompt}), 12U);
}

TEST_F(PublishingTest, PublishGoesUpToTheTokenThatItNames) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  Lease lease = admit({.tokens = prompt});
  compute(lease);
  EXPECT_EQ(lease.publish(3), 0U);
  EXPECT_EQ(lease.publish(11), 8U);
  EXPECT_EQ(matched({.tokens = prompt}), 8U);
  EXPECT_EQ(lease.publish(4), 8U) << "what is published stays so";
  EXPECT_EQ(lease.publish(), 12U);
  EXPECT_EQ(stats().published_blocks, 3U);
}

TEST_F(PublishingTest, ChunkedPrefillPublishesChunkByChunk) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd e");
  Lease lease = admit({.tokens = prompt, .reserve_tokens = 6});
  EXPECT_EQ(lease.block_table().size(), 2U);
  for (const std::size_t to : {6U, 12U, 17U}) {
    ASSERT_EQ(lease.reserve(to), 0U);
    compute(lease, to);
    EXPECT_EQ(lease.publish(), to / 4 * 4);
    EXPECT_EQ(matched({.tokens = prompt}), to / 4 * 4);
  }
}

TEST_F(PublishingTest, DecodedTokensArePublishedAsWell) {
  Lease lease = admit({.tokens = tokens("aaaa bb")});
  compute(lease);
  for (const char c : std::string("xyzw")) {
    const Tokens token = {static_cast<TokenId>(c)};
    lease.append(token);
    ASSERT_EQ(lease.reserve(lease.tokens()), 0U);
    compute(lease);
    lease.publish();
  }
  EXPECT_EQ(lease.tokens(), 10U);
  EXPECT_EQ(lease.prompt_tokens(), 6U);
  EXPECT_EQ(lease.block_table().size(), 3U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbxy zw zz")}), 8U);
}

TEST_F(PublishingTest, TheReferenceOnAPublishedBlockIsTheCachesOwn) {
  Lease lease = admit({.tokens = tokens("aaaa b")});
  const BlockId block = lease.block_table()[0];
  compute(lease);
  lease.publish();
  EXPECT_EQ(blocks_->references(block), 1U);
  lease.abandon();
  EXPECT_EQ(blocks_->references(block), 1U);
  EXPECT_EQ(used_blocks(), 1U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa b")}), 4U) << "abandoning takes nothing back that was published";
}

TEST_F(PublishingTest, ALeaseThatIsDroppedPublishesNothingMore) {
  {
    Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
    compute(lease);
    lease.publish(4);
  }
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 4U);
  EXPECT_EQ(used_blocks(), 1U);
  EXPECT_EQ(stats().abandoned, 1U);
}

// ---- Two compute the same ----

TEST_F(PublishingTest, TheSecondToPublishGetsTheFirstsBlocksAndItsOwnGoBack) {
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease first = admit({.tokens = prompt});
  Lease second = admit({.tokens = prompt});
  const Blocks of_first = table_of(first);
  const Blocks of_second = table_of(second);
  compute(first);
  compute(second);
  EXPECT_EQ(used_blocks(), 6U);
  first.publish();
  EXPECT_THAT(table_of(second), ::testing::ElementsAreArray(of_second)) << "until it publishes itself";
  EXPECT_EQ(second.publish(), 8U);
  EXPECT_THAT(table_of(second), ElementsAre(of_first[0], of_first[1], of_second[2]));
  EXPECT_EQ(used_blocks(), 4U);
  EXPECT_EQ(stats().published_blocks, 2U);
  EXPECT_EQ(stats().deduplicated_blocks, 2U);
  first.finish();
  EXPECT_EQ(used_blocks(), 3U) << "the second holds them from now on";
}

TEST_F(PublishingTest, TheSecondsOwnBlocksGoBackOnlyAfterItsStepsInFlight) {
  const Tokens prompt = tokens("aaaa bbbb cccc");
  for (const auto& [first_done, last_done] : {std::pair<StepId, StepId>{1, 2}, {2, 1}}) {
    start({.blocks = 16});
    Lease first = admit({.tokens = prompt});
    Lease second = admit({.tokens = prompt});
    compute(first);
    first.finish();
    compute(second, 8);
    second.writes(1, 8, 10);
    second.writes(2, 10, 12);
    EXPECT_EQ(second.publish(), 8U);
    EXPECT_EQ(used_blocks(), 3U + 3U) << "steps 1 and 2 still read its own";
    manager().step_done(first_done);
    EXPECT_EQ(second.written_tokens(), first_done == 1 ? 10U : 8U);
    EXPECT_EQ(used_blocks(), 6U);
    manager().step_done(last_done);
    EXPECT_EQ(second.written_tokens(), 12U);
    EXPECT_EQ(used_blocks(), 3U + 1U);
  }
}

TEST_F(PublishingTest, BlocksThatGoBackWaitAlsoIfTheLeaseEnds) {
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease first = admit({.tokens = prompt});
  Lease second = admit({.tokens = prompt});
  compute(first);
  first.finish();
  compute(second, 8);
  second.writes(1, 8, 9);
  second.finish();
  EXPECT_EQ(used_blocks(), 2U + 3U);
  manager().step_failed(1);
  EXPECT_EQ(used_blocks(), 2U);
}

TEST_F(PublishingTest, WhoComputedMoreAddsTheRestBehindTheOthersBlocks) {
  Lease first = admit({.tokens = tokens("aaaa bbbb c")});
  Lease second = admit({.tokens = tokens("aaaa bbbb cccc dddd e")});
  const Blocks of_first = table_of(first);
  const Blocks of_second = table_of(second);
  compute(first);
  first.finish();
  compute(second);
  EXPECT_EQ(second.publish(), 16U);
  EXPECT_THAT(table_of(second), ElementsAre(of_first[0], of_first[1], of_second[2], of_second[3], of_second[4]));
  EXPECT_EQ(stats().published_blocks, 4U);
  EXPECT_EQ(stats().deduplicated_blocks, 2U);
  second.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb cccc dddd e")}), 16U);
  EXPECT_EQ(used_blocks(), 4U);
}

TEST_F(PublishingTest, ABlockOfItsOwnIsGoneOnceItIsReplacedAndTheOthersIsInUse) {
  start({.blocks = 6});
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease first = admit({.tokens = prompt});
  Lease second = admit({.tokens = prompt});
  compute(first);
  first.finish();
  compute(second);
  second.publish();
  // Two cached in use, one of its own: three are free, and no more can be had.
  EXPECT_EQ(manager().admit({.tokens = tokens("xxxx xxxx xxxx xxxx")}).missing_blocks, 1U);
  EXPECT_TRUE(manager().admit({.tokens = tokens("xxxx xxxx xxxx")}).lease);
  EXPECT_EQ(matched({.tokens = prompt}), 8U);
}

// ---- Clearing ----

TEST_F(ClearTest, WithoutLeasesEverythingGoesBackAtOnce) {
  cache({.tokens = tokens("aaaa bbbb c")});
  cache({.tokens = tokens("aaaa bbbb c"), .adapter = "lora"});
  const ClearReport report = manager().clear();
  EXPECT_EQ(report.blocks, 4U);
  EXPECT_EQ(report.blocks_held, 0U);
  EXPECT_EQ(report.snapshots, 0U);
  EXPECT_EQ(report.adapters, 2U) << "the base model and one adapter";
  EXPECT_EQ(used_blocks(), 0U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 0U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c"), .adapter = "lora"}), 0U);
}

TEST_F(ClearTest, BlocksOfLiveLeasesAreKeptUntilTheyEnd) {
  start({.blocks = 4});
  cache({.tokens = tokens("aaaa bbbb c")});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  const Blocks table = table_of(lease);
  const ClearReport report = manager().clear();
  EXPECT_EQ(report.blocks, 2U);
  EXPECT_EQ(report.blocks_held, 2U);
  EXPECT_EQ(stats().blocks_held_by_clears, 2U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 0U);
  EXPECT_THAT(table_of(lease), ::testing::ElementsAreArray(table)) << "it goes on with what it has";
  EXPECT_EQ(manager().admit({.tokens = tokens("xxxx xxxx")}).missing_blocks, 1U);
  compute(lease);
  lease.finish();
  EXPECT_EQ(stats().blocks_held_by_clears, 0U);
  EXPECT_EQ(used_blocks(), 0U);
  EXPECT_TRUE(manager().admit({.tokens = tokens("xxxx xxxx xxxx xxxx")}).lease);
}

TEST_F(ClearTest, WhatALeaseOfBeforeComputesIsNotPublished) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  Lease lease = admit({.tokens = prompt});
  compute(lease, 8);
  EXPECT_EQ(lease.publish(4), 4U);
  manager().clear();
  EXPECT_EQ(lease.publish(), 4U);
  EXPECT_EQ(matched({.tokens = prompt}), 0U);
  compute(lease);
  lease.finish();
  EXPECT_EQ(matched({.tokens = prompt}), 0U);
  EXPECT_EQ(used_blocks(), 0U);
  cache({.tokens = prompt});
  EXPECT_EQ(matched({.tokens = prompt}), 12U) << "what is computed since then is found";
}

TEST_F(ClearTest, ALeaseOfBeforeDoesNotDisturbWhatIsPublishedSince) {
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease before = admit({.tokens = prompt});
  compute(before);
  before.publish(4);
  manager().clear();
  Lease since = admit({.tokens = prompt});
  compute(since);
  since.publish();
  const Blocks table = table_of(before);
  before.publish();
  EXPECT_THAT(table_of(before), ::testing::ElementsAreArray(table));
  before.finish();
  EXPECT_EQ(manager().admit({.tokens = Tokens(60, 'x')}).missing_blocks, 2U) << "what is used since is not evicted";
  EXPECT_EQ(matched({.tokens = prompt}), 8U);
}

TEST_F(ClearTest, BlocksWaitForTheLeasesOfBeforeAndForNoOthers) {
  cache({.tokens = tokens("aaaa b")});
  Lease before = admit({.tokens = tokens("aaaa b")});
  EXPECT_EQ(manager().clear().blocks_held, 1U);
  cache({.tokens = tokens("aaaa b")});
  Lease between = admit({.tokens = tokens("aaaa b")});
  EXPECT_EQ(manager().clear().blocks_held, 2U);
  const Lease after = admit({.tokens = tokens("aaaa b")});
  EXPECT_EQ(used_blocks(), 2U + 1U + 1U + 2U);
  between.abandon();
  EXPECT_EQ(stats().blocks_held_by_clears, 2U) << "the older one might use either";
  before.abandon();
  EXPECT_EQ(stats().blocks_held_by_clears, 0U);
  EXPECT_EQ(used_blocks(), 2U);
}

TEST_F(ClearTest, AnOlderLeaseThatEndsFirstTakesOnlyItsOwnClearsBlocks) {
  cache({.tokens = tokens("aaaa b")});
  Lease before = admit({.tokens = tokens("aaaa b")});
  manager().clear();
  cache({.tokens = tokens("xxxx y")});
  Lease between = admit({.tokens = tokens("xxxx y")});
  const BlockId shared = between.block_table()[0];
  manager().clear();
  before.abandon();
  EXPECT_EQ(stats().blocks_held_by_clears, 1U);
  EXPECT_EQ(blocks_->references(shared), 1U);
  between.abandon();
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(ClearTest, BlocksWaitForAStepInFlightOfALeaseThatHasEnded) {
  cache({.tokens = tokens("aaaa b")});
  Lease lease = admit({.tokens = tokens("aaaa b")});
  lease.writes(1, 4, 5);
  manager().clear();
  lease.abandon();
  EXPECT_EQ(stats().blocks_held_by_clears, 1U);
  EXPECT_EQ(used_blocks(), 2U);
  manager().step_done(1);
  EXPECT_EQ(stats().blocks_held_by_clears, 0U);
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(ClearTest, AClearOfAnotherAdapterLeavesALeaseAlone) {
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease lease = admit({.tokens = prompt, .adapter = "lora"});
  compute(lease);
  EXPECT_EQ(lease.publish(4), 4U);
  manager().clear("other");
  manager().clear("");
  EXPECT_EQ(lease.publish(), 8U);
  EXPECT_EQ(matched({.tokens = prompt, .adapter = "lora"}), 8U);
  manager().clear("lora");
  EXPECT_EQ(matched({.tokens = prompt, .adapter = "lora"}), 0U);
}

TEST_F(HybridClearTest, StateIsClearedAndWhatIsCapturedAfterwardsIsNotKept) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  cache_with_states({.tokens = prompt}, {4, 8});
  Lease lease = admit({.tokens = prompt});
  compute(lease);
  const auto slot = lease.capture(10);
  ASSERT_TRUE(slot);
  const ClearReport report = manager().clear();
  EXPECT_EQ(report.blocks, 3U);
  EXPECT_EQ(report.snapshots, 2U);
  EXPECT_EQ(used_slots(), 1U);
  EXPECT_TRUE(lease.captured(*slot));
  lease.finish();
  EXPECT_EQ(used_slots(), 0U);
  EXPECT_EQ(used_blocks(), 0U);
  EXPECT_EQ(reusable({.tokens = prompt}), 0U);
}

TEST_F(HybridClearTest, ABlockToCopyIsKeptOverAClear) {
  const Tokens prompt = tokens("aaaa bbbb c");
  cache_with_states({.tokens = prompt}, {6});
  Lease lease = admit({.tokens = prompt});
  const BlockId from = lease.copies()[0].from;
  manager().clear();
  EXPECT_GE(blocks_->references(from), 1U);
  lease.restored();
  compute(lease);
  lease.finish();
  EXPECT_EQ(used_blocks(), 0U);
}

}  // namespace
}  // namespace cairn
