// SnapshotPool, sentence by sentence.
#include <cairn/snapshot_pool.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "support/manual_device.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Bytes = std::vector<std::byte>;

Bytes filled(std::size_t size, int value) {
  return Bytes(size, static_cast<std::byte>(value));
}

void ignore(std::error_code /*error*/) {}

// Two slots of 8 bytes in two shards, on a device that copies when it is told to.
class SnapshotPoolTest : public ::testing::Test {
 protected:
  void TearDown() override {
    if (!pool_) return;
    EXPECT_EQ(pool_->validate(), "");
    EXPECT_EQ(pool_->free_slots() + pool_->used_slots(), pool_->total_slots());
  }

  SnapshotId resident() {
    const std::optional<SnapshotId> slot = pool_->allocate();
    EXPECT_TRUE(slot && pool_->commit(*slot));
    return slot.value_or(0);
  }

  std::shared_ptr<testing::ManualDevice> device_ = std::make_shared<testing::ManualDevice>();
  std::optional<SnapshotPool> pool_{std::in_place,
                                    SnapshotPoolOptions{.slots = 2, .slot_bytes = 8, .shards = 2, .device = device_}};
};

// ---- The life of a slot ----

TEST_F(SnapshotPoolTest, ASlotIsFilledThenResidentThenReadThenFree) {
  const std::optional<SnapshotId> slot = pool_->allocate();
  ASSERT_TRUE(slot);
  EXPECT_EQ(pool_->state(*slot), SlotState::kFilling);
  EXPECT_TRUE(pool_->commit(*slot));
  EXPECT_EQ(pool_->state(*slot), SlotState::kResident);
  EXPECT_TRUE(pool_->begin_read(*slot));
  EXPECT_TRUE(pool_->begin_read(*slot));
  EXPECT_TRUE(pool_->end_read(*slot));
  EXPECT_EQ(pool_->state(*slot), SlotState::kBeingRead);
  EXPECT_TRUE(pool_->end_read(*slot));
  EXPECT_EQ(pool_->state(*slot), SlotState::kResident);
  EXPECT_TRUE(pool_->free(*slot));
  EXPECT_EQ(pool_->state(*slot), SlotState::kFree);
  EXPECT_EQ(pool_->errors().last, "");
}

TEST_F(SnapshotPoolTest, HandsOutNoSlotIfNoneIsFreeAndTheNewestFreeFirst) {
  const SnapshotId first = resident();
  const SnapshotId second = resident();
  EXPECT_EQ(pool_->used_slots(), 2U);
  EXPECT_EQ(pool_->allocate(), std::nullopt);
  EXPECT_TRUE(pool_->free(second));
  EXPECT_TRUE(pool_->free(first));
  EXPECT_EQ(pool_->allocate(), first);
  EXPECT_EQ(pool_->allocate(), second);
  EXPECT_EQ(pool_->errors().last, "") << "a shortage is not an error";
}

TEST_F(SnapshotPoolTest, ASlotFreedUnfilledCanBeHandedOutAtOnce) {
  const SnapshotId slot = pool_->allocate().value();
  EXPECT_TRUE(pool_->free(slot));
  EXPECT_EQ(pool_->state(slot), SlotState::kFree);
  EXPECT_EQ(pool_->allocate(), slot);
}

TEST_F(SnapshotPoolTest, ASlotFreedWhileItIsReadIsDoomedUntilTheLastReaderEnds) {
  const SnapshotId slot = resident();
  ASSERT_TRUE(pool_->begin_read(slot) && pool_->begin_read(slot));
  EXPECT_TRUE(pool_->free(slot));
  EXPECT_EQ(pool_->state(slot), SlotState::kDoomed);
  EXPECT_FALSE(pool_->begin_read(slot)) << "nobody new may read it";
  EXPECT_FALSE(pool_->free(slot));
  EXPECT_FALSE(pool_->commit(slot));
  EXPECT_EQ(pool_->free_slots(), 1U);
  EXPECT_TRUE(pool_->end_read(slot));
  EXPECT_EQ(pool_->state(slot), SlotState::kDoomed);
  EXPECT_TRUE(pool_->end_read(slot));
  EXPECT_EQ(pool_->state(slot), SlotState::kFree);
  EXPECT_EQ(pool_->free_slots(), 2U);
  EXPECT_EQ(pool_->errors().not_in_use, 3U);
}

TEST_F(SnapshotPoolTest, RefusesWhatDoesNotFitTheStateAndNamesTheSlot) {
  const SnapshotId slot = pool_->allocate().value();
  EXPECT_FALSE(pool_->begin_read(slot));
  EXPECT_EQ(pool_->errors().last, "begin_read: slot 0 is not filled yet");
  EXPECT_FALSE(pool_->end_read(slot));
  EXPECT_EQ(pool_->errors().last, "end_read: slot 0 has no reader");
  ASSERT_TRUE(pool_->commit(slot));
  EXPECT_FALSE(pool_->commit(slot));
  EXPECT_EQ(pool_->errors().last, "commit: slot 0 is resident already");
  EXPECT_EQ(pool_->errors().wrong_states, 3U);
  EXPECT_EQ(pool_->state(slot), SlotState::kResident);

  ASSERT_TRUE(pool_->free(slot));
  EXPECT_FALSE(pool_->free(slot));
  EXPECT_EQ(pool_->errors().last, "free: slot 0 is free");
  EXPECT_FALSE(pool_->end_read(slot));
  EXPECT_FALSE(pool_->begin_read(slot));
  EXPECT_FALSE(pool_->commit(slot));
  EXPECT_EQ(pool_->errors().not_in_use, 4U);

  EXPECT_FALSE(pool_->commit(2));
  EXPECT_EQ(pool_->errors().last, "commit: there is no slot 2");
  EXPECT_FALSE(pool_->free(2));
  EXPECT_FALSE(pool_->begin_read(2));
  EXPECT_FALSE(pool_->end_read(std::numeric_limits<SnapshotId>::max()));
  EXPECT_EQ(pool_->errors().unknown_ids, 4U);
  EXPECT_EQ(pool_->state(2), SlotState::kFree);
  EXPECT_EQ(pool_->free_slots(), 2U);
}

// ---- Copies ----

TEST_F(SnapshotPoolTest, WritesAndReadsEachShardByItself) {
  const SnapshotId slot = pool_->allocate().value();
  const Bytes low = filled(4, 1);
  const Bytes high = filled(4, 2);
  pool_->write(slot, 0, low, ignore);
  pool_->write(slot, 1, high, ignore);
  device_->complete_all();
  ASSERT_TRUE(pool_->commit(slot));
  EXPECT_EQ(pool_->data(slot, 1), pool_->data(slot, 0) + 4);
  EXPECT_EQ(Bytes(pool_->data(slot, 0), pool_->data(slot, 0) + 4), low);

  Bytes got(4);
  std::optional<std::error_code> outcome;
  pool_->read(slot, 1, got, [&](std::error_code error) { outcome = error; });
  EXPECT_EQ(pool_->state(slot), SlotState::kBeingRead);
  EXPECT_FALSE(outcome);
  device_->complete_all();
  EXPECT_EQ(outcome, std::error_code());
  EXPECT_EQ(got, high);
  EXPECT_EQ(pool_->state(slot), SlotState::kResident);
}

TEST_F(SnapshotPoolTest, ASlotIsNotCommittedWhileItIsWritten) {
  const SnapshotId slot = pool_->allocate().value();
  const Bytes bytes = filled(4, 1);
  pool_->write(slot, 0, bytes, ignore);
  pool_->write(slot, 1, bytes, ignore);
  device_->complete(1);
  EXPECT_FALSE(pool_->commit(slot));
  EXPECT_EQ(pool_->errors().wrong_states, 1U);
  EXPECT_EQ(pool_->errors().last, "commit: slot 0 is still being written");
  EXPECT_EQ(pool_->state(slot), SlotState::kFilling);
  device_->complete();
  EXPECT_TRUE(pool_->commit(slot));
}

TEST_F(SnapshotPoolTest, ASlotFreedWhileItIsWrittenIsNotHandedOutBeforeTheWriteIsDone) {
  const SnapshotId slot = pool_->allocate().value();
  const Bytes bytes = filled(4, 1);
  pool_->write(slot, 0, bytes, ignore);
  EXPECT_TRUE(pool_->free(slot));
  EXPECT_EQ(pool_->state(slot), SlotState::kDoomed);
  EXPECT_FALSE(pool_->commit(slot));
  EXPECT_THROW(pool_->write(slot, 1, bytes, ignore), std::invalid_argument);
  const SnapshotId other = pool_->allocate().value();
  EXPECT_NE(other, slot);
  EXPECT_EQ(pool_->allocate(), std::nullopt);
  device_->complete_all();
  EXPECT_EQ(pool_->allocate(), slot);
}

TEST_F(SnapshotPoolTest, ASlotFreedWhileItIsCopiedOutIsNotHandedOutBeforeTheCopyIsDone) {
  const SnapshotId slot = pool_->allocate().value();
  const Bytes bytes = filled(4, 5);
  pool_->write(slot, 0, bytes, ignore);
  device_->complete_all();
  ASSERT_TRUE(pool_->commit(slot));
  Bytes got(4);
  pool_->read(slot, 0, got, ignore);
  EXPECT_TRUE(pool_->free(slot));
  EXPECT_NE(pool_->allocate(), slot);
  EXPECT_EQ(pool_->allocate(), std::nullopt);
  device_->complete_all();
  EXPECT_EQ(got, bytes);
  EXPECT_EQ(pool_->allocate(), slot);
}

TEST_F(SnapshotPoolTest, ACallerThatEndsAReaderTooOftenDoesNotEndACopy) {
  const SnapshotId slot = resident();
  Bytes got(4);
  pool_->read(slot, 0, got, ignore);
  EXPECT_FALSE(pool_->end_read(slot));
  EXPECT_TRUE(pool_->free(slot));
  EXPECT_FALSE(pool_->end_read(slot));
  EXPECT_EQ(pool_->state(slot), SlotState::kDoomed);
  device_->complete_all();
  EXPECT_EQ(pool_->state(slot), SlotState::kFree);
}

TEST_F(SnapshotPoolTest, AReaderGoesOnCopyingAfterItsSlotIsDoomed) {
  const SnapshotId slot = resident();
  ASSERT_TRUE(pool_->begin_read(slot));
  ASSERT_TRUE(pool_->free(slot));
  Bytes got = filled(4, 9);
  pool_->read(slot, 1, got, ignore);
  EXPECT_TRUE(pool_->end_read(slot));
  EXPECT_EQ(pool_->state(slot), SlotState::kDoomed);
  Bytes late(4);
  EXPECT_THAT([&] { pool_->read(slot, 0, late, ignore); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("slot: 0 is neither resident nor held")))
      << "only a copy keeps it";
  device_->complete_all();
  EXPECT_THAT(got, Each(std::byte{0}));
  EXPECT_EQ(pool_->state(slot), SlotState::kFree);
}

TEST_F(SnapshotPoolTest, AFailedCopyEndsAsAnyOther) {
  const SnapshotId slot = pool_->allocate().value();
  const Bytes bytes = filled(4, 1);
  std::vector<std::error_code> outcomes;
  const auto note = [&](std::error_code error) { outcomes.push_back(error); };
  pool_->write(slot, 0, bytes, note);
  device_->fail();
  EXPECT_EQ(pool_->state(slot), SlotState::kFilling);
  pool_->write(slot, 0, bytes, note);  // once more
  device_->complete();
  ASSERT_TRUE(pool_->commit(slot));
  Bytes got(4);
  pool_->read(slot, 0, got, note);
  ASSERT_TRUE(pool_->free(slot));
  device_->fail(0, std::errc::no_such_device);
  EXPECT_EQ(pool_->free_slots(), 2U);
  EXPECT_EQ(outcomes, (std::vector<std::error_code>{std::make_error_code(std::errc::io_error), std::error_code(),
                                                    std::make_error_code(std::errc::no_such_device)}));
}

TEST_F(SnapshotPoolTest, ACopyThatTheDeviceRefusesHasNotBegun) {
  const SnapshotId slot = pool_->allocate().value();
  Bytes bytes(4);
  int calls = 0;
  const auto count = [&](std::error_code /*error*/) { ++calls; };
  device_->refuse_next_copy();
  EXPECT_THROW(pool_->write(slot, 0, bytes, count), std::system_error);
  ASSERT_TRUE(pool_->commit(slot)) << "nothing is pending";
  device_->refuse_next_copy();
  EXPECT_THROW(pool_->read(slot, 0, bytes, count), std::system_error);
  EXPECT_EQ(pool_->state(slot), SlotState::kResident);
  EXPECT_EQ(calls, 0);
}

TEST_F(SnapshotPoolTest, DoneMayCommitAndFreeAndAllocate) {
  const SnapshotId slot = pool_->allocate().value();
  Bytes bytes(4);
  bool committed = false;
  pool_->write(slot, 0, bytes, [&](std::error_code /*error*/) { committed = pool_->commit(slot); });
  device_->complete_all();
  EXPECT_TRUE(committed);
  std::optional<SnapshotId> again;
  pool_->read(slot, 0, bytes, [&](std::error_code /*error*/) { again = pool_->allocate(); });
  ASSERT_TRUE(pool_->free(slot));
  device_->complete_all();
  EXPECT_EQ(again, slot);
}

TEST_F(SnapshotPoolTest, ThePoolsMemoryOutlivesItUntilTheLastCopyIsDone) {
  const SnapshotId slot = pool_->allocate().value();
  const Bytes bytes = filled(4, 1);
  std::size_t allocated_when_done = 99;
  pool_->write(slot, 0, bytes, ignore);
  pool_->write(slot, 1, bytes, [&](std::error_code /*error*/) { allocated_when_done = device_->allocated_bytes(); });
  pool_.reset();
  EXPECT_EQ(device_->allocated_bytes(), 16U);
  EXPECT_TRUE(device_->complete());
  EXPECT_EQ(device_->allocated_bytes(), 16U);
  EXPECT_TRUE(device_->complete());
  EXPECT_EQ(allocated_when_done, 0U);
}

TEST_F(SnapshotPoolTest, DoneMayDestroyThePool) {
  const SnapshotId slot = pool_->allocate().value();
  const Bytes bytes = filled(4, 1);
  pool_->write(slot, 0, bytes, [&](std::error_code /*error*/) { pool_.reset(); });
  device_->complete_all();
  EXPECT_FALSE(pool_);
  EXPECT_EQ(device_->allocated_bytes(), 0U);
}

TEST_F(SnapshotPoolTest, RefusesCopiesThatCantBeRight) {
  const SnapshotId slot = pool_->allocate().value();
  Bytes bytes(4);
  Bytes short_by_one(3);
  const auto write = [&](SnapshotId to, std::size_t shard, const Bytes& from, const CopyDone& done) {
    return [&, to, shard, done] { pool_->write(to, shard, from, done); };
  };
  const auto says = [](const char* words) { return ThrowsMessage<std::invalid_argument>(HasSubstr(words)); };
  EXPECT_THAT(write(2, 0, bytes, ignore), says("slot: 2 is not below 2"));
  EXPECT_THAT(write(slot, 2, bytes, ignore), says("shard: 2 is not below 2"));
  EXPECT_THAT(write(slot, 0, short_by_one, ignore), says("bytes: 3 are given; a shard has 4"));
  EXPECT_THAT(write(slot, 0, bytes, CopyDone()), says("done: must not be empty"));
  EXPECT_THAT(write(1, 0, bytes, ignore), says("slot: 1 is not being filled"));
  EXPECT_THROW(pool_->read(slot, 0, bytes, ignore), std::invalid_argument) << "it is not filled yet";
  ASSERT_TRUE(pool_->commit(slot));
  EXPECT_THAT(write(slot, 0, bytes, ignore), says("slot: 0 is not being filled"));
  EXPECT_THROW(pool_->read(2, 0, bytes, ignore), std::invalid_argument);
  EXPECT_THROW(pool_->read(slot, 2, bytes, ignore), std::invalid_argument);
  EXPECT_THROW(pool_->read(slot, 0, short_by_one, ignore), std::invalid_argument);
  EXPECT_THROW(pool_->read(slot, 0, bytes, CopyDone()), std::invalid_argument);
  EXPECT_THROW(pool_->read(1, 0, bytes, ignore), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(pool_->data(2, 0)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(pool_->data(slot, 2)), std::invalid_argument);
  EXPECT_EQ(device_->pending(), 0U);
  EXPECT_EQ(pool_->state(slot), SlotState::kResident);
}

// A device that breaks its promise must not free a slot that another uses by now.
class TwiceDevice final : public Device {
 public:
  std::byte* allocate(std::size_t bytes) override { return HostDevice::shared()->allocate(bytes); }
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override {
    HostDevice::shared()->deallocate(memory, bytes);
  }
  void copy_in(std::byte* /*to*/, std::span<const std::byte> /*from*/, CopyDone done) override {
    done({});
    done({});
  }
  void copy_out(std::span<std::byte> /*to*/, const std::byte* /*from*/, CopyDone done) override { done({}); }
  void copy_within(std::byte* /*to*/, const std::byte* /*from*/, std::size_t /*bytes*/, CopyDone done) override {
    done({});
  }
};

TEST(SnapshotPoolDeathTest, ADeviceThatIsDoneTwiceEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SnapshotPool pool({.slots = 1, .slot_bytes = 1, .device = std::make_shared<TwiceDevice>()});
  const SnapshotId slot = pool.allocate().value();
  const Bytes bytes(1);
  EXPECT_DEATH(pool.write(slot, 0, bytes, ignore), "invariant broken");
}

// ---- Making one ----

TEST(SnapshotPoolOptionsTest, AreCheckedByName) {
  const auto with = [](const SnapshotPoolOptions& options) { return [options] { const SnapshotPool pool(options); }; };
  const auto says = [](const char* words) { return ThrowsMessage<std::invalid_argument>(HasSubstr(words)); };
  EXPECT_THAT(with({.slots = 0, .slot_bytes = 8}), says("slots: must not be 0"));
  EXPECT_THAT(with({.slots = 1, .slot_bytes = 0}), says("slot_bytes: 0 is not a multiple"));
  EXPECT_THAT(with({.slots = 1, .slot_bytes = 8, .shards = 0}), says("shards: must not be 0"));
  EXPECT_THAT(with({.slots = 1, .slot_bytes = 8, .shards = 3}), says("slot_bytes: 8 is not a multiple"));
  EXPECT_THAT(with({.slots = std::size_t{1} << 61, .slot_bytes = 8}), says("more than can be addressed"));
}

TEST(SnapshotPoolOptionsTest, AreToldAgain) {
  const SnapshotPool pool({.slots = 3, .slot_bytes = 8, .shards = 4});
  EXPECT_EQ(pool.total_slots(), 3U);
  EXPECT_EQ(pool.slot_bytes(), 8U);
  EXPECT_EQ(pool.shards(), 4U);
  EXPECT_EQ(&pool.device(), HostDevice::shared().get());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.data(0, 0)) % Device::kAlignment, 0U);
  EXPECT_EQ(pool.data(2, 3), pool.data(0, 0) + 22);
}

TEST(SnapshotPoolOptionsTest, HostMemoryCopiesBeforeTheCallReturns) {
  SnapshotPool pool({.slots = 1, .slot_bytes = 4});
  const SnapshotId slot = pool.allocate().value();
  bool committed = false;
  pool.write(slot, 0, filled(4, 3), [&](std::error_code error) { committed = !error && pool.commit(slot); });
  ASSERT_TRUE(committed);
  Bytes got(4);
  pool.read(slot, 0, got, ignore);
  EXPECT_EQ(got, filled(4, 3));
  EXPECT_EQ(pool.state(slot), SlotState::kResident);
}

}  // namespace
}  // namespace cairn
