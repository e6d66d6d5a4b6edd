// Shapes of traffic: what comes after what.
#include <cairn/radix_tree.h>

#include <algorithm>
#include <vector>

#include "bench/core/cached.h"
#include "bench/shapes/shape.h"

namespace cairn::bench {

// Agents that send the whole conversation again at each turn, 1,024 tokens longer; up to 65,536 tokens, then they
// start anew. An operation is one turn: lookup, insert of what is new, release, evictions when the pool is full.
void growing_conversations(benchmark::State& state, const Settings& settings) {
  constexpr std::size_t kTurn = 1'024;
  const std::size_t agents = settings.sized(64, 4);
  const std::size_t longest = settings.sized(65'536, 4'096);
  // In a pool for three quarters of all conversations at their longest.
  const std::size_t pool_blocks = agents * longest / kBlockSize * 3 / 4;
  const Prompts texts(agents, longest, 0, 300);
  std::vector<TokenMemory> conversations;
  for (std::size_t i = 0; i < agents; ++i) {
    conversations.emplace_back(longest);
    std::ranges::copy(texts[i], conversations[i].tokens().begin());
  }
  std::vector<std::size_t> lengths(agents, 0);
  Random random(301);
  RadixTree tree;
  std::size_t cached = 0;
  std::size_t recomputed = 0;
  std::size_t turns = 0;
  measure_in_m(state, [&] {
    const std::size_t i = random.below(agents);
    if (lengths[i] == longest) {
      lengths[i] = 0;
      conversations[i].tokens()[0] = static_cast<TokenId>(Random::kVocabulary + turns);  // another conversation
    }
    const std::size_t before = lengths[i];
    lengths[i] += kTurn;
    const auto turn = conversations[i].tokens().first(lengths[i]);
    const PrefixMatch match = tree.lookup(turn, kBlockSize, 0, 0);
    expect(match.matched_tokens <= before, "lookup: matched a turn that was never inserted");
    recomputed += before - match.matched_tokens;
    const auto blocks = std::span<const BlockId>(texts.blocks(i)).first(lengths[i] / kBlockSize);
    const std::size_t acquired = tree.insert(turn, blocks, {}, kBlockSize, match.matched_tokens, 0).blocks.size();
    expect(acquired == (lengths[i] - match.matched_tokens) / kBlockSize, "insert: blocks acquired");
    tree.release(turn, kBlockSize, 0);
    cached += acquired;
    if (cached > pool_blocks) cached -= tree.evict(cached - pool_blocks).size();
    expect(cached <= pool_blocks, "evict: too few blocks");
    ++turns;
  });
  expect(tree.stats().cached_blocks == cached, "stats: cached blocks");
  state.counters["recomputed_tokens"] = static_cast<double>(recomputed) / static_cast<double>(turns);
}

// 10,000 sessions of a hybrid model over one prompt of 2,048 tokens: each has a tail and its sibling. An operation is
// a turn of a random session: the lookup has to find its own tail, then tail and sibling move.
void sessions_with_tails(benchmark::State& state, const Settings& settings) {
  constexpr std::size_t kLength = 2'560;
  const Prompts prompts(settings.sized(10'000, 50), kLength, 2'048, 310);
  RadixTree tree;
  cache(tree, prompts);
  // Slot 2 i and 2 i + 1 are session i's; a slot that was given back is free for the next put.
  std::vector<SnapshotId> free_slots;
  std::size_t next_slot = 0;
  const auto take_slot = [&] {
    if (free_slots.empty()) return next_slot++;
    const SnapshotId slot = free_slots.back();
    free_slots.pop_back();
    return slot;
  };
  const auto put = [&](std::size_t i, std::size_t length) {
    const SessionHash session = i + 1;
    const auto freed = tree.insert_tail_snapshot(prompts[i].first(length), take_slot(), session, 0);
    free_slots.insert(free_slots.end(), freed.begin(), freed.end());
    const auto refused =
        tree.insert_tail_sibling_snapshot(prompts[i].first(length - kBlockSize), take_slot(), session, 0);
    expect(!refused.has_value(), "insert_tail_sibling_snapshot: refused or displaced");
    return freed.size();
  };
  std::vector<std::size_t> tails(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    tails[i] = kLength - kBlockSize;
    expect(put(i, tails[i]) == 0, "insert_tail_snapshot: a first tail displaced something");
  }
  Random random(311);
  measure_in_m(state, [&] {
    const std::size_t i = random.below(prompts.size());
    const PrefixMatch match = tree.lookup(prompts[i], kBlockSize, i + 1, 0);
    expect(match.matched_tokens == kLength, "lookup: matched tokens");
    expect(match.ssm_snapshot_is_tail && match.ssm_snapshot_tokens == tails[i], "lookup: the session's own tail");
    tails[i] = 2'048 + kBlockSize * (2 + random.below((kLength - 2'048) / kBlockSize - 2));
    expect(put(i, tails[i]) == 2, "insert_tail_snapshot: the earlier tail and its sibling");
    tree.release_matched(prompts[i], kBlockSize, match.matched_tokens, 0);
  });
  expect(tree.snapshot_count() == 2 * prompts.size(), "snapshot_count");
  expect(next_slot <= 2 * prompts.size() + 2, "slots: more in use than there are snapshots");
}

// Nothing is ever found: each prompt of 512 to 8,192 tokens is new, and the pool of 200,000 blocks is full. An
// operation is a lookup that misses, the insert, the release, and the evictions.
void inserts_with_constant_eviction(benchmark::State& state, const Settings& settings) {
  const std::size_t pool_blocks = settings.sized(200'000, 2'000);
  constexpr std::size_t kLongest = 8'192;
  TokenMemory prompt(kLongest);
  Random random(320);
  random.fill(prompt.tokens());
  std::vector<BlockId> blocks(kLongest / kBlockSize);
  RadixTree tree;
  std::size_t cached = 0;
  TokenId number = 0;
  const auto insert_new = [&] {
    const auto tokens = prompt.tokens().first(512 + random.below(kLongest - 512 + 1));
    tokens[0] = number++;
    expect(tree.lookup(tokens, kBlockSize, 0, 0).empty(), "lookup: matched what was never inserted");
    const std::size_t acquired = tree.insert(tokens, blocks, {}, kBlockSize, 0, 0).blocks.size();
    expect(acquired == tokens.size() / kBlockSize, "insert: blocks acquired");
    tree.release(tokens, kBlockSize, 0);
    cached += acquired;
  };
  while (cached < pool_blocks) insert_new();
  measure_in_m(state, [&] {
    insert_new();
    const std::size_t over = cached - pool_blocks;
    expect(tree.evict(over).size() == over, "evict: blocks evicted");
    cached = pool_blocks;
  });
  expect(tree.stats().cached_blocks == cached, "stats: cached blocks");
}

}  // namespace cairn::bench
