#include "tier/tiered_store.h"

#include <algorithm>
#include <future>
#include <span>
#include <utility>

#include "base/refuse.h"
#include "tier/put_rules.h"

namespace cairn {
namespace {

// Small against the buffers and queues of any store: flush never fills them.
constexpr std::size_t kFlushBatch = 64;

}  // namespace

TieredStore::TieredStore(std::shared_ptr<RamStore> front, std::shared_ptr<SpillStore> back)
    : front_(std::move(front)), back_(std::move(back)) {}

TieredStore::~TieredStore() = default;

PutResult TieredStore::put(TierKey key, const RecordLineage& lineage, SpillBufferPtr buffer, PutDone done) {
  const bool fits = check_put(*buffers(), key, lineage, buffer);
  const auto record = std::make_shared<RamRecord>(key, lineage, std::move(buffer));
  {
    const MutexLock lock(moves_);
    if (!fits || record->buffer->record().size() > front_->bytes_max()) {
      ++counted_.puts_dropped;
      return PutResult::kTooLarge;
    }
    const bool is_put = front_->put_handing_over(
        record, [this](const RamRecordPtr& victim) CAIRN_REQUIRES(moves_) { hand_over(victim); });
    if (!is_put) {
      ++counted_.puts_dropped;
      return PutResult::kTooLarge;
    }
    ++counted_.puts;
    lost_.erase(key);
  }
  if (done) done(true);
  return PutResult::kAccepted;
}

void TieredStore::hand_over(const RamRecordPtr& record) {
  if (record->is_behind.load(std::memory_order_relaxed) && back_->touch(record->key)) return;
  make_room(lost_, 1);
  if (put_behind(record, {}) == PutResult::kAccepted) return;
  back_->erase(record->key);  // an older equal: a key that is lost is gone
  lost_.insert(record->key);
}

PutResult TieredStore::put_behind(const RamRecordPtr& record, PutDone done) {
  record->is_behind.store(true, std::memory_order_relaxed);
  const PutResult result = back_->put(record->key, record->lineage, record->buffer, std::move(done));
  if (result != PutResult::kAccepted) record->is_behind.store(false, std::memory_order_relaxed);
  return result;
}

void TieredStore::get(TierKey key, GetDone done) {
  const RamRecordPtr record = front_->find(key);
  if (record == nullptr) return back_->get(key, std::move(done));
  found_in_front_.fetch_add(1, std::memory_order_relaxed);
  done({.status = GetResult::Status::kFound, .tier = Tier::kRam, .buffer = record->buffer});
}

void TieredStore::erase(TierKey key) noexcept {
  const MutexLock lock(moves_);
  lost_.erase(key);
  const bool was_in_front = front_->remove(key);
  const bool is_behind = back_->touch(key).has_value();
  back_->erase(key);  // also what is not to be found any more but not taken from its losses yet
  if (was_in_front && !is_behind) ++counted_.erased_records;
}

std::vector<TierKey> TieredStore::records_of(std::string_view adapter) const {
  const MutexLock lock(moves_);
  std::vector<TierKey> keys = front_->records_of(adapter);
  const std::vector<TierKey> behind = back_->records_of(adapter);
  keys.insert(keys.end(), behind.begin(), behind.end());
  return keys;
}

std::optional<Tier> TieredStore::touch(TierKey key) noexcept {
  if (front_->find(key) != nullptr) return Tier::kRam;
  return back_->touch(key);
}

std::vector<TierKey> TieredStore::take_lost() {
  const MutexLock lock(moves_);
  std::vector<TierKey> lost = back_->take_lost();
  lost.reserve(lost.size() + lost_.size());
  std::erase_if(lost, [&](TierKey key) CAIRN_REQUIRES(moves_) {
    const RamRecordPtr record = front_->peek(key);
    if (record != nullptr) record->is_behind.store(false, std::memory_order_relaxed);
    return record != nullptr || lost_.contains(key);
  });
  lost.insert(lost.end(), lost_.begin(), lost_.end());
  lost_.clear();
  return lost;
}

bool TieredStore::flush(std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const bool is_written = write_all(deadline);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return back_->flush(std::max(left, std::chrono::milliseconds{0})) && is_written;
}

bool TieredStore::write_all(Clock::time_point deadline) {
  const std::vector<RamRecordPtr> records = front_->all();
  bool is_written = true;
  for (std::size_t begin = 0; begin < records.size(); begin += kFlushBatch) {
    if (Clock::now() > deadline) return false;
    const auto batch = std::span(records).subspan(begin, std::min(kFlushBatch, records.size() - begin));
    is_written = write_batch({batch.begin(), batch.end()}, deadline) && is_written;
  }
  return is_written;
}

bool TieredStore::write_batch(const std::vector<RamRecordPtr>& batch, Clock::time_point deadline) {
  std::vector<std::future<bool>> ends;
  ends.reserve(batch.size());
  bool is_written = true;
  for (const RamRecordPtr& record : batch) {
    const auto end = std::make_shared<std::promise<bool>>();
    const MutexLock lock(moves_);
    if (front_->peek(record->key) != record) continue;  // erased, replaced or handed over meanwhile
    if (record->is_behind.load(std::memory_order_relaxed) && back_->touch(record->key)) continue;
    ends.push_back(end->get_future());
    if (put_behind(record, [end](bool stored) { end->set_value(stored); }) == PutResult::kAccepted) continue;
    ends.pop_back();
    is_written = false;
  }
  for (std::future<bool>& end : ends) {
    is_written = end.wait_until(deadline) == std::future_status::ready && end.get() && is_written;
  }
  return is_written;
}

SpillStats TieredStore::stats() const {
  SpillStats stats = back_->stats();
  const MutexLock lock(moves_);
  const std::uint64_t found = found_in_front_.load(std::memory_order_relaxed);
  stats.puts = counted_.puts;
  stats.puts_dropped += counted_.puts_dropped;
  stats.gets += found;
  stats.found_in_ram += found;
  stats.erased_records += counted_.erased_records;
  stats.ram_records += front_->records();
  stats.ram_bytes += front_->bytes();
  return stats;
}

std::string TieredStore::validate() const {
  std::string wrong = front_->validate();
  if (!wrong.empty()) return "in front: " + wrong;
  wrong = back_->validate();
  if (!wrong.empty()) return "behind: " + wrong;
  const MutexLock lock(moves_);
  for (const TierKey key : lost_) {
    if (front_->peek(key) != nullptr) return "key " + std::to_string(key) + " is in front and lost";
  }
  return {};
}

std::shared_ptr<SpillStore> make_tiered_store(std::shared_ptr<SpillStore> front, std::shared_ptr<SpillStore> back) {
  auto ram = std::dynamic_pointer_cast<RamStore>(std::move(front));
  if (ram == nullptr) refuse("make_tiered_store: front", "is not a store made by make_ram_store");
  if (back == nullptr) refuse("make_tiered_store: back", "is null");
  if (ram->buffers() != back->buffers()) refuse("make_tiered_store: back", "has other buffers than front");
  return std::make_shared<TieredStore>(std::move(ram), std::move(back));
}

}  // namespace cairn
