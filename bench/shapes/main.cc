// Registers the shapes. Beside Google Benchmark's own options: --smoke, for tiny sizes run once.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include "bench/core/machine.h"
#include "bench/shapes/shape.h"

namespace cairn::bench {
namespace {

void register_shape(const char* name, Shape shape, const Settings& settings, std::size_t operations) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { shape(state, settings); })
      ->Iterations(static_cast<benchmark::IterationCount>(settings.sized(operations, 50)))
      ->Repetitions(static_cast<int>(settings.repetitions()))
      ->Unit(benchmark::kMicrosecond);
}

void register_shapes(const Settings& settings) {
  register_shape("shared_system_prompt", shared_system_prompt, settings, 2'000);
  register_shape("growing_conversations", growing_conversations, settings, 5'000);
  register_shape("chain_of_one_block_edges", chain_of_one_block_edges, settings, 500);
  register_shape("branches_at_all_boundaries", branches_at_all_boundaries, settings, 2'000);
  register_shape("sessions_with_tails", sessions_with_tails, settings, 20'000);
  register_shape("inserts_with_constant_eviction", inserts_with_constant_eviction, settings, 5'000);
  register_shape("held_ends_in_one_edge", held_ends_in_one_edge, settings, 5'000);
}

int run(int argc, char** argv) {
  Settings settings{.effort = Effort::kQuick};
  std::vector<char*> arguments;
  for (int i = 0; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--smoke") {
      settings.effort = Effort::kSmoke;
    } else {
      arguments.push_back(argv[i]);
    }
  }
  int left = static_cast<int>(arguments.size());
  benchmark::Initialize(&left, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(left, arguments.data())) return 2;
  const Machine machine = Machine::here_and_now();
  benchmark::AddCustomContext("commit", machine.commit);
  benchmark::AddCustomContext("cpu", machine.cpu);
  benchmark::AddCustomContext("compiler", machine.compiler);
  benchmark::AddCustomContext("build_type", machine.build_type);
  register_shapes(settings);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  try {
    return cairn::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cairn_shapes: %s\n", error.what());
    return 1;
  }
}
