// The core rows: what index and leases promise in time and memory, each as a ratio against a yardstick of the same
// run. docs/benchmarks.md says how each is measured and where the targets come from.
#ifndef CAIRN_BENCH_CORE_ROWS_H_
#define CAIRN_BENCH_CORE_ROWS_H_

#include <span>
#include <vector>

#include "bench/core/measure.h"

namespace cairn::bench {

struct Row {
  int number;
  const char* title;
  // One line for each case. Throws WrongResult.
  std::vector<Measurement> (*measure)(const Settings& settings, const MemcmpYardstick& memcmp_128k);
};

// All, in order.
std::span<const Row> rows();

using Measured = std::vector<Measurement>;
#define CAIRN_BENCH_ROW(name) Measured name(const Settings& settings, const MemcmpYardstick& memcmp_128k)
CAIRN_BENCH_ROW(cached_prompt_alone);
CAIRN_BENCH_ROW(cached_prompt_by_handle);
CAIRN_BENCH_ROW(prompt_cached_in_turns);
CAIRN_BENCH_ROW(cycling_through_prompts);
CAIRN_BENCH_ROW(prompts_in_a_large_tree);
CAIRN_BENCH_ROW(lookup_among_snapshots);
CAIRN_BENCH_ROW(insert_of_a_prompt);
CAIRN_BENCH_ROW(evict_by_64);
CAIRN_BENCH_ROW(evict_one_by_one);
CAIRN_BENCH_ROW(evict_snapshots);
CAIRN_BENCH_ROW(conversations);
CAIRN_BENCH_ROW(two_threads_long_prompts);
CAIRN_BENCH_ROW(two_threads_short_prompts);
CAIRN_BENCH_ROW(lookup_beside_a_writer);
CAIRN_BENCH_ROW(memory_per_block);
CAIRN_BENCH_ROW(memory_after_evicting);
CAIRN_BENCH_ROW(admit_and_finish);
CAIRN_BENCH_ROW(decode_steps);
CAIRN_BENCH_ROW(watched_admissions);
#undef CAIRN_BENCH_ROW

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_CORE_ROWS_H_
