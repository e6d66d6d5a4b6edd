// How a lease ends: finish, preempt, abandon, moved, dropped, or after its manager.
#include <functional>
#include <utility>

#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using EndsTest = AttentionTest;
using HybridEndsTest = HybridTest;

// ---- finish, preempt, abandon ----

TEST_F(EndsTest, FinishPublishesWhatIsWrittenAndGivesTheRestBack) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc d"), .reserve_tokens = 20});
  compute(lease, 9);
  lease.finish();
  EXPECT_FALSE(lease.valid());
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb cccc d")}), 8U);
  EXPECT_EQ(used_blocks(), 2U);
  EXPECT_EQ(stats().finished, 1U);
  lease.finish();
  lease.preempt();
  lease.abandon();
  EXPECT_EQ(stats().finished, 1U) << "an ended lease ends once";
  EXPECT_EQ(stats().preempted + stats().abandoned, 0U);
}

TEST_F(EndsTest, APreemptedRequestComesBackAndIsCountedOnce) {
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease lease = admit({.tokens = prompt});
  compute(lease);
  lease.append(tokens("xyz w"));
  ASSERT_EQ(lease.reserve(13), 0U);
  compute(lease, 12);
  lease.preempt();
  EXPECT_FALSE(lease.valid());
  EXPECT_EQ(used_blocks(), 3U);
  EXPECT_EQ(stats().preempted, 1U);

  const ManagerStats before = stats();
  Lease resumed = admit({.tokens = tokens("aaaa bbbb cxyz w"), .resumed = true});
  EXPECT_EQ(resumed.first_token_to_compute(), 12U);
  compute(resumed);
  resumed.finish();
  const ManagerStats after = stats();
  EXPECT_EQ(after.requests, 1U);
  EXPECT_EQ(after.resumed, 1U);
  EXPECT_EQ(after.prompt_tokens, before.prompt_tokens);
  EXPECT_EQ(after.reused_tokens, before.reused_tokens);
  EXPECT_EQ(after.computed_tokens, before.computed_tokens);
  EXPECT_EQ(after.matched_tokens, before.matched_tokens);
  EXPECT_EQ(after.finished, 1U);
}

TEST_F(EndsTest, AbandonPublishesNothingMore) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  compute(lease);
  lease.abandon();
  EXPECT_FALSE(lease.valid());
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c")}), 0U);
  EXPECT_EQ(used_blocks(), 0U);
  EXPECT_EQ(stats().abandoned, 1U);
}

TEST_F(EndsTest, ALeaseThatWaitsIsCountedOnceHoweverManyStepsItWaitsFor) {
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  lease.writes(1, 0, 4);
  lease.writes(2, 4, 9);
  lease.finish();
  EXPECT_EQ(stats().waits, 1U);
  manager().step_done(1);
  manager().step_done(2);
  EXPECT_EQ(stats().waits, 1U);
  Lease other = admit({.tokens = tokens("aaaa bbbb c")});
  compute(other);
  other.finish();
  EXPECT_EQ(stats().waits, 1U);
}

// ---- Moved ----

TEST_F(EndsTest, AMoveTakesEverythingAlong) {
  Lease lease = admit({.tokens = tokens("aaaa b")});
  Lease moved(std::move(lease));
  EXPECT_FALSE(lease.valid());  // NOLINT(bugprone-use-after-move): what is left is documented
  EXPECT_TRUE(moved.valid());
  EXPECT_EQ(used_blocks(), 2U);
  lease.abandon();
  EXPECT_EQ(used_blocks(), 2U);
  compute(moved);
  moved.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa b")}), 4U);
}

TEST_F(EndsTest, AnAssignmentAbandonsWhatWasThere) {
  Lease first = admit({.tokens = tokens("aaaa bbbb c")});
  Lease second = admit({.tokens = tokens("x")});
  first = std::move(second);
  EXPECT_FALSE(second.valid());  // NOLINT(bugprone-use-after-move): what is left is documented
  EXPECT_EQ(first.tokens(), 1U);
  EXPECT_EQ(used_blocks(), 1U);
  EXPECT_EQ(stats().abandoned, 1U);
  Lease& same = first;
  first = std::move(same);
  EXPECT_TRUE(first.valid());
  first = Lease();
  EXPECT_EQ(used_blocks(), 0U);
  EXPECT_EQ(stats().abandoned, 2U);
}

// ---- An ended lease ----

TEST_F(EndsTest, AnEndedLeaseRefusesEveryCall) {
  Lease ended = admit({.tokens = tokens("aaaa b")});
  ended.finish();
  Lease source = admit({.tokens = tokens("aaaa b")});
  const Lease target = std::move(source);
  Lease never;
  const std::pair<const char*, std::function<void(Lease&)>> calls[] = {
      {"block_table", [](Lease& l) { (void)l.block_table(); }},
      {"cached_tokens", [](Lease& l) { (void)l.cached_tokens(); }},
      {"restore_point", [](Lease& l) { (void)l.restore_point(); }},
      {"copies", [](Lease& l) { (void)l.copies(); }},
      {"first_token_to_compute", [](Lease& l) { (void)l.first_token_to_compute(); }},
      {"capture_points", [](Lease& l) { (void)l.capture_points(); }},
      {"prompt_tokens", [](Lease& l) { (void)l.prompt_tokens(); }},
      {"tokens", [](Lease& l) { (void)l.tokens(); }},
      {"accepted_tokens", [](Lease& l) { (void)l.accepted_tokens(); }},
      {"written_tokens", [](Lease& l) { (void)l.written_tokens(); }},
      {"published_tokens", [](Lease& l) { (void)l.published_tokens(); }},
      {"restored", [](Lease& l) { l.restored(); }},
      {"writes", [](Lease& l) { l.writes(1, 0, 1); }},
      {"reserve", [](Lease& l) { (void)l.reserve(1); }},
      {"append", [](Lease& l) { l.append(tokens("a")); }},
      {"draft", [](Lease& l) { l.draft(tokens("a")); }},
      {"accept", [](Lease& l) { l.accept(1); }},
      {"truncate", [](Lease& l) { l.truncate(1); }},
      {"publish", [](Lease& l) { l.publish(); }},
      {"capture", [](Lease& l) { (void)l.capture(1); }},
      {"captured", [](Lease& l) { l.captured(0); }},
      {"cancel_capture", [](Lease& l) { l.cancel_capture(0); }},
      {"fork", [](Lease& l) { (void)l.fork(); }},
  };
  // NOLINTNEXTLINE(bugprone-use-after-move): what is left is documented
  for (Lease* lease : {&ended, &source, &never}) {
    EXPECT_FALSE(lease->valid());
    for (const auto& [name, call] : calls) {
      SCOPED_TRACE(name);
      expect_refusal([&] { call(*lease); }, {"lease", "holds no sequence"});
    }
    lease->finish();
    lease->preempt();
    lease->abandon();
  }
  EXPECT_EQ(stats().finished, 1U);
}

// ---- A lease that outlives its manager ----

TEST_F(EndsTest, ALeaseMayOutliveItsManager) {
  cache({.tokens = tokens("aaaa b")});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c")});
  destroy_manager();
  EXPECT_EQ(used_blocks(), 3U) << "what is cached stays until the last lease is gone";
  lease.writes(1, 4, 9);
  EXPECT_EQ(lease.written_tokens(), 9U) << "nobody reports steps any more";
  EXPECT_EQ(lease.publish(), 4U);
  lease.append(tokens("ddd"));
  EXPECT_EQ(lease.reserve(16), 0U);
  EXPECT_EQ(lease.block_table().size(), 4U);
  lease.writes(2, 9, 12);
  EXPECT_EQ(lease.reserve(16 * kBlockSize), 0U) << "by evicting all that is not in use";
  EXPECT_EQ(lease.reserve(17 * kBlockSize), 1U);
  {
    Lease::Forked forked = lease.fork();
    ASSERT_TRUE(forked.lease);
    lease.finish();
    EXPECT_EQ(forked.lease->written_tokens(), 12U);
  }
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(EndsTest, PoolsMayBeLetGoOfBeforeLeases) {
  Lease lease = admit({.tokens = tokens("aaaa b")});
  const std::weak_ptr<BlockPool> pool = blocks_;
  destroy_manager();
  blocks_.reset();
  EXPECT_FALSE(pool.expired());
  lease.abandon();
  EXPECT_TRUE(pool.expired());
}

TEST_F(EndsTest, StepsInFlightWhenTheManagerGoesKeepNothing) {
  Lease running = admit({.tokens = tokens("aaaa b")});
  Lease dropped = admit({.tokens = tokens("xxxx yyyy z")});
  running.writes(1, 0, 5);
  dropped.writes(1, 0, 4);
  dropped.writes(2, 4, 9);
  dropped.abandon();
  EXPECT_EQ(used_blocks(), 5U);
  destroy_manager();
  EXPECT_EQ(used_blocks(), 2U);
  EXPECT_EQ(running.written_tokens(), 5U);
  running.finish();
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(HybridEndsTest, StateIsLetGoOfWithTheLastLease) {
  cache_with_states({.tokens = tokens("aaaa b")}, {4});
  Lease reader = admit({.tokens = tokens("aaaa b")});
  Lease filler = admit({.tokens = tokens("xxxx y")});
  compute(filler);
  const auto slot = filler.capture(4);
  ASSERT_TRUE(slot);
  const auto cancelled = filler.capture(5);
  ASSERT_TRUE(cancelled);
  destroy_manager();
  EXPECT_EQ(used_slots(), 3U);
  EXPECT_TRUE(filler.captured(*slot)) << "and published to nobody";
  filler.cancel_capture(*cancelled);
  EXPECT_EQ(used_slots(), 1U);
  EXPECT_FALSE(filler.capture(5));
  ASSERT_TRUE(reader.restore_point());
  EXPECT_EQ(state_in(reader.restore_point()->slot), 4U);
  filler.finish();
  reader.restored();
  EXPECT_EQ(used_slots(), 1U);
  reader.abandon();
  EXPECT_EQ(used_slots(), 0U);
}

}  // namespace
}  // namespace cairn
