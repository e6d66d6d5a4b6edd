// What leaves memory goes to the store, what is not worth it does not, and what the store loses is forgotten.
#include <atomic>
#include <thread>

#include "engine/tiers_fixture.h"
#include "support/manual_device.h"

namespace cairn {
namespace {

class SpillingTest : public TiersTest {
 protected:
  const Tokens prompt_ = tokens("aaaa bbbb cccc d");
  const Request request_{.tokens = prompt_};
};

TEST_F(SpillingTest, AnEvictedBlockIsStoredWithItsTokensAndTheKeyOfItsParent) {
  start({});
  cache(request_);
  EXPECT_EQ(store_->keys().size(), 0U) << "nothing had to go";
  push_out_blocks();
  ASSERT_EQ(store_->keys().size(), 3U);
  std::map<std::size_t, std::pair<TierKey, RecordLineage>> by_depth;
  for (const TierKey key : store_->keys()) by_depth[store_->lineage(key)->first_token] = {key, *store_->lineage(key)};
  EXPECT_EQ(by_depth[0].second.parent, 0U);
  EXPECT_EQ(by_depth[4].second.parent, by_depth[0].first);
  EXPECT_EQ(by_depth[8].second.parent, by_depth[4].first);
  EXPECT_EQ(by_depth[8].second.tokens, tokens("cccc"));
  EXPECT_EQ(stats().spilled_blocks, 3U);
  EXPECT_EQ(stats().spilled_bytes, 3 * kBlockBytes);
  EXPECT_EQ(stats().evicted_blocks, 3U);
}

TEST_F(SpillingTest, ABlockThatWasFetchedIsNotStoredAgain) {
  start({});
  cache(request_);
  push_out_blocks();
  cache(request_);
  EXPECT_EQ(stats().fetched_blocks, 3U);
  push_out_blocks();
  EXPECT_EQ(stats().spilled_blocks, 3U);
  EXPECT_EQ(peek(request_).stored_tokens, 12U);
}

TEST_F(SpillingTest, ShortChainsAreNotStored) {
  start({}, {.spill = {.block_tokens_min = 8}});
  cache({.tokens = tokens("xxxx y")});
  cache(request_);
  push_out_blocks();
  EXPECT_EQ(store_->count(RecordKind::kBlock), 3U) << "what a longer chain hangs on is stored with it";
  EXPECT_EQ(peek({.tokens = tokens("xxxx y")}).stored_tokens, 0U);
}

TEST_F(SpillingTest, BlocksThatTooFewRequestsHaveUsedAreNotStored) {
  start({}, {.spill = {.block_uses_min = 2}});
  cache(request_);
  cache({.tokens = tokens("aaaa bbbb xxxx y")});
  push_out_blocks();
  EXPECT_EQ(store_->count(RecordKind::kBlock), 2U);
  EXPECT_EQ(peek(request_).stored_tokens, 8U);
}

TEST_F(SpillingTest, WhatTheStoreRefusesIsForgotten) {
  start({});
  store_->answer_puts_with(PutResult::kQueueFull);
  cache(request_);
  push_out_blocks();
  EXPECT_EQ(stats().declined_spills, 3U);
  store_->answer_puts_with(PutResult::kAccepted);
  cache(request_);
  EXPECT_EQ(stats().reused_tokens, 0U);
  push_out_blocks();
  EXPECT_EQ(peek(request_).stored_tokens, 12U);
}

TEST_F(SpillingTest, WhatTheStoreLosesIsForgottenAndWhatHangsBelowIsOutOfReach) {
  start({});
  cache(request_);
  push_out_blocks();
  for (const TierKey key : store_->keys()) {
    if (store_->lineage(key)->first_token == 4) store_->lose(key);
  }
  cache({.tokens = tokens("zzzz zzzz z")});
  push_out_blocks();  // takes note
  EXPECT_EQ(peek(request_).stored_tokens, 4U);
}

TEST_F(SpillingTest, ASpilledSnapshotSaysWhatItIs) {
  start({.blocks = 8, .slots = 2}, {.capture_tails = false});
  cache({.tokens = prompt_, .session = 5}, {10});
  push_out_states();
  ASSERT_EQ(store_->count(RecordKind::kPlainSnapshot), 1U);
  const RecordLineage lineage = *store_->lineage(store_->keys().front());
  EXPECT_EQ(lineage.first_token, 8U);
  EXPECT_EQ(lineage.tokens, tokens("cc"));
  EXPECT_NE(lineage.parent, 0U);
  EXPECT_EQ(stats().spilled_snapshots, 1U);
}

TEST_F(SpillingTest, AShallowSnapshotIsDropped) {
  start({.blocks = 8, .slots = 2}, {.spill = {.snapshot_tokens_min = 6}, .capture_tails = false});
  cache(request_, {4, 8});
  push_out_states();
  EXPECT_EQ(store_->count(RecordKind::kPlainSnapshot), 1U);
  EXPECT_EQ(stats().evicted_snapshots, 2U);
}

TEST_F(SpillingTest, WriteThroughStoresWhatIsPublished) {
  start({}, {.spill = {.write_through = true}});
  cache(request_);
  EXPECT_EQ(store_->count(RecordKind::kBlock), 3U);
  cache({.tokens = tokens("aaaa bbbb xxxx y")});
  EXPECT_EQ(store_->count(RecordKind::kBlock), 4U);
  push_out_blocks();
  EXPECT_EQ(stats().spilled_blocks, 4U) << "they have their records already";
}

TEST_F(SpillingTest, AClearErasesRecords) {
  start({});
  cache(request_);
  push_out_blocks();
  const ClearReport report = manager().clear();
  EXPECT_EQ(report.records, 3U);
  EXPECT_EQ(store_->keys().size(), 0U);
  cache(request_);
  EXPECT_EQ(stats().reused_tokens, 0U);
}

TEST_F(SpillingTest, TheSweptTailOfASessionIsErased) {
  start({.blocks = 8, .slots = 4});
  cache({.tokens = prompt_, .session = 5}, {4, 8});
  push_out_states();
  EXPECT_EQ(store_->count(RecordKind::kTail), 1U);
  EXPECT_EQ(store_->count(RecordKind::kTailSibling), 1U);
  cache({.tokens = tokens("aaaa bbbb cccc dddd eeee f"), .session = 5}, {12, 16});
  push_out_states();
  EXPECT_EQ(store_->count(RecordKind::kTail), 1U) << "that of the second turn";
  EXPECT_EQ(store_->count(RecordKind::kTailSibling), 1U);
}

TEST_F(SpillingTest, SaveStoresWhatIsCachedAndKeepsBlocks) {
  start({.blocks = 8, .slots = 4}, {.capture_tails = false});
  cache(request_, {8});
  const SaveReport report = manager().save(std::chrono::seconds(10));
  EXPECT_EQ(report.blocks, 3U);
  EXPECT_EQ(report.snapshots, 1U);
  EXPECT_EQ(report.blocks_lost + report.snapshots_lost, 0U);
  EXPECT_TRUE(report.flushed);
  EXPECT_EQ(peek(request_).matched_tokens, 12U);
  EXPECT_EQ(manager().save(std::chrono::seconds(10)).blocks, 0U) << "they have records";
}

TEST_F(SpillingTest, SaveSaysWhatItCouldNotStore) {
  start({.blocks = 8, .slots = 4}, {.capture_tails = false});
  cache(request_, {8});
  store_->answer_puts_with(PutResult::kDegraded);
  const SaveReport report = manager().save(std::chrono::seconds(10));
  EXPECT_EQ(report.blocks + report.snapshots, 0U);
  EXPECT_EQ(report.blocks_lost, 3U);
  EXPECT_EQ(report.snapshots_lost, 1U);
}

// All are announced at once, and wait for a buffer one after the other.
TEST_F(SpillingTest, SaveStoresMoreThanThereAreBuffersFor) {
  const auto store = std::make_shared<HeldStore>(
      SpillLayout{
          .fingerprint = {.weights = "w"}, .block_size = kBlockSize, .block_bytes = kBlockBytes, .snapshot_bytes = 0},
      std::size_t{2} * 8192);
  const auto device = std::make_shared<testing::ManualDevice>();
  start({.blocks = 8, .slots = 0, .device = device}, {}, store);
  cache(request_);
  std::atomic<bool> over{false};
  std::jthread copies([&] {
    while (!over) {
      if (!device->complete()) std::this_thread::yield();
    }
  });
  const SaveReport report = manager().save(std::chrono::seconds(60));
  over = true;
  EXPECT_TRUE(report.flushed);
  EXPECT_EQ(report.blocks, 3U);
  EXPECT_EQ(report.blocks_lost, 0U);
}

// ---- A device that takes its time ----

class SlowSpillingTest : public SpillingTest {
 protected:
  std::shared_ptr<testing::ManualDevice> device_ = std::make_shared<testing::ManualDevice>();
};

TEST_F(SlowSpillingTest, ABlockIsNotReusedBeforeItsBytesAreOut) {
  start({.blocks = 4, .slots = 0, .device = device_});
  cache(request_);
  const Tokens other = tokens("xxxx yyyy zzzz q");
  for (int tries = 0; tries < 3; ++tries) {
    const Admission refused = manager().admit({.tokens = other});
    EXPECT_FALSE(refused.lease) << "its blocks are on their way out";
    EXPECT_EQ(refused.missing_blocks, 3U);
    EXPECT_EQ(refused.leaving_blocks, 3U);
  }
  EXPECT_EQ(device_->pending(), 3U) << "nothing more is evicted meanwhile";
  EXPECT_EQ(store_->keys().size(), 0U);
  device_->complete_all();
  EXPECT_GT(store_->keys().size(), 0U);
  Lease lease = admit({.tokens = other});
  lease.abandon();
  device_->complete_all();
}

TEST_F(SlowSpillingTest, ASlotIsNotReusedBeforeItsBytesAreOut) {
  start({.blocks = 8, .slots = 1, .device = device_}, {.capture_tails = false});
  cache(request_, {8});
  Lease lease = admit({.tokens = tokens("xxxx y")});
  compute(lease, {.tokens = tokens("xxxx y")}, 5);
  EXPECT_FALSE(lease.capture(4));
  EXPECT_FALSE(lease.capture(4));
  EXPECT_EQ(stats().evicted_snapshots, 1U);
  device_->complete_all();
  EXPECT_EQ(store_->count(RecordKind::kPlainSnapshot), 1U);
  const auto slot = lease.capture(4);
  ASSERT_TRUE(slot);
  lease.cancel_capture(*slot);
}

TEST_F(SlowSpillingTest, ARecordThatIsClearedOnItsWayIsErased) {
  start({.blocks = 4, .slots = 0, .device = device_});
  cache(request_);
  EXPECT_FALSE(manager().admit({.tokens = tokens("xxxx yyyy zzzz q")}).lease);
  EXPECT_GT(manager().clear().records, 0U);
  device_->complete_all();
  EXPECT_EQ(store_->keys().size(), 0U);
}

TEST_F(SlowSpillingTest, ACopyThatFailsLosesTheRecordAndNothingElse) {
  start({.blocks = 4, .slots = 0, .device = device_});
  cache(request_);
  EXPECT_FALSE(manager().admit({.tokens = tokens("xxxx yyyy zzzz q")}).lease);
  while (device_->fail()) {
  }
  EXPECT_EQ(store_->keys().size(), 0U);
  Lease lease = admit(request_);
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  lease.abandon();
  EXPECT_EQ(peek(request_).stored_tokens, 0U);
}

}  // namespace
}  // namespace cairn
