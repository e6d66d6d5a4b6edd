// The index against the naive model, on random programs of operations.
//
// Environment:
//   CAIRN_MODEL_OPERATIONS=n  calls to make in all (default below)
//   CAIRN_MODEL_SEED=n        run only the program of this seed
//   CAIRN_MODEL_INPUT=file    run only the program in this file (a finding of the fuzzer, say)
//   CAIRN_MODEL_HEX=digits    the same, given here
//   CAIRN_MODEL_TRACE=1       with one of the three: print each call and answer
//   CAIRN_MODEL_SHRINK=1      with one of the three: make the program smaller first, in child processes, so that it
//                             works for crashes too
//   CAIRN_MODEL_SHRINK=0      don't make failing programs smaller
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>

#include "support/environment.h"
#include "support/every_hash.h"
#include "support/lockstep.h"
#include "support/seed_on_crash.h"
#include "support/shrink.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kShards = 4;
constexpr std::array<std::size_t, 4> kOperationsInProgram = {40, 150, 400, 1200};
constexpr std::size_t kShrinkAttemptsMax = 4000;

std::size_t operations_wanted() {
  return environment_number("CAIRN_MODEL_OPERATIONS", is_slow_build() ? 200'000 : 1'200'000);
}

std::vector<std::uint8_t> program_of_seed(std::uint64_t seed) {
  return random_program_bytes(seed, kOperationsInProgram[seed / kShards % kOperationsInProgram.size()]);
}

// ---- Failures ----

std::string explain(std::span<const std::uint8_t> bytes, const RunReport& report) {
  std::ostringstream trace;
  run_program(decode_program(bytes), &trace);
  return "operation " + std::to_string(report.operation) + ": " + report.failure + "\nThe program:\n" + trace.str() +
         "Replay it with CAIRN_MODEL_TRACE=1 CAIRN_MODEL_HEX=" + to_hex(bytes);
}

std::string explain_smaller(std::span<const std::uint8_t> bytes) {
  const auto fails = [](std::span<const std::uint8_t> candidate) {
    return !run_program(decode_program(candidate)).failure.empty();
  };
  if (is_set("CAIRN_MODEL_SHRINK", '0')) return "not tried";
  const auto smaller = shrink_program({bytes.begin(), bytes.end()}, fails, kShrinkAttemptsMax);
  return explain(smaller, run_program(decode_program(smaller)));
}

// The one program that the environment names, or none.
std::vector<std::uint8_t> program_named() {
  if (const char* seed = environment("CAIRN_MODEL_SEED")) return program_of_seed(std::stoull(seed));
  if (const char* hex = environment("CAIRN_MODEL_HEX")) return from_hex(hex);
  const char* file = environment("CAIRN_MODEL_INPUT");
  if (file == nullptr) return {};
  std::ifstream input(file, std::ios::binary);
  EXPECT_TRUE(input) << "cannot read " << file;
  return {std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
}

void run_named(std::vector<std::uint8_t> bytes) {
  if (is_set("CAIRN_MODEL_SHRINK", '1')) {
    bytes = shrink_program(std::move(bytes), fails_in_child, kShrinkAttemptsMax);
    std::cerr << "made smaller: CAIRN_MODEL_HEX=" << to_hex(bytes) << std::endl;
  }
  std::ostream* trace = environment("CAIRN_MODEL_TRACE") != nullptr ? &std::cerr : nullptr;
  const RunReport report = run_program(decode_program(bytes), trace);
  EXPECT_EQ(report.failure, "") << "operation " << report.operation;
}

// ---- The tests ----

class IndexModel : public ::testing::TestWithParam<std::size_t> {};

// Fixed seeds, a share of them in each shard, until the shard has made its share of calls.
TEST_P(IndexModel, AnswersEveryCallAsTheNaiveModelDoes) {
  const std::size_t shard = GetParam();
  if (const auto named = program_named(); !named.empty()) {
    if (shard == 0) run_named(named);
    return;
  }
  const std::size_t wanted = operations_wanted() / kShards;
  std::size_t compared = 0;
  std::size_t breaking = 0;
  std::size_t programs = 0;
  for (std::uint64_t seed = shard; compared < wanted; seed += kShards) {
    const auto bytes = program_of_seed(seed);
    const Program program = decode_program(bytes);
    RunReport report;
    {
      const SeedOnCrash on_crash("CAIRN_MODEL", seed);
      report = run_program(program);
    }
    if (!report.failure.empty()) {
      FAIL() << "CAIRN_MODEL_SEED=" << seed << ", operation " << report.operation << ": " << report.failure
             << "\nMade smaller: " << explain_smaller(bytes);
    }
    (program.settings.breaks_protocol ? breaking : compared) += report.calls;
    ++programs;
  }
  EXPECT_GT(breaking, 0U);
  std::cout << "[ model    ] " << programs << " programs, " << compared << " calls compared with the model, "
            << breaking << " calls of callers that break the protocol" << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Shards, IndexModel, ::testing::Range<std::size_t>(0, kShards),
                         [](const auto& shard) { return std::to_string(shard.param); });

}  // namespace
}  // namespace cairn::testing
