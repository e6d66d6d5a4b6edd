// The engine against the real cache: it runs through everything that a lease offers, and goes red when bytes are
// wrong.
#include "replay/verifying_engine.h"

#include <cairn/block_pool.h>
#include <cairn/cache_manager.h>
#include <cairn/snapshot_pool.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "replay/errors.h"
#include "replay/verified_sequence.h"

namespace cairn::replay {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kBlockSize = 4;
constexpr std::size_t kBlockBytes = kBlockSize * kKvBytesPerToken;
constexpr std::size_t kSlotBytes = 48;
constexpr std::size_t kShards = 2;

std::vector<TokenId> counting(std::size_t count, TokenId first = 1) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// What a ReplayError says; empty if there is none.
template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const ReplayError& error) {
    return error.what();
  }
  return {};
}

testing::Matcher<std::string> says(const std::string& what) {
  return HasSubstr(what);
}
testing::Matcher<std::string> says_nothing() {
  return testing::IsEmpty();
}

// All leases are to be gone at the end of a test.
class VerifyingEngineTest : public testing::Test {
 protected:
  void set_up(std::size_t blocks, std::size_t slots, CacheManagerOptions options = {}) {
    if (blocks > 0) {
      blocks_ = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = blocks, .block_bytes = kBlockBytes});
    }
    if (slots > 0) {
      snapshots_ = std::make_shared<SnapshotPool>(
          SnapshotPoolOptions{.slots = slots, .slot_bytes = kSlotBytes, .shards = kShards});
    }
    options.block_size = kBlockSize;
    options.blocks = blocks_;
    options.snapshots = snapshots_;
    manager_ = std::make_unique<CacheManager>(options);
    engine_ = std::make_unique<VerifyingEngine>(VerifyingEngineOptions{
        .manager = *manager_, .block_size = kBlockSize, .blocks = blocks_, .snapshots = snapshots_, .strict = true});
  }

  void TearDown() override {
    if (!manager_) return;
    EXPECT_EQ(manager_->validate(), "");
    const ManagerStats stats = manager_->stats();
    EXPECT_EQ(stats.live_leases + stats.waiting_for_steps + stats.steps_in_flight + stats.pinned_snapshots, 0U);
    EXPECT_EQ(stats.prompt_tokens, stats.reused_tokens + stats.computed_tokens);
    (void)manager_->clear();
    if (blocks_) {
      EXPECT_EQ(blocks_->free_blocks(), blocks_->total_blocks());
    }
    if (snapshots_) {
      EXPECT_EQ(snapshots_->free_slots(), snapshots_->total_slots());
    }
    EXPECT_EQ(manager_->validate(), "");
  }

  std::optional<VerifiedSequence> start(VerifiedRequest request) {
    VerifiedSequence::Start start = VerifiedSequence::start(*engine_, std::move(request));
    EXPECT_EQ(start.missing_blocks > 0, !start.sequence.has_value());
    return std::move(start.sequence);
  }
  VerifiedSequence started(VerifiedRequest request) { return start(std::move(request)).value(); }

  // Runs the whole request, and returns how many tokens were reused.
  std::size_t run(VerifiedRequest request) {
    VerifiedSequence sequence = started(std::move(request));
    const std::size_t reused = sequence.lease().first_token_to_compute();
    EXPECT_EQ(sequence.compute_all(), 0U);
    sequence.finish();
    return reused;
  }

  // The physical blocks of a cached prompt.
  std::vector<BlockId> blocks_of(const std::vector<TokenId>& tokens) {
    VerifiedSequence sequence = started({.name = "a look", .tokens = tokens, .no_publish = true});
    const auto table = sequence.lease().block_table();
    std::vector<BlockId> blocks(table.begin(), table.end());
    sequence.restore();
    return blocks;
  }

  void put_state(SnapshotId slot, const ModelSequence& model, std::size_t tokens) {
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      model.state(tokens, shard, {snapshots_->data(slot, shard), kSlotBytes / kShards});
    }
  }

  std::shared_ptr<BlockPool> blocks_;
  std::shared_ptr<SnapshotPool> snapshots_;
  std::unique_ptr<CacheManager> manager_;
  std::unique_ptr<VerifyingEngine> engine_;
};

// ---- Attention layers alone ----

TEST_F(VerifyingEngineTest, ReusesAllButTheLastTokenRoundedDownToABlock) {
  set_up(16, 0);
  EXPECT_EQ(run({.name = "first", .tokens = counting(12)}), 0U);
  EXPECT_EQ(run({.name = "again", .tokens = counting(12)}), 8U);
  EXPECT_EQ(run({.name = "longer", .tokens = counting(13)}), 12U);
  EXPECT_GT(engine_->counts().block_bytes_checked, 0U);
  EXPECT_EQ(engine_->counts().states_checked, 0U);
}

TEST_F(VerifyingEngineTest, ChunksDecodeAndPublishAsTheyGo) {
  set_up(16, 0);
  VerifiedSequence sequence = started({.name = "one", .tokens = counting(10), .reserve_tokens = 3});
  EXPECT_EQ(sequence.compute_all(3), 0U);
  EXPECT_EQ(sequence.publish(), 8U);
  for (TokenId token = 11; token <= 18; ++token) {
    sequence.append({&token, 1});
    EXPECT_EQ(sequence.compute_all(), 0U);
  }
  sequence.check_everything();
  sequence.finish();
  EXPECT_EQ(run({.name = "two", .tokens = counting(20)}), 16U);
}

TEST_F(VerifyingEngineTest, GoesRedWhenTwoBlocksAreSwapped) {
  set_up(16, 0);
  run({.name = "first", .tokens = counting(12)});
  const std::vector<BlockId> blocks = blocks_of(counting(13));
  std::swap_ranges(blocks_->data(blocks[0]), blocks_->data(blocks[0]) + kBlockBytes, blocks_->data(blocks[2]));
  VerifiedSequence victim = started({.name = "the victim", .tokens = counting(13)});
  EXPECT_THAT(error_of([&] { victim.restore(); }),
              AllOf(HasSubstr("the victim: the KV of token 0, in physical block " + std::to_string(blocks[0])),
                    HasSubstr("expected"), HasSubstr("found")));
}

TEST_F(VerifyingEngineTest, GoesRedForAnyByteOfACachedBlock) {
  set_up(16, 0);
  run({.name = "first", .tokens = counting(12)});
  const std::vector<BlockId> blocks = blocks_of(counting(13));
  for (std::size_t at = 0; at < 12 * kKvBytesPerToken; ++at) {
    std::byte& byte = blocks_->data(blocks[at / kBlockBytes])[at % kBlockBytes];
    byte ^= std::byte{1};
    VerifiedSequence victim = started({.name = "the victim", .tokens = counting(13)});
    EXPECT_THAT(error_of([&] { victim.restore(); }),
                HasSubstr("the KV of token " + std::to_string(at / kKvBytesPerToken) + ","));
    byte ^= std::byte{1};
  }
  EXPECT_EQ(run({.name = "put right", .tokens = counting(13)}), 12U);
}

TEST_F(VerifyingEngineTest, GoesRedForABlockThatTookThePlaceOfItsOwn) {
  set_up(16, 0);
  for (const bool damage : {false, true}) {
    const std::vector<TokenId> tokens = counting(8, damage ? 100 : 1);
    VerifiedSequence one = started({.name = "one", .tokens = tokens});
    VerifiedSequence two = started({.name = "two", .tokens = tokens});
    EXPECT_EQ(one.compute_all() + two.compute_all(), 0U);
    EXPECT_EQ(one.publish(), 8U);
    const BlockId theirs = one.lease().block_table()[1];
    EXPECT_NE(two.lease().block_table()[1], theirs);
    if (damage) blocks_->data(theirs)[0] ^= std::byte{1};
    const std::string error = error_of([&] { two.publish(); });
    EXPECT_EQ(two.lease().block_table()[1], theirs);
    EXPECT_THAT(error, damage ? says("two: the KV of token 4") : says_nothing());
  }
}

TEST_F(VerifyingEngineTest, AStepWritesLateAndItsBlocksWaitForIt) {
  set_up(4, 0);
  std::optional<VerifiedSequence> gone = started({.name = "gone", .tokens = counting(16)});
  VerifiedStep step(*engine_);
  EXPECT_EQ(gone->compute(step), 0U);
  gone.reset();
  EXPECT_FALSE(start({.name = "early", .tokens = counting(5, 50)}).has_value()) << "the step may still write";
  step.done();
  EXPECT_EQ(run({.name = "late", .tokens = counting(16, 50)}), 0U);
}

TEST_F(VerifyingEngineTest, NothingIsFoundBeforeItsStepIsDone) {
  set_up(16, 0);
  VerifiedSequence one = started({.name = "one", .tokens = counting(9)});
  VerifiedStep step(*engine_);
  EXPECT_EQ(one.compute(step), 0U);
  EXPECT_EQ(one.publish(), 0U);
  EXPECT_EQ(run({.name = "early", .tokens = counting(9)}), 0U);
  step.done();
  EXPECT_EQ(one.publish(), 8U);
  EXPECT_EQ(run({.name = "late", .tokens = counting(9)}), 8U);
}

TEST_F(VerifyingEngineTest, AReplacedBlockWaitsForTheStepsThatMayReadIt) {
  set_up(16, 0);
  VerifiedSequence one = started({.name = "one", .tokens = counting(8)});
  VerifiedSequence two = started({.name = "two", .tokens = counting(8)});
  EXPECT_EQ(one.compute_all() + two.compute_all(), 0U);
  const TokenId token = 9;
  two.append({&token, 1});
  VerifiedStep step(*engine_);
  EXPECT_EQ(two.compute(step), 0U);
  EXPECT_EQ(one.publish(), 8U);
  EXPECT_EQ(two.publish(), 8U) << "goes on with the blocks of the first";
  // Newest free blocks come first: these would be the ones that the step reads.
  VerifiedSequence three = started({.name = "three", .tokens = counting(8, 50)});
  EXPECT_EQ(three.compute_all(), 0U);
  step.done();
  two.check_everything();
}

TEST_F(VerifyingEngineTest, AStepGoesRedForABlockThatChangesUnderIt) {
  set_up(8, 0);
  VerifiedSequence sequence = started({.name = "one", .tokens = counting(12)});
  EXPECT_EQ(sequence.compute_all(), 0U);
  const TokenId token = 13;
  sequence.append({&token, 1});
  VerifiedStep step(*engine_);
  EXPECT_EQ(sequence.compute(step), 0U);
  blocks_->data(sequence.lease().block_table()[1])[0] ^= std::byte{1};
  EXPECT_THAT(error_of([&] { step.done(); }), HasSubstr("one: the KV of token 4"));
  EXPECT_TRUE(step.settled());
  EXPECT_EQ(manager_->stats().failed_steps, 1U);
}

TEST_F(VerifyingEngineTest, AFailedStepIsDoneOnceMore) {
  set_up(8, 0);
  VerifiedSequence sequence = started({.name = "one", .tokens = counting(12)});
  VerifiedStep first(*engine_);
  VerifiedStep second(*engine_);
  VerifiedStep third(*engine_);
  EXPECT_EQ(sequence.compute(first, 4) + sequence.compute(second, 4) + sequence.compute(third, 4), 0U);
  EXPECT_THROW(second.done(), std::logic_error) << "not in order";
  first.done();
  second.fail();
  third.done();  // computed garbage
  EXPECT_EQ(sequence.publish(), 4U);
  EXPECT_EQ(sequence.computed_tokens(), 4U);
  EXPECT_EQ(sequence.compute_all(), 0U);
  sequence.check_everything();
  sequence.finish();
  EXPECT_EQ(run({.name = "two", .tokens = counting(13)}), 12U);
}

TEST_F(VerifyingEngineTest, ABatchedStepServesSeveralSequences) {
  set_up(8, 0);
  VerifiedSequence one = started({.name = "one", .tokens = counting(8)});
  VerifiedSequence two = started({.name = "two", .tokens = counting(8, 50)});
  VerifiedStep step(*engine_);
  EXPECT_EQ(one.compute(step) + two.compute(step, 5) + two.compute(step), 0U);
  step.done();
  EXPECT_THROW(step.done(), std::logic_error);
  EXPECT_THROW((void)one.compute(step), std::logic_error) << "nothing is left";
  one.finish();
  two.finish();
  EXPECT_EQ(engine_->counts().block_bytes_written, 16 * kKvBytesPerToken + 4 * kBlockBytes) << "garbage at first";
}

TEST_F(VerifyingEngineTest, RejectedDraftsAreComputedAndForgotten) {
  set_up(8, 0);
  VerifiedSequence sequence = started({.name = "one", .tokens = counting(6)});
  EXPECT_EQ(sequence.compute_all(), 0U);
  const std::vector<TokenId> draft = {7, 8, 100, 101};
  sequence.draft(draft);
  EXPECT_EQ(sequence.compute_all(), 0U);
  EXPECT_EQ(sequence.publish(), 4U) << "no drafted token is published";
  sequence.verify(2);
  EXPECT_EQ(sequence.tokens().size(), 8U);
  const std::vector<TokenId> more = {9, 10};
  sequence.append(more);
  EXPECT_EQ(sequence.compute_all(), 0U);
  sequence.check_everything();
  sequence.finish();
  EXPECT_EQ(run({.name = "two", .tokens = counting(10)}), 8U);
}

TEST_F(VerifyingEngineTest, AForkGoesItsOwnWay) {
  set_up(16, 0);
  VerifiedSequence parent = started({.name = "parent", .tokens = counting(10)});
  EXPECT_EQ(parent.compute_all(), 0U);
  VerifiedSequence child = parent.fork("child").sequence.value();
  const std::vector<TokenId> left = {11, 12, 13};
  const std::vector<TokenId> right = {21, 22, 23};
  parent.append(left);
  child.append(right);
  EXPECT_EQ(parent.compute_all() + child.compute_all(), 0U);
  parent.check_everything();
  child.check_everything();
  parent.finish();
  child.finish();
  EXPECT_EQ(run({.name = "like the parent", .tokens = counting(13)}), 12U);
  std::vector<TokenId> like_child = counting(10);
  like_child.insert(like_child.end(), right.begin(), right.end());
  EXPECT_EQ(run({.name = "like the child", .tokens = like_child}), 12U);
}

TEST_F(VerifyingEngineTest, APreemptedRequestComesBackAndIsCountedOnce) {
  set_up(8, 0);
  VerifiedSequence sequence = started({.name = "one", .tokens = counting(9)});
  EXPECT_EQ(sequence.compute_all(), 0U);
  const TokenId token = 10;
  sequence.append({&token, 1});
  EXPECT_EQ(sequence.compute_all(), 0U);
  VerifiedRequest request = sequence.preempt();
  EXPECT_FALSE(sequence.running());
  EXPECT_EQ(request.tokens, counting(10));
  EXPECT_EQ(run(std::move(request)), 8U);
  EXPECT_EQ(manager_->stats().requests, 1U);
  EXPECT_EQ(manager_->stats().resumed, 1U);
}

TEST_F(VerifyingEngineTest, MediaAdaptersAndSaltsKeepRequestsApart) {
  set_up(64, 0);
  const MediaSpan image{.position = 4, .length = 4, .content_id = {1, 2}};
  const MediaSpan other_image{.position = 4, .length = 4, .content_id = {1, 3}};
  EXPECT_EQ(run({.name = "image", .tokens = counting(12), .media = {image}}), 0U);
  EXPECT_EQ(run({.name = "image again", .tokens = counting(12), .media = {image}}), 8U);
  EXPECT_EQ(run({.name = "another", .tokens = counting(12), .media = {other_image}}), 4U);
  EXPECT_EQ(run({.name = "adapter", .tokens = counting(12), .adapter = "a"}), 0U);
  EXPECT_EQ(run({.name = "generation", .tokens = counting(12), .adapter = "a", .adapter_generation = 1}), 0U);
  EXPECT_EQ(run({.name = "salt", .tokens = counting(12), .adapter = "a", .tenant_salt = "s"}), 0U);
  EXPECT_EQ(run({.name = "salt again", .tokens = counting(12), .adapter = "a", .tenant_salt = "s"}), 8U);
}

TEST_F(VerifyingEngineTest, NewWeightsAreOtherBytes) {
  set_up(16, 0);
  run({.name = "old", .tokens = counting(8)});
  {
    VerifiedSequence unaware = started({.name = "unaware", .tokens = counting(9), .weights = 1});
    EXPECT_THAT(error_of([&] { unaware.restore(); }), HasSubstr("unaware: the KV of token 0"));
  }
  EXPECT_EQ(manager_->clear().blocks, 2U);
  EXPECT_EQ(run({.name = "new", .tokens = counting(9), .weights = 1}), 0U);
}

// ---- Recurrent layers beside them, or alone ----

TEST_F(VerifyingEngineTest, GoesOnFromTheTailOfItsSession) {
  set_up(32, 4);
  EXPECT_EQ(run({.name = "turn 1", .tokens = counting(18), .session = 7}), 0U);
  EXPECT_EQ(run({.name = "turn 2", .tokens = counting(30), .session = 7}), 12U);
  EXPECT_EQ(engine_->counts().states_checked, 1U);
  EXPECT_EQ(engine_->counts().state_bytes_checked, kSlotBytes);
  EXPECT_EQ(manager_->stats().stateless_tokens, 4U) << "16 tokens matched";
}

TEST_F(VerifyingEngineTest, TheStateThatWasRestoredIsKeptOnceMoreIfTheLeaseAsksForIt) {
  set_up(32, 4);
  run({.name = "turn 1", .tokens = counting(14), .session = 7});
  VerifiedSequence turn = started({.name = "turn 2", .tokens = counting(18), .session = 7});
  ASSERT_EQ(turn.lease().first_token_to_compute(), 8U);
  ASSERT_FALSE(turn.lease().capture_points().empty());
  ASSERT_EQ(turn.lease().capture_points()[0].tokens, 8U) << "the new tail at 12 sweeps the old one: its sibling";
  EXPECT_EQ(turn.compute_all(), 0U);
  turn.finish();
  std::vector<TokenId> other = counting(18);
  other[9] = 99;
  EXPECT_EQ(run({.name = "retried", .tokens = other, .session = 7}), 8U);
  EXPECT_EQ(engine_->counts().states_checked, 2U);
}

TEST_F(VerifyingEngineTest, ARecurrentModelNeedsNoBlocks) {
  set_up(0, 4);
  run({.name = "turn 1", .tokens = counting(18), .session = 7});
  EXPECT_EQ(run({.name = "turn 2", .tokens = counting(30), .session = 7}), 12U);
}

TEST_F(VerifyingEngineTest, GoesRedForAStateThatIsOneTokenOff) {
  set_up(32, 4);
  run({.name = "turn 1", .tokens = counting(18), .session = 7});
  const VerifiedRequest turn{.name = "turn 2", .tokens = counting(30), .session = 7};
  const ModelSequence model(turn.view());
  for (const std::size_t tokens : {11U, 13U, 12U}) {
    VerifiedSequence victim = started(turn);
    const RestorePoint point = victim.lease().restore_point().value();
    ASSERT_EQ(point.tokens, 12U);
    put_state(point.slot, model, tokens);
    EXPECT_THAT(error_of([&] { victim.restore(); }),
                tokens == 12U ? says_nothing()
                              : says("turn 2: the state after 12 tokens, in slot " + std::to_string(point.slot) +
                                     ", shard 0, byte 0: expected"));
  }
}

TEST_F(VerifyingEngineTest, GoesRedForAStaleSlotOrShard) {
  set_up(32, 4);
  run({.name = "turn 1", .tokens = counting(18), .session = 7});
  const VerifiedRequest turn{.name = "turn 2", .tokens = counting(30), .session = 7};
  VerifiedSequence victim = started(turn);
  const RestorePoint point = victim.lease().restore_point().value();
  const std::vector<TokenId> others = counting(18, 500);
  put_state(point.slot, ModelSequence({.tokens = others}), 12);
  EXPECT_THAT(error_of([&] { victim.restore(); }), HasSubstr("shard 0, byte 0"));
  put_state(point.slot, ModelSequence(turn.view()), 12);
  snapshots_->data(point.slot, 1)[17] ^= std::byte{1};
  EXPECT_THAT(error_of([&] { victim.restore(); }), HasSubstr("shard 1, byte 16"));
}

TEST_F(VerifyingEngineTest, AStepGoesRedForASlotThatIsTakenAway) {
  set_up(32, 4);
  VerifiedSequence sequence = started({.name = "turn 1", .tokens = counting(18), .session = 7});
  VerifiedStep first(*engine_);
  EXPECT_EQ(sequence.compute(first), 0U);
  EXPECT_EQ(sequence.computed_tokens(), 8U) << "a step ends where state is to be captured";
  EXPECT_EQ(snapshots_->used_slots(), 1U);
  SnapshotId taken = 0;
  while (snapshots_->state(taken) != SlotState::kFilling) ++taken;
  ASSERT_TRUE(snapshots_->free(taken));
  EXPECT_THAT(error_of([&] { first.done(); }),
              HasSubstr("turn 1: slot " + std::to_string(taken) + ", which step 0 was to fill, was taken away"));
  ASSERT_EQ(snapshots_->allocate(), taken) << "so that the lease can give it back";
  EXPECT_EQ(sequence.compute_all(), 0U);
  sequence.finish();
}

TEST_F(VerifyingEngineTest, StatesOfFailedStepsAndForgottenTokensAreNotKept) {
  set_up(32, 8, {.capture_tails = false, .capture_branch_points = false});
  VerifiedSequence sequence = started({.name = "one", .tokens = counting(6)});
  VerifiedStep lost(*engine_);
  EXPECT_EQ(sequence.compute(lost), 0U);
  EXPECT_TRUE(sequence.capture(lost));
  EXPECT_FALSE(sequence.capture(lost)) << "that place is being captured";
  lost.fail();
  EXPECT_EQ(sequence.compute_all(), 0U);
  const std::vector<TokenId> two = {7, 8};
  sequence.append(two);
  VerifiedStep forgotten(*engine_);
  EXPECT_EQ(sequence.compute(forgotten), 0U);
  EXPECT_TRUE(sequence.capture(forgotten));
  sequence.truncate(7);
  forgotten.done();
  sequence.finish();
  EXPECT_EQ(manager_->stats().captures_published, 0U);
  EXPECT_EQ(manager_->stats().captures_abandoned, 2U);
}

TEST_F(VerifyingEngineTest, AStateWithinABlockComesWithACopyOfItsStart) {
  set_up(32, 8, {.capture_tails = false, .capture_branch_points = false});
  VerifiedSequence sequence = started({.name = "one", .tokens = counting(12)});
  VerifiedStep step(*engine_);
  EXPECT_EQ(sequence.compute(step, 6), 0U);
  EXPECT_TRUE(sequence.capture(step));
  step.done();
  EXPECT_EQ(sequence.compute_all(), 0U);
  sequence.finish();
  const VerifiedRequest again{.name = "two", .tokens = counting(12)};
  for (const bool damage : {true, false}) {
    VerifiedSequence two = started(again);
    ASSERT_EQ(two.lease().copies().size(), 1U);
    const BlockCopy copy = two.lease().copies()[0];
    EXPECT_EQ(copy.tokens, 2U);
    std::byte& byte = blocks_->data(copy.from)[kKvBytesPerToken];
    if (damage) byte ^= std::byte{1};
    EXPECT_THAT(error_of([&] { two.restore(); }), damage ? says("two: the KV of token 5") : says_nothing());
    if (damage) byte ^= std::byte{1};
  }
  EXPECT_EQ(run(again), 6U);
}

// ---- Calling it wrongly ----

TEST_F(VerifyingEngineTest, PoolsThatDoNotFitAreRefused) {
  set_up(4, 4);
  EXPECT_THROW(VerifyingEngine({.manager = *manager_, .block_size = kBlockSize}), std::invalid_argument);
  EXPECT_THROW(VerifyingEngine({.manager = *manager_, .block_size = 0, .blocks = blocks_}), std::invalid_argument);
  EXPECT_THROW(VerifyingEngine({.manager = *manager_, .block_size = 8, .blocks = blocks_}), std::invalid_argument);
}

TEST_F(VerifyingEngineTest, ARequestThatDoesNotFitSaysWhatIsMissing) {
  set_up(4, 0);
  VerifiedSequence sequence = started({.name = "one", .tokens = counting(12)});
  const VerifiedSequence::Start waits = VerifiedSequence::start(*engine_, {.name = "two", .tokens = counting(9, 50)});
  EXPECT_EQ(waits.missing_blocks, 2U);
  EXPECT_FALSE(waits.never_fits);
  EXPECT_TRUE(VerifiedSequence::start(*engine_, {.name = "three", .tokens = counting(17)}).never_fits);
  const std::vector<TokenId> more = counting(8, 50);
  sequence.append(more);
  EXPECT_EQ(sequence.compute_all(), 1U) << "the fourth block could be had, the fifth not";
  EXPECT_EQ(sequence.computed_tokens(), 0U);
}

}  // namespace
}  // namespace cairn::replay
