// CacheManager: the cache as an engine wants it. It brings together the index (RadixTree), the blocks (BlockAllocator)
// and the snapshots (SnapshotPool), and gives each request a Lease that discharges every obligation.
//
//     CacheManager manager({.block_size = 16, .blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks =
//     4096})});
//
// Attention-only models give no `snapshots`, purely recurrent ones no `blocks`; all calls are the same.
//
// With a store, what leaves memory is stored, and what a request can use of it is fetched while its lease is loading:
//
//     auto buffers = std::make_shared<SpillBuffers>(SpillLayout{...}, 1 << 30);
//     auto opened = open_file_store({.buffers = buffers, .directory = "/var/cache/cairn", .bytes_max = 100ull << 30});
//     CacheManager manager({.blocks = blocks, .snapshots = snapshots, .store = opened.store});
//
// Threads: every member may be called from any thread at any time. None does I/O or waits for any, but for flush and
// save.
#ifndef CAIRN_CACHE_MANAGER_H_
#define CAIRN_CACHE_MANAGER_H_

#include <cairn/block_pool.h>
#include <cairn/block_retention.h>
#include <cairn/lease.h>
#include <cairn/prefix_cache.h>
#include <cairn/snapshot_policy.h>
#include <cairn/snapshot_pool.h>
#include <cairn/spill_store.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// What is stored, and when it is fetched.
struct SpillOptions {
  // Chains that end before so many tokens are not worth a record, unless something is kept below them.
  std::size_t block_tokens_min = 0;
  // Nor are blocks that fewer requests have used, the one that computed them included. Above 1 each admission counts
  // its matched blocks, one by one.
  std::uint32_t block_uses_min = 1;
  std::size_t snapshot_tokens_min = 0;  // shallower snapshots are dropped
  // Blocks are stored when they are published, not when they leave memory: what a crash loses then is what was under
  // way. Costs a write for each block that is ever cached.
  bool write_through = false;

  // Fetching pays if it saves at least so many tokens and takes less time than computing them:
  //     bytes to fetch / fetch_bytes_per_s < tokens saved / prefill_tokens_per_s
  std::size_t fetch_tokens_min = 256;
  // 0: measured, each as a moving average; the first fetches are made in any case. Prefill is measured over steps of
  // 256 tokens and more, from their first Lease::writes to step_done.
  double fetch_bytes_per_s = 0;  // of either tier; measured, each has its own
  double prefill_tokens_per_s = 0;
  std::size_t fetch_depth = 64;  // records that one lease asks for at once
};

struct CacheManagerOptions {
  std::size_t block_size = 16;                // tokens in a KV block
  std::shared_ptr<BlockAllocator> blocks{};   // null: the model has no attention layers
  std::shared_ptr<SnapshotPool> snapshots{};  // null: it has no recurrent layers. One of the two is needed
  // Where what leaves memory goes. Null: it is gone. Its layout has to be that of blocks and snapshots; blocks have to
  // have bytes (BlockAllocator::block_bytes). What it has recovered is found from the start. One manager for each.
  std::shared_ptr<SpillStore> store{};
  SpillOptions spill{};
  std::size_t sliding_window_tokens = 0;         // 0: no sliding-window layers. Others are refused so far
  bool share_snapshots_across_sessions = false;  // tails stay private either way

  // Which blocks leave memory, and which stay.
  std::string block_policy = "lru";   // one of block_policy_names()
  std::size_t pinned_blocks_max = 0;  // that pin_prefix may keep, all pins together
  // What time it is, for priorities that expire. None: std::chrono::steady_clock. It must not call the manager.
  std::function<std::chrono::steady_clock::time_point()> clock{};

  // Where leases ask for state to be captured. What each of them costs and gives: ManagerStats::captures.
  bool capture_tails = true;                // one block below the end of the prompt's full ones
  bool capture_siblings = true;             // one block below a session's tail, beside it; nothing without tails
  bool capture_branch_points = true;        // where prompts part, the second time it is seen; needs blocks
  bool capture_last_token = false;          // where the prompt ends, block-aligned or not
  std::size_t checkpoint_every_tokens = 0;  // a multiple of block_size; 0: none

  // In which order they are evicted when no slot is free: one of snapshot_policy_names(). Of its options
  // snapshot_bytes is set to a slot's.
  std::string snapshot_policy = "lru";
  SnapshotPolicyOptions snapshot_policy_options{};

  // (adapter, generation, salt) and media without a lease that are remembered. Of more, those idle longest are
  // forgotten: what they had cached is not found any more and is evicted in its turn.
  std::size_t adapters_max = 4096;
  std::size_t media_max = 65'536;
  bool estimate_sizes = true;   // see size_estimates(); needs blocks
  std::uint64_t hash_seed = 0;  // of the hash tables; 0: drawn at random. No answer depends on it
  // Fills those of CacheManager::histograms(). Two readings of the clock and four additions for each admission.
  bool histograms = true;

  // For Lease::explain: of so many blocks that left memory, and as many snapshots, it is remembered when and for whom;
  // some 80 bytes each, and 8 for each block of the pool. 0: none.
  std::size_t evictions_remembered_max = 65'536;
  // Whether explain may tell a request that other tenants (salts) have the same tokens cached, and how many: never
  // whose, but that alone tells what somebody else has asked. Only where tenants trust each other.
  bool explain_across_tenants = false;
};

// Placeholder tokens that stand for an image, a sound, ...: [position, position + length) of the prompt. What they
// show is told apart by the content id, which has to cover everything that changes the embeddings (content and how it
// was prepared). Compared exactly.
struct MediaSpan {
  std::size_t position = 0;
  std::size_t length = 0;  // at most 2^20
  std::array<std::uint64_t, 2> content_id{};
};

// How much the blocks are worth keeping that have tokens of [from, to): those of them that the request finds cached,
// and those that it publishes. A block in several spans has the highest priority. Only the policy "priority" looks at
// it.
struct PrioritySpan {
  std::size_t from = 0;
  std::size_t to = std::numeric_limits<std::size_t>::max();     // may be beyond the prompt: what is generated
  int priority = 0;                                             // higher ones are evicted later; none is 0
  std::chrono::nanoseconds keep_for = BlockPriority::kForever;  // then it counts as none
};

// Views are read during the call only.
struct Request {
  std::span<const TokenId> tokens;       // the prompt, at least one token, each below 2^31
  SessionHash session = 0;               // 0: none. Told apart across tenants: a session's tail sweeps its last one
  std::string_view adapter{};            // empty: the base model
  std::uint64_t adapter_generation = 0;  // counts the adapter's updates
  std::string_view tenant_salt{};        // requests with different salts share nothing
  std::span<const MediaSpan> media{};    // ascending, not overlapping
  bool no_read = false;                  // compute everything
  bool no_fetch = false;                 // of what is not in memory
  bool no_publish = false;               // leave nothing behind
  std::size_t reuse_tokens_max = std::numeric_limits<std::size_t>::max();
  // Room for so many tokens is reserved at once; the whole prompt if not given. Chunked prefill starts with less.
  std::optional<std::size_t> reserve_tokens{};
  std::span<const PrioritySpan> priorities{};
  bool resumed = false;  // comes back after Lease::preempt: counted already
};

struct Admission {
  std::optional<Lease> lease;
  std::size_t missing_blocks = 0;  // if there is none: so many blocks could not be had, even by evicting
  // Of those: so many are free as soon as the device has copied their bytes out for the store. Try again then.
  std::size_t leaving_blocks = 0;
  bool never_fits = false;  // it needs more blocks than there are
};

// What admit would find, for schedulers that order by cached prefix.
struct Peeked {
  std::size_t matched_tokens = 0;   // whose KV is there
  std::size_t reusable_tokens = 0;  // that admit would not compute, fetching nothing
  std::size_t stored_tokens = 0;    // after those that match: whose KV a store has
};

struct ClearReport {
  std::size_t blocks = 0;       // that the cache held
  std::size_t blocks_held = 0;  // of those and of earlier clears: kept until the leases of before have ended
  std::size_t snapshots = 0;    // whose slots are free again; pinned ones follow when they have been restored
  std::size_t adapters = 0;     // (adapter, generation, salt) cleared
  // Erased from the store: not found any more. That they don't come back after a crash takes a flush() that answers
  // true.
  std::size_t records = 0;
};

// What save() has done.
struct SaveReport {
  std::size_t blocks = 0;          // stored
  std::size_t snapshots = 0;       // stored
  std::size_t blocks_lost = 0;     // not stored, for lack of time or because the store refused
  std::size_t snapshots_lost = 0;  // the same
  bool flushed = false;            // all that is stored rests where it survives
};

// What the snapshots that were taken for one reason cost, and what they gave.
struct CaptureStats {
  std::uint64_t captures = 0;       // published
  std::uint64_t bytes = 0;          // of those: slots that were filled
  std::uint64_t uses = 0;           // admitted requests that went on from one
  std::uint64_t reused_tokens = 0;  // that those did not compute
};

// By CaptureKind. The uses and the reused tokens of all, from_store included, are those of ManagerStats, if the model
// has recurrent layers.
struct CapturesByKind {
  CaptureStats tails{};
  CaptureStats siblings{};
  CaptureStats branch_points{};
  CaptureStats shared_tails{};
  CaptureStats checkpoints{};
  CaptureStats last_tokens{};
  CaptureStats from_store{};  // fetched, whatever they were taken for: uses alone
};

// Of each admitted request once: prompt = reused + computed, as of its admission or, if it was loading, as of the end
// of that. Everything else since construction, but for what says "now".
struct ManagerStats {
  std::uint64_t requests = 0;
  std::uint64_t resumed = 0;  // admissions after a preemption, not in requests
  std::uint64_t prompt_tokens = 0;
  std::uint64_t reused_tokens = 0;                // from memory, and from the two tiers
  std::uint64_t reused_from_memory_tokens = 0;    // what memory alone let it reuse
  std::uint64_t reused_from_ram_tier_tokens = 0;  // beyond: by the tier of the block, or else of the snapshot
  std::uint64_t reused_from_file_tier_tokens = 0;
  std::uint64_t computed_tokens = 0;
  std::uint64_t matched_tokens = 0;      // KV was there: reused, or lost for lack of state
  std::uint64_t stateless_tokens = 0;    // of those, computed again because no state was kept that far
  std::uint64_t uncacheable_media = 0;   // requests cached only up to a medium that could not be remembered
  std::uint64_t refused_admissions = 0;  // too few blocks
  std::uint64_t refused_reserves = 0;    // reserve and fork: too few blocks
  std::uint64_t published_blocks = 0;
  std::uint64_t deduplicated_blocks = 0;  // given back because somebody published the same first
  std::uint64_t evicted_blocks = 0;
  std::uint64_t captures_published = 0;
  std::uint64_t captures_declined = 0;   // no slot to be had
  std::uint64_t captures_abandoned = 0;  // begun and not published
  std::uint64_t evicted_snapshots = 0;
  CapturesByKind captures;  // captures_published, and what came of them
  std::uint64_t finished = 0;
  std::uint64_t preempted = 0;
  std::uint64_t abandoned = 0;
  std::uint64_t waits = 0;  // leases that ended while a step of theirs was in flight, and so were kept
  std::uint64_t forks = 0;
  std::uint64_t failed_steps = 0;
  std::uint64_t spilled_blocks = 0;        // handed to the store, and taken
  std::uint64_t spilled_snapshots = 0;     // the same
  std::uint64_t spilled_bytes = 0;         // of both, payload
  std::uint64_t declined_spills = 0;       // the store had no room in its queues, or was degraded: lost
  std::uint64_t fetches = 0;               // leases that were loading
  std::uint64_t failed_fetches = 0;        // of those: something did not come, and had to be computed
  std::uint64_t unprofitable_fetches = 0;  // admissions that computed what could have been fetched
  std::uint64_t fetched_blocks = 0;
  std::uint64_t fetched_snapshots = 0;
  std::uint64_t fetched_bytes = 0;     // of both, payload
  std::uint64_t recovered_blocks = 0;  // found in the store at the start
  std::uint64_t recovered_snapshots = 0;
  std::uint64_t useless_records = 0;        // found too, but what they hang on was lost: erased
  double ram_fetch_bytes_per_s = 0;         // now: as measured or given; 0: not measured yet
  double file_fetch_bytes_per_s = 0;        // the same
  double prefill_tokens_per_s = 0;          // the same
  std::size_t loading_leases = 0;           // now
  std::size_t recorded_blocks = 0;          // now: blocks with a record, in memory or not
  std::size_t live_leases = 0;              // now, forks included
  std::size_t waiting_for_steps = 0;        // now: leases that have ended, but whose last step is not done
  std::size_t pinned_snapshots = 0;         // now
  std::size_t resident_snapshot_bytes = 0;  // now: of slots whose snapshots can be found
  std::size_t steps_in_flight = 0;          // now
  std::size_t blocks_held_by_clears = 0;    // now: cleared, but leases of before may still use them
};

// What was observed since construction, by size. counts[i]: how often it lay above bounds[i - 1], but not above
// bounds[i]. There is one count more than there are bounds: for what lay above all of them.
struct Histogram {
  std::vector<double> bounds{};  // ascending
  std::vector<std::uint64_t> counts{};
  double sum = 0;  // of all that was observed
};

// Without a bound if CacheManagerOptions::histograms is off.
struct ManagerHistograms {
  Histogram admit_seconds;   // each call of admit that gave a lease
  Histogram load_seconds;    // each lease that was loading and no longer is: from its admission to when all had come
  Histogram matched_tokens;  // of each request, when ManagerStats counts it: the sum is ManagerStats::matched_tokens
};

// What a pool of another size would have found, had it evicted the least recently used blocks: of the full blocks that
// prompts could have found, by all requests since construction.
struct SizeEstimate {
  double factor = 0;       // of the present pool
  std::size_t blocks = 0;  // in that pool
  double hit_rate = 0;     // 0 to 1
};
struct SizeEstimates {
  std::array<SizeEstimate, 4> sizes{};  // half of the present size, the same, twice, four times
  std::uint64_t sampled_blocks = 0;     // uses that were sampled: with a few hundred a rate is a guess
};

class ManagerCore;
class RadixTree;

// Running out of memory: a call that throws std::bad_alloc has changed nothing, but for what it evicted on the way.
class CacheManager {
 public:
  // Throws std::invalid_argument, naming option, value and rule.
  explicit CacheManager(CacheManagerOptions options);
  // To be called when no step is in flight: steps count as done from now on. Leases may live on; what is cached goes
  // back to the pools when the last one is gone.
  ~CacheManager();
  CacheManager(const CacheManager&) = delete;
  CacheManager& operator=(const CacheManager&) = delete;

  // Finds what is cached, holds it, reserves blocks for the rest. What a store has is fetched if that pays: then the
  // lease is loading (LeaseState) and shows what it has when that is over. If too few can be had, everything is put
  // back and no count has changed but refused_admissions (and of what was evicted on the way). O(prompt tokens); the
  // blocks that match cost no reference of their own. Throws std::invalid_argument, naming field, value and rule.
  [[nodiscard]] Admission admit(const Request& request);

  // No effect at all: no use, no stamp, no count. Throws as admit. O(prompt tokens).
  [[nodiscard]] Peeked peek(const Request& request) const;

  // Keeps the full blocks of the request's tokens from being evicted, whatever the policy, until they are unpinned or
  // cleared: a system prompt, say. They must be cached already. All pins together keep no more than pinned_blocks_max
  // blocks. The request's names are remembered as long. Throws as admit; and if there is not a full block.
  [[nodiscard]] PrefixPin pin_prefix(const Request& request);
  // False if there is no such pin.
  bool unpin_prefix(std::uint64_t id);
  [[nodiscard]] std::size_t pinned_blocks() const;

  // The step that leases have declared by Lease::writes is over: what it wrote counts as written, and what only it
  // still needed can be reused. A step that no lease has declared is let pass.
  void step_done(StepId step);
  // The step was lost: what it was to write, and what later steps in flight wrote on top of it, is not written.
  void step_failed(StepId step);

  // For weight and adapter updates: nothing cached before is found again, and nothing that leases of before computed
  // is published. They go on with the blocks that they have. The second form: all of this adapter, whatever
  // generation and salt, one after the other; if it throws std::bad_alloc, some may be cleared: call it again.
  ClearReport clear();
  ClearReport clear(std::string_view adapter);

  // What has been handed to the store rests where it is to survive. False if that took longer than `timeout` or could
  // not be done; true without a store. Blocks.
  [[nodiscard]] bool flush(std::chrono::milliseconds timeout);
  // Before a shutdown: stores all that is cached and is worth a record (SpillOptions), snapshots used last first, and
  // flushes, until `timeout` has passed. Blocks stay cached; snapshots leave memory. Leases go on, but what they
  // publish meanwhile may be left out. Without a store it does nothing. Blocks.
  SaveReport save(std::chrono::milliseconds timeout);

  [[nodiscard]] ManagerStats stats() const;
  // Whether more memory would help, or less would do, from a sample of the blocks (SHARDS: Waldspurger et al., FAST
  // 2015). All zeros without blocks or with estimate_sizes off. One short lock, O(1).
  [[nodiscard]] SizeEstimates size_estimates() const;
  // Takes no lock, nor does it cost the requests one that fill them.
  [[nodiscard]] ManagerHistograms histograms() const;
  // As they were given.
  [[nodiscard]] const CacheManagerOptions& options() const noexcept;
  // To be watched: its counters, and how much it has.
  [[nodiscard]] const RadixTree& index() const noexcept;
  // Checks every invariant that can be checked while others work: of the index, of the pools made by Cairn. Empty, or
  // what is wrong. For tests: O(everything cached).
  [[nodiscard]] std::string validate() const;

 private:
  std::shared_ptr<ManagerCore> core_;
};

}  // namespace cairn

#endif  // CAIRN_CACHE_MANAGER_H_
