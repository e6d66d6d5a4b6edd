// Tokens as edges keep them: what was written is read and found again, in both forms.
#include "index/stored_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

namespace cairn {
namespace {

constexpr std::size_t kGroup = StoredTokens::kGroup;
constexpr TokenId kFirstNotPacked = 1U << 24;

class Kept {
 public:
  Kept(const std::vector<TokenId>& tokens, TokenForm form)
      : words_(StoredTokens::num_words(tokens.size(), form)), stored_(words_.data(), form) {
    fits_ = stored_.write(0, tokens);
  }
  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] StoredTokens get() const { return stored_; }
  [[nodiscard]] std::vector<TokenId> read(std::size_t from, std::size_t count) const {
    std::vector<TokenId> tokens(count);
    stored_.read(from, tokens);
    return tokens;
  }
  // Of whole groups from the first on, by the code for any processor alone.
  [[nodiscard]] std::size_t matching_groups(const std::vector<TokenId>& tokens) const {
    return matching_groups_anywhere(words_.data(), tokens.data(), tokens.size() / kGroup);
  }

 private:
  std::vector<std::uint32_t> words_;
  StoredTokens stored_;
  bool fits_ = false;
};

std::vector<TokenId> random_tokens(std::minstd_rand& random, std::size_t count) {
  constexpr std::array<TokenId, 6> kMost = {1, 2, 0xFF, 0xFFFF, 0x1FFFF, 0xFFFFFF};
  const TokenId most = kMost[random() % kMost.size()];
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>((random() << 16 ^ random()) & most);
  return tokens;
}

// What differs in one bit only, and what no packed token can be.
std::vector<TokenId> others_than(TokenId token) {
  std::vector<TokenId> others;
  for (unsigned bit = 0; bit < 32; ++bit) others.push_back(token ^ 1U << bit);
  for (const TokenId other : {0U, 0xFFFFU, 0x10000U, 0xFFFFFFU, kFirstNotPacked, 0x80000000U, 0xFFFFFFFFU}) {
    if (other != token) others.push_back(other);
  }
  return others;
}

class StoredTokensOf : public ::testing::TestWithParam<TokenForm> {};

TEST_P(StoredTokensOf, ReadsWhatWasWritten) {
  std::minstd_rand random(1);
  for (std::size_t groups = 1; groups <= 200; ++groups) {
    const auto tokens = random_tokens(random, groups * kGroup);
    const Kept kept(tokens, GetParam());
    ASSERT_TRUE(kept.fits()) << groups;
    ASSERT_EQ(kept.get().matching(0, tokens.data(), 0), 0U);
    ASSERT_TRUE(kept.get().start_with({}));
    ASSERT_EQ(kept.read(0, tokens.size()), tokens) << groups;
    const std::size_t skipped = groups / 3 * kGroup;
    ASSERT_EQ(kept.read(skipped, tokens.size() - skipped),
              std::vector<TokenId>(tokens.begin() + static_cast<std::ptrdiff_t>(skipped), tokens.end()));
    ASSERT_EQ(kept.get().matching(0, tokens.data(), tokens.size()), tokens.size()) << groups;
    ASSERT_EQ(kept.get().matching(skipped, tokens.data() + skipped, tokens.size() - skipped), tokens.size() - skipped);
    ASSERT_TRUE(kept.get().start_with(tokens)) << groups;
  }
}

TEST_P(StoredTokensOf, FindsTheFirstDifferenceWhereverItIs) {
  std::minstd_rand random(2);
  for (const std::size_t groups : std::vector<std::size_t>{1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 70}) {
    const auto tokens = random_tokens(random, groups * kGroup);
    const Kept kept(tokens, GetParam());
    auto asked = tokens;
    for (std::size_t first = 0; first < tokens.size(); ++first) {
      for (const TokenId other : others_than(tokens[first])) {
        asked[first] = other;
        ASSERT_EQ(kept.get().matching(0, asked.data(), asked.size()), first) << groups << " groups, " << other;
        ASSERT_FALSE(kept.get().start_with(asked)) << groups << " groups, " << first << ", " << other;
        const std::size_t whole = first / kGroup * kGroup;
        ASSERT_EQ(kept.get().matching(0, asked.data(), whole), whole) << "what is not to be compared differs";
        ASSERT_EQ(kept.get().matching(whole, asked.data() + whole, asked.size() - whole), first - whole);
      }
      asked[first] = tokens[first];
    }
  }
}

TEST_P(StoredTokensOf, CountsTheFirstOfManyDifferences) {
  std::minstd_rand random(3);
  for (std::size_t groups = 1; groups <= 200; ++groups) {
    const auto tokens = random_tokens(random, groups * kGroup);
    const Kept kept(tokens, GetParam());
    const std::size_t first = random() % tokens.size();
    auto asked = tokens;
    for (std::size_t i = first; i < asked.size(); i += 1 + random() % 20) asked[i] ^= 1U << random() % 32;
    ASSERT_EQ(kept.get().matching(0, asked.data(), asked.size()), first) << groups;
  }
}

// Each pair of tokens of a group shares a word.
TEST_P(StoredTokensOf, NeverTakesTwoWrongTokensOfAGroupForTheRightOnes) {
  constexpr std::array<TokenId, 7> kKept = {0, 1, 0xFFFF, 0x10000, 0x12345, 0x800000, 0xFFFFFF};
  for (const TokenId a : kKept) {
    for (const TokenId b : kKept) {
      std::vector<TokenId> tokens(kGroup, a);
      std::fill(tokens.begin() + kGroup / 2, tokens.end(), b);
      const Kept kept(tokens, GetParam());
      for (const TokenId other_a : others_than(a)) {
        for (const TokenId other_b : others_than(b)) {
          for (const std::size_t lane : std::vector<std::size_t>{0, 1, 7}) {
            auto asked = tokens;
            asked[lane] = other_a;
            asked[lane + kGroup / 2] = other_b;
            ASSERT_EQ(kept.get().matching(0, asked.data(), kGroup), lane)
                << a << ' ' << b << ": " << other_a << ' ' << other_b;
            ASSERT_FALSE(kept.get().start_with(asked));
          }
        }
      }
    }
  }
}

TEST_P(StoredTokensOf, IsWrittenPieceByPieceBesideWhatIsThere) {
  std::minstd_rand random(4);
  const auto tokens = random_tokens(random, 40 * kGroup);
  std::vector<std::uint32_t> words(StoredTokens::num_words(tokens.size(), GetParam()) + 1, 0xA5A5A5A5);
  const StoredTokens stored(words.data(), GetParam());
  for (std::size_t at = 0; at < tokens.size();) {
    const auto before = words;
    const std::size_t count = std::min((1 + random() % 5) * kGroup, tokens.size() - at);
    ASSERT_TRUE(stored.write(at, std::span(tokens).subspan(at, count)));
    const auto changed = std::ranges::mismatch(words, before);
    ASSERT_GE(static_cast<std::size_t>(changed.in1 - words.begin()), StoredTokens::num_words(at, GetParam()));
    at += count;
    ASSERT_TRUE(std::equal(words.begin() + static_cast<std::ptrdiff_t>(StoredTokens::num_words(at, GetParam())),
                           words.end(),
                           before.begin() + static_cast<std::ptrdiff_t>(StoredTokens::num_words(at, GetParam()))));
    ASSERT_EQ(stored.matching(0, tokens.data(), at), at);
  }
}

TEST_P(StoredTokensOf, IsCopiedInItsFormAndIntoThePlainOne) {
  std::minstd_rand random(5);
  for (std::size_t groups = 0; groups <= 100; ++groups) {
    const auto tokens = random_tokens(random, groups * kGroup);
    const Kept kept(tokens, GetParam());
    for (const TokenForm form : {GetParam(), TokenForm::kPlain}) {
      const Kept copy(std::vector<TokenId>(tokens.size() + kGroup), form);
      copy.get().copy_from(kept.get(), tokens.size());
      ASSERT_EQ(copy.read(0, tokens.size()), tokens) << groups;
      ASSERT_EQ(copy.read(tokens.size(), kGroup), std::vector<TokenId>(kGroup)) << groups;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BothForms, StoredTokensOf, ::testing::Values(TokenForm::kPlain, TokenForm::kPacked),
                         [](const auto& of) { return of.param == TokenForm::kPlain ? "Plain" : "Packed"; });

TEST(StoredTokens, RefusesToPackWhatHasMoreThan24Bits) {
  std::minstd_rand random(6);
  for (const std::size_t groups : std::vector<std::size_t>{1, 2, 5}) {
    auto tokens = random_tokens(random, groups * kGroup);
    for (TokenId& token : tokens) {
      const TokenId right = token;
      token = kFirstNotPacked - 1;
      EXPECT_TRUE(Kept(tokens, TokenForm::kPacked).fits());
      for (const TokenId wide : {kFirstNotPacked, kFirstNotPacked + 1, 0x80000000U, 0xFFFFFFFFU}) {
        token = wide;
        EXPECT_FALSE(Kept(tokens, TokenForm::kPacked).fits()) << wide;
        const Kept plain(tokens, TokenForm::kPlain);
        EXPECT_TRUE(plain.fits());
        EXPECT_EQ(plain.read(0, tokens.size()), tokens);
      }
      token = right;
    }
  }
}

TEST(StoredTokens, TakesThreeQuartersOfTheMemoryPacked) {
  EXPECT_EQ(StoredTokens::num_words(160, TokenForm::kPacked), 120U);
  EXPECT_EQ(StoredTokens::num_words(160, TokenForm::kPlain), 160U);
}

TEST(StoredTokens, IsPackedWhereBlocksAreWholeGroups) {
  for (const std::size_t block_size : std::vector<std::size_t>{16, 32, 48, 64, 256, 1024}) {
    EXPECT_EQ(StoredTokens::form_for(block_size), TokenForm::kPacked) << block_size;
  }
  for (const std::size_t block_size : std::vector<std::size_t>{1, 2, 4, 8, 15, 17, 24, 40}) {
    EXPECT_EQ(StoredTokens::form_for(block_size), TokenForm::kPlain) << block_size;
  }
}

// matching() takes the code for the processor it runs on: the other one here.
TEST(StoredTokens, IsComparedAlikeOnEveryProcessor) {
  std::minstd_rand random(7);
  for (std::size_t groups = 0; groups <= 200; ++groups) {
    const auto tokens = random_tokens(random, groups * kGroup);
    const Kept kept(tokens, TokenForm::kPacked);
    ASSERT_EQ(kept.matching_groups(tokens), groups);
    if (groups == 0) continue;
    for (std::size_t i = 0; i < 60; ++i) {
      auto asked = tokens;
      const std::size_t first = random() % asked.size();
      const auto others = others_than(asked[first]);
      const TokenId was = asked[first];
      asked[first] = others[random() % others.size()];
      if (first % kGroup < kGroup / 2) asked[first + kGroup / 2] ^= (asked[first] ^ was) >> 24 << 16;  // to hide it
      ASSERT_EQ(kept.matching_groups(asked), first / kGroup) << groups << " groups, " << first;
      ASSERT_EQ(kept.get().matching(0, asked.data(), asked.size()), first);
    }
  }
}

}  // namespace
}  // namespace cairn
