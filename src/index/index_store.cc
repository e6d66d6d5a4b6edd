// Index's steps on what a store has: blocks and spilled snapshots.
#include <utility>

#include "base/refuse.h"
#include "index/index.h"

namespace cairn {

BlockSpills Index::evict_to_store(std::size_t num_blocks, std::size_t min_tokens) {
  BlockSpills spills;
  EvictedBlocks evicted;
  const Writing writing(*this);
  trie_.prepare_spills(num_blocks, spills);
  trie_.prepare_evict(num_blocks, evicted);
  {
    const Gate::Closed closed(gate_);
    trie_.evict_to_store(closed, num_blocks, last_tick(), min_tokens, evicted, spills);
  }
  spills.disk_block_ids = std::move(evicted.disk_block_ids);
  counters_.nodes_evicted += spills.blocks.size();
  for (const BlockSpill& spill : spills.blocks) {
    if (spill.action == BlockSpill::Action::kSpill) ++counters_.blocks_spilled;
  }
  return spills;
}

BlockSpills Index::save_chain(Position at, AdapterId adapter_id, std::uint64_t epoch, const Saving& what) {
  BlockSpills spills;
  const Writing writing(*this);
  if (epoch != epoch_in_commit(adapter_id)) return spills;
  trie_.save_chain(at, what.from_tokens / block_size(), what.num_blocks, what.min_tokens, spills);
  counters_.blocks_saved += spills.blocks.size();
  return spills;
}

BlockSpills Index::save_all(std::size_t num_blocks, std::size_t min_tokens) {
  BlockSpills spills;
  const Writing writing(*this);
  trie_.save_all(num_blocks, min_tokens, spills);
  counters_.blocks_saved += spills.blocks.size();
  return spills;
}

bool Index::forget_record(TierKey key) {
  const Writing writing(*this);
  if (trie_.forget_record(key)) {
    ++counters_.forgotten_blocks;
    return true;
  }
  const auto index = snapshots_.find_key(key);
  if (index == SnapshotTable::kNone) return false;
  const Gate::Closed closed(gate_);
  snapshots_.remove(closed, index);
  ++counters_.forgotten_keys;
  return true;
}

std::optional<RadixTree::SpilledSnapshot> Index::spilled_snapshot(TierKey key, bool from_start) {
  const Writing writing(*this);
  const auto index = snapshots_.find_key(key);
  if (index == SnapshotTable::kNone) return std::nullopt;
  const SnapshotTable::Snapshot& snapshot = snapshots_[index];
  RadixTree::SpilledSnapshot spilled;
  spilled.kind = snapshot.kind;
  spilled.adapter_id = snapshot.adapter_id;
  spilled.session_hash = snapshot.session;
  if (from_start) {
    spilled.tokens = path_tokens(snapshot.at);
    spilled.tokens.insert(spilled.tokens.end(), snapshot.residual.begin(), snapshot.residual.end());
    return spilled;
  }
  spilled.first_token = snapshot.tokens - snapshot.residual.size();
  spilled.tokens = snapshot.residual;
  trie_.keys().reserve(1);
  if (snapshot.at.edge != kTop) spilled.parent = trie_.keys().name(snapshot.at);
  return spilled;
}

void Index::check_registered_key(TierKey key) const {
  if (key == 0) refuse("key", "0 given; 0 stands for no key");
  if (key < trie_.keys().first()) return;
  refuse("key", std::to_string(key) + " is not below first_tier_key, " + std::to_string(trie_.keys().first()) +
                    ": it could be given to something else");
}

bool Index::register_block(const StoredBlock& block) {
  const Writing writing(*this);
  check_registered_key(block.key);
  return snapshots_.find_key(block.key) == SnapshotTable::kNone && trie_.register_block(block);
}

bool Index::register_snapshot(const StoredSnapshot& snapshot) {
  const Writing writing(*this);
  check_registered_key(snapshot.key);
  if (snapshot.kind != SnapshotKind::kPlain && snapshot.session_hash == 0) return false;  // nobody could find it
  if (trie_.keys().is_known(snapshot.key) || snapshots_.find_key(snapshot.key) != SnapshotTable::kNone) return false;
  const auto parent = trie_.find_stored_parent(snapshot.parent, snapshot.adapter_id);
  return parent && snapshots_.add_spilled(*parent, snapshot, tick());
}

std::size_t Index::recorded_blocks() const {
  const MutexLock lock(writer_);
  return trie_.keys().recorded();
}

}  // namespace cairn
