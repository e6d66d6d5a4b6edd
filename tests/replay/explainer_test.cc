// Causes planted in workloads, and found again.
#include "replay/explainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "replay/builtin_workload.h"
#include "replay/comparison.h"
#include "replay/explain_report.h"
#include "replay/lines.h"
#include "src/base/equal_stretches.h"

namespace cairn::replay {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Tokens = std::vector<TokenId>;

ExplainResult explained(const Workload& workload, std::size_t pool_blocks, const ReplayOptions& replay) {
  return explain(workload, BlockTrace(workload, replay.block_size), {.pool_blocks = pool_blocks, .replay = replay});
}

ExplainResult explained(const std::vector<Line>& lines, std::size_t pool_blocks, std::size_t block_size) {
  return explained(workload_of(lines), pool_blocks, {.block_size = block_size});
}

// ---- Planted ones ----

constexpr std::size_t kBlockSize = 16;

// Rounds about a prompt that nobody had before, each with one request of every cause, in random order. Two rounds fit
// into the pool, and what is asked for again ten rounds later was evicted. No token is used twice.
class Planted {
 public:
  struct Expected {
    MissCause cause = MissCause::kNone;
    std::size_t nearest = 0;  // where it counts
    std::size_t differs_at = 0;
    std::size_t removed = 0;
    std::size_t added = 0;
    bool goes_on = false;
  };

  explicit Planted(std::uint64_t seed, std::size_t rounds) : random_(seed) {
    workload_.set_has_timestamps();
    for (std::size_t round = 0; round < rounds; ++round) add_round(round);
  }

  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] const std::vector<Expected>& expected() const { return expected_; }

 private:
  std::uint64_t from_to(std::uint64_t low, std::uint64_t high) { return low + random_() % (high - low + 1); }
  std::uint32_t number() { return 1 + static_cast<std::uint32_t>(from_to(0, 1)); }
  Tokens fresh(std::size_t count) {
    Tokens tokens(count);
    std::iota(tokens.begin(), tokens.end(), next_token_);
    next_token_ += static_cast<TokenId>(count);
    return tokens;
  }
  static Tokens joined(std::initializer_list<Tokens> parts) {
    Tokens all;
    for (const Tokens& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  static Tokens part(const Tokens& tokens, std::size_t from, std::size_t to) {
    return {tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.begin() + static_cast<std::ptrdiff_t>(to)};
  }

  struct Who {
    std::uint32_t adapter = 0;
    std::uint32_t tenant = 0;
  };
  void add(const Tokens& tokens, const Expected& expected) { add(tokens, {}, expected); }
  void add(const Tokens& tokens, const Who& who, const Expected& expected) {
    const TokenRun run = workload_.store(tokens);
    workload_.add({.timestamp_ms = static_cast<double>(workload_.size()) * 100,
                   .adapter = who.adapter,
                   .tenant = who.tenant,
                   .line = workload_.size() + 1,
                   .output_length = 1},
                  {&run, 1}, {});
    expected_.push_back(expected);
  }

  void add_round(std::size_t round) {
    const std::size_t index = workload_.size();
    const Tokens base = fresh(kBlockSize * from_to(40, 60) + from_to(0, 1) * from_to(0, kBlockSize - 1));
    bases_.push_back(base);
    add(base, {.cause = MissCause::kNeverSeen});
    std::vector<int> order(8);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random_);
    for (const int what : order) add_one(what, round, index, base);
  }

  void add_one(int what, std::size_t round, std::size_t index, const Tokens& base) {
    switch (what) {
      case 0:
        return add(base, {.cause = MissCause::kNone});
      case 1:
        return add(fresh(from_to(1, kBlockSize - 1)), {.cause = MissCause::kTooShort});
      case 2:
        if (round >= 10) add(bases_[round - 10], {.cause = MissCause::kEvicted});
        return;
      case 3:
        return add(base, {.adapter = number()}, {.cause = MissCause::kOtherAdapter, .nearest = index});
      case 7:
        return add(base, {.tenant = number()}, {.cause = MissCause::kOtherTenant, .nearest = index});
      case 4: {
        // Anywhere, the first token included.
        const std::size_t at = from_to(0, 1) == 0 ? from_to(0, 40) : from_to(0, base.size() - 300);
        const std::size_t removed = from_to(0, 20);
        const std::size_t added = from_to(removed == 0 ? 1 : 0, 20);
        return add(joined({part(base, 0, at), fresh(added), part(base, at + removed, base.size())}),
                   {.cause = MissCause::kDiffersThenEqual,
                    .nearest = index,
                    .differs_at = at,
                    .removed = removed,
                    .added = added});
      }
      case 5: {
        const std::size_t at = from_to(8, base.size() - kBlockSize);
        return add(joined({part(base, 0, at), fresh(from_to(kBlockSize, 200))}),
                   {.cause = MissCause::kDiffers, .nearest = index, .differs_at = at});
      }
      default: {
        const std::size_t full = base.size() / kBlockSize * kBlockSize;
        return add(joined({part(base, 0, full), fresh(from_to(kBlockSize, 200))}),
                   {.cause = MissCause::kNeverSeen, .goes_on = true});
      }
    }
  }

  std::mt19937_64 random_;
  TokenId next_token_ = 0;
  Workload workload_;
  std::vector<Tokens> bases_;
  std::vector<Expected> expected_;
};

TEST(Explainer, FindsEveryPlantedCauseAndNoOther) {
  std::array<std::size_t, kMissCauses> planted{};
  std::array<std::size_t, kMissCauses> found{};
  std::array<std::size_t, kMissCauses> right{};
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Planted plants(seed, 60);
    // A round takes some 400 blocks.
    const ExplainResult result = explained(plants.workload(), 1000, {.block_size = kBlockSize});
    ASSERT_EQ(result.requests.size(), plants.expected().size());
    for (std::size_t i = 0; i < result.requests.size(); ++i) {
      const Planted::Expected& expected = plants.expected()[i];
      const Explanation& explanation = result.requests[i];
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", request " << i + 1 << ": "
                                      << describe(plants.workload(), explanation));
      ++planted[static_cast<std::size_t>(expected.cause)];
      ++found[static_cast<std::size_t>(explanation.cause)];
      EXPECT_EQ(name_of(explanation.cause), name_of(expected.cause));
      if (explanation.cause != expected.cause) continue;
      ++right[static_cast<std::size_t>(expected.cause)];
      EXPECT_EQ(explanation.goes_on, expected.goes_on);
      if (expected.cause == MissCause::kOtherTenant) {
        EXPECT_EQ(explanation.tokens.other_tenant, explanation.tokens.prompt / kBlockSize * kBlockSize);
      }
      if (expected.cause == MissCause::kOtherAdapter) {
        EXPECT_EQ(explanation.tokens.other_adapter, explanation.tokens.prompt / kBlockSize * kBlockSize);
      }
      if (expected.cause != MissCause::kDiffersThenEqual && expected.cause != MissCause::kDiffers) continue;
      EXPECT_EQ(explanation.differs_at, expected.differs_at);
      if (expected.cause != MissCause::kDiffersThenEqual) continue;
      EXPECT_FALSE(explanation.moved);
      EXPECT_EQ(explanation.removed, expected.removed);
      EXPECT_EQ(explanation.added, expected.added);
      EXPECT_EQ(explanation.runs, 1U);
    }
  }
  for (std::size_t i = 0; i < kMissCauses; ++i) {
    if (static_cast<MissCause>(i) == MissCause::kStateMissing) {
      EXPECT_EQ(found[i], 0U) << "there are none";
      continue;
    }
    const double precision = static_cast<double>(right[i]) / static_cast<double>(found[i]);
    const double recall = static_cast<double>(right[i]) / static_cast<double>(planted[i]);
    std::printf("%-20s planted %4zu  found %4zu  precision %.3f  recall %.3f\n",
                std::string(name_of(static_cast<MissCause>(i))).c_str(), planted[i], found[i], precision, recall);
    EXPECT_EQ(precision, 1.0);
    EXPECT_EQ(recall, 1.0);
    EXPECT_GE(planted[i], 200U);
  }
}

// ---- States, planted in the workload of a hybrid model ----

// No prompt ends within a block, so a prompt's state is kept one block below its end, where its KV ends the next time:
// the last token is always computed. Rounds about a prompt that nobody had before; no token is used twice.
class PlantedStates {
 public:
  struct Expected {
    MissCause cause = MissCause::kNone;
    StateLoss state = StateLoss::kNone;
    std::size_t stateless = 0;
    std::size_t state_tokens = 0;
  };
  static constexpr std::size_t kSlots = 16;

  PlantedStates(std::uint64_t seed, std::size_t rounds) : random_(seed) {
    for (std::size_t round = 0; round < rounds; ++round) add_round();
  }

  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] const std::vector<Expected>& expected() const { return expected_; }

 private:
  std::size_t from_to(std::size_t low, std::size_t high) { return low + random_() % (high - low + 1); }
  // So many blocks of tokens that are nowhere else.
  Tokens fresh(std::size_t blocks) {
    Tokens tokens(blocks * kBlockSize);
    std::iota(tokens.begin(), tokens.end(), next_token_);
    next_token_ += static_cast<TokenId>(tokens.size());
    return tokens;
  }
  static Tokens start_and(const Tokens& start, std::size_t blocks, const Tokens& rest) {
    Tokens all(start.begin(), start.begin() + static_cast<std::ptrdiff_t>(blocks * kBlockSize));
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
  void add(const Tokens& tokens, SessionHash session, const Expected& expected) {
    const TokenRun run = workload_.store(tokens);
    workload_.add({.session = session, .line = workload_.size() + 1, .output_length = 1}, {&run, 1}, {});
    expected_.push_back(expected);
  }

  void add_round() {
    const std::size_t blocks = from_to(6, 10);
    const Tokens base = fresh(blocks);
    const std::size_t end = (blocks - 1) * kBlockSize;
    const SessionHash session = from_to(0, 2) == 0 ? ++sessions_ : 0;
    add(base, session, {.cause = MissCause::kNeverSeen});
    if (session != 0) {
      // The next turn begins at the block whose state was not kept, and takes the tail along.
      add(start_and(base, blocks, fresh(3)), session,
          {.cause = MissCause::kStateMissing, .state = StateLoss::kNeverTaken, .stateless = kBlockSize});
      add(base, session,
          {.cause = MissCause::kStateMissing, .state = StateLoss::kReplaced, .stateless = end, .state_tokens = end});
      return;
    }
    if (from_to(0, 1) == 0) add(base, 0, {.cause = MissCause::kNone});
    if (from_to(0, 1) == 0) {
      const std::size_t common = from_to(1, blocks - 2);
      add(start_and(base, common, fresh(4)), 0,
          {.cause = MissCause::kStateMissing, .state = StateLoss::kNeverTaken, .stateless = common * kBlockSize});
    }
    bases_.push_back(base);
    if (bases_.size() > 2 * kSlots) {  // each had a state of its own since
      const Tokens& old = bases_[bases_.size() - 1 - 2 * kSlots];
      const std::size_t old_end = old.size() - kBlockSize;
      add(old, 0,
          {.cause = MissCause::kStateMissing,
           .state = StateLoss::kEvicted,
           .stateless = old_end,
           .state_tokens = old_end});
    }
  }

  std::mt19937_64 random_;
  TokenId next_token_ = 0;
  SessionHash sessions_ = 0;
  Workload workload_;
  std::vector<Tokens> bases_;
  std::vector<Expected> expected_;
};

TEST(Explainer, FindsEveryPlantedLossOfAStateAndNoOther) {
  const auto name = [](MissCause cause, StateLoss state) {
    constexpr std::array<const char*, 5> kNames{"", ": never kept", ": evicted", ": replaced", ": stored"};
    return std::string(name_of(cause)) + kNames.at(static_cast<std::size_t>(state));
  };
  struct Count {
    std::size_t planted = 0;
    std::size_t found = 0;
    std::size_t right = 0;
  };
  std::map<std::string, Count> counts;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const PlantedStates plants(seed, 150);
    const ExplainResult result =
        explain(plants.workload(), BlockTrace(plants.workload(), kBlockSize),
                {.pool_blocks = 20'000,
                 .replay = {.block_size = kBlockSize},
                 .snapshots = SnapshotOptions{.slots = PlantedStates::kSlots, .slot_bytes = 64}});
    ASSERT_EQ(result.requests.size(), plants.expected().size());
    for (std::size_t i = 0; i < result.requests.size(); ++i) {
      const PlantedStates::Expected& expected = plants.expected()[i];
      const Explanation& explanation = result.requests[i];
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", request " << i + 1 << ": "
                                      << describe(plants.workload(), explanation));
      const std::string planted = name(expected.cause, expected.state);
      const std::string found = name(explanation.cause, explanation.state);
      EXPECT_EQ(found, planted);
      ++counts[planted].planted;
      ++counts[found].found;
      if (planted == found) ++counts[planted].right;
      EXPECT_EQ(explanation.tokens.stateless, expected.stateless);
      EXPECT_EQ(explanation.state_tokens, expected.state_tokens);
      if (expected.state == StateLoss::kReplaced) {
        EXPECT_EQ(explanation.state_evicted_by, i - 1);
      }
      if (expected.state == StateLoss::kEvicted) {
        EXPECT_LT(explanation.state_evicted_by, i);
      }
    }
    std::uint64_t grouped_tokens = 0;
    for (const MissGroup& group : group_misses(plants.workload(), result)) grouped_tokens += group.tokens;
    EXPECT_EQ(grouped_tokens, result.tokens.prompt - result.tokens.matched);
  }
  for (const auto& [what, count] : counts) {
    const double precision = static_cast<double>(count.right) / static_cast<double>(count.found);
    const double recall = static_cast<double>(count.right) / static_cast<double>(count.planted);
    std::printf("%-28s planted %4zu  found %4zu  precision %.3f  recall %.3f\n", what.c_str(), count.planted,
                count.found, precision, recall);
    EXPECT_EQ(precision, 1.0) << what;
    EXPECT_EQ(recall, 1.0) << what;
    EXPECT_GE(count.planted, 100U) << what;
  }
  EXPECT_EQ(counts.size(), 5U);
}

// Blocks that a hybrid model's manager evicts are told as those of an index are.
TEST(Explainer, OfAHybridModelBlocksAreExplainedAsWithoutStates) {
  const Planted plants(3, 30);
  const BlockTrace blocks(plants.workload(), kBlockSize);
  const ExplainResult result = explain(plants.workload(), blocks,
                                       {.pool_blocks = 1000,
                                        .replay = {.block_size = kBlockSize},
                                        .snapshots = SnapshotOptions{.slots = 3, .slot_bytes = 64}});
  const ExplainResult index = explained(plants.workload(), 1000, {.block_size = kBlockSize});
  std::size_t evicted = 0;
  for (std::size_t i = 0; i < result.requests.size(); ++i) {
    const Explanation& explanation = result.requests[i];
    if (plants.expected()[i].cause != MissCause::kEvicted) continue;
    SCOPED_TRACE(testing::Message() << "request " << i + 1 << ": " << describe(plants.workload(), explanation));
    EXPECT_GT(explanation.tokens.evicted, 0U);
    EXPECT_LT(explanation.evicted_by, i);
    EXPECT_GE(explanation.evicted_by + 40, index.requests[i].evicted_by);
    ++evicted;
  }
  EXPECT_EQ(evicted, 20U);
}

TEST(Explainer, ExplainsWhatAnyPolicyHasEvicted) {
  const Planted plants(3, 30);
  const BlockTrace blocks(plants.workload(), kBlockSize);
  const ReplayOptions replay{.block_size = kBlockSize};
  for (const std::string& policy : policy_names()) {
    SCOPED_TRACE(policy);
    const ExplainResult result =
        explain(plants.workload(), blocks, {.pool_blocks = 300, .block_policy = policy, .replay = replay});
    EXPECT_EQ(result.run.name, policy);
    EXPECT_EQ(result.tokens.matched, run_policy(policy, plants.workload(), replay, 300).matched_tokens);
    EXPECT_GT(result.tokens.evicted, 0U);

    const ExplainResult hybrid = explain(plants.workload(), blocks,
                                         {.pool_blocks = 300,
                                          .block_policy = policy,
                                          .replay = replay,
                                          .snapshots = SnapshotOptions{.slots = 3, .slot_bytes = 64}});
    EXPECT_EQ(hybrid.run.name, policy);
    EXPECT_GT(hybrid.tokens.evicted, 0U);
    EXPECT_EQ(hybrid.tokens.prompt, result.tokens.prompt);
  }
}

// ---- Each by hand ----

TEST(Explainer, NamesWhoPushedABlockOutAndWhoUsedItLast) {
  // Five blocks; a request takes its own two and a third one for its output.
  const std::vector<Line> lines = {{.prompt = "aabb", .output_length = 1, .timestamp_ms = 0},
                                   {.prompt = "aabb", .output_length = 1, .timestamp_ms = 1000},
                                   {.prompt = "ccdd", .output_length = 1, .timestamp_ms = 2000},
                                   {.prompt = "eeff", .output_length = 1, .timestamp_ms = 4000},
                                   {.prompt = "gghh", .output_length = 1, .timestamp_ms = 4500},
                                   {.prompt = "aabb", .output_length = 1, .timestamp_ms = 65'000}};
  const ExplainResult result = explained(lines, 5, 2);
  const Explanation& last = result.requests.back();
  EXPECT_EQ(last.cause, MissCause::kEvicted);
  EXPECT_EQ(last.evicted_by, 3U) << "the fourth needs three and finds one free: both of a's go";
  EXPECT_EQ(last.last_used_by, 1U);
  EXPECT_EQ(last.tokens, (TokenCauses{.prompt = 4, .evicted = 4}));
  EXPECT_EQ(
      describe(workload_of(lines), last),
      "0 of 4 tokens matched; the next 4 tokens were evicted 2 requests and 61.0 s ago for request 4 (line 4, at "
      "4.0 s); last used by request 2 (line 2, at 1.0 s)");
}

TEST(Explainer, TellsWhatWasEvictedFromWhatWasNeverSeenBehindIt) {
  const ExplainResult result = explained({{.prompt = "aabb"}, {.prompt = "ccddee"}, {.prompt = "aabbxxy"}}, 4, 2);
  const Explanation& last = result.requests.back();
  EXPECT_EQ(last.cause, MissCause::kEvicted);
  EXPECT_EQ(last.tokens.matched, 2U);
  EXPECT_EQ(last.tokens.evicted, 2U);
  EXPECT_EQ(last.tokens.unseen, 2U);
  EXPECT_EQ(last.tokens.too_short, 1U);
}

TEST(Explainer, AnOutputCountsAsSeenOnceItsSequenceHasEnded) {
  const std::vector<Line> lines = {{.prompt = "aa", .output = "bbcc"}, {.prompt = "aabbccdd"}};
  const ExplainResult one_by_one = explained(lines, 20, 2);
  EXPECT_EQ(one_by_one.requests[1].tokens.matched, 6U);
  EXPECT_EQ(one_by_one.requests[1].cause, MissCause::kNeverSeen);
  EXPECT_TRUE(one_by_one.requests[1].goes_on);
  const ExplainResult together = explained(workload_of(lines), 20, {.block_size = 2, .concurrency = 2});
  EXPECT_EQ(together.requests[1].tokens.matched, 2U);
  EXPECT_EQ(together.requests[1].cause, MissCause::kNeverSeen);
}

TEST(Explainer, ChainedIdsNeedNoSearchForWhatIsEqualAgain) {
  const Planted plants(1, 20);
  ExplainOptions options{.pool_blocks = 1000, .replay = {.block_size = kBlockSize}, .find_equal_again = false};
  const ExplainResult result = explain(plants.workload(), BlockTrace(plants.workload(), kBlockSize), options);
  EXPECT_EQ(result.tokens.equal_again, 0U);
  EXPECT_EQ(result.by_cause[static_cast<std::size_t>(MissCause::kDiffersThenEqual)], 0U);
}

// What is matched or evicted is what an unbounded cache matches.
void expect_to_add_up(const Workload& workload, std::size_t pool_blocks, const ReplayOptions& replay) {
  const BlockTrace blocks(workload, replay.block_size);
  const ExplainResult result = explained(workload, pool_blocks, replay);
  ASSERT_EQ(result.run.rejected, 0U);
  EXPECT_EQ(result.tokens.matched, run_policy("lru", workload, replay, pool_blocks).matched_tokens);
  EXPECT_EQ(result.tokens.matched + result.tokens.evicted, run_unbounded(workload, blocks, replay).matched_tokens);
  EXPECT_EQ(result.tokens.prompt, workload.prompt_tokens());
  std::uint64_t grouped_tokens = 0;
  for (const MissGroup& group : group_misses(workload, result)) grouped_tokens += group.tokens;
  EXPECT_EQ(grouped_tokens, result.tokens.prompt - result.tokens.matched);
}

TEST(Explainer, WhatIsMatchedOrEvictedIsWhatAnUnboundedCacheMatches) {
  const Workload builtin = builtin_workload({.requests = 300});
  expect_to_add_up(builtin, 9000, {.block_size = 16});
  std::mt19937_64 random(3);
  for (int round = 0; round < 100; ++round) {
    std::vector<Line> lines;
    for (int i = 0; i < 50; ++i) {
      Line line;
      for (std::uint64_t length = 1 + random() % 8; line.prompt.size() < length;) line.prompt += "ab"[random() % 2];
      for (std::uint64_t length = random() % 3; line.output.size() < length;) line.output += "ab"[random() % 2];
      line.adapter = random() % 3 == 0 ? 1 : 0;
      line.tenant = random() % 4 == 0 ? 1 : 0;
      lines.push_back(line);
    }
    SCOPED_TRACE(testing::Message() << "round " << round);
    expect_to_add_up(workload_of(lines), 10 + random() % 20, {.block_size = 1 + random() % 2});
  }
}

TEST(Explainer, OfTheSamePromptASeenOneOfTheAdapterCountsBeforeThoseOfOthers) {
  const std::vector<Line> lines = {
      {.prompt = "aabbccdd"}, {.prompt = "aabb", .adapter = 1}, {.prompt = "aabbccddee", .adapter = 1, .tenant = 5}};
  const ExplainResult result = explained(lines, 50, 2);
  EXPECT_EQ(name_of(result.requests[1].cause), "other_adapter");
  const Explanation& last = result.requests[2];
  EXPECT_EQ(name_of(last.cause), "other_tenant");
  EXPECT_EQ(last.nearest, 1U);
  EXPECT_EQ(last.tokens, (TokenCauses{.prompt = 10, .other_tenant = 4, .other_adapter = 4, .unseen = 2}));
  EXPECT_EQ(describe(workload_of(lines), last),
            "0 of 10 tokens matched; the next 4 tokens were seen without a tenant in request 2 (line 2, at 0.0 s)");
}

TEST(Explainer, RefusesBlocksOfAnotherSize) {
  const Workload workload = workload_of({{.prompt = "aaaa"}});
  EXPECT_THROW((void)explain(workload, BlockTrace(workload, 2), {.pool_blocks = 9, .replay = {.block_size = 4}}),
               std::invalid_argument);
}

// ---- Where tokens are equal again ----

Tokens counting(TokenId first, std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(SeenWindows, FindsALongStretchAtAnotherPlaceOfTheSameAdapterOnly) {
  SeenWindows windows;
  Tokens old = counting(5, 50);
  const Tokens shared = counting(1000, 400);
  old.insert(old.end(), shared.begin(), shared.end());
  windows.add({.sequence = 7, .adapter = 1}, old, 0);
  Tokens now = counting(9000, 11);
  now.insert(now.end(), shared.begin(), shared.end());
  const std::vector<SeenWindows::Match> matches = windows.find(1, now, 0);
  EXPECT_GT(matches.size(), 5U);
  for (const SeenWindows::Match& match : matches) {
    EXPECT_EQ(match.seen.sequence, 7U);
    EXPECT_EQ(match.seen.position - 50, match.position - 11);
  }
  EXPECT_TRUE(windows.find(2, now, 0).empty());
  EXPECT_TRUE(windows.find(1, counting(500'000, 400), 0).empty());
  EXPECT_TRUE(windows.find(1, counting(1000, 10), 0).empty()) << "shorter than a window";
}

TEST(SeenWindows, ComparesTwoSequencesRunByRun) {
  // Two runs that differ: 3 tokens for 2, then 4 for none.
  const Tokens first = counting(100, 40);
  const Tokens second = counting(200, 40);
  const auto joined = [](std::initializer_list<Tokens> parts) {
    Tokens all;
    for (const Tokens& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const Tokens old = joined({counting(0, 10), counting(900, 3), first, counting(910, 4), second});
  const Tokens now = joined({counting(0, 10), counting(920, 2), first, second});
  const std::vector<SeenWindows::Match> matches = {{.seen = {.sequence = 0, .position = 20}, .position = 19},
                                                   {.seen = {.sequence = 0, .position = 30}, .position = 29},
                                                   {.seen = {.sequence = 0, .position = 70}, .position = 65}};
  const SequenceDifference difference = compare_sequences(old, now, matches, 0);
  EXPECT_EQ(difference.common, 10U);
  EXPECT_EQ(difference.old_at, 13U);
  EXPECT_EQ(difference.new_at, 12U);
  EXPECT_EQ(difference.runs, 2U);
  EXPECT_THAT(difference.stretches, ElementsAre(std::pair(12U, 52U), std::pair(52U, 92U)));
  const std::vector<SeenWindows::Match> wrong = {{.seen = {.sequence = 0, .position = 20}, .position = 40}};
  EXPECT_EQ(compare_sequences(old, now, wrong, 0).runs, 0U) << "equal hashes are not equal tokens";
}

// ---- The report ----

TEST(ExplainReport, SumsUpCausesWithAnExampleAndWhatToDo) {
  std::vector<Line> lines;
  const std::string system = "You are a helpful and harmless assistant; answer in few words, and name what you read.";
  for (int i = 0; i < 6; ++i) {
    lines.push_back({.prompt = "It is 10:0" + std::to_string(i) + ". " + system, .timestamp_ms = i * 1000.0});
  }
  lines.push_back({.prompt = lines.back().prompt, .timestamp_ms = 7000, .adapter = 4});
  const Workload workload = workload_of(lines);
  ExplainReport report;
  report.builtin = BuiltinWorkloadOptions{};
  report.requests = workload.size();
  report.prompt_tokens = workload.prompt_tokens();
  report.replay = {.block_size = 8};
  report.pool_blocks = 500;
  report.distinct_blocks = BlockTrace(workload, 8).distinct();
  report.result = explained(workload, 500, report.replay);
  const std::string text = table(workload, report, false);
  EXPECT_THAT(text, HasSubstr("equal again behind a difference"));
  EXPECT_THAT(text, HasSubstr("1. 425 tokens"));
  EXPECT_THAT(text, HasSubstr("To do: Move what changes (a time stamp, an id, a name) behind what stays the same."));
  EXPECT_THAT(
      text,
      HasSubstr("8 of 99 tokens matched; differs at token 10 from request 1 (line 1, at 0.0 s): a run of 1 token "
                "is replaced, then 85 tokens are equal again"));
  EXPECT_THAT(text, HasSubstr("asked for with adapter number 4, seen for another only"));
  EXPECT_THAT(table(workload, report, true), AllOf(HasSubstr("\nrequest 1 (line 1, at 0.0 s): 0 of 99"),
                                                   HasSubstr("\nrequest 7 (line 7, at 7.0 s): 0 of 99")));
  const Json document = Json::parse(json(workload, report, true));
  EXPECT_EQ(document.at("schema_version"), 1);
  EXPECT_EQ(document.at("requests_by_cause").at("differs_then_equal"), 5);
  EXPECT_EQ(document.at("costliest").at(0).at("cause"), "differs_then_equal");
  EXPECT_EQ(document.at("costliest").at(0).at("tokens"), 425);
  EXPECT_EQ(document.at("costliest").at(0).at("example").at("differs_at_token"), 10);
  EXPECT_EQ(document.at("requests").size(), 7U);
  EXPECT_EQ(document.at("requests").at(6).at("nearest_request"), 6);
  EXPECT_FALSE(Json::parse(json(workload, report, false)).contains("requests"));
}

TEST(ExplainReport, SaysWhatStatesAHybridModelMissed) {
  const std::vector<Line> lines = {{.prompt = "aabbccdd", .output_length = 1},
                                   {.prompt = "aabbxxyy", .output_length = 1},
                                   {.prompt = "eeffgghh", .output_length = 1},
                                   {.prompt = "aabbccdd", .output_length = 1}};
  const Workload workload = workload_of(lines);
  ExplainReport report;
  report.builtin = BuiltinWorkloadOptions{};
  report.replay = {.block_size = 2};
  report.pool_blocks = 50;
  report.snapshots = SnapshotOptions{.slots = 1, .slot_bytes = 64};
  report.result = explain(workload, BlockTrace(workload, 2),
                          {.pool_blocks = 50, .replay = report.replay, .snapshots = report.snapshots});
  const std::string text = table(workload, report, true);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("1 slots for states, no checkpoints"), HasSubstr("state missing"),
            HasSubstr("With a state wherever one is wanted, 31.25 % would be reused."),
            HasSubstr("0 of 8 tokens matched; the KV of 4 more was there, but no state; none is known"),
            HasSubstr(
                "0 of 8 tokens matched; the KV of 6 more was there, but no state; the one at token 6 was evicted 2 "
                "requests and 0.0 s ago for request 2 (line 2, at 0.0 s)"),
            HasSubstr("To do: More slots for states: `cairn replay --sweep-snapshots`")));
  const Json document = Json::parse(json(workload, report, true));
  EXPECT_EQ(document.at("settings").at("snapshots"), 1);
  EXPECT_FALSE(document.contains("optimum_matched_tokens"));
  EXPECT_EQ(document.at("tokens").at("state_missing"), 10);
  EXPECT_EQ(document.at("requests").at(1).at("state"), "never_kept");
  EXPECT_EQ(document.at("requests").at(3).at("state"), "evicted");
  EXPECT_EQ(document.at("requests").at(3).at("state_tokens"), 6);
  EXPECT_EQ(document.at("requests").at(3).at("state_evicted_by_request"), 2);
}

TEST(ExplainReport, SaysWhatTenantsAskedForThatOthersHad) {
  const Workload workload =
      workload_of({{.prompt = "aabbccdd"}, {.prompt = "aabbccdd", .tenant = 1}, {.prompt = "aabbccdd", .tenant = 2}});
  ExplainReport report;
  report.builtin = BuiltinWorkloadOptions{};
  report.replay = {.block_size = 2};
  report.pool_blocks = 50;
  report.result = explained(workload, 50, report.replay);
  const std::string text = table(workload, report, false);
  EXPECT_THAT(text, AllOf(HasSubstr("8 tokens (33.33 %) of 1 requests: asked for by tenant number 2, seen for others"),
                          HasSubstr("the next 8 tokens were seen for tenant number 1 in request 2"),
                          HasSubstr("To do: Tenants are kept apart on purpose.")));
  const Json document = Json::parse(json(workload, report, true));
  EXPECT_EQ(document.at("tokens").at("other_tenant"), 16);
  EXPECT_EQ(document.at("requests_by_cause").at("other_tenant"), 2);
  EXPECT_EQ(document.at("requests").at(2).at("nearest_request"), 2);
}

}  // namespace
}  // namespace cairn::replay
