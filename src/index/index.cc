#include "index/index.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace cairn {
namespace {

constexpr auto kNoPreparation = [](const BlockTrie::Walk&) {};

}  // namespace

Index::Index(const RadixTreeOptions& options, std::uint64_t hash_seed)
    : trie_(options, hash_seed, gate_),
      snapshots_(trie_, gate_, hash_seed, options),
      pinned_blocks_max_(options.pinned_blocks_max),
      time_(options.clock ? options.clock : [] { return std::chrono::steady_clock::now(); }) {}

// ---- Readers ----

template <class Prepare, class Effect>
void Index::read(AdapterId adapter_id, std::span<const TokenId> tokens, BlockTrie::Extent extent, Prepare prepare,
                 Effect effect) const {
  constexpr int kTriesBesideWriters = 8;
  Gate::Reader reader(gate_);
  for (int tries = 0; tries < kTriesBesideWriters; ++tries) {
    const BlockTrie::Walk walk = trie_.walk(adapter_id, tokens, extent);
    prepare(walk);
    Gate::Commit commit(gate_, reader);
    if (trie_.stands(walk)) return effect(walk, commit.counters());
  }
  // Writers keep changing the end of this walk. They are kept out for the length of one.
  Gate::Commit commit(gate_, reader);
  const BlockTrie::Walk walk = trie_.walk(adapter_id, tokens, extent);
  prepare(walk);
  effect(walk, commit.counters());
}

Index::Found Index::lookup(std::span<const TokenId> tokens, const ReadOptions& options, Claim claim) {
  Found found;
  if (!options.stored_blocks) {
    look_up<StoredBlocks::kIgnore>(tokens, options, claim, found);
    return found;
  }
  if (look_up<StoredBlocks::kStopIfAny>(tokens, options, claim, found)) return found;
  const MutexLock lock(writer_);  // blocks and records stay as they are from the walk to the commit
  look_up<StoredBlocks::kFind>(tokens, options, claim, found);
  return found;
}

template <Index::StoredBlocks kStored>
bool Index::look_up(std::span<const TokenId> tokens, const ReadOptions& options, Claim claim, Found& found) {
  bool stopped = false;  // NOLINT(misc-const-correctness): kStopIfAny sets it
  PrefixMatch& match = found.match;
  const AdapterId adapter_id = options.adapter_id;
  const auto prepare = [&](const BlockTrie::Walk& walk) {
    match.matched_blocks.resize(walk.blocks);
    match.matched_disk_block_ids.resize(trie_.any_disk_blocks() ? walk.blocks : 0);
    if constexpr (kStored == StoredBlocks::kFind) {
      found.stored_blocks = trie_.recorded_after(walk.at, adapter_id, tokens.subspan(walk.blocks * block_size()));
    }
  };
  const auto effect = [&](const BlockTrie::Walk& walk, Gate::ReaderCounters& counters) {
    if constexpr (kStored == StoredBlocks::kStopIfAny) {
      stopped =
          trie_.any_records() && trie_.is_kept_after(walk.at, adapter_id, tokens.subspan(walk.blocks * block_size()));
      if (stopped) return;
    }
    if (walk.blocks > 0) {
      if (trie_.any_disk_blocks()) match.matched_disk_block_ids.resize(walk.blocks);  // may be news since prepare
      const Stamp now = tick();
      trie_.claim(walk.at, claim, now);
      trie_.note_hit(walk.at, now);
      // From here on nothing fails.
      match.matched_tokens = walk.blocks * block_size();
      const bool any_disk = trie_.gather(walk.at, match.matched_blocks, match.matched_disk_block_ids);
      if (!any_disk) match.matched_disk_block_ids.clear();
      const std::size_t max_tokens = std::min(match.matched_tokens, options.max_snapshot_tokens);
      const auto snapshot = snapshots_.find_deepest(
          walk.at, {tokens, max_tokens, options.session_hash, adapter_id, options.resident_snapshots_only});
      if (snapshot != SnapshotTable::kNone) return_snapshot(snapshot, found, now, options);
    }
    found.end = walk.at;
    found.epoch = epoch_in_commit(adapter_id);
    ++counters.lookups;
    counters.hit_tokens += match.matched_tokens;
    counters.missed_tokens += tokens.size() - match.matched_tokens;
  };
  read(adapter_id, tokens, BlockTrie::Extent::kResident, prepare, effect);
  return !stopped;
}

bool Index::use_snapshot(SnapshotTable::Index index, Stamp now, const ReadOptions& options) {
  snapshots_.use(index, now, options.session_hash);
  count_hit(snapshots_[index]);
  if (!options.pin_snapshot || !snapshots_[index].resident) return false;
  snapshots_.pin(index);
  return true;
}

void Index::return_snapshot(SnapshotTable::Index index, Found& found, Stamp now, const ReadOptions& options) {
  const SpinLockGuard lock(snapshots_lock_);
  if (use_snapshot(index, now, options)) found.pinned = index;
  const SnapshotTable::Snapshot& snapshot = snapshots_[index];
  PrefixMatch& match = found.match;
  counters_.snapshot_gap_tokens += match.matched_tokens - snapshot.tokens;
  match.ssm_snapshot_is_tail = snapshot.kind == SnapshotKind::kTail;
  if (snapshot.resident) {
    match.ssm_snapshot = snapshot.slot;
    match.ssm_snapshot_tokens = snapshot.tokens;
  } else {
    match.ssm_snapshot_tier_key = snapshot.key;
    match.ssm_snapshot_tier_tokens = snapshot.tokens;
  }
}

void Index::count_hit(const SnapshotTable::Snapshot& snapshot) {
  switch (snapshot.kind) {
    case SnapshotKind::kPlain:
      ++counters_.plain_snapshot_hits;
      break;
    case SnapshotKind::kTail:
      ++counters_.tail_snapshot_hits;
      break;
    case SnapshotKind::kTailSibling:
      ++counters_.sibling_snapshot_hits;
      break;
  }
  if (!snapshot.resident) ++counters_.spilled_snapshot_hits;
}

std::size_t Index::peek(std::span<const TokenId> tokens, AdapterId adapter_id) const {
  std::size_t blocks = 0;
  read(adapter_id, tokens, BlockTrie::Extent::kResident, kNoPreparation,
       [&](const BlockTrie::Walk& walk, Gate::ReaderCounters&) { blocks = walk.blocks; });
  return blocks * block_size();
}

RadixTree::Peek Index::peek(std::span<const TokenId> tokens, const ReadOptions& options) const {
  RadixTree::Peek peeked;
  if (look(tokens, options, options.stored_blocks ? StoredBlocks::kStopIfAny : StoredBlocks::kIgnore, peeked))
    return peeked;
  const MutexLock lock(writer_);  // as in lookup
  look(tokens, options, StoredBlocks::kFind, peeked);
  return peeked;
}

bool Index::look(std::span<const TokenId> tokens, const ReadOptions& options, StoredBlocks stored,
                 RadixTree::Peek& peeked) const {
  bool stopped = false;
  const auto rest = [&](const BlockTrie::Walk& walk) { return tokens.subspan(walk.blocks * block_size()); };
  const auto prepare = [&](const BlockTrie::Walk& walk) {
    if (stored != StoredBlocks::kFind) return;
    peeked.stored_tokens = trie_.recorded_after(walk.at, options.adapter_id, rest(walk)).size() * block_size();
  };
  read(options.adapter_id, tokens, BlockTrie::Extent::kResident, prepare,
       [&](const BlockTrie::Walk& walk, Gate::ReaderCounters&) {
         if (stored == StoredBlocks::kStopIfAny) {
           stopped = trie_.any_records() && trie_.is_kept_after(walk.at, options.adapter_id, rest(walk));
           if (stopped) return;
         }
         if (walk.blocks == 0) return;
         peeked.matched_tokens = walk.blocks * block_size();
         const std::size_t max_tokens = std::min(peeked.matched_tokens, options.max_snapshot_tokens);
         const auto index = snapshots_.find_deepest(
             walk.at, {tokens, max_tokens, options.session_hash, options.adapter_id, options.resident_snapshots_only});
         if (index != SnapshotTable::kNone) peeked.snapshot = ref_of(index);
       });
  return !stopped;
}

void Index::release(std::span<const TokenId> tokens, std::size_t matched_tokens, AdapterId adapter_id, Epoch epoch) {
  const std::size_t num_blocks = matched_tokens / block_size();
  if (num_blocks == 0) return;
  read(adapter_id, tokens.first(num_blocks * block_size()), BlockTrie::Extent::kResident, kNoPreparation,
       [&](const BlockTrie::Walk& walk, Gate::ReaderCounters& counters) {
         if (epoch && *epoch != epoch_in_commit(adapter_id)) return;
         const bool held = walk.blocks > 0 && trie_.take_claim(walk.at, Claim::kUse);
         if (held && walk.blocks == num_blocks) return;
         ++counters.protocol_errors;
         if (!held && walk.blocks > 0) trie_.take_use_above(walk.at);
       });
}

void Index::release_handle(Position at, AdapterId adapter_id, std::uint64_t epoch) noexcept {
  if (at == Position{}) return;
  Gate::Reader reader(gate_);
  const Gate::Commit commit(gate_, reader);
  if (epoch == epoch_in_commit(adapter_id)) trie_.take_claim(at, Claim::kHandle);
}

void Index::share_handle(Position at, AdapterId adapter_id, std::uint64_t epoch) {
  if (at == Position{}) return;
  constexpr Stamp kNoStamp = 0;  // older than every one
  Gate::Reader reader(gate_);
  const Gate::Commit commit(gate_, reader);
  if (epoch == epoch_in_commit(adapter_id)) trie_.claim(at, Claim::kHandle, kNoStamp);
}

SnapshotRef Index::ref_of(SnapshotTable::Index index) const {
  const SnapshotTable::Snapshot& snapshot = snapshots_[index];
  SnapshotRef ref;
  ref.tokens = snapshot.tokens;
  ref.is_tail = snapshot.kind == SnapshotKind::kTail;
  if (snapshot.resident) {
    ref.slot = snapshot.slot;
  } else {
    ref.tier_key = snapshot.key;
  }
  return ref;
}

Index::FoundSnapshot Index::find_snapshot(std::span<const TokenId> tokens, const ReadOptions& options) {
  FoundSnapshot found;
  const std::size_t max_tokens = std::min(options.max_snapshot_tokens, tokens.size());
  read(options.adapter_id, tokens.first(max_tokens), BlockTrie::Extent::kKept, kNoPreparation,
       [&](const BlockTrie::Walk& walk, Gate::ReaderCounters&) {
         const auto index = snapshots_.find_deepest(
             walk.at, {tokens, max_tokens, options.session_hash, options.adapter_id, options.resident_snapshots_only});
         if (index == SnapshotTable::kNone) return;
         const SpinLockGuard lock(snapshots_lock_);
         if (use_snapshot(index, tick(), options)) found.pinned = index;
         found.ref = ref_of(index);
       });
  return found;
}

SnapshotRef Index::peek_snapshot(std::span<const TokenId> tokens, const ReadOptions& options) const {
  SnapshotRef ref;
  const std::size_t max_tokens = std::min(options.max_snapshot_tokens, tokens.size());
  read(options.adapter_id, tokens.first(max_tokens), BlockTrie::Extent::kKept, kNoPreparation,
       [&](const BlockTrie::Walk& walk, Gate::ReaderCounters&) {
         const auto index = snapshots_.find_deepest(
             walk.at, {tokens, max_tokens, options.session_hash, options.adapter_id, options.resident_snapshots_only});
         if (index != SnapshotTable::kNone) ref = ref_of(index);
       });
  return ref;
}

std::optional<SnapshotId> Index::unpin(SnapshotTable::Index pinned) {
  {
    Gate::Reader reader(gate_);
    const Gate::Commit commit(gate_, reader);
    const SpinLockGuard lock(snapshots_lock_);
    if (snapshots_.unpin(pinned)) return std::nullopt;
  }
  // The snapshot is gone and stays so; with its last pin its record goes too.
  const Writing writing(*this);
  const Gate::Closed closed(gate_);
  return snapshots_.unpin_gone(closed, pinned);
}

std::uint64_t Index::epoch_in_commit(AdapterId adapter_id) const {
  if (clears_.empty()) return clears_of_all_;
  const auto clears = clears_.find(adapter_id);
  return clears_of_all_ + (clears == clears_.end() ? 0 : clears->second);
}

std::uint64_t Index::epoch(AdapterId adapter_id) const {
  Gate::Reader reader(gate_);
  const Gate::Commit commit(gate_, reader);
  return epoch_in_commit(adapter_id);
}

std::size_t Index::snapshot_count() const {
  Gate::Reader reader(gate_);
  const Gate::Commit commit(gate_, reader);
  return snapshots_.size();
}

CacheStats Index::stats() const {
  Gate::Reader reader(gate_);
  const Gate::Commit commit(gate_, reader);
  return trie_.stats();
}

// ---- Writers: blocks ----

std::size_t Index::full_blocks(const Insert& what) const {
  return std::min(what.tokens.size() / block_size(), what.block_table.size());
}

Index::Inserted Index::insert_step(const Insert& what, Position from, Claim claim, std::size_t held,
                                   SnapshotTable::Pending* pending) {
  Inserted inserted;
  inserted.end = from;
  const std::size_t num_blocks = full_blocks(what);
  std::optional<BlockTrie::Extension> extension;
  if (num_blocks > 0) {
    BlockTrie::Extend extend{
        what.adapter_id, from, what.tokens.first(num_blocks * block_size()), {what.block_table.first(num_blocks), {}},
        claim,           held};
    const bool disk_blocks = std::ranges::any_of(what.disk_block_ids, [](auto id) { return id != kNoDiskBlock; });
    if (disk_blocks) extend.ids.disk_blocks = what.disk_block_ids.first(num_blocks);
    if (claim == Claim::kHandle) inserted.existing.reserve(num_blocks);  // nothing may fail after the preparation
    extension = trie_.prepare_extend(extend, inserted.acquired);
    if (claim == Claim::kHandle) {
      inserted.existing.resize(num_blocks - inserted.acquired.blocks.size());
      trie_.gather_below(extension->cached(), trie_.depth(from), inserted.existing);
    }
  }
  const Gate::Closed closed(gate_);
  if (extension) inserted.end = trie_.extend(closed, std::move(*extension), tick(), inserted.acquired);
  if (pending) inserted.displaced = snapshots_.put(closed, std::move(*pending), tick(), counters_);
  counters_.nodes_created += inserted.acquired.blocks.size();
  return inserted;
}

Index::Inserted Index::insert_by_tokens(const Insert& what, SnapshotTable::Pending* pending) {
  // The use that ended at `held` now ends further down. A caller may say more than it holds; then none ends there.
  const std::size_t held = what.matched_tokens / block_size();
  return insert_step(what, {}, full_blocks(what) > held ? Claim::kUse : Claim::kNone, held, pending);
}

RadixTree::EpochInsert Index::insert(const Insert& what, Epoch epoch) {
  const Writing writing(*this);
  if (epoch && *epoch != epoch_in_commit(what.adapter_id)) return {{}, true};
  return {insert_by_tokens(what, nullptr).acquired, false};
}

RadixTree::Extended Index::extend(Position& at, const Insert& what, std::uint64_t epoch) {
  const Writing writing(*this);
  if (epoch != epoch_in_commit(what.adapter_id)) return {{{}, true}, {}};
  Inserted inserted = insert_step(what, at, Claim::kHandle, trie_.depth(at), nullptr);
  at = inserted.end;
  return {{std::move(inserted.acquired), false}, std::move(inserted.existing)};
}

void Index::truncate(Position& at, std::size_t depth, AdapterId adapter_id, std::uint64_t epoch) {
  const Writing writing(*this);
  if (epoch != epoch_in_commit(adapter_id) || depth == trie_.depth(at)) return;
  const Position target = trie_.ancestor(at, depth);
  const Gate::Closed closed(gate_);
  if (depth > 0) trie_.claim(target, Claim::kHandle, 0);  // stamps nothing: every stamp is newer
  trie_.take_claim(at, Claim::kHandle);
  at = target;
}

void Index::prioritize(Position at, AdapterId adapter_id, std::uint64_t epoch, const Prioritizing& what) {
  const Writing writing(*this);
  if (epoch != epoch_in_commit(adapter_id)) return;
  BlockMark mark{.priority = what.priority.priority};
  const auto now = time_();
  if (what.priority.keep_for < BlockMark::TimePoint::max() - now) {
    mark.expires = now + std::chrono::duration_cast<BlockMark::TimePoint::duration>(what.priority.keep_for);
  }
  trie_.mark_blocks(at, what.from_depth, what.to_depth, mark);
}

// ---- Writers: pinned prefixes ----

PrefixPin Index::pin_prefix(std::span<const TokenId> tokens, AdapterId adapter_id) {
  using Outcome = PrefixPin::Outcome;
  const Writing writing(*this);
  const BlockTrie::Walk walk = trie_.walk(adapter_id, tokens, BlockTrie::Extent::kResident);
  const std::size_t missing = tokens.size() / block_size() - walk.blocks;
  if (missing > 0) return {.outcome = Outcome::kNotCached, .id = 0, .blocks = missing};
  const std::size_t blocks = pins_.would_add(walk.at, trie_.edges());
  if (blocks > pinned_blocks_max_ - pins_.blocks()) {
    return {.outcome = Outcome::kOverBudget, .id = 0, .blocks = blocks};
  }
  pins_.prepare_add(walk.at, trie_.edges());
  const Gate::Closed closed(gate_);
  trie_.claim(walk.at, Claim::kHandle, 0);  // stamps nothing: every stamp is newer
  return {.outcome = Outcome::kPinned, .id = pins_.add(walk.at, adapter_id, trie_.edges()), .blocks = blocks};
}

bool Index::unpin_prefix(std::uint64_t id) {
  const Writing writing(*this);
  const std::optional<Position> at = pins_.remove(id, trie_.edges());
  if (!at) return false;
  const Gate::Closed closed(gate_);
  trie_.take_claim(*at, Claim::kHandle);
  return true;
}

void Index::unpin_prefixes() {
  const Writing writing(*this);
  const Gate::Closed closed(gate_);
  pins_.for_each([&](Position at) { trie_.take_claim(at, Claim::kHandle); });
  pins_.forget(std::nullopt, trie_.edges());
}

std::size_t Index::pinned_blocks() const {
  const MutexLock lock(writer_);
  return pins_.blocks();
}

EvictedBlocks Index::evict(std::size_t num_blocks) {
  EvictedBlocks evicted;
  const Writing writing(*this);
  trie_.prepare_evict(num_blocks, evicted);
  const Gate::Closed closed(gate_);
  trie_.evict(closed, num_blocks, last_tick(), evicted);
  counters_.nodes_evicted += evicted.size();
  return evicted;
}

// ---- Writers: snapshots ----

void Index::check_slot_is_free(const char* argument, SnapshotId slot) const {
  if (!snapshots_.is_taken(slot)) return;
  throw std::invalid_argument(std::string("cairn: ") + argument + ": slot " + std::to_string(slot) +
                              " holds a snapshot already, or one that is gone but still pinned");
}

RadixTree::EpochSnapshotInsert Index::insert_with_snapshot(const Insert& what, const SnapshotTable::Put& snapshot,
                                                           Epoch epoch) {
  const Writing writing(*this);
  check_slot_is_free("snapshot_id", snapshot.slot);
  if (epoch && *epoch != epoch_in_commit(what.adapter_id)) return {{snapshot.slot, {}}, true};
  SnapshotTable::Pending pending = snapshots_.prepare(snapshot);
  try {
    Inserted inserted = insert_by_tokens(what, &pending);
    return {{inserted.displaced, std::move(inserted.acquired)}, false};
  } catch (...) {
    snapshots_.give_up(Gate::Closed(gate_), std::move(pending));
    throw;
  }
}

std::optional<SnapshotId> Index::put(const SnapshotTable::Put& snapshot, Epoch epoch) {
  const Writing writing(*this);
  check_slot_is_free("snapshot_id", snapshot.slot);
  if (epoch && *epoch != epoch_in_commit(snapshot.adapter_id)) return snapshot.slot;
  return put_step(snapshot);
}

std::optional<SnapshotId> Index::put_step(const SnapshotTable::Put& snapshot) {
  SnapshotTable::Pending pending = snapshots_.prepare(snapshot);
  const Gate::Closed closed(gate_);
  return snapshots_.put(closed, std::move(pending), tick(), counters_);
}

std::vector<SnapshotId> Index::put_tail(const SnapshotTable::Put& snapshot, Epoch epoch) {
  const Writing writing(*this);
  check_slot_is_free("snapshot_id", snapshot.slot);
  if (snapshot.session == 0) return {snapshot.slot};
  if (epoch && *epoch != epoch_in_commit(snapshot.adapter_id)) return {snapshot.slot};
  constexpr std::size_t kMostFreed = 3;  // the earlier tail, its sibling, and what lies at this place
  std::vector<SnapshotId> freed;
  freed.reserve(kMostFreed);
  SnapshotTable::Pending pending = snapshots_.prepare(snapshot);
  const Gate::Closed closed(gate_);
  snapshots_.sweep_session(closed, snapshot.session, freed, counters_);
  const auto displaced = snapshots_.put(closed, std::move(pending), tick(), counters_);
  if (displaced) freed.push_back(*displaced);
  return freed;
}

std::optional<SnapshotId> Index::put_tail_sibling(const SnapshotTable::Put& snapshot, Epoch epoch) {
  const Writing writing(*this);
  check_slot_is_free("snapshot_id", snapshot.slot);
  if (epoch && *epoch != epoch_in_commit(snapshot.adapter_id)) return snapshot.slot;
  if (snapshot.session == 0 || !snapshots_.has_tail(snapshot.session) || snapshots_.has_sibling(snapshot.session)) {
    return snapshot.slot;
  }
  return put_step(snapshot);
}

std::optional<SnapshotId> Index::evict_snapshot() {
  const Writing writing(*this);
  const Gate::Closed closed(gate_);
  const auto victim = snapshots_.victim(closed);
  if (victim == SnapshotTable::kNone) return std::nullopt;
  ++counters_.snapshots_evicted;
  return snapshots_.remove(closed, victim);
}

std::optional<TierEvict> Index::evict_snapshot_to_tier(std::size_t min_tokens) {
  const Writing writing(*this);
  const Gate::Closed closed(gate_);
  snapshots_.reserve_spill();
  const auto victim = snapshots_.victim(closed);
  if (victim == SnapshotTable::kNone) return std::nullopt;
  TierEvict evict;
  evict.slot = snapshots_[victim].slot;
  evict.tokens = snapshots_[victim].tokens;
  if (evict.tokens < min_tokens) {
    evict.action = TierEvict::Action::kDrop;
    snapshots_.remove(closed, victim);
    ++counters_.snapshots_evicted;
  } else {
    evict.action = TierEvict::Action::kSpill;
    evict.key = snapshots_.spill(closed, victim);
    ++counters_.spills;
  }
  return evict;
}

SnapshotTable::Index Index::promote(TierKey key, SnapshotId new_slot, bool pin) {
  const Writing writing(*this);
  const auto index = snapshots_.find_key(key);
  if (index == SnapshotTable::kNone) return index;
  check_slot_is_free("new_slot", new_slot);
  const Gate::Closed closed(gate_);
  snapshots_.promote(closed, index, new_slot);
  if (pin) snapshots_.pin(index);
  ++counters_.promotions;
  return index;
}

bool Index::forget(TierKey key) {
  const Writing writing(*this);
  const auto index = snapshots_.find_key(key);
  if (index == SnapshotTable::kNone) return false;
  const Gate::Closed closed(gate_);
  snapshots_.remove(closed, index);
  ++counters_.forgotten_keys;
  return true;
}

std::vector<TierKey> Index::take_orphaned() {
  const Writing writing(*this);
  const Gate::Closed closed(gate_);
  return snapshots_.take_orphaned(closed);
}

// ---- Writers: the rest ----

Cleared Index::clear(std::optional<AdapterId> adapter_id) {
  Cleared cleared;
  const Writing writing(*this);
  snapshots_.reserve_cleared(adapter_id, cleared);
  trie_.reserve_cleared(adapter_id, cleared);
  const Gate::Closed closed(gate_);
  if (adapter_id) make_room(clears_, 1);
  snapshots_.clear(closed, adapter_id, cleared);
  pins_.forget(adapter_id, trie_.edges());
  trie_.clear(closed, adapter_id, cleared);
  ++(adapter_id ? clears_[*adapter_id] : clears_of_all_);
  counters_.nodes_cleared += cleared.blocks.size();
  return cleared;
}

RadixTreeCounters Index::counters() const {
  const MutexLock lock(writer_);
  const Gate::Closed closed(gate_);
  RadixTreeCounters counters = counters_;
  const Gate::ReaderCounters readers = gate_.counters();
  counters.lookups = readers.lookups;
  counters.hit_tokens = readers.hit_tokens;
  counters.missed_tokens = readers.missed_tokens;
  counters.protocol_errors = readers.protocol_errors;
  counters.pinned_snapshots = snapshots_.pinned_count();
  counters.resident_snapshot_bytes = snapshots_.resident_bytes();
  return counters;
}

std::string Index::validate() const {
  const MutexLock lock(writer_);
  const Gate::Closed closed(gate_);
  BlockTrie::AnchorCounts anchors;
  std::string wrong = snapshots_.validate(closed, anchors);
  if (wrong.empty()) wrong = trie_.validate(closed, anchors);
  if (wrong.empty()) wrong = pins_.validate(trie_.edges(), pinned_blocks_max_);
  if (wrong.empty() &&
      counters_.nodes_created - counters_.nodes_evicted - counters_.nodes_cleared != trie_.stats().cached_blocks) {
    wrong = "nodes created - evicted - cleared differs from cached_blocks";
  }
  return wrong;
}

}  // namespace cairn
