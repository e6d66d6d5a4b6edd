// Lease::writes, CacheManager::step_done and step_failed: what counts as written, and what may be reused when.
#include <algorithm>
#include <array>

#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using StepsTest = AttentionTest;
using HybridStepsTest = HybridTest;

// ---- What is written ----

TEST_F(StepsTest, WhatAStepWritesCountsWhenItIsDone) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 0, 6);
  EXPECT_EQ(lease.written_tokens(), 0U);
  EXPECT_EQ(stats().steps_in_flight, 1U);
  manager().step_done(1);
  EXPECT_EQ(lease.written_tokens(), 6U);
  EXPECT_EQ(stats().steps_in_flight, 0U);
}

TEST_F(StepsTest, StepsMayBeReportedInAnyOrderAndWrittenHasNoGap) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc")});
  lease.writes(1, 0, 4);
  lease.writes(2, 4, 8);
  lease.writes(3, 8, 12);
  manager().step_done(3);
  EXPECT_EQ(lease.written_tokens(), 0U);
  manager().step_done(1);
  EXPECT_EQ(lease.written_tokens(), 4U);
  manager().step_done(2);
  EXPECT_EQ(lease.written_tokens(), 12U);
}

TEST_F(StepsTest, AFailedStepLosesWhatComesAfter) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc d")});
  lease.writes(1, 0, 4);
  lease.writes(2, 4, 8);
  lease.writes(3, 8, 12);
  manager().step_done(1);
  manager().step_failed(2);
  manager().step_done(3);
  EXPECT_EQ(lease.written_tokens(), 4U);
  EXPECT_EQ(stats().failed_steps, 1U);
  expect_refusal([&] { lease.writes(4, 8, 12); }, {"from", "[8, 12)", "gap", "token 4"});
  lease.writes(5, 4, 13);
  manager().step_done(5);
  EXPECT_EQ(lease.written_tokens(), 13U);
}

TEST_F(StepsTest, AStepReportedBeforeAnEarlierOneFailsCountsForNothing) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 0, 4);
  lease.writes(2, 4, 8);
  manager().step_done(2);
  manager().step_failed(1);
  EXPECT_EQ(lease.written_tokens(), 0U);
}

TEST_F(StepsTest, WhatIsWrittenOnceMoreIsNotWrittenUntilThen) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  compute(lease, 8);
  lease.writes(1, 4, 8);
  EXPECT_EQ(lease.written_tokens(), 4U);
  EXPECT_EQ(lease.publish(), 4U);
  manager().step_failed(1);
  EXPECT_EQ(lease.written_tokens(), 4U);
  lease.writes(2, 4, 6);
  manager().step_done(2);
  EXPECT_EQ(lease.written_tokens(), 6U);
}

TEST_F(StepsTest, AnOlderWriteStillInFlightKeepsANewerOneFromCounting) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 0, 8);
  lease.writes(2, 0, 8);
  manager().step_done(2);
  EXPECT_EQ(lease.written_tokens(), 0U) << "step 1 may yet write over it";
  manager().step_done(1);
  EXPECT_EQ(lease.written_tokens(), 8U);
}

TEST_F(StepsTest, AnOlderWriteThatFailsTakesNothingFromOneThatReplacedAllOfIt) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 0, 8);
  lease.writes(2, 0, 8);
  manager().step_done(2);
  manager().step_failed(1);
  EXPECT_EQ(lease.written_tokens(), 8U);
}

TEST_F(StepsTest, AnOlderWriteThatFailsTakesWhatRestsOnItsPart) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 0, 4);
  lease.writes(2, 2, 8);
  manager().step_failed(1);
  manager().step_done(2);
  EXPECT_EQ(lease.written_tokens(), 0U);
}

TEST_F(StepsTest, OneStepServesManyLeasesAndSeveralRanges) {
  Lease first = admit({.tokens = tokens("aaaa bbbb c")});
  Lease second = admit({.tokens = tokens("xxxx y")});
  first.writes(1, 0, 4);
  first.writes(1, 4, 9);
  second.writes(1, 0, 5);
  EXPECT_EQ(stats().steps_in_flight, 1U);
  manager().step_done(1);
  EXPECT_EQ(first.written_tokens(), 9U);
  EXPECT_EQ(second.written_tokens(), 5U);
}

TEST_F(StepsTest, AStepThatNobodyDeclaredIsLetPassAndAnIdMayComeBack) {
  manager().step_done(7);
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(7, 0, 4);
  EXPECT_EQ(lease.written_tokens(), 0U) << "it was done before it was declared: another one";
  manager().step_done(7);
  manager().step_done(7);
  lease.writes(7, 4, 8);
  EXPECT_EQ(lease.written_tokens(), 4U);
  manager().step_done(7);
  EXPECT_EQ(lease.written_tokens(), 8U);
}

// ---- What a step may not write ----

TEST_F(StepsTest, RangesThatCannotBeAreRefusedAndChangeNothing) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc"), .reserve_tokens = 8});
  expect_refusal([&] { lease.writes(1, 0, 0); }, {"from, to", "[0, 0)", "empty"});
  expect_refusal([&] { lease.writes(1, 3, 2); }, {"from, to", "[3, 2)", "empty"});
  expect_refusal([&] { lease.writes(1, 1, 4); }, {"from", "[1, 4)", "gap", "token 0"});
  expect_refusal([&] { lease.writes(1, 0, 13); }, {"to", "[0, 13)", "12 tokens"});
  expect_refusal([&] { lease.writes(1, 0, 9); }, {"to", "[0, 9)", "3 blocks", "there are 2", "reserve"});
  EXPECT_EQ(stats().steps_in_flight, 0U);
  ASSERT_EQ(lease.reserve(9), 0U);
  lease.writes(1, 0, 9);
  manager().step_done(1);
  EXPECT_EQ(lease.written_tokens(), 9U);
}

TEST_F(StepsTest, APublishedBlockIsNeverWrittenAgain) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  compute(lease);
  EXPECT_EQ(lease.publish(), 8U);
  expect_refusal([&] { lease.writes(1, 7, 9); }, {"from", "[7, 9)", "token 8", "never written again"});
  expect_refusal([&] { lease.writes(1, 0, 9); }, {"from", "[0, 9)", "token 8"});
  lease.writes(1, 8, 9);
  manager().step_done(1);
}

TEST_F(StepsTest, WhatWasFoundCachedIsNeverWritten) {
  cache({.tokens = tokens("aaaa bbbb c")});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  expect_refusal([&] { lease.writes(1, 4, 9); }, {"from", "[4, 9)", "token 8", "never written again"});
  compute(lease);
}

TEST_F(HybridStepsTest, WhatIsRestoredIsNotWritten) {
  cache_with_states({.tokens = tokens("aaaa bbbb c")}, {6});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  expect_refusal([&] { lease.writes(1, 5, 9); }, {"from", "[5, 9)", "token 6"});
  lease.writes(1, 6, 9);
  manager().step_done(1);
  EXPECT_EQ(lease.written_tokens(), 9U);
}

TEST_F(HybridStepsTest, TheFirstStepThatIsDoneImpliesThatStateIsRestored) {
  cache_with_states({.tokens = tokens("aaaa bbbb c")}, {6});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 6, 7);
  EXPECT_EQ(lease.written_tokens(), 6U);
  ASSERT_EQ(lease.copies().size(), 1U) << "in flight: it may be reading yet";
  const BlockId from = lease.copies()[0].from;
  EXPECT_EQ(blocks_->references(from), 2U);
  manager().step_failed(1);
  EXPECT_EQ(lease.written_tokens(), 6U);
  EXPECT_TRUE(lease.restore_point()) << "it has to be restored once more";
  EXPECT_EQ(lease.copies().size(), 1U);
  lease.writes(2, 6, 9);
  manager().step_done(2);
  EXPECT_EQ(lease.written_tokens(), 9U);
  EXPECT_FALSE(lease.restore_point());
  EXPECT_TRUE(lease.copies().empty());
  EXPECT_EQ(blocks_->references(from), 1U);
}

// ---- What waits for steps ----

// Three steps of a lease that was dropped end in every order, each done or failed.
TEST_F(StepsTest, ADroppedLeasesBlocksAreNotReusedBeforeItsLastStepIsOver) {
  std::array<StepId, 3> order = {1, 2, 3};
  do {
    for (unsigned failed = 0; failed < 8; ++failed) {
      start({.blocks = 4});
      Lease lease = admit({.tokens = tokens("aaaa bbbb cccc dddd")});
      lease.writes(1, 0, 4);
      lease.writes(2, 4, 12);
      lease.writes(3, 12, 16);
      lease.abandon();
      EXPECT_EQ(stats().live_leases, 0U);
      for (const StepId step : order) {
        EXPECT_EQ(stats().waiting_for_steps, 1U);
        EXPECT_EQ(used_blocks(), 4U);
        EXPECT_EQ(manager().admit({.tokens = tokens("x")}).missing_blocks, 1U);
        if ((failed >> (step - 1) & 1U) != 0) {
          manager().step_failed(step);
        } else {
          manager().step_done(step);
        }
      }
      EXPECT_EQ(stats().waiting_for_steps, 0U);
      EXPECT_EQ(used_blocks(), 0U);
      EXPECT_TRUE(manager().admit({.tokens = tokens("x")}).lease);
    }
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(StepsTest, ALeaseWithoutStepsInFlightGivesBackAtOnce) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 0, 9);
  manager().step_done(1);
  lease.abandon();
  EXPECT_EQ(used_blocks(), 0U);
  EXPECT_EQ(stats().waiting_for_steps, 0U);
}

TEST_F(StepsTest, AStepOfAnotherLeaseKeepsNothing) {
  Lease first = admit({.tokens = tokens("aaaa b")});
  Lease second = admit({.tokens = tokens("xxxx y")});
  first.writes(1, 0, 5);
  second.abandon();
  EXPECT_EQ(used_blocks(), 2U);
  first.abandon();
  EXPECT_EQ(used_blocks(), 2U);
  manager().step_done(1);
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(StepsTest, FinishPublishesWhatIsWrittenAndWaitsWithTheRest) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc d")});
  lease.writes(1, 0, 8);
  lease.writes(2, 8, 13);
  manager().step_done(1);
  lease.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb cccc d")}), 8U);
  EXPECT_EQ(used_blocks(), 4U);
  EXPECT_EQ(stats().finished, 1U);
  EXPECT_EQ(stats().waiting_for_steps, 1U);
  manager().step_done(2);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb cccc d")}), 8U) << "it had ended before the step was done";
  EXPECT_EQ(used_blocks(), 2U);
}

TEST_F(StepsTest, WhatAStepInFlightReadsIsNotEvicted) {
  start({.blocks = 4});
  cache({.tokens = tokens("aaaa bbbb c")});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 8, 9);
  lease.abandon();
  EXPECT_EQ(manager().admit({.tokens = tokens("xxxx xxxx")}).missing_blocks, 1U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 8U);
  manager().step_done(1);
  EXPECT_TRUE(manager().admit({.tokens = tokens("xxxx xxxx xxxx xxxx")}).lease);
}

TEST_F(HybridStepsTest, ASlotThatAStepMayFillIsNotReusedBeforeTheStepIsOver) {
  start({.blocks = 8, .slots = 1});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 0, 9);
  ASSERT_TRUE(lease.capture(4));
  lease.abandon();
  Lease other = admit({.tokens = tokens("xxxx y")});
  compute(other);
  EXPECT_FALSE(other.capture(4));
  manager().step_done(1);
  EXPECT_TRUE(capture(other, 4));
  EXPECT_EQ(stats().captures_abandoned, 1U);
}

}  // namespace
}  // namespace cairn
