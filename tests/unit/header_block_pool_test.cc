// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/block_pool.h>

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

namespace cairn {
namespace {

static_assert(std::is_abstract_v<BlockAllocator> && std::has_virtual_destructor_v<BlockAllocator>);
static_assert(std::is_final_v<BlockPool> && std::is_convertible_v<BlockPool*, BlockAllocator*>);
static_assert(!std::is_copy_constructible_v<BlockPool> && !std::is_copy_assignable_v<BlockPool>);
static_assert(!std::is_copy_constructible_v<SwapBlockPool> && !std::is_copy_assignable_v<SwapBlockPool>);
static_assert(!std::is_convertible_v<std::size_t, SwapBlockPool>);
static_assert(std::is_aggregate_v<BlockPoolOptions> && std::is_aggregate_v<PoolErrors>);

template <class Pool, class Id>
constexpr bool kGivesBackWithoutFailing =
    noexcept(std::declval<Pool&>().add_references(std::span<const Id>())) &&
    noexcept(std::declval<Pool&>().drop_references(std::span<const Id>())) &&
    noexcept(std::declval<const Pool&>().free_blocks()) && noexcept(std::declval<const Pool&>().total_blocks());
static_assert(kGivesBackWithoutFailing<BlockAllocator, BlockId>);
static_assert(kGivesBackWithoutFailing<BlockPool, BlockId>);
static_assert(kGivesBackWithoutFailing<SwapBlockPool, DiskBlockId>);

TEST(BlockPoolHeaderTest, OptionsDefaultToIdsOnlyAndMustNameTheBlocks) {
  const BlockPoolOptions options;
  EXPECT_EQ(options.blocks, 0U);
  EXPECT_EQ(options.block_bytes, 0U);
  EXPECT_EQ(options.device, nullptr);
}

TEST(BlockPoolHeaderTest, AnEngineWithAPoolOfItsOwnImplementsFiveCalls) {
  class Engine final : public BlockAllocator {
   public:
    bool allocate(std::size_t count, std::vector<BlockId>& /*out*/) override { return count == 0; }
    void add_references(std::span<const BlockId> /*blocks*/) noexcept override {}
    void drop_references(std::span<const BlockId> /*blocks*/) noexcept override {}
    [[nodiscard]] std::size_t free_blocks() const noexcept override { return 0; }
    [[nodiscard]] std::size_t total_blocks() const noexcept override { return 0; }
  };
  Engine engine;
  std::vector<BlockId> blocks;
  EXPECT_TRUE(engine.allocate(0, blocks));
  EXPECT_FALSE(engine.allocate(1, blocks));
}

}  // namespace
}  // namespace cairn
