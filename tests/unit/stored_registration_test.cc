// What a store had when the process started: register_stored_block and register_spilled_snapshot.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Action = BlockSpill::Action;
using Kind = StoredSnapshot::Kind;

class RegistrationTest : public RadixTreeTest {
 protected:
  RegistrationTest() : RadixTreeTest({.block_size = 4, .first_tier_key = 100}) {}

  // It reads the tokens before it returns.
  bool register_snapshot(TierKey key, TierKey parent, const char* text, Who who = {}, Kind kind = Kind::kPlain) {
    const Tokens own = tokens(text);
    return tree_.register_snapshot({kind, key, parent, who.adapter, who.session, own});
  }
};

TEST_F(RegistrationTest, RegisteredBlocksAreStored) {
  EXPECT_TRUE(tree_.register_block(7, 0, tokens("aaaa"), 5));
  EXPECT_TRUE(tree_.register_block(3, 7, tokens("bbbb"), 5));
  EXPECT_TRUE(tree_.register_block(9, 7, tokens("cccc"), 5));
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb"), 5), ElementsAre(7, 3));
  EXPECT_THAT(tree_.stored(tokens("aaaa cccc"), 5), ElementsAre(7, 9));
  EXPECT_THAT(tree_.stored(tokens("aaaa cccc")), IsEmpty());
  tree_.cache(tokens("aaaa bbbb dddd"), {1, 2, 3}, {.adapter = 5});
  const BlockSpills spills = tree_.evict_to_tier(3);
  ASSERT_EQ(spills.blocks.size(), 3u);
  EXPECT_EQ(spills.blocks[0].action, Action::kSpill);
  EXPECT_EQ(spills.blocks[0].key, 100u) << "new keys count up from the first one";
  EXPECT_EQ(spills.blocks[0].parent, 3u);
  EXPECT_EQ(spills.blocks[1].action, Action::kStored);
  EXPECT_EQ(spills.blocks[1].key, 3u);
}

TEST_F(RegistrationTest, WithoutItsParentsRecordNothingIsRegistered) {
  EXPECT_FALSE(tree_.register_block(3, 7, tokens("bbbb")));
  EXPECT_TRUE(tree_.register_block(7, 0, tokens("aaaa"), 5));
  EXPECT_FALSE(tree_.register_block(3, 7, tokens("bbbb"))) << "another adapter's";
  EXPECT_FALSE(register_snapshot(4, 8, "b", {.adapter = 5}));
  EXPECT_FALSE(register_snapshot(4, 7, "b"));
  EXPECT_TRUE(tree_.forget_record(7));
  EXPECT_FALSE(tree_.register_block(3, 7, tokens("bbbb"), 5));
  EXPECT_EQ(tree_.index().recorded_blocks(), 0u);
  EXPECT_EQ(tree_.index().validate(), "");
}

TEST_F(RegistrationTest, APlaceHasOneKeyAndAKeyOnePlace) {
  EXPECT_TRUE(tree_.register_block(7, 0, tokens("aaaa")));
  EXPECT_FALSE(tree_.register_block(8, 0, tokens("aaaa")));
  EXPECT_FALSE(tree_.register_block(7, 0, tokens("bbbb")));
  EXPECT_FALSE(tree_.register_block(7, 7, tokens("bbbb")));
  EXPECT_TRUE(register_snapshot(8, 7, "b"));
  EXPECT_FALSE(register_snapshot(9, 7, "b"));
  EXPECT_FALSE(register_snapshot(8, 7, "c"));
  EXPECT_FALSE(register_snapshot(7, 7, "c"));
  EXPECT_FALSE(tree_.register_block(8, 7, tokens("bbbb"))) << "a snapshot has that key";
  EXPECT_THAT(tree_.stored(tokens("aaaa bbbb")), ElementsAre(7));
}

TEST_F(RegistrationTest, RegisteredSnapshotsAreFoundAsSpilled) {
  EXPECT_TRUE(tree_.register_block(7, 0, tokens("aaaa"), 5));
  EXPECT_TRUE(register_snapshot(8, 7, "bb", {.adapter = 5}));
  EXPECT_TRUE(register_snapshot(9, 7, "", {.session = 2, .adapter = 5}, Kind::kTailSibling));
  EXPECT_TRUE(register_snapshot(10, 7, "bbb", {.session = 2, .adapter = 5}, Kind::kTail));
  EXPECT_TRUE(register_snapshot(11, 0, "aa"));
  const Tokens prompt = tokens("aaaa bbbb");
  EXPECT_THAT(tree_.find(prompt, 8, {.session = 2, .adapter = 5}), IsSpilledTail(10, 7));
  EXPECT_THAT(tree_.find(prompt, 8, {.session = 3, .adapter = 5}), IsSpilled(8, 6));
  EXPECT_THAT(tree_.find(prompt, 5, {.session = 2, .adapter = 5}), IsSpilled(9, 4));
  EXPECT_THAT(tree_.find(prompt, 8), IsSpilled(11, 2));
  EXPECT_TRUE(tree_.promote(10, 50));
  EXPECT_THAT(tree_.find(prompt, 8, {.session = 2, .adapter = 5}), IsResidentTail(50, 7));
  EXPECT_EQ(tree_.put_tail(tokens("cccc"), 51, {.session = 2}), std::vector<SnapshotId>{50});
  EXPECT_THAT(tree_.take_orphans(), ElementsAre(9)) << "the session's sibling is swept as ever";
}

TEST_F(RegistrationTest, ASnapshotWithoutBlocksBringsAllOfItsTokens) {
  EXPECT_TRUE(register_snapshot(8, 0, "aaaa bbbb c", {.session = 2, .adapter = 5}, Kind::kTail));
  EXPECT_TRUE(register_snapshot(9, 0, "aaaa", {.adapter = 5}));
  EXPECT_FALSE(register_snapshot(10, 0, "aaaa", {.session = 3, .adapter = 5})) << "the place is taken";
  EXPECT_TRUE(register_snapshot(10, 0, "aaaa dddd", {.adapter = 5}));
  const Tokens prompt = tokens("aaaa bbbb cccc");
  EXPECT_THAT(tree_.find(prompt, 12, {.session = 2, .adapter = 5}), IsSpilledTail(8, 9));
  EXPECT_THAT(tree_.find(prompt, 12, {.session = 3, .adapter = 5}), IsSpilled(9, 4));
  EXPECT_THAT(tree_.find(tokens("aaaa dddd"), 8, {.adapter = 5}), IsSpilled(10, 8));
  EXPECT_THAT(tree_.stored(prompt), ElementsAre());

  const auto whole = tree_.index().spilled_snapshot(8, true);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->tokens, tokens("aaaa bbbb c"));
  EXPECT_EQ(whole->parent, 0U);
  EXPECT_EQ(whole->first_token, 0U);
  EXPECT_EQ(tree_.index().spilled_snapshot(8)->tokens, tokens("c"));
  EXPECT_TRUE(tree_.forget(8));
  EXPECT_TRUE(tree_.forget(9));
  EXPECT_THAT(tree_.find(tokens("aaaa dddd"), 8, {.adapter = 5}), IsSpilled(10, 8));
}

TEST_F(RegistrationTest, ASessionHasOneTailAndOneSibling) {
  EXPECT_TRUE(register_snapshot(8, 0, "a", {.session = 2}, Kind::kTail));
  EXPECT_FALSE(register_snapshot(9, 0, "b", {.session = 2}, Kind::kTail));
  EXPECT_TRUE(register_snapshot(9, 0, "b", {.session = 2}, Kind::kTailSibling));
  EXPECT_FALSE(register_snapshot(10, 0, "c", {.session = 2}, Kind::kTailSibling));
  EXPECT_FALSE(register_snapshot(10, 0, "c", {}, Kind::kTail)) << "nobody could find it";
}

TEST_F(RegistrationTest, WhatCanNotBeIsRefused) {
  const Tokens block = tokens("aaaa"), short_one = tokens("aaa");
  RadixTree& tree = tree_.index();
  EXPECT_THROW(tree.register_stored_block({0, 0, 0, block}), std::invalid_argument);
  EXPECT_THROW(tree.register_stored_block({100, 0, 0, block}), std::invalid_argument);
  EXPECT_THROW(tree.register_stored_block({7, 0, 0, short_one}), std::invalid_argument);
  EXPECT_THROW(tree.register_spilled_snapshot({Kind::kPlain, 0, 0, 0, 0, short_one}), std::invalid_argument);
  EXPECT_THROW(tree.register_spilled_snapshot({Kind::kPlain, 100, 0, 0, 0, short_one}), std::invalid_argument);
  EXPECT_THROW(tree.register_spilled_snapshot({Kind::kPlain, 7, 6, 0, 0, block}), std::invalid_argument);
  EXPECT_THROW(tree.register_spilled_snapshot({Kind::kPlain, 7, 0, 0, 0, {}}), std::invalid_argument);
  EXPECT_EQ(tree.validate(), "");
  EXPECT_EQ(tree.snapshot_count(), 0u);
}

TEST_F(RegistrationTest, AWholeTreeComesBackAsItWas) {
  RadixTree before({.block_size = 4});
  const Tokens one = token_range(0, 40), two = token_range(0, 20);
  Tokens other = two;
  for (TokenId token = 100; token < 120; ++token) other.push_back(token);
  static_cast<void>(before.insert(one, block_range(0, 10), {}, 4, one.size(), 0));
  static_cast<void>(before.insert(other, block_range(20, 10), {}, 4, other.size(), 0));
  const BlockSpills saved = before.save_blocks(1000);
  ASSERT_EQ(saved.blocks.size(), 15u);
  for (std::size_t i = 0; i < saved.blocks.size(); ++i) {
    const BlockSpill& spill = saved.blocks[i];
    const auto own = saved.tokens.begin() + static_cast<std::ptrdiff_t>(4 * i);
    EXPECT_TRUE(tree_.register_block(spill.key, spill.parent, Tokens(own, own + 4), spill.adapter_id));
  }
  EXPECT_EQ(before.evict(1000).size(), 15u);
  const ReadOptions options{.stored_blocks = true};
  for (const Tokens& sequence : {one, other}) {
    EXPECT_THAT(tree_.stored(sequence), before.acquire(sequence, options).stored_blocks);
    EXPECT_EQ(tree_.stored(sequence).size(), 10u);
  }
}

}  // namespace
}  // namespace cairn
