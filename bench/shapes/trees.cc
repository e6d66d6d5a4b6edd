// Shapes of trees: where branches hang, and what is held where.
#include <cairn/radix_tree.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "bench/core/cached.h"
#include "bench/shapes/shape.h"

namespace cairn::bench {
namespace {

constexpr std::size_t kLongPrompt = 32'768;

// Tokens that no prompt has.
std::vector<TokenId> other_block(std::size_t number) {
  std::vector<TokenId> tokens(kBlockSize, Random::kVocabulary);
  tokens[0] += static_cast<TokenId>(number);
  return tokens;
}

// `prompt` up to `length`, then a block of its own. Its block has the id given.
void insert_branch(RadixTree& tree, std::span<const TokenId> prompt, std::size_t length, BlockId block) {
  std::vector<TokenId> tokens(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length));
  const std::vector<TokenId> branch = other_block(length / kBlockSize);
  tokens.insert(tokens.end(), branch.begin(), branch.end());
  const std::vector<BlockId> blocks(tokens.size() / kBlockSize, block);
  const InsertAcquired acquired = tree.insert(tokens, blocks, {}, kBlockSize, tokens.size(), 0);
  expect(acquired.blocks == std::vector<BlockId>{block}, "insert: one new block for a branch");
}

}  // namespace

// Thousands of requests that share a system prompt of 65,536 tokens and go on with 64 tokens of their own.
void shared_system_prompt(benchmark::State& state, const Settings& settings) {
  constexpr std::size_t kTail = 64;
  const std::size_t shared = settings.sized(65'536, 1'024);
  const Prompts system(1, shared, 0, 200);
  const std::size_t count = settings.sized(4'000, 20);
  const Prompts tails(count, kTail, 0, 201, static_cast<BlockId>(shared / kBlockSize));
  // One request's tokens are put together here, as an engine would have them.
  TokenMemory request(shared + kTail);
  std::ranges::copy(system[0], request.tokens().begin());
  const auto compose = [&](std::size_t i) {
    std::ranges::copy(tails[i], request.tokens().begin() + static_cast<std::ptrdiff_t>(shared));
  };
  RadixTree tree;
  std::vector<BlockId> blocks = system.blocks(0);
  blocks.resize(blocks.size() + kTail / kBlockSize);
  for (std::size_t i = 0; i < count; ++i) {
    compose(i);
    std::ranges::copy(tails.blocks(i), blocks.end() - kTail / kBlockSize);
    cache(tree, request.tokens(), blocks, i == 0 ? 0 : shared / kBlockSize);
  }
  Random random(202);
  measure_in_m(state, [&] {
    const std::size_t i = random.below(count);
    compose(i);
    const PrefixMatch match = tree.lookup(request.tokens(), kBlockSize, 0, 0);
    expect(match.matched_tokens == request.tokens().size(), "lookup: matched tokens");
    expect(match.matched_blocks.back() == tails.blocks(i).back(), "lookup: the last matched block");
    tree.release_matched(request.tokens(), kBlockSize, match.matched_tokens, 0);
  });
}

// A prompt each block of which is an edge of its own: the deepest tree for its length.
void chain_of_one_block_edges(benchmark::State& state, const Settings& settings) {
  const Prompts prompts(1, settings.sized(kLongPrompt, 512), 0, 210);
  const std::size_t blocks = prompts.blocks_each();
  RadixTree tree;
  // A block of another branch takes the place at the end of the last edge, so that the prompt's next block has to hang
  // beside it.
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::size_t length = i * kBlockSize;
    insert_branch(tree, prompts[0], length, static_cast<BlockId>(blocks + i));
    const auto prefix = prompts[0].first(length + kBlockSize);
    const auto ids = std::span<const BlockId>(prompts.blocks(0)).first(i + 1);
    const InsertAcquired acquired = tree.insert(prefix, ids, {}, kBlockSize, prefix.size(), 0);
    expect(acquired.blocks.size() == 1, "insert: one new block of the chain");
  }
  expect(tree.stats().entries >= blocks, "stats: the chain is no chain of edges");
  expect_cached(tree, prompts);
  measure_in_m(state, [&] { lookup_and_release(tree, prompts[0]); });
  expect_cached(tree, prompts);
}

// A prompt at each boundary of which another sequence branches off.
void branches_at_all_boundaries(benchmark::State& state, const Settings& settings) {
  const Prompts prompts(1, settings.sized(kLongPrompt, 512), 0, 210);
  const std::size_t blocks = prompts.blocks_each();
  RadixTree tree;
  cache(tree, prompts);
  for (std::size_t i = 1; i < blocks; ++i) {
    insert_branch(tree, prompts[0], i * kBlockSize, static_cast<BlockId>(blocks + i));
  }
  expect_cached(tree, prompts);
  measure_in_m(state, [&] { lookup_and_release(tree, prompts[0]); });
  expect_cached(tree, prompts);
}

// One cached prompt in which thousands of running sequences end, while others come and go.
void held_ends_in_one_edge(benchmark::State& state, const Settings& settings) {
  const Prompts prompts(1, settings.sized(kLongPrompt, 512), 0, 10);
  RadixTree tree;
  cache(tree, prompts);
  Random random(220);
  const auto some_prefix = [&] { return prompts[0].first(kBlockSize * (1 + random.below(prompts.blocks_each()))); };
  std::vector<PrefixHandle> held(settings.sized(8'000, 100));
  for (PrefixHandle& handle : held) handle = tree.acquire(some_prefix(), 0, 0).handle;
  measure_in_m(state, [&] {
    // One goes, another comes, and one passes by.
    PrefixHandle& changed = held[random.below(held.size())];
    tree.release(changed);
    const auto taken = some_prefix();
    changed = tree.acquire(taken, 0, 0).handle;
    expect(changed.tokens() == taken.size(), "acquire: tokens held");
    lookup_and_release(tree, some_prefix());
  });
  const std::size_t longest = std::ranges::max_element(held, {}, &PrefixHandle::tokens)->tokens();
  const std::size_t free_blocks = (prompts[0].size() - longest) / kBlockSize;
  expect(tree.evict(prompts.blocks_each()).size() == free_blocks, "evict: the blocks that nobody holds");
  for (PrefixHandle& handle : held) tree.release(handle);
  expect(tree.evict(prompts.blocks_each()).size() == longest / kBlockSize, "evict: the rest");
}

}  // namespace cairn::bench
