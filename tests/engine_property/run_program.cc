#include "engine_property/run_program.h"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <optional>
#include <string_view>

#include "engine_property/shared_engine.h"

namespace cairn::testing {
namespace {

struct Field {
  std::string_view name;
  std::uint64_t ManagerStats::* field;
};
constexpr std::array kFields = {
    Field{"requests", &ManagerStats::requests},
    Field{"resumed", &ManagerStats::resumed},
    Field{"reused tokens", &ManagerStats::reused_tokens},
    Field{"computed tokens", &ManagerStats::computed_tokens},
    Field{"matched tokens", &ManagerStats::matched_tokens},
    Field{"tokens without state", &ManagerStats::stateless_tokens},
    Field{"refused admissions", &ManagerStats::refused_admissions},
    Field{"refused reserves", &ManagerStats::refused_reserves},
    Field{"published blocks", &ManagerStats::published_blocks},
    Field{"deduplicated blocks", &ManagerStats::deduplicated_blocks},
    Field{"evicted blocks", &ManagerStats::evicted_blocks},
    Field{"captures published", &ManagerStats::captures_published},
    Field{"captures declined", &ManagerStats::captures_declined},
    Field{"captures abandoned", &ManagerStats::captures_abandoned},
    Field{"evicted snapshots", &ManagerStats::evicted_snapshots},
    Field{"finished", &ManagerStats::finished},
    Field{"preempted", &ManagerStats::preempted},
    Field{"abandoned", &ManagerStats::abandoned},
    Field{"forks", &ManagerStats::forks},
    Field{"failed steps", &ManagerStats::failed_steps},
    Field{"waits", &ManagerStats::waits},
};

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
  for (const Field& field : kFields) stats.*field.field += other.stats.*field.field;
  for (const CountField& field : kCountFields) counts.*field.field += other.counts.*field.field;
  return *this;
}

std::string EngineReport::describe() const {
  std::string text = fmt::format("{} operations, {} failed allocations", operations, tally.failed_allocations);
  for (const Field& field : kFields) text += fmt::format(", {} {}", stats.*field.field, field.name);
  for (const CountField& field : kCountFields) text += fmt::format(", {} {}", counts.*field.field, field.name);
  return text;
}

std::string EngineReport::what_never_happened() const {
  std::string never;
  const auto look = [&](std::string_view name, std::uint64_t count) {
    if (count == 0) never += fmt::format("{}{}", never.empty() ? "" : ", ", name);
  };
  look("failed allocations", tally.failed_allocations);
  for (const Field& field : kFields) look(field.name, stats.*field.field);
  for (const CountField& field : kCountFields) look(field.name, counts.*field.field);
  return never;
}

EngineReport run_engine_program(const EngineProgram& program, std::ostream* trace) {
  EngineReport report;
  try {
    if (trace != nullptr) *trace << describe(program.settings) << '\n';
    SharedEngine shared(program.settings);
    EngineDriver driver(shared, "r", true);
    driver.trace_to(trace);
    for (const EngineOperation& operation : program.operations) {
      ++report.operations;
      if (trace != nullptr) *trace << report.operations << ':';
      driver.run(operation);
      if (trace != nullptr) *trace << '\n';
    }
    driver.end();
    report.tally = driver.tally();
    report.stats = shared.manager().stats();
    report.counts = shared.engine().counts();
    shared.destroy_manager();
    driver.end_orphans();
    report.failure = shared.what_is_left();
  } catch (const std::exception& error) {
    report.failure = error.what();
    if (report.failure.empty()) report.failure = "an exception without words";
  }
  return report;
}

}  // namespace cairn::testing
