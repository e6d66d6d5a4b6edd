// What one lease waits for: records on their way from the store into its blocks and its slot.
#ifndef CAIRN_ENGINE_FETCH_H_
#define CAIRN_ENGINE_FETCH_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "cairn/block_pool.h"
#include "cairn/snapshot_pool.h"
#include "cairn/spill_store.h"
#include "engine/fetch_cost.h"
#include "engine/state_load.h"

namespace cairn {

struct FetchPlan {
  std::vector<TierKey> block_keys;
  std::vector<BlockId> blocks;  // to be filled, parallel to it
  std::optional<TierKey> snapshot_key{};
  SnapshotId slot = 0;    // to be filled with the snapshot, if there is one
  std::size_t depth = 1;  // records asked for at once
};

// Shared by the lease and the store's callbacks: the lease may go first. Thread-safe; its lock is a leaf.
class Fetch : public std::enable_shared_from_this<Fetch> {
 public:
  Fetch(std::shared_ptr<SpillStore> store, std::shared_ptr<BlockAllocator> blocks,
        std::shared_ptr<SnapshotPool> snapshots, FetchPlan plan, std::shared_ptr<StateLoad> load);
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  // Once. May be over when it returns. `load` says to those who wait when it is.
  void begin();

  [[nodiscard]] bool over() const;
  // The lease goes: what it gives up goes back when the last byte has come. False if it is over: then nothing is taken
  // over.
  [[nodiscard]] bool take_over(std::vector<BlockId>& blocks) noexcept;

  struct Outcome {
    std::size_t blocks = 0;         // that came, from the first on without a gap
    std::vector<Tier> block_tiers;  // of each of them
    bool snapshot = false;
    Tier snapshot_tier = Tier::kRam;
    std::vector<TierKey> missing;  // that the store does not have
    FetchBytes bytes;              // that came
    double seconds = 0;
  };
  // After it is over, once.
  [[nodiscard]] Outcome take_outcome();

 private:
  enum class Arrival : std::uint8_t { kNone, kFromRam, kFromFile, kMissing, kFailed };

  // The first item is the snapshot, if there is one: it is the largest.
  [[nodiscard]] bool is_snapshot(std::size_t item) const { return item < first_block_; }
  [[nodiscard]] TierKey key_of(std::size_t item) const;
  void go_on() noexcept;
  void got(std::size_t item, const GetResult& result) noexcept;
  void copy_snapshot(std::size_t item, Arrival how, std::shared_ptr<const SpillBuffer> buffer);
  void arrived(std::size_t item, Arrival how) noexcept;
  void end() noexcept;

  const std::shared_ptr<SpillStore> store_;
  const std::shared_ptr<BlockAllocator> allocator_;
  const std::shared_ptr<SnapshotPool> snapshots_;
  const FetchPlan plan_;
  const std::size_t first_block_;
  const std::size_t items_;
  const std::shared_ptr<StateLoad> load_;
  std::chrono::steady_clock::time_point begun_;

  mutable Mutex mutex_;
  std::vector<Arrival> arrivals_ CAIRN_GUARDED_BY(mutex_);  // by item
  std::size_t next_ CAIRN_GUARDED_BY(mutex_) = 0;           // to be asked for
  std::size_t under_way_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool asking_ CAIRN_GUARDED_BY(mutex_) = false;        // somebody is in go_on
  bool block_failed_ CAIRN_GUARDED_BY(mutex_) = false;  // the blocks after it are of no use
  bool over_ CAIRN_GUARDED_BY(mutex_) = false;
  bool taken_over_ CAIRN_GUARDED_BY(mutex_) = false;
  std::vector<BlockId> blocks_to_drop_ CAIRN_GUARDED_BY(mutex_);
  double seconds_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_FETCH_H_
