#include "replay/block_pool.h"

#include <gtest/gtest.h>

#include <vector>

#include "replay/errors.h"

namespace cairn::replay {
namespace {

TEST(SimulatedBlockPool, ABlockIsFreeAgainWhenItsLastReferenceGoes) {
  SimulatedBlockPool pool(2);
  std::vector<BlockId> table;
  pool.allocate(2, table);
  EXPECT_EQ(pool.shortage(1), 1U);
  pool.add_reference(table[0]);
  pool.drop_reference(table[0]);
  EXPECT_EQ(pool.used(), 2U);
  pool.drop_reference(table[0]);
  EXPECT_EQ(pool.used(), 1U);
  EXPECT_EQ(pool.shortage(1), 0U);
  EXPECT_EQ(pool.shortage(4), 3U);
  EXPECT_EQ(pool.peak_used(), 2U);
}

TEST(SimulatedBlockPool, RefusesWhatNobodyHolds) {
  SimulatedBlockPool pool(3);
  std::vector<BlockId> table;
  pool.allocate(1, table);
  const BlockId block = table[0];
  EXPECT_THROW(pool.drop_reference(block + 1), ReplayError);
  pool.drop_reference(block);
  EXPECT_THROW(pool.drop_reference(block), ReplayError);
  EXPECT_THROW(pool.add_reference(block), ReplayError);
  EXPECT_THROW(static_cast<void>(pool.content(block)), ReplayError);
  EXPECT_THROW(pool.fill(block, {}), ReplayError);
}

TEST(SimulatedBlockPool, AllocatesNothingBeyondItsCapacity) {
  SimulatedBlockPool pool(3);
  std::vector<BlockId> table;
  EXPECT_THROW(pool.allocate(4, table), ReplayError);
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(pool.used(), 0U);
}

TEST(SimulatedBlockPool, WithoutACapacityItIsNeverShort) {
  SimulatedBlockPool pool(std::nullopt);
  std::vector<BlockId> table;
  EXPECT_EQ(pool.shortage(1'000'000), 0U);
  pool.allocate(1000, table);
  EXPECT_EQ(pool.used(), 1000U);
}

TEST(SimulatedBlockPool, RemembersWhatABlockWasFilledWith) {
  SimulatedBlockPool pool(2);
  std::vector<BlockId> table;
  pool.allocate(2, table);
  pool.fill(table[0], {.low = 1, .high = 2});
  pool.fill(table[1], {.low = 3, .high = 4});
  EXPECT_EQ(pool.content(table[0]), (ContentDigest{.low = 1, .high = 2}));
  EXPECT_EQ(pool.content(table[1]), (ContentDigest{.low = 3, .high = 4}));
}

}  // namespace
}  // namespace cairn::replay
