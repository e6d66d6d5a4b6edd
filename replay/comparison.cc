#include "replay/comparison.h"

#include <cairn/no_prefix_caching.h>
#include <cairn/radix_tree.h>
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "replay/block_pool.h"
#include "replay/errors.h"
#include "replay/optimum.h"

namespace cairn::replay {
namespace {

RunResult run_without_cache(const Workload& workload, const ReplayOptions& options, std::size_t blocks) {
  NoPrefixCaching cache;
  SimulatedBlockPool pool(blocks);
  RunResult result = Replayer(cache, pool, workload, options).run();
  result.name = "none";
  return result;
}

// The same at every run, also where a policy remembers blocks by their hashes.
constexpr std::uint64_t kHashSeed = 1;

RunResult run_radix_tree(std::string name, const std::string& policy, const Workload& workload,
                         const ReplayOptions& options, std::optional<std::size_t> blocks) {
  RadixTree tree({.block_size = options.block_size, .hash_seed = kHashSeed, .block_policy = policy});
  SimulatedBlockPool pool(blocks);
  RunResult result = Replayer(tree, pool, workload, options).run();
  result.name = std::move(name);
  if (const std::string fault = tree.validate(); !fault.empty()) {
    throw ReplayError(fmt::format("run {}: the tree is damaged: {}", result.name, fault));
  }
  if (const std::uint64_t errors = tree.counters().protocol_errors; errors != 0) {
    throw ReplayError(fmt::format("run {}: the tree counted {} protocol errors", result.name, errors));
  }
  return result;
}

}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = block_policy_names();
  return names;
}

bool is_policy(std::string_view name) {
  return std::ranges::find(policy_names(), name) != policy_names().end();
}

RunResult run_policy(const std::string& name, const Workload& workload, const ReplayOptions& options,
                     std::optional<std::size_t> blocks) {
  if (!is_policy(name)) throw std::invalid_argument(fmt::format("policy {}: there is no such policy", name));
  return run_radix_tree(name, name, workload, options, blocks);
}

RunResult run_unbounded(const Workload& workload, const BlockTrace& blocks, const ReplayOptions& options) {
  RunResult result = run_radix_tree("unbounded", policy_names().front(), workload, options, std::nullopt);
  if (result.created_blocks != blocks.distinct()) {
    throw ReplayError(fmt::format("run unbounded: the tree took {} blocks, the workload has {} distinct ones",
                                  result.created_blocks, blocks.distinct()));
  }
  return result;
}

Comparison compare(const Workload& workload, const ComparisonOptions& options) {
  const ReplayOptions& replay = options.replay;
  Comparison comparison;
  // A size in absolute terms is checked before anything is computed.
  if (!options.pool.is_share()) comparison.pool_blocks = options.pool.blocks(replay.block_size, 0);
  const BlockTrace blocks(workload, replay.block_size);
  comparison.distinct_blocks = blocks.distinct();
  if (options.pool.is_share()) comparison.pool_blocks = options.pool.blocks(replay.block_size, blocks.distinct());
  const std::size_t pool_blocks = comparison.pool_blocks;
  auto unbounded = std::async(std::launch::async, [&] { return run_unbounded(workload, blocks, replay); });
  auto cache =
      std::async(std::launch::async, [&] { return run_policy(options.policy, workload, replay, pool_blocks); });
  comparison.runs.push_back(run_without_cache(workload, replay, pool_blocks));
  RunResult optimum = find_optimum(workload, blocks, pool_blocks, replay);
  comparison.runs.push_back(cache.get());
  comparison.runs.push_back(std::move(optimum));
  comparison.runs.push_back(unbounded.get());
  return comparison;
}

std::size_t count_distinct_blocks(const Workload& workload, const ReplayOptions& options) {
  return BlockTrace(workload, options.block_size).distinct();
}

}  // namespace cairn::replay
