#include "index/index.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace cairn {

Index::Index(const RadixTreeOptions& options, std::uint64_t hash_seed)
    : trie_(options.block_size, hash_seed),
      snapshots_(trie_, hash_seed, options.share_snapshots_across_sessions, options.first_tier_key) {}

// ---- Blocks ----

Index::Found Index::lookup(std::span<const TokenId> tokens, SessionHash session, AdapterId adapter_id, Claim claim) {
  Found found;
  PrefixMatch& match = found.match;
  const BlockTrie::Walk walk = trie_.walk(adapter_id, tokens, BlockTrie::Extent::kResident);
  match.matched_tokens = walk.blocks * block_size();
  auto index = SnapshotTable::kNone;
  if (walk.blocks > 0) {
    trie_.gather(walk.at, match.matched_blocks, match.matched_disk_block_ids);
    trie_.prepare_stop();
    index = snapshots_.find_deepest(walk.at, {tokens, match.matched_tokens, session});
  }

  // From here on nothing fails.
  ++clock_;
  ++counters_.lookups;
  counters_.hit_tokens += match.matched_tokens;
  counters_.missed_tokens += tokens.size() - match.matched_tokens;
  if (walk.blocks == 0) return found;
  found.end = walk.at;
  trie_.stamp(walk.at, clock_);
  if (claim == Claim::kHandle) {
    trie_.add_handle(walk.at);
  } else {
    trie_.add_use(walk.at);
  }
  if (index == SnapshotTable::kNone) return found;
  snapshots_.stamp(index, clock_);
  const SnapshotTable::Snapshot& snapshot = snapshots_[index];
  count_hit(snapshot);
  counters_.snapshot_gap_tokens += match.matched_tokens - snapshot.tokens;
  match.ssm_snapshot_is_tail = snapshot.kind == SnapshotKind::kTail;
  if (snapshot.resident) {
    match.ssm_snapshot = snapshot.slot;
    match.ssm_snapshot_tokens = snapshot.tokens;
  } else {
    match.ssm_snapshot_tier_key = snapshot.key;
    match.ssm_snapshot_tier_tokens = snapshot.tokens;
  }
  return found;
}

std::size_t Index::peek(std::span<const TokenId> tokens, AdapterId adapter_id) const {
  return trie_.walk(adapter_id, tokens, BlockTrie::Extent::kResident).blocks * block_size();
}

std::size_t Index::full_blocks(const Insert& what) const {
  return std::min(what.tokens.size() / block_size(), what.block_table.size());
}

// At least one full block. Nothing fails after it.
Position Index::insert_blocks(const Insert& what, Position from, InsertAcquired& acquired) {
  const std::size_t num_blocks = full_blocks(what);
  BlockIds ids{what.block_table.first(num_blocks), {}};
  if (!what.disk_block_ids.empty()) ids.disk_blocks = what.disk_block_ids.first(num_blocks);
  const Position end =
      trie_.extend({what.adapter_id, from, what.tokens.first(num_blocks * block_size()), ids, clock_ + 1}, acquired);
  ++clock_;
  counters_.nodes_created += acquired.blocks.size();
  return end;
}

InsertAcquired Index::insert(const Insert& what) {
  InsertAcquired acquired;
  const std::size_t num_blocks = full_blocks(what);
  if (num_blocks == 0) return acquired;
  const Position end = insert_blocks(what, {}, acquired);
  const std::size_t held = what.matched_tokens / block_size();
  if (num_blocks <= held) {
    trie_.offer(end);
    return acquired;
  }
  // The use that ended at `held` now ends further down. A caller may say more than it holds; then none ends there.
  trie_.add_use(end);
  if (held > 0) trie_.take_use(trie_.ancestor(end, held));
  return acquired;
}

void Index::release(std::span<const TokenId> tokens, std::size_t matched_tokens, AdapterId adapter_id) noexcept {
  const std::size_t num_blocks = matched_tokens / block_size();
  if (num_blocks == 0) return;
  const BlockTrie::Walk walk =
      trie_.walk(adapter_id, tokens.first(num_blocks * block_size()), BlockTrie::Extent::kResident);
  const bool held = walk.blocks > 0 && trie_.take_use(walk.at);
  if (held && walk.blocks == num_blocks) return;
  ++counters_.protocol_errors;
  if (!held && walk.blocks > 0) trie_.take_use_above(walk.at);
}

InsertAcquired Index::extend(Position& at, const Insert& what) {
  InsertAcquired acquired;
  if (full_blocks(what) == 0) return acquired;
  const Position end = insert_blocks(what, at, acquired);
  trie_.add_handle(end);
  if (at.edge != kNoEdge) trie_.take_handle(at);
  at = end;
  return acquired;
}

void Index::truncate(Position& at, std::size_t depth) {
  if (depth == trie_.depth(at)) return;
  Position target;
  if (depth > 0) {
    trie_.prepare_stop();
    target = trie_.ancestor(at, depth);
    trie_.add_handle(target);
  }
  trie_.take_handle(at);
  at = target;
}

void Index::release_handle(Position at) noexcept {
  if (at.edge != kNoEdge) trie_.take_handle(at);
}

EvictedBlocks Index::evict(std::size_t num_blocks) {
  EvictedBlocks evicted = trie_.evict(num_blocks);
  counters_.nodes_evicted += evicted.size();
  return evicted;
}

// ---- Snapshots ----

void Index::check_slot_is_free(const char* argument, SnapshotId slot) const {
  if (!snapshots_.is_resident(slot)) return;
  throw std::invalid_argument(std::string("cairn: ") + argument + ": slot " + std::to_string(slot) +
                              " holds a snapshot already; a slot can hold only one");
}

SnapshotInsert Index::insert_with_snapshot(const Insert& what, const SnapshotTable::Put& snapshot) {
  SnapshotInsert result;
  SnapshotTable::Pending pending = snapshots_.prepare(snapshot);
  try {
    result.acquired = insert(what);
  } catch (...) {
    snapshots_.give_up(std::move(pending));
    throw;
  }
  result.displaced = snapshots_.put(std::move(pending), ++clock_, counters_);
  return result;
}

std::optional<SnapshotId> Index::put(const SnapshotTable::Put& snapshot) {
  return snapshots_.put(snapshots_.prepare(snapshot), ++clock_, counters_);
}

std::vector<SnapshotId> Index::put_tail(const SnapshotTable::Put& snapshot) {
  if (snapshot.session == 0) return {snapshot.slot};
  constexpr std::size_t kMostFreed = 3;  // the earlier tail, its sibling, and what lies at this place
  std::vector<SnapshotId> freed;
  freed.reserve(kMostFreed);
  SnapshotTable::Pending pending = snapshots_.prepare(snapshot);
  snapshots_.sweep_session(snapshot.session, freed, counters_);
  if (const auto displaced = snapshots_.put(std::move(pending), ++clock_, counters_)) freed.push_back(*displaced);
  return freed;
}

std::optional<SnapshotId> Index::put_tail_sibling(const SnapshotTable::Put& snapshot) {
  const bool welcome = snapshot.session != 0 && snapshots_.has_tail(snapshot.session) && !snapshots_.has_sibling(snapshot.session);
  return welcome ? put(snapshot) : snapshot.slot;
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

SnapshotRef Index::find_snapshot(std::span<const TokenId> tokens, std::size_t max_tokens, SessionHash session,
                                 AdapterId adapter_id) {
  max_tokens = std::min(max_tokens, tokens.size());
  const BlockTrie::Walk walk = trie_.walk(adapter_id, tokens.first(max_tokens), BlockTrie::Extent::kKept);
  const auto index = snapshots_.find_deepest(walk.at, {tokens, max_tokens, session});
  SnapshotRef ref;
  if (index == SnapshotTable::kNone) return ref;
  snapshots_.stamp(index, ++clock_);
  const SnapshotTable::Snapshot& snapshot = snapshots_[index];
  count_hit(snapshot);
  ref.tokens = snapshot.tokens;
  ref.is_tail = snapshot.kind == SnapshotKind::kTail;
  if (snapshot.resident) {
    ref.slot = snapshot.slot;
  } else {
    ref.tier_key = snapshot.key;
  }
  return ref;
}

std::optional<SnapshotId> Index::evict_snapshot() {
  const auto victim = snapshots_.victim();
  if (victim == SnapshotTable::kNone) return std::nullopt;
  const SnapshotId slot = snapshots_[victim].slot;
  snapshots_.remove(victim);
  ++counters_.snapshots_evicted;
  return slot;
}

std::optional<TierEvict> Index::evict_snapshot_to_tier(std::size_t min_tokens) {
  const auto victim = snapshots_.victim();
  if (victim == SnapshotTable::kNone) return std::nullopt;
  TierEvict evict;
  evict.slot = snapshots_[victim].slot;
  evict.tokens = snapshots_[victim].tokens;
  if (evict.tokens < min_tokens) {
    evict.action = TierEvict::Action::kDrop;
    snapshots_.remove(victim);
    ++counters_.snapshots_evicted;
  } else {
    evict.action = TierEvict::Action::kSpill;
    evict.key = snapshots_.spill(victim);
    ++counters_.spills;
  }
  return evict;
}

bool Index::promote(TierKey key, SnapshotId new_slot) {
  const auto index = snapshots_.find_key(key);
  if (index == SnapshotTable::kNone) return false;
  check_slot_is_free("new_slot", new_slot);
  snapshots_.promote(index, new_slot);
  ++counters_.promotions;
  return true;
}

bool Index::forget(TierKey key) noexcept {
  const auto index = snapshots_.find_key(key);
  if (index == SnapshotTable::kNone) return false;
  snapshots_.remove(index);
  ++counters_.forgotten_keys;
  return true;
}

// ---- The rest ----

Cleared Index::clear(std::optional<AdapterId> adapter_id) {
  Cleared cleared;
  snapshots_.reserve_cleared(adapter_id, cleared);
  trie_.reserve_cleared(adapter_id, cleared.blocks);
  if (adapter_id) make_room(clears_, 1);

  snapshots_.clear(adapter_id, cleared);
  trie_.clear(adapter_id, cleared.blocks);
  counters_.nodes_cleared += cleared.blocks.size();
  ++(adapter_id ? clears_[*adapter_id] : clears_of_all_);
  return cleared;
}

std::uint64_t Index::epoch(AdapterId adapter_id) const {
  const auto clears = clears_.find(adapter_id);
  return clears_of_all_ + (clears == clears_.end() ? 0 : clears->second);
}

std::string Index::validate() const {
  BlockTrie::AnchorCounts anchors;
  std::string wrong = snapshots_.validate(anchors);
  if (wrong.empty()) wrong = trie_.validate(anchors);
  if (wrong.empty() &&
      counters_.nodes_created - counters_.nodes_evicted - counters_.nodes_cleared != trie_.stats().cached_blocks) {
    wrong = "nodes created - evicted - cleared differs from cached_blocks";
  }
  return wrong;
}

}  // namespace cairn
