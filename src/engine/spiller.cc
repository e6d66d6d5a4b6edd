#include "engine/spiller.h"

#include <atomic>
#include <exception>
#include <system_error>
#include <utility>

namespace cairn {

struct Spiller::Record {
  TierKey key = 0;
  RecordLineage lineage;
  SpillBufferPtr buffer;
  // A snapshot's shards are copied one by one.
  std::atomic<std::size_t> parts_left{1};
  std::atomic<bool> whole{true};

  // Whether this was the last part. Acquire and release: who sees the last one sees the bytes of all.
  bool part_copied(std::error_code error) noexcept {
    if (error) whole.store(false, std::memory_order_relaxed);
    return parts_left.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
};

void Spiller::reserve(std::size_t count) {
  const MutexLock lock(mutex_);
  make_room(under_way_, count);
  make_room(lost_, under_way_.size() + count);
}

bool Spiller::announce(TierKey key) noexcept {
  const MutexLock lock(mutex_);
  const auto [known, is_new] = under_way_.try_emplace(key, false);
  if (!is_new) known->second = true;
  std::erase(lost_, key);
  return is_new;
}

std::shared_ptr<Spiller::Record> Spiller::begin(TierKey key, RecordLineage lineage) const {
  auto record = std::make_shared<Record>();
  record->key = key;
  record->lineage = std::move(lineage);
  record->buffer = store_->buffers()->allocate(record->lineage.kind);
  return record->buffer ? record : nullptr;
}

// shared_from_this throws for what nobody shares: not here.
void Spiller::spill_block(TierKey key, RecordLineage lineage, BlockId block,  // NOLINT(bugprone-exception-escape)
                          const std::shared_ptr<BlockAllocator>& blocks) noexcept {
  blocks_leaving_.add(1);
  const auto over = [self = shared_from_this(), key, block, blocks](bool stored) {
    blocks->drop_references({&block, 1});
    self->blocks_leaving_.subtract(1);
    self->end(key, stored);
  };
  try {
    const std::shared_ptr<Record> record = begin(key, std::move(lineage));
    if (!record) return over(false);
    blocks->copy_out(block, record->buffer->payload(),
                     [self = shared_from_this(), record, over](std::error_code error) {
                       over(!error && self->hand_over(*record));
                     });
  } catch (const std::exception&) {  // no memory, or the device refused
    over(false);
  }
}

bool Spiller::spill_snapshot(TierKey key, RecordLineage lineage, SnapshotId slot,  // NOLINT(bugprone-exception-escape)
                             const std::shared_ptr<SnapshotPool>& snapshots) noexcept {
  std::shared_ptr<Record> record;
  try {
    record = begin(key, std::move(lineage));
  } catch (const std::exception&) {
    record = nullptr;
  }
  if (!record) {
    snapshots->free(slot);
    end(key, false);
    return false;
  }
  slots_leaving_.add(1);
  const std::size_t shards = snapshots->shards();
  const std::size_t bytes = record->buffer->payload().size() / shards;
  record->parts_left.store(shards, std::memory_order_relaxed);  // nobody else sees it yet
  const auto part_over = [self = shared_from_this(), record](std::error_code error) {
    if (!record->part_copied(error)) return;
    const bool stored = record->whole.load(std::memory_order_relaxed) && self->hand_over(*record);
    self->slots_leaving_.subtract(1);
    self->end(record->key, stored);
  };
  for (std::size_t shard = 0; shard < shards; ++shard) {
    try {
      snapshots->read(slot, shard, record->buffer->payload().subspan(shard * bytes, bytes), part_over);
    } catch (const std::exception&) {
      part_over(std::make_error_code(std::errc::io_error));
    }
  }
  snapshots->free(slot);  // doomed until it has been read
  return true;
}

void Spiller::decline(TierKey key) noexcept {
  end(key, false);
}

// Who erases says so before they erase it in the store. So what is put after that is seen here, before or after.
bool Spiller::hand_over(const Record& record) noexcept {
  bool taken = false;
  if (is_erased(record.key)) return false;
  try {
    taken = store_->put(record.key, record.lineage, record.buffer, [](bool) {}) == PutResult::kAccepted;
  } catch (const std::exception&) {
    taken = false;
  }
  if (!taken) return false;
  if (is_erased(record.key)) {
    store_->erase(record.key);
    return false;
  }
  (record.lineage.kind == RecordKind::kBlock ? counts_.blocks : counts_.snapshots).add(1);
  counts_.bytes.add(record.buffer->payload().size());
  return true;
}

bool Spiller::is_erased(TierKey key) const noexcept {
  const MutexLock lock(mutex_);
  return under_way_.find(key)->second;
}

void Spiller::end(TierKey key, bool stored) noexcept {
  if (!stored) counts_.declined.add(1);
  const MutexLock lock(mutex_);
  under_way_.erase(key);
  if (!stored) lost_.push_back(key);
  one_over_.notify_all();
}

void Spiller::erase(std::span<const TierKey> keys) noexcept {
  for (const TierKey key : keys) {
    {
      const MutexLock lock(mutex_);
      const auto under_way = under_way_.find(key);
      if (under_way != under_way_.end()) under_way->second = true;
    }
    store_->erase(key);
  }
}

// What is under way may be of that adapter or not: it is given up, which costs a record and no more.
void Spiller::erase_adapter(std::string_view adapter) {
  {
    const MutexLock lock(mutex_);
    for (auto& [key, erased] : under_way_) erased = true;
  }
  erase(store_->records_of(adapter));
}

std::vector<TierKey> Spiller::take_lost() {
  std::vector<TierKey> lost = store_->take_lost();
  const MutexLock lock(mutex_);
  std::vector<TierKey> next;
  next.reserve(under_way_.size());
  lost.insert(lost.end(), lost_.begin(), lost_.end());
  lost_.swap(next);
  return lost;
}

bool Spiller::is_under_way(TierKey key) const noexcept {
  const MutexLock lock(mutex_);
  return under_way_.contains(key);
}

template <class Over>
bool Spiller::wait_until(std::chrono::steady_clock::time_point until, Over over) {
  mutex_.lock();
  while (!over() && one_over_.wait_until(mutex_, until) == std::cv_status::no_timeout) continue;
  const bool is_over = over();
  mutex_.unlock();
  return is_over;
}

bool Spiller::wait(std::chrono::steady_clock::time_point until) {
  return wait_until(until, [this]() CAIRN_REQUIRES(mutex_) { return under_way_.empty(); });
}

bool Spiller::wait_for_copies(std::chrono::steady_clock::time_point until) {
  return wait_until(until, [this] { return blocks_leaving() + slots_leaving() == 0; });  // end() follows each change
}

}  // namespace cairn
