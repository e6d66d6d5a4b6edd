#include "replay/block_id_expander.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "replay/errors.h"

namespace cairn::replay {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::uint64_t>;

std::vector<TokenId> tokens_of(BlockIdExpander& expander, const Ids& ids, std::uint64_t input_length) {
  Workload workload;
  workload.add({}, expander.expand(ids, input_length), {});
  std::vector<TokenId> tokens;
  workload.prompt(0, tokens);
  return tokens;
}

std::string reason_of(BlockIdExpander& expander, const Ids& ids, std::uint64_t input_length) {
  try {
    static_cast<void>(expander.expand(ids, input_length));
  } catch (const BadLineError& error) {
    return error.what();
  }
  return "";
}

struct Prompt {
  Ids ids;
  std::size_t length = 0;
  std::vector<TokenId> tokens;
};

// How many tokens two prompts share according to their ids: equal ids at equal places share what both cover.
std::size_t shared_by_ids(const Prompt& a, const Prompt& b, std::size_t block) {
  std::size_t shared = 0;
  for (std::size_t i = 0; i < std::min(a.ids.size(), b.ids.size()) && a.ids[i] == b.ids[i]; ++i) {
    shared += std::min({block, a.length - i * block, b.length - i * block});
  }
  return shared;
}

std::size_t shared_by_tokens(const Prompt& a, const Prompt& b) {
  const auto [end, unused] = std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
  return static_cast<std::size_t>(end - a.tokens.begin());
}

// Prompts over a random tree of ids: with few children per node, prefixes repeat often. The last block is partial,
// full, or followed by tokens of the request's own.
std::vector<Prompt> random_prompts(BlockIdExpander& expander, std::size_t block, bool chained, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Prompt> prompts;
  for (int i = 0; i < 60; ++i) {
    Prompt prompt;
    std::uint64_t path = 1;
    for (std::size_t depth = 1 + random() % 6; depth > 0; --depth) {
      const std::uint64_t child = random() % 2;
      path = path * 2 + child;
      prompt.ids.push_back(chained ? path : child);
    }
    prompt.length = (prompt.ids.size() - 1) * block + 1 + random() % (2 * block);
    prompt.tokens = tokens_of(expander, prompt.ids, prompt.length);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

TEST(BlockIdExpander, PromptsShareExactlyTheTokensThatTheirIdsSay) {
  for (const std::size_t block : {1U, 2U, 7U, 64U}) {
    for (const BlockIdKind kind : {BlockIdKind::kChained, BlockIdKind::kPlain}) {
      TokenIdAllocator token_ids;
      BlockIdExpander expander(token_ids, block, kind);
      const std::vector<Prompt> prompts = random_prompts(expander, block, kind == BlockIdKind::kChained, 11);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        ASSERT_EQ(prompts[i].tokens.size(), prompts[i].length);
        for (std::size_t k = 0; k < i; ++k) {
          ASSERT_EQ(shared_by_tokens(prompts[i], prompts[k]), shared_by_ids(prompts[i], prompts[k], block))
              << "block " << block << ", prompts " << i << " and " << k;
        }
      }
    }
  }
}

TEST(BlockIdExpander, BlocksOfDifferentIdsShareNoToken) {
  TokenIdAllocator token_ids;
  BlockIdExpander expander(token_ids, 5, BlockIdKind::kPlain);
  const std::vector<TokenId> tokens = tokens_of(expander, {9, 3, 7, 1}, 23);  // the last 3 tokens are its own
  EXPECT_EQ(std::set<TokenId>(tokens.begin(), tokens.end()).size(), 23U);
}

TEST(BlockIdExpander, TokensThatNoIdCoversAreTheRequestsOwn) {
  TokenIdAllocator token_ids;
  BlockIdExpander expander(token_ids, 4, BlockIdKind::kChained);
  const std::vector<TokenId> first = tokens_of(expander, {1}, 6);
  const std::vector<TokenId> second = tokens_of(expander, {1}, 6);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 4, second.begin()));
  EXPECT_NE(first[4], second[4]);
  EXPECT_NE(first[5], second[5]);
}

TEST(BlockIdExpander, AnIdMayStandForPartialBlocksOfSeveralLengths) {
  TokenIdAllocator token_ids;
  BlockIdExpander expander(token_ids, 4, BlockIdKind::kChained);
  const std::vector<TokenId> partial = tokens_of(expander, {1, 2}, 6);
  const std::vector<TokenId> full = tokens_of(expander, {1, 2}, 8);
  EXPECT_TRUE(std::equal(partial.begin(), partial.end(), full.begin()));
}

TEST(BlockIdExpander, RefusesLengthsThatTheIdsDoNotAllow) {
  TokenIdAllocator token_ids;
  BlockIdExpander expander(token_ids, 4, BlockIdKind::kChained);
  EXPECT_THAT(reason_of(expander, {1, 2}, 4), HasSubstr("input_length 4: too short for 2 hash_ids of 4 tokens"));
  EXPECT_EQ(reason_of(expander, {1, 2}, 5), "");
  EXPECT_THAT(reason_of(expander, {}, 0), HasSubstr("input_length 0"));
  EXPECT_EQ(reason_of(expander, {}, 1), "");
  EXPECT_THAT(reason_of(expander, {1}, kSequenceTokensMax + 1), HasSubstr("at most 16777216 tokens"));
}

TEST(BlockIdExpander, ChainedIdsMustKeepTheirPredecessor) {
  TokenIdAllocator token_ids;
  BlockIdExpander expander(token_ids, 4, BlockIdKind::kChained);
  ASSERT_EQ(reason_of(expander, {1, 2, 3}, 12), "");
  EXPECT_THAT(reason_of(expander, {1, 3}, 8), HasSubstr("hash id 3 stands after id 1, but was first seen after id 2"));
  EXPECT_THAT(reason_of(expander, {2}, 4),
              HasSubstr("hash id 2 stands at the start of a prompt, but was first seen after id 1"));
  EXPECT_THAT(reason_of(expander, {8, 8}, 8),
              HasSubstr("hash id 8 stands after id 8, but was first seen at the start of a prompt"));
}

TEST(BlockIdExpander, ARefusedPromptLeavesNothingBehind) {
  TokenIdAllocator token_ids;
  BlockIdExpander expander(token_ids, 4, BlockIdKind::kChained);
  ASSERT_EQ(reason_of(expander, {1, 2}, 8), "");
  const std::uint64_t used = token_ids.used();
  ASSERT_NE(reason_of(expander, {1, 5, 6, 2}, 16), "");
  EXPECT_EQ(token_ids.used(), used);
  EXPECT_EQ(reason_of(expander, {6, 5}, 8), "") << "5 and 6 were not seen yet";
}

TEST(BlockIdExpander, SaysWhenTheTokenIdsAreUsedUp) {
  TokenIdAllocator token_ids;
  BlockIdExpander expander(token_ids, 1U << 24, BlockIdKind::kPlain);
  for (std::uint64_t id = 0; id < 256; ++id) ASSERT_EQ(reason_of(expander, {id}, 1), "") << id;
  EXPECT_THROW(static_cast<void>(expander.expand(Ids{256}, 1)), std::length_error);
  EXPECT_EQ(reason_of(expander, {255}, 1), "");
}

TEST(BlockIdExpander, RefusesAnImpossibleBlockSize) {
  TokenIdAllocator token_ids;
  EXPECT_THROW(BlockIdExpander(token_ids, 0, BlockIdKind::kPlain), std::invalid_argument);
  EXPECT_THROW(BlockIdExpander(token_ids, kSequenceTokensMax + 1, BlockIdKind::kPlain), std::invalid_argument);
}

}  // namespace
}  // namespace cairn::replay
