// Random calls, broken ones among them, on a pool whose copies are done in any order, well or not, and on a model. The
// model says what each call answers and which bytes each copy brings.
#include <cairn/snapshot_pool.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "support/manual_device.h"

namespace cairn {
namespace {

constexpr std::size_t kShardBytes = 3;
constexpr std::size_t kShards = 2;

using Bytes = std::vector<std::byte>;

struct NaiveSlot {
  enum class Life { kFree, kFilling, kResident, kFreed };
  Life life = Life::kFree;
  std::size_t readers = 0;
  std::size_t copies = 0;
  std::vector<std::byte> content = std::vector<std::byte>(kShards);  // every byte of that shard
  std::vector<bool> being_written = std::vector<bool>(kShards);
};

struct PendingCopy {
  SnapshotId slot;
  std::size_t shard;
  bool is_write;
  std::byte content;  // of the bytes that it brings
  std::unique_ptr<Bytes> host;
  std::shared_ptr<std::optional<std::error_code>> outcome;
};

class RandomCalls {
 public:
  explicit RandomCalls(std::uint64_t seed)
      : random_(seed),
        slots_(1 + below(4)),
        pool_({.slots = slots_.size(), .slot_bytes = kShards * kShardBytes, .shards = kShards, .device = device_}) {
    for (SnapshotId slot = slots_.size(); slot > 0; --slot) free_.push_back(slot - 1);
  }

  void step() {
    switch (below(12)) {
      case 0:
      case 1:
        return allocate();
      case 2:
        return commit(some_slot());
      case 3:
        return below(2) == 0 ? free(some_slot()) : void();
      case 4:
        return begin_read(some_slot());
      case 5:
      case 6:
        return end_read(some_slot());
      case 7:
      case 8:
        return write(some_slot(), below(kShards));
      case 9:
        return read(some_slot(), below(kShards));
      default:
        return end_copy();
    }
  }

  void expect_equal() {
    ASSERT_EQ(pool_.validate(), "");
    ASSERT_EQ(pool_.free_slots(), free_.size());
    ASSERT_EQ(pool_.used_slots(), slots_.size() - free_.size());
    for (SnapshotId slot = 0; slot < slots_.size(); ++slot) {
      ASSERT_EQ(pool_.state(slot), state(slots_[slot])) << "slot " << slot;
    }
    const PoolErrors errors = pool_.errors();
    ASSERT_EQ(errors.unknown_ids, unknown_);
    ASSERT_EQ(errors.not_in_use, not_in_use_);
    ASSERT_EQ(errors.wrong_states, wrong_states_);
    ASSERT_EQ(errors.count_limits, 0U);
    ASSERT_EQ(device_->pending(), pending_.size());
  }

  // Everything ends; every slot comes back.
  void wind_up() {
    while (!pending_.empty()) ASSERT_NO_FATAL_FAILURE(end_copy());
    for (SnapshotId slot = 0; slot < slots_.size(); ++slot) {
      while (slots_[slot].readers > 0) ASSERT_NO_FATAL_FAILURE(end_read(slot));
      const bool is_held = slots_[slot].life != Life::kFree;
      if (is_held) {
        ASSERT_NO_FATAL_FAILURE(free(slot));
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_equal());
    ASSERT_EQ(pool_.free_slots(), slots_.size());
  }

  [[nodiscard]] std::size_t refused() const { return unknown_ + not_in_use_ + wrong_states_; }
  [[nodiscard]] std::size_t doomed() const { return doomed_; }
  [[nodiscard]] std::size_t read_back() const { return read_back_; }

 private:
  using Life = NaiveSlot::Life;

  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }

  SnapshotId some_slot() { return below(30) == 0 ? slots_.size() + below(2) : below(slots_.size()); }

  static SlotState state(const NaiveSlot& slot) {
    switch (slot.life) {
      case Life::kFree:
        return SlotState::kFree;
      case Life::kFilling:
        return SlotState::kFilling;
      case Life::kResident:
        return slot.readers + slot.copies > 0 ? SlotState::kBeingRead : SlotState::kResident;
      case Life::kFreed:
        return SlotState::kDoomed;
    }
    return SlotState::kFree;
  }

  // Null, and counted, if callers have no such slot.
  NaiveSlot* held(SnapshotId slot) {
    if (slot >= slots_.size()) {
      ++unknown_;
      return nullptr;
    }
    if (slots_[slot].life == Life::kFree || slots_[slot].life == Life::kFreed) {
      ++not_in_use_;
      return nullptr;
    }
    return &slots_[slot];
  }

  bool refuse(bool wrong) {
    if (wrong) ++wrong_states_;
    return wrong;
  }

  void free_if_unused(SnapshotId slot) {
    NaiveSlot& model = slots_[slot];
    if (model.life != Life::kFreed || model.readers + model.copies > 0) return;
    model.life = Life::kFree;
    free_.push_back(slot);
  }

  void allocate() {
    const std::optional<SnapshotId> expected = free_.empty() ? std::nullopt : std::optional(free_.back());
    if (expected) {
      free_.pop_back();
      slots_[*expected].life = Life::kFilling;
    }
    ASSERT_EQ(pool_.allocate(), expected);
  }

  void commit(SnapshotId slot) {
    NaiveSlot* const model = held(slot);
    const bool works = model != nullptr && !refuse(model->life != Life::kFilling || model->copies > 0);
    if (works) model->life = Life::kResident;
    ASSERT_EQ(pool_.commit(slot), works) << "slot " << slot;
  }

  void free(SnapshotId slot) {
    NaiveSlot* const model = held(slot);
    if (model != nullptr) {
      model->life = Life::kFreed;
      if (model->readers + model->copies > 0) ++doomed_;
      free_if_unused(slot);
    }
    ASSERT_EQ(pool_.free(slot), model != nullptr) << "slot " << slot;
  }

  void begin_read(SnapshotId slot) {
    NaiveSlot* const model = held(slot);
    const bool works = model != nullptr && !refuse(model->life == Life::kFilling);
    if (works) ++model->readers;
    ASSERT_EQ(pool_.begin_read(slot), works) << "slot " << slot;
  }

  void end_read(SnapshotId slot) {
    const bool works = slot < slots_.size() && slots_[slot].readers > 0;
    if (works) {
      --slots_[slot].readers;
      free_if_unused(slot);
    } else if (held(slot) != nullptr) {
      ++wrong_states_;
    }
    ASSERT_EQ(pool_.end_read(slot), works) << "slot " << slot;
  }

  void write(SnapshotId slot, std::size_t shard) {
    const bool works = slot < slots_.size() && slots_[slot].life == Life::kFilling;
    if (works && slots_[slot].being_written[shard]) return;  // the rule that the pool can't check
    PendingCopy copy = make_copy(slot, shard, true, static_cast<std::byte>(++last_content_));
    begin(std::move(copy), works);
  }

  void read(SnapshotId slot, std::size_t shard) {
    bool works = false;
    if (slot < slots_.size()) {
      const NaiveSlot& model = slots_[slot];
      works = model.life == Life::kResident || (model.life == Life::kFreed && model.readers > 0);
    }
    PendingCopy copy = make_copy(slot, shard, false, works ? slots_[slot].content[shard] : std::byte{0});
    begin(std::move(copy), works);
  }

  static PendingCopy make_copy(SnapshotId slot, std::size_t shard, bool is_write, std::byte content) {
    return {.slot = slot,
            .shard = shard,
            .is_write = is_write,
            .content = content,
            .host = std::make_unique<Bytes>(kShardBytes, is_write ? content : ~content),
            .outcome = std::make_shared<std::optional<std::error_code>>()};
  }

  void begin(PendingCopy copy, bool works) {
    const bool device_refuses = works && below(8) == 0;
    if (device_refuses) device_->refuse_next_copy();
    const auto call = [&] {
      const CopyDone done = [outcome = copy.outcome](std::error_code error) { *outcome = error; };
      if (copy.is_write) {
        pool_.write(copy.slot, copy.shard, *copy.host, done);
      } else {
        pool_.read(copy.slot, copy.shard, *copy.host, done);
      }
    };
    if (!works) {
      ASSERT_THROW(call(), std::invalid_argument) << "slot " << copy.slot;
    } else if (device_refuses) {
      ASSERT_THROW(call(), std::system_error);
    } else {
      ASSERT_NO_THROW(call()) << "slot " << copy.slot;
      NaiveSlot& model = slots_[copy.slot];
      ++model.copies;
      if (copy.is_write) model.being_written[copy.shard] = true;
      pending_.push_back(std::move(copy));
    }
  }

  // Any one of the pending copies.
  void end_copy() {
    if (pending_.empty()) return;
    const std::size_t which = below(pending_.size());
    const PendingCopy copy = std::move(pending_[which]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(which));
    const bool fails = below(4) == 0;
    ASSERT_FALSE(*copy.outcome) << "done too early";
    ASSERT_TRUE(fails ? device_->fail(which) : device_->complete(which));
    ASSERT_EQ(**copy.outcome, fails ? std::make_error_code(std::errc::io_error) : std::error_code());

    NaiveSlot& model = slots_[copy.slot];
    --model.copies;
    if (copy.is_write) {
      model.being_written[copy.shard] = false;
      model.content[copy.shard] = fails ? testing::ManualDevice::kSpoilt : copy.content;
    } else if (!fails) {
      ASSERT_EQ(*copy.host, Bytes(kShardBytes, copy.content)) << "slot " << copy.slot;
      ++read_back_;
    }
    free_if_unused(copy.slot);
  }

  std::mt19937_64 random_;
  std::shared_ptr<testing::ManualDevice> device_ = std::make_shared<testing::ManualDevice>();
  std::vector<NaiveSlot> slots_;
  std::vector<SnapshotId> free_;  // the newest last
  std::vector<PendingCopy> pending_;
  SnapshotPool pool_;
  std::uint64_t unknown_ = 0;
  std::uint64_t not_in_use_ = 0;
  std::uint64_t wrong_states_ = 0;
  std::size_t doomed_ = 0;
  std::size_t read_back_ = 0;
  unsigned last_content_ = 0;
};

TEST(SnapshotPoolModelTest, DoesWhatTheModelDoesWhateverItIsAsked) {
  constexpr std::uint64_t kSeeds = 60;
  constexpr int kSteps = 600;
  std::size_t refused = 0;
  std::size_t doomed = 0;
  std::size_t read_back = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    RandomCalls run(seed);
    for (int i = 0; i < kSteps; ++i) {
      ASSERT_NO_FATAL_FAILURE(run.step()) << "seed " << seed << ", step " << i;
      ASSERT_NO_FATAL_FAILURE(run.expect_equal()) << "seed " << seed << ", step " << i;
    }
    ASSERT_NO_FATAL_FAILURE(run.wind_up()) << "seed " << seed;
    refused += run.refused();
    doomed += run.doomed();
    read_back += run.read_back();
  }
  EXPECT_GT(refused, kSeeds);
  EXPECT_GT(doomed, kSeeds);
  EXPECT_GT(read_back, kSeeds);
}

}  // namespace
}  // namespace cairn
