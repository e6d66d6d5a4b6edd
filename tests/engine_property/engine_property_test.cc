// CacheManager and Lease under random programs, on a verifying engine: never a wrong byte, counters add up, and every
// pool is whole at the end.
//
// Environment:
//   CAIRN_ENGINE_OPERATIONS=n  operations to do in all (default below)
//   CAIRN_ENGINE_SEED=n        run only the program of this seed
//   CAIRN_ENGINE_HEX=digits    run only this program
//   CAIRN_ENGINE_TRACE=1       with one of the two: print each operation and what it did
//   CAIRN_ENGINE_SHRINK=1      with one of the two: make the program smaller first, in child processes, so that it
//                              works for crashes too
//   CAIRN_ENGINE_SHRINK=0      don't make failing programs smaller
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_property/engine_driver.h"
#include "engine_property/engine_program.h"
#include "engine_property/run_program.h"
#include "engine_property/shared_engine.h"
#include "support/environment.h"
#include "support/every_hash.h"
#include "support/operation_decoder.h"
#include "support/seed_on_crash.h"
#include "support/shrink.h"

namespace cairn::testing {
namespace {

#if defined(NDEBUG)
constexpr bool kOptimized = true;
#else
constexpr bool kOptimized = false;
#endif
constexpr std::size_t kShards = 4;
constexpr std::array<std::size_t, 4> kOperationsInProgram = {40, 120, 300, 900};
constexpr std::size_t kShrinkAttemptsMax = 20'000;

std::size_t operations_wanted() {
  return environment_number("CAIRN_ENGINE_OPERATIONS", is_slow_build() ? 160'000 : kOptimized ? 3'000'000 : 400'000);
}

std::vector<std::uint8_t> program_of_seed(std::uint64_t seed) {
  return random_program_bytes(seed, kOperationsInProgram[seed / kShards % kOperationsInProgram.size()]);
}

// ---- Failures ----

std::string failure_of(std::span<const std::uint8_t> bytes, std::ostream* trace = nullptr) {
  return run_engine_program(decode_engine_program(bytes), trace).failure;
}

// In a child process: true if it fails or crashes there.
bool fails_in_child(std::span<const std::uint8_t> bytes) {
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    _exit(failure_of(bytes).empty() ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

std::string explain_smaller(std::vector<std::uint8_t> bytes, std::size_t operations) {
  if (is_set("CAIRN_ENGINE_SHRINK", '0')) return "not tried";
  bytes.resize(std::min(bytes.size(), (operations + 1) * kRecordBytes));  // the rest was not reached
  const auto smaller = shrink_program(
      bytes, [](std::span<const std::uint8_t> candidate) { return !failure_of(candidate).empty(); },
      kShrinkAttemptsMax);
  std::ostringstream trace;
  const std::string failure = failure_of(smaller, &trace);
  return failure + "\nThe program:\n" + trace.str() +
         "\nReplay it with CAIRN_ENGINE_TRACE=1 CAIRN_ENGINE_HEX=" + to_hex(smaller);
}

// ---- The tests ----

// The one program that the environment names, or none.
std::vector<std::uint8_t> program_named() {
  if (const char* seed = environment("CAIRN_ENGINE_SEED")) return program_of_seed(std::stoull(seed));
  if (const char* hex = environment("CAIRN_ENGINE_HEX")) return from_hex(hex);
  return {};
}

void run_named(std::vector<std::uint8_t> bytes) {
  if (is_set("CAIRN_ENGINE_SHRINK", '1')) {
    bytes = shrink_program(std::move(bytes), fails_in_child, kShrinkAttemptsMax);
    std::cerr << "made smaller: CAIRN_ENGINE_HEX=" << to_hex(bytes) << std::endl;
  }
  EXPECT_EQ(failure_of(bytes, environment("CAIRN_ENGINE_TRACE") != nullptr ? &std::cerr : nullptr), "");
}

class EngineProperty : public ::testing::TestWithParam<std::size_t> {};

// Fixed seeds, a share of them in each shard, until the shard has done its share of operations.
TEST_P(EngineProperty, NeverHandsOutAWrongByteAndGivesEverythingBack) {
  const std::size_t shard = GetParam();
  if (const auto named = program_named(); !named.empty()) {
    if (shard == 0) run_named(named);
    return;
  }
  const std::size_t wanted = operations_wanted() / kShards;
  EngineReport total;
  std::size_t programs = 0;
  for (std::uint64_t seed = shard; total.operations < wanted; seed += kShards) {
    const auto bytes = program_of_seed(seed);
    EngineReport report;
    {
      const SeedOnCrash on_crash("CAIRN_ENGINE", seed);
      report = run_engine_program(decode_engine_program(bytes));
    }
    if (!report.failure.empty()) {
      FAIL() << "CAIRN_ENGINE_SEED=" << seed << ", operation " << report.operations << ": " << report.failure
             << "\nMade smaller: " << explain_smaller(bytes, report.operations);
    }
    total += report;
    ++programs;
  }
  std::cout << "[ property ] " << programs << " programs: " << total.describe() << std::endl;
  EXPECT_EQ(total.what_never_happened(), "");
}

INSTANTIATE_TEST_SUITE_P(Shards, EngineProperty, ::testing::Range<std::size_t>(0, kShards),
                         [](const auto& shard) { return std::to_string(shard.param); });

// A program of before there were stores.
std::vector<std::uint8_t> without_store(std::vector<std::uint8_t> program) {
  program.insert(program.begin() + kRecordBytes, kRecordBytes, std::uint8_t{0});
  return program;
}

// What random programs have found, and what it was. A seed means another program if the decoder changes.
TEST(EngineProperty, FindsNoneOfTheBugsAgainThatItHasFound) {
  if (!program_named().empty()) return;
  struct Finding {
    std::string_view what;
    std::vector<std::uint8_t> program;
  };
  const std::array findings = {
      Finding{"out of memory in an admission, then a clear: its blocks were held for ever",
              without_store(from_hex("363695efb051569e21809cb43ed23304291f42cd01a392fcf32aaf35a0c27e98"))},
      Finding{"a request that fits was refused for the block that it would copy from, with nothing running",
              without_store(program_of_seed(1533))},
  };
  for (const Finding& finding : findings) EXPECT_EQ(failure_of(finding.program), "") << finding.what;
}

}  // namespace
}  // namespace cairn::testing
