#include "engine/fetch.h"

#include <atomic>
#include <exception>
#include <system_error>
#include <utility>

namespace cairn {

Fetch::Fetch(std::shared_ptr<SpillStore> store, std::shared_ptr<BlockAllocator> blocks,
             std::shared_ptr<SnapshotPool> snapshots, FetchPlan plan, std::shared_ptr<StateLoad> load)
    : store_(std::move(store)),
      allocator_(std::move(blocks)),
      snapshots_(std::move(snapshots)),
      plan_(std::move(plan)),
      first_block_(plan_.snapshot_key ? 1 : 0),
      items_(first_block_ + plan_.block_keys.size()),
      load_(std::move(load)),
      arrivals_(items_, Arrival::kNone) {}

void Fetch::begin() {
  load_->begin();
  begun_ = std::chrono::steady_clock::now();
  go_on();
}

bool Fetch::over() const {
  const MutexLock lock(mutex_);
  return over_;
}

bool Fetch::take_over(std::vector<BlockId>& blocks) noexcept {
  const MutexLock lock(mutex_);
  if (over_) return false;
  taken_over_ = true;
  block_failed_ = true;  // no more of them
  blocks_to_drop_ = std::move(blocks);
  return true;
}

TierKey Fetch::key_of(std::size_t item) const {
  return is_snapshot(item) ? *plan_.snapshot_key : plan_.block_keys[item - first_block_];
}

// Asks for what there is room for. A store may answer within the call, and then `arrived` finds somebody asking
// already: so nothing recurses.
void Fetch::go_on() noexcept {
  {
    const MutexLock lock(mutex_);
    if (asking_) return;
    asking_ = true;
  }
  for (;;) {
    std::size_t item = 0;
    {
      const MutexLock lock(mutex_);
      if (block_failed_) next_ = items_;
      if (next_ == items_ || under_way_ == plan_.depth) {
        asking_ = false;
        if (next_ < items_ || under_way_ > 0 || over_) return;
        over_ = true;
        seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
        break;
      }
      item = next_++;
      ++under_way_;
    }
    try {
      store_->get(key_of(item),
                  [self = shared_from_this(), item](const GetResult& result) { self->got(item, result); });
    } catch (const std::exception&) {
      arrived(item, Arrival::kFailed);
    }
  }
  end();
}

void Fetch::got(std::size_t item, const GetResult& result) noexcept {
  if (result.status != GetResult::Status::kFound) {
    return arrived(item, result.status == GetResult::Status::kMissing ? Arrival::kMissing : Arrival::kFailed);
  }
  const Arrival how = result.tier == Tier::kRam ? Arrival::kFromRam : Arrival::kFromFile;
  try {
    if (is_snapshot(item)) return copy_snapshot(item, how, result.buffer);
    allocator_->copy_in(plan_.blocks[item - first_block_], result.buffer->payload(),
                        [self = shared_from_this(), item, how, buffer = result.buffer](std::error_code error) {
                          self->arrived(item, error ? Arrival::kFailed : how);
                        });
  } catch (const std::exception&) {
    arrived(item, Arrival::kFailed);
  }
}

void Fetch::copy_snapshot(std::size_t item, Arrival how, std::shared_ptr<const SpillBuffer> buffer) {
  struct Shards {
    std::shared_ptr<const SpillBuffer> buffer;
    std::atomic<std::size_t> left;
    std::atomic<bool> failed{false};
  };
  const std::size_t count = snapshots_->shards();
  const auto shards = std::make_shared<Shards>(std::move(buffer), count);
  const std::size_t bytes = shards->buffer->payload().size() / count;
  // Acquire and release: who counts down to none sees that all others have failed or not.
  const auto done = [self = shared_from_this(), shards, item, how](std::error_code error) {
    if (error) shards->failed.store(true, std::memory_order_relaxed);
    if (shards->left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      self->arrived(item, shards->failed.load(std::memory_order_relaxed) ? Arrival::kFailed : how);
    }
  };
  for (std::size_t shard = 0; shard < count; ++shard) {
    try {
      snapshots_->write(plan_.slot, shard, shards->buffer->payload().subspan(shard * bytes, bytes), done);
    } catch (const std::exception&) {
      done(std::make_error_code(std::errc::io_error));
    }
  }
}

void Fetch::arrived(std::size_t item, Arrival how) noexcept {
  {
    const MutexLock lock(mutex_);
    arrivals_[item] = how;
    --under_way_;
    const bool came = how == Arrival::kFromRam || how == Arrival::kFromFile;
    if (!came && !is_snapshot(item)) block_failed_ = true;
  }
  go_on();
}

// It is over, and nobody else is in here.
void Fetch::end() noexcept {
  bool taken_over = false;
  std::vector<BlockId> blocks;
  {
    const MutexLock lock(mutex_);
    taken_over = taken_over_;
    blocks.swap(blocks_to_drop_);
  }
  if (!blocks.empty()) allocator_->drop_references(blocks);
  if (taken_over && plan_.snapshot_key) snapshots_->free(plan_.slot);
  load_->end({});
}

Fetch::Outcome Fetch::take_outcome() {
  const MutexLock lock(mutex_);
  Outcome outcome;
  bool gap = false;
  for (std::size_t item = 0; item < items_; ++item) {
    const Arrival how = arrivals_[item];
    if (how == Arrival::kMissing) outcome.missing.push_back(key_of(item));
    const bool came = how == Arrival::kFromRam || how == Arrival::kFromFile;
    const Tier tier = how == Arrival::kFromFile ? Tier::kFile : Tier::kRam;
    if (is_snapshot(item)) {
      outcome.snapshot = came;
      outcome.snapshot_tier = tier;
      if (came) outcome.bytes.add(tier, snapshots_->slot_bytes());
      continue;
    }
    gap = gap || !came;
    if (gap) continue;
    ++outcome.blocks;
    outcome.block_tiers.push_back(tier);
    outcome.bytes.add(tier, allocator_->block_bytes());
  }
  outcome.seconds = seconds_;
  return outcome;
}

}  // namespace cairn
