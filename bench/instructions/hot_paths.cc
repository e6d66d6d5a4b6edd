// The hot paths, one after the other, for scripts/instruction-counts: run under callgrind with --instr-atstart=no, it
// counts the instructions of the marked parts only and dumps them under the name of the path. Run alone, it checks the
// results and counts nothing. The same work at every run: one thread, a fixed hash seed, no clock.
#include <cairn/radix_tree.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "bench/core/cached.h"
#include "bench/core/snapshots.h"
#include "bench/core/token_memory.h"

namespace cairn::bench {
namespace {

RadixTreeOptions fixed_seed() {
  return {.hash_seed = 42};
}

// Runs `operation(0)` ... `operation(count - 1)` and dumps their instructions as "name/count".
template <class Operation>
void measure(const char* name, std::size_t count, Operation&& operation) {
  char label[128];
  std::snprintf(label, sizeof label, "%s/%zu", name, count);
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
  for (std::size_t i = 0; i < count; ++i) operation(i);
  CALLGRIND_DUMP_STATS_AT(label);
  CALLGRIND_STOP_INSTRUMENTATION;
}

void one_long_prompt() {
  const Prompts prompts(1, 32'768, 0, 10);
  RadixTree tree(fixed_seed());
  cache(tree, prompts);
  lookup_and_release(tree, prompts[0]);  // what happens at the first time only
  measure("lookup_release_32k", 10, [&](std::size_t) { lookup_and_release(tree, prompts[0]); });
  measure("acquire_release_32k", 10, [&](std::size_t) {
    RadixTree::Acquired acquired = tree.acquire(prompts[0], 0, 0);
    expect(acquired.handle.tokens() == prompts.length(), "acquire: tokens held");
    tree.release(acquired.handle);
  });
  expect_cached(tree, prompts);
}

void short_prompts_in_a_large_tree() {
  const Prompts prompts(1'563, 2'048, 0, 50);
  RadixTree tree(fixed_seed());
  cache(tree, prompts);
  measure("lookup_release_2k_among_200k_blocks", 100,
          [&](std::size_t i) { lookup_and_release(tree, prompts[i * 13]); });
  expect_cached(tree, prompts);
}

void inserts() {
  const Prompts prompts(8, 32'768, 0, 70);
  RadixTree tree(fixed_seed());
  for (const bool first : {true, false}) {
    if (first) {
      cache(tree, prompts);
    } else {
      std::vector<InsertAcquired> acquired(prompts.size());
      measure("insert_32k", prompts.size(),
              [&](std::size_t i) { acquired[i] = tree.insert(prompts[i], prompts.blocks(i), {}, kBlockSize, 0, 0); });
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        expect(acquired[i].blocks == prompts.blocks(i), "insert: blocks acquired");
        tree.release(prompts[i], kBlockSize, 0);
      }
    }
    expect(tree.evict(prompts.distinct_blocks()).size() == prompts.distinct_blocks(), "evict: blocks evicted");
  }
}

void evicting_leaves() {
  constexpr std::size_t kCalls = 100;
  const Prompts leaves(20'000, kBlockSize, 0, 80);
  RadixTree tree(fixed_seed());
  cache(tree, leaves);
  for (const std::size_t i : Random(81).order(leaves.size())) lookup_and_release(tree, leaves[i]);
  std::size_t evicted = 0;
  evicted += tree.evict(64).size();
  measure("evict_64_one_block_leaves", kCalls, [&](std::size_t) { evicted += tree.evict(64).size(); });
  expect(evicted == 64 * (kCalls + 1), "evict: blocks evicted");
  evicted = 0;
  measure("evict_1", kCalls, [&](std::size_t) { evicted += tree.evict(1).size(); });
  expect(evicted == kCalls, "evict: blocks evicted");
}

void evicting_snapshots() {
  constexpr std::size_t kCalls = 1'000;
  const Prompts prompts(1, 32'768, 0, 10);
  RadixTree tree(fixed_seed());
  cache(tree, prompts);
  put_snapshots(tree, prompts[0], {.visible_to_all = false});
  std::size_t right = 0;
  measure("evict_snapshot_lru", kCalls, [&](std::size_t i) { right += tree.evict_snapshot_lru() == SnapshotId{i}; });
  expect(right == kCalls, "evict_snapshot_lru: the oldest slot");
}

}  // namespace
}  // namespace cairn::bench

int main() {
  try {
    cairn::bench::one_long_prompt();
    cairn::bench::short_prompts_in_a_large_tree();
    cairn::bench::inserts();
    cairn::bench::evicting_leaves();
    cairn::bench::evicting_snapshots();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cairn_hot_paths: %s\n", error.what());
    return 1;
  }
  return 0;
}
