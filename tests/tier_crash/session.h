// A run of known records through one store, in this process: what was promised is noted, and every answer checked.
#ifndef CAIRN_TESTS_TIER_CRASH_SESSION_H_
#define CAIRN_TESTS_TIER_CRASH_SESSION_H_

#include <cairn/spill_store.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tier_crash/survivors.h"

namespace cairn::testing {

// Used by one thread. What breaks a promise is a test failure. Each call waits for its `done`; one that comes twice,
// or not within a minute, ends the program.
class Session {
 public:
  Session(std::shared_ptr<SpillStore> store, Survivors& survivors)
      : store_(std::move(store)), survivors_(survivors), first_key_(store_->first_key()) {}

  // All at once.
  void put(std::span<const TierKey> keys);
  void get(std::span<const TierKey> keys);
  void erase(TierKey key);
  bool flush(std::chrono::milliseconds timeout);
  void note_lost();

  // The same calls each time: puts, gets, replacements, erasures, flushes; more records than a tiny store has room
  // for.
  void run_small_workload(std::chrono::milliseconds flush_timeout);
  // As many, drawn at random.
  void run_random_workload(std::mt19937_64& random, std::size_t operations, std::chrono::milliseconds flush_timeout);

  // Every count that has to fit the calls made here.
  void check_stats() const;

  [[nodiscard]] SpillStore& store() { return *store_; }
  [[nodiscard]] TierKey first_key() const { return first_key_; }

 private:
  void note(KillLogEntry::What what, TierKey key = 0);

  std::shared_ptr<SpillStore> store_;
  Survivors& survivors_;
  TierKey first_key_;
  std::uint64_t accepted_ = 0;
  std::uint64_t not_stored_ = 0;  // not accepted, or dropped
  std::uint64_t gets_ = 0;
  std::uint64_t found_ = 0;
  std::uint64_t missing_ = 0;
  std::uint64_t failed_ = 0;
};

// What a store that was just opened has recovered: everything got and compared. What is wrong is a test failure, but
// for what is missing, which the caller may know a reason for. The next run starts from what was found.
struct Recovery {
  std::size_t compared = 0;
  std::vector<TierKey> missing;
};
[[nodiscard]] Recovery check_recovered(SpillStore& store, Survivors& survivors);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TIER_CRASH_SESSION_H_
