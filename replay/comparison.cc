#include "replay/comparison.h"

#include <cairn/no_prefix_caching.h>
#include <cairn/radix_tree.h>
#include <fmt/format.h>

#include <future>
#include <optional>
#include <string>
#include <utility>

#include "replay/block_pool.h"
#include "replay/errors.h"

namespace cairn::replay {
namespace {

RunResult run_without_cache(const Workload& workload, const ReplayOptions& options, std::size_t blocks) {
  NoPrefixCaching cache;
  SimulatedBlockPool pool(blocks);
  RunResult result = Replayer(cache, pool, workload, options).run();
  result.name = "none";
  return result;
}

RunResult run_radix_tree(std::string name, const Workload& workload, const ReplayOptions& options,
                         std::optional<std::size_t> blocks) {
  RadixTree tree({.block_size = options.block_size});
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

Comparison compare(const Workload& workload, const ComparisonOptions& options) {
  Comparison comparison;
  // A size in absolute terms is checked before any run; a share is known only after the unbounded one.
  if (!options.pool.is_share()) comparison.pool_blocks = options.pool.blocks(options.replay.block_size, 0);
  auto unbounded = std::async(std::launch::async,
                              [&] { return run_radix_tree("unbounded", workload, options.replay, std::nullopt); });
  std::optional<RunResult> unbounded_result;
  if (options.pool.is_share()) {
    unbounded_result = unbounded.get();
    comparison.pool_blocks = options.pool.blocks(options.replay.block_size, unbounded_result->created_blocks);
  }
  auto lru = std::async(std::launch::async,
                        [&] { return run_radix_tree("lru", workload, options.replay, comparison.pool_blocks); });
  comparison.runs.push_back(run_without_cache(workload, options.replay, comparison.pool_blocks));
  comparison.runs.push_back(lru.get());
  comparison.runs.push_back(unbounded_result ? *std::move(unbounded_result) : unbounded.get());
  comparison.distinct_blocks = comparison.runs.back().created_blocks;
  return comparison;
}

std::size_t count_distinct_blocks(const Workload& workload, const ReplayOptions& options) {
  return run_radix_tree("unbounded", workload, options, std::nullopt).created_blocks;
}

}  // namespace cairn::replay
