// Lease::capture, captured and cancel_capture: from a slot to a snapshot that others find.
#include <system_error>

#include "engine/engine_fixture.h"
#include "support/manual_device.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

using CapturesTest = HybridTest;

// ---- From a slot to a snapshot ----

TEST_F(CapturesTest, AStateIsFoundUnderTheTokensThatItHasConsumed) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  Lease lease = admit({.tokens = prompt});
  compute_and_capture(lease, {5, 8, 11});
  lease.finish();
  // A state within a block needs that block as well, and blocks match in full only.
  for (const auto& [most, at] : {std::pair{12U, 11U}, {11U, 8U}, {8U, 8U}, {7U, 0U}}) {
    const Lease next = admit({.tokens = prompt, .reuse_tokens_max = most});
    EXPECT_EQ(next.first_token_to_compute(), at) << "reuse_tokens_max " << most;
    EXPECT_EQ(next.restore_point().has_value(), at > 0);
    if (next.restore_point()) {
      EXPECT_EQ(state_in(next.restore_point()->slot), at);
    }
  }
  EXPECT_EQ(stats().captures_published, 3U);
}

TEST_F(CapturesTest, ASnapshotIsPublishedWhenTheStepThatProducedItIsDone) {
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease lease = admit({.tokens = prompt});
  lease.writes(1, 0, 4);
  lease.writes(2, 4, 8);
  EXPECT_TRUE(capture(lease, 4));
  EXPECT_TRUE(capture(lease, 8));
  EXPECT_EQ(stats().captures_published, 0U);
  manager().step_done(2);
  lease.publish();
  EXPECT_EQ(stats().captures_published, 0U);
  manager().step_done(1);
  lease.publish();
  EXPECT_EQ(stats().captures_published, 2U);
  EXPECT_EQ(reusable({.tokens = prompt}), 8U);
}

TEST_F(CapturesTest, ASnapshotThatIsCompleteIsPublishedByFinish) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 0, 8);
  EXPECT_TRUE(capture(lease, 8));
  manager().step_done(1);
  lease.finish();
  EXPECT_EQ(reusable({.tokens = tokens("aaaa bbbb c")}), 8U);
}

TEST_F(CapturesTest, ASnapshotOfSeveralShardsIsPublishedWhenAllAreIn) {
  start({.blocks = 8, .slots = 2, .shards = 3});
  Lease lease = admit({.tokens = tokens("aaaa b")});
  compute(lease);
  lease.publish();
  const auto slot = lease.capture(4);
  ASSERT_TRUE(slot);
  EXPECT_FALSE(lease.captured(*slot, 2));
  EXPECT_FALSE(lease.captured(*slot, 0));
  expect_refusal([&] { lease.captured(*slot, 2); }, {"shard", "2", "already"});
  expect_refusal([&] { lease.captured(*slot, 3); }, {"shard", "3", "has 3"});
  EXPECT_EQ(reusable({.tokens = tokens("aaaa b")}), 0U);
  EXPECT_TRUE(lease.captured(*slot, 1));
  EXPECT_EQ(reusable({.tokens = tokens("aaaa b")}), 4U);
  expect_refusal([&] { lease.captured(*slot, 1); }, {"slot", std::to_string(*slot), "capturing"});
}

TEST_F(CapturesTest, BytesThatAreStillBeingWrittenAreNotTakenForComplete) {
  const auto device = std::make_shared<testing::ManualDevice>();
  const auto pool = std::make_shared<SnapshotPool>(SnapshotPoolOptions{.slots = 2, .slot_bytes = 8, .device = device});
  CacheManager recurrent({.block_size = kBlockSize, .snapshots = pool});
  const Tokens prompt = tokens("aaaa b");
  Admission admission = recurrent.admit({.tokens = prompt});
  Lease& lease = *admission.lease;
  lease.writes(1, 0, 5);
  recurrent.step_done(1);
  const auto slot = lease.capture(4);
  ASSERT_TRUE(slot);
  const std::size_t state = 4;
  std::error_code result = std::make_error_code(std::errc::interrupted);
  pool->write(*slot, 0, std::as_bytes(std::span(&state, 1)), [&](std::error_code error) { result = error; });
  expect_refusal([&] { lease.captured(*slot); }, {"slot", std::to_string(*slot), "not done"});
  EXPECT_EQ(recurrent.peek({.tokens = prompt}).reusable_tokens, 0U);
  EXPECT_TRUE(device->complete());
  EXPECT_FALSE(result);
  EXPECT_TRUE(lease.captured(*slot));
  EXPECT_EQ(recurrent.peek({.tokens = prompt}).reusable_tokens, 4U);
}

TEST_F(CapturesTest, ASnapshotWhereOneLiesTakesItsPlaceAndTheOtherSlotIsFreed) {
  Lease first = admit({.tokens = tokens("aaaa bbbb c")});
  Lease second = admit({.tokens = tokens("aaaa bbbb c")});
  compute_and_capture(first, {4});
  compute_and_capture(second, {4});
  EXPECT_EQ(used_slots(), 1U);
  first.finish();
  second.finish();
  EXPECT_EQ(stats().captures_published, 2U);
}

TEST_F(CapturesTest, DecodedTokensHaveStatesWorthKeepingToo) {
  Lease lease = admit({.tokens = tokens("aaaa b"), .session = 1, .reserve_tokens = 12});
  compute(lease);
  lease.append(tokens("xyz wwww"));
  compute(lease, 10);
  EXPECT_TRUE(capture(lease, 10));
  compute(lease);
  lease.finish();
  EXPECT_EQ(reusable({.tokens = tokens("aaaa bxyz wwww q"), .session = 2}), 10U) << "a checkpoint: for everybody";
}

// ---- Tail and sibling ----

TEST_F(CapturesTest, ASiblingWaitsForItsTail) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd");
  Lease lease = admit({.tokens = prompt, .session = 1});
  compute(lease, 8);
  EXPECT_TRUE(capture(lease, 8));
  compute(lease);
  lease.publish();
  EXPECT_EQ(reusable({.tokens = prompt, .session = 1}), 0U);
  EXPECT_TRUE(capture(lease, 12));
  EXPECT_EQ(reusable({.tokens = prompt, .session = 1}), 12U);
  EXPECT_EQ(reusable({.tokens = prompt, .session = 1, .reuse_tokens_max = 11}), 8U);
  EXPECT_EQ(stats().captures_published, 2U);
}

TEST_F(CapturesTest, ATailIsItsSessionsAndASiblingIsNobodysSecret) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd");
  Lease lease = admit({.tokens = prompt, .session = 1});
  compute_as_planned(lease);
  lease.finish();
  EXPECT_EQ(reusable({.tokens = prompt, .session = 1}), 12U);
  EXPECT_EQ(reusable({.tokens = prompt}), 8U);
  EXPECT_EQ(reusable({.tokens = prompt, .session = 2}), 0U) << "unless snapshots are shared across sessions";

  start({.blocks = 32, .slots = 8}, {.share_snapshots_across_sessions = true});
  Lease shared = admit({.tokens = prompt, .session = 1});
  compute_as_planned(shared);
  shared.finish();
  EXPECT_EQ(reusable({.tokens = prompt, .session = 2}), 8U);
}

TEST_F(CapturesTest, EveryTurnGoesOnFromTheLastOnesTailAndSweepsIt) {
  Tokens conversation = tokens("aaaa bbbb cccc");
  std::size_t expected = 0;
  for (int turn = 0; turn < 5; ++turn) {
    Lease lease = admit({.tokens = conversation, .session = 1});
    EXPECT_EQ(lease.first_token_to_compute(), expected);
    compute_as_planned(lease);
    expected = conversation.size() / kBlockSize * kBlockSize - kBlockSize;
    const Tokens answer = tokens("xxxx yy");
    lease.append(answer);
    ASSERT_EQ(lease.reserve(lease.tokens()), 0U);
    compute(lease);
    lease.finish();
    EXPECT_EQ(used_slots(), 2U) << "a tail and its sibling";
    conversation.insert(conversation.end(), answer.begin(), answer.end());
  }
}

TEST_F(CapturesTest, ATurnThatDiffersInTheLastBlockGoesOnFromTheSibling) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1});
  compute_as_planned(lease);
  lease.finish();
  const Lease next = admit({.tokens = tokens("aaaa bbbb xxxx yyyy"), .session = 1});
  EXPECT_EQ(next.first_token_to_compute(), 8U);
}

TEST_F(CapturesTest, WithoutATailTheSiblingIsTheBestPlaceToGoOnFrom) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd");
  Lease lease = admit({.tokens = prompt, .session = 1});
  compute_and_capture(lease, {8});
  lease.finish();
  EXPECT_EQ(reusable({.tokens = prompt, .session = 1}), 8U);
  EXPECT_EQ(reusable({.tokens = prompt}), 0U) << "it is the tail now";
}

TEST_F(CapturesTest, WhereNoSlotIsLeftForTheTailTheSiblingIsPublished) {
  start({.blocks = 8, .slots = 1});
  const Tokens prompt = tokens("aaaa bbbb cccc dddd");
  Lease lease = admit({.tokens = prompt, .session = 1});
  compute_and_capture(lease, {8});
  EXPECT_FALSE(lease.capture(12));
  lease.publish();
  EXPECT_EQ(reusable({.tokens = prompt, .session = 1}), 8U);
  lease.finish();
}

TEST_F(CapturesTest, WithoutASessionThereIsOneForEverybody) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd");
  Lease lease = admit({.tokens = prompt});
  EXPECT_THAT(points_of(lease), ElementsAre(shared_tail(12)));
  compute_as_planned(lease);
  lease.finish();
  for (const SessionHash session : {0U, 1U}) EXPECT_EQ(reusable({.tokens = prompt, .session = session}), 12U);
}

// ---- The engine may decline, and so may the pool ----

TEST_F(CapturesTest, WhatTheEngineDeclinesIsComputedAgain) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd");
  cache({.tokens = prompt, .session = 1});
  EXPECT_EQ(reusable({.tokens = prompt, .session = 1}), 0U);
  EXPECT_EQ(matched({.tokens = prompt, .session = 1}), 12U);
  EXPECT_EQ(stats().captures_declined, 0U);
}

TEST_F(CapturesTest, AFullPoolEvictsTheSnapshotUsedLongestAgo) {
  start({.blocks = 16, .slots = 2});
  cache_with_states({.tokens = tokens("aaaa b")}, {4});
  cache_with_states({.tokens = tokens("xxxx y")}, {4});
  (void)admit({.tokens = tokens("aaaa b")});
  cache_with_states({.tokens = tokens("pppp q")}, {4});
  EXPECT_EQ(reusable({.tokens = tokens("aaaa b")}), 4U);
  EXPECT_EQ(reusable({.tokens = tokens("xxxx y")}), 0U);
  EXPECT_EQ(reusable({.tokens = tokens("pppp q")}), 4U);
  EXPECT_EQ(stats().evicted_snapshots, 1U);
  EXPECT_EQ(stats().captures_declined, 0U);
}

TEST_F(CapturesTest, WhereEverySlotIsBeingFilledACaptureIsDeclinedAndTheRequestGoesOn) {
  start({.blocks = 16, .slots = 1});
  Lease first = admit({.tokens = tokens("aaaa b")});
  Lease second = admit({.tokens = tokens("xxxx y")});
  compute(first);
  compute(second);
  const auto slot = first.capture(4);
  ASSERT_TRUE(slot);
  EXPECT_FALSE(second.capture(4));
  EXPECT_EQ(stats().captures_declined, 1U);
  second.finish();
  EXPECT_EQ(matched({.tokens = tokens("xxxx y")}), 4U);
  first.captured(*slot);
}

TEST_F(CapturesTest, AnEvictedSlotThatSomebodyReadsIsNotHandedOutBeforeTheyAreDone) {
  start({.blocks = 16, .slots = 1});
  cache_with_states({.tokens = tokens("aaaa b")}, {4});
  const SnapshotId slot = admit({.tokens = tokens("aaaa b")}).restore_point()->slot;
  ASSERT_TRUE(slots_->begin_read(slot));
  Lease lease = admit({.tokens = tokens("xxxx y")});
  compute(lease);
  EXPECT_FALSE(lease.capture(4));
  EXPECT_TRUE(slots_->end_read(slot));
  EXPECT_TRUE(capture(lease, 4));
}

TEST_F(CapturesTest, ACaptureOfThePlaceThatIsBeingCapturedIsDeclined) {
  Lease lease = admit({.tokens = tokens("aaaa b")});
  compute(lease);
  const auto slot = lease.capture(4);
  ASSERT_TRUE(slot);
  EXPECT_FALSE(lease.capture(4));
  EXPECT_EQ(used_slots(), 1U);
  lease.captured(*slot);
}

TEST_F(CapturesTest, ARequestThatPublishesNothingCapturesNothing) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c"), .session = 1, .no_publish = true});
  compute(lease);
  EXPECT_FALSE(lease.capture(4));
  EXPECT_EQ(used_slots(), 0U);
}

TEST_F(CapturesTest, AnAttentionOnlyModelCapturesNothing) {
  start({.blocks = 8});
  Lease lease = admit({.tokens = tokens("aaaa b"), .session = 1});
  compute(lease);
  EXPECT_FALSE(lease.capture(4));
  expect_refusal([&] { lease.captured(0); }, {"slot", "0", "capturing"});
  EXPECT_EQ(stats().captures_declined, 0U);
}

TEST_F(CapturesTest, AStateIsOnlyCapturedWhereTheLeaseHasOne) {
  cache_with_states({.tokens = tokens("aaaa bbbb c")}, {4});
  Lease lease = admit({.tokens = tokens("aaaa bbbb cc")});
  lease.restored();
  expect_refusal([&] { (void)lease.capture(0); }, {"tokens", "0"});
  expect_refusal([&] { (void)lease.capture(3); }, {"tokens", "3", "from token 4"});
  lease.writes(1, 4, 8);
  expect_refusal([&] { (void)lease.capture(9); }, {"tokens", "9", "to 8"});
  manager().step_done(1);
  compute(lease);
  lease.draft(tokens("xy"));
  ASSERT_EQ(lease.reserve(12), 0U);
  compute(lease);
  expect_refusal([&] { (void)lease.capture(11); }, {"tokens", "11", "to 10"});
  EXPECT_TRUE(lease.capture(10));
}

// ---- Given up ----

TEST_F(CapturesTest, ACancelledCaptureGivesItsSlotBack) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  compute(lease);
  const auto slot = lease.capture(4);
  ASSERT_TRUE(slot);
  lease.cancel_capture(*slot);
  EXPECT_EQ(used_slots(), 0U);
  EXPECT_EQ(stats().captures_abandoned, 1U);
  expect_refusal([&] { lease.captured(*slot); }, {"slot", std::to_string(*slot)});
  expect_refusal([&] { lease.cancel_capture(*slot); }, {"slot", std::to_string(*slot)});
  EXPECT_TRUE(capture(lease, 4)) << "the place is free again";
  lease.finish();
  EXPECT_EQ(reusable({.tokens = tokens("aaaa bbbb c")}), 4U);
}

TEST_F(CapturesTest, SlotsOfOtherLeasesAreNotTouched) {
  Lease first = admit({.tokens = tokens("aaaa b")});
  Lease second = admit({.tokens = tokens("aaaa b")});
  compute(first);
  const auto slot = first.capture(4);
  ASSERT_TRUE(slot);
  expect_refusal([&] { second.captured(*slot); }, {"slot", std::to_string(*slot)});
  expect_refusal([&] { second.cancel_capture(*slot); }, {"slot", std::to_string(*slot)});
  EXPECT_TRUE(first.captured(*slot));
}

TEST_F(CapturesTest, WhatIsNotCompleteAtTheEndIsNeverPublished) {
  for (const bool finishes : {true, false}) {
    Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
    compute(lease);
    ASSERT_TRUE(lease.capture(8));
    finishes ? lease.finish() : lease.abandon();
    EXPECT_EQ(used_slots(), 0U);
    EXPECT_EQ(reusable({.tokens = tokens("aaaa bbbb c")}), 0U);
  }
  EXPECT_EQ(stats().captures_abandoned, 2U);
}

TEST_F(CapturesTest, AnAbandonedLeasePublishesNoStateThatStillWaits) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1});
  compute_and_capture(lease, {8});
  lease.publish();
  lease.abandon();
  EXPECT_EQ(used_slots(), 0U);
  EXPECT_EQ(stats().captures_published, 0U);
}

TEST_F(CapturesTest, AStateOfTokensThatAreTruncatedIsNeverPublished) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  compute(lease);
  const auto lost = lease.capture(8);
  const auto kept = lease.capture(6);
  ASSERT_TRUE(lost && kept);
  lease.truncate(6);
  lease.append(tokens("xxx"));
  compute(lease);
  EXPECT_TRUE(lease.captured(*lost)) << "the engine need not know";
  EXPECT_TRUE(lease.captured(*kept));
  lease.finish();
  EXPECT_EQ(used_slots(), 1U);
  EXPECT_EQ(reusable({.tokens = tokens("aaaa bbxx x")}), 6U);
  EXPECT_EQ(stats().captures_abandoned, 1U);
  EXPECT_EQ(stats().captures_published, 1U);
}

TEST_F(CapturesTest, ASiblingThatWaitedIsLostWithItsTokens) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1});
  compute_and_capture(lease, {8});
  EXPECT_EQ(used_slots(), 1U);
  lease.truncate(6);
  EXPECT_EQ(used_slots(), 0U);
  lease.append(tokens("xx yyyy zzzz"));
  compute_and_capture(lease, {12});
  lease.finish();
  EXPECT_EQ(reusable({.tokens = tokens("aaaa bbxx yyyy zzzz"), .session = 1}), 12U);
  EXPECT_EQ(reusable({.tokens = tokens("aaaa bbxx yyyy zzzz"), .session = 1, .reuse_tokens_max = 11}), 0U);
}

TEST_F(CapturesTest, AStateOfAFailedStepIsNeverPublished) {
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease lease = admit({.tokens = prompt});
  compute(lease, 4);
  lease.writes(1, 4, 8);
  const auto filling = lease.capture(6);
  ASSERT_TRUE(filling);
  EXPECT_TRUE(capture(lease, 8));
  EXPECT_TRUE(capture(lease, 4));
  manager().step_failed(1);
  EXPECT_EQ(lease.written_tokens(), 4U);
  EXPECT_TRUE(lease.captured(*filling));
  compute(lease);
  lease.finish();
  EXPECT_EQ(reusable({.tokens = prompt}), 4U);
  EXPECT_EQ(stats().captures_published, 1U);
  EXPECT_EQ(stats().captures_abandoned, 2U);
}

TEST_F(CapturesTest, AStateOfTokensThatAreComputedOnceMoreIsNotPublished) {
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease lease = admit({.tokens = prompt});
  compute(lease);
  const auto slot = lease.capture(8);
  ASSERT_TRUE(slot);
  lease.writes(1, 4, 9);
  EXPECT_TRUE(lease.captured(*slot));
  manager().step_done(1);
  lease.finish();
  EXPECT_EQ(reusable({.tokens = prompt}), 0U);
  EXPECT_EQ(used_slots(), 0U);
}

}  // namespace
}  // namespace cairn
