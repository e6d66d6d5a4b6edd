// Several threads on one store that has RAM before a file, and too little of both: for the thread sanitizer, and for
// the counts.
#include <cairn/spill_store.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tier_crash/known_records.h"
#include "tier_crash/sizes.h"
#include "tier_crash/test_folder.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kKeys = 400;
constexpr std::uint64_t kFileBytes = std::uint64_t{2} << 20;
constexpr std::uint64_t kRamBytes = std::uint64_t{512} << 10;
constexpr std::size_t kBufferBytes = std::size_t{2} << 20;
constexpr std::chrono::seconds kFlushTimeout{60};

class TierThreadsTest : public ::testing::TestWithParam<FileStoreOptions::Io> {
 protected:
  TierThreadsTest() {
    OpenedStore opened =
        open_file_store({.buffers = buffers_, .directory = directory_, .bytes_max = kFileBytes, .io = GetParam()});
    EXPECT_TRUE(opened.store) << opened.error.message;
    store_ = make_tiered_store(make_ram_store({.buffers = buffers_, .bytes_max = kRamBytes}), opened.store);
    first_key_ = store_->first_key();
  }

  void put(TierKey key) {
    SpillBufferPtr buffer = known_buffer(*buffers_, key);
    if (!buffer) {
      std::this_thread::yield();
      return;
    }
    const PutResult result = store_->put(key, known_lineage(key), std::move(buffer), [this](bool) { ++puts_done_; });
    if (result == PutResult::kAccepted) ++puts_accepted_;
    if (result != PutResult::kAccepted && result != PutResult::kQueueFull) ++unexpected_;
  }

  void get(TierKey key) {
    ++gets_;
    store_->get(key, [this, key](const GetResult& result) {
      if (!check_known_result(key, result).empty()) ++wrong_;
      if (result.status == GetResult::Status::kFound) ++found_;
      if (result.status == GetResult::Status::kFailed) ++unexpected_;
      ++gets_done_;
    });
  }

  void run(std::uint64_t seed, std::size_t operations) {
    std::mt19937_64 random(seed);
    for (std::size_t operation = 0; operation < operations; ++operation) {
      const TierKey key = first_key_ + random() % kKeys;
      const std::uint64_t dice = random() % 100;
      if (dice < 40) {
        put(key);
      } else if (dice < 80) {
        get(key);
      } else if (dice < 88) {
        store_->erase(key);
      } else if (dice < 94) {
        (void)store_->touch(key);
      } else if (dice < 97) {
        lost_ += store_->take_lost().size();
      } else if (dice < 98) {
        if (!store_->validate().empty()) ++invalid_;
      } else if (dice < 99) {
        const SpillStats stats = store_->stats();
        if (stats.ram_bytes > kRamBytes || stats.file_bytes > kFileBytes) ++invalid_;
      } else if (operation % 5 == 0) {
        (void)store_->flush(kFlushTimeout);  // what is erased or replaced meanwhile may count as not written
      }
    }
  }

  TestFolder folder_;
  const std::string directory_ = folder_ / "store";
  std::shared_ptr<SpillBuffers> buffers_ = std::make_shared<SpillBuffers>(known_layout(), kRamBytes + kBufferBytes);
  std::shared_ptr<SpillStore> store_;
  TierKey first_key_ = 0;
  std::atomic<std::uint64_t> puts_accepted_{0};
  std::atomic<std::uint64_t> puts_done_{0};
  std::atomic<std::uint64_t> gets_{0};
  std::atomic<std::uint64_t> gets_done_{0};
  std::atomic<std::uint64_t> found_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<std::uint64_t> wrong_{0};
  std::atomic<std::uint64_t> invalid_{0};
  std::atomic<std::uint64_t> unexpected_{0};
};

TEST_P(TierThreadsTest, EachCallEndsOnceWithRightBytesAndTheCountsAddUp) {
  const std::uint64_t seed = crash_seed();
  const std::size_t operations = all_or(10'000, 1'500);
  std::printf("%zu threads, %zu operations each%s, CAIRN_CRASH_SEED=%llu\n", kThreads, operations, reduced_note(),
              static_cast<unsigned long long>(seed));
  {
    std::latch start(kThreads);
    std::vector<std::jthread> threads;
    threads.reserve(kThreads);
    for (std::size_t id = 0; id < kThreads; ++id) {
      threads.emplace_back([&, id] {
        start.arrive_and_wait();
        run(seed * kThreads + id, operations);
      });
    }
  }
  EXPECT_TRUE(store_->flush(kFlushTimeout));
  for (TierKey key = first_key_; key < first_key_ + kKeys; ++key) {
    ++gets_;
    ++gets_done_;
    const GetResult result = get_now(*store_, key);
    EXPECT_EQ(check_known_result(key, result), "");
    if (result.status == GetResult::Status::kFound) ++found_;
  }
  const SpillStats stats = store_->stats();
  EXPECT_EQ(stats.pending, 0U);
  EXPECT_EQ(puts_done_, puts_accepted_);
  EXPECT_EQ(gets_done_, gets_);
  EXPECT_EQ(stats.puts, puts_accepted_);
  EXPECT_EQ(stats.gets, gets_);
  EXPECT_EQ(stats.gets, stats.found_in_ram + stats.found_in_file + stats.misses + stats.failed_gets);
  EXPECT_EQ(stats.found_in_ram + stats.found_in_file, found_);
  EXPECT_GT(stats.found_in_ram, 0U);
  EXPECT_GT(stats.found_in_file, 0U);
  EXPECT_GT(stats.evicted_records, 0U) << "there is room enough: the test is too small";
  EXPECT_GT(lost_, 0U);
  EXPECT_EQ(stats.damaged_records, 0U);
  EXPECT_EQ(stats.io_errors, 0U);
  EXPECT_FALSE(stats.degraded) << stats.degraded_reason;
  EXPECT_EQ(wrong_, 0U);
  EXPECT_EQ(invalid_, 0U);
  EXPECT_EQ(unexpected_, 0U);
  EXPECT_EQ(store_->validate(), "");
  EXPECT_LE(disk_bytes(directory_), kFileBytes);
}

INSTANTIATE_TEST_SUITE_P(All, TierThreadsTest,
                         ::testing::Values(FileStoreOptions::Io::kBest, FileStoreOptions::Io::kThreads),
                         [](const ::testing::TestParamInfo<FileStoreOptions::Io>& io) {
                           return io.param == FileStoreOptions::Io::kBest ? "Best" : "Threads";
                         });

}  // namespace
}  // namespace cairn::testing
