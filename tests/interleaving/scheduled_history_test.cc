// The random callers of the history test on virtual threads: both what they call and how they interleave comes from
// the seed, so that a failure can be replayed.
//
// Environment: CAIRN_HISTORY_COUNT and CAIRN_HISTORY_SEED, as for history_test.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "history/play.h"
#include "interleaving/virtual_threads.h"
#include "support/environment.h"

namespace cairn::testing {
namespace {

class ScheduledHistoryTest : public ::testing::TestWithParam<Mix> {};

TEST_P(ScheduledHistoryTest, SomeOrderOfTheCallsExplainsEveryAnswer) {
  constexpr std::uint64_t kDefaultCount = 3'000;
  constexpr std::array<std::size_t, 4> kAccessesBetweenPreemptions = {3, 8, 20, 60};
  Tally tally;
  std::size_t accesses = 0;
  const std::uint64_t first = environment_number("CAIRN_HISTORY_SEED", 0);
  const std::uint64_t end = first + environment_number("CAIRN_HISTORY_COUNT", kDefaultCount);
  for (std::uint64_t seed = first; seed < end; ++seed) {
    auto play = std::make_unique<Play>(seed, seed % 4 == 0 ? 3 : 2, GetParam());
    std::vector<std::function<void()>> threads;
    threads.reserve(play->threads());
    for (std::size_t i = 0; i < play->threads(); ++i) {
      threads.emplace_back([&play, i] { play->act(i); });
    }
    RandomChooser chooser(seed, kAccessesBetweenPreemptions[seed / 4 % kAccessesBetweenPreemptions.size()]);
    const Outcome run = run_virtual_threads(threads, chooser);
    accesses += run.accesses;
    if (run.stuck) {
      [[maybe_unused]] Play* const lost = play.release();  // its locks are held
      FAIL() << "stuck; CAIRN_HISTORY_SEED=" << seed << " schedule " << run.schedule;
    }
    ASSERT_EQ(play->check(tally), "") << "replay with CAIRN_HISTORY_SEED=" << seed
                                      << " CAIRN_HISTORY_COUNT=1 and this test alone; schedule " << run.schedule;
  }
  EXPECT_GT(tally.overlapping, 0U);
  std::cout << text_of(tally) << ", " << accesses << " accesses\n";
}

INSTANTIATE_TEST_SUITE_P(Mixes, ScheduledHistoryTest, ::testing::ValuesIn(all_mixes().begin(), all_mixes().end()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace cairn::testing
