// Replays a workload through a prefix cache, doing what an inference engine does with each request.
#ifndef CAIRN_REPLAY_REPLAYER_H_
#define CAIRN_REPLAY_REPLAYER_H_

#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replay/block_pool.h"
#include "replay/content_digest.h"
#include "replay/running_sequences.h"
#include "replay/workload.h"

namespace cairn::replay {

// Told of what happens in a replay, as it happens, by the thread that replays.
class ReplayObserver {
 public:
  ReplayObserver() = default;
  ReplayObserver(const ReplayObserver&) = delete;
  ReplayObserver& operator=(const ReplayObserver&) = delete;
  virtual ~ReplayObserver() = default;

  // The request at `index` has its blocks, of which the first are matched ones. Nothing of it is published yet.
  virtual void on_admitted(std::size_t index, std::size_t matched_blocks) = 0;
  // The cache has all of `table` now, full blocks of the request's sequence from its start. It took `taken`, the last
  // of them; what comes before, it had already.
  virtual void on_published(std::size_t index, std::span<const BlockId> table, std::span<const BlockId> taken) = 0;
  // To make room for the request at `index`.
  virtual void on_evicted(std::size_t index, std::span<const BlockId> blocks) = 0;
};

struct ReplayOptions {
  std::size_t block_size = 16;
  // How long a request runs. Without a service rate, until fewer than `concurrency` others may run beside the next
  // one: the oldest ends first, and 1 replays one after the other. With one (output tokens per second of each
  // sequence), arrivals are the time stamps and a request ends output_length / service_rate after it was admitted.
  std::size_t concurrency = 1;
  std::optional<double> service_rate{};
  std::function<void()> on_request_done{};  // admitted or rejected; from the thread that replays
  ReplayObserver* observer = nullptr;       // must outlive the replay
};

struct RejectedRequest {
  std::uint64_t line = 0;
  std::size_t blocks_needed = 0;
};

// Counts are of admitted requests only, each once, as of the moment it was admitted.
struct RunResult {
  static constexpr std::size_t kRejectedNamedMax = 10;

  std::string name;
  bool ideal = false;  // computed (optimum.h), no cache ran: created, evicted and peak blocks and times mean nothing
  std::uint64_t requests = 0;  // of the workload: admitted + rejected
  std::uint64_t rejected = 0;  // need more blocks than the pool has; not looked up, not in any count below
  std::vector<RejectedRequest> first_rejected;  // the first kRejectedNamedMax of them
  std::uint64_t waited = 0;                     // admitted only after a running one had made room
  std::uint64_t prompt_tokens = 0;
  std::uint64_t matched_tokens = 0;  // found by lookup
  std::uint64_t reused_tokens = 0;   // of those, all but the last prompt token, which is always computed
  std::uint64_t prompt_blocks = 0;   // full ones
  std::uint64_t matched_blocks = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t created_blocks = 0;  // that the cache took
  std::uint64_t evicted_blocks = 0;  // to make room; not what the end of the run sweeps
  std::size_t peak_blocks = 0;       // in use in the pool at once, running and cached
  std::size_t peak_running = 0;      // sequences
  std::optional<std::size_t> pool_blocks;
  double cache_time_p50_us = 0;  // of the sum of a request's calls into the cache
  double cache_time_p99_us = 0;
  double cache_time_total_s = 0;
  double wall_time_s = 0;  // of the whole run, simulation and checks included

  [[nodiscard]] double token_hit_rate() const;  // matched_tokens / prompt_tokens; 0 if there are none
  [[nodiscard]] double block_hit_rate() const;  // matched_blocks / prompt_blocks; 0 if there are none
};

// One replay of one workload. A request is looked up, gets the rest of the blocks for its prompt and one private
// block for each block_size output tokens (evicting exactly what is short), and is inserted at once. When it ends,
// its output, if its tokens are known, is inserted, it is released and its references go back. One that finds too
// few blocks gives up its match and waits for a running one to end; nobody overtakes it.
//
// Each block's content is tracked from the tokens of the request that filled it, and every block that a lookup hands
// out is compared with what the request's own tokens ask for.
class Replayer {
 public:
  // All must outlive this; the cache and the pool are empty. Throws std::invalid_argument: block_size or concurrency
  // zero; service_rate not above zero, or the workload has no time stamps for it.
  Replayer(PrefixCache& cache, SimulatedBlockPool& pool, const Workload& workload, ReplayOptions options);

  // To be called once. At the end everything is released and evicted, and cache and pool are empty again. Throws
  // ReplayError: the cache handed out a wrong block, or does not give back what it took.
  RunResult run();

 private:
  struct Running {
    std::size_t index = 0;
    std::vector<BlockId> table;  // one reference on each is held
    std::uint64_t cache_ns = 0;
  };

  void admit(std::size_t index, std::size_t blocks_needed);
  bool try_admit(Running& running, std::size_t blocks_needed);
  void count_admitted(const Running& running, std::size_t matched_blocks);
  void finish(Running running);
  void publish(const Running& running, std::span<const TokenId> tokens, std::size_t held_tokens,
               std::uint64_t& cache_ns);
  void sweep();

  void check_match(std::size_t index, const PrefixMatch& match) const;
  [[nodiscard]] std::size_t blocks_for(std::size_t tokens) const;
  [[nodiscard]] std::string describe(std::size_t index) const;

  PrefixCache& cache_;
  SimulatedBlockPool& pool_;
  const Workload& workload_;
  ReplayOptions options_;
  RunResult result_;
  RunningSequences<Running> running_;
  std::vector<std::uint64_t> cache_ns_;  // of each finished request

  // Of the request being admitted, kept to reuse the memory.
  std::vector<TokenId> prompt_;
  std::vector<ContentDigest> digests_;
  // Of the request that ends: admitting one may have to end another.
  std::vector<TokenId> ended_tokens_;
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_REPLAYER_H_
