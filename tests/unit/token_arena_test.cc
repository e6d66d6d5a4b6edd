// The memory of long runs of tokens.
#include "index/token_arena.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <random>
#include <utility>
#include <vector>

namespace cairn {
namespace {

constexpr std::size_t kStep = TokenArena::kHugePageBytes;
constexpr std::size_t kWordsOfAStep = kStep / sizeof(std::uint32_t);

struct Piece {
  TokenArena::Words words;
  std::size_t count = 0;
  std::uint32_t first = 0;

  [[nodiscard]] bool intact() const {
    for (std::size_t i = 0; i < count; ++i) {
      if (words[i] != first + i) return false;
    }
    return true;
  }
};

Piece make_piece(TokenArena& arena, std::size_t count, std::uint32_t first) {
  Piece piece{arena.make(count), count, first};
  for (std::size_t i = 0; i < count; ++i) piece.words[i] = first + static_cast<std::uint32_t>(i);
  return piece;
}

TEST(TokenArena, KeepsWhatIsWrittenWhileOthersComeAndGo) {
  constexpr std::size_t kSteps = 3'000;
  std::minstd_rand random(1);
  TokenArena arena(4'096);
  std::vector<Piece> pieces;
  for (std::size_t step = 0; step < kSteps; ++step) {
    if (pieces.size() < 100 || random() % 2 == 0) {
      pieces.push_back(make_piece(arena, 1 + random() % 40'000, static_cast<std::uint32_t>(random())));
    } else {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      ASSERT_TRUE(pieces.back().intact()) << "step " << step;
      pieces.pop_back();
    }
  }
  EXPECT_TRUE(std::ranges::all_of(pieces, &Piece::intact));
}

TEST(TokenArena, AlignsLongOnesToCacheLines) {
  TokenArena arena(4'096);
  std::vector<TokenArena::Words> all;
  for (std::size_t count = 1'024; count < 1'100; ++count) {
    all.push_back(arena.make(count));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all.back().get()) % TokenArena::kAlignment, 0U) << count;
  }
}

TEST(TokenArena, LeavesShortOnesToMalloc) {
  TokenArena arena(4'096);
  const TokenArena::Words words = arena.make(1'023);
  EXPECT_EQ(arena.bytes(), 0U);
}

TEST(TokenArena, TakesMemoryOnlyAsItFills) {
  TokenArena arena(4'096);
  std::vector<TokenArena::Words> all;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    all.push_back(arena.make(50'000));
    bytes += 50'000 * sizeof(std::uint32_t);
    EXPECT_GE(arena.bytes(), bytes);
    EXPECT_LE(arena.bytes(), bytes + bytes / 10 + arena.region_count() * kStep);
  }
  EXPECT_LE(arena.region_count(), 5U);
}

TEST(TokenArena, TakesNoMoreMemoryForWhatIsFreedAndMadeAgain) {
  TokenArena arena(4'096);
  std::vector<TokenArena::Words> all;
  for (std::size_t i = 0; i < 100; ++i) all.push_back(arena.make(50'000));
  const std::size_t bytes = arena.bytes();
  for (std::size_t i = 0; i < 1'000; ++i) {
    all[i * 7 % all.size()].reset();
    all[i * 7 % all.size()] = arena.make(50'000);
  }
  EXPECT_EQ(arena.bytes(), bytes);
}

TEST(TokenArena, GivesBackAllButTwoMebibytesWhenEverythingIsFreed) {
  TokenArena arena(4'096);
  std::vector<TokenArena::Words> all;
  for (std::size_t i = 0; i < 100; ++i) all.push_back(arena.make(50'000));
  EXPECT_GT(arena.region_count(), 2U);
  all.clear();
  EXPECT_EQ(arena.bytes(), kStep);
  EXPECT_EQ(arena.region_count(), 1U);
}

TEST(TokenArena, KeepsNothingOfOneThatIsLargerThanThat) {
  TokenArena arena(4'096);
  TokenArena::Words words = arena.make(10 * kWordsOfAStep);
  EXPECT_GE(arena.bytes(), 10 * kStep);
  words.reset();
  EXPECT_EQ(arena.bytes(), 0U);
}

TEST(TokenArena, KeepsOneEmptyRegionWhileAnotherIsInUse) {
  TokenArena arena(4'096);
  const TokenArena::Words first = arena.make(kWordsOfAStep / 2);
  TokenArena::Words second = arena.make(kWordsOfAStep);
  TokenArena::Words third = arena.make(10 * kWordsOfAStep);
  ASSERT_EQ(arena.region_count(), 3U);
  const std::uint32_t* const place = third.get();
  third.reset();
  EXPECT_EQ(arena.region_count(), 3U);
  third = arena.make(10 * kWordsOfAStep);
  EXPECT_EQ(third.get(), place);
  third.reset();
  second.reset();
  EXPECT_EQ(arena.region_count(), 2U) << "the one that got empty before is still there";
}

// In a process of its own, whose address space can't grow by a region.
[[noreturn]] void make_without_address_space() {
  TokenArena arena(4'096);
  std::vector<TokenArena::Words> all;
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = 1;
  ::setrlimit(RLIMIT_AS, &limit);
  std::size_t made = 0;
  try {
    while (true) {
      all.push_back(arena.make(1'024));
      all.back()[1'023] = 1;
      ++made;
    }
  } catch (const std::bad_alloc&) {
    std::_Exit(made > 0 && arena.region_count() == 0 ? 0 : 1);
  }
}

TEST(TokenArenaDeathTest, FallsBackOnMallocThenThrowsWhereNothingCanBeMapped) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs address space itself";
#endif
  std::vector<char> heap(64 << 10);  // freed: what malloc still has for the child
  heap = {};
  EXPECT_EXIT(make_without_address_space(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cairn
