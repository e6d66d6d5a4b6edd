// Filling trees and checking what they answer.
#ifndef CAIRN_BENCH_CORE_CACHED_H_
#define CAIRN_BENCH_CORE_CACHED_H_

#include <cairn/radix_tree.h>

#include <span>

#include "bench/core/measure.h"
#include "bench/core/token_memory.h"

namespace cairn::bench {

// Inserts prompt i, whose blocks from `new_from` on must be new, and releases it.
inline void cache(RadixTree& tree, std::span<const TokenId> prompt, std::span<const BlockId> blocks,
                  std::size_t new_from) {
  const InsertAcquired acquired = tree.insert(prompt, blocks, {}, kBlockSize, 0, 0);
  expect(acquired.blocks.size() == blocks.size() - new_from, "insert: the number of blocks acquired");
  tree.release(prompt, kBlockSize, 0);
}

inline void cache(RadixTree& tree, const Prompts& prompts) {
  const std::size_t before = tree.stats().cached_blocks;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    cache(tree, prompts[i], prompts.blocks(i), i == 0 ? 0 : prompts.shared() / kBlockSize);
  }
  expect(tree.stats().cached_blocks == before + prompts.distinct_blocks(), "stats: cached blocks after filling");
}

// A lookup must match the whole prompt, and every block id must be right.
inline void expect_cached(RadixTree& tree, std::span<const TokenId> prompt, const std::vector<BlockId>& blocks) {
  const PrefixMatch match = tree.lookup(prompt, kBlockSize, 0, 0);
  tree.release_matched(prompt, kBlockSize, match.matched_tokens, 0);
  expect(match.matched_tokens == prompt.size(), "lookup: matched tokens");
  expect(match.matched_blocks == blocks, "lookup: matched blocks");
}

inline void expect_cached(RadixTree& tree, const Prompts& prompts) {
  for (std::size_t i = 0; i < prompts.size(); ++i) expect_cached(tree, prompts[i], prompts.blocks(i));
}

// What an engine does for a cached prompt, by tokens.
inline void lookup_and_release(RadixTree& tree, std::span<const TokenId> prompt) {
  const PrefixMatch match = tree.lookup(prompt, kBlockSize, 0, 0);
  expect(match.matched_tokens == prompt.size(), "lookup: matched tokens");
  tree.release_matched(prompt, kBlockSize, match.matched_tokens, 0);
}

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_CORE_CACHED_H_
