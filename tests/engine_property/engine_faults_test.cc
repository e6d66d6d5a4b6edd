// Disks that fail at the n-th operation, for each n, below a cache manager under a small fixed load: never a wrong
// byte, the counts add up, and everything is whole at the end.
//
// Environment:
//   CAIRN_ENGINE_FAULTS_MAX=n  the last n (default below)
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "engine_property/engine_program.h"
#include "engine_property/run_program.h"
#include "support/environment.h"
#include "support/every_hash.h"
#include "support/faulty_io.h"
#include "support/operation_decoder.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kLoadOperations = 100;
constexpr std::uint64_t kSeed = 5;

// A hybrid model, little memory, and files that hold some of what leaves it.
EngineProgram load(bool ram) {
  EngineProgram program = decode_engine_program(random_program_bytes(kSeed, kLoadOperations));
  program.settings = {.model = ModelKind::kHybrid,
                      .block_size = 2,
                      .blocks = 8,
                      .slots = 2,
                      .shards = 2,
                      .tokens_max = 14,
                      .checkpoint_every_tokens = 4,
                      .store = ram ? StoreKind::kRamBeforeFile : StoreKind::kFile,
                      .ram_records = 3,
                      .file_bytes = (std::uint64_t{264} << 10) + 30 * 8192,
                      .spill = {.fetch_tokens_min = 1, .fetch_bytes_per_s = 1e12, .prefill_tokens_per_s = 1},
                      .ending = Ending::kFinish};
  for (std::size_t i = 0; i < program.operations.size(); ++i) {
    EngineOperation& operation = program.operations[i];
    operation.fault = 0;
    // Mostly requests like those before, from the beginning to the end; and the disk has to keep up with them.
    if (i % 4 == 1) operation = {.kind = EngineOperationKind::kFlush};
    if (i % 4 >= 2) {
      operation = {.kind = EngineOperationKind::kServe,
                   .who = static_cast<std::uint8_t>(operation.who % 4),
                   .source = operation.source,
                   .cut = 1,
                   .extra = 9};
    }
  }
  return program;
}

struct FaultCase {
  const char* name;
  IoFault fault;
};

class EngineFaults : public ::testing::TestWithParam<FaultCase> {};

TEST_P(EngineFaults, AtTheNthOperationNeverCostMoreThanReuse) {
  const std::uint64_t last = environment_number("CAIRN_ENGINE_FAULTS_MAX", is_slow_build() ? 10 : 40);
  std::uint64_t struck = 0;
  EngineReport total;
  std::uint64_t beyond = 0;  // runs since the last one that came as far as the nth operation
  for (std::uint64_t nth = 1; nth <= last && beyond < 4; ++nth) {
    const auto plan = std::make_shared<FaultPlan>();
    IoFault fault = GetParam().fault;
    fault.nth = nth;
    plan->add(fault);
    const EngineReport report = run_engine_program(load(nth % 4 == 0), nullptr, plan);
    ASSERT_EQ(report.failure, "") << "at operation " << nth << " of the disk, " << report.operations << " of the load";
    struck += plan->faults();
    beyond = plan->faults() > 0 ? 0 : beyond + 1;
    total += report;
  }
  std::cout << "[ faults   ] " << struck << " faults: " << total.describe() << std::endl;
  EXPECT_GE(struck, std::min<std::uint64_t>(last, 4));
  EXPECT_GT(total.stats.fetched_blocks + total.stats.fetched_snapshots, 0U);
}

using Effect = IoFault::Effect;
INSTANTIATE_TEST_SUITE_P(
    All, EngineFaults,
    ::testing::Values(FaultCase{"EIO", {.effect = Effect::kFail, .error = EIO}},
                      FaultCase{"EIOThoughDone", {.effect = Effect::kFail, .error = EIO, .done_all_the_same = true}},
                      FaultCase{"ENOSPC", {.effect = Effect::kFail, .count = 3, .error = ENOSPC}},
                      FaultCase{"EROFS", {.effect = Effect::kFail, .count = 10, .error = EROFS}},
                      FaultCase{"Short", {.effect = Effect::kShort, .kind = IoRequest::Kind::kWrite, .bytes = 4096}},
                      FaultCase{"Slow", {.effect = Effect::kSlow, .operations_until_done = 3, .waits_until_done = 3}},
                      FaultCase{"Lost", {.effect = Effect::kLose}}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace cairn::testing
