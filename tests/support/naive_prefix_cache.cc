#include "support/naive_prefix_cache.h"

#include <algorithm>
#include <stdexcept>

namespace cairn::testing {
namespace {

bool starts_with(std::span<const TokenId> tokens, std::span<const TokenId> prefix) {
  return prefix.size() <= tokens.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

std::vector<TokenId> copy_of(std::span<const TokenId> tokens) {
  return {tokens.begin(), tokens.end()};
}

}  // namespace

NaivePrefixCache::NaivePrefixCache(RadixTreeOptions options)
    : options_(options), next_tier_key_(options.first_tier_key) {
  if (options.block_size == 0) throw std::invalid_argument("block_size must not be zero");
}

// ---- Checks ----

void NaivePrefixCache::check_block_size(std::size_t block_size) const {
  if (block_size != options_.block_size) throw std::invalid_argument("block_size must be the cache's");
}

void NaivePrefixCache::check_insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                    std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                    std::size_t matched_tokens) const {
  check_block_size(block_size);
  if (!disk_block_ids.empty() && disk_block_ids.size() != block_table.size()) {
    throw std::invalid_argument("disk_block_ids must be empty or as long as block_table");
  }
  if (matched_tokens > tokens.size()) throw std::invalid_argument("matched_tokens must not exceed tokens.size()");
}

void NaivePrefixCache::check_put(std::span<const TokenId> tokens, SnapshotId snapshot_id) const {
  if (tokens.empty()) throw std::invalid_argument("tokens of a snapshot must not be empty");
  if (is_taken(snapshot_id)) throw std::invalid_argument("snapshot_id must not be taken already");
}

bool NaivePrefixCache::is_taken(SnapshotId slot) const {
  return gone_.contains(slot) || std::any_of(snapshots_.begin(), snapshots_.end(),
                                             [slot](const auto& entry) { return entry.second.slot == slot; });
}

// ---- Blocks ----

std::vector<NaivePrefixCache::Nodes::iterator> NaivePrefixCache::chain(std::span<const TokenId> tokens,
                                                                       AdapterId adapter_id) {
  std::vector<Nodes::iterator> found;
  for (std::size_t end = options_.block_size; end <= tokens.size(); end += options_.block_size) {
    const auto node = nodes_.find({adapter_id, copy_of(tokens.first(end))});
    if (node == nodes_.end()) break;
    found.push_back(node);
  }
  return found;
}

PrefixMatch NaivePrefixCache::lookup(std::span<const TokenId> tokens, std::size_t block_size, SessionHash session_hash,
                                     AdapterId adapter_id) {
  check_block_size(block_size);
  Pin none;
  return look_up(tokens, {.session_hash = session_hash, .adapter_id = adapter_id}, none);
}

PrefixMatch NaivePrefixCache::look_up(std::span<const TokenId> tokens, const ReadOptions& options, Pin& pin) {
  PrefixMatch match;
  ++clock_;
  bool any_disk = false;
  for (const auto node : chain(tokens, options.adapter_id)) {
    ++node->second.uses;
    node->second.stamp = clock_;
    match.matched_blocks.push_back(node->second.block);
    match.matched_disk_block_ids.push_back(node->second.disk_block);
    any_disk = any_disk || node->second.disk_block != kNoDiskBlock;
    match.matched_tokens += options_.block_size;
  }
  if (!any_disk) match.matched_disk_block_ids.clear();
  ++counters_.lookups;
  counters_.hit_tokens += match.matched_tokens;
  counters_.missed_tokens += tokens.size() - match.matched_tokens;
  if (match.empty()) return match;

  const std::size_t max_tokens = std::min(match.matched_tokens, options.max_snapshot_tokens);
  const auto found = choose(tokens, max_tokens, options);
  if (found == snapshots_.end()) return match;
  Snapshot& snapshot = found->second;
  use(snapshot, options.session_hash);
  count_hit(snapshot);
  const std::size_t depth = found->first.tokens.size();
  counters_.snapshot_gap_tokens += match.matched_tokens - depth;
  if (options.pin_snapshot) pin = this->pin(snapshot);
  if (snapshot.slot) {
    match.ssm_snapshot = snapshot.slot;
    match.ssm_snapshot_tokens = depth;
  } else {
    match.ssm_snapshot_tier_key = snapshot.tier_key;
    match.ssm_snapshot_tier_tokens = depth;
  }
  match.ssm_snapshot_is_tail = snapshot.kind == Kind::kTail;
  return match;
}

std::size_t NaivePrefixCache::peek_matched_tokens(std::span<const TokenId> tokens, std::size_t block_size,
                                                  AdapterId adapter_id) const {
  check_block_size(block_size);
  std::size_t matched_tokens = 0;
  while (matched_tokens + block_size <= tokens.size() &&
         nodes_.contains({adapter_id, copy_of(tokens.first(matched_tokens + block_size))})) {
    matched_tokens += block_size;
  }
  return matched_tokens;
}

InsertAcquired NaivePrefixCache::insert_blocks(std::span<const TokenId> tokens, std::size_t first_block,
                                               std::span<const BlockId> block_table,
                                               std::span<const DiskBlockId> disk_block_ids,
                                               std::size_t used_from_block, AdapterId adapter_id) {
  InsertAcquired acquired;
  ++clock_;
  const std::size_t end_block = std::min(tokens.size() / options_.block_size, first_block + block_table.size());
  for (std::size_t i = 0; i < end_block; ++i) {
    const auto [node, created] =
        nodes_.try_emplace({adapter_id, copy_of(tokens.first((i + 1) * options_.block_size))});
    node->second.stamp = clock_;
    if (i >= used_from_block) ++node->second.uses;
    if (i < first_block) continue;
    if (created) {
      node->second.block = block_table[i - first_block];
      acquired.blocks.push_back(node->second.block);
      ++counters_.nodes_created;
    }
    const DiskBlockId disk_block = disk_block_ids.empty() ? kNoDiskBlock : disk_block_ids[i - first_block];
    if (node->second.disk_block == kNoDiskBlock && disk_block != kNoDiskBlock) {
      node->second.disk_block = disk_block;
      acquired.disk_block_ids.push_back(disk_block);
    }
  }
  return acquired;
}

InsertAcquired NaivePrefixCache::insert_checked(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                                std::span<const DiskBlockId> disk_block_ids,
                                                std::size_t matched_tokens, AdapterId adapter_id) {
  return insert_blocks(tokens, 0, block_table, disk_block_ids, matched_tokens / options_.block_size, adapter_id);
}

InsertAcquired NaivePrefixCache::insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                        std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                        std::size_t matched_tokens, AdapterId adapter_id) {
  return insert(tokens, block_table, disk_block_ids, block_size, matched_tokens, adapter_id, epoch(adapter_id));
}

NaivePrefixCache::EpochInsert NaivePrefixCache::insert(std::span<const TokenId> tokens,
                                                       std::span<const BlockId> block_table,
                                                       std::span<const DiskBlockId> disk_block_ids,
                                                       std::size_t block_size, std::size_t matched_tokens,
                                                       AdapterId adapter_id, std::uint64_t epoch) {
  check_insert(tokens, block_table, disk_block_ids, block_size, matched_tokens);
  if (epoch != this->epoch(adapter_id)) return {{}, true};
  return {insert_checked(tokens, block_table, disk_block_ids, matched_tokens, adapter_id), false};
}

void NaivePrefixCache::drop_uses(std::span<const TokenId> tokens, std::size_t from_block, std::size_t to_block,
                                 AdapterId adapter_id) {
  const auto nodes = chain(tokens, adapter_id);
  for (std::size_t i = from_block; i < std::min(to_block, nodes.size()); ++i) {
    if (nodes[i]->second.uses > 0) --nodes[i]->second.uses;
  }
}

void NaivePrefixCache::release(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter_id) {
  release_matched(tokens, block_size, tokens.size(), adapter_id, epoch(adapter_id));
}

void NaivePrefixCache::release(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter_id,
                               std::uint64_t epoch) {
  release_matched(tokens, block_size, tokens.size(), adapter_id, epoch);
}

void NaivePrefixCache::release_matched(std::span<const TokenId> tokens, std::size_t block_size,
                                       std::size_t matched_tokens, AdapterId adapter_id) {
  release_matched(tokens, block_size, matched_tokens, adapter_id, epoch(adapter_id));
}

void NaivePrefixCache::release_matched(std::span<const TokenId> tokens, std::size_t block_size,
                                       std::size_t matched_tokens, AdapterId adapter_id, std::uint64_t epoch) {
  check_block_size(block_size);
  if (matched_tokens > tokens.size()) throw std::invalid_argument("matched_tokens must not exceed tokens.size()");
  if (epoch != this->epoch(adapter_id)) return;
  drop_uses(tokens, 0, matched_tokens / block_size, adapter_id);
}

bool NaivePrefixCache::has_child(Nodes::const_iterator node) const {
  const auto next = std::next(node);  // in the order of the map, whatever starts with a node's tokens follows it
  return next != nodes_.end() && next->first.adapter_id == node->first.adapter_id &&
         starts_with(next->first.tokens, node->first.tokens);
}

NaivePrefixCache::Nodes::iterator NaivePrefixCache::next_to_evict() {
  auto oldest = nodes_.end();
  for (auto node = nodes_.begin(); node != nodes_.end(); ++node) {
    if (node->second.uses > 0 || has_child(node)) continue;
    if (oldest == nodes_.end() || node->second.stamp < oldest->second.stamp) oldest = node;
  }
  return oldest;
}

EvictedBlocks NaivePrefixCache::evict(std::size_t num_blocks) {
  EvictedBlocks evicted;
  for (; num_blocks > 0; --num_blocks) {
    const auto node = next_to_evict();
    if (node == nodes_.end()) break;
    evicted.physical.push_back(node->second.block);
    if (node->second.disk_block != kNoDiskBlock) evicted.disk_block_ids.push_back(node->second.disk_block);
    nodes_.erase(node);
    ++counters_.nodes_evicted;
  }
  drop_names();
  return evicted;
}

CacheStats NaivePrefixCache::stats() const {
  return {nodes_.size(), nodes_.size()};
}

// ---- Handles ----

NaivePrefixCache::Acquired NaivePrefixCache::acquire(std::span<const TokenId> tokens, SessionHash session_hash,
                                                     AdapterId adapter_id) {
  Acquired acquired;
  acquired.match = lookup(tokens, options_.block_size, session_hash, adapter_id);
  acquired.handle = {true, adapter_id, epoch(adapter_id), copy_of(tokens.first(acquired.match.matched_tokens))};
  return acquired;
}

NaivePrefixCache::AcquiredPinned NaivePrefixCache::acquire(std::span<const TokenId> tokens,
                                                           const ReadOptions& options) {
  AcquiredPinned acquired;
  acquired.match = look_up(tokens, options, acquired.pin);
  acquired.handle = {true, options.adapter_id, epoch(options.adapter_id),
                     copy_of(tokens.first(acquired.match.matched_tokens))};
  if (options.stored_blocks) {
    acquired.stored_blocks = stored_after(tokens, acquired.match.matched_tokens, options.adapter_id);
  }
  return acquired;
}

NaivePrefixCache::EpochInsert NaivePrefixCache::extend(Holding& handle, std::span<const TokenId> tokens,
                                                       std::span<const BlockId> block_table,
                                                       std::span<const DiskBlockId> disk_block_ids) {
  if (!handle.valid) throw std::invalid_argument("handle must be valid");
  if (!disk_block_ids.empty() && disk_block_ids.size() != block_table.size()) {
    throw std::invalid_argument("disk_block_ids must be empty or as long as block_table");
  }
  if (handle.epoch != epoch(handle.adapter_id)) return {{}, true};
  const std::size_t blocks = std::min(tokens.size() / options_.block_size, block_table.size());
  if (blocks == 0) return {};
  const std::size_t held = handle.tokens.size() / options_.block_size;
  const auto added = tokens.first(blocks * options_.block_size);
  handle.tokens.insert(handle.tokens.end(), added.begin(), added.end());
  return {insert_blocks(handle.tokens, held, block_table, disk_block_ids, held, handle.adapter_id), false};
}

void NaivePrefixCache::truncate(Holding& handle, std::size_t tokens) {
  if (!handle.valid) throw std::invalid_argument("handle must be valid");
  if (tokens > handle.tokens.size()) throw std::invalid_argument("tokens must not exceed handle.tokens()");
  const std::size_t kept = tokens / options_.block_size;
  if (handle.epoch == epoch(handle.adapter_id)) {
    drop_uses(handle.tokens, kept, handle.tokens.size() / options_.block_size, handle.adapter_id);
  }
  handle.tokens.resize(kept * options_.block_size);
}

void NaivePrefixCache::release(Holding& handle) {
  if (handle.valid && handle.epoch == epoch(handle.adapter_id)) {
    drop_uses(handle.tokens, 0, handle.tokens.size() / options_.block_size, handle.adapter_id);
  }
  handle = {};
}

// ---- Snapshots ----

std::optional<SnapshotId> NaivePrefixCache::retire(const Snapshot& snapshot) {
  if (snapshot.slot) return give_back(*snapshot.slot);
  orphaned_keys_.push_back(snapshot.tier_key);
  ++counters_.orphaned_keys;
  return std::nullopt;
}

std::optional<SnapshotId> NaivePrefixCache::give_back(SnapshotId slot) {
  if (!pins_.contains(slot)) return slot;
  gone_.insert(slot);
  return std::nullopt;
}

std::optional<SnapshotId> NaivePrefixCache::put(std::span<const TokenId> tokens, Kind kind, SnapshotId slot,
                                                SessionHash session, AdapterId adapter_id) {
  std::optional<SnapshotId> displaced;
  const auto [entry, is_new] = snapshots_.try_emplace({adapter_id, copy_of(tokens)});
  if (!is_new) {
    displaced = retire(entry->second);
    ++counters_.snapshots_replaced;
    if (kind == Kind::kTail && entry->second.kind == Kind::kTail) ++counters_.tails_replaced;
  }
  entry->second.slot.reset();
  entry->second.session = 0;
  forget_idle_sessions();
  entry->second = {kind, session, ++clock_, slot, 0, ++uses_};
  note_resident(entry->second);
  ++counters_.snapshots_put;
  return displaced;
}

NaivePrefixCache::Snapshots::iterator NaivePrefixCache::find_of_session(Kind kind, SessionHash session) {
  return std::find_if(snapshots_.begin(), snapshots_.end(),
                      [&](const auto& entry) { return entry.second.kind == kind && entry.second.session == session; });
}

SnapshotInsert NaivePrefixCache::insert_with_snapshot(std::span<const TokenId> tokens,
                                                      std::span<const BlockId> block_table,
                                                      std::span<const DiskBlockId> disk_block_ids,
                                                      std::size_t block_size, SnapshotId snapshot_id,
                                                      SessionHash session_hash, std::size_t matched_tokens,
                                                      AdapterId adapter_id) {
  return insert_with_snapshot(tokens, block_table, disk_block_ids, block_size, snapshot_id, session_hash,
                              matched_tokens, adapter_id, epoch(adapter_id));
}

NaivePrefixCache::EpochSnapshotInsert NaivePrefixCache::insert_with_snapshot(
    std::span<const TokenId> tokens, std::span<const BlockId> block_table, std::span<const DiskBlockId> disk_block_ids,
    std::size_t block_size, SnapshotId snapshot_id, SessionHash session_hash, std::size_t matched_tokens,
    AdapterId adapter_id, std::uint64_t epoch) {
  check_insert(tokens, block_table, disk_block_ids, block_size, matched_tokens);
  check_put(tokens, snapshot_id);
  if (epoch != this->epoch(adapter_id)) return {{snapshot_id, {}}, true};
  EpochSnapshotInsert result;
  result.acquired = insert_checked(tokens, block_table, disk_block_ids, matched_tokens, adapter_id);
  result.displaced = put(tokens, Kind::kPlain, snapshot_id, session_hash, adapter_id);
  return result;
}

std::optional<SnapshotId> NaivePrefixCache::insert_intermediate_snapshot(
    std::span<const TokenId> tokens, std::span<const BlockId> block_table, std::span<const DiskBlockId> disk_block_ids,
    std::size_t block_size, SnapshotId snapshot_id, SessionHash session_hash, std::size_t matched_tokens,
    AdapterId adapter_id) {
  return insert_intermediate_snapshot(tokens, block_table, disk_block_ids, block_size, snapshot_id, session_hash,
                                      matched_tokens, adapter_id, epoch(adapter_id));
}

std::optional<SnapshotId> NaivePrefixCache::insert_intermediate_snapshot(
    std::span<const TokenId> tokens, std::span<const BlockId> block_table, std::span<const DiskBlockId> disk_block_ids,
    std::size_t block_size, SnapshotId snapshot_id, SessionHash session_hash, std::size_t matched_tokens,
    AdapterId adapter_id, std::uint64_t epoch) {
  check_insert(tokens, block_table, disk_block_ids, block_size, matched_tokens);
  check_put(tokens, snapshot_id);
  if (epoch != this->epoch(adapter_id)) return snapshot_id;
  return put(tokens, Kind::kPlain, snapshot_id, session_hash, adapter_id);
}

std::vector<SnapshotId> NaivePrefixCache::insert_tail_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                                               SessionHash session_hash, AdapterId adapter_id) {
  return insert_tail_snapshot(tokens, snapshot_id, session_hash, adapter_id, epoch(adapter_id));
}

std::vector<SnapshotId> NaivePrefixCache::insert_tail_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                                               SessionHash session_hash, AdapterId adapter_id,
                                                               std::uint64_t epoch) {
  check_put(tokens, snapshot_id);
  if (epoch != this->epoch(adapter_id) || session_hash == 0) return {snapshot_id};
  std::vector<SnapshotId> freed;
  for (const Kind kind : {Kind::kTail, Kind::kSibling}) {
    const auto earlier = find_of_session(kind, session_hash);
    if (earlier == snapshots_.end()) continue;
    if (const auto slot = retire(earlier->second)) freed.push_back(*slot);
    snapshots_.erase(earlier);
  }
  if (const auto slot = put(tokens, Kind::kTail, snapshot_id, session_hash, adapter_id)) freed.push_back(*slot);
  drop_names();
  return freed;
}

std::optional<SnapshotId> NaivePrefixCache::insert_tail_sibling_snapshot(std::span<const TokenId> tokens,
                                                                         SnapshotId snapshot_id,
                                                                         SessionHash session_hash,
                                                                         AdapterId adapter_id) {
  return insert_tail_sibling_snapshot(tokens, snapshot_id, session_hash, adapter_id, epoch(adapter_id));
}

std::optional<SnapshotId> NaivePrefixCache::insert_tail_sibling_snapshot(std::span<const TokenId> tokens,
                                                                         SnapshotId snapshot_id,
                                                                         SessionHash session_hash,
                                                                         AdapterId adapter_id, std::uint64_t epoch) {
  check_put(tokens, snapshot_id);
  if (epoch != this->epoch(adapter_id) || session_hash == 0) return snapshot_id;
  if (find_of_session(Kind::kTail, session_hash) == snapshots_.end()) return snapshot_id;
  if (find_of_session(Kind::kSibling, session_hash) != snapshots_.end()) return snapshot_id;
  return put(tokens, Kind::kSibling, snapshot_id, session_hash, adapter_id);
}

bool NaivePrefixCache::is_visible(const Snapshot& snapshot, SessionHash session) const {
  if (snapshot.kind == Kind::kTail) return session != 0 && snapshot.session == session;
  return options_.share_snapshots_across_sessions || snapshot.session == 0 || session == 0 ||
         snapshot.session == session;
}

NaivePrefixCache::Snapshots::iterator NaivePrefixCache::choose(std::span<const TokenId> tokens, std::size_t max_tokens,
                                                               const ReadOptions& options) {
  auto deepest = snapshots_.end();
  for (auto entry = snapshots_.begin(); entry != snapshots_.end(); ++entry) {
    const auto& [place, snapshot] = *entry;
    if (place.adapter_id != options.adapter_id || place.tokens.size() > max_tokens) continue;
    if (!starts_with(tokens, place.tokens) || !is_visible(snapshot, options.session_hash)) continue;
    if (options.resident_snapshots_only && !snapshot.slot) continue;
    if (deepest == snapshots_.end() || place.tokens.size() > deepest->first.tokens.size()) deepest = entry;
  }
  return deepest;
}

void NaivePrefixCache::count_hit(const Snapshot& snapshot) {
  if (snapshot.kind == Kind::kPlain) ++counters_.plain_snapshot_hits;
  if (snapshot.kind == Kind::kTail) ++counters_.tail_snapshot_hits;
  if (snapshot.kind == Kind::kSibling) ++counters_.sibling_snapshot_hits;
  if (!snapshot.slot) ++counters_.spilled_snapshot_hits;
}

SnapshotRef NaivePrefixCache::ref_of(Snapshots::const_iterator found) const {
  if (found == snapshots_.end()) return {};
  const Snapshot& snapshot = found->second;
  SnapshotRef ref;
  ref.slot = snapshot.slot;
  if (!snapshot.slot) ref.tier_key = snapshot.tier_key;
  ref.tokens = found->first.tokens.size();
  ref.is_tail = snapshot.kind == Kind::kTail;
  return ref;
}

SnapshotRef NaivePrefixCache::find_snapshot(std::span<const TokenId> tokens, std::size_t max_tokens,
                                            SessionHash session_hash, AdapterId adapter_id) {
  const ReadOptions options{session_hash, adapter_id, max_tokens};
  return find_snapshot(tokens, options).snapshot;
}

// ---- Pins and peeks ----

NaivePrefixCache::Pin NaivePrefixCache::pin(const Snapshot& snapshot) {
  if (!snapshot.slot) return {};
  ++pins_[*snapshot.slot];
  counters_.pinned_snapshots = pins_.size();
  return {true, *snapshot.slot};
}

NaivePrefixCache::PinnedSnapshot NaivePrefixCache::find_snapshot(std::span<const TokenId> tokens,
                                                                 const ReadOptions& options) {
  const auto found = choose(tokens, options.max_snapshot_tokens, options);
  if (found == snapshots_.end()) return {};
  ++clock_;
  use(found->second, options.session_hash);
  count_hit(found->second);
  return {ref_of(found), options.pin_snapshot ? pin(found->second) : Pin{}};
}

std::optional<SnapshotId> NaivePrefixCache::unpin_snapshot(Pin& pin) {
  if (!pin.valid) return std::nullopt;
  const SnapshotId slot = pin.slot;
  pin = {};
  if (--pins_.at(slot) > 0) return std::nullopt;
  pins_.erase(slot);
  counters_.pinned_snapshots = pins_.size();
  if (gone_.erase(slot) == 0) return std::nullopt;
  return slot;
}

RadixTree::Peek NaivePrefixCache::peek(std::span<const TokenId> tokens, const ReadOptions& options) {
  RadixTree::Peek peeked;
  peeked.matched_tokens = peek_matched_tokens(tokens, options_.block_size, options.adapter_id);
  if (options.stored_blocks) {
    peeked.stored_tokens =
        stored_after(tokens, peeked.matched_tokens, options.adapter_id).size() * options_.block_size;
  }
  if (peeked.matched_tokens == 0) return peeked;
  const std::size_t max_tokens = std::min(peeked.matched_tokens, options.max_snapshot_tokens);
  peeked.snapshot = ref_of(choose(tokens, max_tokens, options));
  return peeked;
}

SnapshotRef NaivePrefixCache::peek_snapshot(std::span<const TokenId> tokens, const ReadOptions& options) {
  return ref_of(choose(tokens, options.max_snapshot_tokens, options));
}

// ---- Eviction and spilling of snapshots ----

std::optional<SnapshotId> NaivePrefixCache::evict_snapshot_lru() {
  const auto victim = next_snapshot_to_evict();
  if (victim == snapshots_.end()) return std::nullopt;
  const auto slot = victim->second.slot;
  snapshots_.erase(victim);
  ++counters_.snapshots_evicted;
  drop_names();
  return slot;
}

std::optional<TierEvict> NaivePrefixCache::evict_snapshot_to_tier(std::size_t min_tokens) {
  const auto victim = next_snapshot_to_evict();
  if (victim == snapshots_.end()) return std::nullopt;
  Snapshot& snapshot = victim->second;
  const std::size_t depth = victim->first.tokens.size();
  const SnapshotId slot = *snapshot.slot;
  if (depth < min_tokens) {
    snapshots_.erase(victim);
    ++counters_.snapshots_evicted;
    drop_names();
    return TierEvict{TierEvict::Action::kDrop, slot, 0, depth};
  }
  snapshot.slot.reset();
  snapshot.tier_key = next_tier_key_++;
  ++counters_.spills;
  return TierEvict{TierEvict::Action::kSpill, slot, snapshot.tier_key, depth};
}

NaivePrefixCache::Snapshots::iterator NaivePrefixCache::find_spilled(TierKey key) {
  return std::find_if(snapshots_.begin(), snapshots_.end(),
                      [key](const auto& entry) { return !entry.second.slot && entry.second.tier_key == key; });
}

bool NaivePrefixCache::promote_snapshot(TierKey key, SnapshotId new_slot) {
  const auto entry = find_spilled(key);
  if (entry == snapshots_.end()) return false;
  if (is_taken(new_slot)) throw std::invalid_argument("new_slot must not be taken already");
  entry->second.slot = new_slot;
  entry->second.tier_key = 0;
  note_resident(entry->second);
  ++counters_.promotions;
  return true;
}

bool NaivePrefixCache::forget_snapshot_tier_key(TierKey key) {
  const auto entry = find_spilled(key);
  if (entry == snapshots_.end()) return false;
  snapshots_.erase(entry);
  ++counters_.forgotten_keys;
  drop_names();
  return true;
}

std::vector<TierKey> NaivePrefixCache::take_orphaned_tier_keys() {
  std::vector<TierKey> taken;
  taken.swap(orphaned_keys_);
  return taken;
}

std::size_t NaivePrefixCache::snapshot_count() const {
  return snapshots_.size();
}

// ---- Clearing ----

Cleared NaivePrefixCache::clear(AdapterId adapter_id) {
  ++clears_[adapter_id];
  return clear_if(adapter_id);
}

Cleared NaivePrefixCache::clear() {
  ++clears_of_all_;
  return clear_if(std::nullopt);
}

Cleared NaivePrefixCache::clear_if(std::optional<AdapterId> adapter_id) {
  Cleared cleared;
  const auto goes = [&](const Place& place) { return !adapter_id || place.adapter_id == *adapter_id; };
  std::erase_if(nodes_, [&](const auto& entry) {
    if (!goes(entry.first)) return false;
    cleared.blocks.physical.push_back(entry.second.block);
    if (entry.second.disk_block != kNoDiskBlock) cleared.blocks.disk_block_ids.push_back(entry.second.disk_block);
    return true;
  });
  std::erase_if(snapshots_, [&](const auto& entry) {
    if (!goes(entry.first)) return false;
    if (entry.second.slot) {
      if (const auto slot = give_back(*entry.second.slot)) cleared.slots.push_back(*slot);
    } else {
      cleared.tier_keys.push_back(entry.second.tier_key);
    }
    return true;
  });
  std::erase_if(names_, [&](const auto& entry) {
    if (goes(entry.first) && entry.second.recorded) cleared.tier_keys.push_back(entry.second.key);
    return goes(entry.first);
  });
  counters_.nodes_cleared += cleared.blocks.size();
  return cleared;
}

std::uint64_t NaivePrefixCache::epoch(AdapterId adapter_id) const {
  const auto clears = clears_.find(adapter_id);
  return clears_of_all_ + (clears == clears_.end() ? 0 : clears->second);
}

// ---- For checks of the pools ----

std::map<BlockId, std::size_t> NaivePrefixCache::block_holders() const {
  std::map<BlockId, std::size_t> holders;
  for (const auto& [place, node] : nodes_) ++holders[node.block];
  return holders;
}

std::map<DiskBlockId, std::size_t> NaivePrefixCache::disk_block_holders() const {
  std::map<DiskBlockId, std::size_t> holders;
  for (const auto& [place, node] : nodes_) {
    if (node.disk_block != kNoDiskBlock) ++holders[node.disk_block];
  }
  return holders;
}

std::vector<SnapshotId> NaivePrefixCache::taken_slots() const {
  std::vector<SnapshotId> slots(gone_.begin(), gone_.end());
  for (const auto& [place, snapshot] : snapshots_) {
    if (snapshot.slot) slots.push_back(*snapshot.slot);
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

}  // namespace cairn::testing
