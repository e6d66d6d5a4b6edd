// The store in RAM: a map of buffers, least recently used first.
#ifndef CAIRN_TIER_RAM_STORE_H_
#define CAIRN_TIER_RAM_STORE_H_

#include <cairn/spill_store.h>

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/containers.h"
#include "base/mutex.h"

namespace cairn {

// A record that rests in RAM. Immutable but for its place in the list and the mark.
struct RamRecord : boost::intrusive::list_base_hook<> {
  RamRecord(TierKey record_key, RecordLineage record_lineage, SpillBufferPtr record_buffer)
      : key(record_key), lineage(std::move(record_lineage)), buffer(std::move(record_buffer)) {}

  const TierKey key;
  const RecordLineage lineage;
  const SpillBufferPtr buffer;
  // Handed to the store behind, which may have lost it since. Relaxed: it saves work, no more; whoever relies on it
  // asks that store.
  std::atomic<bool> is_behind{false};
};
using RamRecordPtr = std::shared_ptr<RamRecord>;

// Beside the interface, what a store in front of another one needs. The buffers' lock may be taken under this one's;
// nothing else is.
class RamStore final : public SpillStore {
 public:
  explicit RamStore(RamStoreOptions options);
  ~RamStore() override;

  [[nodiscard]] const std::shared_ptr<SpillBuffers>& buffers() const noexcept override { return options_.buffers; }
  [[nodiscard]] TierKey first_key() const noexcept override { return 1; }
  [[nodiscard]] PutResult put(TierKey key, const RecordLineage& lineage, SpillBufferPtr buffer, PutDone done) override;
  void get(TierKey key, GetDone done) override;
  void erase(TierKey key) noexcept override;
  [[nodiscard]] std::vector<TierKey> records_of(std::string_view adapter) const override;
  [[nodiscard]] std::optional<Tier> touch(TierKey key) noexcept override;
  [[nodiscard]] std::vector<TierKey> take_lost() override;
  [[nodiscard]] bool flush(std::chrono::milliseconds timeout) override;
  [[nodiscard]] std::vector<Recovered> take_recovered() override { return {}; }
  [[nodiscard]] SpillStats stats() const override;
  [[nodiscard]] std::string validate() const override;

  // ---- For a store in front of another: counts nothing but what is here now ----

  // Called with no lock held, while the record can still be found.
  using HandOver = std::function<void(const RamRecordPtr&)>;
  // Puts the record, each victim handed over before it goes. False if it can't fit. One call at a time.
  [[nodiscard]] bool put_handing_over(const RamRecordPtr& record, const HandOver& hand_over);
  // Counts as a use. Null if there is none.
  [[nodiscard]] RamRecordPtr find(TierKey key) noexcept;
  [[nodiscard]] RamRecordPtr peek(TierKey key) const noexcept;  // the same, but no use
  // False if there is none.
  bool remove(TierKey key) noexcept;
  // Least recently used first. Throws std::bad_alloc.
  [[nodiscard]] std::vector<RamRecordPtr> all() const;
  [[nodiscard]] std::size_t records() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::size_t bytes_max() const noexcept { return options_.bytes_max; }

 private:
  using Lru = boost::intrusive::list<RamRecord>;  // least recently used first

  static std::size_t bytes_of(const RamRecord& record) noexcept { return record.buffer->record().size(); }
  void insert(const RamRecordPtr& record) CAIRN_REQUIRES(mutex_);
  RamRecordPtr take_out(TierKey key) noexcept CAIRN_REQUIRES(mutex_);
  [[nodiscard]] RamRecordPtr use(TierKey key) noexcept CAIRN_REQUIRES(mutex_);

  const RamStoreOptions options_;

  mutable Mutex mutex_;
  IdMap<RamRecordPtr> records_ CAIRN_GUARDED_BY(mutex_);
  Lru lru_ CAIRN_GUARDED_BY(mutex_);
  std::size_t bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  IdSet lost_ CAIRN_GUARDED_BY(mutex_);
  SpillStats counted_ CAIRN_GUARDED_BY(mutex_);  // what is "now" stays 0
};

}  // namespace cairn

#endif  // CAIRN_TIER_RAM_STORE_H_
