#include "engine/spiller.h"

#include <atomic>
#include <exception>
#include <new>
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

std::shared_ptr<Spiller::Record> Spiller::begin(TierKey key, RecordLineage lineage) {
  auto record = std::make_shared<Record>();
  record->key = key;
  record->lineage = std::move(lineage);
  record->buffer = store_->buffers()->allocate(record->lineage.kind);
  if (!record->buffer) return nullptr;
  const MutexLock lock(mutex_);
  make_room(lost_, under_way_.size() + 1);  // so that losing it needs no memory
  under_way_.emplace(key, false);
  return record;
}

void Spiller::spill_block(TierKey key, RecordLineage lineage, BlockId block,
                          std::shared_ptr<BlockAllocator> blocks) noexcept {
  std::shared_ptr<Record> record;
  try {
    record = begin(key, std::move(lineage));
    if (record) {
      blocks->copy_out(block, record->buffer->payload(),
                       [self = shared_from_this(), record, block, blocks](std::error_code error) {
                         self->copied(*record, !error);
                         blocks->drop_references({&block, 1});
                       });
      return;
    }
    decline(key);
  } catch (const std::exception&) {  // no memory, or the device refused
    if (record) {
      copied(*record, false);
    } else {
      decline(key);
    }
  }
  blocks->drop_references({&block, 1});
}

bool Spiller::spill_snapshot(TierKey key, RecordLineage lineage, SnapshotId slot,
                             const std::shared_ptr<SnapshotPool>& snapshots) noexcept {
  std::shared_ptr<Record> record;
  std::size_t begun = 0;
  const std::size_t shards = snapshots->shards();
  try {
    record = begin(key, std::move(lineage));
    if (record) {
      record->parts_left.store(shards, std::memory_order_relaxed);  // nobody else sees it yet
      const std::size_t bytes = record->buffer->payload().size() / shards;
      for (; begun < shards; ++begun) {
        snapshots->read(slot, begun, record->buffer->payload().subspan(begun * bytes, bytes),
                        [self = shared_from_this(), record](std::error_code error) {
                          if (record->part_copied(error)) self->copied(*record, record->whole.load());
                        });
      }
    } else {
      decline(key);
    }
  } catch (const std::exception&) {
    if (!record) {
      decline(key);
    } else {
      // The parts that have not begun are over as well.
      bool last = false;
      for (; begun < shards; ++begun) last = record->part_copied(std::make_error_code(std::errc::io_error));
      if (last) copied(*record, false);
    }
    record.reset();
  }
  snapshots->free(slot);  // doomed until it has been read
  return record != nullptr;
}

void Spiller::copied(const Record& record, bool whole) noexcept {
  bool taken = false;
  if (whole) {
    try {
      taken = store_->put(record.key, record.lineage, record.buffer, [](bool) {}) == PutResult::kAccepted;
    } catch (const std::exception&) {
      taken = false;
    }
  }
  bool erased = false;
  {
    const MutexLock lock(mutex_);
    const auto under_way = under_way_.find(record.key);
    erased = under_way->second;
    under_way_.erase(under_way);
    if (!taken && !erased) lose(record.key);
    if (under_way_.empty()) none_under_way_.notify_all();
  }
  if (!taken) {
    counts_.declined.add(1);
    return;
  }
  (record.lineage.kind == RecordKind::kBlock ? counts_.blocks : counts_.snapshots).add(1);
  counts_.bytes.add(record.buffer->payload().size());
  if (erased) store_->erase(record.key);
}

void Spiller::decline(TierKey key) noexcept {
  counts_.declined.add(1);
  const MutexLock lock(mutex_);
  lose(key);
}

// If there is no memory for it, the index goes on to know it, until a fetch finds nothing.
void Spiller::lose(TierKey key) noexcept {
  try {
    lost_.push_back(key);
  } catch (const std::bad_alloc&) {
    return;
  }
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

std::vector<TierKey> Spiller::take_lost() {
  std::vector<TierKey> lost = store_->take_lost();
  const MutexLock lock(mutex_);
  lost.insert(lost.end(), lost_.begin(), lost_.end());
  lost_.clear();
  return lost;
}

bool Spiller::wait(std::chrono::steady_clock::time_point until) {
  mutex_.lock();
  bool none = under_way_.empty();
  while (!none && none_under_way_.wait_until(mutex_, until) == std::cv_status::no_timeout) none = under_way_.empty();
  none = under_way_.empty();
  mutex_.unlock();
  return none;
}

}  // namespace cairn
