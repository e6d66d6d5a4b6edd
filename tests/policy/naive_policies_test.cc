// Each policy against a naive one, on random workloads: the same blocks in the same order. Of the one that draws, that
// what it takes are leaves in nobody's use, as many as are asked for.
#include <cairn/radix_tree.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "support/naive_policy_cache.h"

namespace cairn::testing {
namespace {

using Tokens = std::vector<TokenId>;

struct Workload {
  TokenId alphabet = 3;
  std::size_t length_max = 8;
  std::size_t running_max = 4;
  std::size_t capacity = 40;
};

class Lockstep {
 public:
  Lockstep(const std::string& policy, const Workload& workload, std::uint64_t seed)
      : workload_(workload),
        random_(seed),
        marks_(policy == "priority"),
        tree_({.block_size = 1,
               .hash_seed = seed + 1,
               .block_policy = policy,
               .clock = [this] { return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time_)); }}),
        naive_(policy == "learned" ? "told" : policy) {}

  void run(std::size_t requests) {
    for (std::size_t i = 0; i < requests && !::testing::Test::HasFatalFailure(); ++i) {
      if (below(3) == 0) pass(below(20));
      admit();
      while (running_.size() > below(workload_.running_max + 1)) end();
      if (below(10) == 0) evict(below(6));
      if (i % 16 == 0) {
        ASSERT_EQ(tree_.validate(), "");
      }
    }
    while (!running_.empty()) end();
    evict(naive_.size());
    EXPECT_EQ(tree_.stats().cached_blocks, 0U);
    EXPECT_EQ(tree_.validate(), "");
  }
  [[nodiscard]] std::size_t evicted() const { return evicted_; }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  void pass(std::uint64_t time) { naive_.set_time(time_ += time); }

  // Small numbers come more often: some blocks are hot.
  Tokens prompt() {
    Tokens tokens(1 + below(workload_.length_max));
    for (TokenId& token : tokens) token = static_cast<TokenId>(below(1 + below(workload_.alphabet)));
    return tokens;
  }

  void admit() {
    const Tokens tokens = prompt();
    const std::size_t matched = tree_.lookup(tokens, 1, 0, 0).matched_tokens;
    ASSERT_EQ(matched, naive_.lookup(tokens));
    const std::size_t needed = naive_.size() + tokens.size() - matched;
    if (needed > workload_.capacity) evict(needed - workload_.capacity);
    std::vector<BlockId> blocks(tokens.size());
    for (BlockId& block : blocks) block = ++last_block_;
    tree_.insert(tokens, blocks, {}, 1, matched, 0);
    naive_.insert(tokens, blocks, matched);
    running_.push_back(tokens);
    if (marks_ && below(3) == 0) mark(tokens);
  }

  void mark(const Tokens& tokens) {
    const std::size_t from = below(tokens.size());
    const int priority = static_cast<int>(below(5)) - 2;
    const bool forever = below(4) == 0;
    const std::uint64_t keep_for = below(60);
    RadixTree::Acquired acquired = tree_.acquire(tokens, 0, 0);
    ASSERT_EQ(naive_.lookup(tokens), tokens.size());
    tree_.prioritize(
        acquired.handle, from, tokens.size(),
        {.priority = priority, .keep_for = forever ? BlockPriority::kForever : std::chrono::nanoseconds(keep_for)});
    naive_.mark(tokens, from, priority, forever ? ~std::uint64_t{0} : time_ + keep_for);
    tree_.release(acquired.handle);
    naive_.release(tokens);
  }

  void end() {
    const std::size_t which = below(running_.size());
    tree_.release(running_[which], 1, 0);
    naive_.release(running_[which]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void evict(std::size_t count) {
    const std::vector<BlockId> evicted = tree_.evict(count).physical;
    naive_.tell(evicted);
    ASSERT_EQ(evicted, naive_.evict(count));
    ASSERT_TRUE(evicted.size() == count || naive_.evictable_leaves().empty());
    evicted_ += evicted.size();
  }

  const Workload workload_;
  std::mt19937_64 random_;
  const bool marks_;
  std::uint64_t time_ = 1000;
  RadixTree tree_;
  NaivePolicyCache naive_;
  std::vector<Tokens> running_;
  BlockId last_block_ = 0;
  std::size_t evicted_ = 0;
};

class NaivePolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(NaivePolicies, EvictTheSameBlocksInTheSameOrder) {
  const std::vector<Workload> workloads = {
      {.alphabet = 3, .length_max = 8, .running_max = 4, .capacity = 40},
      {.alphabet = 2, .length_max = 12, .running_max = 2, .capacity = 60},
      {.alphabet = 20, .length_max = 3, .running_max = 3, .capacity = 30},
      {.alphabet = 6, .length_max = 5, .running_max = 1, .capacity = 100},
      {.alphabet = 200, .length_max = 2, .running_max = 1, .capacity = 50},
  };
  std::size_t evicted = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Lockstep lockstep(GetParam(), workloads[seed % workloads.size()], seed);
    lockstep.run(300);
    evicted += lockstep.evicted();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(evicted, 5'000U);
}

INSTANTIATE_TEST_SUITE_P(Each, NaivePolicies, ::testing::ValuesIn(block_policy_names()),
                         [](const auto& policy) { return policy.param; });

}  // namespace
}  // namespace cairn::testing
