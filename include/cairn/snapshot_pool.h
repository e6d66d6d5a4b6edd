// Slots for snapshots of recurrent state: all of one size, in one aligned arena of a Device.
//
//            allocate             commit               begin_read
//     free ------------> filling ---------> resident ------------> being read
//      ^                   |                  |    <------------       |
//      +-------free--------+-------free-------+     last end_read      | free
//      ^                                                               v
//      +------------------------- last end_read -------------- doomed (read on, then free)
//
// A slot is handed out again only when no read of it is pending.
#ifndef CAIRN_SNAPSHOT_POOL_H_
#define CAIRN_SNAPSHOT_POOL_H_

#include <cairn/block_pool.h>
#include <cairn/device.h>
#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace cairn {

struct SnapshotPoolOptions {
  std::size_t slots = 0;       // ids 0 .. slots - 1
  std::size_t slot_bytes = 0;  // of one snapshot, all shards together
  // Tensor-parallel ranks, each of which has slot_bytes / shards of the state.
  std::size_t shards = 1;
  // Where the bytes live. Null: host memory.
  std::shared_ptr<Device> device{};
};

enum class SlotState { kFree, kFilling, kResident, kBeingRead, kDoomed };

// Thread-safe: one short lock, taken last in Cairn's order. allocate, commit, free, begin_read, end_read are O(1) and
// never throw; what breaks a rule is refused (false), changes nothing and is counted in errors() with the slot.
class SnapshotPool {
 public:
  // Throws std::invalid_argument: no slots; slot_bytes 0 or not a multiple of shards; shards 0; std::bad_alloc.
  explicit SnapshotPool(SnapshotPoolOptions options);
  ~SnapshotPool();
  SnapshotPool(const SnapshotPool&) = delete;
  SnapshotPool& operator=(const SnapshotPool&) = delete;

  // A slot to fill; none if none is free.
  [[nodiscard]] std::optional<SnapshotId> allocate() noexcept;
  // Filling -> resident: its bytes are complete.
  bool commit(SnapshotId slot) noexcept;
  // Filling or resident -> free; being read -> doomed, and free after the last end_read.
  bool free(SnapshotId slot) noexcept;
  // Resident or being read -> being read, one more reader.
  [[nodiscard]] bool begin_read(SnapshotId slot) noexcept;
  bool end_read(SnapshotId slot) noexcept;

  // ---- Bytes ----

  // Copies one shard (slot_bytes / shards) into a slot that is being filled. Throws std::invalid_argument: no such
  // slot or shard; the wrong number of bytes; a slot that is not being filled. Else `done` is called once.
  void write(SnapshotId slot, std::size_t shard, std::span<const std::byte> from, CopyDone done);
  // Copies one shard out. Takes part in the counting of readers from now until `done`: the slot can't be reused
  // before. Throws std::invalid_argument as write; a slot that is free, filling or doomed without a reader.
  void read(SnapshotId slot, std::size_t shard, std::span<std::byte> to, CopyDone done);
  // Where a shard lies, for the device that was given: for engines that copy by themselves, between allocate and
  // commit, or between begin_read and end_read. Throws std::invalid_argument: no such slot or shard.
  [[nodiscard]] std::byte* data(SnapshotId slot, std::size_t shard) const;

  // ---- Watching ----

  [[nodiscard]] SlotState state(SnapshotId slot) const noexcept;  // kFree if there is no such slot
  [[nodiscard]] std::size_t free_slots() const noexcept;
  [[nodiscard]] std::size_t used_slots() const noexcept;  // free + used == total
  [[nodiscard]] std::size_t total_slots() const noexcept;
  [[nodiscard]] std::size_t slot_bytes() const noexcept;
  [[nodiscard]] std::size_t shards() const noexcept;
  [[nodiscard]] Device& device() const noexcept;
  [[nodiscard]] PoolErrors errors() const;
  // Checks every invariant. Empty if all hold, else what is wrong. O(slots).
  [[nodiscard]] std::string validate() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

#endif  // CAIRN_SNAPSHOT_POOL_H_
