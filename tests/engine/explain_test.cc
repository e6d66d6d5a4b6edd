// Lease::explain: each cause by hand, then planted in random workloads and found again.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "engine/evicted_memory.h"
#include "engine/tiers_fixture.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tokens counting(TokenId first, std::size_t count) {
  Tokens result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}

Tokens joined(std::initializer_list<Tokens> parts) {
  Tokens all;
  for (const Tokens& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string reason(const LeaseExplanation& what) {
  return std::string(name_of(what.reason));
}

// ---- Blocks ----

class ExplainTest : public AttentionTest {
 protected:
  LeaseExplanation explained(const Request& request) {
    Lease lease = admit(request);
    return lease.explain();
  }
};

TEST_F(ExplainTest, NothingIsMissingIfAllFullBlocksBelowTheLastTokenWereThere) {
  const Tokens prompt = tokens("aaaa bbbb c");
  cache({.tokens = prompt});
  const LeaseExplanation what = explained({.tokens = prompt});
  EXPECT_EQ(reason(what), "none");
  EXPECT_EQ(what.admission, 2U);
  EXPECT_EQ(what.prompt_tokens, 9U);
  EXPECT_EQ(what.allowed_tokens, 8U);
  EXPECT_EQ(what.matched_tokens, 8U);
  EXPECT_EQ(what.reused_tokens, 8U);
  EXPECT_EQ(what.describe(), "8 of 9 tokens reused: all full blocks were there.");
}

TEST_F(ExplainTest, APromptWithoutAFullBlockBelowItsLastTokenIsTooShort) {
  EXPECT_EQ(reason(explained({.tokens = tokens("abc")})), "too_short");
  EXPECT_EQ(reason(explained({.tokens = tokens("abcd")})), "too_short") << "the last token is always computed";
  EXPECT_EQ(reason(explained({.tokens = tokens("abcde")})), "never_seen");
}

TEST_F(ExplainTest, WhatTheRequestForbidsIsNamed) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  cache({.tokens = prompt});
  LeaseExplanation what = explained({.tokens = prompt, .no_read = true});
  EXPECT_EQ(reason(what), "forbidden");
  EXPECT_EQ(what.limit, ReuseLimit::kNoRead);
  EXPECT_EQ(what.allowed_tokens, 0U);
  what = explained({.tokens = prompt, .reuse_tokens_max = 9});
  EXPECT_EQ(reason(what), "forbidden");
  EXPECT_EQ(what.limit, ReuseLimit::kReuseMax);
  EXPECT_EQ(what.matched_tokens, 8U);
  EXPECT_THAT(what.describe(), HasSubstr("reuse_tokens_max"));
}

TEST_F(ExplainTest, AFirstPromptAndTheNextTurnWereNeverSeen) {
  LeaseExplanation what = explained({.tokens = tokens("aaaa bbbb c")});
  EXPECT_EQ(reason(what), "never_seen");
  EXPECT_FALSE(what.goes_on);
  cache({.tokens = tokens("aaaa bbbb")});
  what = explained({.tokens = tokens("aaaa bbbb cccc dddd e")});
  EXPECT_EQ(reason(what), "never_seen");
  EXPECT_TRUE(what.goes_on);
  EXPECT_EQ(what.matched_tokens, 8U);
}

TEST_F(ExplainTest, AnEvictedBlockIsToldWithWhenAndForWhom) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  cache({.tokens = prompt});                                                      // admission 1
  cache({.tokens = joined({tokens("xxxx yyyy zzzz"), counting(1000, 13 * 4)})});  // 2 takes all 16 blocks
  cache({.tokens = tokens("aaaa q")});                                            // 3
  const LeaseExplanation what = explained({.tokens = prompt});
  EXPECT_EQ(reason(what), "evicted");
  EXPECT_EQ(what.admission, 4U);
  EXPECT_EQ(what.matched_tokens, 4U);
  EXPECT_EQ(what.evicted_tokens, 8U);
  EXPECT_EQ(what.evicted_for_admission, 2U);
  EXPECT_EQ(what.evicted_admissions_ago, 2U);
  EXPECT_GE(what.evicted_ago.count(), 0);
  EXPECT_FALSE(what.evictions_forgotten);
  EXPECT_THAT(what.describe(), AllOf(HasSubstr("4 of 13 tokens reused: the next 8 tokens were evicted"),
                                     HasSubstr("for admission 2, 2 admissions before this one.")));
}

TEST_F(ExplainTest, WhatThisLeaseHasPublishedSinceDoesNotHideThatItWasEvicted) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  cache({.tokens = prompt});
  cache({.tokens = counting(1000, 16 * 4)});
  Lease lease = admit({.tokens = prompt});
  compute(lease);
  lease.publish();
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "evicted");
  EXPECT_EQ(what.matched_tokens, 0U);
  EXPECT_EQ(what.evicted_tokens, 12U);
  EXPECT_TRUE(what.published_since);
}

TEST_F(ExplainTest, AnEvictionAfterTheAdmissionIsNoReason) {
  start({.blocks = 3});
  Lease first = admit({.tokens = tokens("aaaa b"), .reserve_tokens = 4});
  cache({.tokens = tokens("aaaa c")});
  cache({.tokens = tokens("dddd eeee"), .reserve_tokens = 8});
  const LeaseExplanation what = first.explain();
  EXPECT_EQ(stats().evicted_blocks, 1U);
  EXPECT_EQ(reason(what), "never_seen");
}

TEST_F(ExplainTest, BlocksOfTheSameTokensBehindOtherOnesAreNotTakenForEvictedOnes) {
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  cache({.tokens = counting(1000, 16 * 4)});
  cache({.tokens = tokens("zzzz q")});
  const LeaseExplanation what = explained({.tokens = tokens("zzzz bbbb cccc d")});
  EXPECT_EQ(reason(what), "never_seen");
  EXPECT_TRUE(what.goes_on);
}

TEST_F(ExplainTest, AClearForgetsWhatWasEvictedBeforeIt) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  cache({.tokens = prompt});
  cache({.tokens = counting(1000, 16 * 4)});
  manager().clear();
  EXPECT_EQ(reason(explained({.tokens = prompt})), "never_seen") << "it would have been of the old weights";
  Lease lease = admit({.tokens = prompt});
  manager().clear();
  EXPECT_EQ(reason(lease.explain()), "cleared");
}

TEST_F(ExplainTest, TheSameForAnotherAdapterOrGenerationIsNamed) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  cache({.tokens = prompt, .adapter = "law", .adapter_generation = 3});
  LeaseExplanation what = explained({.tokens = prompt});
  EXPECT_EQ(reason(what), "other_adapter");
  EXPECT_EQ(what.other_tokens, 12U);
  EXPECT_EQ(what.other_adapter, "law");
  EXPECT_EQ(what.other_generation, 3U);
  EXPECT_THAT(what.describe(), HasSubstr("12 tokens are cached for adapter \"law\", generation 3"));
  what = explained({.tokens = prompt, .adapter = "law", .adapter_generation = 4});
  EXPECT_EQ(reason(what), "other_adapter") << "the adapter was updated";
  EXPECT_EQ(what.other_generation, 3U);
  start({.blocks = 16});
  cache({.tokens = prompt});
  what = explained({.tokens = prompt, .adapter = "law"});
  EXPECT_EQ(reason(what), "other_adapter");
  EXPECT_EQ(what.other_adapter, "") << "the base model";
}

TEST_F(ExplainTest, OfOtherTenantsNothingIsToldUnlessItIsAllowedAndThenNoName) {
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  const Request theirs{.tokens = prompt, .adapter = "law", .tenant_salt = "one"};
  cache(theirs);
  EXPECT_EQ(reason(explained({.tokens = prompt, .adapter = "law", .tenant_salt = "two"})), "never_seen");
  EXPECT_EQ(reason(explained({.tokens = prompt})), "never_seen");
  start({.blocks = 16}, {.explain_across_tenants = true});
  cache(theirs);
  const LeaseExplanation what = explained({.tokens = prompt, .adapter = "law", .tenant_salt = "two"});
  EXPECT_EQ(reason(what), "other_tenant");
  EXPECT_EQ(what.other_tokens, 12U);
  EXPECT_EQ(what.other_adapter, "");
  EXPECT_EQ(what.describe(), "0 of 13 tokens reused: 12 tokens are cached for another tenant.");
}

TEST_F(ExplainTest, ManyNamesOfOtherTenantsDoNotHideTheTenantsOwn) {
  constexpr std::size_t kOthers = 70;
  start({.blocks = 64}, {.explain_across_tenants = true});
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  for (std::size_t i = 0; i < kOthers; ++i) {
    if (i == kOthers / 2) cache({.tokens = prompt, .adapter = "law", .tenant_salt = "two"});
    const std::string name = "their " + std::to_string(i);
    cache({.tokens = i + 1 == kOthers ? prompt : tokens("q"), .adapter = name, .tenant_salt = "one"});
  }
  LeaseExplanation what = explained({.tokens = prompt, .adapter = "med", .tenant_salt = "two"});
  EXPECT_EQ(reason(what), "other_adapter");
  EXPECT_EQ(what.other_adapter, "law");
  what = explained({.tokens = prompt, .adapter = "med", .tenant_salt = "three"});
  EXPECT_EQ(reason(what), "other_tenant");
}

TEST_F(ExplainTest, WhatDiffersForGoodIsToldToTheToken) {
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  cache({.tokens = tokens("aaaa bxxx")});
  const LeaseExplanation what = explained({.tokens = tokens("aaaa bbyy zzzz q")});
  EXPECT_EQ(reason(what), "differs");
  EXPECT_EQ(what.matched_tokens, 4U);
  EXPECT_EQ(what.differs_at, 6U);
}

TEST_F(ExplainTest, ARunThatIsReplacedInASystemPromptIsToldWithItsLength) {
  start({.blocks = 64});
  const Tokens system = counting(100, 80);
  cache({.tokens = joined({tokens("It is 10:01. "), system, tokens("one")})});
  const LeaseExplanation what = explained({.tokens = joined({tokens("It is 9:30. "), system, tokens("two")})});
  EXPECT_EQ(reason(what), "differs_then_equal");
  EXPECT_EQ(what.matched_tokens, 4U);
  EXPECT_EQ(what.differs_at, 4U);
  EXPECT_EQ(what.removed_tokens, 5U) << "10:01";
  EXPECT_EQ(what.added_tokens, 4U) << "9:30";
  EXPECT_EQ(what.equal_again_tokens, 80U) << "the full stop and 80 tokens, as far as they fill blocks";
  EXPECT_EQ(what.equal_stretches, 1U);
}

TEST_F(ExplainTest, WhatAnotherOnePublishesMeanwhileIsSaidToBeThereNow) {
  const Tokens prompt = tokens("aaaa bbbb c");
  Lease first = admit({.tokens = prompt});
  cache({.tokens = prompt});
  const LeaseExplanation what = first.explain();
  EXPECT_EQ(reason(what), "never_seen");
  EXPECT_TRUE(what.published_since);
  EXPECT_THAT(what.describe(), HasSubstr("It is there now"));
}

TEST_F(ExplainTest, ALongLeaseAndItsForkAnswerForTheSameAdmission) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd eeee f");
  cache({.tokens = tokens("aaaa bbbb")});
  Lease lease = admit({.tokens = prompt, .adapter = ""});
  compute(lease);
  lease.publish();  // the tokens before are the cache's now
  lease.append(tokens("ggg"));
  Lease::Forked forked = lease.fork();
  ASSERT_TRUE(forked.lease);
  for (const Lease* each : {&lease, &*forked.lease}) {
    const LeaseExplanation what = each->explain();
    EXPECT_EQ(reason(what), "never_seen");
    EXPECT_EQ(what.prompt_tokens, 21U);
    EXPECT_EQ(what.matched_tokens, 8U);
    EXPECT_EQ(what.reused_tokens, 8U);
    EXPECT_TRUE(what.published_since);
  }
}

TEST_F(ExplainTest, WithoutAMemoryOfEvictionsOnlyWhatIsThereCounts) {
  start({.blocks = 16}, {.evictions_remembered_max = 0});
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  EXPECT_FALSE(explained({.tokens = prompt}).evictions_forgotten) << "nothing has left";
  cache({.tokens = prompt});
  cache({.tokens = counting(1000, 16 * 4)});
  const LeaseExplanation what = explained({.tokens = prompt});
  EXPECT_EQ(reason(what), "never_seen");
  EXPECT_TRUE(what.evictions_forgotten);
  EXPECT_EQ(
      what.describe(),
      "0 of 13 tokens reused: begins like nothing that is cached. It may have been evicted: not all evictions are "
      "remembered.");
}

TEST_F(ExplainTest, WhenEvictionsAreForgottenTheAnswerSaysSo) {
  start({.blocks = 16}, {.evictions_remembered_max = 4});
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  cache({.tokens = prompt});
  cache({.tokens = counting(1000, 16 * 4)});
  cache({.tokens = counting(2000, 16 * 4)});
  const LeaseExplanation what = explained({.tokens = prompt});
  EXPECT_EQ(reason(what), "never_seen");
  EXPECT_TRUE(what.evictions_forgotten);
  EXPECT_THAT(what.describe(), HasSubstr("It may have been evicted"));
}

TEST_F(ExplainTest, ALeaseThatHasEndedIsRefused) {
  Lease lease = admit({.tokens = tokens("abc")});
  lease.abandon();
  expect_refusal([&] { (void)lease.explain(); }, {"lease"});
}

// ---- States ----

class ExplainHybridTest : public HybridTest {};

TEST_F(ExplainHybridTest, AStateThatWasNeverTakenIsMissing) {
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc d")});
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "state_missing");
  EXPECT_EQ(what.state, StateLoss::kNeverTaken);
  EXPECT_EQ(what.matched_tokens, 12U);
  EXPECT_EQ(what.reused_tokens, 0U);
  EXPECT_THAT(what.describe(), HasSubstr("the KV of 12 tokens was there, but no state beyond; none is known"));
}

TEST_F(ExplainHybridTest, AStateThatWasEvictedIsToldWithWhereAndForWhom) {
  start({.blocks = 32, .slots = 2});
  cache_with_states({.tokens = tokens("aaaa bbbb cccc d")}, {4, 10});    // 1
  cache_with_states({.tokens = tokens("xxxx yyyy zzzz z")}, {8});        // 2 evicts the one at 4
  cache_with_states({.tokens = tokens("xxxx yyyy zzzz zzzz z")}, {13});  // 3 evicts the one at 10
  Lease lease = admit({.tokens = tokens("aaaa bbbb cccc d")});
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "state_missing");
  EXPECT_EQ(what.state, StateLoss::kEvicted);
  EXPECT_EQ(what.state_tokens, 10U) << "the deepest that would have served";
  EXPECT_EQ(what.evicted_for_admission, 3U);
  EXPECT_EQ(what.evicted_admissions_ago, 1U);
}

TEST_F(ExplainHybridTest, ATailThatItsSessionHasLeftBehindIsReplaced) {
  Lease first = admit({.tokens = tokens("aaaa bbbb c"), .session = 5});
  compute_as_planned(first);
  first.finish();
  Lease second = admit({.tokens = tokens("aaaa bbbb cccc dddd eeee f"), .session = 5});
  compute_as_planned(second);
  second.finish();
  Lease again = admit({.tokens = tokens("aaaa bbbb c"), .session = 5});
  const LeaseExplanation what = again.explain();
  EXPECT_EQ(reason(what), "state_missing");
  EXPECT_EQ(what.state, StateLoss::kReplaced);
  EXPECT_EQ(what.evicted_for_admission, 2U);
}

TEST_F(ExplainHybridTest, TheEvictedTailOfAnotherSessionWouldNotHaveServed) {
  start({.blocks = 32, .slots = 1}, {.capture_branch_points = false});
  Lease first = admit({.tokens = tokens("aaaa bbbb c"), .session = 5});
  compute_as_planned(first);
  first.finish();
  ASSERT_EQ(stats().captures_published, 1U);
  Lease second = admit({.tokens = tokens("xxxx yyyy z"), .session = 6});
  compute_as_planned(second);
  second.finish();
  ASSERT_EQ(stats().evicted_snapshots, 1U);
  const auto state_of = [&](SessionHash session) {
    Lease lease = admit({.tokens = tokens("aaaa bbbb c"), .session = session});
    return lease.explain().state;
  };
  EXPECT_EQ(state_of(5), StateLoss::kEvicted);
  EXPECT_EQ(state_of(7), StateLoss::kNeverTaken);
}

TEST_F(ExplainHybridTest, WhereAStateIsWhatFollowsIsExplainedAsWithoutStates) {
  cache_with_states({.tokens = tokens("aaaa bbbb cccc d")}, {8});
  Lease lease = admit({.tokens = tokens("aaaa bbbb zzzz d")});
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(what.reused_tokens, 8U);
  EXPECT_EQ(reason(what), "differs");
  EXPECT_EQ(what.differs_at, 8U);
}

class ExplainRecurrentTest : public RecurrentTest {};

TEST_F(ExplainRecurrentTest, APurelyRecurrentModelMissesStatesAlone) {
  start({.slots = 1});
  const Tokens prompt = tokens("abcdefghij");
  {
    Lease lease = admit({.tokens = prompt});
    EXPECT_EQ(reason(lease.explain()), "never_seen");
  }
  cache_with_states({.tokens = prompt}, {7});
  {
    Lease lease = admit({.tokens = prompt});
    const LeaseExplanation what = lease.explain();
    EXPECT_EQ(reason(what), "never_seen");
    EXPECT_TRUE(what.goes_on);
    EXPECT_EQ(what.reused_tokens, 7U);
  }
  cache_with_states({.tokens = tokens("xyz")}, {2});
  Lease lease = admit({.tokens = prompt});
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "state_missing");
  EXPECT_EQ(what.state, StateLoss::kEvicted);
  EXPECT_EQ(what.state_tokens, 7U);
  EXPECT_THAT(what.describe(), HasSubstr("0 of 10 tokens reused: the state at token 7 was evicted"));
}

TEST_F(ExplainRecurrentTest, WithoutAMemoryOfEvictionsStatesMayHaveBeenEvicted) {
  start({.slots = 1}, {.evictions_remembered_max = 0});
  const Tokens prompt = tokens("abcdefghij");
  cache_with_states({.tokens = prompt}, {7});
  {
    Lease lease = admit({.tokens = tokens("q")});
    EXPECT_FALSE(lease.explain().evictions_forgotten);
  }
  cache_with_states({.tokens = tokens("xyz")}, {2});
  Lease lease = admit({.tokens = prompt});
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "never_seen");
  EXPECT_TRUE(what.evictions_forgotten);
}

// ---- With a store ----

class ExplainStoreTest : public TiersTest {
 protected:
  const Tokens prompt_ = tokens("aaaa bbbb cccc d");
  const Request request_{.tokens = prompt_};

  void start_stored() {
    start({});
    cache(request_);
    push_out_blocks();
  }
};

TEST_F(ExplainStoreTest, WhatIsStoredAndNotFetchedIsNeitherEvictedNorNeverSeen) {
  start_stored();
  const Lease lease = admit({.tokens = prompt_, .no_fetch = true});
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "stored");
  EXPECT_EQ(what.stored_tokens, 12U);
  EXPECT_EQ(what.describe(), "0 of 13 tokens reused: the next 12 tokens are in the store, and were not fetched.");
}

TEST_F(ExplainStoreTest, ALeaseThatIsLoadingIsExplainedWhenThatIsOver) {
  start_stored();
  store_->hold_gets(true);
  const Lease lease = admit(request_);
  expect_refusal([&] { (void)lease.explain(); }, {"explain", "loading"});
  EXPECT_EQ(store_->answer_gets(), 3U);
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "none");
  EXPECT_EQ(what.reused_tokens, 12U);
}

TEST_F(ExplainStoreTest, AStateThatIsStoredAndNotFetchedIsNamed) {
  start({.blocks = 8, .slots = 1});
  cache(request_, {8});
  cache({.tokens = tokens("xyz")}, {2});
  const Lease lease = admit({.tokens = prompt_, .no_fetch = true});
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "stored");
  EXPECT_EQ(what.state, StateLoss::kStored);
  EXPECT_EQ(what.state_tokens, 8U);
}

TEST_F(ExplainStoreTest, WithoutAMemoryOfEvictionsWhatTheStoreHasLostMayHaveBeenEvicted) {
  start({}, {.evictions_remembered_max = 0});
  cache(request_);
  push_out_blocks();
  for (const TierKey key : store_->keys()) store_->lose(key);
  push_out_blocks();  // takes note of what is lost
  const Lease lease = admit(request_);
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "never_seen");
  EXPECT_TRUE(what.evictions_forgotten);
}

TEST_F(ExplainStoreTest, AStateThatWasFetchedAndEvictedAgainIsToldWithTheLaterOne) {
  start({.blocks = 16, .slots = 1});
  cache(request_, {8});                   // 1
  cache({.tokens = tokens("xyz")}, {2});  // 2 evicts the state
  {
    const Lease lease = admit(request_);  // 3 fetches it
    ASSERT_EQ(lease.explain().reused_tokens, 8U);
  }
  cache({.tokens = tokens("uvw")}, {2});  // 4 evicts it again
  for (const TierKey key : store_->keys()) store_->lose(key);
  cache({.tokens = tokens("rst")}, {2});  // 5 takes note of what is lost
  const Lease lease = admit(request_);
  const LeaseExplanation what = lease.explain();
  EXPECT_EQ(reason(what), "state_missing");
  EXPECT_EQ(what.state, StateLoss::kEvicted);
  EXPECT_EQ(what.state_tokens, 8U);
  EXPECT_EQ(what.evicted_for_admission, 4U);
}

// ---- What left, by itself ----

TEST(EvictedMemory, RemembersNoMoreThanItMayAndTheNewestOfThose) {
  constexpr std::size_t kMax = 100;
  EvictedMemory memory({.blocks = 10, .slots = 5, .remembered_max = kMax});
  std::size_t most_bytes = 0;
  for (Fingerprint i = 1; i <= 10'000; ++i) {
    const auto block = static_cast<BlockId>(i % 10);
    memory.set_block(block, i);
    memory.blocks_left({&block, 1}, i);
    memory.set_snapshot(i % 5, {.fingerprint = i, .tokens = i});
    memory.snapshot_left(i % 5, EvictedMemory::How::kEvicted, i);
    if (i == 200) most_bytes = memory.memory_bytes();
  }
  EXPECT_EQ(memory.remembered(), 2 * kMax);
  EXPECT_LE(memory.memory_bytes(), 2 * most_bytes);
  EXPECT_LE(memory.memory_bytes(), 10 * 8 + 5 * 64 + 2 * kMax * 200);
  const EvictedMemory::Moment now = memory.now();
  EXPECT_FALSE(memory.find_block(9'900, now));
  for (Fingerprint i = 9'901; i <= 10'000; ++i) {
    ASSERT_TRUE(memory.find_block(i, now)) << i;
    EXPECT_EQ(memory.find_block(i, now)->admission, i);
  }
  EXPECT_TRUE(memory.has_forgotten_blocks(now));
  std::size_t seen = 0;
  memory.for_each_snapshot(now, [&](const auto& place, const auto&) { EXPECT_EQ(place.tokens, 10'000 - seen++); });
  EXPECT_EQ(seen, kMax);
}

TEST(EvictedMemory, OfOneThatLeftSeveralTimesTheLastBeforeTheMomentCounts) {
  EvictedMemory memory({.blocks = 4, .remembered_max = 8});
  const BlockId block = 2;
  std::vector<EvictedMemory::Moment> moments{memory.now()};
  for (std::uint64_t admission = 1; admission <= 3; ++admission) {
    memory.set_block(block, 77);
    memory.blocks_left({&block, 1}, admission);
    moments.push_back(memory.now());
  }
  EXPECT_FALSE(memory.find_block(77, moments[0]));
  for (std::uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(memory.find_block(77, moments[i])->admission, i);
  for (Fingerprint other = 100; other < 106; ++other) {  // 77 is left with its last two
    memory.set_block(block, other);
    memory.blocks_left({&block, 1}, other);
  }
  EXPECT_FALSE(memory.find_block(77, moments[1]));
  EXPECT_EQ(memory.find_block(77, moments[2])->admission, 2U);
  EXPECT_EQ(memory.find_block(77, memory.now())->admission, 3U);
}

TEST(EvictedMemory, SnapshotsAreVisitedWhileOthersLeave) {
  constexpr std::size_t kMax = 1000;
  EvictedMemory memory({.slots = 1, .remembered_max = kMax});
  const auto leave = [&memory](std::size_t tokens) {
    memory.set_snapshot(0, {.fingerprint = 1, .tokens = tokens});
    memory.snapshot_left(0, EvictedMemory::How::kEvicted, tokens);
  };
  std::size_t last = 0;
  while (last < 2 * kMax) leave(++last);
  const EvictedMemory::Moment moment = memory.now();
  leave(++last);
  std::size_t seen = 0;
  memory.for_each_snapshot(moment, [&](const auto& place, const auto& eviction) {
    EXPECT_EQ(place.tokens, 2 * kMax - seen++);
    EXPECT_EQ(eviction.admission, place.tokens);
    leave(++last);  // forgets the oldest
  });
  EXPECT_GE(seen, kMax / 2);
  EXPECT_LT(seen, kMax) << "those that were forgotten meanwhile";
  EXPECT_TRUE(memory.has_forgotten_snapshots(moment));
}

TEST(EvictedMemory, ASlotThatIsFreedHasNoPlace) {
  EvictedMemory memory({.slots = 1, .remembered_max = 10});
  memory.set_snapshot(0, {.fingerprint = 1, .tokens = 5});
  memory.set_snapshot(0, {});
  memory.snapshot_left(0, EvictedMemory::How::kEvicted, 1);
  EXPECT_EQ(memory.remembered(), 0U);
}

TEST(EvictedMemory, TakesNoMemoryIfItMayRememberNothing) {
  EvictedMemory memory({.blocks = 1000, .slots = 1000, .remembered_max = 0});
  const BlockId block = 2;
  memory.set_block(block, 77);
  memory.blocks_left({&block, 1}, 1);
  EXPECT_EQ(memory.of_block(block), 0U);
  EXPECT_EQ(memory.remembered(), 0U);
  EXPECT_LE(memory.memory_bytes(), 64U);
  EXPECT_TRUE(memory.has_forgotten_blocks(memory.now())) << "it is counted";
  EXPECT_FALSE(memory.has_forgotten_blocks({})) << "nothing had left";
}

// ---- Planted ones ----

constexpr std::size_t kPlantedBlock = 16;

// How often each cause was planted, found, and found where it was planted.
class Score {
 public:
  void count(const std::string& planted, const std::string& found) {
    ++counts_[planted].planted;
    ++counts_[found].found;
    if (planted == found) ++counts_[planted].right;
  }
  void expect_perfect(std::size_t planted_min) const {
    for (const auto& [name, count] : counts_) {
      const double precision = static_cast<double>(count.right) / static_cast<double>(count.found);
      const double recall = static_cast<double>(count.right) / static_cast<double>(count.planted);
      std::printf("%-32s planted %4zu  found %4zu  precision %.3f  recall %.3f\n", name.c_str(), count.planted,
                  count.found, precision, recall);
      EXPECT_EQ(precision, 1.0) << name;
      EXPECT_EQ(recall, 1.0) << name;
      EXPECT_GE(count.planted, planted_min) << name;
    }
  }
  [[nodiscard]] std::size_t causes() const { return counts_.size(); }

 private:
  struct Count {
    std::size_t planted = 0;
    std::size_t found = 0;
    std::size_t right = 0;
  };
  std::map<std::string, Count> counts_;
};

class Planter {
 public:
  Planter(const Pools& pools, CacheManagerOptions options, std::uint64_t seed) : random_(seed) {
    options.block_size = kPlantedBlock;
    options.blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = pools.blocks});
    if (pools.slots > 0) {
      slots_ = std::make_shared<SnapshotPool>(SnapshotPoolOptions{.slots = pools.slots, .slot_bytes = 8});
      options.snapshots = slots_;
    }
    options.explain_across_tenants = true;
    manager_.emplace(std::move(options));
  }

  std::uint64_t from_to(std::uint64_t low, std::uint64_t high) { return low + random_() % (high - low + 1); }
  Tokens fresh(std::size_t count) {
    Tokens tokens = counting(next_token_, count);
    next_token_ += static_cast<TokenId>(count);
    return tokens;
  }
  void shuffle(std::vector<int>& items) { std::ranges::shuffle(items, random_); }

  // Explains it once it is admitted, and takes it to its end.
  LeaseExplanation play(const Request& request, std::vector<std::size_t> capture_at = {}) {
    Admission admission = manager_->admit(request);
    EXPECT_TRUE(admission.lease);
    Lease& lease = *admission.lease;
    LeaseExplanation what = lease.explain();
    lease.restored();
    for (const CapturePoint& point : lease.capture_points()) {
      if (request.session == 0 || point.kind != CaptureKind::kTail) continue;
      capture_at.push_back(point.tokens);
      last_tail_ = point.tokens;
    }
    for (const std::size_t at : capture_at) {
      if (at <= lease.first_token_to_compute()) continue;
      write_to(lease, at);
      const auto slot = lease.capture(at);
      EXPECT_TRUE(slot && lease.captured(*slot));
    }
    write_to(lease, request.tokens.size());
    lease.finish();
    return what;
  }
  // Where the last request with a session left its tail.
  [[nodiscard]] std::size_t last_tail() const { return last_tail_; }
  [[nodiscard]] std::string validate() const { return manager_->validate(); }

 private:
  void write_to(Lease& lease, std::size_t to) {
    const std::size_t from = std::max(lease.written_tokens(), lease.first_token_to_compute());
    if (from >= to) return;
    lease.writes(++step_, from, to);
    manager_->step_done(step_);
  }

  std::mt19937_64 random_;
  TokenId next_token_ = 0;
  StepId step_ = 0;
  std::size_t last_tail_ = 0;
  std::shared_ptr<SnapshotPool> slots_;
  std::optional<CacheManager> manager_;
};

Tokens part(const Tokens& tokens, std::size_t from, std::size_t to) {
  return {tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.begin() + static_cast<std::ptrdiff_t>(to)};
}

// Rounds about a prompt that nobody had before, each with one request of every cause, in random order. Two rounds fit
// into the pool, so what is asked for again ten rounds later was evicted. No token is used twice.
void plant_blocks(std::uint64_t seed, Score& score) {
  Planter planter({.blocks = 1000}, {}, seed);
  std::vector<Tokens> bases;
  const std::array<std::string_view, 2> names{"law", "med"};
  for (std::size_t round = 0; round < 40; ++round) {
    const Tokens base = planter.fresh(kPlantedBlock * planter.from_to(40, 60) +
                                      planter.from_to(0, 1) * planter.from_to(0, kPlantedBlock - 1));
    bases.push_back(base);
    const auto expect = [&](const char* planted, const Request& request) {
      const LeaseExplanation what = planter.play(request);
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", round " << round << ": " << what.describe());
      EXPECT_EQ(reason(what), planted);
      score.count(planted, reason(what));
      return what;
    };
    expect("never_seen", {.tokens = base});
    std::vector<int> order(10);
    std::iota(order.begin(), order.end(), 0);
    planter.shuffle(order);
    for (const int which : order) {
      switch (which) {
        case 0:
          expect("none", {.tokens = base});
          break;
        case 1:
          expect("too_short", {.tokens = planter.fresh(planter.from_to(1, kPlantedBlock))});
          break;
        case 2:
          if (round >= 10) {
            const Tokens& old = bases[round - 10];
            EXPECT_EQ(expect("evicted", {.tokens = old}).evicted_tokens,
                      (old.size() - 1) / kPlantedBlock * kPlantedBlock);
          }
          break;
        case 3:
          EXPECT_EQ(expect("other_adapter", {.tokens = base, .adapter = names[planter.from_to(0, 1)]}).other_tokens,
                    (base.size() - 1) / kPlantedBlock * kPlantedBlock);
          break;
        case 4:
          expect("other_tenant", {.tokens = base, .tenant_salt = names[planter.from_to(0, 1)]});
          break;
        case 5: {
          const std::size_t at = planter.from_to(0, 1) == 0 ? planter.from_to(1, 40) : planter.from_to(0, 300) + 1;
          const std::size_t removed = planter.from_to(0, 20);
          const std::size_t added = planter.from_to(removed == 0 ? 1 : 0, 20);
          const Tokens prompt =
              joined({part(base, 0, at), planter.fresh(added), part(base, at + removed, base.size())});
          const LeaseExplanation what = expect("differs_then_equal", {.tokens = prompt});
          EXPECT_EQ(what.differs_at, at);
          EXPECT_EQ(what.removed_tokens, removed);
          EXPECT_EQ(what.added_tokens, added);
          EXPECT_EQ(what.equal_stretches, 1U);
          break;
        }
        case 6: {
          const std::size_t at = planter.from_to(8, base.size() - kPlantedBlock);
          const Tokens prompt = joined({part(base, 0, at), planter.fresh(planter.from_to(kPlantedBlock + 1, 200))});
          EXPECT_EQ(expect("differs", {.tokens = prompt}).differs_at, at);
          break;
        }
        case 7: {
          const std::size_t full = base.size() / kPlantedBlock * kPlantedBlock;
          const Tokens prompt = joined({part(base, 0, full), planter.fresh(planter.from_to(kPlantedBlock + 1, 200))});
          EXPECT_TRUE(expect("never_seen", {.tokens = prompt}).goes_on);
          break;
        }
        case 8:
          expect("forbidden", {.tokens = base, .no_read = true});
          break;
        default:
          expect("forbidden", {.tokens = base, .reuse_tokens_max = planter.from_to(0, 600)});
          break;
      }
    }
  }
  EXPECT_EQ(planter.validate(), "");
}

TEST(PlantedCauses, OfBlocksAreAllFoundAndNoOthers) {
  Score score;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) plant_blocks(seed, score);
  score.expect_perfect(100);
  EXPECT_EQ(score.causes(), 9U);
}

std::string state_reason(const LeaseExplanation& what) {
  constexpr std::array<const char*, 5> kNames{"none", "never taken", "evicted", "replaced", "stored"};
  return reason(what) + ": " + kNames.at(static_cast<std::size_t>(what.state));
}

// Each round asks twice for the same, with enough slots used in between to evict what is to be evicted.
void plant_states(std::uint64_t seed, Score& score) {
  constexpr std::size_t kSlots = 12;
  Planter planter({.blocks = 6000, .slots = kSlots}, {.capture_branch_points = false}, seed);
  for (std::size_t round = 0; round < 60; ++round) {
    const Tokens prompt = planter.fresh(kPlantedBlock * planter.from_to(8, 12) + planter.from_to(1, kPlantedBlock));
    const std::size_t at = planter.from_to(1, 7 * kPlantedBlock);
    const auto session = static_cast<SessionHash>(round + 1);
    const int what_to_plant = static_cast<int>(planter.from_to(0, 3));
    const auto expect = [&](const char* planted, const LeaseExplanation& what) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", round " << round << ": " << what.describe());
      EXPECT_EQ(state_reason(what), planted);
      score.count(planted, state_reason(what));
    };
    switch (what_to_plant) {
      case 0:
        planter.play({.tokens = prompt});
        expect("state_missing: never taken", planter.play({.tokens = prompt}));
        break;
      case 1: {
        planter.play({.tokens = prompt}, {at});
        for (std::size_t i = 0; i < kSlots; ++i) planter.play({.tokens = planter.fresh(20)}, {7});
        const LeaseExplanation what = planter.play({.tokens = prompt});
        expect("state_missing: evicted", what);
        EXPECT_EQ(what.state_tokens, at);
        break;
      }
      case 2: {
        // The tail of the first turn goes when the second one's comes.
        planter.play({.tokens = prompt, .session = session});
        const std::size_t tail = planter.last_tail();
        planter.play({.tokens = joined({prompt, planter.fresh(3 * kPlantedBlock)}), .session = session});
        const LeaseExplanation what = planter.play({.tokens = prompt, .session = session});
        expect("state_missing: replaced", what);
        EXPECT_EQ(what.state_tokens, tail);
        break;
      }
      default: {
        const std::size_t end = (prompt.size() - 1) / kPlantedBlock * kPlantedBlock;
        planter.play({.tokens = prompt}, {end});
        expect("none: none", planter.play({.tokens = prompt}));
        break;
      }
    }
  }
  EXPECT_EQ(planter.validate(), "");
}

TEST(PlantedCauses, OfMissingStatesAreAllFoundAndNoOthers) {
  Score score;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) plant_states(seed, score);
  score.expect_perfect(50);
  EXPECT_EQ(score.causes(), 4U);
}

// ---- Beside others ----

TEST(ExplainBesideOthers, EachAnswerIsOneThatItsOwnRequestCanHave) {
  constexpr std::size_t kThreads = 3;
  constexpr std::size_t kRequests = 150;
  auto blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = 120});
  CacheManager manager({.block_size = kBlockSize, .blocks = blocks});
  std::array<std::size_t, kMissReasons> seen{};
  std::vector<std::thread> threads;
  std::mutex mutex;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread);
      for (std::size_t i = 0; i < kRequests; ++i) {
        const auto family = static_cast<TokenId>(random() % 4 * 1000);
        const Tokens prompt =
            joined({counting(family, 20), counting(family + 100 + static_cast<TokenId>(random() % 3), 21)});
        const bool law = random() % 4 == 0;
        Admission admission = manager.admit({.tokens = prompt, .adapter = law ? "law" : ""});
        if (!admission.lease) continue;
        const LeaseExplanation before = admission.lease->explain();
        const StepId step = thread << 32 | i;
        const std::size_t from = admission.lease->first_token_to_compute();
        admission.lease->writes(step, from, prompt.size());
        manager.step_done(step);
        admission.lease->publish();
        const LeaseExplanation after = admission.lease->explain();
        EXPECT_EQ(before.matched_tokens, after.matched_tokens);
        EXPECT_EQ(before.admission, after.admission);
        EXPECT_EQ(before.reused_tokens, from);
        if (i % 50 == 49 && thread == 0) manager.clear("law");
        const std::lock_guard lock(mutex);
        ++seen.at(static_cast<std::size_t>(before.reason));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(manager.validate(), "");
  for (const MissReason reason : {MissReason::kNone, MissReason::kEvicted}) {
    EXPECT_GT(seen.at(static_cast<std::size_t>(reason)), 0U) << name_of(reason);
  }
}

}  // namespace
}  // namespace cairn
