#include "engine_property/run_program.h"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <optional>
#include <string_view>

#include "engine_property/manager_counts.h"
#include "engine_property/shared_engine.h"

namespace cairn::testing {
namespace {

struct CountField {
  std::string_view name;
  std::uint64_t replay::VerifyingEngineCounts::* field;
};
constexpr std::array kCountFields = {
    CountField{"steps", &replay::VerifyingEngineCounts::steps},
    CountField{"blocks checked", &replay::VerifyingEngineCounts::blocks_checked},
    CountField{"states checked", &replay::VerifyingEngineCounts::states_checked},
    CountField{"states written", &replay::VerifyingEngineCounts::states_written},
};

}  // namespace

EngineReport& EngineReport::operator+=(const EngineReport& other) {
  operations += other.operations;
  tally += other.tally;
  loading_abandoned += other.loading_abandoned;
  restarts += other.restarts;
  for (const CountOfManager& field : kCountsOfManager) stats.*field.field += other.stats.*field.field;
  for (const CountField& field : kCountFields) counts.*field.field += other.counts.*field.field;
  return *this;
}

std::string EngineReport::describe() const {
  std::string text =
      fmt::format("{} operations, {} failed allocations, {} restarts, {} leases abandoned while loading", operations,
                  tally.failed_allocations, restarts, loading_abandoned);
  for (const CountOfManager& field : kCountsOfManager) text += fmt::format(", {} {}", stats.*field.field, field.name);
  for (const CountField& field : kCountFields) text += fmt::format(", {} {}", counts.*field.field, field.name);
  return text;
}

std::string EngineReport::what_never_happened() const {
  std::string never;
  const auto look = [&](std::string_view name, std::uint64_t count) {
    if (count == 0) never += fmt::format("{}{}", never.empty() ? "" : ", ", name);
  };
  look("failed allocations", tally.failed_allocations);
  look("restarts", restarts);
  look("leases abandoned while loading", loading_abandoned);
  for (const CountOfManager& field : kCountsOfManager) look(field.name, stats.*field.field);
  for (const CountField& field : kCountFields) look(field.name, counts.*field.field);
  return never;
}

EngineReport run_engine_program(const EngineProgram& program, std::ostream* trace, std::shared_ptr<FaultPlan> faults) {
  EngineReport report;
  try {
    if (trace != nullptr) *trace << describe(program.settings) << '\n';
    SharedEngine shared(program.settings, std::move(faults));
    EngineDriver driver(shared, "r", true);
    driver.trace_to(trace);
    for (const EngineOperation& operation : program.operations) {
      ++report.operations;
      if (trace != nullptr) *trace << report.operations << ':';
      driver.run(operation);
      if (trace != nullptr) *trace << '\n';
    }
    driver.end();
    report.tally = driver.tally_in_all();
    report.stats = shared.stats_in_all();
    report.loading_abandoned = driver.loading_abandoned();
    report.restarts = driver.restarts();
    report.counts = shared.engine().counts();
    shared.destroy_manager();
    driver.end_orphans();
    shared.tiers().quiesce();
    report.failure = shared.what_is_left();
    report.store = shared.tiers().stats();
    if (report.failure.empty()) report.failure = shared.tiers().what_is_left();
  } catch (const std::exception& error) {
    report.failure = error.what();
    if (report.failure.empty()) report.failure = "an exception without words";
  }
  return report;
}

}  // namespace cairn::testing
