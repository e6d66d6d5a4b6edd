// Where a lease asks for state to be captured: Lease::capture_points.
#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CapturePointsTest : public HybridTest {
 protected:
  std::vector<CapturePoint> points(const Request& request) { return points_of(admit(request)); }
};

TEST_F(CapturePointsTest, TheTailLiesOneBlockBelowTheEndAndItsSiblingOneBlockBelowThat) {
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1}), ElementsAre(sibling(8), tail(12)));
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd eee"), .session = 1}), ElementsAre(sibling(8), tail(12)));
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc"), .session = 1}), ElementsAre(sibling(4), tail(8)));
}

TEST_F(CapturePointsTest, AShortPromptHasNoPlaceForThem) {
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb"), .session = 1}), ElementsAre(tail(4)));
  EXPECT_THAT(points({.tokens = tokens("aaaa bbb"), .session = 1}), IsEmpty());
  EXPECT_THAT(points({.tokens = tokens("a"), .session = 1}), IsEmpty());
}

TEST_F(CapturePointsTest, WithoutASessionOneForEverybodyTakesTheTailsPlace) {
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd")}), ElementsAre(shared_tail(12)));
}

TEST_F(CapturePointsTest, CheckpointsComeEverySoManyTokensBelowTheEnd) {
  start({.blocks = 32, .slots = 8}, {.capture_tails = false, .checkpoint_every_tokens = 8});
  EXPECT_THAT(points({.tokens = Tokens(25, 'a')}), ElementsAre(checkpoint(8), checkpoint(16), checkpoint(24)));
  EXPECT_THAT(points({.tokens = Tokens(24, 'a')}), ElementsAre(checkpoint(8), checkpoint(16)));
  EXPECT_THAT(points({.tokens = Tokens(8, 'a')}), IsEmpty());
}

TEST_F(CapturePointsTest, OnePlaceIsNamedOnce) {
  start({.blocks = 32, .slots = 8}, {.checkpoint_every_tokens = 4});
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1}),
              ElementsAre(checkpoint(4), sibling(8), tail(12)));
}

TEST_F(CapturePointsTest, TailsCanBeTurnedOff) {
  start({.blocks = 32, .slots = 8}, {.capture_tails = false});
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1}), IsEmpty());
}

TEST_F(CapturePointsTest, SiblingsCanBeTurnedOffAlone) {
  start({.blocks = 32, .slots = 8}, {.capture_siblings = false});
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1}), ElementsAre(tail(12)));
  start({.blocks = 32, .slots = 8}, {.capture_tails = false, .capture_siblings = true});
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1}), IsEmpty());
}

TEST_F(CapturePointsTest, ThePromptsEndCanBeKeptToo) {
  start({.blocks = 32, .slots = 8}, {.capture_tails = false, .capture_last_token = true});
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cc")}), ElementsAre(last_token(10)));
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb")}), ElementsAre(last_token(8)));
}

TEST_F(CapturePointsTest, NothingIsAskedForThatWouldNotBePublishedOrHasNoState) {
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1, .no_publish = true}), IsEmpty());
  start({.blocks = 32});
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1}), IsEmpty());
}

TEST_F(CapturePointsTest, PurelyRecurrentModelsHaveThemToo) {
  start({.slots = 8}, {.checkpoint_every_tokens = 4});
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc dddd"), .session = 1}),
              ElementsAre(checkpoint(4), sibling(8), tail(12)));
}

// ---- They do not depend on what was found ----

TEST_F(CapturePointsTest, HitOrMissEveryTurnLeavesWhatTheNextOneNeeds) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd e");
  const auto cold = points({.tokens = prompt, .session = 1});
  EXPECT_THAT(cold, ElementsAre(sibling(8), tail(12)));
  cache({.tokens = prompt});
  EXPECT_EQ(points({.tokens = prompt, .session = 1}), cold) << "blocks without state";
  cache_with_states({.tokens = prompt}, {4});
  EXPECT_EQ(points({.tokens = prompt, .session = 1}), cold) << "state at token 4";
  EXPECT_EQ(points({.tokens = prompt, .session = 1, .no_read = true}), cold);
}

TEST_F(CapturePointsTest, TheSiblingsPlaceCountsAlsoIfItIsWhereTheStateWasRestored) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd e");
  cache_with_states({.tokens = prompt}, {8});
  Lease lease = admit({.tokens = prompt, .session = 1});
  EXPECT_EQ(lease.first_token_to_compute(), 8U);
  EXPECT_THAT(points_of(lease), ElementsAre(sibling(8), tail(12)));
  lease.restored();
  EXPECT_TRUE(capture(lease, 8)) << "the state is at hand";
  compute_and_capture(lease, {12});
  lease.finish();
  EXPECT_EQ(reusable({.tokens = tokens("aaaa bbbb xxxx y"), .session = 1}), 8U);
}

TEST_F(CapturePointsTest, WhatLiesAtTheTailsPlaceAlreadyIsNotAskedForAgain) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd e");
  cache_with_states({.tokens = prompt}, {12});
  EXPECT_THAT(points({.tokens = prompt, .session = 1}), IsEmpty());
}

// ---- Branch points ----

class BranchPointsTest : public CapturePointsTest {
 protected:
  BranchPointsTest() { start({.blocks = 32, .slots = 8}, {.capture_tails = false}); }
};

TEST_F(BranchPointsTest, WherePromptsPartIsAskedForAtSecondSight) {
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb xxxx y")}), IsEmpty());
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb zzzz w")}), ElementsAre(branch_point(8)));
  EXPECT_THAT(points({.tokens = tokens("aaaa bbb zzzz ww")}), IsEmpty()) << "another place";
}

TEST_F(BranchPointsTest, StateAtABranchPointServesEverybodyAndIsNotAskedForAgain) {
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  (void)points({.tokens = tokens("aaaa bbbb xxxx y"), .session = 1});
  Lease lease = admit({.tokens = tokens("aaaa bbbb zzzz w"), .session = 2});
  compute_as_planned(lease);
  lease.finish();
  for (const SessionHash session : {0U, 1U, 2U, 3U}) {
    EXPECT_EQ(reusable({.tokens = tokens("aaaa bbbb qqqq q"), .session = session}), 8U);
  }
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb qqqq q")}), IsEmpty());
}

TEST_F(BranchPointsTest, APromptThatMatchesAsFarAsItMayPartsFromNobody) {
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(points({.tokens = tokens("aaaa bbbb c")}), IsEmpty());
    EXPECT_THAT(points({.tokens = tokens("aaaa bbbb cccc d"), .reuse_tokens_max = 8}), IsEmpty());
  }
}

TEST_F(BranchPointsTest, ARefusedRequestHasSeenNothing) {
  start({.blocks = 6, .slots = 8}, {.capture_tails = false});
  cache({.tokens = tokens("aaaa bbbb c")});
  {
    const Lease running = admit({.tokens = tokens("qqqq"), .no_publish = true});
    EXPECT_FALSE(manager().admit({.tokens = tokens("aaaa bbbb xxxx yyyy zzzz wwww")}).lease);
  }
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb xxxx y")}), IsEmpty());
}

TEST_F(BranchPointsTest, AfterAClearItIsTheFirstSightAgain) {
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  (void)points({.tokens = tokens("aaaa bbbb xxxx y")});
  manager().clear();
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb xxxx y")}), IsEmpty());
  EXPECT_THAT(points({.tokens = tokens("aaaa bbbb xxxx y")}), ElementsAre(branch_point(8)));
}

TEST_F(BranchPointsTest, TheyCanBeTurnedOff) {
  start({.blocks = 32, .slots = 8}, {.capture_tails = false, .capture_branch_points = false});
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  for (int i = 0; i < 3; ++i) EXPECT_THAT(points({.tokens = tokens("aaaa bbbb xxxx y")}), IsEmpty());
}

}  // namespace
}  // namespace cairn
