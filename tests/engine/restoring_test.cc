// The snapshot that a lease goes on from: pinned from the lookup until restored().
#include "engine/engine_fixture.h"

namespace cairn {
namespace {

class RestoringTest : public HybridTest {
 protected:
  const Tokens prompt_ = tokens("aaaa bbbb c");

  // A lease that is going to read the state at token 4.
  Lease reader() {
    Lease lease = admit({.tokens = prompt_});
    EXPECT_TRUE(lease.restore_point());
    return lease;
  }
};

TEST_F(RestoringTest, ASlotIsPinnedUntilItIsRestored) {
  cache_with_states({.tokens = prompt_}, {4});
  Lease first = reader();
  Lease second = reader();
  EXPECT_EQ(first.restore_point()->slot, second.restore_point()->slot);
  EXPECT_EQ(stats().pinned_snapshots, 1U);
  first.restored();
  EXPECT_FALSE(first.restore_point());
  EXPECT_EQ(first.first_token_to_compute(), 4U);
  EXPECT_EQ(stats().pinned_snapshots, 1U);
  second.restored();
  EXPECT_EQ(stats().pinned_snapshots, 0U);
  second.restored();
  EXPECT_EQ(stats().pinned_snapshots, 0U) << "later calls are let pass";
}

TEST_F(RestoringTest, APinnedSlotIsNotEvicted) {
  start({.blocks = 16, .slots = 1});
  cache_with_states({.tokens = prompt_}, {4});
  Lease lease = reader();
  const SnapshotId slot = lease.restore_point()->slot;
  Lease other = admit({.tokens = tokens("xxxx y")});
  compute(other);
  EXPECT_FALSE(other.capture(4));
  EXPECT_EQ(stats().captures_declined, 1U);
  EXPECT_EQ(stats().evicted_snapshots, 0U);
  EXPECT_EQ(state_in(slot), 4U);
  lease.restored();
  EXPECT_TRUE(capture(other, 4));
  EXPECT_EQ(stats().evicted_snapshots, 1U);
  EXPECT_EQ(reusable({.tokens = prompt_}), 0U);
}

TEST_F(RestoringTest, AnUnpinnedOneIsEvictedInThePlaceOfAPinnedOlderOne) {
  start({.blocks = 16, .slots = 2});
  cache_with_states({.tokens = prompt_}, {4});
  const Lease lease = reader();
  cache_with_states({.tokens = tokens("pppp q")}, {4});
  cache_with_states({.tokens = tokens("xxxx y")}, {4});
  EXPECT_EQ(reusable({.tokens = tokens("pppp q")}), 0U);
  EXPECT_EQ(reusable({.tokens = prompt_}), 4U);
}

TEST_F(RestoringTest, ALeaseThatIsDroppedLetsGoOfItsPin) {
  cache_with_states({.tokens = prompt_}, {4});
  {
    const Lease lease = reader();
    EXPECT_EQ(stats().pinned_snapshots, 1U);
  }
  EXPECT_EQ(stats().pinned_snapshots, 0U);
  EXPECT_EQ(used_slots(), 1U) << "it stays cached";
}

TEST_F(RestoringTest, AStepInFlightThatReadsTheSlotKeepsItWhenTheLeaseEnds) {
  start({.blocks = 16, .slots = 1});
  cache_with_states({.tokens = prompt_}, {4});
  Lease lease = reader();
  lease.writes(1, 4, 8);
  lease.abandon();
  EXPECT_EQ(stats().pinned_snapshots, 1U);
  Lease other = admit({.tokens = tokens("xxxx y")});
  compute(other);
  EXPECT_FALSE(other.capture(4));
  manager().step_done(1);
  EXPECT_EQ(stats().pinned_snapshots, 0U);
  EXPECT_TRUE(capture(other, 4));
}

TEST_F(RestoringTest, ASlotThatIsReplacedMeanwhileIsFreedOnceItIsRestored) {
  cache_with_states({.tokens = prompt_}, {4});
  Lease lease = reader();
  const SnapshotId slot = lease.restore_point()->slot;
  Lease other = admit({.tokens = prompt_, .no_read = true});
  compute_and_capture(other, {4});
  EXPECT_EQ(used_slots(), 2U);
  EXPECT_EQ(slots_->state(slot), SlotState::kResident);
  EXPECT_EQ(state_in(slot), 4U);
  lease.restored();
  EXPECT_EQ(slots_->state(slot), SlotState::kFree);
  EXPECT_EQ(used_slots(), 1U);
}

TEST_F(RestoringTest, ASlotThatIsClearedMeanwhileIsFreedOnceItIsRestored) {
  cache_with_states({.tokens = prompt_}, {4});
  Lease lease = reader();
  const SnapshotId slot = lease.restore_point()->slot;
  EXPECT_EQ(manager().clear().snapshots, 0U) << "the one that is pinned follows";
  EXPECT_EQ(slots_->state(slot), SlotState::kResident);
  EXPECT_EQ(stats().pinned_snapshots, 1U);
  lease.restored();
  EXPECT_EQ(slots_->state(slot), SlotState::kFree);
  EXPECT_EQ(stats().pinned_snapshots, 0U);
}

TEST_F(RestoringTest, ATailThatItsOwnNextTurnSweepsIsFreedOnceItIsRestored) {
  Lease first = admit({.tokens = tokens("aaaa bbbb cccc"), .session = 1});
  compute_as_planned(first);
  first.finish();
  Lease reading = admit({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1});
  ASSERT_TRUE(reading.restore_point());
  const SnapshotId slot = reading.restore_point()->slot;
  Lease faster = admit({.tokens = tokens("aaaa bbbb cccc dddd eeee"), .session = 1});
  compute_as_planned(faster);
  faster.finish();
  EXPECT_EQ(slots_->state(slot), SlotState::kResident);
  reading.restored();
  EXPECT_EQ(slots_->state(slot), SlotState::kFree);
}

TEST_F(RestoringTest, PurelyRecurrentModelsPinAsWell) {
  start({.slots = 1});
  cache_with_states({.tokens = prompt_}, {5});
  Lease lease = reader();
  Lease other = admit({.tokens = tokens("xxxx y")});
  compute(other);
  EXPECT_FALSE(other.capture(4));
  lease.restored();
  EXPECT_TRUE(capture(other, 4));
}

}  // namespace
}  // namespace cairn
