// Hit rate over cache size: one workload through pools of many sizes, by several policies, in parallel.
#ifndef CAIRN_REPLAY_SWEEP_H_
#define CAIRN_REPLAY_SWEEP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "replay/block_trace.h"
#include "replay/pool_size.h"
#include "replay/replayer.h"
#include "replay/snapshot_ceiling.h"
#include "replay/verified_replayer.h"
#include "replay/workload.h"

namespace cairn::replay {

// Runs tasks 0 to count - 1 on `jobs` threads (of which the caller's is one), in that order. The first exception ends
// it: tasks that have begun are completed, and it is thrown again. Throws std::invalid_argument: jobs zero.
void run_in_parallel(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& task);

struct SweepOptions {
  static constexpr std::size_t kDefaultSizes = 20;

  // None: kDefaultSizes, spaced evenly on a logarithmic scale from 0.5 % to 100 % of the distinct blocks.
  std::vector<PoolSize> sizes{};
  // Names that run_policy (comparison.h) knows, "optimum" and "unbounded".
  std::vector<std::string> policies{"lru", "optimum", "unbounded"};
  std::size_t jobs = 1;
  ReplayOptions replay{};  // on_request_done is called from several threads at once
};

struct SweepResult {
  struct Curve {
    std::string policy;
    std::vector<RunResult> runs;  // one for each size; of "unbounded" one for all

    [[nodiscard]] const RunResult& at(std::size_t size) const { return runs.size() == 1 ? runs[0] : runs[size]; }
  };

  std::size_t distinct_blocks = 0;
  std::uint64_t prompt_tokens = 0;       // of the workload
  std::vector<std::size_t> pool_blocks;  // the sizes, growing, each once
  std::vector<Curve> curves;             // in the order asked for

  // matched_tokens of all the workload's prompt tokens. Unlike RunResult::token_hit_rate it counts requests that never
  // fit as missed, so that rates at different sizes speak of the same tokens.
  [[nodiscard]] double hit_rate(const RunResult& run) const;
};

// The workload's tokens are expanded to numbers of blocks once, for all runs that need no tokens.
class Sweep {
 public:
  // The workload must outlive this. O(tokens of the workload). Throws std::invalid_argument: no such policy, a policy
  // named twice, none at all; what PoolSize::blocks and BlockTrace throw.
  Sweep(const Workload& workload, SweepOptions options);

  // Replays of the workload that run() makes: each calls on_request_done once for each request.
  [[nodiscard]] std::size_t replays() const { return tasks_.size(); }
  // To be called once. Throws as run_policy, find_optimum and run_unbounded.
  [[nodiscard]] SweepResult run();

 private:
  struct Task {
    std::size_t curve = 0;
    std::size_t size = 0;  // index
  };

  [[nodiscard]] RunResult run_one(const std::string& policy, std::size_t blocks) const;

  const Workload& workload_;
  SweepOptions options_;
  BlockTrace blocks_;
  SweepResult result_;
  std::vector<Task> tasks_;  // those that take longest first
};

// kDefaultSizes values from 0.5 % to 100 % of `all`, growing, each once, none of them 0.
[[nodiscard]] std::vector<std::size_t> default_sweep_sizes(std::size_t all);

// ---- Snapshot slots, by the verifying engine (verified_replayer.h): a hybrid model, a pool of blocks of one size
// ----

struct SnapshotSweepOptions {
  // None: default_sweep_sizes up to the least number at which nothing is evicted.
  std::vector<std::size_t> slots{};
  // Of that number, beside `slots`: 0.01 is a hundredth, rounded down, but at least 1.
  std::vector<double> shares{};
  std::vector<std::string> policies{"lru"};  // of replay_policy_names()
  bool ceiling = true;                       // finds SnapshotSweepResult::ceilings, where they can be
  std::size_t pool_blocks = 0;
  std::size_t jobs = 1;
  VerifiedReplayOptions verified{};  // with `snapshots`, whose slots and policy do not count
};

struct SnapshotSweepResult {
  struct Curve {
    std::string policy;
    std::vector<VerifiedResult> runs;  // one for each number of slots
  };

  std::size_t pool_blocks = 0;
  std::size_t needed = 0;          // the fewest slots at which nothing is evicted
  std::vector<std::size_t> slots;  // growing, each once
  std::vector<Curve> curves;       // in the order asked for
  // One for each number of slots; empty if a block was evicted, a request never fits, or states are kept at the last
  // token of a prompt, in the middle of a block: what a ceiling takes for given does not hold then.
  std::vector<SnapshotCeiling> ceilings;
  VerifiedResult unbounded;  // with so many slots that none is evicted
};

// A replay for each policy and number of slots, and one without end. Throws std::invalid_argument: no snapshots in
// `verified`, a slot number of zero, a policy that there is not, none at all or one twice; else as replay_verified.
[[nodiscard]] SnapshotSweepResult sweep_snapshots(const Workload& workload, const SnapshotSweepOptions& options);

// ---- Bytes behind the pool, by the verifying engine with a RAM tier: a pool of blocks of one size ----

struct TierSweepOptions {
  // Room in the tier, as blocks of KV; snapshots take their part of it. None: kDefaultMultiples of the pool, up to all
  // of the workload's distinct blocks.
  std::vector<PoolSize> sizes{};
  static constexpr std::array kDefaultMultiples = {0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0};
  std::size_t pool_blocks = 0;
  std::size_t distinct_blocks = 0;  // of the workload
  std::size_t jobs = 1;
  VerifiedReplayOptions verified{};  // of its tiers only the spill options count
};

struct TierSweepResult {
  std::size_t pool_blocks = 0;
  std::size_t distinct_blocks = 0;
  std::vector<std::size_t> tier_blocks;  // growing, each once
  std::vector<std::size_t> tier_bytes;   // parallel to it: of the replay's small records, headers included
  std::vector<VerifiedResult> runs;      // the same
  VerifiedResult without;                // a tier
};

// One replay for each size, and one without a tier. Throws as replay_verified and PoolSize::blocks.
[[nodiscard]] TierSweepResult sweep_tiers(const Workload& workload, const TierSweepOptions& options);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_SWEEP_H_
