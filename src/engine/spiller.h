// Takes the bytes of blocks and snapshots out of memory and into the store, behind whoever evicts.
//
// A record is under way from when its key is known to the index (and so can be found) to when the store has taken it.
// Until then the store has no such record, which a fetch takes for a miss. Erasing one that is under way keeps it from
// coming after the erasure: a clear would not be one else.
#ifndef CAIRN_ENGINE_SPILLER_H_
#define CAIRN_ENGINE_SPILLER_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/containers.h"
#include "base/mutex.h"
#include "cairn/block_pool.h"
#include "cairn/snapshot_pool.h"
#include "cairn/spill_store.h"
#include "engine/count.h"

namespace cairn {

// Thread-safe; its lock is a leaf. Shared with the copies under way; knows nothing of the manager, which may go first.
class Spiller : public std::enable_shared_from_this<Spiller> {
 public:
  explicit Spiller(std::shared_ptr<SpillStore> store) : store_(std::move(store)) {}
  Spiller(const Spiller&) = delete;
  Spiller& operator=(const Spiller&) = delete;

  // Takes over one reference on the block: dropped when its bytes are in the store's hands, or can't be. Then the key
  // is lost.
  void spill_block(TierKey key, RecordLineage lineage, BlockId block, std::shared_ptr<BlockAllocator> blocks) noexcept;
  // Takes over the slot, which is resident: freed in the same way. False if the key is lost already.
  bool spill_snapshot(TierKey key, RecordLineage lineage, SnapshotId slot,
                      const std::shared_ptr<SnapshotPool>& snapshots) noexcept;

  // No get finds them from now on, nor after a restart once the store is flushed.
  void erase(std::span<const TierKey> keys) noexcept;
  // The keys whose records are no more: that the store has lost, or never took.
  [[nodiscard]] std::vector<TierKey> take_lost();
  // Until nothing is under way, or `until`: then false.
  [[nodiscard]] bool wait(std::chrono::steady_clock::time_point until);

  struct Counts {
    Count blocks, snapshots, bytes, declined;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Record;

  // Throws std::bad_alloc. Null if the store has no buffer.
  [[nodiscard]] std::shared_ptr<Record> begin(TierKey key, RecordLineage lineage);
  // The bytes are in the buffer; or, if that failed, not.
  void copied(const Record& record, bool whole) noexcept;
  void decline(TierKey key) noexcept;
  void lose(TierKey key) noexcept CAIRN_REQUIRES(mutex_);

  const std::shared_ptr<SpillStore> store_;
  Counts counts_;
  mutable Mutex mutex_;
  std::condition_variable_any none_under_way_;
  IdMap<bool> under_way_ CAIRN_GUARDED_BY(mutex_);  // whether it was erased meanwhile
  std::vector<TierKey> lost_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_SPILLER_H_
