#include "tier/ram_store.h"

#include <algorithm>
#include <utility>

#include "base/refuse.h"
#include "tier/put_rules.h"

namespace cairn {
namespace {

RamStoreOptions checked(RamStoreOptions options) {
  if (options.buffers == nullptr) refuse("RamStoreOptions::buffers", "is null");
  if (options.bytes_max == 0) refuse("RamStoreOptions::bytes_max", "must not be 0");
  return options;
}

}  // namespace

RamStore::RamStore(RamStoreOptions options) : options_(checked(std::move(options))) {}

RamStore::~RamStore() {
  lru_.clear();
}

void RamStore::insert(const RamRecordPtr& record) {
  make_room(records_, 1);
  const RamRecordPtr old = take_out(record->key);
  records_.emplace(record->key, record);
  lru_.push_back(*record);
  bytes_ += bytes_of(*record);
  lost_.erase(record->key);
}

RamRecordPtr RamStore::take_out(TierKey key) noexcept {
  const auto found = records_.find(key);
  if (found == records_.end()) return nullptr;
  RamRecordPtr record = std::move(found->second);
  records_.erase(found);
  lru_.erase(lru_.iterator_to(*record));
  bytes_ -= bytes_of(*record);
  return record;
}

RamRecordPtr RamStore::use(TierKey key) noexcept {
  const auto found = records_.find(key);
  if (found == records_.end()) return nullptr;
  lru_.splice(lru_.end(), lru_, lru_.iterator_to(*found->second));
  return found->second;
}

PutResult RamStore::put(TierKey key, const RecordLineage& lineage, SpillBufferPtr buffer, PutDone done) {
  const bool fits = check_put(*options_.buffers, key, lineage, buffer) && buffer->record().size() <= bytes_max();
  if (!fits) {
    const MutexLock lock(mutex_);
    ++counted_.puts_dropped;
    return PutResult::kTooLarge;
  }
  const auto record = std::make_shared<RamRecord>(key, lineage, std::move(buffer));
  {
    const MutexLock lock(mutex_);
    make_room(records_, 1);
    ++counted_.puts;
    static_cast<void>(take_out(key));
    while (bytes_ + bytes_of(*record) > bytes_max()) {
      make_room(lost_, 1);
      lost_.insert(lru_.front().key);
      static_cast<void>(take_out(lru_.front().key));
      ++counted_.evicted_records;
    }
    insert(record);
  }
  if (done) done(true);
  return PutResult::kAccepted;
}

void RamStore::get(TierKey key, GetDone done) {
  GetResult result;
  {
    const MutexLock lock(mutex_);
    ++counted_.gets;
    const RamRecordPtr record = use(key);
    if (record != nullptr) {
      ++counted_.found_in_ram;
      result = {.status = GetResult::Status::kFound, .tier = Tier::kRam, .buffer = record->buffer};
    } else {
      ++counted_.misses;
    }
  }
  done(std::move(result));
}

void RamStore::erase(TierKey key) noexcept {
  const MutexLock lock(mutex_);
  lost_.erase(key);
  if (take_out(key) != nullptr) ++counted_.erased_records;
}

std::vector<TierKey> RamStore::records_of(std::string_view adapter) const {
  const MutexLock lock(mutex_);
  std::vector<TierKey> keys;
  for (const RamRecord& record : lru_) {
    if (record.lineage.adapter == adapter) keys.push_back(record.key);
  }
  return keys;
}

std::optional<Tier> RamStore::touch(TierKey key) noexcept {
  const MutexLock lock(mutex_);
  if (use(key) == nullptr) return std::nullopt;
  return Tier::kRam;
}

std::vector<TierKey> RamStore::take_lost() {
  const MutexLock lock(mutex_);
  std::vector<TierKey> lost(lost_.begin(), lost_.end());
  lost_.clear();
  return lost;
}

bool RamStore::flush(std::chrono::milliseconds /*timeout*/) {
  return true;
}

SpillStats RamStore::stats() const {
  const MutexLock lock(mutex_);
  SpillStats stats = counted_;
  stats.ram_records = records_.size();
  stats.ram_bytes = bytes_;
  return stats;
}

std::string RamStore::validate() const {
  const MutexLock lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [key, record] : records_) {
    if (record->key != key) return "key " + std::to_string(key) + " leads to a record of another one";
    if (!record->is_linked()) return "key " + std::to_string(key) + " is in no order of use";
    if (lost_.contains(key)) return "key " + std::to_string(key) + " is here and lost";
    bytes += bytes_of(*record);
  }
  if (lru_.size() != records_.size()) return "the order of use has other records than there are";
  if (bytes != bytes_) return "bytes are " + std::to_string(bytes) + ", not " + std::to_string(bytes_);
  if (bytes > bytes_max()) return std::to_string(bytes) + " bytes are over the limit";
  if (counted_.gets != counted_.found_in_ram + counted_.misses) return "gets don't add up";
  return {};
}

bool RamStore::put_handing_over(const RamRecordPtr& record, const HandOver& hand_over) {
  const std::size_t wanted = bytes_of(*record);
  if (wanted > bytes_max()) return false;
  while (true) {
    RamRecordPtr victim;
    {
      const MutexLock lock(mutex_);
      const auto old = records_.find(record->key);
      const std::size_t replaced = old == records_.end() ? 0 : bytes_of(*old->second);
      if (bytes_ - replaced + wanted <= bytes_max()) {
        insert(record);
        return true;
      }
      const auto other = std::find_if(lru_.begin(), lru_.end(),
                                      [&](const RamRecord& candidate) { return candidate.key != record->key; });
      victim = records_.find(other->key)->second;  // there is one: the record alone would fit
    }
    hand_over(victim);
    const MutexLock lock(mutex_);
    const auto found = records_.find(victim->key);
    if (found != records_.end() && found->second == victim) static_cast<void>(take_out(victim->key));
  }
}

RamRecordPtr RamStore::find(TierKey key) noexcept {
  const MutexLock lock(mutex_);
  return use(key);
}

RamRecordPtr RamStore::peek(TierKey key) const noexcept {
  const MutexLock lock(mutex_);
  const auto found = records_.find(key);
  return found == records_.end() ? nullptr : found->second;
}

bool RamStore::remove(TierKey key) noexcept {
  const MutexLock lock(mutex_);
  return take_out(key) != nullptr;
}

std::vector<RamRecordPtr> RamStore::all() const {
  const MutexLock lock(mutex_);
  std::vector<RamRecordPtr> records;
  records.reserve(records_.size());
  for (const RamRecord& record : lru_) records.push_back(records_.find(record.key)->second);
  return records;
}

std::size_t RamStore::records() const noexcept {
  const MutexLock lock(mutex_);
  return records_.size();
}

std::size_t RamStore::bytes() const noexcept {
  const MutexLock lock(mutex_);
  return bytes_;
}

std::shared_ptr<SpillStore> make_ram_store(RamStoreOptions options) {
  return std::make_shared<RamStore>(std::move(options));
}

}  // namespace cairn
