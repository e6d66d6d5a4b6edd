// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/cache_manager.h>

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

namespace cairn {
namespace {

static_assert(!std::is_copy_constructible_v<CacheManager> && !std::is_copy_assignable_v<CacheManager>);
static_assert(!std::is_convertible_v<CacheManagerOptions, CacheManager>);
static_assert(std::is_aggregate_v<CacheManagerOptions> && std::is_aggregate_v<Request> &&
              std::is_aggregate_v<MediaSpan>);
static_assert(std::is_aggregate_v<Admission> && !std::is_copy_constructible_v<Admission>);
static_assert(std::is_trivially_copyable_v<ManagerStats> && std::is_trivially_copyable_v<ClearReport> &&
              std::is_trivially_copyable_v<Peeked>);

TEST(CacheManagerHeaderTest, OptionsDefaultToCapturingAndMustNameAPool) {
  const CacheManagerOptions options;
  EXPECT_EQ(options.block_size, 16U);
  EXPECT_EQ(options.blocks, nullptr);
  EXPECT_EQ(options.snapshots, nullptr);
  EXPECT_EQ(options.sliding_window_tokens, 0U);
  EXPECT_FALSE(options.share_snapshots_across_sessions);
  EXPECT_TRUE(options.capture_tails);
  EXPECT_TRUE(options.capture_branch_points);
  EXPECT_EQ(options.checkpoint_every_tokens, 0U);
  EXPECT_GT(options.adapters_max, 0U);
  EXPECT_GT(options.media_max, 0U);
}

TEST(CacheManagerHeaderTest, ARequestByDefaultReadsAndPublishesEverythingForTheBaseModel) {
  const Request request;
  EXPECT_EQ(request.session, 0U);
  EXPECT_TRUE(request.adapter.empty());
  EXPECT_EQ(request.adapter_generation, 0U);
  EXPECT_TRUE(request.tenant_salt.empty());
  EXPECT_TRUE(request.media.empty());
  EXPECT_FALSE(request.no_read);
  EXPECT_FALSE(request.no_publish);
  EXPECT_FALSE(request.resumed);
  EXPECT_EQ(request.reuse_tokens_max, std::numeric_limits<std::size_t>::max());
  EXPECT_FALSE(request.reserve_tokens);
}

TEST(CacheManagerHeaderTest, AnAdmissionByDefaultHoldsNothing) {
  const Admission admission;
  EXPECT_FALSE(admission.lease);
  EXPECT_EQ(admission.missing_blocks, 0U);
  EXPECT_FALSE(admission.never_fits);
}

}  // namespace
}  // namespace cairn
