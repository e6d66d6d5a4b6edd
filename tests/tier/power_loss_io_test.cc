// A power loss takes what was not synced, and nothing else.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <future>
#include <set>

#include "support/faulty_io.h"
#include "tier/io_fixtures.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kSector = 512;

class PowerLossIoTest : public ::testing::Test {
 protected:
  IoResult write(Pages& pages, std::size_t page = 0) {
    return result_of(io_, write_request(scratch_.file(), page, pages, 1));
  }
  IoResult sync() { return result_of(io_, sync_request(scratch_.file(), 2)); }
  Pages read(std::size_t pages, std::size_t page = 0) {
    Pages found(pages, 0xEE);
    EXPECT_EQ(result_of(io_, read_request(scratch_.file(), page, found, 3)).bytes, found.size());
    return found;
  }

  ScratchFile scratch_;
  std::shared_ptr<PowerLossDisk> disk_ = std::make_shared<PowerLossDisk>();
  PowerLossIo io_{disk_, 16, 1};
  Pages old_ = Pages::numbered(4, 1);
  Pages new_ = Pages::numbered(4, 2);
};

TEST_F(PowerLossIoTest, WritesAreSeenByReadsAtOnceAndInTheFileAfterASync) {
  scratch_.write(old_);
  EXPECT_EQ(write(new_).bytes, new_.size());
  EXPECT_EQ(read(4), new_);
  EXPECT_EQ(scratch_.read(4), old_);
  EXPECT_EQ(disk_->unsynced_writes(), 1U);
  EXPECT_EQ(sync().error, 0);
  EXPECT_EQ(disk_->unsynced_writes(), 0U);
  EXPECT_EQ(scratch_.read(4), new_);
  EXPECT_EQ(read(4), new_);
  EXPECT_EQ(disk_->operations(), 4U);
}

TEST_F(PowerLossIoTest, WhatWasSyncedSurvivesEveryPowerLoss) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Pages pages = Pages::numbered(4, 10 + seed);
    EXPECT_EQ(write(pages).error, 0);
    EXPECT_EQ(sync().error, 0);
    disk_->cut_power(seed);
    EXPECT_EQ(scratch_.read(4), pages);
    disk_->restore_power();
    EXPECT_EQ(read(4), pages);
  }
}

// For each seed: of which sectors the new contents are there.
TEST_F(PowerLossIoTest, WhatWasNotSyncedIsKeptOrLostOrTornBySectors) {
  std::set<std::size_t> kept_counts;
  constexpr std::size_t kSectors = 4 * kPage / kSector;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    scratch_.write(old_);
    EXPECT_EQ(write(new_).error, 0);
    disk_->cut_power(seed);
    disk_->restore_power();
    const Pages stands = scratch_.read(4);
    std::size_t kept = 0;
    for (std::size_t sector = 0; sector < kSectors; ++sector) {
      const auto of = [&](const Pages& pages) { return pages.page(0, 4).subspan(sector * kSector, kSector); };
      if (same(of(stands), of(new_))) {
        ++kept;
      } else {
        EXPECT_TRUE(same(of(stands), of(old_))) << "seed " << seed << ": a sector of neither";
      }
    }
    kept_counts.insert(kept);
  }
  EXPECT_EQ(kept_counts.count(0), 1U);
  EXPECT_EQ(kept_counts.count(kSectors), 1U);
  EXPECT_GT(kept_counts.size(), 4U);
}

TEST_F(PowerLossIoTest, WritesSurviveInAnyOrder) {
  Pages first = Pages::numbered(1, 21);
  Pages second = Pages::numbered(1, 22);
  bool only_first = false;
  bool only_second = false;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    scratch_.write(old_);
    EXPECT_EQ(write(first, 0).error, 0);
    EXPECT_EQ(write(second, 2).error, 0);
    disk_->cut_power(seed);
    disk_->restore_power();
    const Pages stands = scratch_.read(4);
    const bool has_first = same(stands.page(0), first.page(0));
    const bool has_second = same(stands.page(2), second.page(0));
    only_first = only_first || (has_first && same(stands.page(2), old_.page(2)));
    only_second = only_second || (has_second && same(stands.page(0), old_.page(0)));
    EXPECT_TRUE(same(stands.page(1), old_.page(1)));
  }
  EXPECT_TRUE(only_first);
  EXPECT_TRUE(only_second);
}

TEST_F(PowerLossIoTest, ASyncCoversOnlyWhatWasOverWhenItBegan) {
  scratch_.write(old_);
  io_.submit(write_request(scratch_.file(), 0, new_, 1));
  io_.submit(sync_request(scratch_.file(), 2));
  EXPECT_EQ(results_of(io_, 2).size(), 2U);
  EXPECT_EQ(disk_->unsynced_writes(), 1U);
  EXPECT_EQ(scratch_.read(4), old_);
  io_.submit(sync_request(scratch_.file(), 3));
  EXPECT_EQ(scratch_.read(4), old_);  // nor before its own result is there
  EXPECT_EQ(results_of(io_, 1).size(), 1U);
  EXPECT_EQ(scratch_.read(4), new_);
}

TEST_F(PowerLossIoTest, ASyncIsOfItsFileAlone) {
  const ScratchFile other;
  EXPECT_EQ(write(new_).error, 0);
  EXPECT_EQ(result_of(io_, write_request(other.file(), 0, old_, 1)).error, 0);
  EXPECT_EQ(sync().error, 0);
  EXPECT_EQ(disk_->unsynced_writes(), 1U);
}

TEST_F(PowerLossIoTest, APunchReadsAsZerosAndMayBeLost) {
  scratch_.write(old_);
  EXPECT_EQ(result_of(io_, punch_request(scratch_.file(), 1, 2, 1)).error, 0);
  const Pages zeros(2);
  EXPECT_TRUE(same(read(4).page(1, 2), zeros.page(0, 2)));
  EXPECT_TRUE(same(read(4).page(3), old_.page(3)));
  EXPECT_EQ(scratch_.read(4), old_);
  EXPECT_EQ(sync().error, 0);
  EXPECT_TRUE(same(scratch_.read(4).page(1, 2), zeros.page(0, 2)));
  EXPECT_TRUE(same(scratch_.read(4).page(3), old_.page(3)));
}

TEST_F(PowerLossIoTest, AllOperationsFailWhilePowerIsCutAlsoThoseUnderWay) {
  EXPECT_EQ(write(old_).error, 0);
  EXPECT_EQ(sync().error, 0);
  io_.submit(sync_request(scratch_.file(), 1));
  disk_->cut_power(1);
  EXPECT_TRUE(disk_->power_is_cut());
  EXPECT_EQ(results_of(io_, 1).at(0).error, EIO);
  EXPECT_EQ(write(new_).error, EIO);
  Pages found(4);
  EXPECT_EQ(result_of(io_, read_request(scratch_.file(), 0, found, 1)).error, EIO);
  EXPECT_EQ(sync().error, EIO);
  disk_->restore_power();
  EXPECT_FALSE(disk_->power_is_cut());
  EXPECT_EQ(read(4), old_);
  EXPECT_EQ(scratch_.read(4), old_);
}

TEST_F(PowerLossIoTest, PowerIsCutAtTheNthOperation) {
  scratch_.write(old_);
  disk_->cut_power_at(3, 7);
  EXPECT_EQ(write(new_).error, 0);
  EXPECT_EQ(sync().error, 0);
  EXPECT_FALSE(disk_->power_is_cut());
  EXPECT_EQ(write(old_).error, EIO);
  EXPECT_TRUE(disk_->power_is_cut());
  EXPECT_EQ(disk_->operations(), 3U);
}

TEST_F(PowerLossIoTest, AFileOpenedAgainIsTheSameFile) {
  const int again = ::open(scratch_.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(again, 0);
  EXPECT_EQ(write(new_).error, 0);
  Pages found(4);
  EXPECT_EQ(result_of(io_, read_request(again, 0, found, 1)).bytes, found.size());
  EXPECT_EQ(found, new_);
  EXPECT_EQ(result_of(io_, sync_request(again, 1)).error, 0);
  EXPECT_EQ(scratch_.read(4), new_);
  ::close(again);
  EXPECT_EQ(result_of(io_, sync_request(-1, 1)).error, EBADF);
}

TEST_F(PowerLossIoTest, AWakeEndsAWait) {
  std::array<IoResult, 1> results{};
  const std::future<void> waking = std::async(std::launch::async, [&] { io_.wake(); });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(io_.wait(results, kLong), 0U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
  EXPECT_EQ(io_.wait(results, std::chrono::milliseconds(10)), 0U);
}

}  // namespace
}  // namespace cairn::testing
