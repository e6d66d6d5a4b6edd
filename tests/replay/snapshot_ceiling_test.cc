#include "replay/snapshot_ceiling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "replay/builtin_workload.h"
#include "replay/lines.h"

namespace cairn::replay {
namespace {

constexpr std::size_t kEnoughBlocks = 60'000;

struct Setting {
  std::size_t block_size = 4;
  SnapshotOptions snapshots{.slot_bytes = 8};
};

SnapshotCeilingOptions ceiling_options(const Setting& setting, std::size_t slots) {
  return {.slots = slots, .replay = {.block_size = setting.block_size}, .snapshots = setting.snapshots};
}

VerifiedResult verify(const Workload& workload, const Setting& setting, std::size_t slots, const std::string& policy) {
  VerifiedReplayOptions options{.replay = {.block_size = setting.block_size}, .snapshots = setting.snapshots};
  options.snapshots->slots = slots;
  choose_policy(*options.snapshots, policy);
  return replay_verified(workload, kEnoughBlocks, options);
}

// Conversations that go on, branch and start over, some of them in sessions.
Workload random_workload(std::uint64_t seed, std::size_t requests) {
  std::mt19937_64 random(seed);
  const auto below = [&random](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<std::string> prompts(4);
  std::vector<Line> lines;
  for (std::size_t i = 0; i < requests; ++i) {
    const std::size_t which = below(prompts.size());
    std::string& prompt = prompts[which];
    if (below(4) == 0) prompt.resize(below(prompt.size() + 1));
    const std::size_t more = 1 + below(14);
    for (std::size_t t = 0; t < more; ++t) prompt += static_cast<char>('a' + below(2));
    lines.push_back({.prompt = prompt, .session = which % 2 == 0 ? 0 : which});
  }
  return workload_of(lines);
}

TEST(SnapshotCeiling, WhatIsReplayedStepByStepIsWhatTheManagerDoes) {
  const Workload builtin = builtin_workload({.requests = 300});
  Setting setting{.block_size = 16, .snapshots = {.slot_bytes = 8, .checkpoint_every_tokens = 512}};
  const BlockTrace blocks(builtin, setting.block_size);
  for (const std::size_t slots : {std::size_t{1}, std::size_t{20}, std::size_t{200}, std::size_t{5000}}) {
    const SnapshotReplay replay = replay_snapshots(builtin, blocks, ceiling_options(setting, slots));
    const VerifiedResult result = verify(builtin, setting, slots, "lru");
    ASSERT_EQ(result.evicted_blocks, 0U);
    EXPECT_EQ(replay.reused_tokens, result.reused_tokens) << slots;
    EXPECT_EQ(replay.captures, result.captures_published) << slots;
    EXPECT_EQ(replay.evicted, result.evicted_snapshots) << slots;
  }
}

TEST(SnapshotCeiling, TheSameForRandomWorkloadsWithAndWithoutEachKindOfCapture) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Workload workload = random_workload(seed, 60);
    Setting setting;
    setting.snapshots.tails = seed % 2 == 0;
    setting.snapshots.siblings = seed % 3 != 0;
    setting.snapshots.branch_points = seed % 5 != 0;
    setting.snapshots.checkpoint_every_tokens = seed % 4 * 4;
    const BlockTrace blocks(workload, setting.block_size);
    for (std::size_t slots = 1; slots < 12; slots += 3) {
      const SnapshotReplay replay = replay_snapshots(workload, blocks, ceiling_options(setting, slots));
      const VerifiedResult result = verify(workload, setting, slots, "lru");
      EXPECT_EQ(replay.reused_tokens, result.reused_tokens) << seed << ", " << slots;
      EXPECT_EQ(replay.evicted, result.evicted_snapshots) << seed << ", " << slots;
    }
  }
}

TEST(SnapshotCeiling, IsExactWhereEachRequestCanUseOnePlace) {
  std::vector<Line> lines;
  for (int i = 0; i < 3; ++i) {
    lines.push_back({.prompt = "aaaabbbbc"});
    lines.push_back({.prompt = "xxxxyyyyz"});
  }
  const Workload workload = workload_of(lines);
  const BlockTrace blocks(workload, 4);
  const SnapshotCeiling one = find_snapshot_ceiling(workload, blocks, ceiling_options({}, 1));
  EXPECT_EQ(one.tokens, 8U) << "of one prompt the tail, twice";
  EXPECT_EQ(one.relaxed_tokens, 8U);
  EXPECT_EQ(one.clairvoyant_tokens, 8U);
  EXPECT_EQ(verify(workload, {}, 1, "lru").reused_tokens, 0U) << "each evicts the other";
  const SnapshotCeiling two = find_snapshot_ceiling(workload, blocks, ceiling_options({}, 2));
  EXPECT_EQ(two.tokens, 16U);
  EXPECT_EQ(two.clairvoyant_tokens, 16U);
  EXPECT_EQ(verify(workload, {}, 2, "lru").reused_tokens, 16U);
}

TEST(SnapshotCeiling, WithSlotsForAllItIsWhatIsReusedThen) {
  const Workload workload = builtin_workload({.requests = 200});
  const Setting setting{.block_size = 16, .snapshots = {.slot_bytes = 8, .checkpoint_every_tokens = 256}};
  const BlockTrace blocks(workload, setting.block_size);
  const SnapshotCeiling ceiling = find_snapshot_ceiling(workload, blocks, ceiling_options(setting, 20'000));
  const VerifiedResult all = verify(workload, setting, 20'000, "lru");
  EXPECT_EQ(all.evicted_snapshots, 0U);
  EXPECT_EQ(ceiling.clairvoyant_tokens, all.reused_tokens);
  EXPECT_GE(ceiling.tokens, all.reused_tokens);
  EXPECT_GE(ceiling.flops, all.saved_flops);
}

TEST(SnapshotCeiling, IsNeverBeatenByAnyPolicy) {
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    const Workload workload = random_workload(seed, 80);
    Setting setting;
    setting.snapshots.checkpoint_every_tokens = seed % 3 * 4;
    const BlockTrace blocks(workload, setting.block_size);
    for (const std::size_t slots : {std::size_t{1}, std::size_t{3}, std::size_t{8}}) {
      SnapshotCeilingOptions options = ceiling_options(setting, slots);
      options.iterations = 100;
      const SnapshotCeiling ceiling = find_snapshot_ceiling(workload, blocks, options);
      EXPECT_GE(ceiling.tokens, ceiling.clairvoyant_tokens) << seed;
      EXPECT_GE(ceiling.tokens, ceiling.relaxed_tokens) << seed;
      EXPECT_GE(ceiling.flops, ceiling.clairvoyant_flops) << seed;
      for (const std::string& policy : replay_policy_names()) {
        const VerifiedResult result = verify(workload, setting, slots, policy);
        EXPECT_GE(ceiling.tokens, result.reused_tokens) << policy << ", " << seed << ", " << slots;
        EXPECT_GE(ceiling.flops, result.saved_flops) << policy << ", " << seed << ", " << slots;
      }
    }
  }
}

TEST(SnapshotCeiling, MorePatienceFindsNoHigherBound) {
  const Workload workload = builtin_workload({.requests = 200});
  const Setting setting{.block_size = 16, .snapshots = {.slot_bytes = 8, .checkpoint_every_tokens = 512}};
  const BlockTrace blocks(workload, setting.block_size);
  SnapshotCeilingOptions options = ceiling_options(setting, 30);
  std::uint64_t before = workload.prompt_tokens();
  for (const std::size_t iterations : {std::size_t{0}, std::size_t{10}, std::size_t{100}, std::size_t{300}}) {
    options.iterations = iterations;
    const SnapshotCeiling ceiling = find_snapshot_ceiling(workload, blocks, options);
    EXPECT_LE(ceiling.tokens, before);
    before = ceiling.tokens;
  }
  options.iterations = 300;
  const SnapshotCeiling ceiling = find_snapshot_ceiling(workload, blocks, options);
  EXPECT_LT(static_cast<double>(ceiling.tokens), 1.1 * static_cast<double>(ceiling.relaxed_tokens));
}

TEST(SnapshotCeiling, WhatItCannotAnswerIsRefused) {
  const Workload workload = workload_of({{.prompt = "aaaabbbb"}});
  const BlockTrace blocks(workload, 4);
  EXPECT_THROW((void)find_snapshot_ceiling(workload, blocks, ceiling_options({}, 0)), std::invalid_argument);
  EXPECT_THROW((void)find_snapshot_ceiling(workload, blocks, ceiling_options({.block_size = 8}, 1)),
               std::invalid_argument);
  EXPECT_THROW((void)find_snapshot_ceiling(workload, blocks, ceiling_options({.snapshots = {.last_token = true}}, 1)),
               std::invalid_argument);
}

// Pinned: the built-in workload is the same on every machine.
TEST(SnapshotPolicies, ReuseSoManyTokensOfTheBuiltInWorkload) {
  const Workload workload = builtin_workload({.requests = 400});
  const Setting setting{.block_size = 16, .snapshots = {.slot_bytes = 8, .checkpoint_every_tokens = 1024}};
  std::vector<std::uint64_t> reused;
  for (const std::string& policy : replay_policy_names()) {
    reused.push_back(verify(workload, setting, 40, policy).reused_tokens);
  }
  EXPECT_THAT(reused, testing::ElementsAre(1'184'880, 2'311'760, 2'139'504, 2'108'864));
}

}  // namespace
}  // namespace cairn::replay
