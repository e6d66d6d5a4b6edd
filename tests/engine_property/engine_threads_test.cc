// Several engine threads on one cache manager, each with its own steps and sequences; another one clears, peeks and
// reads the statistics meanwhile. Not replayable to the letter, but the programs are: a failure prints the seed.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine_property/engine_driver.h"
#include "engine_property/engine_program.h"
#include "engine_property/run_program.h"
#include "engine_property/shared_engine.h"
#include "support/environment.h"
#include "support/every_hash.h"
#include "support/operation_decoder.h"

namespace cairn::testing {
namespace {

#if defined(NDEBUG)
constexpr bool kOptimized = true;
#else
constexpr bool kOptimized = false;
#endif
constexpr std::size_t kThreads = 3;
constexpr std::size_t kOperationsOfThread = 300;

// What the threads of one program have in common.
class Crew {
 public:
  explicit Crew(std::uint64_t seed) : seed_(seed), shared_(settings_of(seed)) {}

  EngineReport run() {
    std::vector<std::unique_ptr<EngineDriver>> drivers;
    for (std::size_t i = 0; i < kThreads; ++i) {
      drivers.push_back(std::make_unique<EngineDriver>(shared_, std::string(1, static_cast<char>('a' + i)), false));
    }
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] { drive(*drivers[i], i); });
      }
      threads.emplace_back([&] { watch(); });
    }
    EngineReport report;
    for (const auto& driver : drivers) {
      report.tally += driver->tally();
      report.loading_abandoned += driver->loading_abandoned();
    }
    report.stats = shared_.manager().stats();
    report.counts = shared_.engine().counts();
    if (failure_.empty()) failure_ = compare(report.tally, report.stats);
    if (failure_.empty()) failure_ = shared_.manager().validate();
    shared_.destroy_manager();
    // Sequences that outlive the manager are used by all threads at once, too.
    {
      std::vector<std::jthread> threads;
      for (const auto& driver : drivers) {
        threads.emplace_back([&] { guarded([&] { driver->end_orphans(); }); });
      }
    }
    drivers.clear();
    guarded([&] { shared_.tiers().quiesce(); });
    if (failure_.empty()) failure_ = shared_.tiers().validate_files();
    if (failure_.empty()) failure_ = shared_.what_is_left();
    if (failure_.empty()) failure_ = shared_.tiers().what_is_left();
    report.failure = failure_;
    return report;
  }

 private:
  static EngineSettings settings_of(std::uint64_t seed) {
    EngineSettings settings = decode_engine_program(random_program_bytes(seed, 1)).settings;
    settings.blocks *= settings.blocks == 0 ? 0 : kThreads;
    settings.allocations_fail = false;
    // A held store is for one thread.
    if (settings.store == StoreKind::kHeld)
      settings.store = seed % 2 == 0 ? StoreKind::kFile : StoreKind::kRamBeforeFile;
    return settings;
  }

  void guarded(const auto& call) {
    try {
      call();
    } catch (const std::exception& error) {
      if (!failed_.exchange(true)) failure_ = error.what();  // read when the threads have been joined
    }
  }

  void drive(EngineDriver& driver, std::size_t thread) {
    guarded([&] {
      EngineProgram program =
          decode_engine_program(random_program_bytes(seed_ * kThreads + thread + 1'000'000, kOperationsOfThread));
      for (EngineOperation& operation : program.operations) {
        if (failed_) break;
        operation.fault = 0;
        driver.run(operation);
      }
      driver.end();
    });
    ++ended_;
  }

  void watch() {
    guarded([&] {
      const auto bytes = random_program_bytes(seed_ + 2'000'000, 4096);
      const std::vector<TokenId> tokens(shared_.settings().tokens_max, 1);
      for (std::size_t at = 0; ended_ < kThreads; at = (at + 1) % bytes.size()) {
        const std::uint8_t what = bytes[at];
        if (what == 0) static_cast<void>(shared_.clear());
        if (what >= 1 && what < 4) static_cast<void>(shared_.clear(what % kAdapterNames.size()));
        if (what % 8 == 5) static_cast<void>(shared_.manager().peek({.tokens = tokens, .session = what % 4u}));
        if (what % 8 == 6) check(shared_.manager().stats());
        if (what % 64 == 7) {
          if (const std::string wrong = shared_.manager().validate(); !wrong.empty()) throw Broken(wrong);
        }
        std::this_thread::yield();
      }
    });
  }

  static void check(const ManagerStats& stats) {
    if (stats.prompt_tokens != stats.reused_tokens + stats.computed_tokens) throw Broken("prompt tokens don't add up");
  }

  const std::uint64_t seed_;
  SharedEngine shared_;
  std::atomic<bool> failed_{false};
  std::atomic<std::size_t> ended_{0};
  std::string failure_;
};

TEST(EngineThreads, NeverGetAWrongByteAndGiveEverythingBack) {
  const char* const only = environment("CAIRN_ENGINE_THREADS_SEED");
  const std::uint64_t first = only != nullptr ? std::stoull(only) : 0;
  const std::uint64_t programs = is_slow_build() ? 100 : kOptimized ? 1500 : 120;
  const std::uint64_t last = only != nullptr ? first + 1 : programs;
  EngineReport total;
  for (std::uint64_t seed = first; seed < last; ++seed) {
    const EngineReport report = Crew(seed).run();
    ASSERT_EQ(report.failure, "") << "CAIRN_ENGINE_THREADS_SEED=" << seed;
    total += report;
  }
  total.operations = static_cast<std::size_t>(last - first) * kThreads * kOperationsOfThread;
  // There are none of these here.
  total.tally.failed_allocations = total.restarts = 1;
  total.stats.recovered_blocks = total.stats.recovered_snapshots = total.stats.useless_records = 1;
  std::cout << "[ threads  ] " << total.describe() << std::endl;
  // Whether a store keeps up depends on how fast disk and threads are; one thread alone sees all of these
  // (engine_property_test.cc).
  total.loading_abandoned += 1;
  for (auto field : {&ManagerStats::reused_from_ram_tier_tokens, &ManagerStats::reused_from_file_tier_tokens,
                     &ManagerStats::spilled_blocks, &ManagerStats::spilled_snapshots, &ManagerStats::declined_spills,
                     &ManagerStats::fetches, &ManagerStats::failed_fetches, &ManagerStats::unprofitable_fetches,
                     &ManagerStats::fetched_blocks, &ManagerStats::fetched_snapshots}) {
    total.stats.*field += 1;
  }
  if (only == nullptr) {
    EXPECT_EQ(total.what_never_happened(), "");
  }
}

}  // namespace
}  // namespace cairn::testing
