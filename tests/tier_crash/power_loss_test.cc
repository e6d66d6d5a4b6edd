// The power goes at each operation in turn: of what was not synced some writes are there, some are not, some are torn,
// in any order. Afterwards each record is intact or absent, what was flushed is there, and what was erased and flushed
// stays away.
#include <cairn/spill_store.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/faulty_io.h"
#include "tier/file_store.h"
#include "tier_crash/known_records.h"
#include "tier_crash/session.h"
#include "tier_crash/sizes.h"
#include "tier_crash/survivors.h"
#include "tier_crash/test_folder.h"

namespace cairn::testing {
namespace {

constexpr std::uint64_t kRoomyBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kTinyBytes = std::uint64_t{512} << 10;  // half of it for what is not records
constexpr std::uint64_t kRamBytes = std::uint64_t{96} << 10;
constexpr std::size_t kBufferBytes = std::size_t{2} << 20;
constexpr std::size_t kDepth = 8;
constexpr std::chrono::milliseconds kRetryAfter{1};
constexpr std::chrono::seconds kFlushTimeout{60};

struct Setting {
  const char* name;
  std::uint64_t file_bytes_max;
  std::uint64_t ram_bytes_max;  // 0: no RAM in front of the file
};

class PowerLossTest : public ::testing::TestWithParam<Setting> {
 protected:
  OpenedStore open(std::uint64_t seed) {
    const auto buffers = std::make_shared<SpillBuffers>(known_layout(), kBufferBytes);
    OpenedStore opened = open_file_store({.buffers = buffers,
                                          .directory = directory_,
                                          .bytes_max = GetParam().file_bytes_max,
                                          .queue_depth = kDepth,
                                          .retry_after = kRetryAfter},
                                         std::make_unique<PowerLossIo>(disk_, kDepth, seed));
    if (opened.store && GetParam().ram_bytes_max > 0) {
      opened.store = make_tiered_store(make_ram_store({.buffers = buffers, .bytes_max = GetParam().ram_bytes_max}),
                                       std::move(opened.store));
    }
    return opened;
  }

  // After a power loss: opened and compared.
  void check(std::uint64_t seed) {
    disk_->cut_power_at(std::numeric_limits<std::uint64_t>::max(), seed);  // not again
    disk_->restore_power();
    const OpenedStore opened = open(seed);
    ASSERT_TRUE(opened.store) << opened.error.message;
    // Here, space is allocated at once and holes may be lost: then older records come back, and have to go again.
    const std::uint64_t evicted_at_start = opened.store->stats().evicted_records;
    const Recovery recovery = check_recovered(*opened.store, survivors_);
    // What the file evicts is not lost as long as RAM has it: nobody is told, and nothing can be said.
    if (!evicted_ || GetParam().ram_bytes_max == 0) {
      EXPECT_LE(recovery.missing.size(), evicted_at_start)
          << "flushed, not reported as lost, and not there: key " << recovery.missing.front();
    }
    compared_ += recovery.compared;
    EXPECT_TRUE(opened.store->flush(kFlushTimeout));  // holes reach the real files with a sync
    EXPECT_LE(disk_bytes(directory_), GetParam().file_bytes_max);
    EXPECT_FALSE(disk_->power_is_cut());
  }

  TestFolder folder_;
  std::string directory_ = folder_ / "store";
  std::shared_ptr<PowerLossDisk> disk_ = std::make_shared<PowerLossDisk>();
  Survivors survivors_{Survivors::Durable::kWhenFlushed};
  const std::uint64_t seed_ = crash_seed();
  std::size_t compared_ = 0;
  bool evicted_ = false;
};

TEST_P(PowerLossTest, AtEachOperationLeavesEachRecordIntactOrAbsent) {
  const std::size_t every = all_or(1, 5);
  const std::size_t seeds = all_or(3, 1);
  std::uint64_t nth = 1;
  for (bool was_cut = true; was_cut; nth += every) {
    for (std::uint64_t seed = seed_; seed < seed_ + seeds; ++seed) {
      SCOPED_TRACE("operation " + std::to_string(nth) + ", seed " + std::to_string(seed));
      directory_ = folder_ / (std::to_string(nth) + "." + std::to_string(seed));
      disk_ = std::make_shared<PowerLossDisk>();
      disk_->cut_power_at(nth, seed);
      survivors_ = Survivors(Survivors::Durable::kWhenFlushed);
      OpenedStore opened = open(seed);
      if (!opened.store) {
        EXPECT_EQ(opened.error.reason, SpillOpenError::Reason::kIo) << opened.error.message;
        EXPECT_TRUE(disk_->power_is_cut());
      } else {
        Session session(std::exchange(opened.store, nullptr), survivors_);
        session.run_small_workload(kFlushTimeout);
        session.note_lost();
      }
      was_cut = disk_->power_is_cut();
      if (!was_cut) disk_->cut_power(seed);  // after the last operation
      check(seed);
      if (HasFailure()) return;
      std::filesystem::remove_all(directory_);
    }
  }
  std::printf("%llu operations, each %zu. one with %zu seeds%s: %zu records compared\n",
              static_cast<unsigned long long>(nth), every, seeds, reduced_note(), compared_);
  EXPECT_GT(nth, 20U);
  EXPECT_GT(compared_, nth / every);
}

TEST_P(PowerLossTest, OneAfterTheOtherOnTheSameDirectory) {
  const std::uint64_t lives = all_or(150, 15);
  constexpr std::size_t kOperations = 60;
  std::mt19937_64 random(seed_);
  for (std::uint64_t life = 0; life < lives; ++life) {
    SCOPED_TRACE("life " + std::to_string(life) + ", CAIRN_CRASH_SEED=" + std::to_string(seed_));
    {
      OpenedStore opened = open(random());
      ASSERT_TRUE(opened.store) << opened.error.message;
      (void)opened.store->take_recovered();
      Session session(std::exchange(opened.store, nullptr), survivors_);
      disk_->cut_power_at(disk_->operations() + 1 + random() % (2 * kOperations), random());
      session.run_random_workload(random, kOperations, kFlushTimeout);
      session.note_lost();
      evicted_ = evicted_ || session.store().stats().evicted_records > 0;
    }
    if (!disk_->power_is_cut()) disk_->cut_power(random());
    check(random());
    if (HasFailure()) return;
  }
  std::printf("%llu lives, CAIRN_CRASH_SEED=%llu%s: %zu records compared\n", static_cast<unsigned long long>(lives),
              static_cast<unsigned long long>(seed_), reduced_note(), compared_);
  EXPECT_GT(compared_, lives);
}

INSTANTIATE_TEST_SUITE_P(All, PowerLossTest,
                         ::testing::Values(Setting{"RoomyFile", kRoomyBytes, 0}, Setting{"TinyFile", kTinyBytes, 0},
                                           Setting{"RamBeforeRoomyFile", kRoomyBytes, kRamBytes}),
                         [](const ::testing::TestParamInfo<Setting>& setting) { return setting.param.name; });

}  // namespace
}  // namespace cairn::testing
