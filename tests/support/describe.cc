#include "support/describe.h"

#include <algorithm>

namespace cairn::testing {
namespace {

template <class Range>
std::string list(const Range& values) {
  std::string text = "[";
  for (const auto value : values) {
    if (text.size() > 1) text += ',';
    text += std::to_string(value);
  }
  return text + ']';
}

}  // namespace

std::string describe(std::monostate) {
  return "done";
}
std::string describe(bool value) {
  return value ? "true" : "false";
}
std::string describe(std::uint64_t value) {
  return std::to_string(value);
}
std::string describe(const std::optional<std::uint64_t>& value) {
  return value ? std::to_string(*value) : "none";
}
std::string describe(std::span<const std::uint32_t> values) {
  return list(values);
}
std::string describe(const std::vector<std::uint32_t>& values) {
  return list(values);
}
std::string describe(const std::vector<std::uint64_t>& values) {
  return list(values);
}

std::string describe(const PrefixMatch& match) {
  std::string text = "blocks " + list(match.matched_blocks) + " disk " + list(match.matched_disk_block_ids) +
                     " tokens " + std::to_string(match.matched_tokens);
  if (match.ssm_snapshot || match.ssm_snapshot_tokens != 0) {
    text += " snapshot " + describe(match.ssm_snapshot) + " at " + std::to_string(match.ssm_snapshot_tokens);
  }
  if (match.ssm_snapshot_tier_key || match.ssm_snapshot_tier_tokens != 0) {
    text +=
        " spilled " + describe(match.ssm_snapshot_tier_key) + " at " + std::to_string(match.ssm_snapshot_tier_tokens);
  }
  return match.ssm_snapshot_is_tail ? text + " (tail)" : text;
}

std::string describe(const InsertAcquired& acquired) {
  return "acquired " + list(acquired.blocks) + " disk " + list(acquired.disk_block_ids);
}

std::string describe(const SnapshotInsert& insert) {
  return "displaced " + describe(insert.displaced) + ' ' + describe(insert.acquired);
}

std::string describe(const RadixTree::EpochInsert& insert) {
  return describe(static_cast<const InsertAcquired&>(insert)) + (insert.epoch_passed ? " epoch passed" : "");
}

std::string describe(const RadixTree::EpochSnapshotInsert& insert) {
  return describe(static_cast<const SnapshotInsert&>(insert)) + (insert.epoch_passed ? " epoch passed" : "");
}

std::string describe(const EvictedBlocks& evicted) {
  return "blocks " + list(evicted.physical) + " disk " + list(evicted.disk_block_ids);
}

std::string describe(const std::optional<TierEvict>& evict) {
  if (!evict) return "none";
  const bool spill = evict->action == TierEvict::Action::kSpill;
  return std::string(spill ? "spill" : "drop") + " slot " + std::to_string(evict->slot) + " key " +
         std::to_string(evict->key) + " tokens " + std::to_string(evict->tokens);
}

std::string describe(const SnapshotRef& ref) {
  return "slot " + describe(ref.slot) + " key " + describe(ref.tier_key) + " tokens " + std::to_string(ref.tokens) +
         (ref.is_tail ? " (tail)" : "");
}

std::string describe(const RadixTree::Peek& peek) {
  return "tokens " + std::to_string(peek.matched_tokens) + " stored " + std::to_string(peek.stored_tokens) +
         " snapshot " + describe(peek.snapshot);
}

std::string describe(const Cleared& cleared) {
  return describe(cleared.blocks) + " slots " + list(cleared.slots) + " keys " + list(cleared.tier_keys);
}

std::string describe(const BlockSpills& spills) {
  std::string text;
  for (const BlockSpill& spill : spills.blocks) {
    text += spill.action == BlockSpill::Action::kStored  ? "stored"
            : spill.action == BlockSpill::Action::kSpill ? "spill"
                                                         : "drop";
    text += " block " + std::to_string(spill.block) + " key " + std::to_string(spill.key) + " parent " +
            std::to_string(spill.parent) + " adapter " + std::to_string(spill.adapter_id) + " at " +
            std::to_string(spill.first_token) + ", ";
  }
  return text + "tokens " + list(spills.tokens) + " disk " + list(spills.disk_block_ids);
}

std::string describe(const std::optional<RadixTree::SpilledSnapshot>& spilled) {
  if (!spilled) return "none";
  return "kind " + std::to_string(static_cast<int>(spilled->kind)) + " adapter " +
         std::to_string(spilled->adapter_id) + " session " + std::to_string(spilled->session_hash) + " parent " +
         std::to_string(spilled->parent) + " at " + std::to_string(spilled->first_token) + " tokens " +
         list(spilled->tokens);
}

std::string describe(const StoredMatch& match) {
  return describe(match.first) + " stored " + list(match.second);
}

std::string describe(const RadixTreeCounters& counters) {
  std::string text;
  const auto add = [&text](const char* name, std::uint64_t value) {
    text += text.empty() ? "" : " ";
    text += name;
    text += '=';
    text += std::to_string(value);
  };
  add("lookups", counters.lookups);
  add("hit_tokens", counters.hit_tokens);
  add("missed_tokens", counters.missed_tokens);
  add("nodes_created", counters.nodes_created);
  add("nodes_evicted", counters.nodes_evicted);
  add("nodes_cleared", counters.nodes_cleared);
  add("plain_snapshot_hits", counters.plain_snapshot_hits);
  add("tail_snapshot_hits", counters.tail_snapshot_hits);
  add("sibling_snapshot_hits", counters.sibling_snapshot_hits);
  add("spilled_snapshot_hits", counters.spilled_snapshot_hits);
  add("snapshot_gap_tokens", counters.snapshot_gap_tokens);
  add("snapshots_put", counters.snapshots_put);
  add("snapshots_replaced", counters.snapshots_replaced);
  add("tails_replaced", counters.tails_replaced);
  add("snapshots_evicted", counters.snapshots_evicted);
  add("spills", counters.spills);
  add("promotions", counters.promotions);
  add("forgotten_keys", counters.forgotten_keys);
  add("orphaned_keys", counters.orphaned_keys);
  add("blocks_spilled", counters.blocks_spilled);
  add("blocks_saved", counters.blocks_saved);
  add("forgotten_blocks", counters.forgotten_blocks);
  add("protocol_errors", counters.protocol_errors);
  add("pinned_snapshots", counters.pinned_snapshots);
  add("resident_snapshot_bytes", counters.resident_snapshot_bytes);
  return text;
}

void sort_unordered(Cleared& cleared) {
  std::sort(cleared.blocks.physical.begin(), cleared.blocks.physical.end());
  std::sort(cleared.blocks.disk_block_ids.begin(), cleared.blocks.disk_block_ids.end());
  std::sort(cleared.slots.begin(), cleared.slots.end());
  std::sort(cleared.tier_keys.begin(), cleared.tier_keys.end());
}

void sort_unordered(std::vector<std::uint64_t>& values) {
  std::sort(values.begin(), values.end());
}

}  // namespace cairn::testing
