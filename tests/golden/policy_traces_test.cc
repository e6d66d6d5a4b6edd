// Eviction policies on published traces: counts that must not change, and what none may beat. Where the traces are
// from, real_traces_test.cc says.
#include <cairn/radix_tree.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "golden/trace_files.h"
#include "replay/block_trace.h"
#include "replay/comparison.h"
#include "replay/optimum.h"
#include "replay/trace_reader.h"
#include "support/naive_policy_cache.h"

namespace cairn::replay {
namespace {

struct TraceFile {
  std::string file;
  std::size_t block_tokens = 0;
};
const TraceFile kConversation{"conversation_trace.jsonl", 512};
const TraceFile kSynthetic{"synthetic_trace.jsonl", 512};
const TraceFile kAgents{"agent_sessions_trace.jsonl.zst", 64};

// Tokens matched with pools of 1 % and 10 % of the distinct blocks.
using Pinned = std::map<std::string, std::array<std::uint64_t, 2>>;

void expect_counts(const std::string& path, const TraceFile& file, const Pinned& pinned) {
  LineSource source = LineSource::open(path);
  const Trace trace = read_trace(source, {.trace_block_tokens = file.block_tokens});
  const ReplayOptions options{.block_size = file.block_tokens};
  const BlockTrace blocks(trace.workload, file.block_tokens);
  const std::uint64_t unbounded = run_unbounded(trace.workload, blocks, options).matched_tokens;
  for (std::size_t size = 0; size < 2; ++size) {
    const std::size_t pool = blocks.distinct() / (size == 0 ? 100 : 10);
    const RunResult ideal = find_optimum(trace.workload, blocks, pool, options);
    for (const auto& [policy, matched_tokens] : pinned) {
      SCOPED_TRACE(::testing::Message() << policy << " with " << pool << " blocks");
      const RunResult result = run_policy(policy, trace.workload, options, pool);  // validates the tree
      EXPECT_EQ(result.matched_tokens, matched_tokens[size]);
      EXPECT_LE(result.matched_tokens, ideal.matched_tokens);
      EXPECT_LE(result.matched_tokens, unbounded);
      EXPECT_LE(result.peak_blocks, pool);
    }
  }
}

TEST(PolicyTraces, ConversationTraceAsPinned) {
  CAIRN_NEED_TRACE(path, kConversation.file);
  expect_counts(path, kConversation,
                {{"lru", {7'696'896, 40'799'744}},
                 {"lfu", {8'085'504, 42'020'864}},
                 {"slru", {8'555'008, 29'563'904}},
                 {"s3fifo", {11'095'552, 36'389'888}},
                 {"learned", {14'686'720, 42'888'192}},
                 {"priority", {7'696'896, 40'799'744}}});
}

TEST(PolicyTraces, SyntheticTraceAsPinned) {
  CAIRN_NEED_TRACE(path, kSynthetic.file);
  expect_counts(path, kSynthetic,
                {{"lru", {2'221'568, 15'521'280}},
                 {"lfu", {2'227'712, 14'861'824}},
                 {"slru", {2'024'960, 12'476'416}},
                 {"s3fifo", {2'135'552, 15'316'480}},
                 {"learned", {2'358'784, 15'707'136}}});
}

TEST(PolicyTraces, AgentTraceAsPinned) {
  CAIRN_NEED_TRACE(path, kAgents.file);
  expect_counts(path, kAgents,
                {{"lru", {10'598'784, 128'533'696}},
                 {"lfu", {10'821'248, 110'808'320}},
                 {"slru", {11'130'304, 84'675'712}},
                 {"s3fifo", {10'797'632, 130'399'808}},
                 {"learned", {11'187'392, 133'165'952}}});
}

// The ids as blocks of one token, one request at a time: victim for victim as the naive policies.
void expect_as_naive(const std::string& path, const TraceFile& file, const std::string& policy) {
  constexpr std::size_t kRequests = 400;
  constexpr std::size_t kCapacity = 600;
  std::vector<IdRequest> requests = read_ids(path);
  requests.resize(std::min(requests.size(), kRequests));
  RadixTree tree({.block_size = 1, .hash_seed = 1, .block_policy = policy});
  cairn::testing::NaivePolicyCache naive(policy);
  BlockId last_block = 0;
  std::size_t evicted = 0;
  for (const IdRequest& request : requests) {
    const std::size_t full = std::min(request.ids.size(), request.input_length / file.block_tokens);
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < std::min(full, kCapacity); ++i) tokens.push_back(static_cast<TokenId>(request.ids[i]));
    if (tokens.empty()) continue;
    const std::size_t matched = tree.lookup(tokens, 1, 0, 0).matched_tokens;
    ASSERT_EQ(matched, naive.lookup(tokens));
    const std::size_t needed = naive.size() + tokens.size() - matched;
    if (needed > kCapacity) {
      const std::vector<BlockId> victims = tree.evict(needed - kCapacity).physical;
      ASSERT_EQ(victims, naive.evict(needed - kCapacity));
      evicted += victims.size();
    }
    std::vector<BlockId> blocks(tokens.size());
    for (BlockId& block : blocks) block = ++last_block;
    tree.insert(tokens, blocks, {}, 1, matched, 0);
    naive.insert(tokens, blocks, matched);
    tree.release(tokens, 1, 0);
    naive.release(tokens);
  }
  EXPECT_EQ(tree.validate(), "");
  EXPECT_GT(evicted, 1000U);
}

class PoliciesOnTraces : public ::testing::TestWithParam<std::string> {};

TEST_P(PoliciesOnTraces, EvictWhatTheNaiveOnesDo) {
  for (const TraceFile& file : {kConversation, kSynthetic}) {
    SCOPED_TRACE(file.file);
    CAIRN_NEED_TRACE(path, file.file);
    expect_as_naive(path, file, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Each, PoliciesOnTraces, ::testing::Values("lru", "lfu", "slru", "s3fifo"),
                         [](const auto& policy) { return policy.param; });

}  // namespace
}  // namespace cairn::replay
