#include "replay/verifying_model.h"

#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace cairn::replay {
namespace {

using Bytes = std::vector<std::byte>;

ModelSequence model_of(const std::vector<TokenId>& tokens) {
  return ModelSequence({.tokens = tokens});
}

std::vector<std::uint64_t> words(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> words(bytes.size() / 8);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

std::vector<std::uint64_t> kv(const ModelSequence& model) {
  return words(model.kv(0, model.tokens()));
}

Bytes state(const ModelSequence& model, std::size_t tokens, std::size_t shard, std::size_t bytes) {
  Bytes out(bytes);
  model.state(tokens, shard, out);
  return out;
}

std::uint64_t xxh3(std::vector<std::uint64_t> input, std::uint64_t seed) {
  return XXH3_64bits_withSeed(input.data(), input.size() * 8, seed);
}

std::uint64_t xxh3_of_text(const std::string& input, std::uint64_t seed) {
  return XXH3_64bits_withSeed(input.data(), input.size(), seed);
}

TEST(VerifyingModel, KvIsTheDigestChainComputedByHand) {
  const std::vector<TokenId> tokens = {7, 7, 9};
  const ModelSequence model({.tokens = tokens, .adapter = "lora", .adapter_generation = 3, .tenant_salt = "tenant"},
                            5);
  std::uint64_t digest = xxh3({5, 3}, 0);
  digest = xxh3_of_text("lora", xxh3({4}, digest));
  digest = xxh3_of_text("tenant", xxh3({6}, digest));
  std::vector<std::uint64_t> expected;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    digest = xxh3({tokens[i], i}, digest);
    expected.push_back(digest);
  }
  EXPECT_EQ(kv(model), expected);
}

TEST(VerifyingModel, StateIsTheDigestExpandedByShardAndPlace) {
  const std::vector<TokenId> tokens = {1, 2, 3};
  const ModelSequence model = model_of(tokens);
  const std::uint64_t after_two = kv(model)[1];
  const Bytes bytes = state(model, 2, 4, 21);
  const Bytes first_two(bytes.begin(), bytes.begin() + 16);
  EXPECT_EQ(words(first_two), (std::vector<std::uint64_t>{xxh3({4, 0}, after_two), xxh3({4, 8}, after_two)}));
  const std::uint64_t last = xxh3({4, 16}, after_two);
  EXPECT_EQ(std::memcmp(bytes.data() + 16, &last, 5), 0) << "the rest takes the first bytes of one more word";
}

// The values come from a first run: other platforms have to agree.
TEST(VerifyingModel, IsTheSameEverywhere) {
  EXPECT_EQ(kv(model_of({1, 2, 3})),
            (std::vector<std::uint64_t>{112934554176935929U, 5945422593225328590U, 2542986762808601279U}));
}

TEST(VerifyingModel, DependsOnOrderPositionAndAllThatKeepsRequestsApart) {
  const std::vector<TokenId> tokens = {5, 6};
  const std::vector<TokenId> turned = {6, 5};
  const std::vector<TokenId> repeated = {5, 5};
  const std::vector<ModelSequence> models = {
      ModelSequence({.tokens = tokens}),
      ModelSequence({.tokens = turned}),
      ModelSequence({.tokens = tokens, .adapter = "a"}),
      ModelSequence({.tokens = tokens, .tenant_salt = "a"}),
      ModelSequence({.tokens = tokens, .adapter = "ab"}),
      ModelSequence({.tokens = tokens, .adapter = "a", .tenant_salt = "b"}),
      ModelSequence({.tokens = tokens, .adapter_generation = 1}),
      ModelSequence({.tokens = tokens}, 1),
  };
  std::set<std::uint64_t> last;
  for (const ModelSequence& model : models) last.insert(kv(model).back());
  EXPECT_EQ(last.size(), models.size());
  const std::vector<std::uint64_t> twice = kv(ModelSequence({.tokens = repeated}));
  EXPECT_NE(twice[0], twice[1]);
}

TEST(VerifyingModel, AMediumStandsInThePlaceOfItsTokens) {
  const std::vector<TokenId> tokens = {1, 50, 50, 2};
  const std::vector<TokenId> other_placeholder = {1, 60, 60, 2};
  const auto with = [](const std::vector<TokenId>& prompt, std::array<std::uint64_t, 2> content, std::size_t at) {
    const MediaSpan span{.position = at, .length = 2, .content_id = content};
    return kv(ModelSequence({.tokens = prompt, .media = {&span, 1}}));
  };
  const std::vector<std::uint64_t> image = with(tokens, {3, 4}, 1);
  ASSERT_EQ(image.size(), 4U);
  EXPECT_EQ(image, with(other_placeholder, {3, 4}, 1));
  const std::uint64_t item = xxh3({3, 4, 0}, 0) | std::uint64_t{1} << 63;
  EXPECT_EQ(image[1], xxh3({item, 1}, image[0])) << "content id and offset, at position 1";
  for (const std::vector<std::uint64_t>& other : {with(tokens, {4, 3}, 1), kv(model_of(tokens))}) {
    EXPECT_EQ(other[0], image[0]);
    EXPECT_NE(other[1], image[1]);
    EXPECT_NE(other[3], image[3]);
  }
  EXPECT_NE(with(tokens, {3, 4}, 2)[2], image[2]) << "another offset in the medium";
}

TEST(VerifyingModel, EveryWordOfAStateDependsOnTokensAndShard) {
  const ModelSequence model = model_of({1, 2, 3});
  const std::vector<std::uint64_t> one = words(state(model, 2, 0, 800));
  for (const auto& [tokens, shard] : {std::pair{1, 0}, {3, 0}, {2, 1}}) {
    const std::vector<std::uint64_t> other =
        words(state(model, static_cast<std::size_t>(tokens), static_cast<std::size_t>(shard), 800));
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NE(one[i], other[i]) << i;
  }
  EXPECT_EQ(std::set(one.begin(), one.end()).size(), one.size());
}

TEST(VerifyingModel, AppendingAndTruncatingGoAlongTheChain) {
  ModelSequence model = model_of({1, 2});
  const std::vector<TokenId> more = {3, 4};
  model.append(more);
  EXPECT_EQ(kv(model), kv(model_of({1, 2, 3, 4})));
  model.truncate(1);
  EXPECT_EQ(model.tokens(), 1U);
  model.append(more);
  EXPECT_EQ(kv(model), kv(model_of({1, 3, 4})));
  EXPECT_EQ(words(model.kv(1, 2)), (std::vector<std::uint64_t>{kv(model)[1]}));
}

TEST(VerifyingModel, RangesBeyondTheSequenceAreRefused) {
  ModelSequence model = model_of({1, 2});
  Bytes bytes(8);
  EXPECT_THROW((void)model.kv(0, 3), std::out_of_range);
  EXPECT_THROW((void)model.kv(2, 1), std::out_of_range);
  EXPECT_THROW(model.state(3, 0, bytes), std::out_of_range);
  EXPECT_THROW(model.truncate(3), std::out_of_range);
}

}  // namespace
}  // namespace cairn::replay
