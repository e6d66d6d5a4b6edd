// The faults strike where they were meant to, and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>

#include "support/faulty_io.h"
#include "tier/io_fixtures.h"

namespace cairn::testing {
namespace {

using Effect = IoFault::Effect;
using Kind = IoRequest::Kind;

class FaultyIoTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kDepth = 16;

  IoResult read(Pages& pages, std::size_t page = 0) { return result_of(io_, read_request(file(), page, pages, 1)); }
  IoResult write(Pages& pages, std::size_t page = 0) { return result_of(io_, write_request(file(), page, pages, 1)); }
  // Nothing is handed out within one call.
  void expect_nothing() {
    std::array<IoResult, 4> results{};
    EXPECT_EQ(io_.wait(results, kNoTime), 0U);
  }
  [[nodiscard]] int file() const { return scratch_.file(); }

  ScratchFile scratch_;
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  FaultyIo io_{make_threaded_io(kDepth), plan_};
  Pages old_ = Pages::numbered(4, 1);
  Pages new_ = Pages::numbered(4, 2);
};

TEST_F(FaultyIoTest, WithoutFaultsItIsTheRealOneAndCounts) {
  EXPECT_EQ(io_.name(), "pread/pwrite");
  EXPECT_EQ(io_.depth(), kDepth);
  EXPECT_EQ(write(new_).bytes, new_.size());
  Pages found(4);
  EXPECT_EQ(read(found).bytes, new_.size());
  EXPECT_EQ(found, new_);
  EXPECT_EQ(result_of(io_, sync_request(file(), 1)).error, 0);
  EXPECT_EQ(plan_->operations(), 3U);
  EXPECT_EQ(plan_->operations(Kind::kRead), 1U);
  EXPECT_EQ(plan_->operations(Kind::kWrite), 1U);
  EXPECT_EQ(plan_->operations(Kind::kPunch), 0U);
  EXPECT_EQ(plan_->faults(), 0U);
}

TEST_F(FaultyIoTest, TheNthOperationOfAKindFailsAndNoOtherOne) {
  scratch_.write(old_);
  plan_->add({.kind = Kind::kWrite, .nth = 2, .error = ENOSPC});
  EXPECT_EQ(write(new_, 8).error, 0);
  Pages found(4);
  EXPECT_EQ(read(found).error, 0);
  const IoResult failed = write(new_);
  EXPECT_EQ(failed.error, ENOSPC);
  EXPECT_EQ(failed.bytes, 0U);
  EXPECT_EQ(scratch_.read(4), old_);
  EXPECT_EQ(write(new_).error, 0);
  EXPECT_EQ(scratch_.read(4), new_);
  EXPECT_EQ(plan_->faults(), 1U);
}

TEST_F(FaultyIoTest, SeveralInARowFailUntilItHeals) {
  plan_->add({.nth = 2, .count = IoFault::kAllFurther, .error = EROFS});
  EXPECT_EQ(write(new_).error, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(write(new_).error, EROFS);
  EXPECT_EQ(result_of(io_, sync_request(file(), 1)).error, EROFS);
  plan_->heal();
  EXPECT_EQ(write(new_).error, 0);
  EXPECT_EQ(plan_->faults(), 4U);
}

TEST_F(FaultyIoTest, AFailedReadLeavesRubbishAndAFailedWriteMayBeDone) {
  scratch_.write(old_);
  plan_->add({.kind = Kind::kRead});
  Pages found = Pages::numbered(4, 1);
  EXPECT_EQ(read(found).error, EIO);
  EXPECT_EQ(std::count(found.data(), found.data() + found.size(), std::byte{0xA5}),
            static_cast<std::ptrdiff_t>(found.size()));
  plan_->add({.kind = Kind::kWrite, .done_all_the_same = true});
  EXPECT_EQ(write(new_).error, EIO);
  EXPECT_EQ(scratch_.read(4), new_);
}

TEST_F(FaultyIoTest, AShortOperationDoesItsBeginningOnly) {
  scratch_.write(old_);
  plan_->add({.effect = Effect::kShort, .count = 2, .bytes = kPage});
  const IoResult wrote = write(new_);
  EXPECT_EQ(wrote.error, 0);
  EXPECT_EQ(wrote.bytes, kPage);
  const Pages stands = scratch_.read(4);
  EXPECT_TRUE(same(stands.page(0), new_.page(0)));
  EXPECT_TRUE(same(stands.page(1, 3), old_.page(1, 3)));
  Pages found(4);
  EXPECT_EQ(read(found).bytes, kPage);
  EXPECT_TRUE(same(found.page(0), new_.page(0)));
  EXPECT_FALSE(same(found.page(1), old_.page(1)));

  plan_->add({.effect = Effect::kShort, .bytes = 0});
  EXPECT_EQ(result_of(io_, sync_request(file(), 1)).error, 0);  // can't be short: the fault waits for the write
  const IoResult nothing = write(old_);
  EXPECT_EQ(nothing.error, 0);
  EXPECT_EQ(nothing.bytes, 0U);
  EXPECT_TRUE(same(scratch_.read(4).page(0), new_.page(0)));
}

TEST_F(FaultyIoTest, ASlowOperationIsDoneAfterLaterOperations) {
  scratch_.write(old_);
  plan_->add({.effect = Effect::kSlow, .operations_until_done = 2});
  io_.submit(write_request(file(), 0, new_, 77));
  expect_nothing();
  EXPECT_EQ(plan_->slow_operations(), 1U);
  Pages found(4);
  EXPECT_EQ(read(found).bytes, found.size());
  EXPECT_EQ(found, old_);
  io_.submit(sync_request(file(), 78));
  std::vector<IoResult> results = results_of(io_, 2);
  std::sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
  EXPECT_EQ(results[0].token, 77U);
  EXPECT_EQ(results[0].bytes, new_.size());
  EXPECT_EQ(results[1].token, 78U);
  EXPECT_EQ(scratch_.read(4), new_);
  EXPECT_EQ(plan_->slow_operations(), 0U);
}

TEST_F(FaultyIoTest, ASlowOperationIsDoneAfterLaterWaits) {
  scratch_.write(old_);
  plan_->add({.effect = Effect::kSlow, .waits_until_done = 3});
  Pages found(4);
  io_.submit(read_request(file(), 0, found, 5));
  std::array<IoResult, 1> results{};
  // Nothing else is under way: these two don't take their time.
  EXPECT_EQ(io_.wait(results, kLong), 0U);
  EXPECT_EQ(io_.wait(results, kLong), 0U);
  EXPECT_EQ(io_.wait(results, kLong), 1U);
  EXPECT_EQ(results[0].token, 5U);
  EXPECT_EQ(found, old_);
}

TEST_F(FaultyIoTest, ASlowOperationWaitsForItsReleaseFromAnotherThread) {
  plan_->add({.effect = Effect::kSlow});
  io_.submit(write_request(file(), 0, new_, 5));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(write(old_, 8).error, 0);
  expect_nothing();
  const std::future<void> releasing = std::async(std::launch::async, [&] { plan_->release(); });
  const std::vector<IoResult> results = results_of(io_, 1);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].token, 5U);
  EXPECT_EQ(scratch_.read(4), new_);
}

TEST_F(FaultyIoTest, ALostResultNeverComesWhetherItWasDoneOrNot) {
  scratch_.write(old_);
  plan_->add({.effect = Effect::kLose, .done_all_the_same = true});
  io_.submit(write_request(file(), 0, new_, 1));
  plan_->add({.effect = Effect::kLose});
  io_.submit(write_request(file(), 0, old_, 2));
  EXPECT_EQ(write(old_, 8).error, 0);
  std::array<IoResult, 4> results{};
  EXPECT_EQ(io_.wait(results, std::chrono::milliseconds(20)), 0U);
  EXPECT_EQ(scratch_.read(4), new_);
  EXPECT_EQ(plan_->faults(), 2U);
}

TEST_F(FaultyIoTest, AWakeComesThrough) {
  std::array<IoResult, 1> results{};
  const std::future<void> waking = std::async(std::launch::async, [&] { io_.wake(); });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(io_.wait(results, kLong), 0U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
}

TEST(FaultPlanTest, OutlivesAFaultyIoWithSlowOperations) {
  const ScratchFile scratch;
  Pages never = Pages::numbered(1, 3);
  Pages old = Pages::numbered(1, 4);
  scratch.write(old);
  const auto plan = std::make_shared<FaultPlan>();
  plan->add({.effect = Effect::kSlow});
  {
    FaultyIo io(make_threaded_io(4), plan);
    io.submit(write_request(scratch.file(), 0, never, 1));
    EXPECT_EQ(plan->slow_operations(), 1U);
  }
  EXPECT_EQ(plan->slow_operations(), 0U);
  plan->release();
  EXPECT_EQ(scratch.read(1), old);
}

// What happened to 400 writes, by token.
std::vector<IoResult> results_of_random_faults(std::uint64_t seed, std::uint64_t& faults) {
  const ScratchFile scratch;
  Pages pages = Pages::numbered(4, seed);
  const auto plan = std::make_shared<FaultPlan>();
  plan->add_random(seed, 0.25, false);
  FaultyIo io(make_threaded_io(64), plan);
  std::vector<IoResult> results;
  for (std::uint64_t round = 0; round < 20; ++round) {
    for (std::uint64_t i = 0; i < 20; ++i) io.submit(write_request(scratch.file(), 4 * i, pages, 20 * round + i));
    const std::vector<IoResult> some = results_of(io, 20);
    results.insert(results.end(), some.begin(), some.end());
  }
  std::sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
  faults = plan->faults();
  return results;
}

TEST(FaultPlanTest, RandomFaultsFollowTheirSeed) {
  std::uint64_t faults = 0;
  std::uint64_t faults_again = 0;
  const std::vector<IoResult> results = results_of_random_faults(11, faults);
  const std::vector<IoResult> again = results_of_random_faults(11, faults_again);
  EXPECT_GT(faults, 50U);  // of 400 a quarter
  EXPECT_LT(faults, 150U);
  EXPECT_EQ(faults, faults_again);
  ASSERT_EQ(results.size(), again.size());
  std::size_t failed = 0;
  std::size_t cut_short = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].token, again[i].token);
    EXPECT_EQ(results[i].error, again[i].error);
    EXPECT_EQ(results[i].bytes, again[i].bytes);
    if (results[i].error != 0) ++failed;
    if (results[i].error == 0 && results[i].bytes < 4 * kPage) ++cut_short;
  }
  EXPECT_GT(failed, 0U);
  EXPECT_GT(cut_short, 0U);
}

}  // namespace
}  // namespace cairn::testing
