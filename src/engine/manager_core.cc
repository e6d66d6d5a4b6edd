#include "engine/manager_core.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "base/hash_seed.h"
#include "base/refuse.h"
#include "engine/lease_body.h"

namespace cairn {
namespace {

// A record must be what the pools have.
void check_store(const CacheManagerOptions& options) {
  const SpillLayout& layout = options.store->buffers()->layout();
  const auto check = [](const char* name, std::size_t in_store, std::size_t here) {
    if (in_store == here) return;
    refuse("store", std::string("its ") + name + " is " + std::to_string(in_store) + ", but here it is " +
                        std::to_string(here));
  };
  if (options.blocks && options.blocks->block_bytes() == 0) {
    refuse("store, blocks", "these blocks have no bytes that could be stored (block_bytes is 0)");
  }
  check("block_size", layout.block_size, options.block_size);
  check("block_bytes", layout.block_bytes, options.blocks ? options.blocks->block_bytes() : 0);
  check("snapshot_bytes", layout.snapshot_bytes, options.snapshots ? options.snapshots->slot_bytes() : 0);
  if (options.spill.fetch_depth == 0) refuse("spill.fetch_depth", "0: a fetch asks for at least one record at once");
}

// What the eviction of a snapshot frees is its slot.
SnapshotPolicyOptions policy_options(const CacheManagerOptions& options) {
  SnapshotPolicyOptions policy = options.snapshot_policy_options;
  if (options.snapshots) policy.snapshot_bytes = options.snapshots->slot_bytes();
  return policy;
}

CacheManagerOptions checked(CacheManagerOptions options) {
  if (options.block_size == 0) refuse("block_size", "0: a block has at least one token");
  if (!options.blocks && !options.snapshots) {
    refuse("blocks, snapshots", "neither is given; a model has attention layers, recurrent layers or both");
  }
  if (options.sliding_window_tokens != 0) {
    refuse("sliding_window_tokens", std::to_string(options.sliding_window_tokens) +
                                        ": sliding-window layers are not supported yet; give 0 and keep their blocks "
                                        "outside of the cache");
  }
  if (options.checkpoint_every_tokens % options.block_size != 0) {
    refuse("checkpoint_every_tokens", std::to_string(options.checkpoint_every_tokens) +
                                          " is not a multiple of block_size, " + std::to_string(options.block_size));
  }
  if (options.store) check_store(options);
  return options;
}

}  // namespace

ManagerCore::ManagerCore(CacheManagerOptions options)
    : options_(checked(std::move(options))),
      tree_({.block_size = options_.block_size,
             .share_snapshots_across_sessions = options_.share_snapshots_across_sessions,
             .first_tier_key = options_.store ? options_.store->first_key() : 1,
             .hash_seed = options_.hash_seed,
             .block_policy = options_.block_policy,
             .pinned_blocks_max = options_.pinned_blocks_max,
             .clock = options_.clock,
             .snapshot_policy = options_.snapshot_policy,
             .snapshot_policy_options = policy_options(options_)}),
      adapters_({.first_id = 1, .last_id = std::numeric_limits<AdapterId>::max(), .idle_max = options_.adapters_max},
                choose_hash_seed(options_.hash_seed)),
      media_({.first_id = kFirstContentToken,
              .last_id = std::numeric_limits<TokenId>::max(),
              .idle_max = options_.media_max},
             choose_hash_seed(options_.hash_seed)),
      evicted_memory_({.blocks = has_blocks() ? options_.blocks->total_blocks() : 0,
                       .slots = has_snapshots() ? options_.snapshots->total_slots() : 0,
                       .remembered_max = options_.evictions_remembered_max}),
      branch_sights_(has_blocks() && has_snapshots() ? options_.blocks->total_blocks() : 0),
      snapshot_kinds_(has_snapshots() ? options_.snapshots->total_slots() : 0),
      block_uses_(has_store() && has_blocks() && options_.spill.block_uses_min > 1 ? options_.blocks->total_blocks()
                                                                                   : 0),
      size_estimator_(options_.estimate_sizes && has_blocks() ? options_.blocks->total_blocks() : 0,
                      options_.block_size, choose_hash_seed(options_.hash_seed)),
      fetch_cost_(options_.spill),
      spiller_(options_.store ? std::make_shared<Spiller>(options_.store) : nullptr),
      histograms_(options_.histograms) {
  if (!has_store()) return;
  if (!options_.store->claim()) refuse("store", "has a manager, or has had one: open it again for another one");
  recover();
}

ManagerCore::~ManagerCore() {
  // Nobody holds a handle or a pin any more. Evicting in pieces needs no memory for everything at once.
  constexpr std::size_t kPiece = 1024;
  try {
    tree_.unpin_prefixes();
    for (;;) {
      const EvictedBlocks evicted = tree_.evict(kPiece);
      if (evicted.empty()) break;
      drop_references(evicted.physical);
    }
    while (const auto slot = tree_.evict_snapshot_lru()) free_slot(*slot);
  } catch (const std::bad_alloc&) {
    return;  // the pools keep what is left as used: they say so, and nothing is handed out twice
  }
}

// ---- Blocks and slots ----

std::size_t ManagerCore::allocate(std::size_t count, std::vector<BlockId>& table, std::uint64_t admission) {
  BlockAllocator& blocks = *options_.blocks;
  // What can't be had is not worth evicting for.
  if (const std::size_t most = blocks.free_blocks() + tree_.stats().cached_blocks; count > most) return count - most;
  // Others may take what was evicted for us. They make progress then; we try again for a while.
  constexpr int kTries = 8;
  for (int tries = 0; tries < kTries; ++tries) {
    if (blocks.allocate(count, table)) return took_blocks(std::span(table).last(count));
    const std::size_t leaving = has_store() ? spiller_->blocks_leaving() : 0;
    const std::size_t coming = std::min(count - 1, blocks.free_blocks()) + leaving;
    if (coming >= count || evict_blocks(count - coming, admission) == 0) break;
  }
  if (blocks.allocate(count, table)) return took_blocks(std::span(table).last(count));
  return count - std::min(count - 1, blocks.free_blocks());
}

std::size_t ManagerCore::took_blocks(std::span<const BlockId> blocks) noexcept {
  block_uses_.begin(blocks);
  return 0;
}

void ManagerCore::drop_references(std::span<const BlockId> blocks) noexcept {
  if (!blocks.empty()) options_.blocks->drop_references(blocks);
}

std::optional<SnapshotId> ManagerCore::allocate_slot(std::uint64_t admission) {
  SnapshotPool& pool = *options_.snapshots;
  // An evicted slot is free at once only if nobody is reading it.
  constexpr int kTries = 4;
  for (int tries = 0; tries < kTries; ++tries) {
    if (const auto slot = pool.allocate()) return slot;
    if ((has_store() && spiller_->slots_leaving() > 0) || !evict_snapshot(admission)) break;
  }
  return pool.allocate();
}

void ManagerCore::free_slot(SnapshotId slot) noexcept {
  evicted_memory_.set_snapshot(slot, {});  // before another one has it
  options_.snapshots->free(slot);
}

void ManagerCore::drop_unused_eras() noexcept {
  for (auto blocks = eras_.take_unused(); !blocks.empty(); blocks = eras_.take_unused()) drop_references(blocks);
}

// ---- Steps and ends ----

void ManagerCore::end(std::unique_ptr<Lease::Body> body) noexcept {
  Lease::Body* const waiting = body.release();
  if (waiting->park()) return;
  delete waiting;  // NOLINT(cppcoreguidelines-owning-memory): the step owns what is parked
}

void ManagerCore::take_up(Parkable* parked) noexcept {
  while (parked != nullptr) {
    Parkable* const next = Steps::next_parked(parked);
    end(std::unique_ptr<Lease::Body>(static_cast<Lease::Body*>(parked)));
    parked = next;
  }
}

void ManagerCore::step_over(StepId step, Step::State how) noexcept {
  const std::optional<Steps::Over> over = steps_.over(step, how);
  if (!over) return;
  if (how == Step::State::kFailed) counts_.failed_steps.add(1);
  if (how == Step::State::kDone) fetch_cost_.prefilled(over->tokens, over->seconds);
  take_up(over->parked);
}

void ManagerCore::close() noexcept {
  closed_.store(true, std::memory_order_relaxed);
  while (const std::optional<Steps::Over> over = steps_.close_one()) take_up(over->parked);
}

// ---- Clearing ----

ClearReport ManagerCore::clear() {
  ClearReport report{.adapters = 1 + adapters_.size()};
  eras_.prepare_close();
  give_back(clear_index(std::nullopt), report);
  drop_cleared_pins();
  return report;
}

ClearReport ManagerCore::clear(std::string_view adapter) {
  // Names that come from now on have nothing cached from before.
  std::vector<AdapterId> ids;
  if (adapter.empty()) ids.push_back(0);
  adapters_.for_each([&](const AdapterView& name, AdapterId id) {
    if (name.adapter == adapter) ids.push_back(id);
  });
  ClearReport report{.adapters = ids.size()};
  for (const AdapterId id : ids) {
    eras_.prepare_close();
    give_back(clear_index(id), report);
  }
  drop_cleared_pins();
  // Also under names that have been forgotten here: they are in the records, and would be known after a restart.
  if (has_store()) spiller_->erase_adapter(adapter);
  return report;
}

Cleared ManagerCore::clear_index(std::optional<AdapterId> id) {
  const MutexLock lock(leaving_);
  return id ? tree_.clear(*id) : tree_.clear();
}

void ManagerCore::give_back(Cleared cleared, ClearReport& report) noexcept {
  report.blocks += cleared.blocks.physical.size();
  report.snapshots += cleared.slots.size();
  report.records += cleared.tier_keys.size();
  if (has_store()) spiller_->erase(cleared.tier_keys);
  forget_blocks(cleared.blocks.physical);
  for (const SnapshotId slot : cleared.slots) free_slot(slot);
  eras_.close(std::move(cleared.blocks.physical));
  drop_unused_eras();
  report.blocks_held = eras_.held_blocks();
}

// ---- Watching ----

ManagerStats ManagerCore::stats() const {
  ManagerStats stats;
  stats.requests = counts_.requests.get();
  stats.resumed = counts_.resumed.get();
  stats.reused_from_memory_tokens = counts_.memory_tokens.get();
  stats.reused_from_ram_tier_tokens = counts_.ram_tier_tokens.get();
  stats.reused_from_file_tier_tokens = counts_.file_tier_tokens.get();
  stats.reused_tokens =
      stats.reused_from_memory_tokens + stats.reused_from_ram_tier_tokens + stats.reused_from_file_tier_tokens;
  stats.computed_tokens = counts_.computed_tokens.get();
  stats.prompt_tokens = stats.reused_tokens + stats.computed_tokens;
  stats.matched_tokens = counts_.matched_tokens.get();
  stats.stateless_tokens = counts_.stateless_tokens.get();
  stats.uncacheable_media = counts_.uncacheable_media.get();
  stats.refused_admissions = counts_.refused_admissions.get();
  stats.refused_reserves = counts_.refused_reserves.get();
  stats.published_blocks = counts_.published_blocks.get();
  stats.deduplicated_blocks = counts_.deduplicated_blocks.get();
  stats.evicted_blocks = counts_.evicted_blocks.get();
  stats.captures_published = counts_.captures_published.get();
  stats.captures_declined = counts_.captures_declined.get();
  stats.captures_abandoned = counts_.captures_abandoned.get();
  stats.evicted_snapshots = counts_.evicted_snapshots.get();
  if (has_snapshots()) stats.captures = snapshot_kinds_.stats(options_.snapshots->slot_bytes());
  stats.finished = counts_.finished.get();
  stats.preempted = counts_.preempted.get();
  stats.abandoned = counts_.abandoned.get();
  stats.forks = counts_.forks.get();
  stats.failed_steps = counts_.failed_steps.get();
  stats.waits = counts_.waits.get();
  if (has_store()) add_tier_stats(stats);
  stats.waiting_for_steps = steps_.parked_count();
  stats.live_leases = counts_.live_leases.get();
  stats.live_leases -= std::min(stats.live_leases, stats.waiting_for_steps);
  const RadixTreeCounters counters = tree_.counters();
  stats.pinned_snapshots = counters.pinned_snapshots;
  stats.resident_snapshot_bytes = counters.resident_snapshot_bytes;
  stats.steps_in_flight = steps_.count();
  stats.blocks_held_by_clears = eras_.held_blocks();
  return stats;
}

std::string ManagerCore::validate() const {
  std::string wrong = tree_.validate();
  if (!wrong.empty()) return "index: " + wrong;
  if (wrong = size_estimator_.validate(); !wrong.empty()) return "size estimator: " + wrong;
  if (const auto* pool = dynamic_cast<const BlockPool*>(options_.blocks.get())) {
    if (wrong = pool->validate(); !wrong.empty()) return "block pool: " + wrong;
    if (const PoolErrors errors = pool->errors(); !errors.last.empty()) return "block pool refused: " + errors.last;
  }
  if (!has_snapshots()) return {};
  if (wrong = options_.snapshots->validate(); !wrong.empty()) return "snapshot pool: " + wrong;
  const PoolErrors errors = options_.snapshots->errors();
  return errors.last.empty() ? std::string() : "snapshot pool refused: " + errors.last;
}

}  // namespace cairn
