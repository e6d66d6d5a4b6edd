// peek and peek_snapshot: what acquire and find_snapshot would answer, without a trace.
#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

class PeekTest : public RadixTreeTest {
 protected:
  [[nodiscard]] RadixTree::Peek peek(const Tokens& sequence, const ReadOptions& options = {}) {
    return tree_.index().peek(sequence, options);
  }
  [[nodiscard]] SnapshotRef peek_snapshot(const Tokens& sequence, const ReadOptions& options = {}) {
    return tree_.index().peek_snapshot(sequence, options);
  }
};

TEST_F(PeekTest, TellsTheMatchAndTheSnapshotThatAcquireWouldReturn) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2}, {.adapter = 5});
  tree_.put_plain(tokens("aaaa bb"), 50, {.session = 7, .adapter = 5});
  const ReadOptions options{.session_hash = 7, .adapter_id = 5};
  const RadixTree::Peek peeked = peek(tokens("aaaa bbbb cccc"), options);
  EXPECT_EQ(peeked.matched_tokens, 8u);
  EXPECT_THAT(peeked.snapshot, IsResident(50, 6));
  EXPECT_THAT(peek(tokens("aaaa bbbb"), {.session_hash = 8, .adapter_id = 5}).snapshot, IsNoSnapshot());
  EXPECT_EQ(peek(tokens("aaaa bbbb")).matched_tokens, 0u) << "another adapter";
}

TEST_F(PeekTest, KeepsTheLimitOnSnapshots) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aaaa bbbb"), 51);
  const RadixTree::Peek peeked = peek(tokens("aaaa bbbb"), {.max_snapshot_tokens = 7});
  EXPECT_EQ(peeked.matched_tokens, 8u);
  EXPECT_THAT(peeked.snapshot, IsResident(50, 4));
  EXPECT_THAT(peek_snapshot(tokens("aaaa bbbb"), {.max_snapshot_tokens = 7}), IsResident(50, 4));
  EXPECT_THAT(peek_snapshot(tokens("aaaa bbbb")), IsResident(51, 8));
}

TEST_F(PeekTest, TellsOfTailsAndOfSpilledSnapshots) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_tail(tokens("aaaa bbbb"), 50, {.session = 7});
  const ReadOptions own{.session_hash = 7};
  EXPECT_THAT(peek(tokens("aaaa bbbb"), own).snapshot, IsResidentTail(50, 8));
  EXPECT_THAT(peek(tokens("aaaa bbbb")).snapshot, IsNoSnapshot());
  const TierKey key = tree_.spill()->key;
  EXPECT_THAT(peek(tokens("aaaa bbbb"), own).snapshot, IsSpilledTail(key, 8));
}

TEST_F(PeekTest, WithoutAMatchedBlockAcquireNamesNoSnapshotAndFindSnapshotDoes) {
  tree_.put_plain(tokens("aa"), 50);
  EXPECT_EQ(peek(tokens("aabb")).matched_tokens, 0u);
  EXPECT_THAT(peek(tokens("aabb")).snapshot, IsNoSnapshot());
  EXPECT_THAT(peek_snapshot(tokens("aabb")), IsResident(50, 2));
  EXPECT_THAT(peek_snapshot(tokens("aabb"), {.max_snapshot_tokens = 1}), IsNoSnapshot());
}

TEST_F(PeekTest, LeavesNoUseNoStampNoPinAndNoCount) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.cache(tokens("bbbb"), {2});
  tree_.put_plain(tokens("bbbb"), 51);
  const auto before = counter_values(tree_.counters());
  const ReadOptions pin{.pin_snapshot = true};
  EXPECT_THAT(peek(tokens("aaaa"), pin).snapshot, IsResident(50, 4));
  EXPECT_THAT(peek_snapshot(tokens("aaaa"), pin), IsResident(50, 4));
  EXPECT_EQ(counter_values(tree_.counters()), before);
  EXPECT_THAT(tree_.evict(9).physical, ElementsAre(1, 2));
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
  EXPECT_EQ(tree_.evict_snapshot(), 51u);
}

}  // namespace
}  // namespace cairn
