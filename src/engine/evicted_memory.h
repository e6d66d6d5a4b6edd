// What has left the cache, and for whom: so that a lease can say why something is not there.
#ifndef CAIRN_ENGINE_EVICTED_MEMORY_H_
#define CAIRN_ENGINE_EVICTED_MEMORY_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/containers.h"
#include "base/mutex.h"
#include "cairn/prefix_cache.h"

namespace cairn {

// Names all tokens from the start of a sequence up to some point, its adapter, and how often that was cleared. 64 bits
// of a hash: two are equal by chance once in 2^64. 0 is none.
using Fingerprint = std::uint64_t;
[[nodiscard]] Fingerprint fingerprint_of_start(AdapterId adapter, std::uint64_t epoch) noexcept;
// Of what `before` names and the tokens that follow it.
[[nodiscard]] Fingerprint fingerprint_after(Fingerprint before, std::span<const TokenId> tokens) noexcept;

// Knows the fingerprint of what lies in each block and each slot, noted by whoever is about to publish it, and of what
// was taken out of the cache, as many as it may remember: newer ones take the place of the oldest.
//
// Thread-safe. The fingerprints of blocks are atomic, relaxed: who evicts one sees what was noted before it was
// published, since both are steps of the index. All else has a lock, a leaf. An admission takes it only if it evicts.
class EvictedMemory {
 public:
  using Clock = std::chrono::steady_clock;

  // If `remembered_max` is 0 nothing is remembered, and no memory taken: what leaves is counted only.
  struct Limits {
    std::size_t blocks = 0;  // of the pool
    std::size_t slots = 0;   // the same
    std::size_t remembered_max = 0;
  };
  explicit EvictedMemory(const Limits& limits);

  [[nodiscard]] bool is_on() const { return remembered_max_ > 0; }

  // ---- What lies where ----

  void set_block(BlockId block, Fingerprint fingerprint) noexcept;
  [[nodiscard]] Fingerprint of_block(BlockId block) const noexcept;  // 0: not known
  // The end of what the snapshot is of.
  struct SnapshotPlace {
    Fingerprint fingerprint = 0;
    std::size_t tokens = 0;
    SessionHash session = 0;
    bool is_tail = false;  // for its session alone
  };
  void set_snapshot(SnapshotId slot, const SnapshotPlace& place) noexcept;

  // ---- What has left ----

  enum class How : std::uint8_t {
    kEvicted,
    kReplaced,  // a snapshot: its session has put a later one
  };
  struct Eviction {
    std::uint64_t admission = 0;  // for whom
    Clock::time_point when{};
    How how = How::kEvicted;
  };
  void blocks_left(std::span<const BlockId> blocks, std::uint64_t admission) noexcept;
  void snapshot_left(SnapshotId slot, How how, std::uint64_t admission) noexcept;

  // A moment: how many had left by then.
  struct Moment {
    std::uint64_t blocks = 0;
    std::uint64_t snapshots = 0;
  };
  [[nodiscard]] Moment now() const noexcept;

  // The last time before `moment` that the block left, if it is remembered.
  [[nodiscard]] std::optional<Eviction> find_block(Fingerprint fingerprint, const Moment& moment) const;
  // Whether some have left before `moment` that are forgotten.
  [[nodiscard]] bool has_forgotten_blocks(const Moment& moment) const noexcept;
  [[nodiscard]] bool has_forgotten_snapshots(const Moment& moment) const noexcept;
  // visit(place, eviction) for each snapshot that left before `moment`, the last one first. They are copied a piece at
  // a time: an eviction waits for one piece at most, never for `visit`. What is forgotten meanwhile is not visited.
  template <class Visit>
  void for_each_snapshot(const Moment& moment, Visit visit) const {
    std::array<Snapshot, 64> piece{};
    std::uint64_t before = moment.snapshots;
    for (;;) {
      const std::size_t count = copy_snapshots(before, piece);
      for (const Snapshot& snapshot : std::span(piece).first(count)) visit(snapshot.place, snapshot.eviction);
      if (count < piece.size()) return;
    }
  }

  // For tests: how many are remembered, and the memory that takes, in bytes.
  [[nodiscard]] std::size_t remembered() const;
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  struct Block {
    Fingerprint fingerprint = 0;
    Eviction eviction;
    std::uint64_t earlier = kNone;  // number of the one before with this fingerprint
  };
  struct Snapshot {
    SnapshotPlace place;
    Eviction eviction;
  };
  // Numbered in the order in which they left; number n lies at n modulo remembered_max_.
  // Their room is taken at once as far as it is for no more than that: growing copies all, inside an admission.
  static constexpr std::size_t kReservedMax = std::size_t{1} << 20;
  template <class Entry>
  struct Ring {
    std::vector<Entry> entries;
    std::uint64_t left = 0;

    // Throws std::bad_alloc, and nothing has changed.
    void add(const Entry& entry, std::size_t max) {
      if (entries.size() < max) {
        entries.push_back(entry);
      } else {
        entries[left % max] = entry;
      }
      ++left;
    }
  };

  void add_block(Fingerprint fingerprint, const Eviction& eviction) CAIRN_REQUIRES(mutex_);
  // Those that left before number `before`, the last one first, as many as fit. How many; `before` is that of the
  // last.
  std::size_t copy_snapshots(std::uint64_t& before, std::span<Snapshot> piece) const;

  const std::size_t remembered_max_;
  std::vector<std::atomic<Fingerprint>> blocks_now_;
  mutable Mutex mutex_;
  std::vector<SnapshotPlace> slots_now_ CAIRN_GUARDED_BY(mutex_);
  // Ring::left, for whoever doesn't take the lock. Relaxed: a moment that is a little early or late explains no worse.
  std::atomic<std::uint64_t> blocks_left_{0};
  std::atomic<std::uint64_t> snapshots_left_{0};
  Ring<Block> blocks_ CAIRN_GUARDED_BY(mutex_);
  Ring<Snapshot> snapshots_ CAIRN_GUARDED_BY(mutex_);
  IdMap<std::uint64_t> newest_ CAIRN_GUARDED_BY(mutex_);  // number of the last block with that fingerprint
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_EVICTED_MEMORY_H_
