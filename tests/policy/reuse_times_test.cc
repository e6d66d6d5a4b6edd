// What is learned of when blocks are used again.
#include "policy/reuse_times.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

constexpr std::size_t kMany = 100'000;

TEST(ReuseTimes, ABlockUsedMoreOftenIsNeverWorthLess) {
  ReuseTimes times;
  for (std::size_t i = 0; i < kMany; ++i) times.saw(i % ReuseTimes::kClasses, i % 1000, i % 7 == 0);
  times.learn({});
  for (std::uint64_t age : {0U, 1U, 5U, 100U, 5000U}) {
    for (std::uint64_t uses = 1; uses < 100; ++uses) {
      EXPECT_GE(times.value(uses + 1, age), times.value(uses, age)) << uses << " uses, age " << age;
    }
  }
}

TEST(ReuseTimes, WhatIsUsedAgainSoonOrNeverLosesWorthWithAge) {
  ReuseTimes times;
  for (std::size_t i = 0; i < kMany; ++i) times.saw(0, i % 2 == 0 ? 3 : 4000, i % 2 == 0);
  times.learn({});
  EXPECT_GT(times.value(1, 1), 5 * times.value(1, 100));
}

TEST(ReuseTimes, WhatIsUsedAgainLateGainsWorthUntilThen) {
  ReuseTimes times;
  for (std::size_t i = 0; i < kMany; ++i) times.saw(0, 1500, true);
  times.learn({});
  for (const std::uint64_t age : {1U, 20U, 200U}) EXPECT_GT(times.value(1, 1000), times.value(1, age)) << age;
}

TEST(ReuseTimes, BlocksThatAreWaitedForCountAsNotUsedAgain) {
  ReuseTimes hopeful;
  ReuseTimes doubtful;
  for (std::size_t i = 0; i < 1000; ++i) {
    hopeful.saw(0, 10, true);
    doubtful.saw(0, 10, true);
  }
  hopeful.learn({});
  ReuseTimes::Table waiting{};
  waiting[0][ReuseTimes::octave(500)] = 100'000;
  doubtful.learn(waiting);
  EXPECT_GT(hopeful.value(1, 8), 5 * doubtful.value(1, 8));
}

TEST(ReuseTimes, OldNewsFades) {
  ReuseTimes times;
  for (std::size_t i = 0; i < kMany; ++i) times.saw(0, 3, true);
  times.learn({});
  const double before = times.value(1, 2);
  for (int i = 0; i < 20; ++i) {
    times.forget_beyond(1000);
    for (std::size_t n = 0; n < 1000; ++n) times.saw(0, 3, false);
  }
  times.learn({});
  EXPECT_LT(times.value(1, 2), before / 10);
}

}  // namespace
}  // namespace cairn
