#include "replay/verified_replayer.h"

#include <cairn/block_pool.h>
#include <cairn/cache_manager.h>
#include <cairn/snapshot_pool.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "replay/errors.h"
#include "replay/running_sequences.h"
#include "replay/verified_sequence.h"

namespace cairn::replay {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kTunedFlop = "flop-auto";

double rate(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

void check(const VerifiedReplayOptions& options) {
  const std::size_t block_size = options.replay.block_size;
  if (block_size == 0) throw std::invalid_argument("block_size 0: must be at least 1");
  if (options.prefill_chunk_tokens == 0) throw std::invalid_argument("prefill_chunk_tokens 0: must be at least 1");
  if (!options.snapshots) return;
  if (options.snapshots->slots == 0) throw std::invalid_argument("snapshots 0: must be at least 1");
  if (options.snapshots->slot_bytes == 0) throw std::invalid_argument("snapshot bytes 0: must be at least 1");
  if (const std::size_t every = options.snapshots->checkpoint_every_tokens; every % block_size != 0) {
    throw std::invalid_argument(
        fmt::format("checkpoint_every_tokens {}: must be a multiple of the block size {}", every, block_size));
  }
}

template <typename Pool, typename Options>
std::shared_ptr<Pool> pool_in_memory(const char* what, std::size_t count, std::size_t bytes_each, Options options) {
  try {
    return std::make_shared<Pool>(std::move(options));
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(fmt::format("{} {} of {} bytes each do not fit into memory", count, what, bytes_each));
  }
}

std::shared_ptr<BlockPool> block_pool(std::size_t blocks, std::size_t block_size) {
  const std::size_t bytes = block_size * kKvBytesPerToken;
  return pool_in_memory<BlockPool>("blocks", blocks, bytes, BlockPoolOptions{.blocks = blocks, .block_bytes = bytes});
}

std::shared_ptr<SnapshotPool> snapshot_pool(const std::optional<SnapshotOptions>& options) {
  if (!options) return nullptr;
  return pool_in_memory<SnapshotPool>("snapshots", options->slots, options->slot_bytes,
                                      SnapshotPoolOptions{.slots = options->slots, .slot_bytes = options->slot_bytes});
}

Tiers tiers(const VerifiedReplayOptions& options, const BlockPool& blocks) {
  if (!options.tiers) return {};
  return open_tiers(*options.tiers, replay_layout(options.replay.block_size, blocks.block_bytes(),
                                                  options.snapshots ? options.snapshots->slot_bytes : 0));
}

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

class VerifiedReplayer {
 public:
  VerifiedReplayer(const Workload& workload, std::size_t blocks, const VerifiedReplayOptions& options)
      : workload_(workload),
        options_(options),
        running_(workload, options.replay.concurrency, options.replay.service_rate),
        blocks_(block_pool(blocks, options.replay.block_size)),
        snapshots_(snapshot_pool(options.snapshots)),
        opening_(Clock::now()),
        tiers_(tiers(options, *blocks_)),
        manager_(std::in_place, manager_options()),
        opened_(Clock::now()),
        engine_({.manager = *manager_,
                 .block_size = options.replay.block_size,
                 .blocks = blocks_,
                 .snapshots = snapshots_}) {}

  VerifiedResult run() {
    const Clock::time_point start = Clock::now();
    const std::size_t first = std::min(options_.skip, workload_.size());
    const std::size_t end = first + std::min(options_.stop_after, workload_.size() - first);
    result_.requests = end - first;
    result_.pool_blocks = blocks_->total_blocks();
    for (std::size_t i = first; i < end; ++i) {
      let_files_catch_up();
      admit(i);
      if (options_.replay.on_request_done) options_.replay.on_request_done();
    }
    while (!running_.empty()) finish(running_.take_first());
    collect(manager_->stats());
    if (tiers_.store) save();
    if (options_.on_end) options_.on_end(*manager_);
    // A clear would remove what the file tier is to keep.
    if (!options_.tiers || !options_.tiers->has_file_tier()) sweep();
    close();
    result_.wall_time_s = seconds(start, Clock::now());
    return std::move(result_);
  }

 private:
  struct Running {
    std::size_t index = 0;
    VerifiedSequence sequence;
  };

  [[nodiscard]] CacheManagerOptions manager_options() const;
  void let_files_catch_up();
  void admit(std::size_t index);
  [[nodiscard]] VerifiedSequence start(std::size_t index);
  [[nodiscard]] VerifiedSequence::Start try_admit(std::size_t index, bool again);
  [[nodiscard]] bool load(VerifiedSequence& sequence, Clock::time_point admitting);
  void count_reuse(std::size_t index, std::size_t tokens);
  void prefill(VerifiedSequence& sequence);
  void finish(Running running);
  void collect(const ManagerStats& stats);
  void collect_tiers(const ManagerStats& stats);
  void check_end(const ManagerStats& stats) const;
  void check_whole(std::string_view when) const;
  void save();
  void sweep();
  void close();
  void expect(std::string_view what, std::uint64_t found, std::uint64_t expected) const;

  // Blocks that a request's prompt and output take; the output begins a block of its own, as in Replayer.
  [[nodiscard]] std::size_t blocks_needed(std::size_t index) const {
    const std::size_t block_size = options_.replay.block_size;
    const auto blocks_for = [block_size](std::size_t tokens) {
      return tokens / block_size + (tokens % block_size != 0 ? 1 : 0);
    };
    return blocks_for(workload_[index].prompt_tokens) + blocks_for(workload_[index].output_length);
  }
  [[nodiscard]] std::string describe(std::size_t index) const {
    return fmt::format("request {} (line {})", index + 1, workload_[index].line);
  }

  const Workload& workload_;
  const VerifiedReplayOptions& options_;
  RunningSequences<Running> running_;
  std::shared_ptr<BlockPool> blocks_;
  std::shared_ptr<SnapshotPool> snapshots_;
  Clock::time_point opening_;
  Tiers tiers_;
  std::optional<CacheManager> manager_;
  Clock::time_point opened_;
  VerifyingEngine engine_;
  VerifiedResult result_;
  // What has to come back from the manager's counts.
  std::uint64_t admitted_ = 0;
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t reused_tokens_ = 0;
  std::uint64_t failed_leases_ = 0;
  // Of the requests that were loading.
  std::uint64_t fetches_ = 0;
  double fetch_time_s_ = 0;
  double catch_up_time_s_ = 0;
};

CacheManagerOptions VerifiedReplayer::manager_options() const {
  CacheManagerOptions manager{.block_size = options_.replay.block_size,
                              .blocks = blocks_,
                              .snapshots = snapshots_,
                              .store = tiers_.store,
                              .block_policy = options_.block_policy,
                              .hash_seed = 1};  // estimates are the same every time
  if (const std::optional<SnapshotOptions>& snapshots = options_.snapshots) {
    manager.capture_tails = snapshots->tails;
    manager.capture_siblings = snapshots->siblings;
    manager.capture_branch_points = snapshots->branch_points;
    manager.capture_last_token = snapshots->last_token;
    manager.checkpoint_every_tokens = snapshots->checkpoint_every_tokens;
    manager.snapshot_policy = snapshots->policy;
    manager.snapshot_policy_options = snapshots->policy_options;
  }
  if (options_.tiers) manager.spill = options_.tiers->spill;
  if (options_.observer != nullptr) manager.evictions_remembered_max = VerifiedReplayOptions::kEvictionsExplained;
  return manager;
}

// If they can't, records are lost: no error.
void VerifiedReplayer::let_files_catch_up() {
  if (!tiers_.files || tiers_.files->stats().pending <= options_.tiers->pending_max) return;
  const Clock::time_point start = Clock::now();
  static_cast<void>(tiers_.files->flush(options_.tiers->catch_up_timeout));
  catch_up_time_s_ += seconds(start, Clock::now());
}

void VerifiedReplayer::admit(std::size_t index) {
  if (blocks_needed(index) > blocks_->total_blocks()) {
    ++result_.rejected;
    if (result_.first_rejected.size() < RunResult::kRejectedNamedMax) {
      result_.first_rejected.push_back({.line = workload_[index].line, .blocks_needed = blocks_needed(index)});
    }
    return;
  }
  running_.make_room_for(index, [this](Running ended) { finish(std::move(ended)); });
  VerifiedSequence sequence = start(index);
  ++admitted_;
  prompt_tokens_ += workload_[index].prompt_tokens;
  result_.output_tokens += workload_[index].output_length;
  result_.peak_blocks = std::max(result_.peak_blocks, blocks_->used_blocks());
  if (options_.observer != nullptr) options_.observer->on_admitted(index, sequence.lease());
  prefill(sequence);
  if (options_.observer != nullptr) options_.observer->on_published(index, sequence.lease());
  running_.add(index, Running{.index = index, .sequence = std::move(sequence)});
}

// Waits for blocks and for what is fetched.
VerifiedSequence VerifiedReplayer::start(std::size_t index) {
  bool waited = false;
  bool again = false;
  for (;;) {
    const Clock::time_point admitting = Clock::now();
    VerifiedSequence::Start start = try_admit(index, again);
    if (!start.sequence) {
      if (running_.empty()) {
        throw ReplayError(
            fmt::format("{} is refused for want of {} blocks, though nothing else runs and it needs {} of "
                        "the pool's {}",
                        describe(index), start.missing_blocks, blocks_needed(index), blocks_->total_blocks()));
      }
      if (!std::exchange(waited, true)) ++result_.waited;
      finish(running_.take_first());
      continue;
    }
    const bool loaded = load(*start.sequence, admitting);
    // One that failed counts as it was.
    if (!again) count_reuse(index, start.sequence->lease().first_token_to_compute());
    if (loaded) return std::move(*start.sequence);
    if (again) throw ReplayError(fmt::format("{} failed to load, though it was to fetch nothing", describe(index)));
    again = true;
    ++failed_leases_;
    start.sequence->abandon();
  }
}

void VerifiedReplayer::count_reuse(std::size_t index, std::size_t tokens) {
  reused_tokens_ += tokens;
  if (!options_.snapshots) return;
  const ModelShape& model = options_.snapshots->policy_options.model;
  result_.saved_flops += model.flops(tokens);
  result_.prompt_flops += model.flops(workload_[index].prompt_tokens);
}

// False if that failed.
bool VerifiedReplayer::load(VerifiedSequence& sequence, Clock::time_point admitting) {
  if (!tiers_.store) return true;
  const bool loaded = sequence.wait_until_loaded(options_.tiers->load_timeout);
  // A store in RAM may have been done within admit.
  const std::uint64_t fetches = manager_->stats().fetches;
  if (fetches != fetches_) fetch_time_s_ += seconds(admitting, Clock::now());
  fetches_ = fetches;
  return loaded;
}

VerifiedSequence::Start VerifiedReplayer::try_admit(std::size_t index, bool again) {
  const Request& request = workload_[index];
  VerifiedRequest verified{.name = describe(index),
                           .tokens = {},
                           .session = request.session,
                           .adapter = request.adapter == 0 ? "" : fmt::format("adapter {}", request.adapter),
                           .tenant_salt = request.tenant == 0 ? "" : fmt::format("tenant {}", request.tenant),
                           .no_fetch = again,
                           .reserve_tokens = blocks_needed(index) * options_.replay.block_size,
                           .resumed = again};
  workload_.prompt(index, verified.tokens);
  try {
    return VerifiedSequence::start(engine_, std::move(verified));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", describe(index), error.what()));
  }
}

void VerifiedReplayer::prefill(VerifiedSequence& sequence) {
  while (!sequence.all_computed()) {
    VerifiedStep step(engine_);
    if (const std::size_t missing = sequence.compute(step, options_.prefill_chunk_tokens); missing > 0) {
      throw ReplayError(fmt::format("{}: {} blocks are missing after token {}, though admission reserved them",
                                    sequence.name(), missing, sequence.computed_tokens()));
    }
    if (snapshots_) result_.peak_snapshots = std::max(result_.peak_snapshots, snapshots_->used_slots());
    step.done();
    sequence.publish();
  }
}

void VerifiedReplayer::finish(Running running) {
  VerifiedSequence& sequence = running.sequence;
  if (workload_[running.index].has_output_tokens) {
    std::vector<TokenId> output;
    workload_.append_output(running.index, output);
    for (const TokenId token : output) {
      try {
        sequence.append({&token, 1});
      } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(fmt::format("{}, output: {}", sequence.name(), error.what()));
      }
      if (const std::size_t missing = sequence.compute_all(); missing > 0) {
        throw ReplayError(fmt::format("{}: {} blocks are missing for output token {}, though admission reserved them",
                                      sequence.name(), missing, sequence.computed_tokens()));
      }
    }
  }
  if (options_.observer != nullptr) {
    sequence.publish();
    options_.observer->on_published(running.index, sequence.lease());
  }
  sequence.finish();
}

void VerifiedReplayer::collect(const ManagerStats& stats) {
  check_end(stats);
  result_.prompt_tokens = stats.prompt_tokens;
  result_.matched_tokens = stats.matched_tokens;
  result_.reused_tokens = stats.reused_tokens;
  result_.stateless_tokens = stats.stateless_tokens;
  result_.computed_tokens = stats.computed_tokens;
  result_.published_blocks = stats.published_blocks;
  result_.deduplicated_blocks = stats.deduplicated_blocks;
  result_.evicted_blocks = stats.evicted_blocks;
  result_.captures_published = stats.captures_published;
  result_.captures_declined = stats.captures_declined;
  result_.captures_abandoned = stats.captures_abandoned;
  result_.evicted_snapshots = stats.evicted_snapshots;
  result_.captures = stats.captures;
  result_.size_estimates = manager_->size_estimates();
  result_.engine = engine_.counts();
  result_.peak_running = running_.peak();
  if (tiers_.store) collect_tiers(stats);
}

void VerifiedReplayer::collect_tiers(const ManagerStats& stats) {
  TierResult& tiers = result_.tiers.emplace();
  tiers.reused_from_memory_tokens = stats.reused_from_memory_tokens;
  tiers.reused_from_ram_tier_tokens = stats.reused_from_ram_tier_tokens;
  tiers.reused_from_file_tier_tokens = stats.reused_from_file_tier_tokens;
  tiers.spilled_blocks = stats.spilled_blocks;
  tiers.spilled_snapshots = stats.spilled_snapshots;
  tiers.spilled_bytes = stats.spilled_bytes;
  tiers.declined_spills = stats.declined_spills;
  tiers.fetches = stats.fetches;
  tiers.failed_fetches = stats.failed_fetches;
  tiers.failed_leases = failed_leases_;
  tiers.unprofitable_fetches = stats.unprofitable_fetches;
  tiers.fetched_blocks = stats.fetched_blocks;
  tiers.fetched_snapshots = stats.fetched_snapshots;
  tiers.fetched_bytes = stats.fetched_bytes;
  tiers.fetch_time_s = fetch_time_s_;
  tiers.catch_up_time_s = catch_up_time_s_;
  tiers.recovered_blocks = stats.recovered_blocks;
  tiers.recovered_snapshots = stats.recovered_snapshots;
  tiers.useless_records = stats.useless_records;
  tiers.open_time_s = seconds(opening_, opened_);
}

// All leases have ended: nothing is held any more but by the cache, and the manager's counts agree with ours.
void VerifiedReplayer::check_end(const ManagerStats& stats) const {
  expect("requests", stats.requests, admitted_);
  expect("finished requests", stats.finished, admitted_);
  expect("prompt tokens", stats.prompt_tokens, prompt_tokens_);
  expect("reused + computed tokens", stats.reused_tokens + stats.computed_tokens, prompt_tokens_);
  expect("reused tokens", stats.reused_tokens, reused_tokens_);
  expect("reused + stateless tokens", stats.reused_tokens + stats.stateless_tokens, stats.matched_tokens);
  expect("tokens reused from memory, RAM tier and file tier",
         stats.reused_from_memory_tokens + stats.reused_from_ram_tier_tokens + stats.reused_from_file_tier_tokens,
         stats.reused_tokens);
  expect("preempted requests", stats.preempted, 0);
  expect("abandoned requests", stats.abandoned, failed_leases_);
  expect("requests that were admitted again", stats.resumed, failed_leases_);
  expect("leases that are loading", stats.loading_leases, 0);
  expect("leases and steps that are still there", stats.live_leases + stats.waiting_for_steps + stats.steps_in_flight,
         0);
  expect("leases that ended before their steps", stats.waits, 0);
  expect("pinned snapshots", stats.pinned_snapshots, 0);
  expect("captures published, declined and abandoned without snapshots",
         snapshots_ ? 0 : stats.captures_published + stats.captures_declined + stats.captures_abandoned, 0);
  const CapturesByKind& kinds = stats.captures;
  std::uint64_t captures = 0;
  std::uint64_t reused = 0;
  for (const CaptureStats* kind : {&kinds.tails, &kinds.siblings, &kinds.branch_points, &kinds.shared_tails,
                                   &kinds.checkpoints, &kinds.last_tokens, &kinds.from_store}) {
    captures += kind->captures;
    reused += kind->reused_tokens;
  }
  expect("captures of all kinds", captures, stats.captures_published);
  expect("tokens that all kinds of captures gave", reused, snapshots_ ? stats.reused_tokens : 0);
  expect("bytes of states that the cache accounts for", stats.resident_snapshot_bytes,
         snapshots_ ? snapshots_->used_slots() * snapshots_->slot_bytes() : 0);
  expect("blocks in use", blocks_->used_blocks(), stats.published_blocks - stats.evicted_blocks);
  check_whole("at the end");
}

void VerifiedReplayer::check_whole(std::string_view when) const {
  if (const std::string fault = manager_->validate(); !fault.empty()) {
    throw ReplayError(fmt::format("{} the cache is damaged: {}", when, fault));
  }
  if (!tiers_.store) return;
  if (const std::string fault = tiers_.store->validate(); !fault.empty()) {
    throw ReplayError(fmt::format("{} the store is damaged: {}", when, fault));
  }
}

// What is worth a record rests in the file tier, if there is one.
void VerifiedReplayer::save() {
  const TierOptions& options = *options_.tiers;
  TierResult& tiers = *result_.tiers;
  const Clock::time_point start = Clock::now();
  if (options.has_file_tier()) {
    tiers.save = manager_->save(options.save_timeout);
  } else if (!manager_->flush(options.save_timeout)) {
    throw ReplayError("at the end the RAM tier can't be flushed");
  }
  tiers.save_time_s = seconds(start, Clock::now());
  tiers.store = tiers_.store->stats();
  check_whole("after all was saved");
  const std::size_t records = tiers.store.ram_records + tiers.store.file_records;
  if (const std::size_t recorded = manager_->stats().recorded_blocks; recorded > records) {
    throw ReplayError(fmt::format("at the end {} blocks have a record, but the store has {}", recorded, records));
  }
}

// The cache gives back what it holds, and the pools are whole.
void VerifiedReplayer::sweep() {
  const std::size_t cached = blocks_->used_blocks();
  const std::size_t resident = snapshots_ ? snapshots_->used_slots() : 0;
  const std::size_t records = tiers_.store ? tiers_.store->stats().ram_records : 0;
  const ClearReport cleared = manager_->clear();
  expect("cleared blocks", cleared.blocks, cached);
  expect("cleared snapshots", cleared.snapshots, resident);
  expect("cleared records", cleared.records, records);
  expect("blocks in use after all was cleared", blocks_->used_blocks(), 0);
  expect("slots in use after all was cleared", snapshots_ ? snapshots_->used_slots() : 0, 0);
  expect("records after all was cleared", tiers_.store ? tiers_.store->stats().ram_records : 0, 0);
  check_whole("after all was cleared");
}

// What is cached goes back to the pools, and what was stored stays where it is.
void VerifiedReplayer::close() {
  manager_.reset();
  expect("blocks in use without a cache", blocks_->used_blocks(), 0);
  expect("slots in use without a cache", snapshots_ ? snapshots_->used_slots() : 0, 0);
  tiers_ = {};
}

void VerifiedReplayer::expect(std::string_view what, std::uint64_t found, std::uint64_t expected) const {
  if (found != expected) throw ReplayError(fmt::format("at the end: {}: {}, expected {}", what, found, expected));
}

}  // namespace

double VerifiedResult::reuse_rate() const {
  return rate(reused_tokens, prompt_tokens);
}
double VerifiedResult::flop_rate() const {
  return prompt_flops > 0 ? saved_flops / prompt_flops : 0;
}
double VerifiedResult::match_rate() const {
  return rate(matched_tokens, prompt_tokens);
}

std::vector<std::string> replay_policy_names() {
  std::vector<std::string> names = snapshot_policy_names();
  names.emplace_back(kTunedFlop);
  return names;
}

void choose_policy(SnapshotOptions& options, const std::string& name) {
  const std::vector<std::string> names = replay_policy_names();
  if (std::ranges::find(names, name) == names.end()) {
    throw std::invalid_argument(
        fmt::format("snapshot policy {}: there is no such policy; there are {}", name, fmt::join(names, ", ")));
  }
  options.policy = name;
  if (name != kTunedFlop) return;
  options.policy = "flop";
  options.policy_options.flop_alpha.reset();
}

VerifiedResult replay_verified(const Workload& workload, std::size_t blocks, const VerifiedReplayOptions& options) {
  check(options);
  return VerifiedReplayer(workload, blocks, options).run();
}

}  // namespace cairn::replay
