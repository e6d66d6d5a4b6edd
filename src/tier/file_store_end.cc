// The store's thread: what ends, well or not.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/check.h"
#include "tier/file_store.h"

namespace cairn {
namespace {

constexpr std::uint32_t kFailedReadsMax = 2;

}  // namespace

void FileStore::complete(const IoResult& result) {
  if (result.token >= jobs_.size() || jobs_[result.token] == nullptr) return;  // of no job
  Job& job = *jobs_[result.token];
  int error = result.error;
  if (error == 0 && job.buffer != nullptr) {
    const std::span<std::byte> record = job.buffer->record();
    const std::size_t before = job.done_bytes;
    job.done_bytes = std::min(before + result.bytes, record.size());
    const std::size_t whole_pages = job.done_bytes / SpillBuffer::kAlignment * SpillBuffer::kAlignment;
    if (job.done_bytes < record.size() && !job.is_expired) {
      if (whole_pages > before) {
        job.done_bytes = whole_pages;
        return submit_rest(result.token);
      }
      // The end of the file; or a device that takes nothing.
      if (job.kind == IoRequest::Kind::kWrite) error = EIO;
      if (job.kind == IoRequest::Kind::kRead) {
        std::memset(record.data() + job.done_bytes, 0, record.size() - job.done_bytes);
      }
    }
  }
  const std::unique_ptr<Job> ended = std::move(jobs_[result.token]);
  free_tokens_.push_back(result.token);
  switch (ended->kind) {
    case IoRequest::Kind::kRead:
      return complete_read(*ended, error);
    case IoRequest::Kind::kWrite:
      return complete_write(*ended, error);
    case IoRequest::Kind::kPunch:
      return complete_wipe(*ended, error);
    case IoRequest::Kind::kSync:
      return complete_sync(*ended, error);
  }
}

// Whether what was read is what was put under that key.
bool FileStore::is_the_record(const Job& job) const {
  const SpillBuffers& buffers = *options_.buffers;
  const std::span<std::byte> record = job.buffer->record();
  const std::optional<RecordHeader> header = decode_header(buffers.layout(), record.first(buffers.header_bytes()));
  return header && header->key == job.read->key && header->generation == job.read->generation &&
         header->slab == job.slab && header->slot == job.slot && is_payload_whole(buffers.layout(), record);
}

void FileStore::complete_read(Job& job, int error) {
  bool is_good = false;
  if (error == 0 && !job.is_expired) {
    try {
      is_good = is_the_record(job);
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
  }
  const MutexLock lock(mutex_);
  slab(job.slab).end_read(job.slot);
  counted_.read_bytes += job.done_bytes;
  if (job.is_expired) return;  // answered already
  Entry* const entry = find(job.read->key);
  if (entry != nullptr && entry->read == job.read) entry->read = nullptr;
  const bool is_current = entry != nullptr && entry->has_slot && slab_of(entry->kind) == job.slab &&
                          entry->slot == job.slot && entry->generation == job.read->generation;
  if (error != 0) {
    ++counted_.io_errors;
    end_read(*job.read, {.status = GetResult::Status::kFailed});
    if (is_current && ++entry->failed_reads >= kFailedReadsMax) lose_slot(*entry);
  } else if (!is_good) {
    end_read(*job.read, {.status = GetResult::Status::kMissing});
    if (!is_current) return;
    ++counted_.damaged_records;
    lose_slot(*entry);
  } else {
    if (is_current) entry->failed_reads = 0;
    end_read(*job.read, {.status = GetResult::Status::kFound, .tier = Tier::kFile, .buffer = std::move(job.buffer)});
  }
}

// What rests in its slot is no good; a put that is under way goes on.
void FileStore::lose_slot(Entry& entry) noexcept {
  if (buffer_under_way(entry) == nullptr) return drop(entry, true);
  give_slot_up(entry);
}

void FileStore::complete_write(Job& job, int error) {
  const MutexLock lock(mutex_);
  --writes_under_way_;
  counted_.written_bytes += job.done_bytes;
  last_progress_ = Clock::now();
  if (job.is_expired) return doom(std::move(job.put->wipe));  // nobody counts on it any more
  end_write(job, error);
}

void FileStore::end_write(Job& job, int error) {
  const std::shared_ptr<Put> put = job.put;
  Entry& entry = *find(put->key);
  entry.writing = nullptr;
  if (entry.parked != nullptr) puts_.push_front(std::exchange(entry.parked, nullptr));
  if (error == 0) {
    if (put->is_probe) {
      counted_.degraded = false;
      counted_.degraded_reason.clear();
    }
    if (put->is_erased) {
      // A flush that came after the erase waits for this too: the wipe takes the put's place in the order.
      Ticket& ticket = put->wipe->ticket;
      doom(std::move(put->wipe));
      ticket.unlink();
      ticket.number = put->ticket.number;
      tickets_.insert(tickets_.iterator_to(put->ticket), ticket);
    } else {
      if (entry.has_slot) give_slot_up(entry);
      entry.has_slot = true;
      ++resting_;
      entry.kind = put->lineage.kind;
      entry.slot = job.slot;
      entry.generation = put->generation;
      entry.failed_reads = 0;
      entry.wipe = std::move(put->wipe);
    }
    end_put(put, !put->is_erased);
    return forget_if_empty(entry);
  }
  ++counted_.io_errors;
  ++failed_writes_;
  if (!job.is_expired) doom(std::move(put->wipe));
  if (put->is_erased) {
    end_put(put, false);
    forget_if_empty(entry);
  } else {
    fail_put(put);
  }
  degrade(job.slab, "can't be written", error);
  if (error != ENOSPC && error != EDQUOT) return;
  // Gives the disk some air: what is wiped is space for the next try.
  std::uint64_t given = 0;
  while (given < 2 * slab(job.slab).record_bytes()) {
    Entry* const least_used = victim();
    if (least_used == nullptr) break;
    given += slab(slab_of(least_used->kind)).record_bytes();
    evict(*least_used);
  }
}

void FileStore::end_put(const std::shared_ptr<Put>& put, bool stored) {
  if (std::exchange(put->is_over, true)) return;
  if (put->is_probe) is_probing_ = false;
  if (put->ticket.is_linked()) put->ticket.unlink();
  pending_puts_ -= put->done.size();
  if (!stored) counted_.puts_dropped += put->done.size();
  for (PutDone& done : put->done) calls_.push_back({.put_done = std::move(done), .stored = stored});
  put->done.clear();
}

// The record is lost, and with it an older equal: what is lost is gone.
void FileStore::fail_put(const std::shared_ptr<Put>& put) {
  end_put(put, false);
  Entry* const entry = find(put->key);
  if (put->is_erased || entry == nullptr) return;
  if (entry->queued == put) entry->queued = nullptr;
  if (buffer_under_way(*entry) == nullptr) drop(*entry, true);
}

void FileStore::fail_queued_puts() {
  while (!puts_.empty()) {
    const std::shared_ptr<Put> put = std::move(puts_.front());
    puts_.pop_front();
    fail_put(put);
  }
}

void FileStore::degrade(SlabId id, const std::string& what, int error) {
  counted_.degraded = true;
  counted_.degraded_reason = io_message(directory_->slab_path(id), what, error);
  retry_at_ = Clock::now() + options_.retry_after;
  is_probing_ = false;
  fail_queued_puts();
}

void FileStore::end_read(Read& read, GetResult result) {
  if (std::exchange(read.is_over, true)) return;
  if (read.is_gone) result = {.status = GetResult::Status::kMissing};
  const std::size_t getters = read.getters.size();
  pending_gets_ -= getters;
  switch (result.status) {
    case GetResult::Status::kFound:
      if (result.tier == Tier::kRam) {
        counted_.found_in_ram += getters;
      } else {
        counted_.found_in_file += getters;
        counted_.shared_reads += getters - 1;
      }
      break;
    case GetResult::Status::kMissing:
      counted_.misses += getters;
      break;
    case GetResult::Status::kFailed:
    case GetResult::Status::kQueueFull:
      counted_.failed_gets += getters;
      break;
  }
  for (GetDone& done : read.getters) calls_.push_back({.get_done = std::move(done), .result = result});
  read.getters.clear();
  read.served_by = nullptr;
}

void FileStore::complete_wipe(Job& job, int error) {
  const MutexLock lock(mutex_);
  --wipes_under_way_;
  last_progress_ = Clock::now();
  Slab& of_record = slab(job.slab);
  if (!job.is_expired) wiping_bytes_ -= of_record.record_bytes();
  if (job.wipe->ticket.is_linked()) job.wipe->ticket.unlink();
  if (error == 0) {
    of_record.punched(job.slot);
    is_disk_full_ = false;
    return;
  }
  failed_wipes_.push_back(std::move(job.wipe));
  if (job.is_expired) return;
  ++counted_.io_errors;
  degrade(job.slab, "space can't be given back", error);
}

void FileStore::complete_sync(Job& job, int error) {
  const MutexLock lock(mutex_);
  if (job.is_expired) return;
  ++job.flush->syncs_done;
  if (error != 0) {
    ++counted_.io_errors;
    job.flush->is_failed = true;
    degrade(job.slab, "can't be synced", error);
  }
  static_cast<void>(end_flush_if_done(job.flush));
}

bool FileStore::end_flush_if_done(const std::shared_ptr<Flush>& flush) {
  if (flush->syncs_done < kSlabs) return false;
  // What hangs may yet come to the disk.
  const bool is_settled = std::ranges::none_of(jobs_, [](const std::unique_ptr<Job>& job) {
    return job != nullptr && job->is_expired && job->kind != IoRequest::Kind::kRead;
  });
  const bool is_durable =
      is_settled && !flush->is_failed && failed_wipes_.empty() && flush->failed_writes == failed_writes_;
  flush->end.set_value(is_durable);
  std::erase(flushes_, std::shared_ptr<Flush>(flush));
  return true;
}

void FileStore::expire() {
  const Clock::time_point now = Clock::now();
  for (const std::unique_ptr<Job>& job : jobs_) {
    if (job != nullptr && !job->is_expired && job->deadline <= now) expire_job(*job);
  }
  const MutexLock lock(mutex_);
  while (!timed_reads_.empty() && (timed_reads_.front()->is_over || timed_reads_.front()->deadline <= now)) {
    const std::shared_ptr<Read> read = std::move(timed_reads_.front());
    timed_reads_.pop_front();
    if (read->is_over) continue;
    ++counted_.io_errors;  // it waits behind others: those that were begun have a job
    Entry* const entry = find(read->key);
    if (entry != nullptr && entry->read == read) entry->read = nullptr;
    end_read(*read, {.status = GetResult::Status::kFailed});
  }
  // A put waits as long as others get on.
  while (!puts_.empty() && std::max(puts_.front()->accepted, last_progress_) + options_.io_timeout <= now) {
    const std::shared_ptr<Put> put = std::move(puts_.front());
    puts_.pop_front();
    fail_put(put);
  }
}

// Counts as failed; its slot and its memory stay taken until its result comes.
void FileStore::expire_job(Job& job) {
  const MutexLock lock(mutex_);
  job.is_expired = true;
  switch (job.kind) {
    case IoRequest::Kind::kRead: {
      ++counted_.io_errors;
      Entry* const entry = find(job.read->key);
      if (entry != nullptr && entry->read == job.read) entry->read = nullptr;
      return end_read(*job.read, {.status = GetResult::Status::kFailed});
    }
    case IoRequest::Kind::kWrite:
      return end_write(job, ETIMEDOUT);
    case IoRequest::Kind::kPunch:
      ++counted_.io_errors;
      wiping_bytes_ -= slab(job.slab).record_bytes();
      if (job.wipe->ticket.is_linked()) job.wipe->ticket.unlink();
      return degrade(job.slab, "space can't be given back", ETIMEDOUT);
    case IoRequest::Kind::kSync:
      ++counted_.io_errors;
      ++job.flush->syncs_done;
      job.flush->is_failed = true;
      degrade(job.slab, "can't be synced", ETIMEDOUT);
      static_cast<void>(end_flush_if_done(job.flush));
      return;
  }
}

}  // namespace cairn
