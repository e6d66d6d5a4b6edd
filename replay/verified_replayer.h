// Replays a workload through a CacheManager with the verifying engine: every byte that the cache hands out is checked.
#ifndef CAIRN_REPLAY_VERIFIED_REPLAYER_H_
#define CAIRN_REPLAY_VERIFIED_REPLAYER_H_

#include <cairn/cache_manager.h>
#include <cairn/lease.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "replay/replay_tiers.h"
#include "replay/replayer.h"
#include "replay/verifying_engine.h"
#include "replay/workload.h"

namespace cairn::replay {

// Of a hybrid model: recurrent layers beside the attention layers.
struct SnapshotOptions {
  std::size_t slots = 0;
  std::size_t slot_bytes = 4096;
  std::size_t checkpoint_every_tokens = 0;  // a multiple of the block size; 0: none
  // As CacheManagerOptions::capture_*.
  bool tails = true;
  bool siblings = true;
  bool branch_points = true;
  bool last_token = false;
  std::string policy = "lru";  // as CacheManagerOptions::snapshot_policy
  SnapshotPolicyOptions policy_options{};
};

// Told of what happens in a verified replay, as it happens, by the thread that replays.
class VerifiedObserver {
 public:
  VerifiedObserver() = default;
  VerifiedObserver(const VerifiedObserver&) = delete;
  VerifiedObserver& operator=(const VerifiedObserver&) = delete;
  virtual ~VerifiedObserver() = default;

  // The lease has what it reuses, and room for the rest. Nothing of it is published yet.
  virtual void on_admitted(std::size_t index, const Lease& lease) = 0;
  // Its prompt is published; then once more, with its output, just before it finishes.
  virtual void on_published(std::size_t index, const Lease& lease) = 0;
};

// The names that a replay knows: those of snapshot_policy_names(), and "flop-auto": "flop" with a tuned weight.
[[nodiscard]] std::vector<std::string> replay_policy_names();
// Sets policy and its options as `name` says; what it does not say stays. Throws std::invalid_argument: there is none
// of that name.
void choose_policy(SnapshotOptions& options, const std::string& name);

struct VerifiedReplayOptions {
  std::string block_policy = "lru";  // first: GCC 12 warns of what a string after `replay` would do
  ReplayOptions replay{};            // but for its observer
  std::size_t prefill_chunk_tokens = 2048;
  std::optional<SnapshotOptions> snapshots{};  // none: attention layers alone
  std::optional<TierOptions> tiers{};          // none: what leaves memory is gone
  // Must outlive the replay. With it the manager remembers up to kEvictionsExplained evictions for Lease::explain.
  static constexpr std::size_t kEvictionsExplained = std::size_t{1} << 24;
  VerifiedObserver* observer = nullptr;
  // Leaves out the first `skip` requests of the workload, and ends after `stop_after` more.
  std::size_t skip = 0;
  std::size_t stop_after = std::numeric_limits<std::size_t>::max();
  // When the last request has ended, and what is to be kept has been saved; what is cached still is.
  std::function<void(const CacheManager&)> on_end{};
};

// Counts are of admitted requests only, each once, as of its admission.
struct VerifiedResult {
  std::uint64_t requests = 0;                   // neither skipped nor after the stop: admitted + rejected
  std::uint64_t rejected = 0;                   // need more blocks than the pool has; in no count below
  std::vector<RejectedRequest> first_rejected;  // the first RunResult::kRejectedNamedMax of them
  std::uint64_t waited = 0;                     // admitted only after a running one had made room
  std::uint64_t prompt_tokens = 0;              // reused + computed
  std::uint64_t matched_tokens = 0;             // whose KV was there: what attention layers alone could reuse
  std::uint64_t reused_tokens = 0;
  std::uint64_t stateless_tokens = 0;  // matched - reused: no state was kept that far
  std::uint64_t computed_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t published_blocks = 0;
  std::uint64_t deduplicated_blocks = 0;  // computed, but somebody had published the same first
  std::uint64_t evicted_blocks = 0;       // to make room; not what the end of the run sweeps
  std::uint64_t captures_published = 0;
  std::uint64_t captures_declined = 0;   // no slot to be had
  std::uint64_t captures_abandoned = 0;  // captured, but not kept
  std::uint64_t evicted_snapshots = 0;   // to make room
  CapturesByKind captures;               // what each kind cost and gave
  // By SnapshotPolicyOptions::model: of reused tokens, and of all prompt tokens.
  double saved_flops = 0;
  double prompt_flops = 0;
  VerifyingEngineCounts engine;
  std::optional<TierResult> tiers;  // if there are any
  SizeEstimates size_estimates;     // by the cache itself, meanwhile
  std::size_t pool_blocks = 0;
  std::size_t peak_blocks = 0;   // in use in the pool at once, running and cached
  std::size_t peak_running = 0;  // sequences
  // Slots for states in use at once, those being filled included: with so many none is ever evicted.
  std::size_t peak_snapshots = 0;
  double wall_time_s = 0;  // checks included

  [[nodiscard]] double flop_rate() const;   // saved_flops / prompt_flops; 0 if there are none
  [[nodiscard]] double reuse_rate() const;  // reused_tokens / prompt_tokens; 0 if there are none
  [[nodiscard]] double match_rate() const;  // matched_tokens / prompt_tokens; 0 if there are none
};

// One replay of one workload through a pool of `blocks`. A request is admitted with room for its prompt and its output
// (as Replayer reckons), its prompt is computed at once in chunks, captured where the lease asks for it, and published
// chunk by chunk. When it ends, its output, if its tokens are known, is computed token by token; then it finishes.
// One that finds too few blocks waits for a running one to end; nobody overtakes it.
//
// With tiers, a request whose lease is loading is waited for before anything else goes on. If its loading fails, so
// that it has to be abandoned, it is admitted again, without the store. At the end a file tier gets all that is worth
// a record and is closed: another replay on its directory goes on with it.
//
// Throws std::invalid_argument: an option, or a request that admit refuses (token ids from 2^31 on, say), named.
// Throws ReplayError: a wrong byte, a lease that loads for too long, or at the end counts that do not add up, pools
// that are not whole, or a damaged store. A store that loses records is no error.
// Throws std::runtime_error: the pools do not fit into memory; the directory can't be opened.
[[nodiscard]] VerifiedResult replay_verified(const Workload& workload, std::size_t blocks,
                                             const VerifiedReplayOptions& options);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_VERIFIED_REPLAYER_H_
