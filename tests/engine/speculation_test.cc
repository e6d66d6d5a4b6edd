// Drafts: Lease::draft, accept and truncate.
#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using SpeculationTest = AttentionTest;

TEST_F(SpeculationTest, DraftedTokensCountButAreNotAccepted) {
  Lease lease = admit({.tokens = tokens("aaaa bb")});
  lease.draft(tokens("xyz"));
  EXPECT_EQ(lease.tokens(), 9U);
  EXPECT_EQ(lease.accepted_tokens(), 6U);
  EXPECT_EQ(lease.prompt_tokens(), 6U);
  lease.draft(tokens("w"));
  EXPECT_EQ(lease.tokens(), 10U);
  lease.accept(8);
  EXPECT_EQ(lease.accepted_tokens(), 8U);
  EXPECT_EQ(lease.tokens(), 10U);
}

TEST_F(SpeculationTest, DraftsAreWrittenButNotPublishedUntilTheyAreAccepted) {
  Lease lease = admit({.tokens = tokens("aaaa bb"), .reserve_tokens = 12});
  lease.draft(tokens("xyzw"));
  compute(lease);
  EXPECT_EQ(lease.written_tokens(), 10U);
  EXPECT_EQ(lease.publish(), 4U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbxy zz")}), 4U);
  lease.accept(7);
  EXPECT_EQ(lease.publish(), 4U) << "the block has a token that is not accepted";
  lease.accept(8);
  EXPECT_EQ(lease.publish(), 8U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbxy zz")}), 8U);
}

TEST_F(SpeculationTest, RejectedDraftsAreNeverPublished) {
  Lease lease = admit({.tokens = tokens("aaaa bb"), .reserve_tokens = 12});
  lease.draft(tokens("xyzw"));
  compute(lease);
  lease.accept(7);
  lease.truncate(7);
  EXPECT_EQ(lease.tokens(), 7U);
  EXPECT_EQ(lease.written_tokens(), 7U);
  EXPECT_EQ(lease.block_table().size(), 3U) << "blocks stay reserved";
  lease.append(tokens("Y"));
  EXPECT_EQ(lease.publish(), 4U) << "what is in the place of the draft is not written yet";
  compute(lease);
  EXPECT_EQ(lease.publish(), 8U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbxY z")}), 8U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbxy z")}), 4U);
}

TEST_F(SpeculationTest, FinishLeavesDraftsThatWereNotAcceptedUnpublished) {
  Lease lease = admit({.tokens = tokens("aaaa bb"), .reserve_tokens = 12});
  lease.draft(tokens("xyzw"));
  compute(lease);
  lease.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbxy zz")}), 4U);
  EXPECT_EQ(used_blocks(), 1U);
}

TEST_F(SpeculationTest, AStepInFlightForRejectedDraftsKeepsTheirPlaceFromCounting) {
  Lease lease = admit({.tokens = tokens("aaaa bb"), .reserve_tokens = 12});
  compute(lease);
  lease.draft(tokens("xy"));
  lease.writes(1, 6, 8);
  lease.truncate(6);
  lease.append(tokens("XY"));
  lease.writes(2, 6, 8);
  manager().step_done(2);
  EXPECT_EQ(lease.written_tokens(), 6U) << "step 1 may yet write the rejected ones over it";
  EXPECT_EQ(lease.publish(), 4U);
  manager().step_done(1);
  EXPECT_EQ(lease.written_tokens(), 8U);
  EXPECT_EQ(lease.publish(), 8U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbXY z")}), 8U);
}

TEST_F(SpeculationTest, AStepThatWroteRejectedDraftsCountsOnlyUpToWhereTheyBegan) {
  Lease lease = admit({.tokens = tokens("aaaa bb"), .reserve_tokens = 12});
  lease.draft(tokens("xyzw"));
  lease.writes(1, 0, 10);
  lease.truncate(7);
  manager().step_done(1);
  EXPECT_EQ(lease.written_tokens(), 7U);
  lease.accept(7);
  lease.append(tokens("Y"));
  expect_refusal([&] { lease.writes(2, 8, 9); }, {"from", "gap", "token 7"});
  EXPECT_EQ(lease.written_tokens(), 7U);
}

TEST_F(SpeculationTest, DecodedTokensCanBeTruncatedToo) {
  Lease lease = admit({.tokens = tokens("aaaa bb"), .reserve_tokens = 12});
  lease.append(tokens("xyzw"));
  compute(lease);
  lease.truncate(5);
  EXPECT_EQ(lease.tokens(), 5U);
  EXPECT_EQ(lease.accepted_tokens(), 5U);
  EXPECT_EQ(lease.prompt_tokens(), 5U);
  EXPECT_EQ(lease.written_tokens(), 5U);
  lease.append(tokens("BBB"));
  compute(lease);
  EXPECT_EQ(lease.publish(), 8U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bBBB z")}), 8U);
}

TEST_F(SpeculationTest, AcceptedTokensStayAccepted) {
  Lease lease = admit({.tokens = tokens("aaaa bb")});
  lease.draft(tokens("xyz"));
  expect_refusal([&] { lease.accept(5); }, {"tokens", "5", "6 accepted", "9"});
  expect_refusal([&] { lease.accept(10); }, {"tokens", "10", "9"});
  EXPECT_EQ(lease.accepted_tokens(), 6U);
  lease.accept(9);
}

TEST_F(SpeculationTest, NothingIsAppendedWhileDraftsWait) {
  Lease lease = admit({.tokens = tokens("aaaa bb")});
  lease.draft(tokens("xyz"));
  lease.accept(7);
  expect_refusal([&] { lease.append(tokens("q")); }, {"tokens", "2 drafted", "accept or truncate"});
  EXPECT_EQ(lease.tokens(), 9U);
  lease.truncate(7);
  lease.append(tokens("q"));
  EXPECT_EQ(lease.accepted_tokens(), 8U);
}

TEST_F(SpeculationTest, WhatIsPublishedOrWasCachedIsNotTruncated) {
  cache({.tokens = tokens("aaaa b")});
  Lease lease = admit({.tokens = tokens("aaaa bbbb cc")});
  expect_refusal([&] { lease.truncate(3); }, {"tokens", "3", "4", "10"});
  expect_refusal([&] { lease.truncate(11); }, {"tokens", "11", "10"});
  compute(lease);
  lease.publish();
  expect_refusal([&] { lease.truncate(7); }, {"tokens", "7", "8", "10"});
  EXPECT_EQ(lease.tokens(), 10U);
  lease.truncate(8);
  EXPECT_EQ(lease.tokens(), 8U);
}

TEST_F(SpeculationTest, ALongSequenceIsPublishedByItsOwnTokens) {
  start({.blocks = 300});
  Tokens sequence = tokens("aaaa bb");
  Lease lease = admit({.tokens = sequence});
  compute(lease);
  for (TokenId i = 0; i < 600; ++i) {
    const Tokens drafts = {1000 + i, 2000 + i};
    lease.draft(drafts);
    ASSERT_EQ(lease.reserve(lease.tokens()), 0U);
    compute(lease);
    lease.accept(lease.accepted_tokens() + 1);
    lease.truncate(lease.accepted_tokens());
    sequence.push_back(1000 + i);
    if (i % 50 == 0) lease.publish();
  }
  lease.finish();
  sequence.push_back(7);
  EXPECT_EQ(matched({.tokens = sequence}), sequence.size() / 4 * 4);
}

}  // namespace
}  // namespace cairn
