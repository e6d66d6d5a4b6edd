// Traffic that hurts other caches, as Google Benchmark programs. Each shape checks its results, and tells the cost of
// an operation in M (memcmp of 32,768 tokens) measured in the same run.
#ifndef CAIRN_BENCH_SHAPES_SHAPE_H_
#define CAIRN_BENCH_SHAPES_SHAPE_H_

#include <benchmark/benchmark.h>

#include <cstddef>

#include "bench/core/measure.h"

namespace cairn::bench {

// Runs `operation()` as often as the benchmark says, and fills in the counter "M". Throws what operation throws.
template <class Operation>
void measure_in_m(benchmark::State& state, Operation&& operation) {
  static const MemcmpYardstick memcmp_128k;
  const double m_before = memcmp_128k();
  const double start = cpu_now_ns();
  for ([[maybe_unused]] auto _ : state) operation();
  const double ns = (cpu_now_ns() - start) / static_cast<double>(state.iterations());
  state.counters["M"] = ns / ((m_before + memcmp_128k()) / 2);
}

// What each takes: the state, and the settings for the sizes.
using Shape = void (*)(benchmark::State& state, const Settings& settings);
void shared_system_prompt(benchmark::State& state, const Settings& settings);
void growing_conversations(benchmark::State& state, const Settings& settings);
void chain_of_one_block_edges(benchmark::State& state, const Settings& settings);
void branches_at_all_boundaries(benchmark::State& state, const Settings& settings);
void sessions_with_tails(benchmark::State& state, const Settings& settings);
void inserts_with_constant_eviction(benchmark::State& state, const Settings& settings);
void held_ends_in_one_edge(benchmark::State& state, const Settings& settings);

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_SHAPES_SHAPE_H_
