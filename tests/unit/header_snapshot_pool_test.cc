// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/snapshot_pool.h>

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

namespace cairn {
namespace {

static_assert(std::is_aggregate_v<SnapshotPoolOptions>);
static_assert(!std::is_copy_constructible_v<SnapshotPool> && !std::is_copy_assignable_v<SnapshotPool>);
static_assert(!std::is_convertible_v<SnapshotPoolOptions, SnapshotPool>);
static_assert(noexcept(std::declval<SnapshotPool&>().allocate()));
static_assert(noexcept(std::declval<SnapshotPool&>().commit(0)));
static_assert(noexcept(std::declval<SnapshotPool&>().free(0)));
static_assert(noexcept(std::declval<SnapshotPool&>().begin_read(0)));
static_assert(noexcept(std::declval<SnapshotPool&>().end_read(0)));

TEST(SnapshotPoolHeaderTest, OptionsDefaultToOneShardAndMustNameTheSlots) {
  const SnapshotPoolOptions options;
  EXPECT_EQ(options.slots, 0U);
  EXPECT_EQ(options.slot_bytes, 0U);
  EXPECT_EQ(options.shards, 1U);
  EXPECT_EQ(options.device, nullptr);
}

}  // namespace
}  // namespace cairn
