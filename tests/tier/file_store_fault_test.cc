// What a file store does about operations that are slow, fail, or never end: one moment at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "support/faulty_io.h"
#include "tier/file_store.h"
#include "tier/records.h"
#include "tier/store_fixture.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Effect = IoFault::Effect;
using Kind = IoRequest::Kind;
using Status = GetResult::Status;

class FileStoreFaultTest : public FileStoreFixture {
 protected:
  void SetUp() override {
    options_.io_timeout = kLong;
    open_with_faults();
  }

  void open_with_faults() {
    store_.reset();
    OpenedStore opened = open_file_store(options_, std::make_unique<FaultyIo>(make_threaded_io(16), plan_));
    ASSERT_NE(opened.store, nullptr) << opened.error.message;
    store_ = std::move(opened.store);
  }

  PutResult put(TierKey key, PutDone done = {}, std::uint64_t version = 0) {
    return store_->put(key, block_lineage(), filled_buffer(*buffers_, RecordKind::kBlock, key, version),
                       std::move(done));
  }

  void wait_for_slow(std::size_t count) const {
    while (plan_->slow_operations() < count) std::this_thread::yield();
  }

  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
};

TEST_F(FileStoreFaultTest, AFlushWaitsForTheWipeOfWhatWasErasedWhileItWasWritten) {
  options_.io_timeout = std::chrono::milliseconds{300};
  open_with_faults();
  plan_->add({.effect = Effect::kSlow, .kind = Kind::kWrite});
  plan_->add({.effect = Effect::kLose, .kind = Kind::kPunch});
  ASSERT_EQ(put(1), PutResult::kAccepted);
  wait_for_slow(1);
  store_->erase(1);
  std::thread release([this] { plan_->release(); });
  EXPECT_FALSE(store_->flush(kLong));  // nobody knows whether the record is wiped
  release.join();
  EXPECT_EQ(get_and_wait(*store_, 1).status, Status::kMissing);
  EXPECT_EQ(store_->validate(), "");
  store_.reset();
}

TEST_F(FileStoreFaultTest, EachPutOfAKeyIsAnsweredAlsoIfOneBehindAWriteIsErased) {
  plan_->add({.effect = Effect::kSlow, .kind = Kind::kWrite});
  std::array<std::atomic<int>, 3> answers{};
  const auto count = [&](std::size_t i) { return [&answers, i](bool stored) { answers[i] += stored ? 100 : 1; }; };
  ASSERT_EQ(put(1, count(0)), PutResult::kAccepted);
  wait_for_slow(1);
  ASSERT_EQ(put(1, count(1), 1), PutResult::kAccepted);
  EXPECT_EQ(put_and_wait(*store_, 2), true);  // so the second has been looked at, and waits for the first
  store_->erase(1);
  ASSERT_EQ(put(1, count(2), 2), PutResult::kAccepted);
  EXPECT_TRUE(is_found(*store_, 1, 2));
  EXPECT_EQ(put_and_wait(*store_, 3), true);
  plan_->release();
  EXPECT_TRUE(store_->flush(kLong));
  EXPECT_TRUE(is_found(*store_, 1, 2));
  EXPECT_EQ(answers[0], 1);
  EXPECT_EQ(answers[1], 1);
  EXPECT_EQ(answers[2], 100);
}

TEST_F(FileStoreFaultTest, AGetAfterAPutDoesNotShareTheReadOfTheReplacedRecord) {
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  plan_->add({.effect = Effect::kSlow, .kind = Kind::kRead});
  const auto early = std::make_shared<std::promise<GetResult>>();
  store_->get(1, [early](GetResult result) { early->set_value(std::move(result)); });
  wait_for_slow(1);
  EXPECT_EQ(put_and_wait(*store_, 1, RecordKind::kBlock, 1), true);
  EXPECT_TRUE(is_found(*store_, 1, 1));
  plan_->release();
  const GetResult result = early->get_future().get();
  ASSERT_EQ(result.status, Status::kFound);
  EXPECT_TRUE(has_payload(result.buffer->payload(), 1, 0));  // which was there when it asked
}

TEST_F(FileStoreFaultTest, AFailedWriteIsNotStoredAndTheNextPutsAreRefusedUntilOneWorks) {
  options_.retry_after = kLong;
  open_with_faults();
  plan_->add({.effect = Effect::kFail, .kind = Kind::kWrite, .error = ENOSPC});
  EXPECT_EQ(put_and_wait(*store_, 1), false);
  EXPECT_THAT(store_->take_lost(), ElementsAre(1));
  EXPECT_EQ(put(2), PutResult::kDegraded);
  EXPECT_TRUE(store_->stats().degraded);
  EXPECT_THAT(store_->stats().degraded_reason, HasSubstr("blocks.slab: can't be written: No space left on device"));
  EXPECT_EQ(store_->stats().io_errors, 1U);

  options_.retry_after = std::chrono::milliseconds{0};
  open_with_faults();
  plan_->add({.effect = Effect::kFail, .kind = Kind::kWrite, .count = 2});
  EXPECT_EQ(put_and_wait(*store_, 1), false);
  EXPECT_EQ(put_and_wait(*store_, 1), false);  // the probe
  EXPECT_TRUE(store_->stats().degraded);
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  EXPECT_FALSE(store_->stats().degraded);
  EXPECT_TRUE(is_found(*store_, 1));
}

TEST_F(FileStoreFaultTest, ARecordThatCantBeReadTwiceIsLost) {
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  plan_->add({.effect = Effect::kFail, .kind = Kind::kRead});
  EXPECT_EQ(get_and_wait(*store_, 1).status, Status::kFailed);
  EXPECT_TRUE(is_found(*store_, 1));
  plan_->add({.effect = Effect::kFail, .kind = Kind::kRead, .count = 2});
  EXPECT_EQ(get_and_wait(*store_, 1).status, Status::kFailed);
  EXPECT_EQ(get_and_wait(*store_, 1).status, Status::kFailed);
  EXPECT_EQ(get_and_wait(*store_, 1).status, Status::kMissing);
  EXPECT_THAT(store_->take_lost(), ElementsAre(1));
}

TEST_F(FileStoreFaultTest, AGetThatTakesTooLongFailsAndItsSlotIsLeftAlone) {
  options_.io_timeout = std::chrono::milliseconds{100};
  open_with_faults();
  EXPECT_EQ(put_and_wait(*store_, 1), true);
  plan_->add({.effect = Effect::kSlow, .kind = Kind::kRead});
  EXPECT_EQ(get_and_wait(*store_, 1).status, Status::kFailed);
  store_->erase(1);
  EXPECT_FALSE(store_->flush(std::chrono::milliseconds{50}));  // the slot can't be wiped while it is read
  plan_->release();
  EXPECT_TRUE(store_->flush(kLong));
  EXPECT_EQ(store_->stats().file_bytes % buffers_->record_bytes(RecordKind::kBlock), 0U);
}

TEST_F(FileStoreFaultTest, GoesOnWithWhatAShortReadOrWriteLeft) {
  plan_->add({.effect = Effect::kShort, .kind = Kind::kWrite, .count = 2, .bytes = 4096});
  EXPECT_EQ(put_and_wait(*store_, 1, RecordKind::kTail), true);
  plan_->add({.effect = Effect::kShort, .kind = Kind::kRead, .count = 2, .bytes = 4096});
  EXPECT_TRUE(is_found(*store_, 1));
  EXPECT_EQ(plan_->faults(), 4U);
}

}  // namespace
}  // namespace cairn::testing
