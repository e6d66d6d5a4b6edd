// Takes the bytes of blocks and snapshots out of memory and into the store, behind whoever evicts.
//
// A record is under way from when its key is announced to when the store has taken it. Keys are announced before
// anybody else can see that the index counts on their records (ManagerCore::leaving_). Until the store has the record,
// a fetch takes that for a miss. Erasing one that is under way keeps it from coming after the erasure: a clear would
// not be one else, and what it cleared would be found after a restart.
#ifndef CAIRN_ENGINE_SPILLER_H_
#define CAIRN_ENGINE_SPILLER_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
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

  // Room for announcing so many keys. Throws std::bad_alloc.
  void reserve(std::size_t count);
  // The record is to come: spill or decline it. False if an earlier one of that key is under way still, which is given
  // up then: neither will be there. There is room (reserve).
  [[nodiscard]] bool announce(TierKey key) noexcept;

  // The rest for keys that have been announced. Takes over one reference on the block: dropped when its bytes are in
  // the store's hands, or can't be. Then the key is lost.
  void spill_block(TierKey key, RecordLineage lineage, BlockId block,
                   const std::shared_ptr<BlockAllocator>& blocks) noexcept;
  // Takes over the slot, which is resident: freed in the same way. False if the key is lost already.
  bool spill_snapshot(TierKey key, RecordLineage lineage, SnapshotId slot,
                      const std::shared_ptr<SnapshotPool>& snapshots) noexcept;
  // There will be no record, and whoever says so tells the index.
  void decline(TierKey key) noexcept;

  // No get finds them from now on, nor after a restart once the store is flushed.
  void erase(std::span<const TierKey> keys) noexcept;
  // The same for all records of an adapter, whatever its generation and salt. Throws std::bad_alloc.
  void erase_adapter(std::string_view adapter);
  // The keys whose records are no more: that the store has lost, or never took. Throws std::bad_alloc; then some may
  // never be named.
  [[nodiscard]] std::vector<TierKey> take_lost();
  // Announced, and not at rest yet.
  [[nodiscard]] bool is_under_way(TierKey key) const noexcept;
  // Until nothing is under way, or `until`: then false.
  [[nodiscard]] bool wait(std::chrono::steady_clock::time_point until);
  // Until no copy is under way, or `until`: then false.
  [[nodiscard]] bool wait_for_copies(std::chrono::steady_clock::time_point until);
  // Now: whose memory will be free when their bytes are out.
  [[nodiscard]] std::size_t blocks_leaving() const noexcept { return blocks_leaving_.get(); }
  [[nodiscard]] std::size_t slots_leaving() const noexcept { return slots_leaving_.get(); }

  struct Counts {
    Count blocks, snapshots, bytes, declined;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Record;

  // Throws std::bad_alloc. Null if the store has no buffer.
  [[nodiscard]] std::shared_ptr<Record> begin(TierKey key, RecordLineage lineage) const;
  // The bytes are in the buffer. Whether the store has them now.
  [[nodiscard]] bool hand_over(const Record& record) noexcept;
  [[nodiscard]] bool is_erased(TierKey key) const noexcept;
  // It is under way no more.
  void end(TierKey key, bool stored) noexcept;
  template <class Over>
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point until, Over over);

  const std::shared_ptr<SpillStore> store_;
  Counts counts_;
  Count blocks_leaving_;
  Count slots_leaving_;
  mutable Mutex mutex_;
  std::condition_variable_any one_over_;
  IdMap<bool> under_way_ CAIRN_GUARDED_BY(mutex_);      // whether it was erased meanwhile
  std::vector<TierKey> lost_ CAIRN_GUARDED_BY(mutex_);  // has room for all that is under way
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_SPILLER_H_
