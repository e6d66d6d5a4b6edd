// What a CacheManager and its leases share: the index, the pools, the tables of names, steps and eras, the counts.
//
// Everything here is thread-safe. The locks of the parts are leaves: none is held while another part is called, and a
// lease's body has no lock, since one thread at a time uses it. So there is no order among them to keep; a pool's lock
// is taken with none of Cairn's held. The one exception is leaving_, which is taken before the index's and a pool's.
#ifndef CAIRN_ENGINE_MANAGER_CORE_H_
#define CAIRN_ENGINE_MANAGER_CORE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/containers.h"
#include "base/mutex.h"
#include "cairn/cache_manager.h"
#include "cairn/radix_tree.h"
#include "engine/block_uses.h"
#include "engine/branch_sights.h"
#include "engine/count.h"
#include "engine/eras.h"
#include "engine/evicted_memory.h"
#include "engine/fetch_cost.h"
#include "engine/histograms.h"
#include "engine/names.h"
#include "engine/size_estimator.h"
#include "engine/snapshot_kinds.h"
#include "engine/spiller.h"
#include "engine/steps.h"

namespace cairn {

// ManagerStats, as it is counted. Reused tokens are those of the three, prompt tokens reused + computed, so that they
// add up in every reading.
struct ManagerCounts {
  Count requests, resumed, computed_tokens, matched_tokens, stateless_tokens, uncacheable_media;
  Count memory_tokens, ram_tier_tokens, file_tier_tokens;  // reused, from there
  Count fetches, failed_fetches, unprofitable_fetches, fetched_blocks, fetched_snapshots, fetched_bytes, loading;
  Count recovered_blocks, recovered_snapshots, useless_records;
  Count refused_admissions, refused_reserves;
  Count published_blocks, deduplicated_blocks, evicted_blocks;
  Count captures_published, captures_declined, captures_abandoned, evicted_snapshots;
  Count finished, preempted, abandoned, waits, forks, failed_steps;
  Count live_leases;
};

class ManagerCore : public std::enable_shared_from_this<ManagerCore> {
 public:
  explicit ManagerCore(CacheManagerOptions options);
  // The last lease is gone: the pools get back what the cache holds.
  ~ManagerCore();
  ManagerCore(const ManagerCore&) = delete;
  ManagerCore& operator=(const ManagerCore&) = delete;

  // ---- CacheManager's calls ----

  [[nodiscard]] Admission admit(const Request& request);
  [[nodiscard]] Peeked peek(const Request& request) const;
  [[nodiscard]] PrefixPin pin_prefix(const Request& request);
  bool unpin_prefix(std::uint64_t id);
  [[nodiscard]] std::size_t pinned_blocks() const { return tree_.pinned_blocks(); }
  void step_over(StepId step, Step::State how) noexcept;
  // The manager is gone: no step will be reported any more.
  void close() noexcept;
  [[nodiscard]] ClearReport clear();
  [[nodiscard]] ClearReport clear(std::string_view adapter);
  [[nodiscard]] bool flush(std::chrono::milliseconds timeout);
  [[nodiscard]] SaveReport save(std::chrono::milliseconds timeout);
  [[nodiscard]] ManagerStats stats() const;
  [[nodiscard]] std::string validate() const;

  // ---- For leases ----

  [[nodiscard]] const CacheManagerOptions& options() const { return options_; }
  [[nodiscard]] std::size_t block_size() const { return options_.block_size; }
  [[nodiscard]] bool has_blocks() const { return options_.blocks != nullptr; }
  [[nodiscard]] bool has_snapshots() const { return options_.snapshots != nullptr; }
  [[nodiscard]] bool has_store() const { return options_.store != nullptr; }
  // Whether Request::priorities mean anything.
  [[nodiscard]] bool takes_priorities() const { return has_blocks() && options_.block_policy == "priority"; }
  [[nodiscard]] std::size_t blocks_for(std::size_t tokens) const {
    return tokens / block_size() + (tokens % block_size() == 0 ? 0 : 1);
  }

  // Appends `count` blocks to `table`, evicting what is short. How many are missing, if they can't be had; then
  // `table` is as it was. `admission`: for whom.
  [[nodiscard]] std::size_t allocate(std::size_t count, std::vector<BlockId>& table, std::uint64_t admission);
  void drop_references(std::span<const BlockId> blocks) noexcept;
  // A slot to fill, by evicting one if none is free.
  [[nodiscard]] std::optional<SnapshotId> allocate_slot(std::uint64_t admission);
  // Stores those of the handle's blocks that have no record, with write_through.
  void write_through(const PrefixHandle& handle, std::size_t new_blocks) noexcept;
  // The index has given up the key.
  void erase_record(TierKey key) noexcept { spiller_->erase({&key, 1}); }
  // The record is gone: the index gives up the key. The store goes first, so that it has no record that no clear
  // knows.
  void forget_record(TierKey key) noexcept;
  // Whether it is there, and where. One that is neither there nor on its way is forgotten.
  [[nodiscard]] std::optional<Tier> find_record(TierKey key) noexcept;
  // The index forgets what the store has lost, and the store what the index has.
  void settle_lost() noexcept;
  // The cache or a lease gives it up.
  void free_slot(SnapshotId slot) noexcept;
  // Deletes the body, or parks it until its last step is over.
  static void end(std::unique_ptr<Lease::Body> body) noexcept;
  // The leases of an era may have gone.
  void drop_unused_eras() noexcept;

  // Whether the manager is gone. Relaxed: a lease that sees it late publishes into a cache that nobody reads.
  [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_relaxed); }
  [[nodiscard]] RadixTree& tree() { return tree_; }
  [[nodiscard]] AdapterTable& adapters() { return adapters_; }
  [[nodiscard]] MediaTable& media() { return media_; }
  [[nodiscard]] Steps& steps() { return steps_; }
  [[nodiscard]] Eras& eras() { return eras_; }
  [[nodiscard]] EvictedMemory& evicted_memory() { return evicted_memory_; }
  [[nodiscard]] BranchSights& branch_sights() { return branch_sights_; }
  [[nodiscard]] SnapshotKinds& snapshot_kinds() { return snapshot_kinds_; }
  [[nodiscard]] BlockUses& block_uses() { return block_uses_; }
  [[nodiscard]] SizeEstimator& size_estimator() { return size_estimator_; }
  [[nodiscard]] FetchCost& fetch_cost() { return fetch_cost_; }
  [[nodiscard]] ManagerCounts& counts() { return counts_; }
  [[nodiscard]] EngineHistograms& histograms() { return histograms_; }

 private:
  // They have left the cache, and nobody else has them yet.
  void forget_blocks(std::span<const BlockId> blocks) noexcept {
    branch_sights_.forget(blocks);
    size_estimator_.forget(blocks);
  }

  // What a pinned prefix is named by: one use of each.
  struct PinnedNames {
    AdapterId adapter = 0;
    std::vector<TokenId> media;
    std::uint64_t epoch = 0;  // of the adapter, from before it was pinned
  };
  void drop(const PinnedNames& names) noexcept;
  // The names of pins that a clear has ended.
  void drop_cleared_pins() noexcept;

  static void take_up(Parkable* parked) noexcept;
  [[nodiscard]] Cleared clear_index(std::optional<AdapterId> id);  // none: all
  void give_back(Cleared cleared, ClearReport& report) noexcept;
  // Always 0: none are missing.
  [[nodiscard]] std::size_t took_blocks(std::span<const BlockId> blocks) noexcept;

  // ---- With a store (tiers.cc) ----

  // How many have left the index; whether there was one.
  [[nodiscard]] std::size_t evict_blocks(std::size_t count, std::uint64_t admission);
  [[nodiscard]] bool evict_snapshot(std::uint64_t admission);
  [[nodiscard]] std::optional<TierEvict> take_snapshot();  // out of the index, its key announced
  void announce(BlockSpills& victims) noexcept CAIRN_REQUIRES(leaving_);
  void store_victim(const BlockSpill& victim, std::span<const TokenId> tokens) noexcept;
  bool spill_snapshot(TierKey key, SnapshotId slot) noexcept;
  [[nodiscard]] std::optional<RecordLineage> snapshot_lineage(TierKey key, bool from_start);
  void recover();
  [[nodiscard]] bool recover_block(const SpillStore::Recovered& record);
  [[nodiscard]] bool recover_snapshot(const SpillStore::Recovered& record);
  void save_blocks(std::chrono::steady_clock::time_point until, SaveReport& report);
  void save_snapshots(std::chrono::steady_clock::time_point until, SaveReport& report);
  void add_tier_stats(ManagerStats& stats) const;
  [[nodiscard]] bool wait_for_room(RecordKind kind, std::chrono::steady_clock::time_point until);

  const CacheManagerOptions options_;
  RadixTree tree_;
  AdapterTable adapters_;
  MediaTable media_;
  std::atomic<bool> closed_{false};
  Steps steps_;
  Eras eras_;
  EvictedMemory evicted_memory_;
  std::atomic<std::uint64_t> admissions_{0};  // numbers them; relaxed: orders nothing
  BranchSights branch_sights_;
  SnapshotKinds snapshot_kinds_;
  BlockUses block_uses_;  // none unless it matters
  SizeEstimator size_estimator_;
  FetchCost fetch_cost_;
  const std::shared_ptr<Spiller> spiller_;  // null without a store
  // Held while blocks and snapshots leave the index and their keys are announced; while keys that died are taken from
  // it; and while blocks in it get a reference for being copied. So nobody copies a block that has left and been
  // handed out again, and what is erased was announced before or is never stored. Only with a store.
  Mutex leaving_;
  Mutex pins_mutex_;
  IdMap<PinnedNames> pins_ CAIRN_GUARDED_BY(pins_mutex_);
  ManagerCounts counts_;
  EngineHistograms histograms_;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_MANAGER_CORE_H_
