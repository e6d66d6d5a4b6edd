// Slots for snapshots of recurrent state: all of one size, in one aligned arena of a Device.
//
//            allocate             commit            begin_read, read
//     free ------------> filling ---------> resident --------------> being read
//      ^                    |                  |     <--------------     |
//      |                    |                  |     the last one ends   |
//      |        free        |       free       |                         |
//      +--------------------+------------------+                         | free
//      |                    |                                            |
//      |                    | free, a write pending                      |
//      |                    v                                            |
//      +----------------- doomed <---------------------------------------+
//     the last one ends
//
// What keeps a slot: readers, from begin_read to end_read, and the pool's own copies, from write or read until they
// are done. A slot that is freed while something keeps it is doomed: gone for callers but for those who read it on,
// and handed out again only when the last reader or copy has ended. A commit is refused while a write is pending.
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

// Thread-safe: one short lock, taken last in Cairn's order, and never held while the device or a caller's `done` is
// called. Each call is one atomic step. allocate, commit, free, begin_read and end_read are O(1), never throw and
// never allocate memory; what breaks a rule is refused (false), changes nothing and is counted in errors() with the
// slot.
//
// The pool may be destroyed while copies are pending: its memory stays until the last of them is done.
class SnapshotPool {
 public:
  // Throws std::invalid_argument: no slots; slot_bytes 0 or not a multiple of shards; shards 0; more bytes than can be
  // addressed; std::bad_alloc, and what the device throws.
  explicit SnapshotPool(SnapshotPoolOptions options);
  ~SnapshotPool();
  SnapshotPool(const SnapshotPool&) = delete;
  SnapshotPool& operator=(const SnapshotPool&) = delete;

  // A slot to fill; none if none is free.
  [[nodiscard]] std::optional<SnapshotId> allocate() noexcept;
  // Filling -> resident: its bytes are complete. Refused while a write is pending.
  bool commit(SnapshotId slot) noexcept;
  // Filling or resident -> free; or doomed, if a reader or a copy keeps the slot.
  bool free(SnapshotId slot) noexcept;
  // Resident or being read -> being read, one more reader.
  [[nodiscard]] bool begin_read(SnapshotId slot) noexcept;
  // One reader less, of a doomed slot as well. Can't take what keeps the slot for a copy.
  bool end_read(SnapshotId slot) noexcept;

  // ---- Bytes ----
  // Each copy keeps its slot until it is done, however it ends, and then calls `done`, once: by then the slot may be
  // committed, freed or handed out again, so `done` may do these, or destroy the pool. A failed write leaves the slot
  // as it is, being filled: write it again, or free it. What the device throws passes, and then nothing has begun.

  // Copies one shard (slot_bytes / shards) into a slot that is being filled. One write at a time for each shard.
  // Throws std::invalid_argument: no such slot or shard; the wrong number of bytes; an empty `done`; a slot that is
  // not being filled.
  void write(SnapshotId slot, std::size_t shard, std::span<const std::byte> from, CopyDone done);
  // Copies one shard out of a slot that is resident, or doomed with a reader that has not ended. Throws
  // std::invalid_argument as write, but for the state: a slot that is free, being filled, or doomed without a reader.
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
  std::shared_ptr<Impl> impl_;  // with the pending copies
};

}  // namespace cairn

#endif  // CAIRN_SNAPSHOT_POOL_H_
