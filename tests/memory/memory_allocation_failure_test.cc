// The pools when memory runs out: whole, and as they were.
#include <cairn/block_pool.h>
#include <cairn/snapshot_pool.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "fault/failing_new.h"
#include "support/manual_device.h"

namespace cairn::testing {
namespace {

// Lets allocation after allocation in `call` fail until it succeeds, and looks at what each failure left. How many
// there were.
std::size_t fail_until_it_works(const auto& call, const auto& expect_unchanged) {
  for (std::size_t nth = 1;; ++nth) {
    arm_new(nth, FailingNew::kNth);
    try {
      call();
      disarm_new();
      return nth - 1;
    } catch (const std::bad_alloc&) {
      disarm_new();
      expect_unchanged();
    }
  }
}

// Allocations that `call` tries. They fail: it must not need them.
std::size_t allocations_of(const auto& call) {
  arm_new(1, FailingNew::kNthAndAllLater);
  call();
  disarm_new();
  return allocations_tried();
}

TEST(MemoryAllocationFailureTest, InAConstructorThrowsAndKeepsNothing) {
  const auto device = std::make_shared<ManualDevice>();
  const auto nothing_kept = [&] { EXPECT_EQ(device->allocated_bytes(), 0U); };
  std::optional<BlockPool> blocks;
  EXPECT_GT(
      fail_until_it_works([&] { blocks.emplace(BlockPoolOptions{.blocks = 5, .block_bytes = 8, .device = device}); },
                          nothing_kept),
      2U);
  EXPECT_EQ(blocks->validate(), "");
  blocks.reset();

  std::optional<SwapBlockPool> swap_blocks;
  EXPECT_GT(fail_until_it_works([&] { swap_blocks.emplace(5); }, nothing_kept), 1U);
  EXPECT_EQ(swap_blocks->validate(), "");

  std::optional<SnapshotPool> slots;
  EXPECT_GT(
      fail_until_it_works([&] { slots.emplace(SnapshotPoolOptions{.slots = 5, .slot_bytes = 8, .device = device}); },
                          nothing_kept),
      2U);
  EXPECT_EQ(slots->validate(), "");
}

TEST(MemoryAllocationFailureTest, InAllocateOfBlocksTakesNone) {
  BlockPool pool({.blocks = 8});
  std::vector<BlockId> blocks = {70, 71};
  const auto unchanged = [&] {
    EXPECT_EQ(blocks, (std::vector<BlockId>{70, 71}));
    EXPECT_EQ(pool.free_blocks(), 8U);
    EXPECT_EQ(pool.validate(), "");
  };
  EXPECT_EQ(fail_until_it_works([&] { EXPECT_TRUE(pool.allocate(8, blocks)); }, unchanged), 1U);
  EXPECT_EQ(blocks.size(), 10U);
  EXPECT_EQ(pool.free_blocks(), 0U);
}

TEST(MemoryAllocationFailureTest, InACopyLeavesTheSlotAsItWas) {
  const auto device = std::make_shared<ManualDevice>();
  SnapshotPool pool({.slots = 1, .slot_bytes = 4, .device = device});
  const SnapshotId slot = pool.allocate().value();
  std::vector<std::byte> bytes(4);
  int done = 0;
  const CopyDone count = [&](std::error_code /*error*/) { ++done; };
  const auto unchanged_as = [&](SlotState state) {
    return [&, state] {
      EXPECT_EQ(pool.state(slot), state);
      EXPECT_EQ(device->pending(), 0U);
      EXPECT_EQ(pool.validate(), "");
    };
  };
  EXPECT_GT(fail_until_it_works([&] { pool.write(slot, 0, bytes, count); }, unchanged_as(SlotState::kFilling)), 0U);
  device->complete_all();
  ASSERT_TRUE(pool.commit(slot));
  EXPECT_GT(fail_until_it_works([&] { pool.read(slot, 0, bytes, count); }, unchanged_as(SlotState::kResident)), 0U);
  device->complete_all();
  EXPECT_EQ(done, 2);
  EXPECT_TRUE(pool.free(slot));
  EXPECT_EQ(pool.free_slots(), 1U);
}

TEST(MemoryAllocationFailureTest, IsNothingToCallsThatMustNotFailBrokenOnesIncluded) {
  BlockPool pool({.blocks = 8});
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.allocate(8, blocks));
  const std::vector<BlockId> unknown = {8, 9};
  EXPECT_EQ(allocations_of([&] {
              pool.add_references(blocks);
              pool.add_references(unknown);
              for (int i = 0; i < 3; ++i) pool.drop_references(blocks);
            }),
            0U);
  EXPECT_EQ(pool.free_blocks(), 8U);
  EXPECT_EQ(pool.errors().unknown_ids, 2U);
  EXPECT_EQ(pool.errors().not_in_use, 8U);

  SnapshotPool slots({.slots = 2, .slot_bytes = 4});
  EXPECT_EQ(allocations_of([&] {
              const std::optional<SnapshotId> slot = slots.allocate();
              slots.commit(*slot);
              slots.commit(*slot);
              static_cast<void>(slots.begin_read(*slot));
              slots.free(*slot);
              slots.free(*slot);
              slots.end_read(*slot);
              slots.end_read(2);
            }),
            0U);
  EXPECT_EQ(slots.free_slots(), 2U);
  EXPECT_EQ(slots.errors().wrong_states, 1U);
  EXPECT_EQ(slots.errors().not_in_use, 1U);
  EXPECT_EQ(slots.errors().unknown_ids, 1U);
}

}  // namespace
}  // namespace cairn::testing
