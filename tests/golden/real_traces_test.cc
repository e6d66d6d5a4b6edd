// Replays of published traces against what their block ids imply.
//
// conversation_trace and synthetic_trace are from kvcache-ai/Mooncake, FAST25-release/traces (Apache-2.0);
// agent_sessions_trace is made from callanjfox/kv-cache-tester, traces/ (Apache-2.0). CAIRN_TRACES_DIR names the
// folder that holds them. Without them the tests are skipped, or fail if CAIRN_REQUIRE_TRACES is 1.
#include <cairn/radix_tree.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "golden/trace_files.h"
#include "replay/block_pool.h"
#include "replay/block_trace.h"
#include "replay/explainer.h"
#include "replay/line_source.h"
#include "replay/optimum.h"
#include "replay/replayer.h"
#include "replay/trace_reader.h"
#include "replay/verified_replayer.h"

namespace cairn::replay {
namespace {

// ---- What an LRU cache of that many blocks does, on ids alone ----

struct Counts {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t matched_tokens = 0;
  std::uint64_t evicted_blocks = 0;
  std::uint64_t distinct_blocks = 0;
  bool operator==(const Counts&) const = default;
};

void PrintTo(const Counts& counts, std::ostream* out) {
  *out << "prompt_tokens " << counts.prompt_tokens << ", matched_tokens " << counts.matched_tokens
       << ", evicted_blocks " << counts.evicted_blocks << ", distinct_blocks " << counts.distinct_blocks;
}

// A chained id is a node by itself: equal ids have equal prefixes. Sequential: one request runs at a time, and what it
// does not leave in the cache is free again when it ends. The leaf with the oldest stamp goes first.
class NaiveLru {
 public:
  NaiveLru(std::size_t block_tokens, std::size_t capacity) : block_tokens_(block_tokens), capacity_(capacity) {}

  Counts run(const std::vector<IdRequest>& requests) {
    std::set<std::size_t> distinct;
    for (const IdRequest& request : requests) {
      const std::vector<std::size_t> full(
          request.ids.begin(), request.ids.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                         request.ids.size(), request.input_length / block_tokens_)));
      distinct.insert(full.begin(), full.end());
      counts_.prompt_tokens += request.input_length;
      std::size_t matched = 0;
      while (matched < full.size() && nodes_.contains(full[matched])) ++matched;
      counts_.matched_tokens += matched * block_tokens_;
      stamp(full, matched);
      evict_for(blocks_of(request.input_length) - matched + blocks_of(request.output_length), full, matched);
      for (std::size_t i = matched; i < full.size(); ++i) {
        nodes_[full[i]].parent = i == 0 ? kRoot : full[i - 1];
        if (i > 0) ++nodes_[full[i - 1]].children;
      }
      stamp(full, full.size());
    }
    counts_.distinct_blocks = distinct.size();
    return counts_;
  }

 private:
  static constexpr std::size_t kRoot = static_cast<std::size_t>(-1);
  struct Node {
    std::size_t parent = kRoot;
    std::size_t children = 0;
    std::uint64_t stamp = 0;
  };

  [[nodiscard]] std::size_t blocks_of(std::size_t tokens) const {
    return (tokens + block_tokens_ - 1) / block_tokens_;
  }

  // Leaves are kept in order of their stamps, so a stamp takes a node out and puts it back.
  void stamp(const std::vector<std::size_t>& path, std::size_t blocks) {
    ++now_;
    for (std::size_t i = 0; i < blocks; ++i) {
      Node& node = nodes_[path[i]];
      leaves_.erase({node.stamp, path[i]});
      node.stamp = now_;
      if (node.children == 0) leaves_.insert({node.stamp, path[i]});
    }
  }

  void evict_for(std::size_t needed, const std::vector<std::size_t>& path, std::size_t in_use) {
    const std::set<std::size_t> used(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(in_use));
    while (nodes_.size() + needed > capacity_) {
      auto victim = leaves_.begin();
      while (victim != leaves_.end() && used.contains(victim->second)) ++victim;
      if (victim == leaves_.end()) throw std::runtime_error("a request that does not fit");
      const std::size_t id = victim->second;
      const std::size_t parent = nodes_.at(id).parent;
      leaves_.erase(victim);
      nodes_.erase(id);
      ++counts_.evicted_blocks;
      if (parent == kRoot) continue;
      Node& above = nodes_.at(parent);
      if (--above.children == 0) leaves_.insert({above.stamp, parent});
    }
  }

  std::size_t block_tokens_;
  std::size_t capacity_;
  std::map<std::size_t, Node> nodes_;
  std::set<std::pair<std::uint64_t, std::size_t>> leaves_;
  std::uint64_t now_ = 0;
  Counts counts_;
};

Counts naive(const std::string& path, std::size_t block_tokens, std::size_t capacity) {
  return NaiveLru(block_tokens, capacity).run(read_ids(path));
}

// ---- The best that anybody who knows the future can do, on ids alone ----

// Sequential, as above: what is kept beside a request's own blocks is in nobody's use. Whenever that is more than
// fits, the block goes whose next use is furthest away, the deepest of a prompt first.
class NaiveOptimum {
 public:
  NaiveOptimum(std::size_t block_tokens, std::size_t capacity) : block_tokens_(block_tokens), capacity_(capacity) {}

  std::uint64_t matched_blocks(const std::vector<IdRequest>& requests) {
    std::map<std::size_t, std::set<std::size_t>> uses;  // by id: requests that are to come
    for (std::size_t i = 0; i < requests.size(); ++i) {
      for (const std::size_t id : full(requests[i])) uses[id].insert(i);
    }
    std::uint64_t matched = 0;
    std::set<std::pair<std::pair<std::size_t, std::size_t>, std::size_t>> kept;  // next use and depth, id
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const std::vector<std::size_t> ids = full(requests[i]);
      for (std::size_t depth = 0; depth < ids.size(); ++depth) {
        matched += kept.erase({{i, depth}, ids[depth]});
        uses[ids[depth]].erase(i);
      }
      const std::size_t taken = blocks_of(requests[i].input_length) + blocks_of(requests[i].output_length);
      if (taken > capacity_) throw std::runtime_error("a request that does not fit");
      while (kept.size() + taken > capacity_) kept.erase(std::prev(kept.end()));
      for (std::size_t depth = 0; depth < ids.size(); ++depth) {
        const std::set<std::size_t>& following = uses[ids[depth]];
        if (!following.empty()) kept.insert({{*following.begin(), depth}, ids[depth]});
      }
    }
    return matched;
  }

 private:
  [[nodiscard]] std::vector<std::size_t> full(const IdRequest& request) const {
    const std::size_t blocks = std::min(request.ids.size(), request.input_length / block_tokens_);
    return {request.ids.begin(), request.ids.begin() + static_cast<std::ptrdiff_t>(blocks)};
  }
  [[nodiscard]] std::size_t blocks_of(std::size_t tokens) const {
    return (tokens + block_tokens_ - 1) / block_tokens_;
  }

  std::size_t block_tokens_;
  std::size_t capacity_;
};

// ---- The cache itself ----

Trace trace_of(const std::string& path, std::size_t block_tokens) {
  LineSource source = LineSource::open(path);
  return read_trace(source, {.trace_block_tokens = block_tokens});
}

RunResult replayed(const Trace& trace, std::size_t block_size, std::optional<std::size_t> blocks) {
  RadixTree tree({.block_size = block_size});
  SimulatedBlockPool pool(blocks);
  RunResult result = Replayer(tree, pool, trace.workload, {.block_size = block_size}).run();
  EXPECT_EQ(tree.validate(), "");
  EXPECT_EQ(tree.counters().hit_tokens, result.matched_tokens);
  EXPECT_EQ(result.rejected, 0U);
  return result;
}

constexpr std::size_t kUnbounded = std::size_t{1} << 40;

void expect_unbounded(const std::string& path, std::size_t block_tokens, const Counts& pinned) {
  const Counts from_ids = naive(path, block_tokens, kUnbounded);
  EXPECT_EQ(from_ids, pinned);
  const RunResult result = replayed(trace_of(path, block_tokens), block_tokens, std::nullopt);
  EXPECT_EQ(result.prompt_tokens, pinned.prompt_tokens);
  EXPECT_EQ(result.matched_tokens, pinned.matched_tokens);
  EXPECT_EQ(result.created_blocks, pinned.distinct_blocks);
  EXPECT_EQ(result.evicted_blocks, 0U);
}

TEST(RealTraces, UnboundedConversationTraceMatchesWhatItsIdsImply) {
  CAIRN_NEED_TRACE(path, "conversation_trace.jsonl");
  expect_unbounded(path, 512,
                   {.prompt_tokens = 144'793'823, .matched_tokens = 54'063'104, .distinct_blocks = 170'899});
}

TEST(RealTraces, UnboundedSyntheticTraceMatchesWhatItsIdsImply) {
  CAIRN_NEED_TRACE(path, "synthetic_trace.jsonl");
  expect_unbounded(path, 512, {.prompt_tokens = 61'194'628, .matched_tokens = 39'802'880, .distinct_blocks = 40'148});
}

TEST(RealTraces, UnboundedAgentTraceMatchesWhatItsIdsImply) {
  CAIRN_NEED_TRACE(path, "agent_sessions_trace.jsonl.zst");
  expect_unbounded(path, 64,
                   {.prompt_tokens = 215'735'143, .matched_tokens = 207'238'400, .distinct_blocks = 131'598});
}

// The cache's results at several sizes: equal to the naive model's, and pinned.
struct Pinned {
  double share;  // of the distinct blocks
  std::uint64_t matched_tokens;
  std::uint64_t evicted_blocks;
};

void expect_at_sizes(const std::string& path, std::size_t block_tokens, const std::vector<Pinned>& sizes) {
  const std::vector<IdRequest> ids = read_ids(path);
  const Trace trace = trace_of(path, block_tokens);
  const std::uint64_t distinct = NaiveLru(block_tokens, kUnbounded).run(ids).distinct_blocks;
  for (const Pinned& pinned : sizes) {
    const auto blocks = static_cast<std::size_t>(static_cast<double>(distinct) * pinned.share);
    SCOPED_TRACE(testing::Message() << pinned.share << " of the distinct blocks: " << blocks);
    const Counts model = NaiveLru(block_tokens, blocks).run(ids);
    const RunResult result = replayed(trace, block_tokens, blocks);
    EXPECT_EQ(result.matched_tokens, model.matched_tokens);
    EXPECT_EQ(result.evicted_blocks, model.evicted_blocks);
    EXPECT_EQ(result.matched_tokens, pinned.matched_tokens);
    EXPECT_EQ(result.evicted_blocks, pinned.evicted_blocks);
    EXPECT_LE(result.peak_blocks, blocks);
  }
}

// The optimum at several sizes: equal to the naive one, pinned, above LRU and not above the unbounded cache.
struct PinnedOptimum {
  double share;  // of the distinct blocks
  std::uint64_t matched_blocks;
};

void expect_optimum(const std::string& path, std::size_t block_tokens, const std::vector<PinnedOptimum>& sizes) {
  const std::vector<IdRequest> ids = read_ids(path);
  const Trace trace = trace_of(path, block_tokens);
  const BlockTrace blocks(trace.workload, block_tokens);
  const std::uint64_t unbounded = NaiveLru(block_tokens, kUnbounded).run(ids).matched_tokens;
  for (const PinnedOptimum& pinned : sizes) {
    const auto capacity = static_cast<std::size_t>(static_cast<double>(blocks.distinct()) * pinned.share);
    SCOPED_TRACE(testing::Message() << pinned.share << " of the distinct blocks: " << capacity);
    const RunResult result = find_optimum(trace.workload, blocks, capacity, {.block_size = block_tokens});
    EXPECT_EQ(result.rejected, 0U);
    EXPECT_EQ(result.prompt_tokens, trace.workload.prompt_tokens());
    EXPECT_EQ(result.matched_blocks, NaiveOptimum(block_tokens, capacity).matched_blocks(ids));
    EXPECT_EQ(result.matched_blocks, pinned.matched_blocks);
    EXPECT_GE(result.matched_tokens, NaiveLru(block_tokens, capacity).run(ids).matched_tokens);
    EXPECT_LE(result.matched_tokens, unbounded);
  }
}

TEST(RealTraces, TheOptimumOfTheConversationTraceMatchesANaiveOne) {
  CAIRN_NEED_TRACE(path, "conversation_trace.jsonl");
  expect_optimum(path, 512, {{0.01, 67'068}, {0.05, 105'592}, {0.10, 105'592}, {0.30, 105'592}});
}

TEST(RealTraces, TheOptimumOfTheSyntheticTraceMatchesANaiveOne) {
  CAIRN_NEED_TRACE(path, "synthetic_trace.jsonl");
  expect_optimum(path, 512, {{0.01, 17'994}, {0.05, 45'611}, {0.10, 60'009}, {0.30, 77'111}});
}

TEST(RealTraces, TheOptimumOfTheAgentTraceMatchesANaiveOne) {
  CAIRN_NEED_TRACE(path, "agent_sessions_trace.jsonl.zst");
  expect_optimum(path, 64, {{0.05, 1'774'291}, {0.30, 3'236'643}});
}

TEST(RealTraces, ConversationTraceAtLimitedSizesMatchesANaiveLru) {
  CAIRN_NEED_TRACE(path, "conversation_trace.jsonl");
  expect_at_sizes(path, 512,
                  {{0.01, 7'696'896, 259'752},
                   {0.05, 28'619'264, 212'052},
                   {0.10, 40'799'744, 179'717},
                   {0.30, 52'780'544, 122'137}});
}

TEST(RealTraces, SyntheticTraceAtLimitedSizesMatchesANaiveLru) {
  CAIRN_NEED_TRACE(path, "synthetic_trace.jsonl");
  expect_at_sizes(
      path, 512,
      {{0.01, 2'221'568, 113'150}, {0.05, 9'354'240, 97'613}, {0.10, 15'521'280, 83'561}, {0.30, 29'793'792, 47'655}});
}

TEST(RealTraces, AgentTraceAtLimitedSizesMatchesANaiveLru) {
  CAIRN_NEED_TRACE(path, "agent_sessions_trace.jsonl.zst");
  expect_at_sizes(path, 64, {{0.05, 55'194'496, 2'500'711}, {0.30, 201'777'344, 177'454}});
}

// ---- Why prompts were not cached ----

struct PinnedCauses {
  std::uint64_t matched = 0;
  std::uint64_t evicted = 0;
  std::uint64_t unseen = 0;
  std::uint64_t too_short = 0;
  std::array<std::size_t, kMissCauses> requests{};  // by cause
};

// What is matched and what evicted together are what the ids imply for an unbounded cache.
void expect_causes(const std::string& path, std::size_t block_tokens, double share, const PinnedCauses& pinned) {
  const Trace trace = trace_of(path, block_tokens);
  const BlockTrace blocks(trace.workload, block_tokens);
  const auto capacity = static_cast<std::size_t>(static_cast<double>(blocks.distinct()) * share);
  const ExplainResult result =
      explain(trace.workload, blocks,
              {.pool_blocks = capacity, .replay = {.block_size = block_tokens}, .find_equal_again = false});
  EXPECT_EQ(result.tokens, (TokenCauses{.prompt = trace.workload.prompt_tokens(),
                                        .matched = pinned.matched,
                                        .evicted = pinned.evicted,
                                        .unseen = pinned.unseen,
                                        .too_short = pinned.too_short}));
  EXPECT_EQ(result.by_cause, pinned.requests);
  EXPECT_EQ(pinned.matched + pinned.evicted, NaiveLru(block_tokens, kUnbounded).run(read_ids(path)).matched_tokens);
}

TEST(RealTraces, TheCausesOfTheConversationTrace) {
  CAIRN_NEED_TRACE(path, "conversation_trace.jsonl");
  expect_causes(path, 512, 0.05,
                {.matched = 28'619'264,
                 .evicted = 25'443'840,
                 .unseen = 87'500'288,
                 .too_short = 3'230'431,
                 .requests = {2027, 0, 0, 2311, 0, 0, 0, 6403, 1290}});
}

TEST(RealTraces, TheCausesOfTheSyntheticTrace) {
  CAIRN_NEED_TRACE(path, "synthetic_trace.jsonl");
  expect_causes(path, 512, 0.05,
                {.matched = 9'354'240,
                 .evicted = 30'448'640,
                 .unseen = 20'555'776,
                 .too_short = 835'972,
                 .requests = {371, 1107, 0, 1328, 0, 0, 0, 52, 1135}});
}

TEST(RealTraces, TheCausesOfTheAgentTrace) {
  CAIRN_NEED_TRACE(path, "agent_sessions_trace.jsonl.zst");
  expect_causes(path, 64, 0.10,
                {.matched = 128'533'696,
                 .evicted = 78'704'704,
                 .unseen = 8'422'272,
                 .too_short = 74'471,
                 .requests = {0, 0, 0, 934, 0, 0, 0, 81, 1334}});
}

// ---- Through leases, every byte checked ----

// The first part of a trace: a whole one takes too long with sanitizers.
class FirstLines : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string& first_lines(const std::string& path, std::size_t lines) {
    path_ = testing::TempDir() + "cairn_" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
    LineSource source = LineSource::open(path);
    std::ofstream out(path_);
    for (std::string line; lines > 0 && source.next(line); --lines) out << line << '\n';
    return path_;
  }

  std::string path_;
};

using RealTracesVerified = FirstLines;

struct Verified {
  std::uint64_t matched_tokens = 0;
  std::uint64_t reused_tokens = 0;
  std::uint64_t evicted_blocks = 0;
  std::uint64_t states_checked = 0;
  std::uint64_t evicted_snapshots = 0;
  bool operator==(const Verified&) const = default;
};

void PrintTo(const Verified& verified, std::ostream* out) {
  *out << ".matched_tokens = " << verified.matched_tokens << ", .reused_tokens = " << verified.reused_tokens
       << ", .evicted_blocks = " << verified.evicted_blocks << ", .states_checked = " << verified.states_checked
       << ", .evicted_snapshots = " << verified.evicted_snapshots;
}

Verified verified(const Trace& trace, std::size_t block_size, std::size_t blocks,
                  std::optional<SnapshotOptions> snapshots) {
  const VerifiedResult result =
      replay_verified(trace.workload, blocks, {.replay = {.block_size = block_size}, .snapshots = snapshots});
  EXPECT_EQ(result.rejected, 0U);
  EXPECT_EQ(result.prompt_tokens, trace.workload.prompt_tokens());
  // What is reused is looked at byte by byte, and so is what somebody else had published first.
  EXPECT_EQ(result.engine.blocks_checked, result.reused_tokens / block_size + result.deduplicated_blocks);
  return {.matched_tokens = result.matched_tokens,
          .reused_tokens = result.reused_tokens,
          .evicted_blocks = result.evicted_blocks,
          .states_checked = result.engine.states_checked,
          .evicted_snapshots = result.evicted_snapshots};
}

void expect_verified(const std::string& path, std::size_t block_tokens, std::size_t blocks, const Verified& attention,
                     const SnapshotOptions& snapshots, const Verified& hybrid) {
  const Trace trace = trace_of(path, block_tokens);
  // No prompt of these is cached up to its very end, so a lease reuses what a lookup matches.
  const Counts model = naive(path, block_tokens, blocks);
  EXPECT_EQ(attention.matched_tokens, model.matched_tokens);
  EXPECT_EQ(attention.evicted_blocks, model.evicted_blocks);
  EXPECT_EQ(verified(trace, block_tokens, blocks, std::nullopt), attention);
  EXPECT_EQ(verified(trace, block_tokens, blocks, snapshots), hybrid);
}

TEST_F(RealTracesVerified, ConversationTraceWithAttentionAloneAndAsAHybridModel) {
  CAIRN_NEED_TRACE(path, "conversation_trace.jsonl");
  expect_verified(first_lines(path, 2000), 512, 3000,
                  {.matched_tokens = 1'770'496, .reused_tokens = 1'770'496, .evicted_blocks = 46'106},
                  {.slots = 300, .slot_bytes = 1000, .checkpoint_every_tokens = 2048},
                  {.matched_tokens = 1'770'496,
                   .reused_tokens = 1'163'264,
                   .evicted_blocks = 46'106,
                   .states_checked = 1'997,
                   .evicted_snapshots = 13'255});
}

TEST_F(RealTracesVerified, SyntheticTraceWithAttentionAloneAndAsAHybridModel) {
  CAIRN_NEED_TRACE(path, "synthetic_trace.jsonl");
  expect_verified(first_lines(path, 1500), 512, 3000,
                  {.matched_tokens = 748'032, .reused_tokens = 748'032, .evicted_blocks = 29'176},
                  {.slots = 300, .slot_bytes = 1000, .checkpoint_every_tokens = 2048},
                  {.matched_tokens = 748'032,
                   .reused_tokens = 326'144,
                   .evicted_blocks = 29'183,
                   .states_checked = 21,
                   .evicted_snapshots = 8'226});
}

TEST_F(RealTracesVerified, AgentTraceWithAttentionAloneAndAsAHybridModel) {
  CAIRN_NEED_TRACE(path, "agent_sessions_trace.jsonl.zst");
  expect_verified(first_lines(path, 300), 64, 8'000,
                  {.matched_tokens = 8'470'336, .reused_tokens = 8'470'336, .evicted_blocks = 141'143},
                  {.slots = 400, .slot_bytes = 1000, .checkpoint_every_tokens = 4096},
                  {.matched_tokens = 8'469'824,
                   .reused_tokens = 8'421'504,
                   .evicted_blocks = 141'151,
                   .states_checked = 170,
                   .evicted_snapshots = 292});
}

// Small blocks, of which the trace's are many: what the index alone finds, but for the last token.
TEST_F(RealTracesVerified, ConversationTraceInBlocksOf16AgreesWithTheIndexAlone) {
  CAIRN_NEED_TRACE(path, "conversation_trace.jsonl");
  const Trace trace = trace_of(first_lines(path, 2000), 512);
  const RunResult index = replayed(trace, 16, 100'000);
  const Verified leases = verified(trace, 16, 100'000, std::nullopt);
  EXPECT_EQ(leases.reused_tokens, leases.matched_tokens);
  EXPECT_EQ(leases.matched_tokens, index.matched_tokens) << "none of these prompts was cached up to its end";
  EXPECT_EQ(leases.matched_tokens, 1'827'216U);
  EXPECT_EQ(leases.evicted_blocks, index.evicted_blocks);
}

// ---- What the running cache estimates of pools of other sizes, against replays with pools of those sizes ----

void expect_estimates(const std::string& path, std::size_t block_tokens, std::size_t blocks) {
  constexpr double kPoints = 0.02;
  const Trace trace = trace_of(path, block_tokens);
  const SizeEstimates estimates =
      replay_verified(trace.workload, blocks, {.replay = {.block_size = block_tokens}}).size_estimates;
  EXPECT_GT(estimates.sampled_blocks, 1'000U);
  for (const SizeEstimate& size : estimates.sizes) {
    const RunResult run = replayed(trace, block_tokens, size.blocks);
    EXPECT_EQ(run.rejected, 0U);
    EXPECT_NEAR(size.hit_rate, run.block_hit_rate(), kPoints) << size.factor << " x " << blocks << " blocks";
  }
}

TEST_F(RealTracesVerified, ConversationTraceIsEstimatedAtOtherSizes) {
  CAIRN_NEED_TRACE(path, "conversation_trace.jsonl");
  const std::string part = first_lines(path, 4000);
  expect_estimates(part, 512, 1'000);
  expect_estimates(part, 512, 5'000);
}

TEST_F(RealTracesVerified, SyntheticTraceIsEstimatedAtOtherSizes) {
  CAIRN_NEED_TRACE(path, "synthetic_trace.jsonl");
  expect_estimates(first_lines(path, 2000), 512, 3'000);
}

TEST_F(RealTracesVerified, AgentTraceIsEstimatedAtOtherSizes) {
  CAIRN_NEED_TRACE(path, "agent_sessions_trace.jsonl.zst");
  expect_estimates(first_lines(path, 300), 64, 8'000);
}

// ---- With a RAM tier, which answers within each call: the same every time ----

struct Tiered {
  std::uint64_t reused_tokens = 0;
  std::uint64_t from_memory_tokens = 0;
  std::uint64_t evicted_blocks = 0;
  std::uint64_t fetched_blocks = 0;
  std::uint64_t fetched_snapshots = 0;
  std::uint64_t evicted_records = 0;
  bool operator==(const Tiered&) const = default;
};

void PrintTo(const Tiered& tiered, std::ostream* out) {
  *out << ".reused_tokens = " << tiered.reused_tokens << ", .from_memory_tokens = " << tiered.from_memory_tokens
       << ", .evicted_blocks = " << tiered.evicted_blocks << ", .fetched_blocks = " << tiered.fetched_blocks
       << ", .fetched_snapshots = " << tiered.fetched_snapshots << ", .evicted_records = " << tiered.evicted_records;
}

Tiered tiered(const Trace& trace, VerifiedReplayOptions options, std::size_t blocks, std::size_t records) {
  constexpr std::size_t kRecordBytes = 8192;  // a header, and a payload of at most 4 KiB
  // Whether a fetch pays must not depend on the clock.
  options.tiers = TierOptions{.ram_bytes = records * kRecordBytes,
                              .spill = {.fetch_tokens_min = 1, .fetch_bytes_per_s = 1e12, .prefill_tokens_per_s = 1}};
  const VerifiedResult result = replay_verified(trace.workload, blocks, options);
  EXPECT_EQ(result.rejected, 0U);
  EXPECT_EQ(result.prompt_tokens, trace.workload.prompt_tokens());
  EXPECT_EQ(result.tiers->failed_fetches, 0U);
  EXPECT_EQ(result.tiers->declined_spills, 0U);
  EXPECT_EQ(result.tiers->reused_from_memory_tokens + result.tiers->reused_from_ram_tier_tokens, result.reused_tokens);
  EXPECT_LE(result.tiers->store.ram_records, records);
  return {.reused_tokens = result.reused_tokens,
          .from_memory_tokens = result.tiers->reused_from_memory_tokens,
          .evicted_blocks = result.evicted_blocks,
          .fetched_blocks = result.tiers->fetched_blocks,
          .fetched_snapshots = result.tiers->fetched_snapshots,
          .evicted_records = result.tiers->store.evicted_records};
}

struct TieredCase {
  std::size_t block_tokens;
  std::size_t blocks;
  SnapshotOptions snapshots;
  std::size_t records;  // that the RAM tier holds in the hybrid run: not all
};

void expect_tiered(const std::string& path, const TieredCase& sizes, const Tiered& hybrid) {
  constexpr std::size_t kEverything = 200'000;
  const Trace trace = trace_of(path, sizes.block_tokens);
  const VerifiedReplayOptions attention{.replay = {.block_size = sizes.block_tokens}};
  // No prompt of these is cached up to its very end, so what is reused is what the ids of all before it imply.
  const Tiered all = tiered(trace, attention, sizes.blocks, kEverything);
  EXPECT_EQ(all.reused_tokens, naive(path, sizes.block_tokens, kUnbounded).matched_tokens);
  EXPECT_EQ(all.evicted_records, 0U);
  EXPECT_GT(all.fetched_blocks, 0U);
  VerifiedReplayOptions options = attention;
  options.snapshots = sizes.snapshots;
  EXPECT_EQ(tiered(trace, options, sizes.blocks, sizes.records), hybrid);
}

TEST_F(RealTracesVerified, ConversationTraceWithARamTier) {
  CAIRN_NEED_TRACE(path, "conversation_trace.jsonl");
  expect_tiered(first_lines(path, 2000),
                {.block_tokens = 512,
                 .blocks = 3000,
                 .snapshots = {.slots = 300, .slot_bytes = 1000, .checkpoint_every_tokens = 2048},
                 .records = 10'000},
                {.reused_tokens = 5'431'808,
                 .from_memory_tokens = 1'139'200,
                 .evicted_blocks = 46'106,
                 .fetched_blocks = 7'200,
                 .fetched_snapshots = 297,
                 .evicted_records = 40'273});
}

TEST_F(RealTracesVerified, SyntheticTraceWithARamTier) {
  CAIRN_NEED_TRACE(path, "synthetic_trace.jsonl");
  expect_tiered(first_lines(path, 1500),
                {.block_tokens = 512,
                 .blocks = 3000,
                 .snapshots = {.slots = 300, .slot_bytes = 1000, .checkpoint_every_tokens = 2048},
                 .records = 10'000},
                {.reused_tokens = 2'453'504,
                 .from_memory_tokens = 358'912,
                 .evicted_blocks = 29'177,
                 .fetched_blocks = 3'360,
                 .fetched_snapshots = 85,
                 .evicted_records = 23'492});
}

TEST_F(RealTracesVerified, AgentTraceWithARamTier) {
  CAIRN_NEED_TRACE(path, "agent_sessions_trace.jsonl.zst");
  expect_tiered(first_lines(path, 300),
                {.block_tokens = 64,
                 .blocks = 8'000,
                 .snapshots = {.slots = 400, .slot_bytes = 1000, .checkpoint_every_tokens = 4096},
                 .records = 5'000},
                {.reused_tokens = 11'856'064,
                 .from_memory_tokens = 8'421'504,
                 .evicted_blocks = 141'151,
                 .fetched_blocks = 53'154,
                 .fetched_snapshots = 0,
                 .evicted_records = 124'232});
}

}  // namespace
}  // namespace cairn::replay
