// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/no_prefix_caching.h>

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

namespace cairn {
namespace {

static_assert(std::is_final_v<NoPrefixCaching>);
static_assert(std::is_convertible_v<NoPrefixCaching*, PrefixCache*>);
static_assert(std::is_default_constructible_v<NoPrefixCaching>);

class NoPrefixCachingTest : public ::testing::Test {
 protected:
  void expect_empty() {
    EXPECT_EQ(cache_.stats().entries, 0u);
    EXPECT_EQ(cache_.stats().cached_blocks, 0u);
    EXPECT_EQ(cache_.snapshot_count(), 0u);
    const PrefixMatch match = cache_.lookup(kSequence, 4, 7, 0);
    EXPECT_TRUE(match.empty());
    EXPECT_TRUE(match.matched_blocks.empty());
    EXPECT_TRUE(match.matched_disk_block_ids.empty());
    EXPECT_FALSE(match.ssm_snapshot);
    EXPECT_FALSE(match.ssm_snapshot_tier_key);
    EXPECT_EQ(cache_.peek_matched_tokens(kSequence, 4, 0), 0u);
    EXPECT_FALSE(cache_.find_snapshot(kSequence, 8, 7, 0).slot);
    EXPECT_TRUE(cache_.evict(9).empty());
    EXPECT_FALSE(cache_.evict_snapshot_lru());
    EXPECT_FALSE(cache_.evict_snapshot_to_tier(0));
  }

  const std::vector<TokenId> kSequence = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<BlockId> kTable = {1, 2};
  const std::vector<DiskBlockId> kDisk = {11, 22};
  NoPrefixCaching no_caching_;
  PrefixCache& cache_ = no_caching_;
};

TEST_F(NoPrefixCachingTest, IsNotActive) {
  EXPECT_FALSE(cache_.is_active());
}

TEST_F(NoPrefixCachingTest, AcquiresNothingOnInsertAndFindsNothingAfterIt) {
  const InsertAcquired acquired = cache_.insert(kSequence, kTable, kDisk, 4, 0, 0);
  EXPECT_TRUE(acquired.blocks.empty());
  EXPECT_TRUE(acquired.disk_block_ids.empty());
  expect_empty();
}

TEST_F(NoPrefixCachingTest, TakesNoOwnershipOfASlotAndGivesNoneBack) {
  const SnapshotInsert inserted = cache_.insert_with_snapshot(kSequence, kTable, kDisk, 4, 50, 7, 0, 0);
  EXPECT_FALSE(inserted.displaced);
  EXPECT_TRUE(inserted.acquired.blocks.empty());
  EXPECT_FALSE(cache_.insert_intermediate_snapshot(kSequence, kTable, kDisk, 4, 51, 7, 0, 0));
  EXPECT_TRUE(cache_.insert_tail_snapshot(kSequence, 52, 7, 0).empty());
  EXPECT_FALSE(cache_.insert_tail_sibling_snapshot(kSequence, 53, 7, 0));
  expect_empty();
}

TEST_F(NoPrefixCachingTest, LetsReleasesPass) {
  cache_.release(kSequence, 4, 0);
  cache_.release_matched(kSequence, 4, 8, 0);
  expect_empty();
}

TEST_F(NoPrefixCachingTest, HasNoTiersAndNothingToClear) {
  EXPECT_FALSE(cache_.promote_snapshot(1, 50));
  EXPECT_FALSE(cache_.forget_snapshot_tier_key(1));
  EXPECT_TRUE(cache_.take_orphaned_tier_keys().empty());
  EXPECT_TRUE(cache_.clear().blocks.empty());
  EXPECT_TRUE(cache_.clear(5).slots.empty());
  expect_empty();
}

TEST_F(NoPrefixCachingTest, ChecksNoArguments) {
  EXPECT_NO_THROW({
    cache_.lookup(kSequence, 0, 0, 0);
    static_cast<void>(cache_.peek_matched_tokens(kSequence, 0, 0));
    cache_.insert(kSequence, kTable, std::vector<DiskBlockId>{11}, 0, 1000, 0);
    cache_.insert_with_snapshot({}, kTable, std::vector<DiskBlockId>{11}, 0, 50, 0, 1000, 0);
    cache_.insert_intermediate_snapshot({}, kTable, std::vector<DiskBlockId>{11}, 0, 50, 0, 1000, 0);
    cache_.insert_tail_snapshot({}, 50, 0, 0);
    cache_.insert_tail_sibling_snapshot({}, 50, 0, 0);
    cache_.release(kSequence, 0, 0);
    cache_.release_matched(kSequence, 0, 1000, 0);
  });
  expect_empty();
}

}  // namespace
}  // namespace cairn
