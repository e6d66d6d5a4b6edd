// Pinned snapshots, as <cairn/radix_tree.h> documents them: who is pinned, what a pin keeps from happening, and who
// gets the slot in the end.
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr ReadOptions kPin{.pin_snapshot = true};

class SnapshotPinsTest : public RadixTreeTest {
 protected:
  // A pin on the snapshot at `sequence`.
  SnapshotPin pin_at(const Tokens& sequence, Who who = {}) {
    auto found =
        tree_.find_with(sequence, {.session_hash = who.session, .adapter_id = who.adapter, .pin_snapshot = true});
    EXPECT_TRUE(found.pin.valid());
    EXPECT_EQ(found.snapshot.tokens, sequence.size());
    return std::move(found.pin);
  }
};

// ---- What is pinned ----

TEST_F(SnapshotPinsTest, AcquirePinsTheSnapshotThatItReturns) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa bb"), 50);
  auto [handle, match, pin, stored] = tree_.acquire_with(tokens("aaaa bbbb cc"), kPin);
  EXPECT_EQ(handle.tokens(), 8u);
  EXPECT_THAT(match.matched_blocks, ElementsAre(1, 2));
  EXPECT_THAT(snapshot_of(match), IsResident(50, 6));
  EXPECT_TRUE(pin.valid());
  EXPECT_EQ(pin.slot(), 50u);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  tree_.release(handle);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt) << "the handle's end is not the pin's";
  EXPECT_EQ(tree_.unpin(pin), std::nullopt) << "the snapshot is still there";
  EXPECT_FALSE(pin.valid());
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
}

TEST_F(SnapshotPinsTest, FindSnapshotPinsWhereNoBlockIsCached) {
  tree_.put_plain(tokens("aa"), 50, {.session = 7, .adapter = 5});
  auto [snapshot, pin] = tree_.find_with(tokens("aabb"), {.session_hash = 7, .adapter_id = 5, .pin_snapshot = true});
  EXPECT_THAT(snapshot, IsResident(50, 2));
  EXPECT_EQ(pin.slot(), 50u);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  EXPECT_EQ(tree_.unpin(pin), std::nullopt);
}

TEST_F(SnapshotPinsTest, NothingIsPinnedUnlessItIsAskedFor) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50);
  auto acquired = tree_.acquire_with(tokens("aaaa"), {});
  EXPECT_THAT(snapshot_of(acquired.match), IsResident(50, 4));
  EXPECT_FALSE(acquired.pin.valid());
  auto found = tree_.find_with(tokens("aaaa"), {});
  EXPECT_THAT(found.snapshot, IsResident(50, 4));
  EXPECT_FALSE(found.pin.valid());
  tree_.release(acquired.handle);
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
}

TEST_F(SnapshotPinsTest, WhereThereIsNoSnapshotThereIsNoPin) {
  tree_.cache(tokens("aaaa"), {1});
  auto acquired = tree_.acquire_with(tokens("aaaa"), kPin);
  EXPECT_FALSE(acquired.pin.valid());
  EXPECT_FALSE(tree_.find_with(tokens("aaaa"), kPin).pin.valid());
  tree_.release(acquired.handle);
}

TEST_F(SnapshotPinsTest, ASpilledSnapshotIsReturnedButNotPinned) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa"), 50);
  const TierKey key = tree_.spill()->key;
  auto acquired = tree_.acquire_with(tokens("aaaa"), kPin);
  EXPECT_THAT(snapshot_of(acquired.match), IsSpilled(key, 4));
  EXPECT_FALSE(acquired.pin.valid());
  EXPECT_EQ(tree_.counters().pinned_snapshots, 0u);
  tree_.release(acquired.handle);
  EXPECT_TRUE(tree_.forget(key)) << "no pin keeps it";
}

TEST_F(SnapshotPinsTest, APromotedSnapshotCanBePinned) {
  tree_.put_plain(tokens("aaaa"), 50);
  const TierKey key = tree_.spill()->key;
  ASSERT_TRUE(tree_.promote(key, 51));
  SnapshotPin pin = pin_at(tokens("aaaa"));
  EXPECT_EQ(pin.slot(), 51u);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  EXPECT_EQ(tree_.unpin(pin), std::nullopt);
}

// ---- How deep ----

TEST_F(SnapshotPinsTest, TheSnapshotIsTheDeepestWithinTheLimitThoughMoreIsMatched) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aaaa bb"), 51);
  tree_.put_plain(tokens("aaaa bbbb"), 52);
  const auto snapshot_within = [&](std::size_t max_tokens) {
    auto acquired = tree_.acquire_with(tokens("aaaa bbbb"), {.max_snapshot_tokens = max_tokens});
    EXPECT_EQ(acquired.match.matched_tokens, 8u);
    tree_.release(acquired.handle);
    return snapshot_of(acquired.match);
  };
  EXPECT_THAT(snapshot_within(100), IsResident(52, 8));
  EXPECT_THAT(snapshot_within(8), IsResident(52, 8));
  EXPECT_THAT(snapshot_within(7), IsResident(51, 6)) << "the last token of the prompt has to be computed";
  EXPECT_THAT(snapshot_within(6), IsResident(51, 6));
  EXPECT_THAT(snapshot_within(5), IsResident(50, 4));
  EXPECT_THAT(snapshot_within(3), IsNoSnapshot());
  EXPECT_THAT(snapshot_within(0), IsNoSnapshot());
}

TEST_F(SnapshotPinsTest, TheLimitIsNotBeyondWhatMatched) {
  tree_.cache(tokens("aaaa"), {1});
  tree_.put_plain(tokens("aaaa bb"), 50);
  auto acquired = tree_.acquire_with(tokens("aaaa bb"), {.max_snapshot_tokens = 6, .pin_snapshot = true});
  EXPECT_THAT(snapshot_of(acquired.match), IsNoSnapshot());
  EXPECT_FALSE(acquired.pin.valid());
  tree_.release(acquired.handle);
}

TEST_F(SnapshotPinsTest, TheLimitMayLieEdgesAboveTheEndOfTheMatch) {
  tree_.cache(tokens("aaaa bbbb xxxx"), {1, 2, 3});
  tree_.cache(tokens("aaaa cccc xxxx"), {1, 4, 5});  // another edge
  tree_.put_plain(tokens("aaaa"), 50);
  tree_.put_plain(tokens("aaaa cccc xx"), 51);
  auto acquired = tree_.acquire_with(tokens("aaaa cccc xxxx"), {.max_snapshot_tokens = 5, .pin_snapshot = true});
  EXPECT_THAT(snapshot_of(acquired.match), IsResident(50, 4));
  EXPECT_EQ(acquired.pin.slot(), 50u);
  EXPECT_EQ(tree_.unpin(acquired.pin), std::nullopt);
  tree_.release(acquired.handle);
}

TEST_F(SnapshotPinsTest, BelowATailAtTheEndOfThePromptLiesItsSibling) {
  tree_.cache(tokens("aaaa bbbb"), {1, 2});
  tree_.put_tail(tokens("aaaa bbbb"), 50, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 51, {.session = 7});
  auto [handle, match, pin, stored] =
      tree_.acquire_with(tokens("aaaa bbbb"), {.session_hash = 7, .max_snapshot_tokens = 7, .pin_snapshot = true});
  EXPECT_THAT(snapshot_of(match), IsResident(51, 4));
  EXPECT_EQ(pin.slot(), 51u);
  EXPECT_EQ(tree_.unpin(pin), std::nullopt);
  tree_.release(handle);
}

TEST_F(SnapshotPinsTest, FindSnapshotKeepsTheLimitToo) {
  tree_.put_plain(tokens("aa"), 50);
  tree_.put_plain(tokens("aabb"), 51);
  EXPECT_THAT(tree_.find_with(tokens("aabb"), {.max_snapshot_tokens = 3}).snapshot, IsResident(50, 2));
  EXPECT_THAT(tree_.find_with(tokens("aabb"), {}).snapshot, IsResident(51, 4));
}

// ---- Eviction and spilling ----

TEST_F(SnapshotPinsTest, EvictionPassesOverPinnedSnapshots) {
  tree_.put_plain(tokens("a"), 50);
  tree_.put_plain(tokens("b"), 51);
  tree_.put_plain(tokens("c"), 52);
  SnapshotPin pin = pin_at(tokens("a"));
  tree_.find(tokens("b"), 1);
  tree_.find(tokens("c"), 1);  // a's is the least recently used
  EXPECT_EQ(tree_.evict_snapshot(), 51u);
  const auto spilled = tree_.spill();
  ASSERT_TRUE(spilled);
  EXPECT_EQ(spilled->slot, 52u);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  EXPECT_EQ(tree_.spill(), std::nullopt);
  EXPECT_THAT(tree_.find(tokens("a"), 1), IsResident(50, 1));
  EXPECT_EQ(tree_.unpin(pin), std::nullopt);
}

TEST_F(SnapshotPinsTest, AfterTheLastUnpinASnapshotIsEvictedInItsTurn) {
  tree_.put_plain(tokens("a"), 50);
  tree_.put_plain(tokens("b"), 51);
  SnapshotPin pin = pin_at(tokens("a"));
  tree_.put_plain(tokens("c"), 52);
  EXPECT_EQ(tree_.evict_snapshot(), 51u);
  EXPECT_EQ(tree_.evict_snapshot(), 52u);
  tree_.put_plain(tokens("d"), 53);
  EXPECT_EQ(tree_.unpin(pin), std::nullopt);
  EXPECT_EQ(tree_.evict_snapshot(), 50u) << "an unpin does not stamp";
  EXPECT_EQ(tree_.evict_snapshot(), 53u);
}

TEST_F(SnapshotPinsTest, ManyPinnedSnapshotsReturnToTheOrderOfEviction) {
  constexpr std::size_t kSnapshots = 300;
  std::vector<SnapshotPin> pins;
  for (TokenId i = 0; i < kSnapshots; ++i) {
    tree_.put_plain(Tokens{i}, i);
    pins.push_back(pin_at(Tokens{i}));
  }
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  EXPECT_EQ(tree_.index().validate(), "");
  for (std::size_t i = kSnapshots; i-- > 0;) EXPECT_EQ(tree_.unpin(pins[i]), std::nullopt);
  EXPECT_EQ(tree_.index().validate(), "");
  for (std::size_t i = 0; i < kSnapshots; ++i) EXPECT_EQ(tree_.evict_snapshot(), i);
}

TEST_F(SnapshotPinsTest, TwoPinsOnOneSnapshotCount) {
  tree_.put_plain(tokens("a"), 50);
  SnapshotPin first = pin_at(tokens("a"));
  SnapshotPin second = pin_at(tokens("a"));
  EXPECT_EQ(tree_.counters().pinned_snapshots, 1u);
  EXPECT_EQ(tree_.unpin(first), std::nullopt);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  EXPECT_EQ(tree_.unpin(second), std::nullopt);
  EXPECT_EQ(tree_.counters().pinned_snapshots, 0u);
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
}

// ---- A snapshot that goes while it is pinned ----

TEST_F(SnapshotPinsTest, APutThatReplacesAPinnedSnapshotLeavesItsSlotToTheLastUnpin) {
  tree_.put_plain(tokens("aaaa"), 50);
  SnapshotPin first = pin_at(tokens("aaaa"));
  SnapshotPin second = pin_at(tokens("aaaa"));
  EXPECT_EQ(tree_.put_plain(tokens("aaaa"), 51), std::nullopt);
  EXPECT_THAT(tree_.find(tokens("aaaa"), 4), IsResident(51, 4)) << "it is gone from the cache at once";
  EXPECT_EQ(tree_.snapshot_count(), 1u);
  EXPECT_EQ(tree_.counters().snapshots_replaced, 1u);
  EXPECT_EQ(tree_.unpin(first), std::nullopt);
  EXPECT_EQ(tree_.unpin(second), 50u);
  EXPECT_EQ(tree_.evict_snapshot(), 51u);
}

TEST_F(SnapshotPinsTest, EachOfSeveralReplacedSnapshotsGivesItsSlotToItsOwnPin) {
  tree_.put_plain(tokens("aaaa"), 50);
  SnapshotPin first = pin_at(tokens("aaaa"));
  tree_.put_plain(tokens("aaaa"), 51);
  SnapshotPin second = pin_at(tokens("aaaa"));
  EXPECT_EQ(tree_.counters().pinned_snapshots, 2u);
  tree_.insert_with_snapshot(tokens("aaaa"), {1}, 52, {.matched_tokens = 4});
  EXPECT_EQ(tree_.unpin(second), 51u);
  EXPECT_EQ(tree_.unpin(first), 50u);
  EXPECT_EQ(tree_.evict_snapshot(), 52u);
}

TEST_F(SnapshotPinsTest, ASweepOfItsSessionLeavesAPinnedSlotToItsUnpin) {
  tree_.put_tail(tokens("aaaa bbbb"), 50, {.session = 7});
  tree_.put_sibling(tokens("aaaa"), 51, {.session = 7});
  SnapshotPin pin = pin_at(tokens("aaaa bbbb"), {.session = 7});
  EXPECT_THAT(tree_.put_tail(tokens("aaaa bbbb cccc"), 52, {.session = 7}), ElementsAre(51));
  EXPECT_THAT(tree_.find(tokens("aaaa bbbb"), 8, {.session = 7}), IsNoSnapshot());
  EXPECT_EQ(tree_.unpin(pin), 50u);
}

TEST_F(SnapshotPinsTest, AClearLeavesAPinnedSlotToItsUnpin) {
  tree_.put_plain(tokens("a"), 50, {.adapter = 5});
  tree_.put_plain(tokens("b"), 51, {.adapter = 5});
  tree_.put_plain(tokens("c"), 52);
  SnapshotPin of_adapter = pin_at(tokens("a"), {.adapter = 5});
  SnapshotPin of_base = pin_at(tokens("c"));
  EXPECT_THAT(tree_.clear(5).slots, ElementsAre(51));
  EXPECT_THAT(tree_.clear_all().slots, IsEmpty());
  EXPECT_EQ(tree_.snapshot_count(), 0u);
  EXPECT_EQ(tree_.counters().pinned_snapshots, 2u);
  EXPECT_EQ(tree_.index().validate(), "");
  EXPECT_EQ(tree_.unpin(of_adapter), 50u) << "a clear does not end a pin";
  EXPECT_EQ(tree_.unpin(of_base), 52u);
}

TEST_F(SnapshotPinsTest, ASnapshotThatEvictionPassedOverCanBeReplacedAndCleared) {
  tree_.put_plain(tokens("a"), 50);
  tree_.put_plain(tokens("b"), 51);
  SnapshotPin replaced = pin_at(tokens("a"));
  SnapshotPin cleared = pin_at(tokens("b"));
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  tree_.put_plain(tokens("a"), 52);
  EXPECT_EQ(tree_.index().validate(), "");
  EXPECT_THAT(tree_.clear_all().slots, UnorderedElementsAre(52));
  EXPECT_EQ(tree_.index().validate(), "");
  EXPECT_EQ(tree_.unpin(replaced), 50u);
  EXPECT_EQ(tree_.unpin(cleared), 51u);
}

TEST_F(SnapshotPinsTest, ASlotThatWaitsForItsUnpinIsRefused) {
  tree_.put_plain(tokens("spilled"), 49);
  const TierKey key = tree_.spill()->key;
  tree_.put_plain(tokens("a"), 50);
  SnapshotPin pin = pin_at(tokens("a"));
  tree_.put_plain(tokens("a"), 51);
  tree_.put_tail(tokens("t"), 52, {.session = 7});
  const auto expect_refusal = [](const char* argument, const auto& call) {
    try {
      call();
      ADD_FAILURE() << "did not throw";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(argument));
      EXPECT_THAT(error.what(), HasSubstr("50"));
    }
  };
  RadixTree& index = tree_.index();
  expect_refusal("snapshot_id", [&] { index.insert_intermediate_snapshot(tokens("b"), {}, {}, 4, 50, 0, 0, 0); });
  expect_refusal("snapshot_id", [&] { index.insert_with_snapshot(tokens("b"), {}, {}, 4, 50, 0, 0, 0); });
  expect_refusal("snapshot_id", [&] { index.insert_tail_snapshot(tokens("b"), 50, 7, 0); });
  expect_refusal("snapshot_id", [&] { index.insert_tail_sibling_snapshot(tokens("b"), 50, 7, 0); });
  expect_refusal("new_slot", [&] { index.promote_snapshot(key, 50); });
  EXPECT_EQ(tree_.snapshot_count(), 3u);
  EXPECT_EQ(tree_.unpin(pin), 50u);
  EXPECT_TRUE(tree_.promote(key, 50)) << "its unpin has freed it";
}

// ---- The pin itself ----

TEST_F(SnapshotPinsTest, ADefaultPinIsNotValidAndIsLetPass) {
  SnapshotPin pin;
  EXPECT_FALSE(pin.valid());
  EXPECT_EQ(tree_.unpin(pin), std::nullopt);
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

TEST_F(SnapshotPinsTest, AnUnpinnedPinIsNotValidAndASecondUnpinIsLetPass) {
  tree_.put_plain(tokens("a"), 50);
  SnapshotPin first = pin_at(tokens("a"));
  SnapshotPin second = pin_at(tokens("a"));
  EXPECT_EQ(tree_.unpin(first), std::nullopt);
  EXPECT_EQ(tree_.unpin(first), std::nullopt);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt) << "the other pin is still held";
  EXPECT_EQ(tree_.unpin(second), std::nullopt);
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
}

TEST_F(SnapshotPinsTest, MovingAPinMovesWhatItKeeps) {
  tree_.put_plain(tokens("a"), 50);
  SnapshotPin pin = pin_at(tokens("a"));
  SnapshotPin moved(std::move(pin));
  EXPECT_FALSE(pin.valid());  // NOLINT(bugprone-use-after-move): what is left is documented
  EXPECT_TRUE(moved.valid());
  EXPECT_EQ(moved.slot(), 50u);
  EXPECT_EQ(tree_.unpin(pin), std::nullopt);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  SnapshotPin assigned;
  assigned = std::move(moved);
  EXPECT_FALSE(moved.valid());  // NOLINT(bugprone-use-after-move): what is left is documented
  EXPECT_EQ(tree_.unpin(assigned), std::nullopt);
  EXPECT_EQ(tree_.evict_snapshot(), 50u);
}

TEST_F(SnapshotPinsTest, APinOfAnotherTreeIsRefusedAndStaysValid) {
  tree_.put_plain(tokens("a"), 50);
  SnapshotPin pin = pin_at(tokens("a"));
  RadixTree other({.block_size = 4});
  try {
    static_cast<void>(other.unpin_snapshot(pin));
    ADD_FAILURE() << "did not throw";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("pin"));
  }
  EXPECT_TRUE(pin.valid());
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
  EXPECT_EQ(tree_.unpin(pin), std::nullopt);
}

TEST_F(SnapshotPinsTest, APinMayOutliveItsTreeAndFitsNoOther) {
  auto first = std::make_unique<RadixTree>(RadixTreeOptions{.block_size = 4});
  first->insert_intermediate_snapshot(tokens("a"), {}, {}, 4, 50, 0, 0, 0);
  SnapshotPin pin = first->find_snapshot(tokens("a"), kPin).pin;
  first.reset();
  RadixTree second({.block_size = 4});
  EXPECT_THROW(static_cast<void>(second.unpin_snapshot(pin)), std::invalid_argument);
}

TEST_F(SnapshotPinsTest, AnotherThreadMayGiveAPinBack) {
  tree_.put_plain(tokens("a"), 50);
  SnapshotPin pin = pin_at(tokens("a"));
  tree_.put_plain(tokens("a"), 51);
  std::optional<SnapshotId> slot;
  std::thread([&, pin = std::move(pin)]() mutable { slot = tree_.unpin(pin); }).join();
  EXPECT_EQ(slot, 50u);
}

TEST_F(SnapshotPinsTest, ADroppedPinKeepsItsSlotForAsLongAsTheTreeLives) {
  RadixTree tree({.block_size = 4});
  tree.insert_intermediate_snapshot(tokens("a"), {}, {}, 4, 50, 0, 0, 0);
  EXPECT_TRUE(tree.find_snapshot(tokens("a"), kPin).pin.valid());  // and drops it
  EXPECT_EQ(tree.evict_snapshot_lru(), std::nullopt);
  EXPECT_THAT(tree.clear().slots, IsEmpty());
  EXPECT_EQ(tree.counters().pinned_snapshots, 1u);
  EXPECT_EQ(tree.validate(), "");
}

}  // namespace
}  // namespace cairn
