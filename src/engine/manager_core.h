// What a CacheManager and its leases share: the index, the pools, the tables of names, steps and eras, the counts.
//
// Everything here is thread-safe. The locks of the parts are leaves: none is held while another part is called, and a
// lease's body has no lock, since one thread at a time uses it. So there is no order among them to keep; a pool's lock
// is taken with none of Cairn's held.
#ifndef CAIRN_ENGINE_MANAGER_CORE_H_
#define CAIRN_ENGINE_MANAGER_CORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/cache_manager.h"
#include "cairn/radix_tree.h"
#include "engine/branch_sights.h"
#include "engine/eras.h"
#include "engine/names.h"
#include "engine/steps.h"

namespace cairn {

// A count that many threads add to. Relaxed: it orders nothing.
class Count {
 public:
  void add(std::uint64_t what) noexcept { value_.fetch_add(what, std::memory_order_relaxed); }
  void subtract(std::uint64_t what) noexcept { value_.fetch_sub(what, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// ManagerStats, as it is counted. Prompt tokens are reused + computed, so that they add up in every reading.
struct ManagerCounts {
  Count requests, resumed, reused_tokens, computed_tokens, matched_tokens, stateless_tokens, uncacheable_media;
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
  void step_over(StepId step, Step::State how) noexcept;
  // The manager is gone: no step will be reported any more.
  void close() noexcept;
  [[nodiscard]] ClearReport clear();
  [[nodiscard]] ClearReport clear(std::string_view adapter);
  [[nodiscard]] ManagerStats stats() const;
  [[nodiscard]] std::string validate() const;

  // ---- For leases ----

  [[nodiscard]] const CacheManagerOptions& options() const { return options_; }
  [[nodiscard]] std::size_t block_size() const { return options_.block_size; }
  [[nodiscard]] bool has_blocks() const { return options_.blocks != nullptr; }
  [[nodiscard]] bool has_snapshots() const { return options_.snapshots != nullptr; }
  [[nodiscard]] std::size_t blocks_for(std::size_t tokens) const {
    return tokens / block_size() + (tokens % block_size() == 0 ? 0 : 1);
  }

  // Appends `count` blocks to `table`, evicting what is short. How many are missing, if they can't be had; then
  // `table` is as it was.
  [[nodiscard]] std::size_t allocate(std::size_t count, std::vector<BlockId>& table);
  void drop_references(std::span<const BlockId> blocks) noexcept;
  // A slot to fill, by evicting one if none is free.
  [[nodiscard]] std::optional<SnapshotId> allocate_slot();
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
  [[nodiscard]] BranchSights& branch_sights() { return branch_sights_; }
  [[nodiscard]] ManagerCounts& counts() { return counts_; }

 private:
  static void take_up(Parkable* parked) noexcept;
  void give_back(Cleared cleared, ClearReport& report) noexcept;

  const CacheManagerOptions options_;
  RadixTree tree_;
  AdapterTable adapters_;
  MediaTable media_;
  std::atomic<bool> closed_{false};
  Steps steps_;
  Eras eras_;
  BranchSights branch_sights_;
  ManagerCounts counts_;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_MANAGER_CORE_H_
