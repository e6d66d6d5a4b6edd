#include "replay/replayer.h"

#include <cairn/no_prefix_caching.h>
#include <cairn/radix_tree.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "replay/builtin_workload.h"
#include "replay/comparison.h"
#include "replay/errors.h"
#include "replay/forwarding_cache.h"
#include "replay/lines.h"

namespace cairn::replay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kBlockSize = 4;

RunResult replay(const std::vector<Line>& lines, std::optional<std::size_t> blocks, ReplayOptions options = {}) {
  options.block_size = kBlockSize;
  RadixTree tree({.block_size = kBlockSize});
  SimulatedBlockPool pool(blocks);
  const Workload workload = workload_of(lines);
  RunResult result = Replayer(tree, pool, workload, options).run();
  EXPECT_EQ(tree.validate(), "");
  EXPECT_EQ(tree.counters().protocol_errors, 0U);
  EXPECT_EQ(pool.used(), 0U);
  return result;
}

TEST(Replayer, CountsWhatLookupFoundAndWhatIsReused) {
  const RunResult result = replay({{.prompt = "aaaabbbbcc"}, {.prompt = "aaaabbbb"}, {.prompt = "aaaaxxxx"}}, 100);
  EXPECT_EQ(result.requests, 3U);
  EXPECT_EQ(result.prompt_tokens, 26U);
  EXPECT_EQ(result.matched_tokens, 8U + 4U);
  EXPECT_EQ(result.reused_tokens, 7U + 4U) << "the last token of a fully cached prompt is computed all the same";
  EXPECT_EQ(result.prompt_blocks, 6U);
  EXPECT_EQ(result.matched_blocks, 3U);
  EXPECT_EQ(result.created_blocks, 3U);
  EXPECT_DOUBLE_EQ(result.token_hit_rate(), 12.0 / 26);
  EXPECT_DOUBLE_EQ(result.block_hit_rate(), 0.5);
}

TEST(Replayer, AdaptersShareNothing) {
  const RunResult result = replay({{.prompt = "aaaabbbb"}, {.prompt = "aaaabbbb", .adapter = 1}}, 100);
  EXPECT_EQ(result.matched_tokens, 0U);
}

TEST(Replayer, HoldsPrivateBlocksForTheOutputWhileItRuns) {
  // Two blocks of prompt, the second not full, and two for five output tokens; only the full one stays.
  const RunResult result = replay({{.prompt = "aaaabb", .output_length = 5}, {.prompt = "c"}}, 4);
  EXPECT_EQ(result.peak_blocks, 4U);
  EXPECT_EQ(result.created_blocks, 1U);
  EXPECT_EQ(result.output_tokens, 5U);
}

TEST(Replayer, OutputTokensAreCachedWithThePromptAtTheEnd) {
  const RunResult result = replay({{.prompt = "aaaabb", .output = "bbccccd"}, {.prompt = "aaaabbbbccccdd"}}, 100);
  EXPECT_EQ(result.matched_tokens, 12U);
  EXPECT_EQ(result.created_blocks, 3U);
}

TEST(Replayer, OutputThatAnotherSequencePublishedFirstIsNotTakenTwice) {
  const RunResult result =
      replay({{.prompt = "aaaa", .output = "bbbb"}, {.prompt = "aaaa", .output = "bbbb"}, {.prompt = "aaaabbbbc"}},
             100, {.concurrency = 2});
  EXPECT_EQ(result.created_blocks, 2U);
  EXPECT_EQ(result.matched_tokens, 4U + 8U);
}

TEST(Replayer, EvictsExactlyWhatIsShort) {
  // The pool holds three; the second request needs two and finds one free.
  const RunResult result = replay({{.prompt = "aaaabbbb"}, {.prompt = "ccccdddd"}, {.prompt = "aaaabbbb"}}, 3);
  EXPECT_EQ(result.evicted_blocks, 1U + 1U);
  EXPECT_EQ(result.matched_tokens, 4U) << "the first block of the first request was not evicted";
  EXPECT_EQ(result.peak_blocks, 3U);
}

TEST(Replayer, NamesARequestThatCanNeverFitAndGoesOn) {
  const RunResult result =
      replay({{.prompt = "aaaa"}, {.prompt = "bbbbccccd", .output_length = 1}, {.prompt = "aaaa"}}, 3);
  EXPECT_EQ(result.requests, 3U);
  EXPECT_EQ(result.rejected, 1U);
  ASSERT_EQ(result.first_rejected.size(), 1U);
  EXPECT_EQ(result.first_rejected[0].line, 2U);
  EXPECT_EQ(result.first_rejected[0].blocks_needed, 4U);
  EXPECT_EQ(result.prompt_tokens, 8U) << "the rejected one was not looked up";
  EXPECT_EQ(result.matched_tokens, 4U);
}

TEST(Replayer, NamesTheFirstFewOfManyThatCannotFit) {
  const RunResult result = replay(std::vector<Line>(25, {.prompt = "aaaab"}), 1);
  EXPECT_EQ(result.rejected, 25U);
  EXPECT_EQ(result.first_rejected.size(), RunResult::kRejectedNamedMax);
  EXPECT_EQ(result.prompt_tokens, 0U);
  EXPECT_EQ(result.token_hit_rate(), 0.0);
}

TEST(Replayer, WithConcurrencyTheOldestEndsFirst) {
  const std::vector<Line> lines = {{.prompt = "aaaa", .output_length = 8},
                                   {.prompt = "bbbb", .output_length = 8},
                                   {.prompt = "cccc", .output_length = 8}};
  // Three blocks each while it runs, one cached block afterwards.
  EXPECT_EQ(replay(lines, 100, {.concurrency = 1}).peak_blocks, 1U + 1 + 3);
  EXPECT_EQ(replay(lines, 100, {.concurrency = 2}).peak_blocks, 1U + 3 + 3);
  EXPECT_EQ(replay(lines, 100, {.concurrency = 3}).peak_blocks, 9U);
  EXPECT_EQ(replay(lines, 100, {.concurrency = 2}).peak_running, 2U);
  EXPECT_EQ(replay(lines, 100, {.concurrency = 9}).peak_running, 3U);
}

TEST(Replayer, ARequestThatFindsNoBlocksWaitsForARunningOneToEnd) {
  const RunResult result =
      replay({{.prompt = "aaaabbbb", .output_length = 4}, {.prompt = "ccccdddd"}}, 4, {.concurrency = 2});
  EXPECT_EQ(result.waited, 1U);
  EXPECT_EQ(result.evicted_blocks, 0U) << "nothing of the running one could go, and then nothing had to";
  EXPECT_EQ(result.peak_running, 1U);
  EXPECT_EQ(result.peak_blocks, 4U);
}

TEST(Replayer, AWaitingRequestLooksUpAgainAndIsCountedOnce) {
  // The second finds one block at first; when the first has ended, its output is there too.
  const RunResult result =
      replay({{.prompt = "aaaa", .output = "bbbbcccc"}, {.prompt = "aaaabbbbccccdd"}}, 4, {.concurrency = 2});
  EXPECT_EQ(result.waited, 1U);
  EXPECT_EQ(result.matched_tokens, 12U);
  EXPECT_EQ(result.matched_blocks, 3U);
  EXPECT_EQ(result.prompt_tokens, 4U + 14U);
}

// Remembers the first token of each prompt looked up, and "r" for a match given back.
class WatchedCache : public ForwardingCache {
 public:
  WatchedCache() : ForwardingCache(kBlockSize) {}
  PrefixMatch lookup(Tokens tokens, std::size_t block_size, SessionHash session, AdapterId adapter) override {
    calls.emplace_back(1, static_cast<char>(tokens[0]));
    return ForwardingCache::lookup(tokens, block_size, session, adapter);
  }
  void release_matched(Tokens tokens, std::size_t block_size, std::size_t matched, AdapterId adapter) override {
    calls.emplace_back("r");
    ForwardingCache::release_matched(tokens, block_size, matched, adapter);
  }
  std::vector<std::string> calls;
};

TEST(Replayer, NobodyOvertakesAWaitingRequest) {
  WatchedCache cache;
  SimulatedBlockPool pool(5);
  // a holds 4 blocks until 1000 ms. b needs 3 from 10 ms on; c, of 1 block, would fit at 20 ms.
  const Workload workload = workload_of({{.prompt = "aaaa", .output_length = 12},
                                         {.prompt = "bbbbbbbbbbbb", .output_length = 1, .timestamp_ms = 10},
                                         {.prompt = "cccc", .timestamp_ms = 20}});
  const RunResult result = Replayer(cache, pool, workload, {.block_size = kBlockSize, .service_rate = 12}).run();
  EXPECT_THAT(cache.calls, ElementsAre("a", "b", "r", "b", "c"));
  EXPECT_EQ(result.waited, 1U);
}

TEST(Replayer, AServiceRateLetsARequestRunFromItsTimeStampOn) {
  // 100 tokens at 10 per second: 10 s.
  const auto peak_running = [](double second_ms) {
    return replay({{.prompt = "aaaa", .output_length = 100}, {.prompt = "bbbb", .timestamp_ms = second_ms}}, 100,
                  {.service_rate = 10})
        .peak_running;
  };
  EXPECT_EQ(peak_running(9'999), 2U);
  EXPECT_EQ(peak_running(10'000), 1U);
}

TEST(Replayer, WithAServiceRateTheFirstToEndIsNotTheFirstToStart) {
  // The second ends at 200 ms, so that its output is there for the third, while the first still runs.
  const RunResult result = replay({{.prompt = "aaaa", .output_length = 100},
                                   {.prompt = "bbbb", .output = "cccc", .timestamp_ms = 100},
                                   {.prompt = "bbbbccccd", .output_length = 1, .timestamp_ms = 600}},
                                  100, {.service_rate = 10});
  EXPECT_EQ(result.matched_tokens, 8U);
  EXPECT_EQ(result.peak_running, 2U);
}

TEST(Replayer, AWaitDelaysThoseBehindIt) {
  // Like above, but the second waits until 10 s, so the third, behind it, comes when both run no more.
  const RunResult result = replay({{.prompt = "aaaa", .output_length = 100},
                                   {.prompt = "bbbb", .output_length = 1, .timestamp_ms = 100},
                                   {.prompt = "aaaad", .output_length = 1, .timestamp_ms = 600}},
                                  26, {.service_rate = 10});
  EXPECT_EQ(result.waited, 1U);
  EXPECT_EQ(result.matched_tokens, 4U);
  EXPECT_EQ(result.peak_running, 2U) << "the second and the third";
}

TEST(Replayer, WithoutACacheEveryBlockComesBackAtOnce) {
  NoPrefixCaching cache;
  SimulatedBlockPool pool(4);
  const Workload workload = workload_of({{.prompt = "aaaabbbb", .output = "cccc"}, {.prompt = "aaaabbbbccccd"}});
  const RunResult result = Replayer(cache, pool, workload, {.block_size = kBlockSize}).run();
  EXPECT_EQ(result.matched_tokens, 0U);
  EXPECT_EQ(result.created_blocks, 0U);
  EXPECT_EQ(result.peak_blocks, 4U);
}

TEST(Replayer, CallsBackOnceForEachRequest) {
  std::size_t calls = 0;
  replay({{.prompt = "a"}, {.prompt = "aaaaaaaaaaaaaaaa"}, {.prompt = "a"}}, 2,
         {.on_request_done = [&calls] { ++calls; }});
  EXPECT_EQ(calls, 3U);
}

TEST(Replayer, RefusesOptionsOutOfRange) {
  EXPECT_THROW(replay({{.prompt = "a"}}, 2, {.concurrency = 0}), std::invalid_argument);
  EXPECT_THROW(replay({{.prompt = "a"}}, 2, {.service_rate = 0.0}), std::invalid_argument);
  EXPECT_THROW(replay({{.prompt = "a"}}, 2, {.service_rate = -1.0}), std::invalid_argument);
  NoPrefixCaching cache;
  SimulatedBlockPool pool(4);
  Workload without_times;
  EXPECT_THROW(Replayer(cache, pool, without_times, {.service_rate = 1.0}), std::invalid_argument);
  EXPECT_THROW(Replayer(cache, pool, without_times, {.block_size = 0}), std::invalid_argument);
}

// ---- Caches that break their promises ----

std::string failure_with(PrefixCache& cache, const std::vector<Line>& lines, std::size_t blocks = 100,
                         ReplayOptions options = {}) {
  options.block_size = kBlockSize;
  SimulatedBlockPool pool(blocks);
  const Workload workload = workload_of(lines);
  try {
    Replayer(cache, pool, workload, options).run();
  } catch (const ReplayError& error) {
    return error.what();
  }
  return "";
}

class BrokenLookup : public ForwardingCache {
 public:
  explicit BrokenLookup(std::function<void(PrefixMatch&)> damage)
      : ForwardingCache(kBlockSize), damage_(std::move(damage)) {}
  PrefixMatch lookup(Tokens tokens, std::size_t block_size, SessionHash session, AdapterId adapter) override {
    PrefixMatch match = ForwardingCache::lookup(tokens, block_size, session, adapter);
    if (!match.empty()) damage_(match);
    return match;
  }

 private:
  std::function<void(PrefixMatch&)> damage_;
};

const std::vector<Line> kTwice = {{.prompt = "aaaabbbbc"}, {.prompt = "aaaabbbbd"}};

TEST(ReplayerCheck, AnHonestCachePasses) {
  BrokenLookup cache([](PrefixMatch&) {});
  EXPECT_EQ(failure_with(cache, kTwice), "");
}

TEST(ReplayerCheck, ABlockOfOtherTokensStopsTheRunAndIsNamed) {
  BrokenLookup cache([](PrefixMatch& match) { std::swap(match.matched_blocks[0], match.matched_blocks[1]); });
  EXPECT_THAT(failure_with(cache, kTwice), AllOf(HasSubstr("request 2 (line 2)"), HasSubstr("block 0 of its prompt"),
                                                 HasSubstr("physical block 1, which was filled with other tokens")));
}

TEST(ReplayerCheck, ABlockOfAnotherAdapterStopsTheRun) {
  class OneAdapter : public ForwardingCache {
   public:
    OneAdapter() : ForwardingCache(kBlockSize) {}
    PrefixMatch lookup(Tokens tokens, std::size_t block_size, SessionHash session, AdapterId) override {
      return ForwardingCache::lookup(tokens, block_size, session, 0);
    }
  } cache;
  EXPECT_THAT(failure_with(cache, {{.prompt = "aaaa"}, {.prompt = "aaaa", .adapter = 3}}),
              HasSubstr("filled with other tokens"));
}

TEST(ReplayerCheck, ABlockThatNobodyHoldsStopsTheRun) {
  BrokenLookup cache([](PrefixMatch& match) { match.matched_blocks[1] = 77; });
  EXPECT_THAT(failure_with(cache, kTwice), HasSubstr("block 77 is named, but nobody holds a reference"));
}

TEST(ReplayerCheck, AMatchThatDoesNotAddUpStopsTheRun) {
  BrokenLookup fewer([](PrefixMatch& match) { match.matched_tokens -= 1; });
  EXPECT_THAT(failure_with(fewer, kTwice), HasSubstr("matched 7 tokens with 2 blocks"));
  BrokenLookup more([](PrefixMatch& match) {
    match.matched_blocks.push_back(match.matched_blocks[0]);
    match.matched_tokens += kBlockSize;
  });
  EXPECT_THAT(failure_with(more, kTwice), HasSubstr("matched 12 tokens with 3 blocks of a prompt of 9 tokens"));
}

TEST(ReplayerCheck, AUseThatIsNeverReleasedIsNoticedAtTheEnd) {
  class Hoarder : public ForwardingCache {
   public:
    Hoarder() : ForwardingCache(kBlockSize) {}
    void release(Tokens, std::size_t, AdapterId) override {}
  };
  Hoarder at_end;
  EXPECT_THAT(failure_with(at_end, kTwice), HasSubstr("the cache still holds 2 blocks"));
  Hoarder when_short;
  EXPECT_THAT(failure_with(when_short, {{.prompt = "aaaa"}, {.prompt = "bbbb"}}, 1),
              HasSubstr("request 2 (line 2) needs 1 blocks, nothing else runs"));
}

TEST(ReplayerCheck, AnEvictedBlockThatIsNotReportedIsNoticedAtTheEnd) {
  class Forgetful : public ForwardingCache {
   public:
    Forgetful() : ForwardingCache(kBlockSize) {}
    EvictedBlocks evict(std::size_t blocks) override {
      EvictedBlocks evicted = ForwardingCache::evict(blocks);
      if (evicted.size() > 1) evicted.physical.pop_back();
      return evicted;
    }
  } cache;
  EXPECT_THAT(failure_with(cache, kTwice), HasSubstr("1 blocks of the pool are in use"));
}

TEST(ReplayerCheck, ABlockEvictedTwiceStopsTheRun) {
  class Repeating : public ForwardingCache {
   public:
    Repeating() : ForwardingCache(kBlockSize) {}
    EvictedBlocks evict(std::size_t blocks) override {
      EvictedBlocks evicted = ForwardingCache::evict(blocks);
      evicted.physical.push_back(evicted.physical.at(0));
      return evicted;
    }
  } cache;
  EXPECT_THAT(failure_with(cache, kTwice), HasSubstr("nobody holds a reference"));
}

// ---- Everything at once ----

TEST(Replayer, RandomWorkloadsAddUpAtEveryPoolSizeAndOverlap) {
  std::mt19937 random(5);
  for (int round = 0; round < 150; ++round) {
    std::vector<Line> lines;
    double timestamp_ms = 0;
    std::uint64_t prompt_tokens = 0;
    for (int i = 0; i < 60; ++i) {
      Line line;
      for (std::size_t left = 1 + random() % 30; left > 0; --left) line.prompt += random() % 8 == 0 ? 'b' : 'a';
      for (std::size_t left = random() % 12; left > 0; --left) line.output += random() % 8 == 0 ? 'b' : 'a';
      timestamp_ms += static_cast<double>(random() % 300);
      line.timestamp_ms = timestamp_ms;
      line.adapter = random() % 4 == 0 ? 1 : 0;
      prompt_tokens += line.prompt.size();
      lines.push_back(std::move(line));
    }
    // The largest request needs 8 + 3 blocks.
    const std::size_t blocks = 11 + random() % 40;
    ReplayOptions options;
    if (round % 2 == 0) {
      options.concurrency = 1 + random() % 9;
    } else {
      options.service_rate = 1 + static_cast<double>(random() % 40);
    }
    SCOPED_TRACE(testing::Message() << "round " << round << ", " << blocks << " blocks");
    const RunResult limited = replay(lines, blocks, options);
    const RunResult unbounded = replay(lines, std::nullopt, options);
    EXPECT_EQ(limited.rejected, 0U);
    EXPECT_EQ(limited.prompt_tokens, prompt_tokens);
    EXPECT_LE(limited.peak_blocks, blocks);
    EXPECT_EQ(unbounded.evicted_blocks, 0U);
    EXPECT_EQ(unbounded.waited, 0U);
    EXPECT_GE(limited.created_blocks, limited.evicted_blocks);
  }
}

TEST(Comparison, RunsTheSameWorkloadThroughEachAndFindsTheOptimum) {
  const Workload workload = builtin_workload({.requests = 300});
  for (const char* size : {"20%", "8000", "128kt"}) {
    const Comparison comparison = compare(workload, {.pool = PoolSize::parse(size), .replay = {.concurrency = 4}});
    ASSERT_EQ(comparison.runs.size(), 4U);
    const RunResult& none = comparison.runs[0];
    const RunResult& lru = comparison.runs[1];
    const RunResult& optimum = comparison.runs[2];
    const RunResult& unbounded = comparison.runs[3];
    EXPECT_EQ(none.name, "none");
    EXPECT_EQ(lru.name, "lru");
    EXPECT_EQ(optimum.name, "optimum");
    EXPECT_EQ(unbounded.name, "unbounded");
    for (const RunResult& run : comparison.runs) EXPECT_EQ(run.requests, 300U);
    EXPECT_EQ(none.matched_tokens, 0U);
    EXPECT_LT(0U, lru.matched_tokens);
    EXPECT_LT(lru.matched_tokens, optimum.matched_tokens);
    EXPECT_LE(optimum.matched_tokens, unbounded.matched_tokens);
    EXPECT_LT(0U, lru.evicted_blocks);
    EXPECT_EQ(lru.pool_blocks, comparison.pool_blocks);
    EXPECT_EQ(none.pool_blocks, comparison.pool_blocks);
    EXPECT_EQ(optimum.pool_blocks, comparison.pool_blocks);
    EXPECT_EQ(unbounded.pool_blocks, std::nullopt);
    EXPECT_EQ(comparison.distinct_blocks, unbounded.created_blocks);
  }
  EXPECT_EQ(compare(workload, {.pool = PoolSize::parse("8000")}).pool_blocks, 8000U);
  const Comparison share = compare(workload, {.pool = PoolSize::parse("20%")});
  EXPECT_EQ(share.pool_blocks, share.distinct_blocks / 5);
}

}  // namespace
}  // namespace cairn::replay
