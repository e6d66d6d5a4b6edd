// Histories: a few threads make a few calls each on a tiny index, as they come, and what they were answered must be
// explained by some order of the calls (history/checker.h). What each thread calls comes from a seed; how the
// threads interleave does not.
//
// Environment:
//   CAIRN_HISTORY_COUNT=n  histories to run in each test
//   CAIRN_HISTORY_SEED=n   the seed of the first one of each test; the others count up from it
#include <cairn/radix_tree.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "history/caller.h"
#include "history/checker.h"
#include "history/crew.h"

namespace cairn::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAIRN_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAIRN_TEST_SANITIZED 1
#endif
#endif

#if defined(CAIRN_TEST_SANITIZED)
constexpr std::uint64_t kDefaultCount = 600;
#else
constexpr std::uint64_t kDefaultCount = 4'000;
#endif
constexpr std::size_t kThreadsMax = 3;

std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::stoull(value) : otherwise;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(engine_() % limit); }
  bool one_in(std::size_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// What the threads of a history do, by weight.
enum class Deed : std::uint8_t {
  kLookup,
  kInsert,
  kInsertMore,
  kPublish,
  kRelease,
  kAcquire,
  kExtend,
  kTruncate,
  kPeek,
  kWatch,  // stats, counters and the like
  kEvict,
  kPutPlain,
  kPutTail,
  kPutSibling,
  kInsertWithSnapshot,
  kFindSnapshot,
  kEvictSnapshot,
  kSpill,
  kPromote,
  kForget,
  kTakeOrphans,
  kClearAdapter,
  kClearAll,
};

struct Mix {
  const char* name;
  std::vector<std::pair<Deed, std::size_t>> weights;
  bool sessions = false;
  bool clears = false;  // then callers use epochs
};

// One thread's random deeds.
class Actor {
 public:
  Actor(Stage& stage, std::size_t thread, std::uint64_t seed, const Mix& mix)
      : random_(seed),
        mix_(mix),
        caller_(stage, thread, {.epochs = mix.clears, .disk_blocks = random_.one_in(3)}),
        adapters_(mix.clears ? 2 : 1) {
    for (const auto& [deed, weight] : mix.weights) weight_of_all_ += weight;
    caller_.before_call = [this] { shift(); };
  }

  void act(std::size_t deeds) {
    while (deeds-- > 0) act_once();
  }
  Caller& caller() { return caller_; }

 private:
  // So that the threads don't meet at the same points each time.
  void shift() {
    if (random_.one_in(5)) std::this_thread::yield();
    for (std::size_t i = random_.below(60); i > 0; --i) static_cast<void>(idle_.load());
  }

  std::string word() {
    std::string word = "a";
    while (word.size() < 4 && !random_.one_in(3)) word += random_.one_in(4) ? 'b' : 'a';
    if (random_.one_in(8)) word[0] = 'b';
    return word;
  }
  std::string snapshot_word() { return random_.one_in(3) ? word() + '1' : word(); }
  std::string more() { return random_.one_in(4) ? "" : word().substr(0, 2); }
  AdapterId adapter() { return random_.below(adapters_); }
  SessionHash session() { return mix_.sessions ? random_.below(3) : 0; }
  TierKey key() { return 1 + random_.below(4); }
  Deed choose() {
    std::size_t at = random_.below(weight_of_all_);
    for (const auto& [deed, weight] : mix_.weights) {
      if (at < weight) return deed;
      at -= weight;
    }
    return Deed::kPeek;
  }

  void act_once() {
    const Deed deed = choose();
    if (deed <= Deed::kTruncate) {
      use_blocks(deed);
    } else if (deed >= Deed::kPutPlain && deed <= Deed::kTakeOrphans) {
      use_snapshots(deed);
    } else {
      manage(deed);
    }
  }

  void use_blocks(Deed deed) {
    const std::size_t sequences = caller_.sequences();
    const std::size_t handles = caller_.handles();
    if (deed == Deed::kInsertMore && sequences > 0) return caller_.insert_more(random_.below(sequences), more());
    if (deed == Deed::kRelease && sequences + handles > 0) {
      const std::size_t which = random_.below(sequences + handles);
      return which < sequences ? caller_.release(which) : caller_.release_handle(which - sequences);
    }
    if (deed == Deed::kExtend && handles > 0) return caller_.extend(random_.below(handles), more());
    if (deed == Deed::kTruncate && handles > 0) return caller_.truncate(random_.below(handles), random_.below(4));
    if (deed == Deed::kPublish) return caller_.publish(word(), adapter());
    if (deed == Deed::kInsert) return caller_.insert(word(), adapter());
    if (deed >= Deed::kAcquire && caller_.can_acquire()) return caller_.acquire(word(), adapter(), session());
    caller_.lookup(word(), adapter(), session());
  }

  void use_snapshots(Deed deed) {
    switch (deed) {
      case Deed::kPutPlain:
        return caller_.put(CallKind::kPutPlain, snapshot_word(), session(), adapter());
      case Deed::kPutTail:
        return caller_.put(CallKind::kPutTail, snapshot_word(), session(), adapter());
      case Deed::kPutSibling:
        return caller_.put(CallKind::kPutSibling, snapshot_word(), session(), adapter());
      case Deed::kInsertWithSnapshot:
        if (caller_.sequences() == 0) caller_.insert(word(), adapter());
        if (caller_.sequences() == 0) return;  // the epoch had passed
        return caller_.insert_with_snapshot(random_.below(caller_.sequences()), "a" + more(), session());
      case Deed::kFindSnapshot:
        return caller_.find_snapshot(snapshot_word(), session(), adapter());
      case Deed::kEvictSnapshot:
        caller_.simple(CallKind::kEvictSnapshot);
        return;
      case Deed::kSpill:
        return caller_.evict_snapshot_to_tier(random_.below(6));
      case Deed::kPromote:
        return caller_.promote(key());
      case Deed::kForget:
        return caller_.forget(key());
      default:
        caller_.simple(CallKind::kTakeOrphans);
    }
  }

  void manage(Deed deed) {
    constexpr std::array kWatched = {CallKind::kCachedBlocks, CallKind::kSnapshotCount, CallKind::kEpoch,
                                     CallKind::kCounters};
    constexpr std::array<std::size_t, 5> kBlocks = {1, 1, 2, 3, 100};
    switch (deed) {
      case Deed::kPeek:
        return caller_.peek(word(), adapter());
      case Deed::kEvict:
        caller_.evict(kBlocks[random_.below(kBlocks.size())]);
        return;
      case Deed::kClearAdapter:
        caller_.simple(CallKind::kClearAdapter, adapter());
        return;
      case Deed::kClearAll:
        caller_.simple(CallKind::kClearAll);
        return;
      default:
        caller_.simple(kWatched[random_.below(kWatched.size())]);
    }
  }

  Random random_;
  const Mix& mix_;
  Caller caller_;
  std::size_t adapters_;
  std::size_t weight_of_all_ = 0;
  std::atomic<int> idle_{0};
};

struct Tally {
  std::size_t histories = 0;
  std::size_t calls = 0;
  std::size_t overlapping = 0;
  std::size_t steps = 0;
};

// A history from its preparation to the verdict.
class Play {
 public:
  Play(std::uint64_t seed, std::size_t threads, const Mix& mix) : seed_(seed), stage_(options(seed)) {
    constexpr std::size_t kDeedsBefore = 4;
    Random random(seed + 1);
    deeds_ = 2 + random.below(threads == 2 ? 4 : 2);
    for (std::size_t i = 0; i <= threads; ++i) {
      actors_.push_back(std::make_unique<Actor>(stage_, i, seed * (kThreadsMax + 1) + i, mix));
    }
    actors_.back()->act(random.below(kDeedsBefore + 1));
  }

  void act(std::size_t thread) { actors_[thread]->act(deeds_); }

  // True if the history is explained.
  bool check(Tally& tally) {
    const std::string wrong = stage_.tree.validate();
    std::vector<Caller*> callers;
    for (const auto& actor : actors_) callers.push_back(&actor->caller());
    const History history = finish(stage_, callers);
    const std::string wrong_at_end = stage_.tree.validate();
    const Verdict verdict = explain(history);
    ++tally.histories;
    tally.calls += history.calls.size();
    tally.steps += verdict.steps;
    tally.overlapping += any_overlap(history) ? 1 : 0;
    EXPECT_EQ(wrong, "");
    EXPECT_EQ(wrong_at_end, "");
    EXPECT_TRUE(verdict.explained) << verdict.complaint;
    if (verdict.explained && wrong.empty() && wrong_at_end.empty()) return true;
    ADD_FAILURE() << "what each thread called comes from CAIRN_HISTORY_SEED=" << seed_;
    return false;
  }

 private:
  static RadixTreeOptions options(std::uint64_t seed) {
    constexpr std::array<std::size_t, 3> kBlockSizes = {1, 2, 16};
    Random random(seed);
    RadixTreeOptions options;
    options.block_size = kBlockSizes[random.below(kBlockSizes.size())];
    options.share_snapshots_across_sessions = random.one_in(4);
    return options;
  }

  std::uint64_t seed_;
  Stage stage_;
  std::size_t deeds_ = 0;
  std::vector<std::unique_ptr<Actor>> actors_;
};

class HistoryTest : public ::testing::TestWithParam<Mix> {};

TEST_P(HistoryTest, SomeOrderOfTheCallsExplainsEveryAnswer) {
  constexpr std::uint64_t kTogether = 50;
  Tally tally;
  const std::uint64_t first = environment_number("CAIRN_HISTORY_SEED", 0);
  const std::uint64_t end = first + environment_number("CAIRN_HISTORY_COUNT", kDefaultCount);
  for (std::uint64_t seed = first; seed < end && !HasFailure();) {
    const std::size_t threads = seed / kTogether % 2 == 0 ? 2 : kThreadsMax;
    std::vector<std::unique_ptr<Play>> plays;
    do {
      plays.push_back(std::make_unique<Play>(seed++, threads, GetParam()));
    } while (seed % kTogether != 0 && seed < end);
    run_together(threads, plays.size(), [&](std::size_t round, std::size_t thread) { plays[round]->act(thread); });
    for (const auto& play : plays) {
      if (!play->check(tally)) break;
    }
  }
  EXPECT_GT(tally.histories, 0U);
  std::cout << tally.histories << " histories, " << tally.calls << " calls, " << tally.overlapping
            << " histories with calls that overlap, " << tally.steps << " calls of the model\n";
}

using enum Deed;
const std::array kMixes = {
    Mix{"Blocks",
        {{kLookup, 6}, {kInsert, 3}, {kInsertMore, 4}, {kPublish, 2}, {kRelease, 5}, {kPeek, 1}, {kEvict, 5}}},
    Mix{"ReadersAndEvictions", {{kLookup, 8}, {kPublish, 3}, {kRelease, 3}, {kPeek, 3}, {kEvict, 6}, {kWatch, 2}}},
    Mix{"Handles",
        {{kAcquire, 6}, {kExtend, 5}, {kTruncate, 3}, {kRelease, 4}, {kLookup, 2}, {kPublish, 1}, {kEvict, 4}}},
    Mix{"Snapshots",
        {{kPutPlain, 5},
         {kPutTail, 2},
         {kPutSibling, 1},
         {kInsertWithSnapshot, 3},
         {kFindSnapshot, 5},
         {kLookup, 5},
         {kAcquire, 2},
         {kPublish, 2},
         {kEvict, 2},
         {kEvictSnapshot, 2},
         {kWatch, 1}},
        true},
    Mix{"Tiers",
        {{kPutPlain, 4},
         {kPutTail, 2},
         {kPutSibling, 2},
         {kFindSnapshot, 3},
         {kLookup, 3},
         {kPublish, 2},
         {kSpill, 5},
         {kPromote, 3},
         {kForget, 2},
         {kTakeOrphans, 2},
         {kEvictSnapshot, 1}},
        true},
    Mix{"Clears",
        {{kLookup, 5},
         {kInsert, 2},
         {kInsertMore, 2},
         {kPublish, 3},
         {kRelease, 3},
         {kAcquire, 2},
         {kExtend, 2},
         {kEvict, 1},
         {kPutPlain, 2},
         {kFindSnapshot, 1},
         {kWatch, 2},
         {kClearAdapter, 2},
         {kClearAll, 1}},
        true,
        true},
};

INSTANTIATE_TEST_SUITE_P(Mixes, HistoryTest, ::testing::ValuesIn(kMixes),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace cairn::testing
