// The pools of blocks, sentence by sentence.
#include <cairn/block_pool.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/manual_device.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(BlockPoolTest, HandsOutBlocksWithOneReferenceEach) {
  BlockPool pool({.blocks = 4});
  std::vector<BlockId> blocks = {77};
  ASSERT_TRUE(pool.allocate(3, blocks));
  EXPECT_THAT(blocks, ElementsAre(77, 0, 1, 2)) << "they are appended";
  EXPECT_EQ(pool.references(1), 1U);
  EXPECT_EQ(pool.references(3), 0U);
  EXPECT_EQ(pool.free_blocks(), 1U);
  EXPECT_EQ(pool.used_blocks(), 3U);
  EXPECT_EQ(pool.total_blocks(), 4U);
  EXPECT_EQ(pool.validate(), "");
}

TEST(BlockPoolTest, HandsOutNoneIfThereAreTooFew) {
  BlockPool pool({.blocks = 4});
  std::vector<BlockId> blocks;
  EXPECT_FALSE(pool.allocate(5, blocks));
  EXPECT_FALSE(pool.allocate(std::numeric_limits<std::size_t>::max(), blocks));
  ASSERT_TRUE(pool.allocate(3, blocks));
  EXPECT_FALSE(pool.allocate(2, blocks));
  EXPECT_EQ(blocks.size(), 3U);
  EXPECT_EQ(pool.free_blocks(), 1U);
  EXPECT_TRUE(pool.allocate(0, blocks));
  EXPECT_TRUE(pool.allocate(1, blocks));
  EXPECT_TRUE(pool.allocate(0, blocks));
  EXPECT_EQ(blocks.size(), 4U);
  EXPECT_EQ(pool.errors().last, "") << "a shortage is not an error";
}

TEST(BlockPoolTest, FreesABlockWithItsLastReferenceAndHandsItOutNext) {
  BlockPool pool({.blocks = 4});
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.allocate(3, blocks));
  pool.add_references(std::vector<BlockId>{1, 1});
  pool.drop_references(blocks);
  EXPECT_EQ(pool.references(1), 2U);
  EXPECT_EQ(pool.used_blocks(), 1U);
  pool.drop_references(std::vector<BlockId>{1, 1});
  EXPECT_EQ(pool.used_blocks(), 0U);

  blocks.clear();
  ASSERT_TRUE(pool.allocate(4, blocks));
  EXPECT_THAT(blocks, ElementsAre(1, 2, 0, 3)) << "newest free first";
  EXPECT_EQ(pool.validate(), "");
}

TEST(BlockPoolTest, RefusesBlockByBlockAndNamesTheLast) {
  BlockPool pool({.blocks = 4});
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.allocate(2, blocks));
  EXPECT_THAT(pool.errors().last, IsEmpty());

  pool.drop_references(std::vector<BlockId>{0, 0, 1});
  EXPECT_EQ(pool.errors().not_in_use, 1U);
  EXPECT_EQ(pool.errors().last, "drop_references: block 0 is free");
  EXPECT_EQ(pool.free_blocks(), 4U) << "what came after the double free was dropped";

  pool.add_references(std::vector<BlockId>{3});
  EXPECT_EQ(pool.errors().not_in_use, 2U);
  EXPECT_EQ(pool.errors().last, "add_references: block 3 is free");

  pool.add_references(std::vector<BlockId>{4});
  pool.drop_references(std::vector<BlockId>{std::numeric_limits<BlockId>::max()});
  EXPECT_EQ(pool.errors().unknown_ids, 2U);
  EXPECT_EQ(pool.errors().last, "drop_references: there is no block 4294967295");
  EXPECT_EQ(pool.references(4), 0U);
  EXPECT_EQ(pool.validate(), "");
}

TEST(BlockPoolTest, RefusesToBeEmptyOrToHaveMoreBlocksThanIds) {
  const auto with = [](const BlockPoolOptions& options) { return [options] { const BlockPool pool(options); }; };
  EXPECT_THAT(with({.blocks = 0}), ThrowsMessage<std::invalid_argument>(HasSubstr("blocks: 0 is not between")));
  EXPECT_THAT(with({.blocks = std::size_t{1} << 32}),
              ThrowsMessage<std::invalid_argument>(HasSubstr("blocks: 4294967296 is not between")));
  EXPECT_THAT(with({.blocks = 2, .block_bytes = std::size_t{1} << 63}),
              ThrowsMessage<std::invalid_argument>(HasSubstr("block_bytes: 2 times")));
}

TEST(BlockPoolTest, KeepsTheBytesOfAllBlocksInOnePieceOfItsDevice) {
  const auto device = std::make_shared<testing::ManualDevice>();
  {
    const BlockPool pool({.blocks = 3, .block_bytes = 8192, .device = device});
    EXPECT_EQ(device->allocated_bytes(), 3U * 8192);
    EXPECT_EQ(&pool.device(), device.get());
    EXPECT_EQ(pool.block_bytes(), 8192U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.data(0)) % Device::kAlignment, 0U);
    EXPECT_EQ(pool.data(2), pool.data(0) + std::size_t{2} * 8192);
    EXPECT_THAT([&] { static_cast<void>(pool.data(3)); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("block: 3 is not below 3")));
  }
  EXPECT_EQ(device->allocated_bytes(), 0U);
}

TEST(BlockPoolTest, UsesHostMemoryIfNoDeviceIsGiven) {
  const BlockPool pool({.blocks = 1, .block_bytes = 16});
  EXPECT_EQ(&pool.device(), HostDevice::shared().get());
  EXPECT_EQ(*pool.data(0), std::byte{0});
}

TEST(BlockPoolTest, HasNoBytesIfNoneAreAskedFor) {
  const auto device = std::make_shared<testing::ManualDevice>();
  const BlockPool pool({.blocks = 1, .device = device});
  EXPECT_EQ(device->allocated_bytes(), 0U);
  EXPECT_EQ(pool.block_bytes(), 0U);
  EXPECT_THROW(static_cast<void>(pool.data(0)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(pool.device()), std::invalid_argument);
}

TEST(SwapBlockPoolTest, LetsTheIdOfNoBlockPass) {
  SwapBlockPool pool(2);
  std::vector<DiskBlockId> blocks;
  ASSERT_TRUE(pool.allocate(2, blocks));
  EXPECT_THAT(blocks, ElementsAre(0, 1));
  const std::vector<DiskBlockId> table = {0, kNoDiskBlock, 1};
  pool.add_references(table);
  EXPECT_EQ(pool.references(1), 2U);
  EXPECT_EQ(pool.references(kNoDiskBlock), 0U);
  pool.drop_references(table);
  pool.drop_references(table);
  EXPECT_EQ(pool.free_blocks(), pool.total_blocks());
  EXPECT_EQ(pool.errors().last, "");

  pool.drop_references(std::vector<DiskBlockId>{2, kNoDiskBlock});
  EXPECT_EQ(pool.errors().unknown_ids, 1U);
  EXPECT_EQ(pool.errors().last, "drop_references: there is no block 2");
  EXPECT_EQ(pool.validate(), "");
}

TEST(SwapBlockPoolTest, RefusesToBeEmptyOrToHandOutTheIdOfNoBlock) {
  EXPECT_THROW(SwapBlockPool(0), std::invalid_argument);
  EXPECT_THROW(SwapBlockPool(std::size_t{kNoDiskBlock} + 1), std::invalid_argument);
}

}  // namespace
}  // namespace cairn
