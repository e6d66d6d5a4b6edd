// The store's thread: what it begins.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "tier/file_store.h"

namespace cairn {
namespace {

constexpr std::size_t kLengthMax = std::size_t{1} << 30;    // the kernel takes no more than 2 GiB at once
constexpr std::size_t kGrowthBytes = std::size_t{4} << 20;  // space is allocated in pieces of that size

// Memory that the device may still write to, or read, at any time.
void keep_for_ever(SpillBufferPtr buffer) {
  static Mutex mutex;
  static auto* const kept = new std::vector<SpillBufferPtr>();
  const MutexLock lock(mutex);
  kept->push_back(std::move(buffer));
}

}  // namespace

void FileStore::run() {
  std::array<IoResult, 64> results;
  while (true) {
    {
      const MutexLock lock(mutex_);
      is_asleep_ = true;  // what comes from now on is seen below, or wakes the wait
    }
    // What begins and ends at once, a read without a buffer say, must not keep others from their answers.
    std::size_t begun = 0;
    while (begun < io_->depth() && !free_tokens_.empty() && begin_something()) ++begun;
    make_calls();
    if (is_over()) break;
    const bool there_is_more = begun == io_->depth();
    const std::size_t count = io_->wait(results, there_is_more ? std::chrono::milliseconds(0) : wait_at_most());
    for (const IoResult& result : std::span(results).first(count)) complete(result);
    expire();
    make_calls();
  }
  give_up_everything();
  make_calls();
  std::unique_ptr<AsyncIo> io;
  {
    const MutexLock lock(mutex_);  // in the destructor's wake() it is still used
    std::swap(io, io_);
  }
  io.reset();
  bool is_abandoned = false;
  for (const std::unique_ptr<Job>& job : jobs_) {
    if (job == nullptr) continue;
    is_abandoned = true;
    if (job->buffer != nullptr) keep_for_ever(std::move(job->buffer));
  }
  if (is_abandoned) directory_->abandon_slabs();
}

// Each kind of work has its turn, so that none waits for the end of another.
bool FileStore::begin_something() {
  for (std::size_t tried = 0; tried < 4; ++tried) {
    turn_ = (turn_ + 1) % 4;
    const bool has_begun = turn_ == 0   ? begin_read()
                           : turn_ == 1 ? begin_wipe()
                           : turn_ == 2 ? begin_put()
                                        : begin_sync();
    if (has_begun) return true;
  }
  return false;
}

bool FileStore::begin_read() {
  std::shared_ptr<Read> read;
  {
    const MutexLock lock(mutex_);
    while (read == nullptr) {
      if (reads_.empty()) return false;
      std::shared_ptr<Read> next = std::move(reads_.front());
      reads_.pop_front();
      if (next->is_over) continue;
      if (next->is_gone) {
        end_read(*next, {.status = GetResult::Status::kMissing});
      } else if (next->served_by != nullptr) {
        end_read(*next, {.status = GetResult::Status::kFound, .tier = Tier::kRam, .buffer = next->served_by});
      } else {
        read = std::move(next);
      }
    }
    read->is_started = true;
    slab(read->slab).begin_read(read->slot);
  }
  SpillBufferPtr buffer = options_.buffers->allocate(read->kind);
  if (buffer == nullptr) {
    const MutexLock lock(mutex_);
    slab(read->slab).end_read(read->slot);
    Entry* const entry = find(read->key);
    if (entry != nullptr && entry->read == read) entry->read = nullptr;
    end_read(*read, {.status = GetResult::Status::kQueueFull});
    return true;
  }
  auto job = std::make_unique<Job>();
  job->kind = IoRequest::Kind::kRead;
  job->slab = read->slab;
  job->slot = read->slot;
  job->deadline = read->deadline;
  job->buffer = std::move(buffer);
  job->read = std::move(read);
  submit(std::move(job));
  return true;
}

bool FileStore::begin_wipe() {
  auto job = std::make_unique<Job>();
  {
    const MutexLock lock(mutex_);
    if (!failed_wipes_.empty() && Clock::now() >= retry_at_) {
      job->wipe = std::move(failed_wipes_.back());
      failed_wipes_.pop_back();
    } else {
      const auto next = std::ranges::find_if(doomed_, [&](const std::unique_ptr<Wipe>& wipe) CAIRN_REQUIRES(mutex_) {
        return !slab(wipe->slab).is_read(wipe->slot);
      });
      if (next == doomed_.end()) return false;
      job->wipe = std::move(*next);
      *next = std::move(doomed_.back());
      doomed_.pop_back();
      doomed_bytes_ -= slab(job->wipe->slab).record_bytes();
    }
    job->kind = IoRequest::Kind::kPunch;
    job->slab = job->wipe->slab;
    job->slot = job->wipe->slot;
    job->deadline = Clock::now() + options_.io_timeout;
    ++wipes_under_way_;
    wiping_bytes_ += slab(job->slab).record_bytes();
  }
  submit(std::move(job));
  return true;
}

bool FileStore::begin_put() {
  auto job = std::make_unique<Job>();
  Space space = Space::kWait;
  {
    const MutexLock lock(mutex_);
    const std::shared_ptr<Put> put = next_put();
    if (put == nullptr) return false;
    Entry& entry = *find(put->key);
    job->slab = slab_of(put->lineage.kind);
    space = find_slot(job->slab, job->slot);
    if (space == Space::kWait) return false;
    if (space == Space::kNone) {
      puts_.pop_front();
      fail_put(put);
      return true;
    }
    if (space == Space::kFound) {
      puts_.pop_front();
      entry.writing = std::move(entry.queued);
      ++writes_under_way_;
      put->wipe->slab = job->slab;
      put->wipe->slot = job->slot;
      job->buffer = put->buffer;
      job->put = put;
    }
  }
  if (space == Space::kGrow) {
    grow(job->slab);
    return true;
  }
  Put& put = *job->put;
  put.generation = ++last_generation_;
  const SpillLayout& layout = options_.buffers->layout();
  const std::span<std::byte> record = put.buffer->record();
  if (!put.checksum) put.checksum = checksum_payload(layout, record);
  encode_header(layout,
                {.key = put.key,
                 .generation = put.generation,
                 .slab = job->slab,
                 .slot = job->slot,
                 .payload_bytes = record_payload_bytes(layout, put.lineage.kind),
                 .lineage = put.lineage},
                *put.checksum, record);
  job->kind = IoRequest::Kind::kWrite;
  job->deadline = Clock::now() + options_.io_timeout;
  submit(std::move(job));
  return true;
}

// The first that can be begun once it has a slot. Stays in the queue.
std::shared_ptr<FileStore::Put> FileStore::next_put() {
  while (!puts_.empty()) {
    std::shared_ptr<Put> put = puts_.front();
    if (put->is_erased) {
      puts_.pop_front();
      end_put(put, false);
      continue;
    }
    Entry& entry = *find(put->key);
    if (entry.writing == nullptr) return put;
    puts_.pop_front();                                          // one after the other: they may share the buffer
    if (entry.parked != nullptr) end_put(entry.parked, false);  // erased: another one would have been replaced
    entry.parked = std::move(put);
  }
  return nullptr;
}

// kGrow: there is space for another slot. kWait: enough is being wiped, or in use for now. kNone: there will be none.
FileStore::Space FileStore::find_slot(SlabId id, std::uint32_t& slot) {
  Slab& own = slab(id);
  Slab& other = slabs_[1 - static_cast<std::size_t>(id)];
  if (is_disk_full_ && Clock::now() >= disk_full_until_) is_disk_full_ = false;
  while (true) {
    if (const std::optional<std::uint32_t> spare = own.take_spare()) {
      slot = *spare;
      return Space::kFound;
    }
    const std::uint64_t held = held_bytes();
    const std::uint64_t room = is_disk_full_ || held > slab_bytes_max_ ? 0 : slab_bytes_max_ - held;
    if (room >= own.record_bytes()) return Space::kGrow;
    if (room + coming_bytes() >= own.record_bytes()) return Space::kWait;
    if (const std::optional<std::uint32_t> spare = other.take_spare()) {
      auto wipe = std::make_unique<Wipe>();
      wipe->slab = static_cast<SlabId>(1 - static_cast<std::size_t>(id));
      wipe->slot = *spare;
      doom(std::move(wipe));
      continue;
    }
    Entry* const least_used = victim();
    if (least_used == nullptr) return is_anything_under_way() ? Space::kWait : Space::kNone;
    if (slab_of(least_used->kind) != id) {
      evict(*least_used);
      continue;
    }
    slot = least_used->slot;  // taken over as it is
    least_used->has_slot = false;
    --resting_;
    evict(*least_used);
    return Space::kFound;
  }
}

// What is wiped, or will be: but for slots whose reader has expired, and may never let go.
std::uint64_t FileStore::coming_bytes() const noexcept {
  const auto is_stuck = [&](const std::unique_ptr<Job>& job) CAIRN_REQUIRES(mutex_) {
    return job != nullptr && job->is_expired && job->kind == IoRequest::Kind::kRead &&
           slab(job->slab).state(job->slot) == Slab::State::kWiped;
  };
  std::uint64_t stuck = 0;
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (!is_stuck(*job)) continue;
    const bool is_counted =
        std::any_of(jobs_.begin(), job, [&](const std::unique_ptr<Job>& earlier) CAIRN_REQUIRES(mutex_) {
          return is_stuck(earlier) && earlier->slab == (*job)->slab && earlier->slot == (*job)->slot;
        });
    if (!is_counted) stuck += slab((*job)->slab).record_bytes();
  }
  return doomed_bytes_ + wiping_bytes_ - stuck;
}

// Least recently used first, but for what is being read or written.
FileStore::Entry* FileStore::victim() noexcept {
  const auto found = std::ranges::find_if(lru_, [&](const Entry& entry) CAIRN_REQUIRES(mutex_) {
    return entry.has_slot && entry.queued == nullptr && entry.writing == nullptr && entry.parked == nullptr &&
           entry.read == nullptr && !slab(slab_of(entry.kind)).is_read(entry.slot);
  });
  return found == lru_.end() ? nullptr : &*found;
}

void FileStore::evict(Entry& entry) noexcept {
  ++counted_.evicted_records;
  drop(entry, true);
}

bool FileStore::is_anything_under_way() const {
  return std::ranges::any_of(jobs_,
                             [](const std::unique_ptr<Job>& job) { return job != nullptr && !job->is_expired; });
}

// Allocates space ahead of the writes: they need not find it one by one, and a full disk is noticed before anything
// is lost.
void FileStore::grow(SlabId id) {
  Slab::Range range;
  int file = -1;
  std::size_t record_bytes = 0;
  {
    const MutexLock lock(mutex_);
    Slab& own = slab(id);
    file = own.file();
    record_bytes = own.record_bytes();
    const std::uint64_t slots = std::min<std::uint64_t>(kGrowthBytes, slab_bytes_max_ - held_bytes()) / record_bytes;
    range = own.grow(static_cast<std::uint32_t>(slots));
    growing_slots_ += range.count;
  }
  const auto offset = static_cast<off_t>(std::uint64_t{range.first} * record_bytes);
  const auto length = static_cast<off_t>(std::uint64_t{range.count} * record_bytes);
  int error = 0;
  do {
    error = ::fallocate(file, 0, offset, length) == 0 ? 0 : errno;
  } while (error == EINTR);
  const bool is_full = error == ENOSPC || error == EDQUOT;
  if (error == EOPNOTSUPP) error = 0;  // then the writes allocate it
  // Part of it may be allocated.
  if (error != 0) static_cast<void>(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length));

  const MutexLock lock(mutex_);
  growing_slots_ -= range.count;
  slab(id).grown(range, error == 0);
  if (error == 0 || (is_full && range.count > 1)) return;  // next time one by one
  ++counted_.io_errors;
  if (is_full) {
    is_disk_full_ = true;  // goes on with the space that it has
    disk_full_until_ = Clock::now() + options_.retry_after;
    if (victim() != nullptr || coming_bytes() > 0) return;
  }
  degrade(id, "no space can be allocated", error);
}

bool FileStore::begin_sync() {
  auto job = std::make_unique<Job>();
  {
    const MutexLock lock(mutex_);
    if (flushes_.empty()) return false;
    const std::shared_ptr<Flush>& flush = flushes_.front();
    if (!tickets_.empty() && tickets_.front().number <= flush->ticket) return false;
    while (flush->syncs_begun < kSlabs && !slabs_[flush->syncs_begun].is_used()) {
      ++flush->syncs_begun;
      ++flush->syncs_done;
    }
    if (flush->syncs_begun == kSlabs) {
      const std::shared_ptr<Flush> first = flush;
      return end_flush_if_done(first);
    }
    job->kind = IoRequest::Kind::kSync;
    job->slab = static_cast<SlabId>(flush->syncs_begun++);
    job->deadline = Clock::now() + options_.io_timeout;
    job->flush = flush;
  }
  submit(std::move(job));
  return true;
}

void FileStore::submit(std::unique_ptr<Job> job) {
  CAIRN_CHECK(!free_tokens_.empty());
  const std::size_t token = free_tokens_.back();
  free_tokens_.pop_back();
  jobs_[token] = std::move(job);
  submit_rest(token);
}

void FileStore::submit_rest(std::size_t token) {
  const Job& job = *jobs_[token];
  IoRequest request{.kind = job.kind, .token = token};
  {
    const MutexLock lock(mutex_);
    const Slab& of_record = slab(job.slab);
    request.file = of_record.file();
    request.offset = of_record.offset(job.slot) + job.done_bytes;
    request.length = of_record.record_bytes();
  }
  if (job.kind == IoRequest::Kind::kSync) request.offset = request.length = 0;
  if (job.buffer != nullptr) {
    const std::span<std::byte> rest = job.buffer->record().subspan(job.done_bytes);
    request.memory = rest.data();
    request.length = std::min(rest.size(), kLengthMax);
  }
  io_->submit(request);
}

std::chrono::milliseconds FileStore::wait_at_most() const {
  constexpr std::chrono::milliseconds kIdle{60'000};
  constexpr std::chrono::milliseconds kBusy{100};
  const bool has_jobs = free_tokens_.size() < jobs_.size();
  const MutexLock lock(mutex_);
  const bool is_idle = !has_jobs && puts_.empty() && reads_.empty() && doomed_.empty() && failed_wipes_.empty() &&
                       flushes_.empty() && !is_stopping_;
  if (is_idle) return kIdle;
  return std::clamp(std::min(options_.io_timeout, options_.retry_after) / 4, std::chrono::milliseconds{1}, kBusy);
}

bool FileStore::is_over() const {
  const MutexLock lock(mutex_);
  if (!is_stopping_) return false;
  if (Clock::now() >= stop_at_) return true;
  return puts_.empty() && reads_.empty() && flushes_.empty() && !is_anything_under_way();
}

// The store is going: whoever still waits for something gets an answer.
void FileStore::give_up_everything() {
  const MutexLock lock(mutex_);
  fail_queued_puts();
  for (const std::shared_ptr<Read>& read : timed_reads_) {
    if (!read->is_over) end_read(*read, {.status = GetResult::Status::kFailed});
  }
  for (const std::unique_ptr<Job>& job : jobs_) {
    if (job != nullptr && job->put != nullptr && !job->put->is_over) end_put(job->put, false);
  }
  for (const auto& [key, entry] : entries_) {
    if (entry->parked != nullptr && !entry->parked->is_over) end_put(entry->parked, false);
  }
  for (const std::shared_ptr<Flush>& flush : flushes_) flush->end.set_value(false);
  flushes_.clear();
}

void FileStore::make_calls() {
  std::vector<Call> calls;
  {
    const MutexLock lock(mutex_);
    calls.swap(calls_);
  }
  for (Call& call : calls) {
    if (call.put_done != nullptr) call.put_done(call.stored);
    if (call.get_done != nullptr) call.get_done(std::move(call.result));
  }
}

}  // namespace cairn
