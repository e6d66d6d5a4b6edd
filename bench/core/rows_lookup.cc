// Rows 1 to 6: what a cached prompt costs.
#include <algorithm>

#include "bench/core/cached.h"
#include "bench/core/rows.h"
#include "bench/core/snapshots.h"

namespace cairn::bench {
namespace {

constexpr std::size_t kLongPrompt = 32'768;
constexpr std::size_t kShortPrompt = 2'048;
constexpr std::size_t kCalls = 20;  // of long prompts in a batch

Batch lookups_and_releases(RadixTree& tree, std::span<const TokenId> prompt, std::size_t calls) {
  return [&tree, prompt, calls] {
    return cpu_ns_per_call(calls, [&](std::size_t) { lookup_and_release(tree, prompt); });
  };
}

// The releases are not timed.
Batch lookups_alone(RadixTree& tree, std::span<const TokenId> prompt, SessionHash session) {
  return [&tree, prompt, session] {
    const double ns = cpu_ns_per_call(kCalls, [&](std::size_t) {
      expect(tree.lookup(prompt, kBlockSize, session, 0).matched_tokens == prompt.size(), "lookup: matched tokens");
    });
    for (std::size_t i = 0; i < kCalls; ++i) tree.release_matched(prompt, kBlockSize, prompt.size(), 0);
    return ns;
  };
}

// A second copy of the prompts, laid out as a tree has them: what they share is there once.
class SecondCopy {
 public:
  explicit SecondCopy(const Prompts& prompts) : prompts_(prompts), memory_(prompts.distinct_blocks() * kBlockSize) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::span<const TokenId> from = i == 0 ? prompts[0] : prompts[i].subspan(prompts.shared());
      std::copy(from.begin(), from.end(), memory_.tokens().subspan(offset(i)).begin());
    }
  }

  // memcmp of prompt i with its copy.
  [[nodiscard]] bool compare(std::size_t i) const {
    const std::size_t shared = i == 0 ? 0 : prompts_.shared();
    const bool start = shared == 0 || same_bytes(prompts_[i].first(shared), memory_.tokens().first(shared));
    const std::span<const TokenId> rest = prompts_[i].subspan(shared);
    return start && same_bytes(rest, memory_.tokens().subspan(offset(i), rest.size()));
  }

 private:
  [[nodiscard]] std::size_t offset(std::size_t i) const {
    return i == 0 ? 0 : prompts_.length() + (i - 1) * (prompts_.length() - prompts_.shared());
  }

  const Prompts& prompts_;
  TokenMemory memory_;
};

Batch compares(const SecondCopy& copy, const std::vector<std::size_t>& order) {
  return [&] {
    return cpu_ns_per_call(order.size(), [&](std::size_t i) { expect(copy.compare(order[i]), "the copies differ"); });
  };
}

}  // namespace

Measured cached_prompt_alone(const Settings& settings, const MemcmpYardstick& memcmp_128k) {
  const Prompts prompts(1, kLongPrompt, 0, 10);
  RadixTree tree;
  cache(tree, prompts);
  expect_cached(tree, prompts);
  const auto repetitions =
      alternate(settings, lookups_and_releases(tree, prompts[0], kCalls), [&] { return memcmp_128k(); });
  expect_cached(tree, prompts);
  return {Measurement{.name = "1",
                      .what = "lookup + release_matched, cached 32k prompt, alone",
                      .yardstick_name = "M",
                      .ratio_unit = "M",
                      .target = 2.3}
              .of(repetitions)};
}

Measured cached_prompt_by_handle(const Settings& settings, const MemcmpYardstick& memcmp_128k) {
  const Prompts prompts(1, kLongPrompt, 0, 10);
  RadixTree tree;
  cache(tree, prompts);
  const auto repetitions = alternate(
      settings,
      [&] {
        return cpu_ns_per_call(kCalls, [&](std::size_t) {
          RadixTree::Acquired acquired = tree.acquire(prompts[0], 0, 0);
          expect(acquired.handle.tokens() == kLongPrompt, "acquire: tokens held");
          expect(acquired.match.matched_blocks.size() == prompts.blocks_each(), "acquire: matched blocks");
          tree.release(acquired.handle);
        });
      },
      [&] { return memcmp_128k(); });
  expect_cached(tree, prompts);
  expect(tree.evict(prompts.blocks_each()).size() == prompts.blocks_each(), "evict: a use was left behind");
  return {Measurement{.name = "2",
                      .what = "acquire + release by handle, the same",
                      .yardstick_name = "M",
                      .ratio_unit = "M",
                      .target = 1.2}
              .of(repetitions)};
}

Measured prompt_cached_in_turns(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  constexpr std::size_t kTurn = 1'024;
  const Prompts prompts(1, kLongPrompt, 0, 10);
  RadixTree whole;
  cache(whole, prompts);
  RadixTree turns;
  for (std::size_t length = kTurn; length <= kLongPrompt; length += kTurn) {
    const auto turn = prompts[0].first(length);
    const PrefixMatch match = turns.lookup(turn, kBlockSize, 0, 0);
    expect(match.matched_tokens == length - kTurn, "lookup: matched tokens of a turn");
    const std::span<const BlockId> blocks = std::span(prompts.blocks(0)).first(length / kBlockSize);
    const InsertAcquired acquired = turns.insert(turn, blocks, {}, kBlockSize, match.matched_tokens, 0);
    expect(acquired.blocks.size() == kTurn / kBlockSize, "insert: blocks of a turn");
    turns.release(turn, kBlockSize, 0);
  }
  expect_cached(turns, prompts);
  const auto repetitions = alternate(settings, lookups_and_releases(turns, prompts[0], kCalls),
                                     lookups_and_releases(whole, prompts[0], kCalls));
  expect_cached(turns, prompts);
  return {Measurement{.name = "3",
                      .what = "the same prompt cached as 32 turns of 1,024 tokens",
                      .yardstick_name = "row 1",
                      .ratio_unit = "x",
                      .target = 1.05}
              .of(repetitions)};
}

Measured cycling_through_prompts(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  const Prompts prompts(settings.sized(64, 4), kLongPrompt, 2'048, 40);
  const SecondCopy copy(prompts);
  RadixTree tree;
  cache(tree, prompts);
  expect_cached(tree, prompts);
  std::vector<std::size_t> order(prompts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto both = alternate(
      settings,
      [&] { return cpu_ns_per_call(order.size(), [&](std::size_t i) { lookup_and_release(tree, prompts[i]); }); },
      compares(copy, order));
  const auto alone = alternate(
      settings,
      [&] {
        const double ns = cpu_ns_per_call(order.size(), [&](std::size_t i) {
          expect(tree.lookup(prompts[i], kBlockSize, 0, 0).matched_tokens == kLongPrompt, "lookup: matched tokens");
        });
        for (const std::size_t i : order) tree.release_matched(prompts[i], kBlockSize, kLongPrompt, 0);
        return ns;
      },
      compares(copy, order));
  expect_cached(tree, prompts);
  return {Measurement{.name = "4a",
                      .what = "cycling through 64 that share 2,048: lookup + release",
                      .yardstick_name = "same bytes",
                      .ratio_unit = "x",
                      .target = 1.75}
              .of(both),
          Measurement{.name = "4b",
                      .what = "the same, lookup alone",
                      .yardstick_name = "same bytes",
                      .ratio_unit = "x",
                      .target = 1.15}
              .of(alone)};
}

Measured prompts_in_a_large_tree(const Settings& settings, const MemcmpYardstick& memcmp_128k) {
  const Prompts prompts(settings.sized(1'563, 8), kShortPrompt, 0, 50);  // 200,064 blocks
  const SecondCopy copy(prompts);
  RadixTree tree;
  cache(tree, prompts);
  expect_cached(tree, prompts);
  const std::span<const TokenId> hot_prompt = prompts[prompts.size() / 2];
  const auto hot = alternate(settings, lookups_and_releases(tree, hot_prompt, settings.sized(200, 2)),
                             [&] { return memcmp_128k(); });
  const std::vector<std::size_t> order = Random(51).order(prompts.size());
  const auto random = alternate(
      settings,
      [&] {
        return cpu_ns_per_call(order.size(), [&](std::size_t i) { lookup_and_release(tree, prompts[order[i]]); });
      },
      compares(copy, order));
  expect_cached(tree, prompts);
  return {Measurement{.name = "5a",
                      .what = "lookup + release, cached 2k prompt among 200k blocks, hot",
                      .yardstick_name = "M",
                      .ratio_unit = "M",
                      .target = 0.16}
              .of(hot),
          Measurement{.name = "5b",
                      .what = "the same, prompts in random order",
                      .yardstick_name = "same bytes",
                      .ratio_unit = "x",
                      .target = 2.0}
              .of(random)};
}

Measured lookup_among_snapshots(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  const Prompts prompts(1, kLongPrompt, 0, 10);
  const std::size_t count = settings.sized(kManySnapshots, 64);
  RadixTree none;
  RadixTree visible;
  RadixTree invisible;
  for (RadixTree* tree : {&none, &visible, &invisible}) cache(*tree, prompts);
  put_snapshots(visible, prompts[0], {.count = count, .visible_to_all = true});
  put_snapshots(invisible, prompts[0], {.count = count, .visible_to_all = false});
  constexpr SessionHash kNobody = 777;  // no snapshot is this session's
  const PrefixMatch sees = visible.lookup(prompts[0], kBlockSize, kNobody, 0);
  expect(sees.ssm_snapshot_tokens == kLongPrompt, "lookup: the deepest visible snapshot");
  const PrefixMatch sees_none = invisible.lookup(prompts[0], kBlockSize, kNobody, 0);
  expect(!sees_none.ssm_snapshot && !sees_none.ssm_snapshot_tier_key, "lookup: a snapshot of another session");
  const auto with_visible =
      alternate(settings, lookups_alone(visible, prompts[0], kNobody), lookups_alone(none, prompts[0], kNobody));
  const auto with_invisible =
      alternate(settings, lookups_alone(invisible, prompts[0], kNobody), lookups_alone(none, prompts[0], kNobody));
  for (RadixTree* tree : {&none, &visible, &invisible}) expect_cached(*tree, prompts);
  return {Measurement{.name = "6a",
                      .what = "lookup of row 1 among 8,192 snapshots, visible",
                      .yardstick_name = "none",
                      .ratio_unit = "x",
                      .target = 1.1}
              .of(with_visible),
          Measurement{.name = "6b",
                      .what = "the same, snapshots invisible",
                      .yardstick_name = "none",
                      .ratio_unit = "x",
                      .target = 1.1}
              .of(with_invisible)};
}

}  // namespace cairn::bench
