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

SnapshotSweepResult sweep_snapshots(const Workload& workload, const SnapshotSweepOptions& options) {
  if (!options.verified.snapshots) throw std::invalid_argument("snapshots: a sweep over them needs a hybrid model");
  const auto run_with = [&](std::size_t slots) {
    VerifiedReplayOptions verified = options.verified;
    verified.snapshots->slots = slots;
    return replay_verified(workload, options.pool_blocks, verified);
  };
  SnapshotSweepResult result{.pool_blocks = options.pool_blocks, .slots = options.slots, .runs = {}, .unbounded = {}};
  if (std::ranges::find(result.slots, 0U) != result.slots.end()) {
    throw std::invalid_argument("snapshots 0: must be at least 1");
  }
  // Each request has a tail, its sibling and branch points, and a checkpoint every so often. If that is not enough,
  // some are evicted, and twice as many are tried.
  const std::size_t every = options.verified.snapshots->checkpoint_every_tokens;
  std::size_t enough = 4 * workload.size() + (every == 0 ? 0 : workload.prompt_tokens() / every);
  do {
    result.unbounded = run_with(enough);
    enough *= 2;
  } while (result.unbounded.evicted_snapshots > 0);
  if (result.slots.empty()) {
    // Many captures replace others: far fewer slots may do.
    std::size_t needed = std::max<std::size_t>(1, result.unbounded.captures_published);
    for (std::size_t i = 0; i < SnapshotSweepOptions::kHalvingsMax && needed > 1; ++i) {
      if (run_with(needed / 2).evicted_snapshots > 0) break;
      needed /= 2;
    }
    result.slots = default_sweep_sizes(needed);
  }
  sort_out(result.slots);
  result.runs.resize(result.slots.size());
  run_in_parallel(result.slots.size(), options.jobs,
                  [&](std::size_t index) { result.runs[index] = run_with(result.slots[index]); });
  return result;
}

}  // namespace cairn::replay
