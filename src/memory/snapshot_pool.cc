// SnapshotPool: who may use which slot, and the copies of their bytes.
//
// A slot has two counts of what keeps it from being handed out again: `readers`, which callers begin and end, and
// `copies`, which only the pool's own copies do. They are apart so that a caller that ends a reader too often can't
// free a slot that a device is still copying. SlotState::kBeingRead is not stored: it is a resident slot with one of
// the two.
//
// Under the lock nothing is called: neither the device nor a caller's `done`.
#include "cairn/snapshot_pool.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "base/refuse.h"
#include "memory/arena.h"
#include "memory/refusals.h"

namespace cairn {
namespace {

SnapshotPoolOptions checked(SnapshotPoolOptions options) {
  if (options.slots == 0) refuse("slots", "must not be 0");
  if (options.shards == 0) refuse("shards", "must not be 0");
  if (options.slot_bytes == 0 || options.slot_bytes % options.shards != 0) {
    refuse("slot_bytes", std::to_string(options.slot_bytes) + " is not a multiple, above 0, of the " +
                             std::to_string(options.shards) + " shards");
  }
  return options;
}

}  // namespace

// Shared with the pending copies, which may end after the pool.
class SnapshotPool::Impl {
 public:
  explicit Impl(const SnapshotPoolOptions& options);

  // The calls of the pool.
  std::optional<SnapshotId> allocate() noexcept;
  bool commit(SnapshotId slot) noexcept;
  bool free(SnapshotId slot) noexcept;
  bool begin_read(SnapshotId slot) noexcept;
  bool end_read(SnapshotId slot) noexcept;
  [[nodiscard]] std::byte* data(SnapshotId slot, std::size_t shard) const;
  [[nodiscard]] SlotState state(SnapshotId slot) const noexcept;
  [[nodiscard]] std::size_t num_free() const noexcept;
  [[nodiscard]] PoolErrors errors() const;
  [[nodiscard]] std::string validate() const;

  // One more copy of the slot. Throws std::invalid_argument if it can't be copied in its state.
  void begin_write(SnapshotId slot);
  void begin_copy_out(SnapshotId slot);
  void end_copy(SnapshotId slot) noexcept;
  // What a device is to call: ends the copy, then calls `done`.
  [[nodiscard]] static CopyDone ending_copy(std::shared_ptr<Impl> impl, SnapshotId slot, CopyDone done);
  void check_bytes(std::size_t bytes, const CopyDone& done) const;

  [[nodiscard]] Device& device() const noexcept { return arena_.device(); }

  const std::size_t num_slots;
  const std::size_t slot_bytes;
  const std::size_t shards;
  const std::size_t shard_bytes;

 private:
  struct Slot {
    SlotState state = SlotState::kFree;  // never kBeingRead
    std::uint64_t readers = 0;           // resident or doomed only
    std::uint64_t copies = 0;            // of a slot being filled: into it. Else out of it, unless it is doomed

    [[nodiscard]] bool idle() const { return readers == 0 && copies == 0; }
  };

  // Null, and counted, if there is no such slot, or it is free, or doomed and thus free to callers.
  Slot* find_used(const char* call, SnapshotId slot) noexcept CAIRN_REQUIRES(mutex_);
  void free_if_doomed_and_idle(SnapshotId slot) noexcept CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::string validate_slot(SnapshotId slot, bool listed) const CAIRN_REQUIRES(mutex_);

  const Arena arena_;  // comes first: a count of slots that can't be had fails here. A piece is a slot
  mutable Mutex mutex_;
  std::vector<Slot> slots_ CAIRN_GUARDED_BY(mutex_);
  std::vector<SnapshotId> free_ CAIRN_GUARDED_BY(mutex_);  // has room for all; handed out from the back
  Refusals refusals_ CAIRN_GUARDED_BY(mutex_);
};

SnapshotPool::Impl::Impl(const SnapshotPoolOptions& options)
    : num_slots(options.slots),
      slot_bytes(options.slot_bytes),
      shards(options.shards),
      shard_bytes(options.slot_bytes / options.shards),
      arena_(options.device, num_slots, slot_bytes, "slot_bytes"),
      slots_(num_slots) {
  free_.reserve(num_slots);
  for (SnapshotId slot = num_slots; slot > 0; --slot) free_.push_back(slot - 1);
}

// ---- States ----

std::optional<SnapshotId> SnapshotPool::Impl::allocate() noexcept {
  const MutexLock lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const SnapshotId slot = free_.back();
  free_.pop_back();
  CAIRN_CHECK(slots_[slot].state == SlotState::kFree);
  CAIRN_CHECK(slots_[slot].idle());
  slots_[slot].state = SlotState::kFilling;
  return slot;
}

bool SnapshotPool::Impl::commit(SnapshotId slot) noexcept {
  constexpr const char* kCall = "commit";
  const MutexLock lock(mutex_);
  Slot* const found = find_used(kCall, slot);
  if (found == nullptr) return false;
  if (found->state != SlotState::kFilling) {
    refusals_.note_wrong_state(kCall, slot, "is resident already");
    return false;
  }
  if (found->copies > 0) {
    refusals_.note_wrong_state(kCall, slot, "is still being written");
    return false;
  }
  found->state = SlotState::kResident;
  return true;
}

bool SnapshotPool::Impl::free(SnapshotId slot) noexcept {
  const MutexLock lock(mutex_);
  Slot* const found = find_used("free", slot);
  if (found == nullptr) return false;
  found->state = SlotState::kDoomed;
  free_if_doomed_and_idle(slot);
  return true;
}

bool SnapshotPool::Impl::begin_read(SnapshotId slot) noexcept {
  constexpr const char* kCall = "begin_read";
  const MutexLock lock(mutex_);
  Slot* const found = find_used(kCall, slot);
  if (found == nullptr) return false;
  if (found->state == SlotState::kFilling) {
    refusals_.note_wrong_state(kCall, slot, "is not filled yet");
    return false;
  }
  ++found->readers;
  return true;
}

bool SnapshotPool::Impl::end_read(SnapshotId slot) noexcept {
  constexpr const char* kCall = "end_read";
  const MutexLock lock(mutex_);
  if (slot < num_slots && slots_[slot].readers > 0) {  // doomed or not
    --slots_[slot].readers;
    free_if_doomed_and_idle(slot);
    return true;
  }
  if (find_used(kCall, slot) != nullptr) refusals_.note_wrong_state(kCall, slot, "has no reader");
  return false;
}

SnapshotPool::Impl::Slot* SnapshotPool::Impl::find_used(const char* call, SnapshotId slot) noexcept {
  if (slot >= num_slots) {
    refusals_.note_unknown_id(call, slot);
    return nullptr;
  }
  const SlotState state = slots_[slot].state;
  if (state == SlotState::kFree || state == SlotState::kDoomed) {
    refusals_.note_not_in_use(call, slot, state == SlotState::kFree ? "is free" : "is freed already");
    return nullptr;
  }
  return &slots_[slot];
}

void SnapshotPool::Impl::free_if_doomed_and_idle(SnapshotId slot) noexcept {
  if (slots_[slot].state != SlotState::kDoomed || !slots_[slot].idle()) return;
  slots_[slot].state = SlotState::kFree;
  free_.push_back(slot);
}

// ---- Bytes ----

void SnapshotPool::Impl::begin_write(SnapshotId slot) {
  const MutexLock lock(mutex_);
  if (slots_[slot].state != SlotState::kFilling) {
    refuse("slot", std::to_string(slot) + " is not being filled");
  }
  ++slots_[slot].copies;
}

void SnapshotPool::Impl::begin_copy_out(SnapshotId slot) {
  const MutexLock lock(mutex_);
  const bool held = slots_[slot].state == SlotState::kDoomed && slots_[slot].readers > 0;
  if (slots_[slot].state != SlotState::kResident && !held) {
    refuse("slot", std::to_string(slot) + " is neither resident nor held by a reader");
  }
  ++slots_[slot].copies;
}

void SnapshotPool::Impl::end_copy(SnapshotId slot) noexcept {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(slots_[slot].copies > 0);
  --slots_[slot].copies;
  free_if_doomed_and_idle(slot);
}

CopyDone SnapshotPool::Impl::ending_copy(std::shared_ptr<Impl> impl, SnapshotId slot, CopyDone done) {
  return [impl = std::move(impl), slot, done = std::move(done)](std::error_code error) mutable noexcept {
    CAIRN_CHECK(impl != nullptr);  // else the device calls twice, and the slot may be another's by now
    impl->end_copy(slot);
    impl.reset();  // the memory of a pool that is gone goes now, not when the device forgets this function
    done(error);
  };
}

std::byte* SnapshotPool::Impl::data(SnapshotId slot, std::size_t shard) const {
  if (slot >= num_slots) {
    refuse("slot", std::to_string(slot) + " is not below " + std::to_string(num_slots));
  }
  if (shard >= shards) refuse("shard", std::to_string(shard) + " is not below " + std::to_string(shards));
  return arena_.piece(slot) + shard * shard_bytes;
}

void SnapshotPool::Impl::check_bytes(std::size_t bytes, const CopyDone& done) const {
  if (bytes != shard_bytes) {
    refuse("bytes", std::to_string(bytes) + " are given; a shard has " + std::to_string(shard_bytes));
  }
  if (!done) refuse("done", "must not be empty");
}

// ---- Watching ----

SlotState SnapshotPool::Impl::state(SnapshotId slot) const noexcept {
  const MutexLock lock(mutex_);
  if (slot >= num_slots) return SlotState::kFree;
  const Slot& found = slots_[slot];
  return found.state == SlotState::kResident && !found.idle() ? SlotState::kBeingRead : found.state;
}

std::size_t SnapshotPool::Impl::num_free() const noexcept {
  const MutexLock lock(mutex_);
  return free_.size();
}

PoolErrors SnapshotPool::Impl::errors() const {
  Refusals refusals;
  {
    const MutexLock lock(mutex_);
    refusals = refusals_;
  }
  return refusals.report("slot");
}

std::string SnapshotPool::Impl::validate() const {
  std::vector<bool> listed(num_slots, false);
  const MutexLock lock(mutex_);
  if (free_.capacity() < num_slots) return "giving all slots back would allocate";
  for (const SnapshotId slot : free_) {
    if (slot >= num_slots) return "unknown slot " + std::to_string(slot) + " is listed as free";
    if (listed[slot]) return "slot " + std::to_string(slot) + " is listed as free twice";
    listed[slot] = true;
  }
  for (SnapshotId slot = 0; slot < num_slots; ++slot) {
    if (std::string wrong = validate_slot(slot, listed[slot]); !wrong.empty()) return wrong;
  }
  return {};
}

std::string SnapshotPool::Impl::validate_slot(SnapshotId slot, bool listed) const {
  const Slot& found = slots_[slot];
  const std::string name = "slot " + std::to_string(slot);
  switch (found.state) {
    case SlotState::kFree:
      if (!listed) return name + " is lost";
      return found.idle() ? "" : name + " is free and in use";
    case SlotState::kFilling:
      if (found.readers > 0) return name + " is read before it is filled";
      break;
    case SlotState::kResident:
      break;
    case SlotState::kDoomed:
      if (found.idle()) return name + " waits for nobody";
      break;
    case SlotState::kBeingRead:
      return name + " has a state that is never stored";
  }
  return listed ? name + " is listed as free and in use" : "";
}

// ---- SnapshotPool ----

SnapshotPool::SnapshotPool(SnapshotPoolOptions options) : impl_(std::make_shared<Impl>(checked(std::move(options)))) {}

SnapshotPool::~SnapshotPool() = default;

std::optional<SnapshotId> SnapshotPool::allocate() noexcept {
  return impl_->allocate();
}

bool SnapshotPool::commit(SnapshotId slot) noexcept {
  return impl_->commit(slot);
}

bool SnapshotPool::free(SnapshotId slot) noexcept {
  return impl_->free(slot);
}

bool SnapshotPool::begin_read(SnapshotId slot) noexcept {
  return impl_->begin_read(slot);
}

bool SnapshotPool::end_read(SnapshotId slot) noexcept {
  return impl_->end_read(slot);
}

void SnapshotPool::write(SnapshotId slot, std::size_t shard, std::span<const std::byte> from, CopyDone done) {
  std::byte* const to = impl_->data(slot, shard);
  impl_->check_bytes(from.size(), done);
  CopyDone ending = Impl::ending_copy(impl_, slot, std::move(done));
  impl_->begin_write(slot);
  try {
    impl_->device().copy_in(to, from, std::move(ending));
  } catch (...) {
    impl_->end_copy(slot);  // it has not begun
    throw;
  }
}

void SnapshotPool::read(SnapshotId slot, std::size_t shard, std::span<std::byte> to, CopyDone done) {
  const std::byte* const from = impl_->data(slot, shard);
  impl_->check_bytes(to.size(), done);
  CopyDone ending = Impl::ending_copy(impl_, slot, std::move(done));
  impl_->begin_copy_out(slot);
  try {
    impl_->device().copy_out(to, from, std::move(ending));
  } catch (...) {
    impl_->end_copy(slot);  // it has not begun
    throw;
  }
}

std::byte* SnapshotPool::data(SnapshotId slot, std::size_t shard) const {
  return impl_->data(slot, shard);
}

SlotState SnapshotPool::state(SnapshotId slot) const noexcept {
  return impl_->state(slot);
}

std::size_t SnapshotPool::free_slots() const noexcept {
  return impl_->num_free();
}

std::size_t SnapshotPool::used_slots() const noexcept {
  return impl_->num_slots - impl_->num_free();
}

std::size_t SnapshotPool::total_slots() const noexcept {
  return impl_->num_slots;
}

std::size_t SnapshotPool::slot_bytes() const noexcept {
  return impl_->slot_bytes;
}

std::size_t SnapshotPool::shards() const noexcept {
  return impl_->shards;
}

Device& SnapshotPool::device() const noexcept {
  return impl_->device();
}

PoolErrors SnapshotPool::errors() const {
  return impl_->errors();
}

std::string SnapshotPool::validate() const {
  return impl_->validate();
}

}  // namespace cairn
