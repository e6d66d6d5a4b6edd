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
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>

#include "support/lockstep.h"
#include "support/shrink.h"

namespace cairn::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAIRN_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAIRN_TEST_SANITIZED 1
#endif
#endif

#if defined(CAIRN_TEST_CONSTANT_HASH) || defined(CAIRN_TEST_SANITIZED)
constexpr std::size_t kDefaultOperations = 200'000;
#else
constexpr std::size_t kDefaultOperations = 1'200'000;
#endif
constexpr std::size_t kShards = 4;
constexpr std::array<std::size_t, 4> kOperationsInProgram = {40, 150, 400, 1200};
constexpr std::size_t kShrinkAttemptsMax = 4000;

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool is_set(const char* name, char to) {
  const char* value = environment(name);
  return value != nullptr && *value == to;
}

std::size_t operations_wanted() {
  const char* wanted = environment("CAIRN_MODEL_OPERATIONS");
  return wanted != nullptr ? std::stoull(wanted) : kDefaultOperations;
}

std::vector<std::uint8_t> program_of_seed(std::uint64_t seed) {
  return random_program_bytes(seed, kOperationsInProgram[seed / kShards % kOperationsInProgram.size()]);
}

// ---- What a crash leaves behind: the seed ----

volatile std::sig_atomic_t g_message_size = 0;
std::array<char, 96> g_message;

void print_seed_and_die(int signal) {
  static_cast<void>(!write(STDERR_FILENO, g_message.data(), static_cast<std::size_t>(g_message_size)));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void note_seed(std::uint64_t seed) {
  const std::string message = "\nreplay with CAIRN_MODEL_SHRINK=1 CAIRN_MODEL_SEED=" + std::to_string(seed) + "\n";
  g_message_size = 0;
  std::copy_n(message.begin(), std::min(message.size(), g_message.size()), g_message.begin());
  g_message_size = static_cast<std::sig_atomic_t>(std::min(message.size(), g_message.size()));
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

std::vector<std::uint8_t> from_hex(const std::string& hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
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
  std::signal(SIGABRT, print_seed_and_die);
  std::signal(SIGSEGV, print_seed_and_die);
  const std::size_t wanted = operations_wanted() / kShards;
  std::size_t compared = 0;
  std::size_t breaking = 0;
  std::size_t programs = 0;
  for (std::uint64_t seed = shard; compared < wanted; seed += kShards) {
    note_seed(seed);
    const auto bytes = program_of_seed(seed);
    const Program program = decode_program(bytes);
    const RunReport report = run_program(program);
    if (!report.failure.empty()) {
      std::signal(SIGABRT, SIG_DFL);
      std::signal(SIGSEGV, SIG_DFL);
      FAIL() << "CAIRN_MODEL_SEED=" << seed << ", operation " << report.operation << ": " << report.failure
             << "\nMade smaller: " << explain_smaller(bytes);
    }
    (program.settings.breaks_protocol ? breaking : compared) += report.calls;
    ++programs;
  }
  std::signal(SIGABRT, SIG_DFL);
  std::signal(SIGSEGV, SIG_DFL);
  EXPECT_GT(breaking, 0U);
  std::cout << "[ model    ] " << programs << " programs, " << compared << " calls compared with the model, "
            << breaking << " calls of callers that break the protocol" << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Shards, IndexModel, ::testing::Range<std::size_t>(0, kShards),
                         [](const auto& shard) { return std::to_string(shard.param); });

}  // namespace
}  // namespace cairn::testing
