// Runs a program of engine operations by itself, and says what came of it.
#ifndef CAIRN_TESTS_ENGINE_PROPERTY_RUN_PROGRAM_H_
#define CAIRN_TESTS_ENGINE_PROPERTY_RUN_PROGRAM_H_

#include <cairn/cache_manager.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "engine_property/engine_driver.h"
#include "engine_property/engine_program.h"
#include "replay/verifying_engine.h"

namespace cairn::testing {

struct EngineReport {
  std::string failure;  // empty: none
  std::size_t operations = 0;
  Tally tally;
  ManagerStats stats;
  replay::VerifyingEngineCounts counts;
  SpillStats store;
  std::uint64_t restarts = 0;
  std::uint64_t loading_abandoned = 0;

  // Adds what was counted.
  EngineReport& operator+=(const EngineReport& other);
  [[nodiscard]] std::string describe() const;
  // A test in which something never happens does not test it. Empty if everything has.
  [[nodiscard]] std::string what_never_happened() const;
};

// With a plan, its store has those faults (TestTiers).
[[nodiscard]] EngineReport run_engine_program(const EngineProgram& program, std::ostream* trace = nullptr,
                                              std::shared_ptr<FaultPlan> faults = nullptr);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_ENGINE_PROPERTY_RUN_PROGRAM_H_
