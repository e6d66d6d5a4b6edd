// The store in RAM, sentence by sentence.
#include <cairn/spill_store.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tier/records.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RamStoreTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(store_->validate(), "");
    const SpillStats stats = store_->stats();
    EXPECT_EQ(stats.gets, stats.found_in_ram + stats.misses);
    EXPECT_EQ(stats.pending, 0U);
  }

  std::shared_ptr<SpillBuffers> buffers_ = std::make_shared<SpillBuffers>(small_layout(), 1 << 20);
  const std::size_t block_bytes_ = buffers_->record_bytes(RecordKind::kBlock);
  std::shared_ptr<SpillStore> store_ = make_ram_store({.buffers = buffers_, .bytes_max = 4 * block_bytes_});
};

TEST_F(RamStoreTest, FindsWhatWasPutWithoutACopy) {
  const SpillBufferPtr buffer = filled_buffer(*buffers_, RecordKind::kBlock, 1);
  std::optional<bool> stored;
  ASSERT_EQ(store_->put(1, block_lineage(), buffer, [&](bool yes) { stored = yes; }), PutResult::kAccepted);
  EXPECT_EQ(stored, true);  // before put returned
  const GetResult result = get_and_wait(*store_, 1);
  EXPECT_EQ(result.status, GetResult::Status::kFound);
  EXPECT_EQ(result.tier, Tier::kRam);
  EXPECT_EQ(result.buffer, buffer);
  EXPECT_EQ(get_and_wait(*store_, 2).status, GetResult::Status::kMissing);
  EXPECT_EQ(store_->stats().ram_bytes, block_bytes_);
}

TEST_F(RamStoreTest, EvictsTheLeastRecentlyUsedAndSaysSo) {
  for (TierKey key = 1; key <= 4; ++key) EXPECT_EQ(put_and_wait(*store_, key), true);
  EXPECT_TRUE(is_found(*store_, 1));
  EXPECT_EQ(store_->touch(2), Tier::kRam);
  EXPECT_EQ(store_->touch(7), std::nullopt);
  EXPECT_EQ(put_and_wait(*store_, 5), true);
  EXPECT_EQ(put_and_wait(*store_, 6), true);
  EXPECT_THAT(sorted(store_->take_lost()), ElementsAre(3, 4));
  EXPECT_THAT(store_->take_lost(), IsEmpty());
  for (const TierKey key : {1U, 2U, 5U, 6U}) EXPECT_TRUE(is_found(*store_, key)) << key;
  EXPECT_EQ(store_->stats().evicted_records, 2U);
  EXPECT_EQ(store_->stats().ram_records, 4U);
}

TEST_F(RamStoreTest, EvictsAsManyBlocksAsASnapshotNeeds) {
  for (TierKey key = 1; key <= 4; ++key) EXPECT_EQ(put_and_wait(*store_, key), true);
  EXPECT_EQ(put_and_wait(*store_, 5, RecordKind::kTail), true);
  EXPECT_THAT(sorted(store_->take_lost()), ElementsAre(1, 2));
  EXPECT_LE(store_->stats().ram_bytes, 4 * block_bytes_);
}

TEST_F(RamStoreTest, ReplacesARecordWithoutLosingIt) {
  for (TierKey key = 1; key <= 4; ++key) EXPECT_EQ(put_and_wait(*store_, key), true);
  EXPECT_EQ(put_and_wait(*store_, 1, RecordKind::kBlock, 1), true);
  EXPECT_TRUE(is_found(*store_, 1, 1));
  EXPECT_THAT(store_->take_lost(), IsEmpty());
  EXPECT_EQ(store_->stats().ram_records, 4U);
}

TEST_F(RamStoreTest, ForgetsALossOnceTheKeyIsPutAgain) {
  for (TierKey key = 1; key <= 5; ++key) EXPECT_EQ(put_and_wait(*store_, key), true);
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  EXPECT_THAT(store_->take_lost(), ElementsAre(2));
}

TEST_F(RamStoreTest, ErasesWithoutReportingIt) {
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  store_->erase(1);
  store_->erase(1);
  EXPECT_EQ(get_and_wait(*store_, 1).status, GetResult::Status::kMissing);
  EXPECT_THAT(store_->take_lost(), IsEmpty());
  EXPECT_EQ(store_->stats().erased_records, 1U);
  EXPECT_EQ(store_->stats().ram_bytes, 0U);
}

TEST_F(RamStoreTest, TakesNothingThatDoesNotFit) {
  const auto put = [&](const RecordLineage& lineage) {
    return store_->put(1, lineage, buffers_->allocate(lineage.kind), {});
  };
  RecordLineage lineage = block_lineage();
  lineage.adapter = std::string(RecordLineage::kNameBytesMax + 1, 'a');
  EXPECT_EQ(put(lineage), PutResult::kTooLarge);
  lineage = block_lineage();
  lineage.media.assign(1000, {});
  EXPECT_EQ(put(lineage), PutResult::kTooLarge);
  lineage.media.assign(8, {});
  lineage.adapter = lineage.tenant_salt = std::string(RecordLineage::kNameBytesMax, 'a');
  EXPECT_EQ(put(lineage), PutResult::kAccepted);
  const auto tiny = make_ram_store({.buffers = buffers_, .bytes_max = block_bytes_});
  EXPECT_EQ(tiny->put(1, snapshot_lineage(), buffers_->allocate(RecordKind::kTail), {}), PutResult::kTooLarge);
  EXPECT_EQ(store_->stats().puts_dropped, 2U);
}

TEST_F(RamStoreTest, RefusesWhatBreaksTheRules) {
  EXPECT_THROW(static_cast<void>(store_->put(0, block_lineage(), buffers_->allocate(RecordKind::kBlock), {})),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(store_->put(1, block_lineage(), nullptr, {})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(store_->put(1, block_lineage(), buffers_->allocate(RecordKind::kTail), {})),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(make_ram_store({.buffers = nullptr, .bytes_max = 1})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(make_ram_store({.buffers = buffers_, .bytes_max = 0})), std::invalid_argument);
}

}  // namespace
}  // namespace cairn::testing
