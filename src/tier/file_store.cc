// What callers do: look, enqueue, wake the thread.
#include "tier/file_store.h"

#include <algorithm>

#include "base/refuse.h"
#include "tier/put_rules.h"

namespace cairn {
namespace {

constexpr std::chrono::milliseconds kStopTimeout{5'000};
// The checksums of smaller payloads are computed by those who put them, a tenth of a millisecond at most: with many
// small records the thread would have no time for anything else. Larger ones would hold the callers up; the thread
// computes theirs while the disk is busy with those before.
constexpr std::size_t kCallersChecksumBytesMax = std::size_t{1} << 20;

}  // namespace

FileStore::~FileStore() {
  if (thread_.joinable()) {
    auto last = std::make_shared<Flush>();
    {
      const MutexLock lock(mutex_);
      is_stopping_ = true;
      stop_at_ = Clock::now() + kStopTimeout;
      last->ticket = last_ticket_;
      flushes_.push_back(std::move(last));
      io_->wake();  // not later: the thread may be over at once, and its I/O with it
    }
    thread_.join();
  }
  tickets_.clear();
  lru_.clear();
}

TierKey FileStore::first_key() const noexcept {
  return first_of_incarnation(directory_->incarnation());
}

FileStore::Entry* FileStore::find(TierKey key) noexcept {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.get();
}

bool FileStore::is_visible(const Entry& entry) noexcept {
  return entry.has_slot || entry.queued != nullptr || (entry.writing != nullptr && !entry.writing->is_erased);
}

SpillBufferPtr FileStore::buffer_under_way(const Entry& entry) noexcept {
  if (entry.queued != nullptr) return entry.queued->buffer;
  if (entry.writing != nullptr && !entry.writing->is_erased) return entry.writing->buffer;
  return nullptr;
}

void FileStore::use(Entry& entry) noexcept {
  lru_.splice(lru_.end(), lru_, lru_.iterator_to(entry));
}

void FileStore::begin_ticket(Ticket& ticket) noexcept {
  ticket.number = ++last_ticket_;
  tickets_.push_back(ticket);
}

std::uint64_t FileStore::held_bytes() const noexcept {
  return slabs_[0].held_bytes() + slabs_[1].held_bytes();
}

void FileStore::wake() {
  bool is_asleep = false;
  {
    const MutexLock lock(mutex_);
    is_asleep = std::exchange(is_asleep_, false);
  }
  if (is_asleep) io_->wake();
}

// Finds or makes it, and makes room for what losing it will need.
FileStore::Entry& FileStore::entry_for(TierKey key, std::string_view adapter) {
  make_room(lost_, entries_.size() + 1);
  make_room(doomed_, entries_.size() + 1);
  if (Entry* entry = find(key)) return *entry;
  make_room(entries_, 1);
  auto entry = std::make_unique<Entry>();
  entry->key = key;
  entry->adapter_hash = hash_name(adapter);
  lru_.push_back(*entry);
  return *entries_.emplace(key, std::move(entry)).first->second;
}

std::optional<PutResult> FileStore::refusal(std::size_t record_bytes, bool fits) {
  if (!fits || record_bytes > slab_bytes_max_) return PutResult::kTooLarge;
  if (counted_.degraded && (is_probing_ || Clock::now() < retry_at_)) return PutResult::kDegraded;
  if (pending_puts_ + pending_gets_ >= options_.pending_max) return PutResult::kQueueFull;
  return std::nullopt;
}

PutResult FileStore::put(TierKey key, const RecordLineage& lineage, SpillBufferPtr buffer, PutDone done) {
  const bool fits = check_put(*options_.buffers, key, lineage, buffer);
  if (incarnation_of(key) > directory_->incarnation()) {
    refuse("put: key", std::to_string(key) + " is not one of this run or of an earlier one");
  }
  const std::size_t record_bytes = buffer->record().size();
  auto put = std::make_shared<Put>();
  put->key = key;
  put->lineage = lineage;
  put->buffer = std::move(buffer);
  put->done.push_back(std::move(done));
  put->accepted = Clock::now();
  put->wipe = std::make_unique<Wipe>();
  if (record_bytes <= kCallersChecksumBytesMax) {
    put->checksum = checksum_payload(options_.buffers->layout(), put->buffer->record());
  }
  {
    const MutexLock lock(mutex_);
    if (const std::optional<PutResult> refused = refusal(record_bytes, fits)) {
      ++counted_.puts_dropped;
      return *refused;
    }
    Entry& entry = entry_for(key, put->lineage.adapter);
    try {
      enqueue(entry, std::move(put));
    } catch (...) {
      forget_if_empty(entry);
      throw;
    }
  }
  wake();
  return PutResult::kAccepted;
}

void FileStore::enqueue(Entry& entry, std::shared_ptr<Put> put) {
  if (entry.queued != nullptr) {
    Put& waiting = *entry.queued;  // which was not begun yet: the later one takes its place
    waiting.done.push_back(std::move(put->done.front()));
    waiting.lineage = std::move(put->lineage);
    waiting.buffer = std::move(put->buffer);
    waiting.checksum = put->checksum;
  } else {
    puts_.push_back(put);
    begin_ticket(put->ticket);
    put->is_probe = counted_.degraded;
    is_probing_ = is_probing_ || counted_.degraded;
    entry.queued = std::move(put);
  }
  if (entry.read != nullptr && !entry.read->is_started) entry.read->served_by = entry.queued->buffer;
  entry.read = nullptr;  // further gets have the new record
  lost_.erase(entry.key);
  use(entry);
  ++counted_.puts;
  ++pending_puts_;
}

void FileStore::get(TierKey key, GetDone done) {
  GetResult result;
  {
    const MutexLock lock(mutex_);
    ++counted_.gets;
    Entry* const entry = find(key);
    if (entry == nullptr || !is_visible(*entry)) {
      ++counted_.misses;
      result.status = GetResult::Status::kMissing;
    } else if (SpillBufferPtr buffer = buffer_under_way(*entry)) {
      use(*entry);
      ++counted_.found_in_ram;
      result = {.status = GetResult::Status::kFound, .tier = Tier::kRam, .buffer = std::move(buffer)};
    } else if (pending_puts_ + pending_gets_ >= options_.pending_max) {
      use(*entry);
      ++counted_.failed_gets;
      result.status = GetResult::Status::kQueueFull;
    } else {
      use(*entry);
      if (entry->read != nullptr) {
        entry->read->getters.push_back(std::move(done));
        ++pending_gets_;
        return;
      }
      auto read = std::make_shared<Read>();
      read->key = key;
      read->slab = slab_of(entry->kind);
      read->slot = entry->slot;
      read->generation = entry->generation;
      read->kind = entry->kind;
      read->deadline = Clock::now() + options_.io_timeout;
      read->getters.push_back(std::move(done));
      reads_.push_back(read);
      timed_reads_.push_back(read);
      entry->read = std::move(read);
      ++pending_gets_;
      done = nullptr;
    }
  }
  if (done != nullptr) return done(std::move(result));
  wake();
}

void FileStore::erase(TierKey key) noexcept {
  {
    const MutexLock lock(mutex_);
    lost_.erase(key);
    Entry* const entry = find(key);
    if (entry == nullptr || !is_visible(*entry)) return;
    ++counted_.erased_records;
    drop(*entry, false);
  }
  wake();
}

std::vector<TierKey> FileStore::records_of(std::string_view adapter) const {
  const MutexLock lock(mutex_);
  std::vector<TierKey> keys;
  for (const Entry& entry : lru_) {
    if (entry.adapter_hash == hash_name(adapter)) keys.push_back(entry.key);
  }
  return keys;
}

std::optional<Tier> FileStore::touch(TierKey key) noexcept {
  const MutexLock lock(mutex_);
  Entry* const entry = find(key);
  if (entry == nullptr || !is_visible(*entry)) return std::nullopt;
  use(*entry);
  return buffer_under_way(*entry) != nullptr ? Tier::kRam : Tier::kFile;
}

void FileStore::drop(Entry& entry, bool is_lost) noexcept {
  if (is_lost) lost_.insert(entry.key);
  if (entry.read != nullptr) entry.read->is_gone = true;
  entry.read = nullptr;
  if (entry.queued != nullptr) entry.queued->is_erased = true;  // the thread ends it
  entry.queued = nullptr;
  if (entry.writing != nullptr) entry.writing->is_erased = true;
  if (entry.has_slot) give_slot_up(entry);
  forget_if_empty(entry);
}

void FileStore::give_slot_up(Entry& entry) noexcept {
  doom(std::move(entry.wipe));
  entry.has_slot = false;
  --resting_;
}

void FileStore::doom(std::unique_ptr<Wipe> wipe) noexcept {
  slab(wipe->slab).wipe(wipe->slot);
  begin_ticket(wipe->ticket);
  doomed_bytes_ += slab(wipe->slab).record_bytes();
  doomed_.push_back(std::move(wipe));
}

void FileStore::forget_if_empty(Entry& entry) noexcept {
  if (is_visible(entry) || entry.writing != nullptr || entry.parked != nullptr) return;
  lru_.erase(lru_.iterator_to(entry));
  entries_.erase(entry.key);
}

std::vector<TierKey> FileStore::take_lost() {
  const MutexLock lock(mutex_);
  std::vector<TierKey> lost(lost_.begin(), lost_.end());
  lost_.clear();
  return lost;
}

bool FileStore::flush(std::chrono::milliseconds timeout) {
  auto flush = std::make_shared<Flush>();
  std::future<bool> end = flush->end.get_future();
  {
    const MutexLock lock(mutex_);
    flush->ticket = last_ticket_;
    flush->failed_writes = failed_writes_;
    flushes_.push_back(std::move(flush));
  }
  wake();
  return end.wait_for(timeout) == std::future_status::ready && end.get();
}

std::vector<SpillStore::Recovered> FileStore::take_recovered() {
  const MutexLock lock(mutex_);
  return std::exchange(recovered_, {});
}

SpillStats FileStore::stats() const {
  const MutexLock lock(mutex_);
  SpillStats stats = counted_;
  stats.file_records = resting_;
  stats.file_bytes = static_cast<std::size_t>(held_bytes());
  stats.pending = pending_puts_ + pending_gets_;
  return stats;
}

std::string FileStore::validate() const {
  const MutexLock lock(mutex_);
  for (const Slab& slab : slabs_) {
    if (std::string wrong = slab.validate(); !wrong.empty()) return wrong;
  }
  std::uint64_t failed_bytes = 0;  // found at the start, or held because the device does not give it back
  for (const std::unique_ptr<Wipe>& wipe : failed_wipes_) failed_bytes += slab(wipe->slab).record_bytes();
  if (held_bytes() - failed_bytes > slab_bytes_max_) return std::to_string(held_bytes()) + " bytes are over the limit";
  if (lru_.size() != entries_.size()) return "the order of use has other entries than there are";
  if (counted_.gets !=
      counted_.found_in_ram + counted_.found_in_file + counted_.misses + counted_.failed_gets + pending_gets_) {
    return "gets don't add up";
  }
  return validate_entries();
}

std::string FileStore::validate_entries() const {
  std::array<IdSet, kSlabs> taken;
  for (const auto& [key, entry] : entries_) {
    const std::string name = "key " + std::to_string(key);
    if (entry->key != key) return name + " leads to the entry of another one";
    if (!is_visible(*entry) && entry->writing == nullptr && entry->parked == nullptr) return name + " is empty";
    if (is_visible(*entry) && lost_.contains(key)) return name + " is here and lost";
    if (!entry->has_slot) continue;
    const Slab& of_record = slab(slab_of(entry->kind));
    if (entry->slot >= of_record.slots() || of_record.state(entry->slot) != Slab::State::kTaken) {
      return name + " rests in a slot that is not taken";
    }
    if (entry->wipe == nullptr || entry->wipe->slot != entry->slot) return name + " can't be wiped";
    if (!taken[static_cast<std::size_t>(slab_of(entry->kind))].insert(entry->slot).second) {
      return name + " shares its slot";
    }
  }
  std::size_t taken_slots = 0;
  std::size_t wiped_slots = 0;
  for (const Slab& of_size : slabs_) {
    for (std::size_t slot = 0; slot < of_size.slots(); ++slot) {
      const Slab::State state = of_size.state(static_cast<std::uint32_t>(slot));
      taken_slots += state == Slab::State::kTaken ? 1 : 0;
      wiped_slots += state == Slab::State::kWiped ? 1 : 0;
    }
  }
  if (taken[0].size() + taken[1].size() != resting_) return "records at rest are miscounted";
  if (taken_slots != taken[0].size() + taken[1].size() + writes_under_way_) return "a taken slot belongs to nobody";
  if (wiped_slots != doomed_.size() + failed_wipes_.size() + wipes_under_way_ + growing_slots_) {
    return "a wiped slot is not going to be wiped";
  }
  return {};
}

}  // namespace cairn
