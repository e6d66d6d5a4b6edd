// A RadixTree with blocks of one token, driven as an engine does it, for tests of what it evicts.
#ifndef CAIRN_TESTS_POLICY_BLOCK_CACHE_H_
#define CAIRN_TESTS_POLICY_BLOCK_CACHE_H_

#include <cairn/radix_tree.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace cairn::testing {

using Tokens = std::vector<TokenId>;

// A block's id is the number of the insert that offered it; `first` + depth here, so that tests can say it.
class BlockCache {
 public:
  explicit BlockCache(const std::string& policy, std::size_t pinned_blocks_max = 0)
      : tree_({.block_size = 1,
               .hash_seed = 7,
               .block_policy = policy,
               .pinned_blocks_max = pinned_blocks_max,
               .clock = [this] { return std::chrono::steady_clock::time_point(time_); }}) {}
  ~BlockCache() { EXPECT_EQ(tree_.validate(), ""); }
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // A request that computes what is not cached, and ends. Its block at depth d (from 1) gets the id first + d. How
  // many were cached.
  std::size_t serve(const Tokens& tokens, BlockId first) {
    RadixTree::Acquired acquired = tree_.acquire(tokens, 0, 0);
    const std::size_t matched = acquired.match.matched_tokens;
    std::vector<BlockId> blocks;
    for (std::size_t i = matched; i < tokens.size(); ++i) blocks.push_back(first + static_cast<BlockId>(i) + 1);
    tree_.extend(acquired.handle, std::span(tokens).subspan(matched), blocks, {});
    tree_.release(acquired.handle);
    return matched;
  }
  std::vector<BlockId> evict(std::size_t count) { return tree_.evict(count).physical; }
  void mark(const Tokens& tokens, std::size_t from, std::size_t to, const BlockPriority& priority) {
    RadixTree::Acquired acquired = tree_.acquire(tokens, 0, 0);
    tree_.prioritize(acquired.handle, from, to, priority);
    tree_.release(acquired.handle);
  }
  [[nodiscard]] std::size_t cached(const Tokens& tokens) const { return tree_.peek_matched_tokens(tokens, 1, 0); }
  [[nodiscard]] RadixTree& tree() { return tree_; }
  void pass(std::chrono::nanoseconds time) { time_ += time; }

 private:
  std::chrono::nanoseconds time_{0};
  RadixTree tree_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_POLICY_BLOCK_CACHE_H_
