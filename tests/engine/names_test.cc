// What keeps requests apart: adapter, generation and salt, and what placeholder tokens stand for.
#include <array>
#include <map>
#include <tuple>

#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using NamesTest = AttentionTest;
using MediaTest = AttentionTest;

using Identity = std::tuple<std::string, std::uint64_t, std::string>;  // adapter, generation, salt

Request of(const Identity& identity, const Tokens& prompt) {
  return {.tokens = prompt,
          .adapter = std::get<0>(identity),
          .adapter_generation = std::get<1>(identity),
          .tenant_salt = std::get<2>(identity)};
}

// ---- Adapters, generations, salts ----

TEST_F(NamesTest, DifferentAdaptersGenerationsAndSaltsShareNothing) {
  const std::vector<Identity> identities = {
      {"", 0, ""},
      {"", 1, ""},
      {"", 0, "x"},
      {"lora", 0, ""},
      {"lora", 1, ""},
      {"lora", 0, "x"},
      {"lorax", 0, ""},
      {"lor", 0, "ax"},
      {"x", 0, "lora"},
      {"", 0, "lorax"},
      {std::string("lora\0x", 6), 0, ""},
  };
  start({.blocks = 64});
  const Tokens prompt = tokens("aaaa bbbb c");
  for (const Identity& identity : identities) {
    EXPECT_EQ(matched(of(identity, prompt)), 0U);
    const Lease lease = admit(of(identity, prompt));
    EXPECT_EQ(lease.first_token_to_compute(), 0U);
    cache(of(identity, prompt));
  }
  for (const Identity& identity : identities) EXPECT_EQ(matched(of(identity, prompt)), 8U);
  EXPECT_EQ(used_blocks(), 2 * identities.size());
}

TEST_F(NamesTest, AnUnknownAdapterPeeksAtNothingAndStaysUnknown) {
  cache({.tokens = tokens("aaaa b")});
  EXPECT_EQ(matched({.tokens = tokens("aaaa b"), .adapter = "lora"}), 0U);
  EXPECT_EQ(manager().clear("lora").adapters, 0U);
}

TEST_F(NamesTest, AForgottenNameIsNeverGivenWhatIsAnothers) {
  start({.blocks = 12}, {.adapters_max = 1});
  const std::vector<Identity> identities = {{"a", 0, ""}, {"b", 0, ""}, {"a", 1, ""}, {"a", 0, "s"}, {"", 0, "s"}};
  const Tokens prompt = tokens("pppp qqqq r");
  std::map<BlockId, Identity> wrote;
  std::size_t reused = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    const Identity& identity = identities[(i / 2 * 7 + i / 18) % identities.size()];
    Lease lease = admit(of(identity, prompt));
    const std::size_t shared = lease.first_token_to_compute() / kBlockSize;
    for (std::size_t b = 0; b < lease.block_table().size(); ++b) {
      const BlockId block = lease.block_table()[b];
      if (b < shared) {
        EXPECT_EQ(wrote[block], identity);
      } else {
        wrote[block] = identity;
      }
    }
    reused += shared;
    compute(lease);
    lease.finish();
    ASSERT_EQ(manager().validate(), "");
  }
  EXPECT_GT(reused, 0U) << "the one that is remembered is found";
}

TEST_F(NamesTest, TheNameIdleLongestIsForgottenFirst) {
  start({.blocks = 32}, {.adapters_max = 2});
  const Tokens prompt = tokens("aaaa b");
  cache({.tokens = prompt, .adapter = "one"});
  cache({.tokens = prompt, .adapter = "two"});
  (void)admit({.tokens = prompt, .adapter = "one"});
  cache({.tokens = prompt, .adapter = "three"});
  EXPECT_EQ(matched({.tokens = prompt, .adapter = "one"}), 4U);
  EXPECT_EQ(matched({.tokens = prompt, .adapter = "two"}), 0U);
  EXPECT_EQ(matched({.tokens = prompt, .adapter = "three"}), 4U);
  EXPECT_EQ(used_blocks(), 3U) << "what it had cached stays until it is evicted";
}

TEST_F(NamesTest, WhatAForgottenNameHadCachedIsEvictedInItsTurn) {
  start({.blocks = 4}, {.adapters_max = 0});
  cache({.tokens = tokens("aaaa bbbb c"), .adapter = "lora"});
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb c"), .adapter = "lora"}), 0U);
  EXPECT_EQ(used_blocks(), 2U);
  EXPECT_TRUE(manager().admit({.tokens = tokens("xxxx xxxx xxxx xxxx")}).lease);
}

TEST_F(NamesTest, ANameInUseIsNotForgotten) {
  start({.blocks = 32}, {.adapters_max = 0});
  const Tokens prompt = tokens("aaaa b");
  Lease running = admit({.tokens = prompt, .adapter = "lora"});
  compute(running);
  running.publish();
  for (const char* other : {"one", "two", "three"}) cache({.tokens = prompt, .adapter = other});
  EXPECT_EQ(matched({.tokens = prompt, .adapter = "lora"}), 4U);
  running.finish();
  EXPECT_EQ(matched({.tokens = prompt, .adapter = "lora"}), 0U);
}

TEST_F(NamesTest, ARefusedAdmissionLeavesNoUseOfItsName) {
  start({.blocks = 1}, {.adapters_max = 0});
  EXPECT_FALSE(manager().admit({.tokens = tokens("aaaa b"), .adapter = "lora"}).lease);
  EXPECT_EQ(manager().clear("lora").adapters, 0U) << "idle, and so forgotten";
}

TEST_F(NamesTest, ClearOfAnAdapterClearsAllItsGenerationsAndSaltsAndNoOther) {
  const Tokens prompt = tokens("aaaa bbbb c");
  const std::vector<Identity> cleared = {{"lora", 0, ""}, {"lora", 3, ""}, {"lora", 3, "s"}};
  const std::vector<Identity> kept = {{"", 0, ""}, {"lor", 0, ""}, {"", 0, "s"}};
  for (const auto& identities : {cleared, kept}) {
    for (const Identity& identity : identities) cache(of(identity, prompt));
  }
  const ClearReport report = manager().clear("lora");
  EXPECT_EQ(report.adapters, 3U);
  EXPECT_EQ(report.blocks, 6U);
  EXPECT_EQ(report.blocks_held, 0U);
  EXPECT_EQ(used_blocks(), 6U);
  for (const Identity& identity : cleared) EXPECT_EQ(matched(of(identity, prompt)), 0U);
  for (const Identity& identity : kept) EXPECT_EQ(matched(of(identity, prompt)), 8U);
}

TEST_F(NamesTest, ClearOfTheBaseModelTakesItsSaltsAlong) {
  const Tokens prompt = tokens("aaaa b");
  cache({.tokens = prompt});
  cache({.tokens = prompt, .tenant_salt = "s"});
  cache({.tokens = prompt, .adapter = "lora"});
  EXPECT_EQ(manager().clear("").blocks, 2U);
  EXPECT_EQ(matched({.tokens = prompt}), 0U);
  EXPECT_EQ(matched({.tokens = prompt, .tenant_salt = "s"}), 0U);
  EXPECT_EQ(matched({.tokens = prompt, .adapter = "lora"}), 4U);
}

// ---- Media ----

constexpr TokenId kPlaceholder = 'p';
constexpr std::array<std::uint64_t, 2> kCat = {1, 2};
constexpr std::array<std::uint64_t, 2> kDog = {1, 3};
constexpr std::array<std::uint64_t, 2> kBird = {9, 2};

TEST_F(MediaTest, TheSamePlaceholdersWithAnotherContentDoNotMatch) {
  const Tokens prompt = tokens("aaaa bppp pppp pccc d");
  const MediaSpan cat[] = {{.position = 5, .length = 8, .content_id = kCat}};
  cache({.tokens = prompt, .media = cat});
  EXPECT_EQ(matched({.tokens = prompt, .media = cat}), 16U);
  for (const auto& content : {kDog, kBird}) {
    const MediaSpan other[] = {{.position = 5, .length = 8, .content_id = content}};
    EXPECT_EQ(matched({.tokens = prompt, .media = other}), 4U) << "up to the medium";
    EXPECT_EQ(admit({.tokens = prompt, .media = other}).first_token_to_compute(), 4U);
  }
  EXPECT_EQ(matched({.tokens = prompt}), 4U) << "plain tokens are no medium";
}

TEST_F(MediaTest, AMediumWithinABlockKeepsThatBlockApart) {
  const Tokens prompt = tokens("aapa b");
  const MediaSpan cat[] = {{.position = 2, .length = 1, .content_id = kCat}};
  const MediaSpan dog[] = {{.position = 2, .length = 1, .content_id = kDog}};
  cache({.tokens = prompt, .media = cat});
  EXPECT_EQ(matched({.tokens = prompt, .media = cat}), 4U);
  EXPECT_EQ(matched({.tokens = prompt, .media = dog}), 0U);
}

TEST_F(MediaTest, TheSameContentMatchesWhateverItsPlaceholdersAre) {
  const MediaSpan cat[] = {{.position = 0, .length = 4, .content_id = kCat}};
  cache({.tokens = tokens("pppp aaaa b"), .media = cat});
  EXPECT_EQ(matched({.tokens = tokens("qqqq aaaa b"), .media = cat}), 8U);
}

TEST_F(MediaTest, LengthAndPositionCount) {
  const Tokens prompt = tokens("pppp pppp a");
  const MediaSpan cat[] = {{.position = 0, .length = 6, .content_id = kCat}};
  cache({.tokens = prompt, .media = cat});
  const MediaSpan shorter[] = {{.position = 0, .length = 5, .content_id = kCat}};
  const MediaSpan longer[] = {{.position = 0, .length = 7, .content_id = kCat}};
  const MediaSpan later[] = {{.position = 1, .length = 6, .content_id = kCat}};
  const MediaSpan twice[] = {{.position = 0, .length = 3, .content_id = kCat},
                             {.position = 3, .length = 3, .content_id = kCat}};
  EXPECT_EQ(matched({.tokens = prompt, .media = cat}), 8U);
  for (const std::span<const MediaSpan> media :
       {std::span<const MediaSpan>(shorter), std::span<const MediaSpan>(longer), std::span<const MediaSpan>(later),
        std::span<const MediaSpan>(twice)}) {
    EXPECT_EQ(matched({.tokens = prompt, .media = media}), 0U);
    EXPECT_EQ(admit({.tokens = prompt, .media = media}).first_token_to_compute(), 0U);
  }
}

TEST_F(MediaTest, SeveralMediaAreToldApartEachByItsOwn) {
  const Tokens prompt = tokens("pppp aaaa pppp b");
  const auto media = [](const auto& first, const auto& second) {
    return std::array{MediaSpan{.position = 0, .length = 4, .content_id = first},
                      MediaSpan{.position = 8, .length = 4, .content_id = second}};
  };
  const auto cat_dog = media(kCat, kDog);
  const auto cat_cat = media(kCat, kCat);
  const auto dog_cat = media(kDog, kCat);
  cache({.tokens = prompt, .media = cat_dog});
  EXPECT_EQ(matched({.tokens = prompt, .media = cat_dog}), 12U);
  EXPECT_EQ(matched({.tokens = prompt, .media = cat_cat}), 8U);
  EXPECT_EQ(matched({.tokens = prompt, .media = dog_cat}), 0U);
}

TEST_F(MediaTest, ReservedTokensAreRefusedWhereverTheyAre) {
  constexpr TokenId kReserved = TokenId{1} << 31;
  const MediaSpan cat[] = {{.position = 0, .length = 4, .content_id = kCat}};
  cache({.tokens = tokens("pppp aaaa b"), .media = cat});
  // What stands for the medium in the index can't be asked for by its tokens.
  const TokenId first_content = kReserved + (TokenId{1} << 20);
  const Tokens forged = {first_content, kReserved + 1, kReserved + 2, kReserved + 3, 'a', 'a', 'a', 'a', 'b'};
  expect_refusal([&] { (void)manager().admit({.tokens = forged}); },
                 {"tokens", std::to_string(first_content), "2^31"});
  expect_refusal([&] { (void)manager().peek({.tokens = forged}); }, {"tokens", std::to_string(first_content), "2^31"});

  cache({.tokens = tokens("aaaa bbbb c")});
  for (std::size_t place = 0; place < 9; ++place) {
    Tokens prompt = tokens("aaaa bbbb c");
    prompt[place] = kReserved;
    const std::string token = "token " + std::to_string(place);
    expect_refusal([&] { (void)manager().admit({.tokens = prompt}); }, {"tokens", token, "2147483648", "2^31"});
  }
  Tokens placeholder = tokens("pppp aaaa b");
  placeholder[1] = kReserved;
  expect_refusal([&] { (void)manager().admit({.tokens = placeholder, .media = cat}); }, {"tokens", "2147483648"});
  EXPECT_EQ(stats().live_leases, 0U);
  cache({.tokens = Tokens(5, kReserved - 1)});
  EXPECT_EQ(matched({.tokens = Tokens(5, kReserved - 1)}), 4U);
}

TEST_F(MediaTest, DecodedTokensThatAreReservedAreRefused) {
  Lease lease = admit({.tokens = tokens("aaaa")});
  const Tokens bad = {7, TokenId{1} << 31};
  expect_refusal([&] { lease.append(bad); }, {"tokens", "2147483648"});
  expect_refusal([&] { lease.draft(bad); }, {"tokens", "2147483648"});
  EXPECT_EQ(lease.tokens(), 4U);
}

TEST_F(MediaTest, AForgottenMediumIsNotFoundAndNeverAnothers) {
  start({.blocks = 16}, {.media_max = 1});
  const Tokens prompt = tokens("pppp aaaa b");
  const auto showing = [](const auto& content) {
    return std::array{MediaSpan{.position = 0, .length = 4, .content_id = content}};
  };
  const auto cat = showing(kCat);
  const auto dog = showing(kDog);
  const auto bird = showing(kBird);
  cache({.tokens = prompt, .media = cat});
  EXPECT_EQ(matched({.tokens = prompt, .media = cat}), 8U);
  cache({.tokens = prompt, .media = dog});
  EXPECT_EQ(matched({.tokens = prompt, .media = dog}), 8U);
  EXPECT_EQ(matched({.tokens = prompt, .media = cat}), 0U);
  for (const auto& media : {cat, bird, cat, dog, bird}) {
    EXPECT_EQ(admit({.tokens = prompt, .media = media}).first_token_to_compute(), 0U);
  }
}

TEST_F(MediaTest, AMediumInUseIsNotForgotten) {
  start({.blocks = 32}, {.media_max = 0});
  const Tokens prompt = tokens("pppp aaaa b");
  const MediaSpan cat[] = {{.position = 0, .length = 4, .content_id = kCat}};
  const MediaSpan dog[] = {{.position = 0, .length = 4, .content_id = kDog}};
  Lease running = admit({.tokens = prompt, .media = cat});
  compute(running);
  running.publish();
  cache({.tokens = prompt, .media = dog});
  EXPECT_EQ(matched({.tokens = prompt, .media = cat}), 8U);
  EXPECT_EQ(matched({.tokens = prompt, .media = dog}), 0U);
}

TEST_F(MediaTest, MediaThatCannotBeAreRefused) {
  const Tokens prompt(10, kPlaceholder);
  const auto refused = [&](std::vector<MediaSpan> media, std::initializer_list<std::string_view> parts) {
    expect_refusal([&] { (void)manager().admit({.tokens = prompt, .media = media}); }, parts);
    expect_refusal([&] { (void)manager().peek({.tokens = prompt, .media = media}); }, parts);
  };
  refused({{.position = 3, .length = 0}}, {"media", "[3, +0)", "1 to 2^20"});
  refused({{.position = 0, .length = (1U << 20) + 1}}, {"media", "[0, +1048577)", "1 to 2^20"});
  refused({{.position = 3, .length = 8}}, {"media", "[3, +8)", "10 tokens"});
  refused({{.position = 11, .length = 1}}, {"media", "[11, +1)", "10 tokens"});
  refused({{.position = ~std::size_t{0}, .length = 2}}, {"media", "10 tokens"});
  refused({{.position = 0, .length = 4}, {.position = 3, .length = 2}}, {"media", "[3, +2)", "overlaps"});
  refused({{.position = 5, .length = 2}, {.position = 0, .length = 2}}, {"media", "[0, +2)", "before"});
  EXPECT_EQ(stats().requests, 0U);
}

}  // namespace
}  // namespace cairn
