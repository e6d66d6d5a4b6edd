// Errors in the contract: a call that breaks a rule which the cache can check throws std::invalid_argument that names
// the argument and the rule, and changes nothing.
#include <functional>
#include <ostream>
#include <stdexcept>
#include <string>

#include "unit/radix_tree_fixture.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

struct BadCall {
  std::string name;
  const char* argument;  // what the message has to name
  std::function<void(RadixTree&)> call;
};

void PrintTo(const BadCall& bad, std::ostream* out) {
  *out << bad.name;
}

// Slot 50 is resident and key 1 is spilled when these are called; a block has four tokens.
const Tokens kTwoBlocks = tokens("aaaa bbbb");
const Blocks kTable = {1, 2};
const DiskBlocks kOneDiskId = {11};
constexpr SnapshotId kResidentSlot = 50;
constexpr SnapshotId kFreeSlot = 99;
constexpr TierKey kSpilledKey = 1;

std::vector<BadCall> wrong_block_size(const char* suffix, std::size_t size) {
  const auto name = [&](const char* call) { return std::string(call) + suffix; };
  return {
      {name("lookup"), "block_size", [size](RadixTree& t) { t.lookup(kTwoBlocks, size, 0, 0); }},
      {name("peek_matched_tokens"), "block_size",
       [size](RadixTree& t) { static_cast<void>(t.peek_matched_tokens(kTwoBlocks, size, 0)); }},
      {name("insert"), "block_size", [size](RadixTree& t) { t.insert(kTwoBlocks, kTable, {}, size, 0, 0); }},
      {name("insert_with_snapshot"), "block_size",
       [size](RadixTree& t) { t.insert_with_snapshot(kTwoBlocks, kTable, {}, size, kFreeSlot, 0, 0, 0); }},
      {name("insert_intermediate_snapshot"), "block_size",
       [size](RadixTree& t) { t.insert_intermediate_snapshot(kTwoBlocks, kTable, {}, size, kFreeSlot, 0, 0, 0); }},
      {name("release"), "block_size", [size](RadixTree& t) { t.release(kTwoBlocks, size, 0); }},
      {name("release_matched"), "block_size", [size](RadixTree& t) { t.release_matched(kTwoBlocks, size, 4, 0); }},
  };
}

std::vector<BadCall> other_bad_calls() {
  return {
      {"insert_with_too_few_disk_ids", "disk_block_ids",
       [](RadixTree& t) { t.insert(kTwoBlocks, kTable, kOneDiskId, 4, 0, 0); }},
      {"insert_with_too_many_disk_ids", "disk_block_ids",
       [](RadixTree& t) { t.insert(kTwoBlocks, Blocks{}, kOneDiskId, 4, 0, 0); }},
      {"insert_with_snapshot_and_too_few_disk_ids", "disk_block_ids",
       [](RadixTree& t) { t.insert_with_snapshot(kTwoBlocks, kTable, kOneDiskId, 4, kFreeSlot, 0, 0, 0); }},
      {"insert_intermediate_snapshot_with_too_few_disk_ids", "disk_block_ids",
       [](RadixTree& t) { t.insert_intermediate_snapshot(kTwoBlocks, kTable, kOneDiskId, 4, kFreeSlot, 0, 0, 0); }},

      {"insert_with_matched_tokens_beyond_the_end", "matched_tokens",
       [](RadixTree& t) { t.insert(kTwoBlocks, kTable, {}, 4, 9, 0); }},
      {"insert_with_snapshot_and_matched_tokens_beyond_the_end", "matched_tokens",
       [](RadixTree& t) { t.insert_with_snapshot(kTwoBlocks, kTable, {}, 4, kFreeSlot, 0, 9, 0); }},
      {"insert_intermediate_snapshot_with_matched_tokens_beyond_the_end", "matched_tokens",
       [](RadixTree& t) { t.insert_intermediate_snapshot(kTwoBlocks, kTable, {}, 4, kFreeSlot, 0, 9, 0); }},
      {"release_matched_beyond_the_end", "matched_tokens",
       [](RadixTree& t) { t.release_matched(kTwoBlocks, 4, 9, 0); }},

      {"insert_with_snapshot_at_zero_tokens", "tokens",
       [](RadixTree& t) { t.insert_with_snapshot({}, {}, {}, 4, kFreeSlot, 0, 0, 0); }},
      {"insert_intermediate_snapshot_at_zero_tokens", "tokens",
       [](RadixTree& t) { t.insert_intermediate_snapshot({}, {}, {}, 4, kFreeSlot, 0, 0, 0); }},
      {"insert_tail_snapshot_at_zero_tokens", "tokens",
       [](RadixTree& t) { t.insert_tail_snapshot({}, kFreeSlot, 7, 0); }},
      {"insert_tail_sibling_snapshot_at_zero_tokens", "tokens",
       [](RadixTree& t) { t.insert_tail_sibling_snapshot({}, kFreeSlot, 7, 0); }},

      {"insert_with_snapshot_of_a_resident_slot", "snapshot_id",
       [](RadixTree& t) { t.insert_with_snapshot(kTwoBlocks, kTable, {}, 4, kResidentSlot, 0, 0, 0); }},
      {"insert_intermediate_snapshot_of_a_resident_slot", "snapshot_id",
       [](RadixTree& t) { t.insert_intermediate_snapshot(kTwoBlocks, kTable, {}, 4, kResidentSlot, 0, 0, 0); }},
      {"insert_intermediate_snapshot_of_the_slot_that_is_there_already", "snapshot_id",
       [](RadixTree& t) {
         t.insert_intermediate_snapshot(tokens("aaaa bbbb cccc"), {}, {}, 4, kResidentSlot, 0, 0, 0);
       }},
      {"insert_tail_snapshot_of_a_resident_slot", "snapshot_id",
       [](RadixTree& t) { t.insert_tail_snapshot(kTwoBlocks, kResidentSlot, 7, 0); }},
      {"insert_tail_snapshot_of_a_resident_slot_for_session_zero", "snapshot_id",
       [](RadixTree& t) { t.insert_tail_snapshot(kTwoBlocks, kResidentSlot, 0, 0); }},
      {"insert_tail_snapshot_of_the_slot_of_the_tail_it_would_sweep", "snapshot_id",
       [](RadixTree& t) { t.insert_tail_snapshot(kTwoBlocks, 51, 8, 0); }},
      {"insert_tail_sibling_snapshot_of_a_resident_slot", "snapshot_id",
       [](RadixTree& t) { t.insert_tail_sibling_snapshot(kTwoBlocks, kResidentSlot, 8, 0); }},
      {"insert_tail_sibling_snapshot_of_a_resident_slot_for_session_zero", "snapshot_id",
       [](RadixTree& t) { t.insert_tail_sibling_snapshot(kTwoBlocks, kResidentSlot, 0, 0); }},
      {"insert_tail_sibling_snapshot_of_a_resident_slot_without_a_tail", "snapshot_id",
       [](RadixTree& t) { t.insert_tail_sibling_snapshot(kTwoBlocks, kResidentSlot, 7, 0); }},
      {"promote_snapshot_to_a_resident_slot", "new_slot",
       [](RadixTree& t) { t.promote_snapshot(kSpilledKey, kResidentSlot); }},
  };
}

std::vector<BadCall> all_bad_calls() {
  std::vector<BadCall> calls = other_bad_calls();
  for (const BadCall& bad : wrong_block_size("_with_block_size_zero", 0)) calls.push_back(bad);
  for (const BadCall& bad : wrong_block_size("_with_another_block_size", 8)) calls.push_back(bad);
  return calls;
}

class BadCallTest : public RadixTreeTest, public ::testing::WithParamInterface<BadCall> {
 protected:
  void SetUp() override {
    tree_.put_plain(tokens("xxxx"), 1);
    ASSERT_EQ(tree_.spill()->key, kSpilledKey);
    tree_.put_plain(tokens("aaaa bbbb cccc"), kResidentSlot);
    tree_.put_tail(tokens("yyyy"), 51, {.session = 8});
    tree_.insert(tokens("aaaa"), {5});  // and holds a use on it
    tree_.cache(tokens("zzzz"), {6});
  }
};

TEST_P(BadCallTest, ThrowsInvalidArgumentThatNamesTheArgument) {
  try {
    GetParam().call(tree_.index());
    ADD_FAILURE() << "did not throw";
  } catch (const std::invalid_argument& error) {
    const std::string message = error.what();
    EXPECT_THAT(message, HasSubstr(GetParam().argument));
    EXPECT_GT(message.size(), std::string(GetParam().argument).size() + 5) << "and says which rule: " << message;
  }
}

TEST_P(BadCallTest, ChangesNothing) {
  const auto counters = counter_values(tree_.counters());
  const CacheStats stats = tree_.stats();
  EXPECT_THROW(GetParam().call(tree_.index()), std::invalid_argument);
  EXPECT_EQ(counter_values(tree_.counters()), counters);
  EXPECT_EQ(tree_.stats().cached_blocks, stats.cached_blocks);
  EXPECT_EQ(tree_.stats().entries, stats.entries);
  EXPECT_EQ(tree_.snapshot_count(), 3u);
  EXPECT_EQ(tree_.peek(kTwoBlocks), 4u);
  EXPECT_EQ(tree_.index().validate(), "");
  EXPECT_EQ(tree_.evict(9).physical, Blocks{6}) << "no use was added or dropped";
  tree_.release(tokens("aaaa"));
  EXPECT_EQ(tree_.evict(9).physical, Blocks{5});
  EXPECT_EQ(tree_.counters().protocol_errors, 0u);
  EXPECT_THAT(tree_.find(tokens("xxxx"), 4), IsSpilled(kSpilledKey, 4));
  EXPECT_EQ(tree_.evict_snapshot(), kResidentSlot);
  EXPECT_EQ(tree_.evict_snapshot(), 51u);
  EXPECT_EQ(tree_.evict_snapshot(), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(EveryRule, BadCallTest, ::testing::ValuesIn(all_bad_calls()),
                         [](const auto& instance) { return instance.param.name; });

class ErrorsTest : public RadixTreeTest {};

TEST_F(ErrorsTest, TheLongestArgumentsThatTheRulesAllowAreTaken) {
  EXPECT_NO_THROW(tree_.cache(kTwoBlocks, kTable, {.matched_tokens = 0, .disk = {11, 22}}));
  EXPECT_NO_THROW(tree_.insert(kTwoBlocks, kTable, {.matched_tokens = 8}));
  EXPECT_NO_THROW(tree_.release_matched(tokens("zzzz"), 4));
  EXPECT_NO_THROW(tree_.put_plain(tokens("a"), 1));
}

TEST_F(ErrorsTest, CallsWithAnEpochCheckTheSameRules) {
  RadixTree& t = tree_.index();
  const std::uint64_t epoch = t.epoch(0);
  tree_.put_plain(tokens("cccc"), kResidentSlot);
  EXPECT_THROW(t.insert(kTwoBlocks, kTable, {}, 0, 0, 0, epoch), std::invalid_argument);
  EXPECT_THROW(t.insert(kTwoBlocks, kTable, kOneDiskId, 4, 0, 0, epoch), std::invalid_argument);
  EXPECT_THROW(t.insert(kTwoBlocks, kTable, {}, 4, 9, 0, epoch), std::invalid_argument);
  EXPECT_THROW(t.insert_with_snapshot({}, {}, {}, 4, kFreeSlot, 0, 0, 0, epoch), std::invalid_argument);
  EXPECT_THROW(t.insert_with_snapshot(kTwoBlocks, kTable, {}, 4, kResidentSlot, 0, 0, 0, epoch),
               std::invalid_argument);
  EXPECT_THROW(t.insert_intermediate_snapshot({}, {}, {}, 4, kFreeSlot, 0, 0, 0, epoch), std::invalid_argument);
  EXPECT_THROW(t.insert_tail_snapshot({}, kFreeSlot, 7, 0, epoch), std::invalid_argument);
  EXPECT_THROW(t.insert_tail_snapshot(kTwoBlocks, kResidentSlot, 0, 0, epoch), std::invalid_argument);
  EXPECT_THROW(t.insert_tail_sibling_snapshot(kTwoBlocks, kResidentSlot, 7, 0, epoch), std::invalid_argument);
  EXPECT_THROW(t.release(kTwoBlocks, 8, 0, epoch), std::invalid_argument);
  EXPECT_THROW(t.release_matched(kTwoBlocks, 4, 9, 0, epoch), std::invalid_argument);
  EXPECT_EQ(tree_.stats().cached_blocks, 0u);
  EXPECT_EQ(tree_.snapshot_count(), 1u);
}

TEST(RadixTreeConstructorTest, RefusesBlockSizeZero) {
  try {
    const RadixTree tree({.block_size = 0});
    ADD_FAILURE() << "did not throw";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("block_size"));
  }
}

TEST(RadixTreeConstructorTest, RefusesFirstTierKeyZero) {
  try {
    const RadixTree tree({.first_tier_key = 0});
    ADD_FAILURE() << "did not throw";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("first_tier_key"));
  }
}

TEST(RadixTreeConstructorTest, TakesAnyOtherBlockSize) {
  for (const std::size_t block_size : {1u, 3u, 16u, 512u}) {
    RadixTree tree({.block_size = block_size});
    const Tokens sequence = token_range(1, 2 * block_size + block_size / 2);
    EXPECT_EQ(tree.insert(sequence, block_range(1, 3), {}, block_size, 0, 0).blocks.size(), 2u);
    EXPECT_EQ(tree.lookup(sequence, block_size, 0, 0).matched_tokens, 2 * block_size);
    EXPECT_EQ(tree.validate(), "");
  }
}

TEST(RadixTreeConstructorTest, UsesTheDefaultsWithoutOptions) {
  RadixTree tree;
  EXPECT_EQ(tree.insert(token_range(1, 32), block_range(1, 2), {}, 16, 0, 0).blocks.size(), 2u);
  EXPECT_THROW(tree.lookup(token_range(1, 32), 4, 0, 0), std::invalid_argument);
  tree.insert_intermediate_snapshot(token_range(1, 16), {}, {}, 16, 50, 7, 0, 0);
  EXPECT_EQ(tree.lookup(token_range(1, 32), 16, 8, 0).ssm_snapshot, std::nullopt) << "sessions share nothing";
  EXPECT_EQ(tree.evict_snapshot_to_tier(0)->key, 1u);
  EXPECT_EQ(tree.validate(), "");
}

}  // namespace
}  // namespace cairn
