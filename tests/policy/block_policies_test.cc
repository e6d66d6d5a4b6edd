// What each policy promises, in one example or two. That it does nothing else, naive_policies_test.cc says.
#include <gmock/gmock.h>

#include <stdexcept>

#include "policy/block_cache.h"

namespace cairn::testing {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(BlockPolicies, AreChosenByNameAndTheFirstIsTheDefault) {
  EXPECT_EQ(block_policy_names().front(), RadixTreeOptions().block_policy);
  for (const std::string& name : block_policy_names()) EXPECT_NO_THROW(RadixTree({.block_policy = name})) << name;
  try {
    RadixTree tree({.block_policy = "mru"});
    FAIL() << "there is a policy mru";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("block_policy"));
    EXPECT_THAT(error.what(), HasSubstr("lru"));
  }
}

TEST(BlockPolicies, AllEvictLeavesFirstAndNothingInUse) {
  for (const std::string& name : block_policy_names()) {
    SCOPED_TRACE(name);
    BlockCache cache(name);
    cache.serve({1, 2, 3}, 0);
    cache.serve({1, 2, 4}, 10);
    RadixTree::Acquired held = cache.tree().acquire(Tokens{1, 2, 3}, 0, 0);
    EXPECT_THAT(cache.evict(9), ElementsAre(13));
    cache.tree().release(held.handle);
    EXPECT_THAT(cache.evict(9), ElementsAre(3, 2, 1));
  }
}

TEST(Lru, EvictsWhatWasUsedLongestAgo) {
  BlockCache cache("lru");
  cache.serve({1}, 0);
  cache.serve({2}, 10);
  cache.serve({1}, 20);
  EXPECT_THAT(cache.evict(1), ElementsAre(11));
}

TEST(Lfu, KeepsWhatIsUsedOften) {
  BlockCache cache("lfu");
  for (int i = 0; i < 3; ++i) cache.serve({1}, 0);
  cache.serve({2}, 10);
  cache.serve({3}, 20);
  EXPECT_THAT(cache.evict(2), ElementsAre(11, 21));
}

TEST(Lfu, GivesUpInTheEndWhatWasUsedOftenOnce) {
  BlockCache cache("lfu");
  for (int i = 0; i < 5; ++i) cache.serve({1}, 0);
  // Each that goes makes the cache older, and the next one enters at its age.
  std::size_t outlived = 0;
  for (TokenId other = 100; cache.cached({1}) == 1; ++other, ++outlived) {
    cache.serve({other}, other);
    cache.evict(1);
    ASSERT_LT(outlived, 50U);
  }
  EXPECT_EQ(outlived, 5U);
}

TEST(Slru, AScanDoesNotPushOutWhatWasHit) {
  BlockCache cache("slru");
  cache.serve({1}, 0);
  cache.serve({1}, 0);
  for (TokenId once = 100; once < 120; ++once) cache.serve({once}, once);
  EXPECT_EQ(cache.evict(20).size(), 20U);
  EXPECT_EQ(cache.cached({1}), 1U);
}

TEST(Slru, HasNoMoreThanFourFifthsProtected) {
  BlockCache cache("slru");
  for (TokenId token = 1; token <= 10; ++token) cache.serve({token}, token * 10);
  for (TokenId token = 1; token <= 10; ++token) cache.serve({token}, 0);
  // All were hit. The two that were hit first are demoted, and go first.
  EXPECT_THAT(cache.evict(2), ElementsAre(11, 21));
}

TEST(S3Fifo, WhatIsUsedOnceGoesBeforeWhatIsUsedAgain) {
  BlockCache cache("s3fifo");
  cache.serve({1}, 0);
  for (int i = 0; i < 2; ++i) cache.serve({1}, 0);
  for (TokenId once = 100; once < 110; ++once) cache.serve({once}, once);
  EXPECT_EQ(cache.evict(10).size(), 10U);
  EXPECT_EQ(cache.cached({1}), 1U);
}

TEST(S3Fifo, WhatComesBackSoonAfterItWentIsKeptLonger) {
  BlockCache cache("s3fifo");
  for (TokenId token = 1; token <= 10; ++token) cache.serve({token}, token * 10);
  EXPECT_THAT(cache.evict(1), ElementsAre(11));
  cache.serve({1}, 500);  // it is remembered
  EXPECT_EQ(cache.evict(8).size(), 8U);
  EXPECT_EQ(cache.cached({1}), 1U);
}

// Everything comes again, always when LRU has just given it up.
std::size_t hits_in_a_loop(const std::string& policy) {
  constexpr TokenId kPrompts = 60;
  constexpr std::size_t kRoom = 40;
  BlockCache cache(policy);
  std::size_t hits = 0;
  for (BlockId request = 0; request < 60 * kPrompts; ++request) {
    const Tokens prompt{request % kPrompts + 1};
    if (cache.cached(prompt) == 0 && cache.tree().stats().cached_blocks == kRoom) cache.evict(1);
    hits += cache.serve(prompt, request * 10);
  }
  return hits;
}

TEST(Learned, KeepsAPartOfALoopThatIsTooLongForTheCache) {
  EXPECT_EQ(hits_in_a_loop("lru"), 0U);
  EXPECT_GT(hits_in_a_loop("learned"), 1500U);  // of 3,600; with 40 of 60 kept always, 2,400
}

// Every other prompt is new, the others come again after a while.
TEST(Learned, GivesUpWhatIsNewBeforeWhatCameBack) {
  BlockCache cache("learned");
  std::size_t once = 1000;
  for (BlockId request = 0; request < 4000; ++request) {
    const bool again = request % 2 == 0;
    const Tokens prompt{again ? request / 2 % 20 + 1 : static_cast<TokenId>(once++)};
    if (cache.cached(prompt) == 0 && cache.tree().stats().cached_blocks == 30) cache.evict(1);
    cache.serve(prompt, request * 10);
  }
  std::size_t kept = 0;
  for (TokenId token = 1; token <= 20; ++token) kept += cache.cached({token});
  EXPECT_EQ(kept, 20U);
}

TEST(Priority, HigherOnesGoLaterAndLowerOnesEarlier) {
  BlockCache cache("priority");
  cache.serve({1, 2, 3}, 0);
  cache.mark({1, 2, 3}, 0, 2, {.priority = 10});
  cache.serve({4}, 10);
  cache.serve({5}, 20);
  cache.mark({5}, 0, 1, {.priority = -1});
  EXPECT_THAT(cache.evict(3), ElementsAre(21, 3, 11));
  EXPECT_THAT(cache.evict(9), ElementsAre(2, 1));
}

TEST(Priority, AMarkCountsUntilItExpires) {
  BlockCache cache("priority");
  cache.serve({1}, 0);
  cache.mark({1}, 0, 1, {.priority = 10, .keep_for = seconds(60)});
  cache.serve({2}, 10);
  cache.pass(seconds(59));
  EXPECT_THAT(cache.evict(1), ElementsAre(11));
  cache.serve({3}, 20);
  cache.pass(seconds(1));
  EXPECT_THAT(cache.evict(1), ElementsAre(1));
}

TEST(Priority, AnotherMarkReplacesTheFirst) {
  BlockCache cache("priority");
  cache.serve({1}, 0);
  cache.mark({1}, 0, 1, {.priority = 10});
  cache.serve({2}, 10);
  cache.mark({1}, 0, 1, {.priority = -10});
  EXPECT_THAT(cache.evict(1), ElementsAre(1));
}

TEST(Priority, AMarkGoesWithItsBlock) {
  BlockCache cache("priority");
  cache.serve({1}, 0);
  cache.mark({1}, 0, 1, {.priority = 10});
  EXPECT_THAT(cache.evict(1), ElementsAre(1));
  cache.serve({1}, 20);
  cache.serve({2}, 30);
  EXPECT_THAT(cache.evict(1), ElementsAre(21));
}

TEST(Priority, MarksAreLetPassByOtherPolicies) {
  BlockCache cache("lru");
  cache.serve({1}, 0);
  cache.mark({1}, 0, 1, {.priority = 10});
  cache.serve({2}, 10);
  EXPECT_THAT(cache.evict(1), ElementsAre(1));
}

// evict_blocks_to_tier takes the same blocks in the same order, whatever the policy.
TEST(BlockPolicies, EvictToAStoreAsTheyEvict) {
  for (const std::string& name : block_policy_names()) {
    SCOPED_TRACE(name);
    BlockCache plain(name);
    BlockCache stored(name);
    for (BlockCache* cache : {&plain, &stored}) {
      cache->serve({1, 2, 3, 4}, 0);
      cache->serve({1, 2, 5}, 10);
      cache->serve({1, 2, 3}, 20);
      cache->serve({6, 7}, 30);
      cache->serve({6, 7}, 40);
    }
    std::vector<BlockId> spilled;
    for (int i = 0; i < 4; ++i) {
      const BlockSpills spills = stored.tree().evict_blocks_to_tier(2, 0);
      for (const BlockSpill& spill : spills.blocks) spilled.push_back(spill.block);
      EXPECT_EQ(stored.tree().validate(), "");
    }
    std::vector<BlockId> evicted;
    for (int i = 0; i < 4; ++i) {
      for (const BlockId block : plain.evict(2)) evicted.push_back(block);
    }
    EXPECT_EQ(spilled, evicted);
    EXPECT_EQ(evicted.size(), 7U);
    EXPECT_THAT(plain.evict(1), IsEmpty());
  }
}

}  // namespace
}  // namespace cairn::testing
