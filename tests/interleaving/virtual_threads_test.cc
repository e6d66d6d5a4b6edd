// The scheduler itself: it must find the interleavings that there are, and no others.
#include "interleaving/virtual_threads.h"

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "interleaving/yielding.h"

namespace cairn::testing {
namespace {

using Bodies = std::vector<std::function<void()>>;

// What `outcome` says after each schedule of `bodies`.
std::multiset<std::string> outcomes(std::size_t preemptions_max, const std::function<Bodies()>& start,
                                    const std::function<std::string()>& outcome) {
  std::multiset<std::string> seen;
  BoundedSearch search(preemptions_max);
  do {
    const Bodies bodies = start();
    const Outcome run = run_virtual_threads(bodies, search);
    seen.insert(run.stuck ? "stuck" : outcome());
  } while (search.next());
  return seen;
}

std::set<std::string> distinct(const std::multiset<std::string>& all) {
  return {all.begin(), all.end()};
}

class VirtualThreadsTest : public ::testing::Test {
 protected:
  // Each thread appends its letter before each of its accesses.
  Bodies letters(std::initializer_list<std::pair<char, int>> threads) {
    text_.clear();
    Bodies bodies;
    for (const auto& [letter, count] : threads) {
      bodies.emplace_back([this, own = letter, times = count] {
        for (int i = 0; i < times; ++i) {
          before_access();
          text_ += own;
        }
      });
    }
    return bodies;
  }
  std::string text_;
};

TEST_F(VirtualThreadsTest, WithoutPreemptionsThreadsRunOneAfterTheOther) {
  const auto seen = outcomes(0, [&] { return letters({{'a', 2}, {'b', 2}}); }, [&] { return text_; });
  EXPECT_EQ(seen, (std::multiset<std::string>{"aabb", "bbaa"}));
}

TEST_F(VirtualThreadsTest, EveryInterleavingIsFoundWithEnoughPreemptions) {
  const auto seen = outcomes(9, [&] { return letters({{'a', 2}, {'b', 2}}); }, [&] { return text_; });
  EXPECT_EQ(distinct(seen), (std::set<std::string>{"aabb", "abab", "abba", "baab", "baba", "bbaa"}));
}

TEST_F(VirtualThreadsTest, OnePreemptionIsNotTwo) {
  const auto seen = outcomes(1, [&] { return letters({{'a', 2}, {'b', 2}}); }, [&] { return text_; });
  EXPECT_EQ(distinct(seen), (std::set<std::string>{"aabb", "abba", "baab", "bbaa"}));
}

TEST_F(VirtualThreadsTest, ThreeThreadsComeInEveryOrder) {
  const auto seen = outcomes(0, [&] { return letters({{'a', 1}, {'b', 1}, {'c', 1}}); }, [&] { return text_; });
  EXPECT_EQ(seen, (std::multiset<std::string>{"abc", "acb", "bac", "bca", "cab", "cba"}));
}

TEST_F(VirtualThreadsTest, AnIncrementThatIsNotAtomicLosesOne) {
  Atomic<int> count;
  const auto increment = [&] { count.store(count.load() + 1); };
  const auto start = [&] {
    count.store(0);
    return Bodies{increment, increment};
  };
  const auto result = [&] { return std::to_string(count.load()); };
  EXPECT_EQ(distinct(outcomes(0, start, result)), (std::set<std::string>{"2"}));
  EXPECT_EQ(distinct(outcomes(1, start, result)), (std::set<std::string>{"1", "2"}));
}

TEST_F(VirtualThreadsTest, ALockedIncrementLosesNone) {
  Atomic<int> count;
  YieldingMutex mutex;
  const auto increment = [&] {
    mutex.lock();
    count.store(count.load() + 1);
    mutex.unlock();
  };
  const auto start = [&] {
    count.store(0);
    return Bodies{increment, increment, increment};
  };
  EXPECT_EQ(distinct(outcomes(2, start, [&] { return std::to_string(count.load()); })), (std::set<std::string>{"3"}));
}

TEST_F(VirtualThreadsTest, LocksInOppositeOrdersGetStuck) {
  std::vector<std::unique_ptr<YieldingMutex>> locks;
  const auto start = [&] {
    locks.clear();
    for (int i = 0; i < 2; ++i) locks.push_back(std::make_unique<YieldingMutex>());
    const auto take = [&locks](std::size_t first, std::size_t second) {
      locks[first]->lock();
      locks[second]->lock();
      locks[second]->unlock();
      locks[first]->unlock();
    };
    return Bodies{[take] { take(0, 1); }, [take] { take(1, 0); }};
  };
  EXPECT_EQ(distinct(outcomes(0, start, [] { return "done"; })), (std::set<std::string>{"done"}));
  EXPECT_EQ(distinct(outcomes(1, start, [] { return "done"; })), (std::set<std::string>{"done", "stuck"}));
}

TEST_F(VirtualThreadsTest, WhoWaitsForAnotherGoesOnAfterIt) {
  Atomic<bool> open;
  const auto start = [&] {
    open.store(false);
    text_.clear();
    return Bodies{[&] {
                    while (!open.load()) wait_for_others();
                    text_ += 'a';
                  },
                  [&] {
                    text_ += 'b';
                    open.store(true);
                  }};
  };
  EXPECT_EQ(distinct(outcomes(3, start, [&] { return text_; })), (std::set<std::string>{"ba"}));
}

TEST_F(VirtualThreadsTest, AScheduleSaysWhoRanForHowLong) {
  const Bodies bodies = letters({{'a', 3}, {'b', 2}});
  BoundedSearch search(0);
  EXPECT_EQ(run_virtual_threads(bodies, search).schedule, "0:3 1:2");
}

TEST_F(VirtualThreadsTest, ASeedGivesOneSchedule) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::string first;
    for (int repetition = 0; repetition < 2; ++repetition) {
      const Bodies bodies = letters({{'a', 5}, {'b', 5}});
      RandomChooser chooser(seed, 3);
      const std::string schedule = run_virtual_threads(bodies, chooser).schedule;
      if (repetition == 0) first = schedule;
      EXPECT_EQ(schedule, first);
    }
    seen.insert(first);
  }
  EXPECT_GT(seen.size(), 10U);
}

}  // namespace
}  // namespace cairn::testing
