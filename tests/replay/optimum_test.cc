// The optimum against a search through every choice, and against the caches that run.
#include "replay/optimum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "replay/builtin_workload.h"
#include "replay/comparison.h"
#include "replay/lines.h"

namespace cairn::replay {
namespace {

using testing::HasSubstr;

RunResult optimum(const std::vector<Line>& lines, std::optional<std::size_t> blocks, const ReplayOptions& options) {
  const Workload workload = workload_of(lines);
  return find_optimum(workload, BlockTrace(workload, options.block_size), blocks, options);
}

// ---- Every choice there is ----

// A block is named by its adapter and all tokens up to its end.
using Blocks = std::set<std::string>;

// Whatever is not held may go whenever a request is admitted: all subsets of it are tried. With `closed`, only those
// in which no block is without its parent, which are the ones that a tree can keep. Sequences end in the order of
// their admission, as without a service rate.
class EveryChoice {
 public:
  EveryChoice(const std::vector<Line>& lines, std::size_t block_size, std::size_t capacity, std::size_t concurrency,
              bool closed)
      : lines_(lines), block_size_(block_size), capacity_(capacity), concurrency_(concurrency), closed_(closed) {}

  std::size_t matched_blocks() { return best_from(0, {}, {}); }

 private:
  [[nodiscard]] Blocks blocks_of(const Line& line, const std::string& tokens) const {
    Blocks blocks;
    for (std::size_t end = block_size_; end <= tokens.size(); end += block_size_) {
      blocks.insert(std::to_string(line.adapter) + ":" + tokens.substr(0, end));
    }
    return blocks;
  }
  [[nodiscard]] Blocks prompt(std::size_t index) const { return blocks_of(lines_[index], lines_[index].prompt); }
  [[nodiscard]] Blocks sequence(std::size_t index) const {
    return blocks_of(lines_[index], lines_[index].prompt + lines_[index].output);
  }
  [[nodiscard]] std::size_t blocks_for(std::size_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }
  [[nodiscard]] std::size_t needed(std::size_t index) const {
    const Line& line = lines_[index];
    return blocks_for(line.prompt.size()) + blocks_for(std::max<std::size_t>(line.output.size(), line.output_length));
  }
  [[nodiscard]] Blocks held_by(const std::vector<std::size_t>& running) const {
    Blocks held;
    for (const std::size_t index : running) held.merge(prompt(index));
    return held;
  }
  [[nodiscard]] std::size_t in_use(const std::vector<std::size_t>& running) const {
    std::size_t blocks = held_by(running).size();
    for (const std::size_t index : running) blocks += needed(index) - prompt(index).size();
    return blocks;
  }

  std::size_t best_from(std::size_t index, std::vector<std::size_t> running, Blocks cached) {
    if (index == lines_.size()) return 0;
    const auto [known, added] = best_.try_emplace({index, running, cached}, 0);
    if (!added) return known->second;
    const auto state = known->first;
    std::size_t best = 0;
    if (needed(index) > capacity_) {
      best = best_from(index + 1, running, cached);
    } else {
      const auto end_one = [&] {
        cached.merge(sequence(running.front()));
        running.erase(running.begin());
      };
      while (running.size() >= concurrency_) end_one();
      const auto with_this = [&] {
        std::vector<std::size_t> all = running;
        all.push_back(index);
        return all;
      };
      while (in_use(with_this()) > capacity_) end_one();
      best = best_of_subsets(index, with_this(), cached);
    }
    best_[state] = best;
    return best;
  }

  std::size_t best_of_subsets(std::size_t index, const std::vector<std::size_t>& running, const Blocks& cached) {
    std::size_t matched = 0;
    for (const std::string& block : prompt(index)) matched += cached.contains(block) ? 1 : 0;
    const Blocks held = held_by(running);
    const std::size_t room = capacity_ - in_use(running);
    std::vector<std::string> optional;
    std::ranges::set_difference(cached, held, std::back_inserter(optional));
    std::size_t best = 0;
    for (std::size_t subset = 0; subset < std::size_t{1} << optional.size(); ++subset) {
      Blocks kept = held;
      for (std::size_t i = 0; i < optional.size(); ++i) {
        if ((subset >> i & 1) != 0) kept.insert(optional[i]);
      }
      if (kept.size() - held.size() > room || (closed_ && !is_closed(kept))) continue;
      best = std::max(best, best_from(index + 1, running, kept));
    }
    return matched + best;
  }

  [[nodiscard]] bool is_closed(const Blocks& blocks) const {
    return std::ranges::all_of(blocks, [&](const std::string& block) {
      const std::string parent = block.substr(0, block.size() - block_size_);
      return parent.ends_with(':') || blocks.contains(parent);
    });
  }

  const std::vector<Line>& lines_;
  std::size_t block_size_;
  std::size_t capacity_;
  std::size_t concurrency_;
  bool closed_;
  std::map<std::tuple<std::size_t, std::vector<std::size_t>, Blocks>, std::size_t> best_;
};

enum class Outputs { kUnknown, kKnown };

// Few letters and short prompts, so that much is asked for again.
std::vector<Line> random_lines(std::mt19937_64& random, std::size_t requests, Outputs outputs) {
  const auto below = [&](std::uint64_t end) { return random() % end; };
  std::vector<Line> lines;
  double now_ms = 0;
  while (lines.size() < requests) {
    Line line;
    for (std::uint64_t length = 1 + below(4); line.prompt.size() < length;) line.prompt += "ab"[below(2)];
    if (outputs == Outputs::kKnown) {
      for (std::uint64_t length = below(3); line.output.size() < length;) line.output += "ab"[below(2)];
    } else {
      line.output_length = static_cast<std::uint32_t>(below(3));
    }
    line.adapter = below(6) == 0 ? 1 : 0;
    now_ms += static_cast<double>(below(3)) * 100;
    line.timestamp_ms = now_ms;
    lines.push_back(line);
  }
  return lines;
}

TEST(Optimum, IsWhatASearchThroughEveryChoiceFinds) {
  std::mt19937_64 random(20261129);
  std::size_t hits = 0;
  std::size_t waits = 0;
  for (int round = 0; round < 400; ++round) {
    const std::vector<Line> lines = random_lines(random, 7, Outputs::kUnknown);
    const std::size_t block_size = 1 + random() % 2;
    const std::size_t capacity = 2 + random() % 7;
    const std::size_t concurrency = 1 + random() % 3;
    SCOPED_TRACE(testing::Message() << "round " << round << ", capacity " << capacity);
    const RunResult found = optimum(lines, capacity, {.block_size = block_size, .concurrency = concurrency});
    EXPECT_EQ(found.matched_blocks,
              EveryChoice(lines, block_size, capacity, concurrency, /*closed=*/true).matched_blocks());
    hits += found.matched_blocks;
    waits += found.waited;
  }
  EXPECT_GT(hits, 400U);
  EXPECT_GT(waits, 100U);
}

TEST(Optimum, WithKnownOutputsIsWhatEveryChoiceFindsThatMayKeepABlockWithoutItsParent) {
  std::mt19937_64 random(7);
  std::size_t out_of_reach = 0;
  for (int round = 0; round < 400; ++round) {
    const std::vector<Line> lines = random_lines(random, 6, Outputs::kKnown);
    const std::size_t capacity = 3 + random() % 5;
    const std::size_t concurrency = 1 + random() % 2;
    SCOPED_TRACE(testing::Message() << "round " << round << ", capacity " << capacity);
    const std::size_t found = optimum(lines, capacity, {.block_size = 1, .concurrency = concurrency}).matched_blocks;
    EXPECT_EQ(found, EveryChoice(lines, 1, capacity, concurrency, /*closed=*/false).matched_blocks());
    const std::size_t closed = EveryChoice(lines, 1, capacity, concurrency, /*closed=*/true).matched_blocks();
    EXPECT_GE(found, closed);
    if (found > closed) ++out_of_reach;
  }
  EXPECT_LT(out_of_reach, 8U) << "a tree reaches it but for rare cases";
}

// ---- The caches that run ----

void expect_ordered(const Workload& workload, std::size_t blocks, const ReplayOptions& options) {
  const BlockTrace numbers(workload, options.block_size);
  const RunResult ideal = find_optimum(workload, numbers, blocks, options);
  const RunResult lru = run_policy("lru", workload, options, blocks);
  EXPECT_LE(lru.matched_blocks, ideal.matched_blocks);
  // The same requests are admitted, beside the same others.
  EXPECT_EQ(ideal.rejected, lru.rejected);
  EXPECT_EQ(ideal.waited, lru.waited);
  EXPECT_EQ(ideal.prompt_tokens, lru.prompt_tokens);
  EXPECT_EQ(ideal.prompt_blocks, lru.prompt_blocks);
  EXPECT_EQ(ideal.output_tokens, lru.output_tokens);
  EXPECT_EQ(ideal.peak_running, lru.peak_running);
  const RunResult unbounded = run_unbounded(workload, numbers, options);
  if (lru.rejected == 0) {
    EXPECT_LE(ideal.matched_blocks, unbounded.matched_blocks);
  }
  const RunResult endless = find_optimum(workload, numbers, std::nullopt, options);
  EXPECT_EQ(endless.matched_tokens, unbounded.matched_tokens);
  EXPECT_EQ(endless.reused_tokens, unbounded.reused_tokens);
  EXPECT_EQ(endless.peak_running, unbounded.peak_running);
}

TEST(Optimum, IsNeverBeatenByLruNorBeatsTheUnboundedCache) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const Workload workload =
        workload_of(random_lines(random, 60, round % 2 == 0 ? Outputs::kKnown : Outputs::kUnknown));
    ReplayOptions options{.block_size = 1 + random() % 2, .concurrency = 1 + random() % 5};
    if (round % 3 == 0) options.service_rate = 5 + static_cast<double>(random() % 20);
    expect_ordered(workload, 2 + random() % 20, options);
  }
}

TEST(Optimum, IsNeverBeatenOnTheBuiltinWorkload) {
  const Workload workload = builtin_workload({.requests = 300, .seed = 3});
  const std::size_t distinct = BlockTrace(workload, 16).distinct();
  for (const std::size_t percent : {1U, 5U, 10U, 30U, 100U}) {
    expect_ordered(workload, distinct * percent / 100, {.block_size = 16, .concurrency = 4});
  }
}

TEST(Optimum, ReachesTheUnboundedCacheWhereLruLosesEverything) {
  // Three prompts in turn through a pool with room for two: LRU always drops the one that comes next.
  const std::vector<Line> lines = {{.prompt = "a"}, {.prompt = "b"}, {.prompt = "c"}, {.prompt = "a"},
                                   {.prompt = "b"}, {.prompt = "c"}, {.prompt = "a"}};
  const Workload workload = workload_of(lines);
  const ReplayOptions options{.block_size = 1};
  EXPECT_EQ(run_policy("lru", workload, options, 2).matched_blocks, 0U);
  EXPECT_EQ(optimum(lines, 2, options).matched_blocks, 2U) << "one block is kept, the other changes";
  EXPECT_EQ(optimum(lines, 3, options).matched_blocks, 4U);
  EXPECT_EQ(optimum(lines, std::nullopt, options).matched_blocks, 4U);
}

TEST(Optimum, KeepsNothingBesideASequenceThatTakesTheWholePool) {
  // The output's two blocks are in nobody's prompt, but in the way.
  const std::vector<Line> lines = {{.prompt = "aa"}, {.prompt = "b", .output_length = 2}, {.prompt = "aa"}};
  EXPECT_EQ(optimum(lines, 3, {.block_size = 1}).matched_blocks, 0U);
  EXPECT_EQ(optimum(lines, 4, {.block_size = 1}).matched_blocks, 1U);
  EXPECT_EQ(optimum(lines, 5, {.block_size = 1}).matched_blocks, 2U);
}

TEST(Optimum, SaysThatNoCacheRan) {
  const RunResult result = optimum({{.prompt = "aaaabb"}, {.prompt = "aaaabb"}}, 10, {.block_size = 2});
  EXPECT_TRUE(result.ideal);
  EXPECT_EQ(result.name, "optimum");
  EXPECT_EQ(result.pool_blocks, 10U);
  EXPECT_EQ(result.matched_tokens, 6U);
  EXPECT_EQ(result.reused_tokens, 5U) << "the last token of a fully matched prompt is computed all the same";
}

TEST(Optimum, RefusesBlocksOfAnotherSizeAndWhatTheReplayerRefuses) {
  const Workload workload = workload_of({{.prompt = "aaaa"}});
  const BlockTrace blocks(workload, 2);
  EXPECT_THROW((void)find_optimum(workload, blocks, 9, {.block_size = 4}), std::invalid_argument);
  EXPECT_THROW((void)find_optimum(workload, blocks, 9, {.block_size = 2, .concurrency = 0}), std::invalid_argument);
  EXPECT_THROW(BlockTrace(workload, 0), std::invalid_argument);
  EXPECT_THROW((void)run_policy("mru", workload, {.block_size = 2}, 9), std::invalid_argument);
}

TEST(BlockTrace, NumbersEqualPrefixesOfOneAdapterAlike) {
  const Workload workload = workload_of({{.prompt = "aabbc", .output = "cd"},
                                         {.prompt = "aabbcc"},
                                         {.prompt = "bbaa"},
                                         {.prompt = "aabb", .adapter = 1},
                                         {.prompt = "a"}});
  const BlockTrace blocks(workload, 2);
  const auto vector_of = [](std::span<const BlockTrace::Number> numbers) {
    return std::vector<BlockTrace::Number>(numbers.begin(), numbers.end());
  };
  EXPECT_EQ(vector_of(blocks.prompt(0)), (std::vector<BlockTrace::Number>{0, 1}));
  EXPECT_EQ(vector_of(blocks.output(0)), (std::vector<BlockTrace::Number>{2}));
  EXPECT_EQ(vector_of(blocks.sequence(0)), (std::vector<BlockTrace::Number>{0, 1, 2}));
  EXPECT_EQ(vector_of(blocks.prompt(1)), (std::vector<BlockTrace::Number>{0, 1, 2}));
  EXPECT_EQ(vector_of(blocks.prompt(2)), (std::vector<BlockTrace::Number>{3, 4}));
  EXPECT_EQ(vector_of(blocks.prompt(3)), (std::vector<BlockTrace::Number>{5, 6}));
  EXPECT_TRUE(blocks.prompt(4).empty());
  EXPECT_EQ(blocks.distinct(), 7U);
  EXPECT_EQ(blocks.size(), 10U);
  const BlockTrace alike(workload, 2, BlockTrace::Adapters::kAsIfSame);
  EXPECT_EQ(vector_of(alike.prompt(3)), (std::vector<BlockTrace::Number>{0, 1}));
  EXPECT_EQ(alike.distinct(), 5U);
}

}  // namespace
}  // namespace cairn::replay
