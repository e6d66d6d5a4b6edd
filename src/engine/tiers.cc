// ManagerCore with a store: what leaves memory goes there, what it has lost is forgotten, and what it had at the start
// is found again.
#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/lineage.h"
#include "engine/manager_core.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

RecordKind record_kind(StoredSnapshot::Kind kind) {
  switch (kind) {
    case StoredSnapshot::Kind::kTail:
      return RecordKind::kTail;
    case StoredSnapshot::Kind::kTailSibling:
      return RecordKind::kTailSibling;
    case StoredSnapshot::Kind::kPlain:
      break;
  }
  return RecordKind::kPlainSnapshot;
}

StoredSnapshot::Kind snapshot_kind(RecordKind kind) {
  switch (kind) {
    case RecordKind::kTail:
      return StoredSnapshot::Kind::kTail;
    case RecordKind::kTailSibling:
      return StoredSnapshot::Kind::kTailSibling;
    case RecordKind::kBlock:
    case RecordKind::kPlainSnapshot:
      break;
  }
  return StoredSnapshot::Kind::kPlain;
}

std::chrono::milliseconds left_until(Clock::time_point until) {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()),
                  std::chrono::milliseconds(0));
}

}  // namespace

// ---- Out of memory, into the store ----

std::size_t ManagerCore::evict_blocks(std::size_t count, std::uint64_t admission) {
  if (!has_store()) {
    const EvictedBlocks evicted = tree_.evict(count);
    counts_.evicted_blocks.add(evicted.size());
    evicted_memory_.blocks_left(evicted.physical, admission);
    forget_blocks(evicted.physical);
    drop_references(evicted.physical);
    return evicted.size();
  }
  settle_lost();
  std::vector<BlockId> left;
  left.reserve(count);
  BlockSpills victims;
  {
    const MutexLock lock(leaving_);
    spiller_->reserve(count);
    victims = tree_.evict_blocks_to_tier(count, options_.spill.block_tokens_min);
    announce(victims);
  }
  counts_.evicted_blocks.add(victims.blocks.size());
  for (const BlockSpill& victim : victims.blocks) left.push_back(victim.block);
  evicted_memory_.blocks_left(left, admission);
  const std::span<const TokenId> tokens = victims.tokens;
  for (std::size_t i = 0; i < victims.blocks.size(); ++i) {
    forget_blocks({&victims.blocks[i].block, 1});
    store_victim(victims.blocks[i], tokens.subspan(i * block_size(), block_size()));
  }
  return victims.blocks.size();
}

void ManagerCore::announce(BlockSpills& victims) noexcept {
  for (BlockSpill& victim : victims.blocks) {
    if (victim.action != BlockSpill::Action::kSpill || spiller_->announce(victim.key)) continue;
    tree_.forget_tier_key(victim.key);
    victim.action = BlockSpill::Action::kDrop;
  }
}

// Its reference is ours, or the spiller's.
void ManagerCore::store_victim(const BlockSpill& victim, std::span<const TokenId> tokens) noexcept {
  if (victim.action == BlockSpill::Action::kSpill) {
    try {
      RecordLineage lineage{.kind = RecordKind::kBlock, .parent = victim.parent, .first_token = victim.first_token};
      const bool used =
          options_.spill.block_uses_min <= 1 || block_uses_.get(victim.block) >= options_.spill.block_uses_min;
      if (used && describe(victim.adapter_id, tokens, adapters_, media_, lineage)) {
        spiller_->spill_block(victim.key, std::move(lineage), victim.block, options_.blocks);
        return;
      }
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
      // Without a record, then.
    }
    tree_.forget_tier_key(victim.key);
    spiller_->decline(victim.key);
  }
  drop_references({&victim.block, 1});
}

bool ManagerCore::evict_snapshot(std::uint64_t admission) {
  if (!has_store()) {
    const std::optional<SnapshotId> evicted = tree_.evict_snapshot_lru();
    if (!evicted) return false;
    counts_.evicted_snapshots.add(1);
    evicted_memory_.snapshot_left(*evicted, EvictedMemory::How::kEvicted, admission);
    free_slot(*evicted);
    return true;
  }
  settle_lost();
  const std::optional<TierEvict> victim = take_snapshot();
  if (!victim) return false;
  counts_.evicted_snapshots.add(1);
  evicted_memory_.snapshot_left(victim->slot, EvictedMemory::How::kEvicted, admission);
  if (victim->action == TierEvict::Action::kDrop) {
    free_slot(victim->slot);
  } else {
    static_cast<void>(spill_snapshot(victim->key, victim->slot));  // if it is lost, it has to be computed again
  }
  return true;
}

std::optional<TierEvict> ManagerCore::take_snapshot() {
  const MutexLock lock(leaving_);
  spiller_->reserve(1);
  const std::optional<TierEvict> victim = tree_.evict_snapshot_to_tier(options_.spill.snapshot_tokens_min);
  // Its key is new each time, so no earlier record of it is under way.
  if (victim && victim->action == TierEvict::Action::kSpill) CAIRN_CHECK(spiller_->announce(victim->key));
  return victim;
}

// None if it was swept or replaced meanwhile, or nobody can find it any more.
std::optional<RecordLineage> ManagerCore::snapshot_lineage(TierKey key, bool from_start) {
  const auto snapshot = tree_.spilled_snapshot(key, from_start);
  RecordLineage lineage;
  if (!snapshot || !describe(snapshot->adapter_id, snapshot->tokens, adapters_, media_, lineage)) return std::nullopt;
  lineage.kind = record_kind(snapshot->kind);
  lineage.parent = snapshot->parent;
  lineage.first_token = snapshot->first_token;
  lineage.session = snapshot->session_hash;
  return lineage;
}

// Takes over the slot. Whether the snapshot is on its way.
bool ManagerCore::spill_snapshot(TierKey key, SnapshotId slot) noexcept {
  try {
    // Without blocks to hang on it has all of its tokens with it. One of too many is stored for this process alone.
    const bool from_start = options_.blocks == nullptr;
    std::optional<RecordLineage> lineage = snapshot_lineage(key, from_start);
    if (lineage && from_start && !options_.store->buffers()->fits(*lineage)) lineage = snapshot_lineage(key, false);
    if (lineage) return spiller_->spill_snapshot(key, *std::move(lineage), slot, options_.snapshots);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // Without a record, then.
  }
  tree_.forget_tier_key(key);
  spiller_->decline(key);
  free_slot(slot);
  return false;
}

void ManagerCore::write_through(const PrefixHandle& handle, std::size_t new_blocks) noexcept {
  if (!has_store() || !options_.spill.write_through) return;
  try {
    // The handle keeps them in the cache meanwhile; a clear keeps its blocks for the lease that has it.
    BlockSpills unsaved;
    {
      const MutexLock lock(leaving_);
      spiller_->reserve(new_blocks);
      unsaved = tree_.save_blocks(handle, new_blocks, options_.spill.block_tokens_min,
                                  handle.tokens() - new_blocks * block_size());
      announce(unsaved);
    }
    const std::span<const TokenId> tokens = unsaved.tokens;
    for (std::size_t i = 0; i < unsaved.blocks.size(); ++i) {
      options_.blocks->add_references({&unsaved.blocks[i].block, 1});
      store_victim(unsaved.blocks[i], tokens.subspan(i * block_size(), block_size()));
    }
  } catch (const std::bad_alloc&) {
    return;  // they are stored when they are evicted
  }
}

void ManagerCore::settle_lost() noexcept {
  try {
    for (const TierKey key : spiller_->take_lost()) forget_record(key);
    std::vector<TierKey> orphaned;
    {
      const MutexLock lock(leaving_);
      orphaned = tree_.take_orphaned_tier_keys();
    }
    spiller_->erase(orphaned);
  } catch (const std::bad_alloc&) {
    return;  // find_record forgets what is left
  }
}

void ManagerCore::forget_record(TierKey key) noexcept {
  spiller_->erase({&key, 1});
  tree_.forget_tier_key(key);
}

std::optional<Tier> ManagerCore::find_record(TierKey key) noexcept {
  const std::optional<Tier> tier = options_.store->touch(key);
  if (!tier && !spiller_->is_under_way(key)) forget_record(key);
  return tier;
}

// ---- From the store, at the start ----

void ManagerCore::recover() {
  std::vector<SpillStore::Recovered> records = options_.store->take_recovered();
  // What others hang on comes first. Of a session's tails the newest counts: it has the largest key.
  std::ranges::sort(records, [](const SpillStore::Recovered& a, const SpillStore::Recovered& b) {
    const bool a_is_block = a.lineage.kind == RecordKind::kBlock;
    const bool b_is_block = b.lineage.kind == RecordKind::kBlock;
    if (a_is_block != b_is_block) return a_is_block;
    if (a_is_block && a.lineage.first_token != b.lineage.first_token) {
      return a.lineage.first_token < b.lineage.first_token;
    }
    return a.key > b.key;
  });
  std::vector<TierKey> useless;
  for (const SpillStore::Recovered& record : records) {
    const bool is_block = record.lineage.kind == RecordKind::kBlock;
    bool is_known = false;
    try {
      is_known = is_block ? recover_block(record) : recover_snapshot(record);
    } catch (const std::invalid_argument&) {
      is_known = false;  // a store of somebody's own may have anything
    }
    if (is_known) {
      (is_block ? counts_.recovered_blocks : counts_.recovered_snapshots).add(1);
    } else {
      useless.push_back(record.key);
    }
  }
  counts_.useless_records.add(useless.size());
  spiller_->erase(useless);
}

bool ManagerCore::recover_block(const SpillStore::Recovered& record) {
  const std::optional<Identified> ids = identify(record.lineage, adapters_, media_);
  if (!ids || ids->tokens.size() != block_size()) return false;
  return tree_.register_stored_block(
      {.key = record.key, .parent = record.lineage.parent, .adapter_id = ids->adapter, .tokens = ids->tokens});
}

bool ManagerCore::recover_snapshot(const SpillStore::Recovered& record) {
  const std::optional<Identified> ids = identify(record.lineage, adapters_, media_);
  if (!ids) return false;
  return tree_.register_spilled_snapshot({.kind = snapshot_kind(record.lineage.kind),
                                          .key = record.key,
                                          .parent = record.lineage.parent,
                                          .adapter_id = ids->adapter,
                                          .session_hash = record.lineage.session,
                                          .tokens = ids->tokens});
}

// ---- Before the end ----

bool ManagerCore::flush(std::chrono::milliseconds timeout) {
  if (!has_store()) return true;
  const Clock::time_point until = Clock::now() + timeout;
  settle_lost();
  return spiller_->wait(until) && options_.store->flush(left_until(until));
}

SaveReport ManagerCore::save(std::chrono::milliseconds timeout) {
  SaveReport report;
  if (!has_store()) return report;
  const Clock::time_point until = Clock::now() + timeout;
  settle_lost();
  const Spiller::Counts& counts = spiller_->counts();
  const std::uint64_t blocks_before = counts.blocks.get();
  const std::uint64_t snapshots_before = counts.snapshots.get();
  if (has_blocks()) save_blocks(until, report);
  if (has_snapshots()) save_snapshots(until, report);
  report.flushed = flush(left_until(until));
  // What was handed over and not taken is lost as well.
  const auto settle = [](std::size_t& stored, std::size_t& lost, std::uint64_t taken) {
    const std::size_t handed = stored;
    stored = std::min<std::size_t>(handed, taken);
    lost += handed - stored;
  };
  settle(report.blocks, report.blocks_lost, counts.blocks.get() - blocks_before);
  settle(report.snapshots, report.snapshots_lost, counts.snapshots.get() - snapshots_before);
  settle_lost();
  return report;
}

void ManagerCore::save_blocks(Clock::time_point until, SaveReport& report) {
  BlockSpills unsaved;
  {
    const MutexLock lock(leaving_);
    const std::size_t most = tree_.stats().cached_blocks;
    spiller_->reserve(most);
    unsaved = tree_.save_blocks(most, options_.spill.block_tokens_min);
    announce(unsaved);
    for (const BlockSpill& block : unsaved.blocks) options_.blocks->add_references({&block.block, 1});
  }
  const std::span<const TokenId> tokens = unsaved.tokens;
  for (std::size_t i = 0; i < unsaved.blocks.size(); ++i) {
    if (wait_for_room(RecordKind::kBlock, until)) {
      store_victim(unsaved.blocks[i], tokens.subspan(i * block_size(), block_size()));
      ++report.blocks;
    } else {
      tree_.forget_tier_key(unsaved.blocks[i].key);
      spiller_->decline(unsaved.blocks[i].key);
      drop_references({&unsaved.blocks[i].block, 1});
      ++report.blocks_lost;
    }
  }
}

void ManagerCore::save_snapshots(Clock::time_point until, SaveReport& report) {
  if (options_.store->stats().degraded) {
    report.snapshots_lost = tree_.snapshot_count();  // better in memory than nowhere
    return;
  }
  std::vector<TierEvict> victims;  // the least recently used first
  victims.reserve(options_.snapshots->total_slots());
  try {
    while (victims.size() < victims.capacity()) {
      const std::optional<TierEvict> victim = take_snapshot();
      if (!victim) break;
      victims.push_back(*victim);
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // Those that we have, then.
  }
  std::ranges::reverse(victims);
  for (const TierEvict& victim : victims) {
    if (victim.action == TierEvict::Action::kDrop) {
      free_slot(victim.slot);
    } else if (!wait_for_room(RecordKind::kPlainSnapshot, until)) {
      tree_.forget_tier_key(victim.key);
      spiller_->decline(victim.key);
      free_slot(victim.slot);
      ++report.snapshots_lost;
    } else if (spill_snapshot(victim.key, victim.slot)) {
      ++report.snapshots;
    } else {
      ++report.snapshots_lost;
    }
  }
}

// Until the store has a buffer to spare. What is announced and waits for room itself is not waited for.
bool ManagerCore::wait_for_room(RecordKind kind, Clock::time_point until) {
  constexpr int kTries = 3;
  for (int tries = 0; tries < kTries && Clock::now() < until; ++tries) {
    if (options_.store->buffers()->allocate(kind)) return true;
    if (!spiller_->wait_for_copies(until) || !options_.store->flush(left_until(until))) break;
  }
  return false;
}

void ManagerCore::add_tier_stats(ManagerStats& stats) const {
  const Spiller::Counts& spilled = spiller_->counts();
  stats.spilled_blocks = spilled.blocks.get();
  stats.spilled_snapshots = spilled.snapshots.get();
  stats.spilled_bytes = spilled.bytes.get();
  stats.declined_spills = spilled.declined.get();
  stats.fetches = counts_.fetches.get();
  stats.failed_fetches = counts_.failed_fetches.get();
  stats.unprofitable_fetches = counts_.unprofitable_fetches.get();
  stats.fetched_blocks = counts_.fetched_blocks.get();
  stats.fetched_snapshots = counts_.fetched_snapshots.get();
  stats.fetched_bytes = counts_.fetched_bytes.get();
  stats.recovered_blocks = counts_.recovered_blocks.get();
  stats.recovered_snapshots = counts_.recovered_snapshots.get();
  stats.useless_records = counts_.useless_records.get();
  stats.ram_fetch_bytes_per_s = fetch_cost_.ram_bytes_per_s();
  stats.file_fetch_bytes_per_s = fetch_cost_.file_bytes_per_s();
  stats.prefill_tokens_per_s = fetch_cost_.prefill_tokens_per_s();
  stats.loading_leases = counts_.loading.get();
  stats.recorded_blocks = tree_.recorded_blocks();
}

}  // namespace cairn
