// One run in lockstep: callers that follow the protocol, on the tree and on the naive model at once. For lockstep.cc
// and lockstep_snapshots.cc.
#ifndef CAIRN_TESTS_SUPPORT_LOCKSTEP_RUN_H_
#define CAIRN_TESTS_SUPPORT_LOCKSTEP_RUN_H_

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "support/ledgers.h"
#include "support/operation_decoder.h"
#include "support/paired_caches.h"
#include "support/tables.h"

namespace cairn::testing::lockstep {

using Tokens = std::vector<TokenId>;

inline constexpr std::uint64_t kHashSeed = 1;  // fixed: a run can be repeated exactly
inline constexpr std::size_t kCallersMax = 8;
inline constexpr std::size_t kPlacesMax = 8;
inline constexpr std::size_t kKeysMax = 12;
inline constexpr std::size_t kPinsMax = 5;
inline constexpr std::size_t kOperationsBetweenValidations = 24;

// A running sequence.
struct Caller {
  AdapterId adapter_id = 0;
  SessionHash session = 0;
  std::uint64_t epoch = 0;
  Tokens tokens;
  std::vector<BlockId> matched_blocks;
  bool by_handle = false;
  std::size_t held_blocks = 0;  // by tokens
  PrefixHandle handle;          // by handle, and the model's
  NaivePrefixCache::Holding holding;
};

struct Place {
  AdapterId adapter_id = 0;
  SessionHash session = 0;
  Tokens tokens;
};

struct Pin {
  SnapshotPin of_tree;
  NaivePrefixCache::Pin of_model;
};

class Lockstep {
 public:
  Lockstep(const ProgramSettings& settings, std::ostream* trace, FaultInjector* faults)
      : settings_(settings),
        caches_({.block_size = settings.block_size,
                 .share_snapshots_across_sessions = settings.share_snapshots_across_sessions,
                 .first_tier_key = settings.first_tier_key,
                 .hash_seed = kHashSeed,
                 .snapshot_policy = settings.snapshot_policy,
                 .snapshot_policy_options = settings.snapshot_policy_options},
                trace, faults),
        tables_(settings),
        slots_(settings.slots),
        book_(settings) {}

  void step(const Operation& operation);
  void check_after_each();
  void check_thoroughly();
  void finish();
  [[nodiscard]] std::size_t calls() const { return caches_.calls(); }

 private:
  [[nodiscard]] std::size_t block_size() const { return settings_.block_size; }
  [[nodiscard]] bool is_stale(const Caller& caller) {
    return caller.epoch != caches_.model().epoch(caller.adapter_id);
  }
  // The caller of that way of holding which the operation means, made if there is none.
  Caller& caller_for(const Operation& operation, bool by_handle);
  void make_room(const Operation& operation);

  void start_by_lookup(const Operation& operation);
  void start_by_handle(const Operation& operation);
  PrefixMatch acquire(Caller& caller, const Operation& operation);
  PrefixMatch acquire_with(Caller& caller, const ReadOptions& options);
  [[nodiscard]] static ReadOptions options_for(const Operation& operation, std::size_t tokens);
  void insert(Caller& caller, std::size_t end, const Operation& operation);
  void insert_with_snapshot(Caller& caller, std::size_t end, const Operation& operation);
  void publish(const Operation& operation);
  void grow(const Operation& operation);
  void extend(const Operation& operation);
  void truncate(const Operation& operation);
  void release(Caller& caller, const Operation& operation);
  void release_at(std::size_t index, const Operation& operation);
  void peek(const Operation& operation);
  void evict(const Operation& operation);

  Place place_for(const Operation& operation);
  SnapshotId slot_to_fill(const Operation& operation);
  void put_plain(const Operation& operation);
  void put_tail(const Operation& operation);
  void put_sibling(const Place& place, const Operation& operation);
  bool evict_snapshot();
  bool evict_snapshot_to_tier(const Operation& operation);
  [[nodiscard]] TierKey key_for(const Operation& operation) const;
  void promote(const Operation& operation);
  void forget(const Operation& operation);
  void find_snapshot(const Operation& operation);

  void evict_blocks_to_tier(const Operation& operation);
  void save_blocks(const Operation& operation);
  void spilled_snapshot(const Operation& operation);
  void register_block(const Operation& operation);
  void register_snapshot(const Operation& operation);
  [[nodiscard]] TierKey record_for(const Operation& operation) const;
  void note_spills(const BlockSpills& spills, bool evicted);
  void find_and_pin_snapshot(const Place& place, const ReadOptions& options);
  void note_pin(Pin pin);
  void unpin(std::size_t index);
  void clear(AdapterId adapter_id);
  void clear_all();
  void give_back(const Cleared& cleared);
  void note_acquired(const InsertAcquired& acquired) {
    tables_.blocks().acquire(acquired.blocks);
    tables_.disk_blocks().acquire(acquired.disk_block_ids);
  }
  void note_given_back(const EvictedBlocks& evicted) {
    tables_.blocks().give_back(evicted.physical);
    tables_.disk_blocks().give_back(evicted.disk_block_ids);
  }
  void check_handle(const Caller& caller);
  // An epoch for the overloads: the current one, or for some operations one that has passed.
  std::uint64_t epoch_for(AdapterId adapter_id, const Operation& operation);

  ProgramSettings settings_;
  PairedCaches caches_;
  Tables tables_;
  SlotLedger slots_;
  PromptBook book_;
  std::vector<Caller> callers_;
  std::vector<Place> places_;  // where snapshots were put lately
  std::size_t next_place_ = 0;
  std::vector<Pin> pins_;
  std::vector<TierKey> keys_;  // handed out lately, dead or alive
  std::size_t next_key_ = 0;
  std::vector<TierKey> block_keys_;  // the same, of blocks
  std::size_t next_block_key_ = 0;
};

}  // namespace cairn::testing::lockstep

#endif  // CAIRN_TESTS_SUPPORT_LOCKSTEP_RUN_H_
