// A disk that fails at the n-th operation, for each n: never a wrong byte, each call ends once, limits hold, and when
// the disk is well again, so is the store.
#include <cairn/spill_store.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
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

constexpr std::uint64_t kFileBytes = std::uint64_t{512} << 10;  // half of it for what is not records
constexpr std::uint64_t kRamBytes = std::uint64_t{96} << 10;
constexpr std::size_t kBufferBytes = std::size_t{2} << 20;
constexpr std::size_t kDepth = 8;
constexpr std::chrono::milliseconds kRetryAfter{1};
constexpr std::chrono::milliseconds kFlushTimeout{60'000};
// Of operations. Where results get lost it has to be short, and flushes fail; else it must never pass.
constexpr std::chrono::milliseconds kShortTimeout{100};
constexpr std::chrono::milliseconds kLongTimeout{60'000};

struct Case {
  const char* name;
  IoFault fault;
};
using Effect = IoFault::Effect;

const std::array kCases = {
    Case{"EIO", {.effect = Effect::kFail, .error = EIO}},
    Case{"EIOButDone", {.effect = Effect::kFail, .error = EIO, .done_all_the_same = true}},
    Case{"ENOSPC", {.effect = Effect::kFail, .error = ENOSPC}},
    Case{"EROFS", {.effect = Effect::kFail, .error = EROFS}},
    Case{"ThreeEIO", {.effect = Effect::kFail, .count = 3, .error = EIO}},
    Case{"Nothing", {.effect = Effect::kShort, .bytes = 0}},
    Case{"OnePage", {.effect = Effect::kShort, .bytes = 4096}},
    Case{"Slow", {.effect = Effect::kSlow, .operations_until_done = 3, .waits_until_done = 3}},
    Case{"Late", {.effect = Effect::kSlow}},  // when it has long expired
    Case{"Lost", {.effect = Effect::kLose}},
    Case{"LostButDone", {.effect = Effect::kLose, .done_all_the_same = true}},
};

class FaultTest : public ::testing::TestWithParam<std::tuple<bool, Case>> {
 protected:
  [[nodiscard]] static bool tiered() { return std::get<0>(GetParam()); }
  [[nodiscard]] static const IoFault& fault() { return std::get<1>(GetParam()).fault; }

  [[nodiscard]] static bool loses() { return fault().effect == Effect::kLose; }
  [[nodiscard]] static bool expires() {
    return loses() || (fault().effect == Effect::kSlow && fault().operations_until_done == 0);
  }
  [[nodiscard]] static std::chrono::milliseconds flush_timeout() {
    return expires() ? 2 * kShortTimeout : kFlushTimeout;
  }

  std::shared_ptr<SpillStore> open(std::shared_ptr<FaultPlan> plan, std::chrono::milliseconds io_timeout) {
    buffers_ = std::make_shared<SpillBuffers>(known_layout(), kBufferBytes);
    OpenedStore opened = open_file_store({.buffers = buffers_,
                                          .directory = directory_,
                                          .bytes_max = kFileBytes,
                                          .queue_depth = kDepth,
                                          .io_timeout = io_timeout,
                                          .retry_after = kRetryAfter},
                                         std::make_unique<FaultyIo>(make_threaded_io(kDepth, 1), std::move(plan)));
    EXPECT_TRUE(opened.store) << opened.error.message;
    if (!opened.store || !tiered()) return opened.store;
    return make_tiered_store(make_ram_store({.buffers = buffers_, .bytes_max = kRamBytes}), opened.store);
  }

  // The disk is well: puts are stored again, sooner or later, and nothing is left over of the fault.
  void check_recovers(Session& session) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const TierKey key = session.first_key() + 1'000;
    const std::array keys = {key, key + 1, key + 2};
    // What a device has never answered may still happen, and so never rests.
    while ((!session.flush(flush_timeout()) && !loses()) || session.store().stats().degraded ||
           session.store().touch(keys.back()) == std::nullopt) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << session.store().stats().degraded_reason;
      session.put(keys);
    }
    session.get(keys);
    std::vector<TierKey> all;
    for (TierKey earlier = session.first_key(); earlier < session.first_key() + 20; ++earlier) all.push_back(earlier);
    session.get(all);
    session.note_lost();
  }

  TestFolder folder_;
  std::string directory_ = folder_ / "store";
  std::shared_ptr<SpillBuffers> buffers_;
};

TEST_P(FaultTest, AtTheNthOperationLosesNoMoreThanRecords) {
  const std::uint64_t every = all_or(1, 5) * (expires() ? 3 : 1);  // of these each takes its timeouts
  std::uint64_t faults = 0;
  std::uint64_t nth = 1;
  for (bool struck = true; struck; nth += every) {
    SCOPED_TRACE("operation " + std::to_string(nth));
    directory_ = folder_ / std::to_string(nth);
    const auto plan = std::make_shared<FaultPlan>();
    Survivors survivors(tiered() ? Survivors::Durable::kWhenFlushed : Survivors::Durable::kWhenAcknowledged);
    {
      Session session(open(plan, expires() ? kShortTimeout : kLongTimeout), survivors);
      IoFault at_nth = fault();
      at_nth.nth = nth;
      plan->add(at_nth);
      session.run_small_workload(flush_timeout());
      EXPECT_LE(disk_bytes(directory_), kFileBytes);
      EXPECT_EQ(session.store().validate(), "");
      struck = plan->faults() > 0;
      plan->heal();
      check_recovers(session);
      session.check_stats();
      EXPECT_EQ(session.store().validate(), "");
      EXPECT_LE(disk_bytes(directory_), kFileBytes);
    }
    {
      const std::shared_ptr<SpillStore> store = open(std::make_shared<FaultPlan>(), kLongTimeout);
      ASSERT_TRUE(store);
      const Recovery recovery = check_recovered(*store, survivors);
      EXPECT_EQ(recovery.missing, std::vector<TierKey>{}) << "stored, not reported as lost, and not there";
      EXPECT_GT(recovery.compared, 0U);
    }
    EXPECT_LE(disk_bytes(directory_), kFileBytes);
    faults += plan->faults();
    if (HasFailure()) return;
    std::filesystem::remove_all(directory_);
  }
  std::printf("%llu faults, at each %llu. operation of %llu%s\n", static_cast<unsigned long long>(faults),
              static_cast<unsigned long long>(every), static_cast<unsigned long long>(nth), reduced_note());
  EXPECT_GT(faults, 15 / every);
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest, ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(kCases)),
                         [](const ::testing::TestParamInfo<std::tuple<bool, Case>>& which) {
                           return std::string(std::get<0>(which.param) ? "RamBeforeFile" : "File") +
                                  std::get<1>(which.param).name;
                         });

// A full disk, a read-only one, one that fails: for as long as it lasts.
class LastingFaultTest : public ::testing::TestWithParam<int> {};

TEST_P(LastingFaultTest, DegradesVisiblyGoesOnReadingAndRecoversByItself) {
  const TestFolder folder;
  const std::string directory = folder / "store";
  const auto plan = std::make_shared<FaultPlan>();
  const auto buffers = std::make_shared<SpillBuffers>(known_layout(), kBufferBytes);
  OpenedStore opened = open_file_store({.buffers = buffers,
                                        .directory = directory,
                                        .bytes_max = std::uint64_t{4} << 20,
                                        .queue_depth = kDepth,
                                        .retry_after = kRetryAfter},
                                       std::make_unique<FaultyIo>(make_threaded_io(kDepth, 1), plan));
  ASSERT_TRUE(opened.store) << opened.error.message;
  SpillStore& store = *opened.store;
  const TierKey key = store.first_key();
  ASSERT_TRUE(put_known(store, key));
  EXPECT_FALSE(store.stats().degraded);

  plan->add(
      {.effect = Effect::kFail, .kind = IoRequest::Kind::kWrite, .count = IoFault::kAllFurther, .error = GetParam()});
  for (TierKey next = key + 1; next < key + 20; ++next) EXPECT_FALSE(put_known(store, next));
  const SpillStats failing = store.stats();
  EXPECT_TRUE(failing.degraded);
  EXPECT_NE(failing.degraded_reason.find(directory), std::string::npos) << failing.degraded_reason;
  EXPECT_NE(failing.degraded_reason.find(std::strerror(GetParam())), std::string::npos) << failing.degraded_reason;
  EXPECT_GT(failing.io_errors, 0U);
  EXPECT_EQ(failing.puts_dropped, 19U);
  for (TierKey next = key + 1; next < key + 20; ++next) {
    EXPECT_EQ(get_now(store, next).status, GetResult::Status::kMissing);
  }
  const GetResult kept = get_now(store, key);
  if (GetParam() == ENOSPC) {
    // Gives space back, a little with each try.
    EXPECT_EQ(failing.evicted_records, 1U);
    EXPECT_THAT(store.take_lost(), ::testing::Contains(key));
  } else {
    EXPECT_EQ(kept.status, GetResult::Status::kFound) << "a disk that can't be written can be read";
    EXPECT_EQ(failing.evicted_records, 0U);
  }
  EXPECT_EQ(check_known_result(key, kept), "");

  plan->heal();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!put_known(store, key + 20)) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_FALSE(store.stats().degraded);
  EXPECT_EQ(get_now(store, key + 20).status, GetResult::Status::kFound);
  EXPECT_EQ(store.validate(), "");
}

INSTANTIATE_TEST_SUITE_P(All, LastingFaultTest, ::testing::Values(EIO, ENOSPC, EROFS),
                         [](const ::testing::TestParamInfo<int>& error) {
                           return error.param == EIO ? "EIO" : error.param == ENOSPC ? "ENOSPC" : "EROFS";
                         });

// The device may write to the memory of a read at any time until it has answered.
TEST(LateReadTest, AnExpiredReadKeepsItsMemoryUntilTheDeviceHasAnswered) {
  const TestFolder folder;
  const auto plan = std::make_shared<FaultPlan>();
  const auto buffers = std::make_shared<SpillBuffers>(known_layout(), kBufferBytes);
  const OpenedStore opened = open_file_store({.buffers = buffers,
                                              .directory = folder / "store",
                                              .bytes_max = kFileBytes,
                                              .queue_depth = kDepth,
                                              .io_timeout = kShortTimeout},
                                             std::make_unique<FaultyIo>(make_threaded_io(kDepth, 1), plan));
  ASSERT_TRUE(opened.store) << opened.error.message;
  const TierKey key = opened.store->first_key();
  while (!put_known(*opened.store, key)) continue;  // a slow disk may take longer than the timeout
  plan->add({.effect = Effect::kSlow, .kind = IoRequest::Kind::kRead});
  EXPECT_EQ(get_now(*opened.store, key).status, GetResult::Status::kFailed);
  ASSERT_EQ(plan->slow_operations(), 1U);

  std::vector<SpillBufferPtr> others;
  while (SpillBufferPtr buffer = buffers->allocate(known_lineage(key).kind)) others.push_back(std::move(buffer));
  ASSERT_GT(others.size(), 10U);
  for (const SpillBufferPtr& buffer : others) std::ranges::fill(buffer->record(), std::byte{0xA5});
  plan->release();
  others.front().reset();  // for the gets that follow
  GetResult result = get_now(*opened.store, key);
  while (result.status == GetResult::Status::kFailed) result = get_now(*opened.store, key);
  EXPECT_EQ(check_known_result(key, result), "");
  EXPECT_EQ(plan->slow_operations(), 0U);
  for (std::size_t index = 1; index < others.size(); ++index) {
    const std::span<const std::byte> record = others[index]->record();
    EXPECT_TRUE(std::ranges::all_of(record, [](std::byte byte) { return byte == std::byte{0xA5}; })) << index;
  }
}

// Any faults at any time, among threads' worth of calls.
TEST(RandomFaultTest, ManyFaultsLoseNoMoreThanRecords) {
  const std::uint64_t runs = all_or(25, 4);
  constexpr std::size_t kOperations = 200;
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const TestFolder folder;
    const auto plan = std::make_shared<FaultPlan>();
    const auto buffers = std::make_shared<SpillBuffers>(known_layout(), kBufferBytes);
    Survivors survivors(Survivors::Durable::kWhenFlushed);
    std::mt19937_64 random(seed);
    const bool may_lose = seed % 4 == 0;
    OpenedStore opened = open_file_store({.buffers = buffers,
                                          .directory = folder / "store",
                                          .bytes_max = kFileBytes,
                                          .queue_depth = kDepth,
                                          .io_timeout = may_lose ? kShortTimeout : kLongTimeout,
                                          .retry_after = kRetryAfter},
                                         std::make_unique<FaultyIo>(make_threaded_io(kDepth, 2), plan));
    ASSERT_TRUE(opened.store) << opened.error.message;
    {
      Session session(make_tiered_store(make_ram_store({.buffers = buffers, .bytes_max = kRamBytes}),
                                        std::exchange(opened.store, nullptr)),
                      survivors);
      plan->add_random(seed, 0.05, /*lose=*/may_lose);
      const auto flush_timeout = may_lose ? 2 * kShortTimeout : kFlushTimeout;
      session.run_random_workload(random, kOperations, flush_timeout);
      EXPECT_GT(plan->faults(), 0U);
      plan->heal();
      session.run_random_workload(random, kOperations, flush_timeout);
      EXPECT_TRUE(session.flush(flush_timeout) || may_lose);
      session.note_lost();
      session.check_stats();
      EXPECT_EQ(session.store().validate(), "");
      EXPECT_LE(disk_bytes(folder / "store"), kFileBytes);
    }
    const OpenedStore again =
        open_file_store({.buffers = buffers, .directory = folder / "store", .bytes_max = kFileBytes});
    ASSERT_TRUE(again.store) << again.error.message;
    EXPECT_EQ(check_recovered(*again.store, survivors).missing, std::vector<TierKey>{});
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace cairn::testing
