// No cliffs: shapes that make a quadratic implementation run for minutes and a recursive one overflow its stack.
//
// Nothing is timed. Each body runs on a thread with a small stack, checks what it gets, and simply has to finish:
// together they take seconds. The tree itself is destroyed on that thread too.
#include <cairn/radix_tree.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace cairn {
namespace {

using Tokens = std::vector<TokenId>;
using Blocks = std::vector<BlockId>;
using TokenSpan = std::span<const TokenId>;

constexpr std::size_t kStackBytes = 256 * 1024;

// Recursion on the depth of a tree of 100,000 pieces doesn't fit there: it would have less than three bytes a level.
void on_a_small_stack(const std::function<void()>& body) {
  struct Call {
    const std::function<void()>* body;
    std::string error;
  } call{&body, {}};
  const auto run = [](void* argument) -> void* {
    auto* const c = static_cast<Call*>(argument);
    try {
      (*c->body)();
    } catch (const std::exception& error) {
      c->error = error.what();
    }
    return nullptr;
  };
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &call), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(call.error, "");
}

std::vector<std::uint32_t> range(std::uint32_t first, std::size_t count) {
  std::vector<std::uint32_t> result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}

std::vector<std::size_t> shuffled_indices(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> result(count);
  std::iota(result.begin(), result.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  std::shuffle(result.begin(), result.end(), random);
  return result;
}

TokenSpan first(const Tokens& tokens, std::size_t count) {
  return TokenSpan(tokens).first(count);
}

void expect_empty(const RadixTree& tree) {
  EXPECT_EQ(tree.stats().cached_blocks, 0u);
  EXPECT_EQ(tree.stats().entries, 0u);
  EXPECT_EQ(tree.snapshot_count(), 0u);
  EXPECT_EQ(tree.validate(), "");
}

// ---- Length ----

void run_long_prompt(std::size_t block_size) {
  constexpr std::size_t kPromptTokens = 1'000'000;
  const std::size_t num_blocks = kPromptTokens / block_size;
  RadixTree tree({.block_size = block_size});
  const Tokens prompt = range(7, kPromptTokens);
  const Blocks table = range(1, num_blocks);
  EXPECT_EQ(tree.insert(prompt, table, {}, block_size, 0, 0).blocks, table);
  EXPECT_EQ(tree.peek_matched_tokens(prompt, block_size, 0), num_blocks * block_size);
  EXPECT_EQ(tree.lookup(prompt, block_size, 0, 0).matched_blocks, table);
  EXPECT_TRUE(tree.evict(num_blocks).empty());
  tree.release(prompt, block_size, 0);
  tree.release_matched(prompt, block_size, num_blocks * block_size, 0);
  EXPECT_EQ(tree.validate(), "");
  const EvictedBlocks evicted = tree.evict(num_blocks);
  EXPECT_TRUE(std::equal(evicted.physical.rbegin(), evicted.physical.rend(), table.begin(), table.end()));
  EXPECT_EQ(tree.counters().protocol_errors, 0u);
  expect_empty(tree);
}

TEST(NoCliffsTest, APromptOfAMillionTokensInBlocksOfOne) {
  on_a_small_stack([] { run_long_prompt(1); });
}

TEST(NoCliffsTest, APromptOfAMillionTokensInBlocksOf16) {
  on_a_small_stack([] { run_long_prompt(16); });
}

TEST(NoCliffsTest, APromptThatGrowsByAMillionBlocksOneByOne) {
  on_a_small_stack([] {
    constexpr std::size_t kBlocks = 1'000'000;
    RadixTree tree({.block_size = 1});
    const Tokens prompt = range(7, kBlocks);
    auto [handle, match] = tree.acquire({}, 0, 0);
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const Blocks block = {static_cast<BlockId>(i)};
      tree.extend(handle, TokenSpan(prompt).subspan(i, 1), block, {});
    }
    EXPECT_EQ(handle.tokens(), kBlocks);
    EXPECT_EQ(tree.lookup(prompt, 1, 0, 0).matched_blocks, range(0, kBlocks));
    tree.release(prompt, 1, 0);
    tree.release(handle);
    EXPECT_EQ(tree.evict(kBlocks).size(), kBlocks);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, AMillionBlocksOfOnePromptEvictedOneByOne) {
  on_a_small_stack([] {
    constexpr std::size_t kBlocks = 1'000'000;
    RadixTree tree({.block_size = 1});
    tree.insert(range(7, kBlocks), range(0, kBlocks), {}, 1, kBlocks, 0);
    for (std::size_t i = kBlocks; i-- > 0;) {
      const EvictedBlocks evicted = tree.evict(1);
      ASSERT_EQ(evicted.size(), 1u);
      ASSERT_EQ(evicted.physical[0], i);
    }
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, AMillionBlocksOfAThousandPromptsEvictedOneByOne) {
  on_a_small_stack([] {
    constexpr std::size_t kPrompts = 1'000;
    constexpr std::size_t kBlocksEach = 1'000;
    RadixTree tree({.block_size = 1});
    const auto prompt = [](std::size_t i) { return range(static_cast<TokenId>(i * 10'000), kBlocksEach); };
    for (std::size_t i = 0; i < kPrompts; ++i) {
      tree.insert(prompt(i), range(static_cast<BlockId>(i * kBlocksEach), kBlocksEach), {}, 1, kBlocksEach, 0);
    }
    const auto order = shuffled_indices(kPrompts, 1);
    for (const std::size_t i : order) {
      tree.lookup(prompt(i), 1, 0, 0);
      tree.release(prompt(i), 1, 0);
    }
    for (const std::size_t i : order) {
      for (std::size_t block = kBlocksEach; block-- > 0;) {
        const EvictedBlocks evicted = tree.evict(1);
        ASSERT_EQ(evicted.size(), 1u);
        ASSERT_EQ(evicted.physical[0], i * kBlocksEach + block);
      }
    }
    expect_empty(tree);
  });
}

// ---- Width ----

TEST(NoCliffsTest, TwoHundredThousandLeavesUnderOneParent) {
  on_a_small_stack([] {
    constexpr std::size_t kLeaves = 200'000;
    constexpr BlockId kParentBlock = 1'000'000;
    RadixTree tree({.block_size = 4});
    const auto leaf = [](std::size_t i) { return Tokens{1, 2, 3, 4, 5, 6, 7, static_cast<TokenId>(i)}; };
    for (std::size_t i = 0; i < kLeaves; ++i) {
      const Blocks table = {kParentBlock, static_cast<BlockId>(i)};
      ASSERT_EQ(tree.insert(leaf(i), table, {}, 4, 0, 0).blocks.size(), i == 0 ? 2u : 1u);
      tree.release(leaf(i), 4, 0);
    }
    EXPECT_EQ(tree.stats().cached_blocks, kLeaves + 1);
    const auto order = shuffled_indices(kLeaves, 2);
    for (const std::size_t i : order) {
      const PrefixMatch match = tree.lookup(leaf(i), 4, 0, 0);
      ASSERT_EQ(match.matched_blocks, (Blocks{kParentBlock, static_cast<BlockId>(i)}));
      tree.release_matched(leaf(i), 4, match.matched_tokens, 0);
    }
    EXPECT_EQ(tree.validate(), "");
    for (const std::size_t i : order) {
      const EvictedBlocks evicted = tree.evict(1);
      ASSERT_EQ(evicted.size(), 1u);
      ASSERT_EQ(evicted.physical[0], i);
    }
    EXPECT_EQ(tree.evict(2).physical, Blocks{kParentBlock});
    EXPECT_EQ(tree.counters().protocol_errors, 0u);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, TwoHundredThousandPromptsInUseBesideOneThatIsNot) {
  on_a_small_stack([] {
    constexpr std::size_t kPrompts = 200'000;
    RadixTree tree({.block_size = 1});
    std::vector<PrefixHandle> handles;
    for (std::size_t i = 0; i < kPrompts; ++i) {
      const Tokens prompt = {static_cast<TokenId>(i)};
      handles.push_back(tree.acquire(prompt, 0, 0).handle);
      tree.extend(handles.back(), prompt, Blocks{static_cast<BlockId>(i)}, {});
    }
    for (std::size_t i = 0; i < kPrompts; ++i) {  // each time all others are older, and in use
      const Tokens other = {static_cast<TokenId>(kPrompts + i)};
      tree.insert(other, Blocks{7}, {}, 1, 1, 0);
      ASSERT_EQ(tree.evict(2).physical, Blocks{7});
    }
    for (PrefixHandle& handle : handles) tree.release(handle);
    EXPECT_EQ(tree.evict(kPrompts).physical, range(0, kPrompts));
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, FourHundredThousandPromptsInUseBesideHalfAsManyThatAreNot) {
  on_a_small_stack([] {
    constexpr std::size_t kIdle = 200'000;
    constexpr std::size_t kInUse = 400'000;
    RadixTree tree({.block_size = 1});
    for (std::size_t i = 0; i < kIdle + kInUse; ++i) {
      const auto id = static_cast<TokenId>(i);
      ASSERT_EQ(tree.insert(Tokens{id}, Blocks{id}, {}, 1, i < kIdle ? 1 : 0, 0).blocks.size(), 1u);
    }
    EXPECT_EQ(tree.evict(kIdle + kInUse).physical, range(0, kIdle));
    for (std::size_t i = kIdle; i < kIdle + kInUse; ++i) tree.release(Tokens{static_cast<TokenId>(i)}, 1, 0);
    EXPECT_EQ(tree.evict(kIdle + kInUse).physical, range(kIdle, kInUse));
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, AMillionLookupsOfOnePromptLeaveEvictionAsItWas) {
  on_a_small_stack([] {
    RadixTree tree({.block_size = 1});
    const Tokens prompt = {1, 2, 3};
    tree.insert(prompt, Blocks{1, 2, 3}, {}, 1, 3, 0);
    tree.insert(Tokens{9}, Blocks{9}, {}, 1, 1, 0);
    for (std::size_t i = 0; i < 1'000'000; ++i) {
      const std::size_t depth = i % 3 + 1;
      tree.lookup(first(prompt, depth), 1, 0, 0);
      tree.release(first(prompt, depth), 1, 0);
    }
    EXPECT_EQ(tree.validate(), "");
    EXPECT_EQ(tree.evict(9).physical, (Blocks{9, 3, 2, 1}));
    expect_empty(tree);
  });
}

// ---- Depth in pieces ----

// A chain whose every block has a branch beside what follows, so that it is stored in one-block pieces: token 2d + 2
// is the branch after d blocks, 2d + 1 goes on. Built by a handle: its cost is in the new blocks.
constexpr std::size_t kChain = 100'000;

Tokens chain_tokens(std::size_t depth) {
  Tokens result(depth);
  for (std::size_t d = 0; d < depth; ++d) result[d] = static_cast<TokenId>(2 * d + 1);
  return result;
}

PrefixHandle build_chain(RadixTree& tree) {
  auto [handle, match] = tree.acquire({}, 0, 0);
  for (std::size_t d = 0; d < kChain; ++d) {
    const auto token = static_cast<TokenId>(2 * d + 1);
    tree.extend(handle, Tokens{token + 1}, Blocks{token + 1}, {});
    tree.truncate(handle, d);
    tree.extend(handle, Tokens{token}, Blocks{token}, {});
  }
  return std::move(handle);
}

TEST(NoCliffsTest, AChainOfAHundredThousandPiecesIsLookedUpReleasedAndEvicted) {
  on_a_small_stack([] {
    RadixTree tree({.block_size = 1});
    PrefixHandle handle = build_chain(tree);
    EXPECT_EQ(handle.tokens(), kChain);
    EXPECT_EQ(tree.stats().cached_blocks, 2 * kChain);
    EXPECT_GE(tree.stats().entries, kChain) << "or the pieces are not as short as this test means them to be";
    const Tokens chain = chain_tokens(kChain);
    EXPECT_EQ(tree.peek_matched_tokens(chain, 1, 0), kChain);
    EXPECT_EQ(tree.lookup(chain, 1, 0, 0).matched_blocks, chain);  // each block has the id of its token
    tree.insert(chain, chain, {}, 1, 0, 0);
    tree.release(chain, 1, 0);
    tree.release_matched(chain, 1, kChain, 0);
    EXPECT_EQ(tree.evict(2 * kChain).size(), kChain) << "the branches";
    tree.truncate(handle, kChain / 2);
    EXPECT_EQ(tree.validate(), "");
    for (std::size_t d = kChain; d-- > kChain / 2;) {
      const EvictedBlocks evicted = tree.evict(1);
      ASSERT_EQ(evicted.size(), 1u);
      ASSERT_EQ(evicted.physical[0], chain[d]);
    }
    tree.release(handle);
    EXPECT_EQ(tree.evict(kChain).size(), kChain / 2);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, AChainOfAHundredThousandPiecesIsCleared) {
  on_a_small_stack([] {
    RadixTree tree({.block_size = 1});
    PrefixHandle handle = build_chain(tree);
    tree.insert_intermediate_snapshot(chain_tokens(kChain), {}, {}, 1, 50, 0, 0, 0);
    Cleared cleared = tree.clear(0);
    std::sort(cleared.blocks.physical.begin(), cleared.blocks.physical.end());
    EXPECT_EQ(cleared.blocks.physical, range(1, 2 * kChain));
    EXPECT_EQ(cleared.slots, std::vector<SnapshotId>{50});
    tree.release(handle);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, AChainOfAHundredThousandPiecesIsDestroyedWithItsTree) {
  on_a_small_stack([] {
    RadixTree tree({.block_size = 1});
    EXPECT_EQ(build_chain(tree).tokens(), kChain);
    EXPECT_EQ(tree.stats().cached_blocks, 2 * kChain);
  });
}

TEST(NoCliffsTest, AChainOfAHundredThousandPiecesThatOneSnapshotKeepsGoesWithIt) {
  on_a_small_stack([] {
    RadixTree tree({.block_size = 1});
    PrefixHandle handle = build_chain(tree);
    const Tokens chain = chain_tokens(kChain);
    tree.insert_intermediate_snapshot(chain, {}, {}, 1, 50, 0, 0, 0);
    tree.release(handle);
    EXPECT_EQ(tree.evict(2 * kChain).size(), 2 * kChain);
    EXPECT_EQ(tree.stats().entries, 0u);
    EXPECT_EQ(tree.find_snapshot(chain, kChain, 0, 0).slot, 50u);
    EXPECT_EQ(tree.validate(), "");
    EXPECT_EQ(tree.evict_snapshot_lru(), 50u);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, ABranchAtEveryBlockOfALongPromptInsertedFromItsEnd) {
  on_a_small_stack([] {
    RadixTree tree({.block_size = 1});
    const Tokens prompt = range(1, kChain);
    auto [handle, match] = tree.acquire({}, 0, 0);
    tree.extend(handle, prompt, prompt, {});
    for (std::size_t d = kChain; d > 0; --d) {
      const auto token = static_cast<TokenId>(1'000'000 + d);
      tree.truncate(handle, d);
      tree.extend(handle, Tokens{token}, Blocks{token}, {});
    }
    tree.release(handle);
    EXPECT_EQ(tree.stats().cached_blocks, 2 * kChain);
    EXPECT_EQ(tree.lookup(prompt, 1, 0, 0).matched_blocks, prompt);
    tree.release(prompt, 1, 0);
    EXPECT_EQ(tree.validate(), "");
    for (std::size_t d = kChain; d > 0; --d) {  // the branches are older than the prompt's last lookup
      ASSERT_EQ(tree.evict(1).physical, Blocks{static_cast<BlockId>(1'000'000 + d)});
    }
    EXPECT_EQ(tree.evict(2 * kChain).size(), kChain);
    expect_empty(tree);
  });
}

// ---- Ends inside one piece ----

TEST(NoCliffsTest, ThousandsOfLookupsHeldAtDepthsOfOneRunAndReleasedInRandomOrder) {
  on_a_small_stack([] {
    constexpr std::size_t kDepths = 8'192;
    RadixTree tree({.block_size = 1});
    const Tokens prompt = range(1, kDepths);
    tree.insert(prompt, prompt, {}, 1, kDepths, 0);
    std::vector<PrefixHandle> handles(kDepths + 1);
    for (std::size_t depth = 1; depth <= kDepths; ++depth) {
      if (depth % 2 == 0) {
        handles[depth] = tree.acquire(first(prompt, depth), 0, 0).handle;
      } else {
        ASSERT_EQ(tree.lookup(first(prompt, depth), 1, 0, 0).matched_tokens, depth);
      }
    }
    EXPECT_EQ(tree.validate(), "");
    std::vector<bool> held(kDepths + 1, true);
    std::size_t deepest_held = kDepths;
    for (const std::size_t index : shuffled_indices(kDepths, 3)) {
      const std::size_t depth = index + 1;
      if (depth % 2 == 0) {
        tree.release(handles[depth]);
      } else {
        tree.release_matched(first(prompt, depth), 1, depth, 0);
      }
      held[depth] = false;
      while (deepest_held > 0 && !held[deepest_held]) --deepest_held;
      tree.evict(kDepths);
      ASSERT_EQ(tree.stats().cached_blocks, deepest_held);
    }
    EXPECT_EQ(tree.counters().protocol_errors, 0u);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, ThousandsOfStampsAlongOneRunAreEvictedInTheirOrder) {
  on_a_small_stack([] {
    constexpr std::size_t kDepths = 8'192;
    RadixTree tree({.block_size = 1});
    const Tokens prompt = range(1, kDepths);
    tree.insert(prompt, prompt, {}, 1, kDepths, 0);
    for (std::size_t depth = kDepths; depth > 0; --depth) {  // the shallower, the younger; one stranger after each
      tree.lookup(first(prompt, depth), 1, 0, 0);
      tree.release(first(prompt, depth), 1, 0);
      const auto stranger = static_cast<TokenId>(1'000'000 + depth);
      tree.insert(Tokens{stranger}, Blocks{stranger}, {}, 1, 1, 0);
    }
    EXPECT_EQ(tree.validate(), "");
    for (std::size_t depth = kDepths; depth > 0; --depth) {
      ASSERT_EQ(tree.evict(2).physical,
                (Blocks{static_cast<BlockId>(depth), static_cast<BlockId>(1'000'000 + depth)}));
    }
    expect_empty(tree);
  });
}

// ---- Snapshots ----

TEST(NoCliffsTest, ThousandsOfSnapshotsOnOnePromptVisibleOrNot) {
  on_a_small_stack([] {
    constexpr std::size_t kSnapshots = 8'192;
    constexpr std::size_t kSpacing = 8;  // every other one is not at a block's end
    constexpr std::size_t kTokens = kSnapshots * kSpacing;
    constexpr SessionHash kMine = 1;
    RadixTree tree({.block_size = 16});
    const Tokens prompt = range(1, kTokens);
    tree.insert(prompt, range(1, kTokens / 16), {}, 16, kTokens, 0);
    for (std::size_t i = 1; i <= kSnapshots; ++i) {  // the first is mine, all others are someone else's
      const SessionHash session = i == 1 ? kMine : 1'000 + i;
      ASSERT_FALSE(tree.insert_intermediate_snapshot(first(prompt, i * kSpacing), {}, {}, 16, i, session, 0, 0));
    }
    EXPECT_EQ(tree.validate(), "");
    for (std::size_t i = 1; i <= kSnapshots; ++i) {
      const SnapshotRef mine = tree.find_snapshot(prompt, i * kSpacing + 3, kMine, 0);
      ASSERT_EQ(mine.slot, 1u);
      const SnapshotRef anyones = tree.find_snapshot(prompt, i * kSpacing + 3, 0, 0);
      ASSERT_EQ(anyones.slot, i);
      ASSERT_EQ(anyones.tokens, i * kSpacing);
    }
    const PrefixMatch match = tree.lookup(prompt, 16, kMine, 0);
    EXPECT_EQ(match.ssm_snapshot, 1u);
    EXPECT_EQ(match.ssm_snapshot_tokens, kSpacing);
    tree.release(prompt, 16, 0);
    for (std::size_t i = 2; i <= kSnapshots; ++i) ASSERT_EQ(tree.evict_snapshot_lru(), i);
    ASSERT_EQ(tree.evict_snapshot_lru(), 1u) << "found last";
    EXPECT_EQ(tree.evict(kTokens).size(), kTokens / 16);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, ThousandsOfUnalignedSnapshotsBesideOnePromptThatPassesThemBy) {
  on_a_small_stack([] {
    constexpr std::size_t kBlocks = 8'192;
    RadixTree tree({.block_size = 4});
    const Tokens prompt = range(1, kBlocks * 4);
    tree.insert(prompt, range(1, kBlocks), {}, 4, kBlocks * 4, 0);
    for (std::size_t i = 0; i < kBlocks; ++i) {  // after i blocks, off the prompt by its last token
      Tokens beside(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(i * 4 + 2));
      beside.back() = 0;
      ASSERT_FALSE(tree.insert_intermediate_snapshot(beside, {}, {}, 4, i, 0, 0, 0));
    }
    for (std::size_t round = 0; round < 20; ++round) {
      ASSERT_FALSE(tree.find_snapshot(prompt, prompt.size(), 0, 0).slot);
      ASSERT_FALSE(tree.find_snapshot(prompt, prompt.size(), 5, 0).slot);
    }
    EXPECT_EQ(tree.clear().slots.size(), kBlocks);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, ThousandsOfShortSnapshotsAfterTheSameBlock) {
  on_a_small_stack([] {
    constexpr std::size_t kSnapshots = 65'536;
    RadixTree tree({.block_size = 16});
    const Tokens block = range(1, 16);
    tree.insert(block, Blocks{1}, {}, 16, 16, 0);
    const auto place = [&](std::size_t i) {
      Tokens result = block;
      for (std::size_t n = 0; n <= i % 8; ++n) result.push_back(static_cast<TokenId>(1'000 + i));
      return result;
    };
    for (std::size_t i = 0; i < kSnapshots; ++i) {
      ASSERT_FALSE(tree.insert_intermediate_snapshot(place(i), {}, {}, 16, i, i % 3, 0, 0));
    }
    EXPECT_EQ(tree.snapshot_count(), kSnapshots);
    EXPECT_EQ(tree.validate(), "");
    for (std::size_t i = 0; i < kSnapshots; ++i) {
      Tokens longer = place(i);
      longer.push_back(7);
      const SnapshotRef found = tree.find_snapshot(longer, longer.size(), i % 3, 0);
      ASSERT_EQ(found.slot, i);
      ASSERT_EQ(found.tokens, longer.size() - 1);
    }
    for (std::size_t i = 0; i < kSnapshots; ++i) {  // replaced in place
      ASSERT_EQ(tree.insert_intermediate_snapshot(place(i), {}, {}, 16, kSnapshots + i, 0, 0, 0), i);
    }
    for (std::size_t i = 0; i < kSnapshots; ++i) ASSERT_EQ(tree.evict_snapshot_lru(), kSnapshots + i);
    EXPECT_EQ(tree.evict(9).size(), 1u);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, EvictionsBesideFiftyThousandPinnedSnapshots) {
  on_a_small_stack([] {
    constexpr std::size_t kPinned = 50'000;
    constexpr SnapshotId kLast = 1'000'000;
    RadixTree tree({.block_size = 4});
    std::vector<SnapshotPin> pins;
    for (std::uint32_t i = 0; i < kPinned; ++i) {
      const Tokens tokens = {i};
      EXPECT_FALSE(tree.insert_intermediate_snapshot(tokens, {}, {}, 4, i, 0, 0, 0).has_value());
      pins.push_back(tree.find_snapshot(tokens, {.pin_snapshot = true}).pin);
    }
    for (std::uint32_t i = 0; i < kPinned; ++i) {
      const Tokens tokens = {1'000'000 + i};
      EXPECT_FALSE(tree.insert_intermediate_snapshot(tokens, {}, {}, 4, kLast, 0, 0, 0).has_value());
      EXPECT_EQ(tree.evict_snapshot_lru(), kLast);
      EXPECT_FALSE(tree.evict_snapshot_lru().has_value());
    }
    EXPECT_EQ(tree.validate(), "");
    for (const std::size_t i : shuffled_indices(kPinned, 4)) EXPECT_FALSE(tree.unpin_snapshot(pins[i]).has_value());
    for (std::size_t i = 0; i < kPinned; ++i) EXPECT_EQ(tree.evict_snapshot_lru(), i);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, TenThousandSessionsEachWithTailAndSibling) {
  on_a_small_stack([] {
    constexpr std::size_t kSessions = 10'000;
    RadixTree tree({.block_size = 4});
    const Tokens shared = range(1, 64);
    tree.insert(shared, range(1, 16), {}, 4, 64, 0);
    const auto turn = [&](std::size_t session, std::size_t turns) {
      Tokens result = shared;
      for (std::size_t n = 0; n < 8 * turns; ++n) result.push_back(static_cast<TokenId>(1'000 + session));
      return result;
    };
    const auto slot_of_tail = [](std::size_t session, std::size_t turns) { return 2 * (turns * kSessions + session); };
    for (std::size_t turns = 1; turns <= 3; ++turns) {
      for (std::size_t i = 0; i < kSessions; ++i) {
        const Tokens tokens = turn(i, turns);
        const SnapshotId slot = slot_of_tail(i, turns);
        ASSERT_EQ(tree.insert_tail_snapshot(tokens, slot, i + 1, 0).size(), turns == 1 ? 0u : 2u);
        ASSERT_FALSE(tree.insert_tail_sibling_snapshot(first(tokens, tokens.size() - 4), slot + 1, i + 1, 0));
      }
    }
    EXPECT_EQ(tree.snapshot_count(), 2 * kSessions);
    EXPECT_EQ(tree.validate(), "");
    for (std::size_t i = 0; i < kSessions; ++i) {
      const Tokens tokens = turn(i, 4);
      const SnapshotRef tail = tree.find_snapshot(tokens, tokens.size(), i + 1, 0);
      ASSERT_EQ(tail.slot, slot_of_tail(i, 3));
      ASSERT_TRUE(tail.is_tail);
    }
    for (std::size_t i = 0; i < kSessions; ++i) {
      const Tokens tokens = turn(i, 4);
      const SnapshotRef sibling = tree.find_snapshot(tokens, tokens.size(), 0, 0);
      ASSERT_EQ(sibling.slot, slot_of_tail(i, 3) + 1);
      ASSERT_FALSE(sibling.is_tail);
    }
    EXPECT_FALSE(tree.lookup(shared, 4, 1, 0).ssm_snapshot);
    tree.release(shared, 4, 0);
    for (std::size_t i = 0; i < kSessions; ++i) ASSERT_EQ(tree.evict_snapshot_to_tier(0)->slot, slot_of_tail(i, 3));
    for (std::size_t i = 0; i < kSessions; ++i) {  // sweeps a spilled tail and a resident sibling
      const std::vector<SnapshotId> freed = tree.insert_tail_snapshot(shared, 9'000'000 + i, i + 1, 0);
      ASSERT_EQ(freed.front(), slot_of_tail(i, 3) + 1);
      ASSERT_EQ(freed.size(), i == 0 ? 1u : 2u) << "and, at the same place, another session's tail";
    }
    EXPECT_EQ(tree.take_orphaned_tier_keys().size(), kSessions);
    EXPECT_EQ(tree.snapshot_count(), 1u);
    EXPECT_EQ(tree.clear().slots.size(), 1u);
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, SnapshotsOverALongPathWhoseBlocksWereEvictedAndInsertedAgain) {
  on_a_small_stack([] {
    constexpr std::size_t kTokens = 1'000'000;
    constexpr std::size_t kSnapshots = 100;
    RadixTree tree({.block_size = 1});
    const Tokens prompt = range(1, kTokens);
    tree.insert(prompt, prompt, {}, 1, kTokens, 0);
    for (std::size_t i = 1; i <= kSnapshots; ++i) {
      tree.insert_intermediate_snapshot(first(prompt, i * (kTokens / kSnapshots)), {}, {}, 1, i, 0, 0, 0);
    }
    EXPECT_EQ(tree.evict(kTokens / 2).size(), kTokens / 2);
    for (std::size_t i = 0; i < kTokens / 2; ++i) ASSERT_EQ(tree.evict(1).size(), 1u);
    EXPECT_EQ(tree.stats().entries, 0u);
    EXPECT_EQ(tree.snapshot_count(), kSnapshots);
    EXPECT_EQ(tree.validate(), "");
    EXPECT_TRUE(tree.lookup(prompt, 1, 0, 0).empty());
    EXPECT_EQ(tree.find_snapshot(prompt, kTokens, 0, 0).slot, kSnapshots);

    auto [handle, match] = tree.acquire(prompt, 0, 0);
    for (std::size_t i = 0; i < kTokens; ++i) {  // block by block
      tree.extend(handle, TokenSpan(prompt).subspan(i, 1), Blocks{prompt[i]}, {});
    }
    EXPECT_EQ(tree.lookup(prompt, 1, 0, 0).ssm_snapshot, kSnapshots);
    tree.release(prompt, 1, 0);
    tree.release(handle);
    EXPECT_EQ(tree.evict(kTokens).size(), kTokens);
    for (std::size_t i = kSnapshots; i > 0; --i) {  // the deepest is the youngest, and holds the path to the last
      ASSERT_TRUE(tree.evict_snapshot_lru());
    }
    expect_empty(tree);
  });
}

TEST(NoCliffsTest, ManyAdaptersAreEachClearedAndKeptApart) {
  on_a_small_stack([] {
    constexpr std::size_t kAdapters = 2'000;
    RadixTree tree({.block_size = 4});
    const Tokens prompt = range(1, 40);
    for (std::size_t adapter = 0; adapter < kAdapters; ++adapter) {
      const auto first_block = static_cast<BlockId>(adapter * 10);
      ASSERT_EQ(tree.insert(prompt, range(first_block, 10), {}, 4, 40, adapter).blocks.size(), 10u);
    }
    for (std::size_t adapter = 0; adapter < kAdapters; ++adapter) {
      ASSERT_EQ(tree.clear(adapter).blocks.size(), 10u);
      ASSERT_EQ(tree.stats().cached_blocks, (kAdapters - adapter - 1) * 10);
    }
    expect_empty(tree);
  });
}

}  // namespace
}  // namespace cairn
