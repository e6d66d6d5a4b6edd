// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/lease.h>

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

namespace cairn {
namespace {

static_assert(std::is_nothrow_default_constructible_v<Lease> && std::is_nothrow_destructible_v<Lease>);
static_assert(std::is_nothrow_move_constructible_v<Lease> && std::is_nothrow_move_assignable_v<Lease>);
static_assert(!std::is_copy_constructible_v<Lease> && !std::is_copy_assignable_v<Lease>);
static_assert(noexcept(std::declval<Lease&>().abandon()) && noexcept(std::declval<const Lease&>().valid()));
static_assert(std::is_aggregate_v<RestorePoint> && std::is_aggregate_v<BlockCopy> &&
              std::is_aggregate_v<CapturePoint>);
static_assert(std::is_aggregate_v<Lease::Forked> && !std::is_copy_constructible_v<Lease::Forked>);
static_assert(std::is_same_v<StepId, std::uint64_t>);

TEST(LeaseHeaderTest, ALeaseByDefaultHoldsNothing) {
  const Lease lease;
  EXPECT_FALSE(lease.valid());
  const Lease::Forked forked;
  EXPECT_FALSE(forked.lease);
  EXPECT_EQ(forked.missing_blocks, 0U);
}

}  // namespace
}  // namespace cairn
