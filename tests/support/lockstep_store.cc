// What a run in lockstep does with blocks in a store.
#include <algorithm>
#include <array>
#include <limits>

#include "support/lockstep_run.h"

namespace cairn::testing::lockstep {
namespace {

// Keys that can be registered: few, so that they are taken now and then, and some that are refused.
TierKey old_key(std::uint8_t byte, TierKey first_tier_key) {
  if (byte >= 250) return byte % 2 == 0 ? 0 : first_tier_key;
  return byte % std::min<TierKey>(first_tier_key, 24);
}

std::size_t min_tokens_for(const Operation& operation, std::size_t block_size) {
  return operation.cut % 3 == 0 ? 0 : operation.cut % (4 * block_size + 2);
}

}  // namespace

void Lockstep::note_spills(const BlockSpills& spills, bool evicted) {
  if (evicted) tables_.disk_blocks().give_back(spills.disk_block_ids);
  for (const BlockSpill& spill : spills.blocks) {
    if (evicted) tables_.blocks().give_back(std::array{spill.block});
    if (spill.key == 0) continue;
    if (block_keys_.size() < kKeysMax) {
      block_keys_.push_back(spill.key);
    } else {
      block_keys_[next_block_key_++ % kKeysMax] = spill.key;
    }
  }
}

TierKey Lockstep::record_for(const Operation& operation) const {
  if (block_keys_.empty() || operation.source >= 250) return operation.source;
  return block_keys_[operation.source % block_keys_.size()];
}

void Lockstep::evict_blocks_to_tier(const Operation& operation) {
  std::size_t count = operation.extra % 4 + std::size_t{1};
  if (operation.extra >= 200) count = operation.extra % 24;
  if (operation.extra >= 248) count = std::numeric_limits<std::size_t>::max();
  const std::size_t min_tokens = min_tokens_for(operation, block_size());
  const auto spills = caches_.both([&] { return call_text("evict_blocks_to_tier", count, min_tokens); },
                                   [&](auto& cache) { return cache.evict_blocks_to_tier(count, min_tokens); });
  note_spills(*spills, true);
}

void Lockstep::save_blocks(const Operation& operation) {
  const std::size_t count = operation.extra % 2 == 0 ? 1000 : operation.extra / 4 % 6;
  const std::size_t min_tokens = min_tokens_for(operation, block_size());
  if (operation.extra % 4 < 3) {
    Caller& caller = caller_for(operation, true);
    const auto saved =
        caches_.both([&] { return call_text("save_blocks", caller.holding.tokens, count, min_tokens); },
                     [&](RadixTree& tree) { return tree.save_blocks(caller.handle, count, min_tokens); },
                     [&](NaivePrefixCache& model) { return model.save_blocks(caller.holding, count, min_tokens); });
    return note_spills(*saved, false);
  }
  BlockSpills saved;
  caches_.both([&] { return call_text("save_blocks", count, min_tokens); },
               [&](RadixTree& tree) {
                 saved = tree.save_blocks(count, min_tokens);
                 return std::uint64_t{saved.blocks.size()};
               },
               [&](NaivePrefixCache& model) {
                 model.take_over_saved(saved, count, min_tokens);
                 return std::uint64_t{saved.blocks.size()};
               });
  note_spills(saved, false);
}

void Lockstep::spilled_snapshot(const Operation& operation) {
  const TierKey key = key_for(operation);
  const bool from_start = operation.extra % 2 == 1;
  caches_.both([&] { return call_text("spilled_snapshot", key, from_start); },
               [&](auto& cache) { return cache.spilled_snapshot(key, from_start); });
}

void Lockstep::register_block(const Operation& operation) {
  const Tokens tokens = book_.make(operation);
  StoredBlock block{old_key(operation.table, settings_.first_tier_key), 0, operation.adapter_id(), {}};
  if (operation.extra % 4 != 1) block.parent = record_for(operation);
  block.tokens = std::span(tokens).first(std::min(block_size(), tokens.size()));
  const auto registered = caches_.both(
      [&] { return call_text("register_stored_block", block.key, block.parent, block.adapter_id, block.tokens); },
      [&](auto& cache) { return cache.register_stored_block(block); });
  if (registered && *registered) block_keys_.push_back(block.key);
}

void Lockstep::register_snapshot(const Operation& operation) {
  const Tokens tokens = book_.make(operation);
  StoredSnapshot snapshot;
  snapshot.kind = static_cast<StoredSnapshot::Kind>(operation.run_a % 3);
  snapshot.key = old_key(operation.table, settings_.first_tier_key);
  snapshot.parent = operation.extra % 2 == 0 ? record_for(operation) : 0;
  snapshot.adapter_id = operation.adapter_id();
  snapshot.session_hash = operation.session();
  const bool whole = snapshot.parent == 0 && operation.extra / 2 % 2 == 0;
  const std::size_t wanted = whole ? tokens.size() : operation.extra / 4 % (block_size() + 1);
  snapshot.tokens = std::span(tokens).first(std::min(wanted, tokens.size()));
  const auto registered = caches_.both(
      [&] {
        return call_text("register_spilled_snapshot", snapshot.key, snapshot.parent, snapshot.adapter_id,
                         snapshot.session_hash, snapshot.tokens);
      },
      [&](auto& cache) { return cache.register_spilled_snapshot(snapshot); });
  if (registered && *registered) keys_.push_back(snapshot.key);
}

}  // namespace cairn::testing::lockstep
