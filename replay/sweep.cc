#include "replay/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>

#include "replay/comparison.h"
#include "replay/optimum.h"

namespace cairn::replay {
namespace {

constexpr double kSmallestShare = 0.005;
constexpr const char* kOptimum = "optimum";
constexpr const char* kUnbounded = "unbounded";

void sort_out(std::vector<std::size_t>& sizes) {
  std::ranges::sort(sizes);
  const auto repeated = std::ranges::unique(sizes);
  sizes.erase(repeated.begin(), repeated.end());
}

void check_policies(const std::vector<std::string>& policies) {
  if (policies.empty()) throw std::invalid_argument("policies: there must be at least one");
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const std::string& name = policies[i];
    const auto before = policies.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(policies.begin(), before, name) != before) {
      throw std::invalid_argument(fmt::format("policy {}: is named twice", name));
    }
    if (name != kOptimum && name != kUnbounded && !is_policy(name)) {
      throw std::invalid_argument(fmt::format("policy {}: there is no such policy; there are {}, {} and {}", name,
                                              fmt::join(policy_names(), ", "), kOptimum, kUnbounded));
    }
  }
}

}  // namespace

void run_in_parallel(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& task) {
  if (jobs == 0) throw std::invalid_argument("jobs 0: must be at least 1");
  std::atomic<std::size_t> next{0};  // relaxed: a ticket; the threads' ends publish what the tasks wrote
  std::atomic<bool> failed{false};   // relaxed: merely saves work
  std::mutex mutex;
  std::exception_ptr first;  // guarded by mutex until all threads have ended
  const auto work = [&] {
    while (!failed.load(std::memory_order_relaxed)) {
      const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed);
      if (mine >= count) return;
      try {
        task(mine);
      } catch (...) {
        failed.store(true, std::memory_order_relaxed);
        const std::scoped_lock lock(mutex);
        if (!first) first = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(jobs, count); ++i) others.emplace_back(work);
    work();
  }
  if (first) std::rethrow_exception(first);
}

std::vector<std::size_t> default_sweep_sizes(std::size_t all) {
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < SweepOptions::kDefaultSizes; ++i) {
    const double exponent = 1 - static_cast<double>(i) / (SweepOptions::kDefaultSizes - 1);
    const double size = static_cast<double>(all) * std::pow(kSmallestShare, exponent);
    sizes.push_back(std::max<std::size_t>(1, static_cast<std::size_t>(std::llround(size))));
  }
  sort_out(sizes);
  return sizes;
}

double SweepResult::hit_rate(const RunResult& run) const {
  return prompt_tokens == 0 ? 0.0 : static_cast<double>(run.matched_tokens) / static_cast<double>(prompt_tokens);
}

Sweep::Sweep(const Workload& workload, SweepOptions options)
    : workload_(workload), options_(std::move(options)), blocks_(workload, options_.replay.block_size) {
  check_policies(options_.policies);
  result_.distinct_blocks = blocks_.distinct();
  result_.prompt_tokens = workload.prompt_tokens();
  if (options_.sizes.empty()) result_.pool_blocks = default_sweep_sizes(blocks_.distinct());
  for (const PoolSize& size : options_.sizes) {
    result_.pool_blocks.push_back(size.blocks(options_.replay.block_size, blocks_.distinct()));
  }
  sort_out(result_.pool_blocks);
  for (const std::string& policy : options_.policies) {
    const std::size_t runs = policy == kUnbounded ? 1 : result_.pool_blocks.size();
    for (std::size_t size = 0; size < runs; ++size) tasks_.push_back({.curve = result_.curves.size(), .size = size});
    result_.curves.push_back({.policy = policy, .runs = std::vector<RunResult>(runs)});
  }
  // The optimum takes a fraction of what a cache takes, and small pools evict most.
  std::ranges::sort(tasks_, {}, [this](const Task& task) {
    return std::tuple(result_.curves[task.curve].policy == kOptimum, task.size, task.curve);
  });
}

SweepResult Sweep::run() {
  run_in_parallel(tasks_.size(), options_.jobs, [this](std::size_t index) {
    const Task& task = tasks_[index];
    SweepResult::Curve& curve = result_.curves[task.curve];
    curve.runs[task.size] = run_one(curve.policy, result_.pool_blocks[task.size]);
  });
  return std::move(result_);
}

RunResult Sweep::run_one(const std::string& policy, std::size_t blocks) const {
  if (policy == kOptimum) return find_optimum(workload_, blocks_, blocks, options_.replay);
  if (policy == kUnbounded) return run_unbounded(workload_, blocks_, options_.replay);
  return run_policy(policy, workload_, options_.replay, blocks);
}

namespace {

void check_sweep(const SnapshotSweepOptions& options) {
  if (!options.verified.snapshots) throw std::invalid_argument("snapshots: a sweep over them needs a hybrid model");
  if (std::ranges::find(options.slots, 0U) != options.slots.end()) {
    throw std::invalid_argument("snapshots 0: must be at least 1");
  }
  if (options.policies.empty()) throw std::invalid_argument("policies: there must be at least one");
  for (std::size_t i = 0; i < options.policies.size(); ++i) {
    SnapshotOptions unused = *options.verified.snapshots;
    choose_policy(unused, options.policies[i]);
    const auto before = options.policies.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(options.policies.begin(), before, *before) != before) {
      throw std::invalid_argument(fmt::format("snapshot policy {}: is named twice", *before));
    }
  }
}

class SnapshotSweep {
 public:
  SnapshotSweep(const Workload& workload, const SnapshotSweepOptions& options)
      : workload_(workload),
        options_(options),
        result_{.pool_blocks = options.pool_blocks,
                .needed = 0,
                .slots = options.slots,
                .curves = {},
                .ceilings = {},
                .unbounded = {}} {}

  SnapshotSweepResult run() {
    run_unbounded();
    result_.needed = std::max<std::size_t>(1, result_.unbounded.peak_snapshots);
    if (result_.slots.empty() && options_.shares.empty()) result_.slots = default_sweep_sizes(result_.needed);
    for (const double share : options_.shares) {
      const auto slots = static_cast<std::size_t>(share * static_cast<double>(result_.needed));
      result_.slots.push_back(std::max<std::size_t>(1, slots));
    }
    sort_out(result_.slots);
    const std::size_t sizes = result_.slots.size();
    for (const std::string& policy : options_.policies) {
      result_.curves.push_back({.policy = policy, .runs = std::vector<VerifiedResult>(sizes)});
    }
    if (options_.ceiling && !options_.verified.snapshots->last_token && result_.unbounded.evicted_blocks == 0 &&
        result_.unbounded.rejected == 0) {
      result_.ceilings.resize(sizes);
    }
    std::optional<BlockTrace> blocks;
    if (!result_.ceilings.empty()) blocks.emplace(workload_, options_.verified.replay.block_size);
    const std::size_t replays = result_.curves.size() * sizes;
    run_in_parallel(replays + result_.ceilings.size(), options_.jobs, [&](std::size_t index) {
      if (index < replays) {
        SnapshotSweepResult::Curve& curve = result_.curves[index % result_.curves.size()];
        const std::size_t size = index / result_.curves.size();
        curve.runs[size] = run_with(curve.policy, result_.slots[size]);
        return;
      }
      const std::size_t size = index - replays;
      result_.ceilings[size] = find_snapshot_ceiling(workload_, *blocks,
                                                     {.slots = result_.slots[size],
                                                      .replay = options_.verified.replay,
                                                      .snapshots = *options_.verified.snapshots});
    });
    return std::move(result_);
  }

 private:
  [[nodiscard]] VerifiedResult run_with(const std::string& policy, std::size_t slots) const {
    VerifiedReplayOptions verified = options_.verified;
    choose_policy(*verified.snapshots, policy);
    verified.snapshots->slots = slots;
    return replay_verified(workload_, options_.pool_blocks, verified);
  }

  // Each request has a tail, its sibling and branch points, and a checkpoint every so often. If that is not enough,
  // some are evicted, and twice as many are tried.
  void run_unbounded() {
    const std::size_t every = options_.verified.snapshots->checkpoint_every_tokens;
    std::size_t enough = 4 * workload_.size() + (every == 0 ? 0 : workload_.prompt_tokens() / every);
    do {
      result_.unbounded = run_with(kAnyPolicy, enough);
      enough *= 2;
    } while (result_.unbounded.evicted_snapshots > 0);
  }

  static constexpr const char* kAnyPolicy = "lru";  // without evictions they are the same

  const Workload& workload_;
  const SnapshotSweepOptions& options_;
  SnapshotSweepResult result_;
};

}  // namespace

SnapshotSweepResult sweep_snapshots(const Workload& workload, const SnapshotSweepOptions& options) {
  check_sweep(options);
  return SnapshotSweep(workload, options).run();
}

TierSweepResult sweep_tiers(const Workload& workload, const TierSweepOptions& options) {
  const std::size_t block_size = options.verified.replay.block_size;
  TierSweepResult result{.pool_blocks = options.pool_blocks,
                         .distinct_blocks = options.distinct_blocks,
                         .tier_blocks = {},
                         .tier_bytes = {},
                         .runs = {},
                         .without = {}};
  for (const PoolSize& size : options.sizes) {
    result.tier_blocks.push_back(size.blocks(block_size, options.distinct_blocks));
  }
  for (std::size_t i = 0; options.sizes.empty() && i < TierSweepOptions::kDefaultMultiples.size(); ++i) {
    const double blocks = TierSweepOptions::kDefaultMultiples[i] * static_cast<double>(options.pool_blocks);
    result.tier_blocks.push_back(
        std::max<std::size_t>(1, std::min(static_cast<std::size_t>(blocks), options.distinct_blocks)));
  }
  sort_out(result.tier_blocks);
  const std::size_t snapshot_bytes = options.verified.snapshots ? options.verified.snapshots->slot_bytes : 0;
  const std::size_t record_bytes =
      block_record_bytes(replay_layout(block_size, block_size * kKvBytesPerToken, snapshot_bytes));
  for (const std::size_t blocks : result.tier_blocks) result.tier_bytes.push_back(blocks * record_bytes);
  result.runs.resize(result.tier_blocks.size());
  run_in_parallel(result.runs.size() + 1, options.jobs, [&](std::size_t index) {
    VerifiedReplayOptions verified = options.verified;
    if (index == 0) {
      verified.tiers.reset();
      result.without = replay_verified(workload, options.pool_blocks, verified);
      return;
    }
    verified.tiers.emplace();
    if (options.verified.tiers) verified.tiers->spill = options.verified.tiers->spill;
    verified.tiers->ram_bytes = result.tier_bytes[index - 1];
    result.runs[index - 1] = replay_verified(workload, options.pool_blocks, verified);
  });
  return result;
}

}  // namespace cairn::replay
