#include "replay/verified_replayer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "replay/builtin_workload.h"
#include "replay/comparison.h"
#include "replay/content_digest.h"
#include "replay/errors.h"
#include "replay/lines.h"

namespace cairn::replay {
namespace {

using testing::HasSubstr;

constexpr std::size_t kBlockSize = 4;

VerifiedResult verify(const std::vector<Line>& lines, std::size_t blocks, VerifiedReplayOptions options = {}) {
  options.replay.block_size = kBlockSize;
  return replay_verified(workload_of(lines), blocks, options);
}

TEST(VerifiedReplayer, CountsWhatIsReusedAndChecksIt) {
  const VerifiedResult result =
      verify({{.prompt = "aaaabbbbcc"}, {.prompt = "aaaabbbb"}, {.prompt = "aaaaxxxx"}}, 100);
  EXPECT_EQ(result.requests, 3U);
  EXPECT_EQ(result.prompt_tokens, 26U);
  EXPECT_EQ(result.matched_tokens, 4U + 4U) << "a lease computes the last token, and with it its block";
  EXPECT_EQ(result.reused_tokens, 4U + 4U);
  EXPECT_EQ(result.computed_tokens, 18U);
  EXPECT_EQ(result.stateless_tokens, 0U);
  EXPECT_EQ(result.published_blocks, 3U);
  EXPECT_EQ(result.deduplicated_blocks, 1U) << "the last block of the second prompt";
  EXPECT_EQ(result.engine.blocks_checked, 3U);
  EXPECT_EQ(result.engine.block_bytes_checked, 3 * kBlockSize * kKvBytesPerToken);
  EXPECT_DOUBLE_EQ(result.reuse_rate(), 8.0 / 26);
}

TEST(VerifiedReplayer, OutputIsComputedTokenByTokenOrHeldInPrivateBlocks) {
  const VerifiedResult known = verify({{.prompt = "aaaabb", .output = "bbccccd"}, {.prompt = "aaaabbbbccccdd"}}, 100);
  EXPECT_EQ(known.reused_tokens, 12U);
  EXPECT_EQ(known.output_tokens, 7U);
  EXPECT_EQ(known.engine.steps, 1U + 7 + 1);
  const VerifiedResult unknown = verify({{.prompt = "aaaabb", .output_length = 5}, {.prompt = "c"}}, 4);
  EXPECT_EQ(unknown.peak_blocks, 4U);
  EXPECT_EQ(unknown.published_blocks, 1U);
  EXPECT_EQ(unknown.engine.steps, 2U);
}

TEST(VerifiedReplayer, RejectsWhatNeverFitsAndWaitsForWhatDoesNotFitNow) {
  const VerifiedResult rejecting =
      verify({{.prompt = "aaaa"}, {.prompt = "bbbbccccd", .output_length = 1}, {.prompt = "aaaax"}}, 3);
  EXPECT_EQ(rejecting.rejected, 1U);
  ASSERT_EQ(rejecting.first_rejected.size(), 1U);
  EXPECT_EQ(rejecting.first_rejected[0].line, 2U);
  EXPECT_EQ(rejecting.first_rejected[0].blocks_needed, 4U);
  EXPECT_EQ(rejecting.prompt_tokens, 9U);
  EXPECT_EQ(rejecting.reused_tokens, 4U);
  const VerifiedResult waiting =
      verify({{.prompt = "aaaabbbb", .output_length = 4}, {.prompt = "ccccdddd"}}, 4, {.replay = {.concurrency = 2}});
  EXPECT_EQ(waiting.waited, 1U);
  EXPECT_EQ(waiting.peak_running, 1U);
  EXPECT_EQ(waiting.evicted_blocks, 0U) << "the private block is enough";
}

TEST(VerifiedReplayer, AHybridModelReusesUpToAStateOnly) {
  const std::vector<Line> lines = {{.prompt = "aaaabbbbccccddddee", .session = 7},
                                   {.prompt = "aaaabbbbccccddddeeeeffffgg", .session = 7},
                                   {.prompt = "aaaabbbbccccddddeeeeffffgg", .session = 8}};
  const VerifiedResult result = verify(lines, 100, {.snapshots = SnapshotOptions{.slots = 10, .slot_bytes = 24}});
  // The tail stands at token 12 of the first prompt; another session does not see it, nor its sibling.
  EXPECT_EQ(result.matched_tokens, 16U + 24);
  EXPECT_EQ(result.reused_tokens, 12U);
  EXPECT_EQ(result.stateless_tokens, 4U + 24);
  EXPECT_EQ(result.engine.states_checked, 1U);
  EXPECT_EQ(result.engine.state_bytes_checked, 24U);
  const VerifiedResult attention = verify(lines, 100);
  EXPECT_EQ(attention.reused_tokens, result.matched_tokens);
  const VerifiedResult checkpoints =
      verify(lines, 100, {.snapshots = SnapshotOptions{.slots = 10, .slot_bytes = 24, .checkpoint_every_tokens = 8}});
  EXPECT_EQ(checkpoints.reused_tokens, 16U + 24) << "both find checkpoints at the end of what matches";
  EXPECT_EQ(checkpoints.stateless_tokens, 0U);
}

TEST(VerifiedReplayer, WithoutSessionsStateIsKeptForEverybody) {
  const VerifiedResult result = verify({{.prompt = "aaaabbbbccccdd"}, {.prompt = "aaaabbbbccccdddd"}}, 100,
                                       {.snapshots = SnapshotOptions{.slots = 10, .slot_bytes = 8}});
  EXPECT_EQ(result.reused_tokens, 8U);
  EXPECT_EQ(result.matched_tokens, 12U);
}

TEST(VerifiedReplayer, ASlotTooFewEvictsAState) {
  const VerifiedResult result =
      verify({{.prompt = "aaaabbbb"}, {.prompt = "ccccdddd"}, {.prompt = "aaaabbbb"}, {.prompt = "aaaabbbb"}}, 100,
             {.snapshots = SnapshotOptions{.slots = 1, .slot_bytes = 8}});
  EXPECT_EQ(result.captures_published, 3U);
  EXPECT_EQ(result.evicted_snapshots, 2U);
  EXPECT_EQ(result.reused_tokens, 4U);
  EXPECT_EQ(result.stateless_tokens, 4U);
}

// ---- Against the replayer of the index alone, which shares no code with leases ----

// What a lease reuses of an unlimited pool, by the digests of the blocks alone: requests come one after the other.
std::uint64_t reused_by_digests(const Workload& workload, std::size_t block_size) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> cached;
  std::uint64_t reused = 0;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    std::vector<TokenId> tokens;
    workload.prompt(i, tokens);
    const std::size_t prompt = tokens.size();
    workload.append_output(i, tokens);
    std::vector<ContentDigest> digests;
    append_digests(tokens, block_size, workload[i].adapter, digests);
    std::size_t match = 0;
    while (match < prompt / block_size && cached.contains({digests[match].low, digests[match].high})) ++match;
    reused += std::min(match * block_size, prompt - 1) / block_size * block_size;
    for (const ContentDigest& digest : digests) cached.insert({digest.low, digest.high});
  }
  return reused;
}

TEST(VerifiedReplayer, WithAnUnlimitedPoolItReusesTheMatchBelowTheLastTokenRoundedDown) {
  for (const std::size_t block_size : {16U, 7U}) {
    const Workload workload = builtin_workload({.requests = 150, .seed = 3});
    const VerifiedReplayOptions options{.replay = {.block_size = block_size}};
    const std::size_t enough =
        count_distinct_blocks(workload, options.replay) + 2 * replay::kSequenceTokensMax / 256 / block_size;
    const VerifiedResult result = replay_verified(workload, enough, options);
    EXPECT_EQ(result.reused_tokens, reused_by_digests(workload, block_size));
    EXPECT_EQ(result.evicted_blocks, 0U);
    EXPECT_EQ(result.published_blocks, count_distinct_blocks(workload, options.replay));
    const Comparison comparison =
        compare(workload, {.pool = PoolSize::parse(std::to_string(enough)), .replay = {.block_size = block_size}});
    const RunResult& lru = comparison.runs[1];
    EXPECT_LE(result.reused_tokens, lru.reused_tokens);
    EXPECT_LT(lru.reused_tokens - result.reused_tokens, block_size * workload.size());
  }
}

TEST(VerifiedReplayer, WithTheSameSmallPoolItAgreesCloselyWithTheIndexAlone) {
  const Workload workload = builtin_workload({.requests = 300, .seed = 1});
  const Comparison comparison = compare(workload, {.pool = PoolSize::parse("15%"), .replay = {.concurrency = 4}});
  const RunResult& lru = comparison.runs[1];
  const VerifiedResult result = replay_verified(workload, comparison.pool_blocks, {.replay = {.concurrency = 4}});
  EXPECT_EQ(result.rejected, lru.rejected);
  EXPECT_EQ(result.prompt_tokens, lru.prompt_tokens);
  EXPECT_GT(result.evicted_blocks, 0U);
  EXPECT_NEAR(static_cast<double>(result.reused_tokens), static_cast<double>(lru.reused_tokens),
              0.01 * static_cast<double>(lru.reused_tokens));
}

TEST(VerifiedReplayer, TheChunksOfThePrefillChangeNoReuse) {
  const Workload workload = builtin_workload({.requests = 60, .seed = 2});
  const auto reused = [&](std::size_t chunk) {
    const VerifiedResult result = replay_verified(
        workload, 60'000,
        {.prefill_chunk_tokens = chunk,
         .snapshots = SnapshotOptions{.slots = 400, .slot_bytes = 64, .checkpoint_every_tokens = 512}});
    return std::pair(result.reused_tokens, result.matched_tokens);
  };
  EXPECT_EQ(reused(100), reused(1'000'000));
}

TEST(VerifiedReplayer, AHybridModelRunsWithSmallPoolsAndOverlap) {
  const Workload workload = builtin_workload({.requests = 200, .seed = 5});
  const std::size_t blocks = count_distinct_blocks(workload, {}) / 5;
  const VerifiedResult result =
      replay_verified(workload, blocks,
                      {.replay = {.service_rate = 30.0},
                       .snapshots = SnapshotOptions{.slots = 50, .slot_bytes = 100, .checkpoint_every_tokens = 1024}});
  EXPECT_GT(result.evicted_blocks, 0U);
  EXPECT_GT(result.evicted_snapshots, 0U);
  EXPECT_GT(result.reused_tokens, 0U);
  EXPECT_GT(result.stateless_tokens, 0U);
  EXPECT_EQ(result.reused_tokens + result.stateless_tokens, result.matched_tokens);
  EXPECT_GT(result.peak_running, 1U);
}

// ---- Calling it wrongly ----

std::string refusal_of(const std::vector<Line>& lines, VerifiedReplayOptions options) {
  try {
    (void)verify(lines, 10, options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

TEST(VerifiedReplayer, RefusesOptionsWithValueAndRule) {
  const std::vector<Line> lines = {{.prompt = "a"}};
  EXPECT_THAT(refusal_of(lines, {.prefill_chunk_tokens = 0}), HasSubstr("prefill_chunk_tokens 0"));
  EXPECT_THAT(refusal_of(lines, {.replay = {.concurrency = 0}}), HasSubstr("concurrency 0"));
  EXPECT_THAT(refusal_of(lines, {.snapshots = SnapshotOptions{}}), HasSubstr("snapshots 0"));
  EXPECT_THAT(refusal_of(lines, {.snapshots = SnapshotOptions{.slots = 1, .slot_bytes = 0}}),
              HasSubstr("snapshot bytes 0"));
  EXPECT_THAT(refusal_of(lines, {.snapshots = SnapshotOptions{.slots = 1, .checkpoint_every_tokens = 6}}),
              HasSubstr("checkpoint_every_tokens 6: must be a multiple of the block size 4"));
  EXPECT_THROW((void)replay_verified(workload_of(lines), 10, {.replay = {.block_size = 0}}), std::invalid_argument);
}

TEST(VerifiedReplayer, NamesTheRequestWhoseTokensAreReserved) {
  for (const bool in_output : {false, true}) {
    Workload workload;
    const std::vector<TokenId> good = {1, 2};
    const std::vector<TokenId> reserved = {TokenId{1} << 31};
    const TokenRun prompt = workload.store(in_output ? good : reserved);
    const TokenRun output = workload.store(in_output ? reserved : good);
    workload.add({.line = 4}, {&prompt, 1}, {&output, 1});
    try {
      (void)replay_verified(workload, 10, {});
      ADD_FAILURE() << "not refused";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("request 1 (line 4)"));
      EXPECT_THAT(error.what(), HasSubstr("2147483648"));
    }
  }
}

}  // namespace
}  // namespace cairn::replay
