// A lease that waits for a store: what is worth fetching, and what becomes of it when it has come.
#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/refuse.h"
#include "engine/lease_body.h"

namespace cairn {

// ---- What is worth fetching ----

void Lease::Body::choose_fetch(std::span<const TokenId> prompt, std::size_t limit) {
  ManagerCore& core = *core_;
  const std::size_t matched = handle_.tokens();
  const std::size_t base = core.has_snapshots() ? restore_tokens_ : matched;
  Loading loading{.block_keys = std::exchange(stored_blocks_, {})};
  try {
    if (!find_records(prompt, limit, loading)) return;
    const FetchBytes bytes = bytes_of(loading);
    bool worth_it = core.fetch_cost().pays(bytes, loading.tokens - base);
    if (!worth_it) core.counts().unprofitable_fetches.add(1);
    if (worth_it && loading.snapshot_key) {
      const std::optional<SnapshotId> slot = core.allocate_slot(noted_.admission);
      worth_it = slot.has_value();
      loading.slot = slot.value_or(0);
    }
    if (worth_it) {
      loading_ = std::move(loading);
    } else {
      let_go(loading.pin);
    }
  } catch (...) {
    let_go(loading.pin);  // nobody else knows of it
    throw;
  }
}

// How far the records reach that are really there, and no further than they are needed. False if that is not beyond
// what memory has.
bool Lease::Body::find_records(std::span<const TokenId> prompt, std::size_t limit, Loading& loading) {
  ManagerCore& core = *core_;
  const std::size_t block_size = core.block_size();
  const std::size_t matched = handle_.tokens();
  const std::size_t base = core.has_snapshots() ? restore_tokens_ : matched;
  std::vector<TierKey>& keys = loading.block_keys;
  // A record that is evicted for what we store to make room for it would be a bad bargain: what was looked at last is
  // evicted last.
  for (bool all_there = false; !all_there;) {
    const std::size_t reach = core.has_blocks() ? std::min(limit, matched + keys.size() * block_size) : limit;
    loading.tokens = reach;
    if (core.has_snapshots() && !choose_state(prompt, loading, reach)) return false;
    if (loading.tokens <= base) break;
    if (!core.has_blocks()) return true;
    const std::size_t needed = core.blocks_for(loading.tokens);
    keys.resize(needed - std::min(needed, matched / block_size));
    loading.block_tiers.resize(keys.size());
    std::size_t there = 0;
    for (; there < keys.size(); ++there) {
      const std::optional<Tier> tier = core.find_record(keys[there]);
      if (!tier) break;
      loading.block_tiers[there] = *tier;
    }
    all_there = there == keys.size();
    keys.resize(there);
  }
  if (loading.tokens > base && (!keys.empty() || loading.snapshot_key)) return true;
  let_go(loading.pin);
  return false;
}

FetchBytes Lease::Body::bytes_of(const Loading& loading) const {
  FetchBytes bytes;
  for (std::size_t i = 0; i < loading.block_keys.size(); ++i) {
    bytes.add(loading.block_tiers[i], core_->options().blocks->block_bytes());
  }
  if (loading.snapshot_key) bytes.add(loading.snapshot_tier, core_->options().snapshots->slot_bytes());
  return bytes;
}

// The deepest state within `reach` that is there, if it is deeper than the one in memory.
bool Lease::Body::choose_state(std::span<const TokenId> prompt, Loading& loading, std::size_t reach) {
  let_go(loading.pin);
  loading.snapshot_key.reset();
  constexpr int kTries = 8;
  std::size_t most = reach;
  for (int tries = 0; tries < kTries && most > restore_tokens_; ++tries) {
    auto [found, pin] = core_->tree().find_snapshot(prompt.first(most), {.session_hash = names_.session,
                                                                         .adapter_id = names_.adapter,
                                                                         .max_snapshot_tokens = most,
                                                                         .pin_snapshot = true});
    loading.tokens = found.tokens;
    // What a clear has let others put since the handle was made would not go with the handle's blocks.
    const bool is_of_now = core_->tree().epoch(names_.adapter) == handle_.epoch();
    if (found.tokens <= restore_tokens_ || !is_of_now) {
      let_go(pin);
      return false;
    }
    if (found.slot) {
      loading.pin = std::move(pin);
      return true;
    }
    if (const std::optional<Tier> tier = core_->find_record(*found.tier_key)) {
      loading.snapshot_key = found.tier_key;
      loading.snapshot_tier = *tier;
      return true;
    }
    most = found.tokens - 1;  // on its way to the store, or gone
  }
  return false;
}

// ---- Beginning ----

void Lease::Body::admitted(const Admitted& admitted) {
  if (admitted.counts) {
    const std::size_t matched = admitted.matched_tokens / core_->block_size();
    core_->size_estimator().use(sampled_, matched);
    asked_ = {.from = matched, .to = admitted.asked_blocks};
  }
  prioritize(0);
  if (core_->options().spill.block_uses_min > 1) {
    core_->block_uses().use(std::span(table_).first(std::min(table_.size(), handle_.tokens() / core_->block_size())));
  }
  if (loading_) {
    loading_->admitted = admitted;
    start_fetch();
    try {
      settle_fetch();
    } catch (const std::bad_alloc&) {
      return;  // the admission stands: the next call takes note of it
    }
    return;
  }
  plan(admitted.matched_tokens, admitted.second_sight);
  count(admitted, 0, 0);
}

void Lease::Body::start_fetch() {
  const CacheManagerOptions& options = core_->options();
  const auto first = table_.begin() + static_cast<std::ptrdiff_t>(handle_.tokens() / core_->block_size());
  const auto count = static_cast<std::ptrdiff_t>(loading_->block_keys.size());
  FetchPlan plan{.block_keys = loading_->block_keys,
                 .blocks = count > 0 ? std::vector<BlockId>(first, first + count) : std::vector<BlockId>(),
                 .snapshot_key = loading_->snapshot_key,
                 .slot = loading_->slot,
                 .depth = options.spill.fetch_depth};
  static_cast<void>(load());  // makes it
  auto fetch = std::make_shared<Fetch>(options.store, options.blocks, options.snapshots, std::move(plan), load_);
  core_->counts().fetches.add(1);
  core_->counts().loading.add(1);
  loading_->fetch = std::move(fetch);
  loading_->fetch->begin();
}

void Lease::Body::refuse_while_loading(const char* call) const {
  if (loading_) refuse(call, "the lease is loading: wait until state() is not kLoading");
  if (loading_failed_) {
    refuse(call,
           "what was to be fetched did not come, and there were no blocks to compute it: abandon the lease and admit "
           "the request again");
  }
}

LeaseState Lease::Body::state() const {
  if (loading_failed_) return LeaseState::kFailed;
  if (loading_) return LeaseState::kLoading;
  return load_ ? load_->state() : LeaseState::kReady;
}

// ---- When it has come ----

void Lease::Body::settle_fetch() {
  if (!loading_ || !loading_->fetch || !loading_->fetch->over()) return;
  ManagerCore& core = *core_;
  const Fetch::Outcome outcome = loading_->fetch->take_outcome();
  Loading loading = std::move(*loading_);
  loading_.reset();
  core.histograms().loaded(outcome.seconds);
  core.counts().loading.subtract(1);
  core.counts().fetched_blocks.add(outcome.blocks);
  core.counts().fetched_snapshots.add(outcome.snapshot ? 1 : 0);
  core.counts().fetched_bytes.add(outcome.bytes.ram + outcome.bytes.file);
  core.fetch_cost().fetched(outcome.bytes, outcome.seconds);
  for (const TierKey key : outcome.missing) core.forget_record(key);

  const std::size_t from_memory = first_;
  const std::size_t blocks_from = handle_.tokens();
  bool whole = outcome.blocks == loading.block_keys.size();
  if (!core.has_snapshots()) {
    start_at(blocks_from + outcome.blocks * core.block_size());
    publish_loaded();
  } else if (restore_loaded(loading, outcome)) {
    publish_loaded();
  } else {
    whole = false;
    loading_failed_ = !go_back_to_memory();
  }
  if (!whole) core.counts().failed_fetches.add(1);
  const ByTier tokens = by_tier(loading, outcome, from_memory, blocks_from);
  count(loading.admitted, tokens.ram, tokens.file);
  try {
    plan(std::max(loading.admitted.matched_tokens, first_), loading.admitted.second_sight);
  } catch (const std::bad_alloc&) {
    capture_points_.clear();  // snapshots less never fail a request
  }
}

// What is loaded is what others can use as well. If it can't be published, it stays our own.
void Lease::Body::publish_loaded() noexcept {
  try {
    publish(first_);
  } catch (const std::bad_alloc&) {
    return;
  }
}

// Of the state that was fetched, and is about to be promoted.
void Lease::Body::note_loaded(const Loading& loading) noexcept {
  if (!core_->evicted_memory().is_on()) return;
  try {
    const auto snapshot = core_->tree().spilled_snapshot(*loading.snapshot_key);
    if (!snapshot) return;
    note_snapshot(loading.slot, {.tokens = loading.tokens,
                                 .session = snapshot->session_hash,
                                 .is_tail = snapshot->kind == StoredSnapshot::Kind::kTail});
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // Its next eviction is not remembered, then.
  }
}

// Goes on from the state that was fetched for. False if it is not there, or the blocks below it are not.
bool Lease::Body::restore_loaded(Loading& loading, const Fetch::Outcome& outcome) {
  ManagerCore& core = *core_;
  if (loading.snapshot_key) {
    const bool complete = outcome.snapshot && core.options().snapshots->commit(loading.slot);
    core.snapshot_kinds().set(loading.slot, SnapshotOrigin::kStore);
    if (complete) note_loaded(loading);
    if (complete) loading.pin = core.tree().promote_and_pin(*loading.snapshot_key, loading.slot);
    if (loading.pin.valid()) {
      core.erase_record(*loading.snapshot_key);  // the key is dead: the next spill has another
    } else {
      core.free_slot(loading.slot);
    }
  }
  if (!loading.pin.valid()) {
    // Another lease may have been first.
    const auto tokens = std::span<const TokenId>(tokens_).first(loading.tokens);
    auto [found, pin] = core.tree().find_snapshot(tokens, {.session_hash = names_.session,
                                                           .adapter_id = names_.adapter,
                                                           .pin_snapshot = true,
                                                           .resident_snapshots_only = true});
    if (pin.valid() && found.tokens < loading.tokens) let_go(pin);
    loading.pin = std::move(pin);
  }
  // A state that was put after a clear does not go with the blocks of before.
  const bool is_of_now = core.tree().epoch(names_.adapter) == handle_.epoch();
  if (!loading.pin.valid() || !is_of_now || outcome.blocks < loading.block_keys.size()) {
    let_go(loading.pin);
    return false;
  }
  let_go(pin_);
  pin_ = std::move(loading.pin);
  restore_origin_ = core.snapshot_kinds().get(pin_.slot());
  restore_tokens_ = loading.tokens;
  start_at(loading.tokens);
  return true;
}

// Goes on from first_, where the state in memory is: blocks after that are to be computed, so they have to be our own.
// False if there are none to be had.
bool Lease::Body::go_back_to_memory() noexcept {
  ManagerCore& core = *core_;
  if (!core.has_blocks()) return true;
  const std::size_t block_size = core.block_size();
  const std::size_t partly = first_ % block_size;
  const std::size_t shared = first_ / block_size;
  const std::size_t held = handle_.tokens() / block_size;
  if (held == shared) {
    // What was to be copied ends in the same block as this state.
    if (partly == 0) drop_copies();
    for (BlockCopy& copy : copies_) copy.tokens = partly;
    return true;
  }
  std::vector<BlockId> own;
  try {
    make_room(copies_, 1);
    if (core.allocate(held - shared, own, noted_.admission) > 0) return false;
    // The handle keeps the block that is copied from until it is shorter; the copy's own reference is taken before.
    if (partly > 0) core.options().blocks->add_references({&table_[shared], 1});
    core.tree().truncate(handle_, shared * block_size);
  } catch (const std::bad_alloc&) {
    if (partly > 0 && !own.empty()) core.drop_references({&table_[shared], 1});
    core.drop_references(own);
    return false;
  }
  drop_copies();
  if (partly > 0) copies_.push_back({.from = table_[shared], .to = own.front(), .tokens = partly});
  std::ranges::copy(own, table_.begin() + static_cast<std::ptrdiff_t>(shared));
  return true;
}

// Which of the tokens from `from_memory` to first_ owe their reuse to which tier: the one their block came from, or
// else the one the state came from.
Lease::Body::ByTier Lease::Body::by_tier(const Loading& loading, const Fetch::Outcome& outcome,
                                         std::size_t from_memory, std::size_t blocks_from) const {
  ByTier tokens;
  const auto add = [&tokens](Tier tier, std::size_t from, std::size_t to) {
    if (from < to) (tier == Tier::kRam ? tokens.ram : tokens.file) += to - from;
  };
  const Tier of_state = loading.snapshot_key          ? outcome.snapshot_tier
                        : outcome.block_tiers.empty() ? Tier::kRam
                                                      : outcome.block_tiers.front();
  // Without blocks from the store all that is new is the state's doing, the block that is copied included.
  add(of_state, from_memory, outcome.blocks == 0 ? first_ : std::min(blocks_from, first_));
  for (std::size_t i = 0; i < outcome.blocks; ++i) {
    const std::size_t from = blocks_from + i * core_->block_size();
    add(outcome.block_tiers[i], std::max(from, from_memory), std::min(from + core_->block_size(), first_));
  }
  return tokens;
}

void Lease::Body::count(const Admitted& admitted, std::size_t from_ram, std::size_t from_file) noexcept {
  if (!admitted.counts) return;
  ManagerCounts& counts = core_->counts();
  const std::size_t matched = std::max(admitted.matched_tokens, core_->has_blocks() ? first_ : 0);
  counts.requests.add(1);
  counts.memory_tokens.add(first_ - from_ram - from_file);
  counts.ram_tier_tokens.add(from_ram);
  counts.file_tier_tokens.add(from_file);
  counts.computed_tokens.add(prompt_ - first_);
  counts.matched_tokens.add(matched);
  core_->histograms().matched(matched);
  counts.stateless_tokens.add(matched - std::min(matched, first_));
  if (core_->has_snapshots() && first_ > 0) core_->snapshot_kinds().used(restore_origin_, first_);
}

// The lease goes, or does without.
void Lease::Body::give_up_loading(Loading& loading) noexcept {
  bool filling = false;
  if (loading.fetch) {
    core_->counts().loading.subtract(1);
    const std::size_t held = core_->has_blocks() ? published() / core_->block_size() : 0;
    table_.erase(table_.begin(), table_.begin() + static_cast<std::ptrdiff_t>(std::min(held, table_.size())));
    filling = loading.fetch->take_over(table_);
    if (!filling) core_->drop_references(table_);
    table_.clear();
    count(loading.admitted, 0, 0);
  }
  if (loading.snapshot_key && !filling) core_->free_slot(loading.slot);
  let_go(loading.pin);
}

}  // namespace cairn
