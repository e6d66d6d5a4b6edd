// Lease::fork: two sequences from one.
#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using ::testing::IsEmpty;

class ForkTest : public AttentionTest {
 protected:
  Lease fork(Lease& parent) {
    Lease::Forked forked = parent.fork();
    if (!forked.lease) throw std::runtime_error("there was no block for the fork");
    return std::move(*forked.lease);
  }
  void decode(Lease& lease, std::string_view text) {
    lease.append(tokens(text));
    ASSERT_EQ(lease.reserve(lease.tokens()), 0U);
    compute(lease);
  }
};
class HybridForkTest : public ForkTest {
 protected:
  HybridForkTest() { start({.blocks = 16, .slots = 4}); }
};

TEST_F(ForkTest, FullBlocksAreSharedAndThePartlyFilledOneIsCopied) {
  Lease parent = admit({.tokens = tokens("aaaa bbbb cc")});
  compute(parent);
  const Lease child = fork(parent);
  EXPECT_EQ(child.tokens(), 10U);
  EXPECT_EQ(child.accepted_tokens(), 10U);
  EXPECT_EQ(child.written_tokens(), 10U);
  EXPECT_EQ(child.first_token_to_compute(), 10U);
  EXPECT_EQ(child.cached_tokens(), 10U);
  EXPECT_EQ(child.published_tokens(), 8U);
  ASSERT_EQ(child.block_table().size(), 3U);
  EXPECT_EQ(child.block_table()[0], parent.block_table()[0]);
  EXPECT_EQ(child.block_table()[1], parent.block_table()[1]);
  ASSERT_EQ(child.copies().size(), 1U);
  EXPECT_EQ(child.copies()[0].from, parent.block_table()[2]);
  EXPECT_EQ(child.copies()[0].to, child.block_table()[2]);
  EXPECT_NE(child.copies()[0].to, parent.block_table()[2]);
  EXPECT_EQ(child.copies()[0].tokens, 2U);
  EXPECT_EQ(used_blocks(), 4U);
  EXPECT_THAT(child.capture_points(), IsEmpty());
}

TEST_F(ForkTest, AlignedSequencesHaveNothingToCopy) {
  Lease parent = admit({.tokens = tokens("aaaa bbbb")});
  compute(parent);
  const Lease child = fork(parent);
  EXPECT_THAT(child.copies(), IsEmpty());
  EXPECT_EQ(child.block_table().size(), 2U);
  EXPECT_EQ(used_blocks(), 2U);
}

TEST_F(ForkTest, BothGoOnByThemselves) {
  Lease parent = admit({.tokens = tokens("aaaa bb")});
  compute(parent);
  Lease child = fork(parent);
  child.restored();
  decode(parent, "xx pppp");
  decode(child, "yy qqqq");
  parent.finish();
  child.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbxx pppp z")}), 12U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbyy qqqq z")}), 12U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbxx qqqq z")}), 8U);
  EXPECT_EQ(used_blocks(), 5U);
}

TEST_F(ForkTest, EitherMayEndFirst) {
  for (const bool parent_first : {true, false}) {
    start({.blocks = 4});
    Lease parent = admit({.tokens = tokens("aaaa bbbb cc")});
    compute(parent);
    Lease child = fork(parent);
    const BlockId copied = child.copies()[0].from;
    if (parent_first) {
      parent.abandon();
      EXPECT_EQ(blocks_->references(copied), 1U) << "until the child has copied it";
      EXPECT_EQ(manager().admit({.tokens = tokens("x")}).missing_blocks, 1U);
      child.restored();
      EXPECT_EQ(blocks_->references(copied), 0U);
      EXPECT_EQ(manager().admit({.tokens = tokens("xxxx x")}).missing_blocks, 1U) << "the child holds the rest";
      child.append(tokens("dd"));
      compute(child);
      child.finish();
      EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb ccdd e")}), 12U);
    } else {
      child.abandon();
      EXPECT_EQ(blocks_->references(copied), 1U);
      parent.append(tokens("dd"));
      compute(parent);
      parent.finish();
      EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb ccdd e")}), 12U);
    }
  }
}

TEST_F(ForkTest, WhatIsSharedIsNotWrittenAgain) {
  Lease parent = admit({.tokens = tokens("aaaa bbbb cc"), .no_publish = true});
  compute(parent);
  const Lease child = fork(parent);
  expect_refusal([&] { parent.writes(1, 6, 8); }, {"from", "[6, 8)", "token 10", "fork"});
  expect_refusal([&] { parent.truncate(9); }, {"tokens", "9", "10", "fork"});
  parent.append(tokens("d"));
  parent.writes(1, 10, 11);
  manager().step_done(1);
}

TEST_F(ForkTest, WhatIsNotPublishedIsSharedByReference) {
  Lease parent = admit({.tokens = tokens("aaaa bbbb c"), .no_publish = true});
  compute(parent);
  Lease child = fork(parent);
  EXPECT_EQ(child.published_tokens(), 0U);
  EXPECT_EQ(blocks_->references(parent.block_table()[0]), 2U);
  EXPECT_EQ(blocks_->references(parent.block_table()[1]), 2U);
  parent.finish();
  EXPECT_EQ(used_blocks(), 4U) << "two shared, one of its own, one to copy from";
  child.restored();
  EXPECT_EQ(used_blocks(), 3U);
  child.finish();
  EXPECT_EQ(used_blocks(), 0U) << "the child publishes nothing either";
}

TEST_F(ForkTest, OnlyWhatIsWrittenIsShared) {
  Lease parent = admit({.tokens = tokens("aaaa bbbb cccc d")});
  compute(parent, 4);
  parent.writes(1, 4, 8);
  Lease child = fork(parent);
  EXPECT_EQ(child.tokens(), 13U);
  EXPECT_EQ(child.prompt_tokens(), 13U);
  EXPECT_EQ(child.first_token_to_compute(), 4U);
  EXPECT_EQ(child.block_table().size(), 1U);
  EXPECT_THAT(child.copies(), IsEmpty());
  manager().step_failed(1);
  ASSERT_EQ(child.reserve(13), 0U);
  compute(child);
  child.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb cccc d")}), 12U);
}

TEST_F(ForkTest, AForkOfAForkIsOneToo) {
  Lease first = admit({.tokens = tokens("aaaa bb")});
  compute(first);
  Lease second = fork(first);
  second.restored();
  Lease third = fork(second);
  EXPECT_EQ(third.copies()[0].from, second.block_table()[1]);
  first.abandon();
  second.abandon();
  third.restored();
  third.append(tokens("cc"));
  compute(third);
  third.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbcc d")}), 8U);
  EXPECT_EQ(stats().forks, 2U);
  EXPECT_EQ(stats().requests, 1U);
  EXPECT_EQ(stats().prompt_tokens, 6U);
}

TEST_F(ForkTest, AfterAClearBothGoOnWithWhatTheyHave) {
  Lease parent = admit({.tokens = tokens("aaaa bbbb cc")});
  compute(parent);
  parent.publish();
  manager().clear();
  Lease child = fork(parent);
  EXPECT_EQ(child.block_table()[0], parent.block_table()[0]);
  parent.finish();
  EXPECT_EQ(stats().blocks_held_by_clears, 2U);
  child.restored();
  child.append(tokens("dd"));
  compute(child);
  child.finish();
  EXPECT_EQ(stats().blocks_held_by_clears, 0U);
  EXPECT_EQ(used_blocks(), 0U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbbb ccdd e")}), 0U);
}

TEST_F(ForkTest, AClearAfterTheForkKeepsTheBlocksForBoth) {
  Lease parent = admit({.tokens = tokens("aaaa bbbb cc")});
  compute(parent);
  Lease child = fork(parent);
  manager().clear();
  parent.abandon();
  EXPECT_EQ(stats().blocks_held_by_clears, 2U);
  child.abandon();
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(ForkTest, WithoutABlockToHaveThereIsNoForkAndNothingHasChanged) {
  start({.blocks = 2});
  Lease parent = admit({.tokens = tokens("aaaa bb")});
  compute(parent);
  const Lease::Forked forked = parent.fork();
  EXPECT_FALSE(forked.lease);
  EXPECT_EQ(forked.missing_blocks, 1U);
  EXPECT_EQ(stats().forks, 0U);
  EXPECT_EQ(stats().refused_reserves, 1U);
  EXPECT_EQ(stats().live_leases, 1U);
  EXPECT_EQ(used_blocks(), 2U);
  parent.append(tokens("cc"));
  compute(parent);
  parent.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbcc d")}), 8U);
}

TEST_F(ForkTest, WhatWaitsHasToBeSettledFirst) {
  Lease parent = admit({.tokens = tokens("aaaa bb")});
  parent.draft(tokens("xy"));
  expect_refusal([&] { (void)parent.fork(); }, {"fork", "2 drafted", "accept or truncate"});
  EXPECT_EQ(stats().forks, 0U);
}

TEST_F(ForkTest, TheChildKeepsItsAdapterKnown) {
  start({.blocks = 16}, {.adapters_max = 0});
  Lease parent = admit({.tokens = tokens("aaaa bb"), .adapter = "lora"});
  compute(parent);
  Lease child = fork(parent);
  parent.finish();
  child.restored();
  decode(child, "cc");
  child.publish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbcc d"), .adapter = "lora"}), 8U);
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbcc d")}), 0U);
  child.finish();
  EXPECT_EQ(matched({.tokens = tokens("aaaa bbcc d"), .adapter = "lora"}), 0U);
}

TEST_F(ForkTest, TheChildKeepsItsMediaKnown) {
  start({.blocks = 16}, {.media_max = 0});
  const MediaSpan cat[] = {{.position = 0, .length = 4, .content_id = {1, 2}}};
  Lease parent = admit({.tokens = tokens("pppp aa"), .media = cat});
  compute(parent);
  Lease child = fork(parent);
  parent.finish();
  EXPECT_EQ(matched({.tokens = tokens("pppp aa"), .media = cat}), 4U);
  child.finish();
  EXPECT_EQ(matched({.tokens = tokens("pppp aa"), .media = cat}), 0U);
}

TEST_F(ForkTest, AChildThatWasDroppedWaitsForItsOwnStepsOnly) {
  Lease parent = admit({.tokens = tokens("aaaa bb")});
  compute(parent);
  Lease child = fork(parent);
  child.restored();
  child.append(tokens("c"));
  child.writes(1, 6, 7);
  child.abandon();
  parent.abandon();
  EXPECT_EQ(stats().waiting_for_steps, 1U);
  EXPECT_EQ(used_blocks(), 1U + 1U);
  manager().step_done(1);
  EXPECT_EQ(used_blocks(), 1U);
}

TEST_F(HybridForkTest, TheChildCapturesFromWhereItBegan) {
  Lease parent = admit({.tokens = tokens("aaaa bb"), .session = 1});
  compute(parent);
  Lease child = fork(parent);
  EXPECT_FALSE(child.restore_point()) << "live state is the engine's to copy";
  child.restored();
  expect_refusal([&] { (void)child.capture(5); }, {"tokens", "5", "from token 6"});
  decode(child, "cc dd");
  EXPECT_TRUE(capture(child, 8));
  child.finish();
  EXPECT_EQ(reusable({.tokens = tokens("aaaa bbcc e")}), 8U);
}

TEST_F(HybridForkTest, NothingIsForkedBeforeItIsRestored) {
  cache_with_states({.tokens = tokens("aaaa b")}, {4});
  Lease parent = admit({.tokens = tokens("aaaa b")});
  expect_refusal([&] { (void)parent.fork(); }, {"fork", "restored"});
  parent.restored();
  const Lease child = fork(parent);
  EXPECT_EQ(child.first_token_to_compute(), 4U);
}

TEST_F(HybridForkTest, PurelyRecurrentSequencesForkWithoutBlocks) {
  start({.slots = 4});
  Lease parent = admit({.tokens = tokens("aaaa bb")});
  compute(parent, 5);
  Lease child = fork(parent);
  EXPECT_EQ(child.first_token_to_compute(), 5U);
  EXPECT_EQ(child.cached_tokens(), 0U);
  EXPECT_THAT(child.block_table(), IsEmpty());
  EXPECT_THAT(child.copies(), IsEmpty());
  compute(child);
  EXPECT_TRUE(capture(child, 6));
  child.finish();
  EXPECT_EQ(reusable({.tokens = tokens("aaaa bb c")}), 6U);
}

}  // namespace
}  // namespace cairn
