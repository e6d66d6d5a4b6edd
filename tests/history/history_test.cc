// Histories: a few threads make a few calls each on a tiny index, as they come, and what they were answered must be
// explained by some order of the calls (history/checker.h). What each thread calls comes from a seed; how the
// threads interleave does not. (tests/interleaving has the same histories with interleavings from the seed.)
//
// Environment:
//   CAIRN_HISTORY_COUNT=n  histories to run in each test
//   CAIRN_HISTORY_SEED=n   the seed of the first one of each test; the others count up from it
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "history/crew.h"
#include "history/play.h"
#include "support/environment.h"
#include "support/sanitizers.h"

namespace cairn::testing {
namespace {

constexpr std::uint64_t kDefaultCount = kSanitized ? 600 : 4'000;

// So that the threads don't meet at the same points each time.
class Jitter {
 public:
  explicit Jitter(std::uint64_t seed) : random_(seed) {}
  void operator()() {
    constexpr std::size_t kSpinsMax = 60;
    if (random_.one_in(5)) std::this_thread::yield();
    for (std::size_t i = random_.below(kSpinsMax); i > 0; --i) {
      static const std::atomic<bool> never{false};
      static_cast<void>(never.load());
    }
  }

 private:
  Random random_;
};

class HistoryTest : public ::testing::TestWithParam<Mix> {};

TEST_P(HistoryTest, SomeOrderOfTheCallsExplainsEveryAnswer) {
  constexpr std::uint64_t kTogether = 50;
  Tally tally;
  const std::uint64_t first = environment_number("CAIRN_HISTORY_SEED", 0);
  const std::uint64_t end = first + environment_number("CAIRN_HISTORY_COUNT", kDefaultCount);
  for (std::uint64_t seed = first; seed < end && !HasFailure();) {
    const std::uint64_t first_of_these = seed;
    const std::size_t threads = seed / kTogether % 2 == 0 ? 2 : 3;
    std::vector<std::unique_ptr<Play>> plays;
    do {
      plays.push_back(std::make_unique<Play>(seed, threads, GetParam()));
      for (std::size_t i = 0; i < threads; ++i) plays.back()->caller(i).before_call = Jitter(seed * threads + i);
      ++seed;
    } while (seed % kTogether != 0 && seed < end);
    run_together(threads, plays.size(), [&](std::size_t round, std::size_t thread) { plays[round]->act(thread); });
    for (std::size_t i = 0; i < plays.size() && !HasFailure(); ++i) {
      EXPECT_EQ(plays[i]->check(tally), "") << "its threads call what CAIRN_HISTORY_SEED=" << first_of_these + i
                                            << " says, in the test of this name; try it several times";
    }
  }
  EXPECT_GT(tally.histories, 0U);
  std::cout << text_of(tally) << '\n';
}

INSTANTIATE_TEST_SUITE_P(Mixes, HistoryTest, ::testing::ValuesIn(all_mixes().begin(), all_mixes().end()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace cairn::testing
