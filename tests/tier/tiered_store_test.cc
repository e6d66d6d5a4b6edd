// RAM before a file, sentence by sentence.
#include <cairn/spill_store.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tier/records.h"
#include "tier/store_fixture.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Status = GetResult::Status;

class TieredStoreTest : public FileStoreFixture {
 protected:
  static constexpr std::size_t kRamRecords = 4;

  void SetUp() override {
    // Puts come faster than the file takes them: room for all of a test's.
    options_.buffers = buffers_ = std::make_shared<SpillBuffers>(small_layout(), 8 << 20);
    open_tiers();
  }

  void open_tiers() {
    store_.reset();
    open();
    file_ = std::move(store_);
    store_ = make_tiered_store(
        make_ram_store({.buffers = buffers_, .bytes_max = kRamRecords * buffers_->record_bytes(RecordKind::kBlock)}),
        file_);
    file_.reset();  // the tiered store's alone
  }

  void put_blocks(TierKey first, TierKey end) {
    for (TierKey key = first; key < end; ++key) ASSERT_EQ(put_and_wait(*store_, key), true);
  }

  std::shared_ptr<SpillStore> file_;
};

TEST_F(TieredStoreTest, HandsWhatRamEvictsToTheFileAndFindsItThere) {
  put_blocks(1, 11);
  EXPECT_EQ(store_->stats().ram_records, kRamRecords);
  EXPECT_EQ(get_and_wait(*store_, 10).tier, Tier::kRam);
  EXPECT_TRUE(store_->flush(kLong));
  EXPECT_EQ(store_->touch(10), Tier::kRam);
  EXPECT_EQ(store_->touch(1), Tier::kFile);
  EXPECT_EQ(get_and_wait(*store_, 1).tier, Tier::kFile);
  for (TierKey key = 1; key <= 10; ++key) EXPECT_TRUE(is_found(*store_, key)) << key;
  EXPECT_EQ(get_and_wait(*store_, 11).status, Status::kMissing);
  EXPECT_THAT(store_->take_lost(), IsEmpty());
  const SpillStats stats = store_->stats();
  EXPECT_EQ(stats.puts, 10U);
  EXPECT_EQ(stats.evicted_records, 0U);
  EXPECT_EQ(stats.found_in_ram, 1 + kRamRecords);
  EXPECT_EQ(stats.found_in_file, 1 + 10 - kRamRecords);
}

TEST_F(TieredStoreTest, FindsARecordAtEveryMoment) {
  for (TierKey key = 1; key <= 40; ++key) {
    put_blocks(key, key + 1);
    for (TierKey old = 1; old <= key; ++old) ASSERT_TRUE(is_found(*store_, old)) << old << " of " << key;
  }
}

TEST_F(TieredStoreTest, WritesAtAFlushWhatOnlyRamHasAndOnlyOnce) {
  const TierKey first = store_->first_key();
  put_blocks(first, first + 4);
  EXPECT_EQ(store_->stats().file_records, 0U);
  EXPECT_TRUE(store_->flush(kLong));
  const std::uint64_t written = store_->stats().written_bytes;
  EXPECT_EQ(store_->stats().file_records, 4U);
  EXPECT_TRUE(store_->flush(kLong));
  put_blocks(first + 4, first + 8);  // evicts the first four, which the file has already
  EXPECT_TRUE(store_->flush(kLong));
  EXPECT_EQ(store_->stats().written_bytes, 2 * written);
  open_tiers();
  EXPECT_EQ(store_->take_recovered().size(), 8U);
  for (TierKey key = first; key < first + 8; ++key) EXPECT_TRUE(is_found(*store_, key));
}

TEST_F(TieredStoreTest, ErasesInBothForGood) {
  const TierKey first = store_->first_key();
  put_blocks(first, first + 4);
  EXPECT_TRUE(store_->flush(kLong));  // in both now
  store_->erase(first);
  put_blocks(first + 4, first + 9);
  store_->erase(first + 1);  // in the file alone
  EXPECT_EQ(store_->stats().erased_records, 2U);
  EXPECT_EQ(get_and_wait(*store_, first).status, Status::kMissing);
  EXPECT_EQ(get_and_wait(*store_, first + 1).status, Status::kMissing);
  EXPECT_TRUE(store_->flush(kLong));
  EXPECT_THAT(store_->take_lost(), IsEmpty());
  open_tiers();
  EXPECT_EQ(store_->take_recovered().size(), 7U);
}

TEST_F(TieredStoreTest, ReportsWhatIsLostFromBothAndNothingElse) {
  put_blocks(1, 4);
  EXPECT_TRUE(store_->flush(kLong));
  std::set<TierKey> lost;
  for (TierKey key = 10; key < 400; ++key) {
    put_blocks(key, key + 1);
    EXPECT_EQ(store_->touch(1), Tier::kRam);  // stays in RAM, while the file loses it
    for (const TierKey gone : store_->take_lost()) ASSERT_TRUE(lost.insert(gone).second) << gone;
  }
  EXPECT_TRUE(store_->flush(kLong));
  for (const TierKey gone : store_->take_lost()) ASSERT_TRUE(lost.insert(gone).second) << gone;
  EXPECT_GT(lost.size(), 100U);
  EXPECT_FALSE(lost.contains(1));
  for (TierKey key = 10; key < 400; ++key) {
    ASSERT_EQ(is_found(*store_, key), !lost.contains(key)) << key;
  }
  EXPECT_TRUE(is_found(*store_, 1));
}

// A back that answers at once, so that what it loses is known at each moment.
class TwoRamStoresTest : public ::testing::Test {
 protected:
  void put_blocks(TierKey first, TierKey end) {
    for (TierKey key = first; key < end; ++key) ASSERT_EQ(put_and_wait(*store_, key), true);
  }

  std::shared_ptr<SpillBuffers> buffers_ = std::make_shared<SpillBuffers>(small_layout(), 1 << 20);
  const std::size_t block_bytes_ = buffers_->record_bytes(RecordKind::kBlock);
  std::shared_ptr<SpillStore> back_ = make_ram_store({.buffers = buffers_, .bytes_max = 8 * block_bytes_});
  std::shared_ptr<SpillStore> store_ =
      make_tiered_store(make_ram_store({.buffers = buffers_, .bytes_max = 4 * block_bytes_}), back_);
};

TEST_F(TwoRamStoresTest, WhatOnlyTheBackHasLostIsNotLostAndGoesThereAgain) {
  put_blocks(1, 2);
  EXPECT_TRUE(store_->flush(kLong));  // in both now
  for (TierKey key = 10; key < 40; ++key) {
    put_blocks(key, key + 1);
    ASSERT_EQ(store_->touch(1), Tier::kRam);
  }
  EXPECT_EQ(back_->touch(1), std::nullopt);
  put_blocks(40, 44);  // evicts it from the front, which has not heard of the loss
  EXPECT_NE(back_->touch(1), std::nullopt);
  EXPECT_TRUE(is_found(*store_, 1));
  EXPECT_EQ(store_->validate(), "");
}

TEST_F(TwoRamStoresTest, ALossOfTheBackIsReportedOnlyIfTheFrontHasTheRecordNoMore) {
  put_blocks(1, 3);
  EXPECT_TRUE(store_->flush(kLong));
  std::set<TierKey> lost;
  for (TierKey key = 10; key < 40; ++key) {
    put_blocks(key, key + 1);
    ASSERT_EQ(store_->touch(1), Tier::kRam);
    for (const TierKey gone : store_->take_lost()) ASSERT_TRUE(lost.insert(gone).second) << gone;
  }
  EXPECT_EQ(back_->touch(1), std::nullopt);
  EXPECT_FALSE(lost.contains(1));
  EXPECT_TRUE(lost.contains(2));
  for (TierKey key = 10; key < 40; ++key) EXPECT_EQ(is_found(*store_, key), !lost.contains(key)) << key;
}

TEST_F(TieredStoreTest, ReplacesARecordWhereverItIs) {
  put_blocks(1, 9);
  EXPECT_EQ(put_and_wait(*store_, 1, RecordKind::kBlock, 1), true);  // the old one is in the file
  EXPECT_TRUE(is_found(*store_, 1, 1));
  put_blocks(9, 14);
  EXPECT_TRUE(store_->flush(kLong));
  EXPECT_EQ(store_->touch(1), Tier::kFile);
  EXPECT_TRUE(is_found(*store_, 1, 1));
  EXPECT_THAT(store_->take_lost(), IsEmpty());
}

TEST_F(TieredStoreTest, RefusesOtherStoresInFront) {
  EXPECT_THROW(static_cast<void>(make_tiered_store(store_, store_)), std::invalid_argument);
  const auto ram = [&](std::shared_ptr<SpillBuffers> buffers) {
    return make_ram_store({.buffers = std::move(buffers), .bytes_max = 1 << 20});
  };
  EXPECT_THROW(static_cast<void>(make_tiered_store(ram(buffers_), nullptr)), std::invalid_argument);
  const auto others = std::make_shared<SpillBuffers>(small_layout(), 1 << 20);
  EXPECT_THROW(static_cast<void>(make_tiered_store(ram(others), store_)), std::invalid_argument);
}

TEST_F(TieredStoreTest, TakesNothingLargerThanItsRam) {
  EXPECT_EQ(store_->put(1, snapshot_lineage(), buffers_->allocate(RecordKind::kTail), {}), PutResult::kAccepted);
  const auto tiny =
      make_tiered_store(make_ram_store({.buffers = buffers_, .bytes_max = buffers_->record_bytes(RecordKind::kBlock)}),
                        make_ram_store({.buffers = buffers_, .bytes_max = 1 << 20}));
  EXPECT_EQ(tiny->put(1, snapshot_lineage(), buffers_->allocate(RecordKind::kTail), {}), PutResult::kTooLarge);
  EXPECT_EQ(tiny->stats().puts_dropped, 1U);
}

}  // namespace
}  // namespace cairn::testing
