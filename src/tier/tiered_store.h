// A store in RAM before another one.
#ifndef CAIRN_TIER_TIERED_STORE_H_
#define CAIRN_TIER_TIERED_STORE_H_

#include <cairn/spill_store.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/containers.h"
#include "base/mutex.h"
#include "tier/ram_store.h"

namespace cairn {

// What a record's key leads to, front before back, is one record. A victim of the front is put to the back before the
// front gives it up, so whoever looks at the front and then at the back finds it.
//
// Locks: moves_ is held while records move between the stores, so that an erase or a put of the same key comes wholly
// before or after; the locks of both stores are taken under it, one at a time. get and touch don't take it. No
// callback of the caller runs under it: those of puts to the back are this class's own.
class TieredStore final : public SpillStore {
 public:
  TieredStore(std::shared_ptr<RamStore> front, std::shared_ptr<SpillStore> back);
  ~TieredStore() override;

  [[nodiscard]] const std::shared_ptr<SpillBuffers>& buffers() const noexcept override { return front_->buffers(); }
  [[nodiscard]] TierKey first_key() const noexcept override { return back_->first_key(); }
  [[nodiscard]] PutResult put(TierKey key, const RecordLineage& lineage, SpillBufferPtr buffer, PutDone done) override;
  void get(TierKey key, GetDone done) override;
  void erase(TierKey key) noexcept override;
  [[nodiscard]] std::vector<TierKey> records_of(std::string_view adapter) const override;
  [[nodiscard]] std::optional<Tier> touch(TierKey key) noexcept override;
  [[nodiscard]] std::vector<TierKey> take_lost() override;
  [[nodiscard]] bool flush(std::chrono::milliseconds timeout) override;
  [[nodiscard]] std::vector<Recovered> take_recovered() override { return back_->take_recovered(); }
  [[nodiscard]] SpillStats stats() const override;
  [[nodiscard]] std::string validate() const override;

 private:
  using Clock = std::chrono::steady_clock;

  void hand_over(const RamRecordPtr& record) CAIRN_REQUIRES(moves_);
  [[nodiscard]] PutResult put_behind(const RamRecordPtr& record, PutDone done) CAIRN_REQUIRES(moves_);
  [[nodiscard]] bool write_all(Clock::time_point deadline);
  [[nodiscard]] bool write_batch(const std::vector<RamRecordPtr>& batch, Clock::time_point deadline);

  const std::shared_ptr<RamStore> front_;
  const std::shared_ptr<SpillStore> back_;

  mutable Mutex moves_;
  IdSet lost_ CAIRN_GUARDED_BY(moves_);  // by this class; the back has its own
  SpillStats counted_ CAIRN_GUARDED_BY(moves_);
  std::atomic<std::uint64_t> found_in_front_{0};  // relaxed: a count
};

}  // namespace cairn

#endif  // CAIRN_TIER_TIERED_STORE_H_
