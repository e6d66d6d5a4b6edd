// What the naive model knows of a store: which places have keys, and which keys have a record.
#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include "support/ledgers.h"
#include "support/naive_prefix_cache.h"

namespace cairn::testing {
namespace {

bool starts_with(std::span<const TokenId> tokens, std::span<const TokenId> prefix) {
  return prefix.size() <= tokens.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

// Calls `visit` with each entry at `place` or below it, until it answers true. In the order of a map, whatever starts
// with a place's tokens follows it.
template <class Map, class Place, class Visit>
bool any_at_or_below(Map& map, const Place& place, Visit visit) {
  for (auto entry = map.lower_bound(place); entry != map.end(); ++entry) {
    if (entry->first.adapter_id != place.adapter_id || !starts_with(entry->first.tokens, place.tokens)) return false;
    if (visit(*entry)) return true;
  }
  return false;
}

}  // namespace

// ---- Names ----

NaivePrefixCache::Place NaivePrefixCache::parent_of(const Place& place) const {
  Place parent = place;
  parent.tokens.resize(place.tokens.size() - options_.block_size);
  return parent;
}

NaivePrefixCache::Names::iterator NaivePrefixCache::find_name(TierKey key) {
  return std::find_if(names_.begin(), names_.end(), [key](const auto& entry) { return entry.second.key == key; });
}

bool NaivePrefixCache::is_recorded(const Place& place) const {
  const auto found = names_.find(place);
  return found != names_.end() && found->second.recorded;
}

TierKey NaivePrefixCache::name(const Place& place) {
  if (place.tokens.empty()) return 0;
  const auto [entry, is_new] = names_.try_emplace(place);
  if (is_new) entry->second.key = next_tier_key_++;
  return entry->second.key;
}

bool NaivePrefixCache::anything_stored_at_or_below(const Place& place) const {
  return any_at_or_below(names_, place, [](const auto& entry) { return entry.second.recorded; }) ||
         any_at_or_below(snapshots_, place, [](const auto&) { return true; });
}

void NaivePrefixCache::drop_names() {
  std::erase_if(names_, [&](const auto& entry) {
    const Place& place = entry.first;
    return !any_at_or_below(nodes_, place, [](const auto&) { return true; }) && !anything_stored_at_or_below(place);
  });
}

std::vector<TierKey> NaivePrefixCache::stored_after(std::span<const TokenId> tokens, std::size_t matched_tokens,
                                                    AdapterId adapter_id) const {
  std::vector<TierKey> keys;
  for (std::size_t end = matched_tokens + options_.block_size; end <= tokens.size(); end += options_.block_size) {
    const Place place{adapter_id, {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)}};
    if (!is_recorded(place)) break;
    keys.push_back(names_.at(place).key);
  }
  return keys;
}

std::size_t NaivePrefixCache::recorded_blocks() const {
  return static_cast<std::size_t>(
      std::count_if(names_.begin(), names_.end(), [](const auto& entry) { return entry.second.recorded; }));
}

// ---- Evicting and saving ----

void NaivePrefixCache::tell(const Place& place, const Node& node, BlockSpill::Action action, BlockSpills& out) {
  BlockSpill spill;
  spill.block = node.block;
  spill.adapter_id = place.adapter_id;
  spill.first_token = place.tokens.size() - options_.block_size;
  spill.action = action;
  if (action != BlockSpill::Action::kDrop) {
    spill.parent = name(parent_of(place));
    spill.key = name(place);
    names_.at(place).recorded = true;
  }
  out.blocks.push_back(spill);
  out.tokens.insert(out.tokens.end(), place.tokens.end() - static_cast<std::ptrdiff_t>(options_.block_size),
                    place.tokens.end());
}

BlockSpills NaivePrefixCache::evict_blocks_to_tier(std::size_t num_blocks, std::size_t min_tokens) {
  BlockSpills spills;
  for (; num_blocks > 0; --num_blocks) {
    const auto victim = next_to_evict();
    if (victim == nodes_.end()) break;
    const auto& [place, node] = *victim;
    BlockSpill::Action action = BlockSpill::Action::kDrop;
    if (is_recorded(place)) {
      action = BlockSpill::Action::kStored;
    } else if (place.tokens.size() >= min_tokens || anything_stored_at_or_below(place)) {
      action = BlockSpill::Action::kSpill;
      ++counters_.blocks_spilled;
    }
    tell(place, node, action, spills);
    if (node.disk_block != kNoDiskBlock) spills.disk_block_ids.push_back(node.disk_block);
    nodes_.erase(victim);
    ++counters_.nodes_evicted;
  }
  drop_names();
  return spills;
}

BlockSpills NaivePrefixCache::save_blocks(const Holding& handle, std::size_t num_blocks, std::size_t min_tokens) {
  if (!handle.valid) throw std::invalid_argument("handle must be valid");
  BlockSpills spills;
  if (handle.tokens.empty() || handle.epoch != epoch(handle.adapter_id)) return spills;
  const Place end{handle.adapter_id, handle.tokens};
  const auto node = nodes_.find(end);
  if (end.tokens.size() < min_tokens && !has_child(node) && !anything_stored_at_or_below(end)) return spills;
  for (const auto held : chain(handle.tokens, handle.adapter_id)) {
    if (spills.blocks.size() >= num_blocks) break;
    if (is_recorded(held->first)) continue;
    tell(held->first, held->second, BlockSpill::Action::kSpill, spills);
    ++counters_.blocks_saved;
  }
  return spills;
}

bool NaivePrefixCache::is_worth_saving(const Place& place, std::size_t min_tokens) const {
  return anything_stored_at_or_below(place) ||
         any_at_or_below(nodes_, place, [&](const auto& entry) { return entry.first.tokens.size() >= min_tokens; });
}

void NaivePrefixCache::take_over_saved(const BlockSpills& saved, std::size_t num_blocks, std::size_t min_tokens) {
  std::map<Place, const Node*> open;  // worth it, and without a record
  for (const auto& [place, node] : nodes_) {
    if (!is_recorded(place) && is_worth_saving(place, min_tokens)) open.emplace(place, &node);
  }
  if (saved.blocks.size() != std::min(open.size(), num_blocks)) {
    throw Violation("save_blocks names " + std::to_string(saved.blocks.size()) + " blocks; " +
                    std::to_string(open.size()) + " can be saved");
  }
  for (std::size_t i = 0; i < saved.blocks.size(); ++i) {
    const BlockSpill& spill = saved.blocks[i];
    Place place{spill.adapter_id, {}};
    if (spill.parent != 0) {
      const auto parent = find_name(spill.parent);
      if (parent == names_.end()) throw Violation("a saved block's parent was not named before");
      place = parent->first;
    }
    const auto own = saved.tokens.begin() + static_cast<std::ptrdiff_t>(i * options_.block_size);
    place.tokens.insert(place.tokens.end(), own, own + static_cast<std::ptrdiff_t>(options_.block_size));
    const auto found = open.find(place);
    if (found == open.end()) throw Violation("what was saved is no block that could be saved");
    BlockSpills expected;
    tell(place, *found->second, BlockSpill::Action::kSpill, expected);
    if (spill.key != expected.blocks[0].key || spill.parent != expected.blocks[0].parent ||
        spill.block != expected.blocks[0].block || spill.adapter_id != place.adapter_id ||
        spill.first_token != expected.blocks[0].first_token || spill.action != BlockSpill::Action::kSpill) {
      throw Violation("a saved block is told of wrongly");
    }
    open.erase(found);
    ++counters_.blocks_saved;
  }
}

// ---- Records that are gone, and that were there ----

bool NaivePrefixCache::forget_tier_key(TierKey key) {
  const auto found = find_name(key);
  if (found == names_.end() || !found->second.recorded) return forget_snapshot_tier_key(key);
  found->second.recorded = false;
  ++counters_.forgotten_blocks;
  drop_names();
  return true;
}

std::optional<RadixTree::SpilledSnapshot> NaivePrefixCache::spilled_snapshot(TierKey key, bool from_start) {
  const auto found = find_spilled(key);
  if (found == snapshots_.end()) return std::nullopt;
  const auto& [place, snapshot] = *found;
  RadixTree::SpilledSnapshot spilled;
  spilled.kind = snapshot.kind == Kind::kPlain  ? StoredSnapshot::Kind::kPlain
                 : snapshot.kind == Kind::kTail ? StoredSnapshot::Kind::kTail
                                                : StoredSnapshot::Kind::kTailSibling;
  spilled.adapter_id = place.adapter_id;
  spilled.session_hash = snapshot.session;
  if (from_start) {
    spilled.tokens = place.tokens;
    return spilled;
  }
  Place parent = place;
  parent.tokens.resize(place.tokens.size() / options_.block_size * options_.block_size);
  spilled.first_token = parent.tokens.size();
  spilled.tokens.assign(place.tokens.begin() + static_cast<std::ptrdiff_t>(parent.tokens.size()), place.tokens.end());
  spilled.parent = name(parent);
  return spilled;
}

NaivePrefixCache::Pin NaivePrefixCache::promote_and_pin(TierKey key, SnapshotId new_slot) {
  const auto found = find_spilled(key);
  return promote_snapshot(key, new_slot) ? pin(found->second) : Pin{};
}

bool NaivePrefixCache::register_stored_block(const StoredBlock& block) {
  if (block.tokens.size() != options_.block_size) throw std::invalid_argument("tokens must be a block's");
  if (block.key == 0 || block.key >= options_.first_tier_key) throw std::invalid_argument("key must be an old one");
  Place place{block.adapter_id, {}};
  if (block.parent != 0) {
    const auto parent = find_name(block.parent);
    if (parent == names_.end() || !parent->second.recorded || parent->first.adapter_id != block.adapter_id) {
      return false;
    }
    place = parent->first;
  }
  place.tokens.insert(place.tokens.end(), block.tokens.begin(), block.tokens.end());
  const auto found = names_.find(place);
  if (found != names_.end() ? found->second.key != block.key : find_name(block.key) != names_.end()) return false;
  if (find_spilled(block.key) != snapshots_.end()) return false;
  names_[place] = {block.key, true};
  return true;
}

bool NaivePrefixCache::register_spilled_snapshot(const StoredSnapshot& snapshot) {
  if (snapshot.parent != 0 && snapshot.tokens.size() >= options_.block_size) {
    throw std::invalid_argument("tokens must be less than a block");
  }
  if (snapshot.parent == 0 && snapshot.tokens.empty()) throw std::invalid_argument("tokens must not be empty");
  if (snapshot.key == 0 || snapshot.key >= options_.first_tier_key) {
    throw std::invalid_argument("key must be an old one");
  }
  const Kind kind = snapshot.kind == StoredSnapshot::Kind::kPlain  ? Kind::kPlain
                    : snapshot.kind == StoredSnapshot::Kind::kTail ? Kind::kTail
                                                                   : Kind::kSibling;
  if (kind != Kind::kPlain && snapshot.session_hash == 0) return false;
  if (find_name(snapshot.key) != names_.end() || find_spilled(snapshot.key) != snapshots_.end()) return false;
  Place place{snapshot.adapter_id, {}};
  if (snapshot.parent != 0) {
    const auto parent = find_name(snapshot.parent);
    if (parent == names_.end() || !parent->second.recorded || parent->first.adapter_id != snapshot.adapter_id) {
      return false;
    }
    place = parent->first;
  }
  place.tokens.insert(place.tokens.end(), snapshot.tokens.begin(), snapshot.tokens.end());
  if (snapshots_.contains(place)) return false;
  if (kind != Kind::kPlain && find_of_session(kind, snapshot.session_hash) != snapshots_.end()) return false;
  snapshots_[place] = {kind, snapshot.session_hash, ++clock_, std::nullopt, snapshot.key, ++uses_};
  return true;
}

std::vector<TierKey> NaivePrefixCache::stored_keys() const {
  std::vector<TierKey> keys;
  for (const auto& [place, name] : names_) {
    if (name.recorded) keys.push_back(name.key);
  }
  for (const auto& [place, snapshot] : snapshots_) {
    if (!snapshot.slot) keys.push_back(snapshot.tier_key);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace cairn::testing
