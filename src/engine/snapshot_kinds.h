// What each resident snapshot was taken for: so that a manager knows which reason pays.
#ifndef CAIRN_ENGINE_SNAPSHOT_KINDS_H_
#define CAIRN_ENGINE_SNAPSHOT_KINDS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/cache_manager.h"
#include "cairn/lease.h"
#include "engine/count.h"

namespace cairn {

// CaptureKind, and one more for what a store gave back: its record does not say.
enum class SnapshotOrigin : std::uint8_t {
  kTail,
  kTailSibling,
  kBranchPoint,
  kSharedTail,
  kCheckpoint,
  kLastToken,
  kStore,
};
inline constexpr std::size_t kSnapshotOrigins = 7;

[[nodiscard]] constexpr SnapshotOrigin origin_of(CaptureKind kind) {
  return static_cast<SnapshotOrigin>(kind);
}
static_assert(origin_of(CaptureKind::kTailSibling) == SnapshotOrigin::kTailSibling);
static_assert(origin_of(CaptureKind::kSharedTail) == SnapshotOrigin::kSharedTail);
static_assert(origin_of(CaptureKind::kLastToken) == SnapshotOrigin::kLastToken);

// Thread-safe without a lock. Who fills a slot says what for, before the index has the snapshot; who has pinned one
// asks. The index publishes in between, so the words are relaxed.
class SnapshotKinds {
 public:
  explicit SnapshotKinds(std::size_t slots) : origins_(slots) {}

  void set(SnapshotId slot, SnapshotOrigin origin) noexcept {
    origins_[slot].store(origin, std::memory_order_relaxed);
  }
  [[nodiscard]] SnapshotOrigin get(SnapshotId slot) const noexcept {
    return origins_[slot].load(std::memory_order_relaxed);
  }

  void published(SnapshotOrigin origin) noexcept { counts_[index(origin)].captures.add(1); }
  void used(SnapshotOrigin origin, std::size_t tokens) noexcept {
    counts_[index(origin)].uses.add(1);
    counts_[index(origin)].reused_tokens.add(tokens);
  }

  [[nodiscard]] CapturesByKind stats(std::size_t slot_bytes) const noexcept {
    const auto of = [&](SnapshotOrigin origin) {
      const Counts& counts = counts_[index(origin)];
      const std::uint64_t captures = counts.captures.get();
      return CaptureStats{.captures = captures,
                          .bytes = captures * slot_bytes,
                          .uses = counts.uses.get(),
                          .reused_tokens = counts.reused_tokens.get()};
    };
    return {.tails = of(SnapshotOrigin::kTail),
            .siblings = of(SnapshotOrigin::kTailSibling),
            .branch_points = of(SnapshotOrigin::kBranchPoint),
            .shared_tails = of(SnapshotOrigin::kSharedTail),
            .checkpoints = of(SnapshotOrigin::kCheckpoint),
            .last_tokens = of(SnapshotOrigin::kLastToken),
            .from_store = of(SnapshotOrigin::kStore)};
  }

 private:
  struct Counts {
    Count captures, uses, reused_tokens;
  };

  [[nodiscard]] static constexpr std::size_t index(SnapshotOrigin origin) { return static_cast<std::size_t>(origin); }

  std::vector<std::atomic<SnapshotOrigin>> origins_;  // by slot
  std::array<Counts, kSnapshotOrigins> counts_;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_SNAPSHOT_KINDS_H_
