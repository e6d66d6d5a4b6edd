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
  const std::size_t block_size = core.block_size();
  const std::size_t matched = handle_.tokens();
  const std::size_t base = core.has_snapshots() ? restore_tokens_ : matched;
  Loading loading{.block_keys = std::exchange(stored_blocks_, {})};
  std::vector<TierKey>& keys = loading.block_keys;
  for (bool all_there = false; !all_there;) {
    const std::size_t reach = core.has_blocks() ? std::min(limit, matched + keys.size() * block_size) : limit;
    loading.tokens = reach;
    if (core.has_snapshots() && !choose_state(prompt, loading, reach)) return;
    if (loading.tokens <= base) return;
    if (!core.has_blocks()) break;
    const std::size_t needed = core.blocks_for(loading.tokens);
    keys.resize(needed - std::min(needed, matched / block_size));
    // A record that is evicted to make room for what we store to make room for it would be a bad bargain: what was
    // touched last is evicted last.
    const auto gone = std::ranges::find_if(keys, [&](TierKey key) { return !core.options().store->touch(key); });
    all_there = gone == keys.end();
    keys.erase(gone, keys.end());
  }
  std::size_t bytes = 0;
  if (core.has_blocks()) bytes += keys.size() * core.options().blocks->block_bytes();
  if (loading.snapshot_key) bytes += core.options().snapshots->slot_bytes();
  bool worth_it = core.fetch_cost().pays(bytes, loading.tokens - base);
  if (!worth_it) core.counts().unprofitable_fetches.add(1);
  if (worth_it && loading.snapshot_key) {
    const std::optional<SnapshotId> slot = core.allocate_slot();
    worth_it = slot.has_value();
    loading.slot = slot.value_or(0);
  }
  if (worth_it) {
    loading_ = std::move(loading);
  } else {
    let_go(loading.pin);
  }
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
    if (found.tokens <= restore_tokens_) {
      let_go(pin);
      return false;
    }
    if (found.slot) {
      loading.pin = std::move(pin);
      return true;
    }
    if (core_->options().store->touch(*found.tier_key)) {
      loading.snapshot_key = found.tier_key;
      return true;
    }
    most = found.tokens - 1;  // on its way to the store, or gone
  }
  return false;
}

// ---- Beginning ----

void Lease::Body::admitted(const Admitted& admitted) {
  if (loading_) {
    loading_->admitted = admitted;
    start_fetch();
    settle_fetch();
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

  core.counts().loading.subtract(1);
  core.counts().fetched_blocks.add(outcome.blocks);
  core.counts().fetched_snapshots.add(outcome.snapshot ? 1 : 0);
  core.counts().fetched_bytes.add(outcome.bytes);
  core.fetch_cost().fetched(outcome.bytes, outcome.seconds);
  for (const TierKey key : outcome.missing) core.tree().forget_tier_key(key);
  const bool whole = outcome.blocks == loading.block_keys.size() && (outcome.snapshot || !loading.snapshot_key);
  if (!whole) core.counts().failed_fetches.add(1);

  const std::size_t from_memory = first_;
  const std::size_t blocks_from = handle_.tokens();
  const std::size_t blocks_to = blocks_from + outcome.blocks * core.block_size();
  if (core.has_blocks()) publish_loaded(std::min(blocks_to, std::max(blocks_from, loading.tokens)));
  if (!core.has_snapshots()) {
    start_at(blocks_to);
  } else if (!restore_loaded(loading, outcome)) {
    start_at(from_memory);
    loading_failed_ = !go_back_to_memory();
  }
  const ByTier tokens = by_tier(loading, outcome, from_memory, blocks_from);
  plan(std::max(loading.admitted.matched_tokens, first_), loading.admitted.second_sight);
  count(loading.admitted, tokens.ram, tokens.file);
}

// What is loaded is what others can use as well. If it can't be published, it stays our own.
void Lease::Body::publish_loaded(std::size_t tokens) noexcept {
  const std::size_t first = first_;
  start_at(tokens);
  fixed_ = first;
  try {
    publish(tokens);
  } catch (const std::bad_alloc&) {
    return;
  }
}

// Goes on from the state that was fetched for. False if it is not there, or the blocks below it are not.
bool Lease::Body::restore_loaded(Loading& loading, const Fetch::Outcome& outcome) {
  ManagerCore& core = *core_;
  if (loading.snapshot_key) {
    const bool complete = outcome.snapshot && core.options().snapshots->commit(loading.slot);
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
  if (!loading.pin.valid() || outcome.blocks < loading.block_keys.size()) {
    let_go(loading.pin);
    return false;
  }
  let_go(pin_);
  pin_ = std::move(loading.pin);
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
  try {
    make_room(copies_, 1);
    std::vector<BlockId> own;
    if (core.allocate(held - shared, own) > 0) return false;
    drop_copies();
    if (partly > 0) {
      core.options().blocks->add_references({&table_[shared], 1});
      copies_.push_back({.from = table_[shared], .to = own.front(), .tokens = partly});
    }
    std::ranges::copy(own, table_.begin() + static_cast<std::ptrdiff_t>(shared));
    core.tree().truncate(handle_, shared * block_size);
  } catch (const std::bad_alloc&) {
    return false;
  }
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
  add(of_state, from_memory, std::min(blocks_from, first_));
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
  counts.stateless_tokens.add(matched - std::min(matched, first_));
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
