// Options that several subcommands share: where the requests come from, and the engine that serves them.
#ifndef CAIRN_TOOLS_WORKLOAD_OPTIONS_H_
#define CAIRN_TOOLS_WORKLOAD_OPTIONS_H_

#include <cstddef>
#include <string>

#include "replay/builtin_workload.h"
#include "replay/report.h"
#include "replay/trace_reader.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace cairn::tool {

inline constexpr std::size_t kBlockTokensMax = 65'536;

struct WorkloadArguments {
  std::string trace;
  bool builtin = false;
  replay::BuiltinWorkloadOptions workload;
  std::string format = "auto";
  std::string ids = "chained";
  replay::TraceOptions trace_options;  // but for the two above
};

struct EngineArguments {
  std::string blocks = "10%";
  replay::ReplayOptions replay;  // but for the service rate
  double service_rate = 0;       // 0: none

  [[nodiscard]] replay::ReplayOptions replay_options() const;
};

// `arguments` must live as long as the app. `count_option` names the number of requests of the built-in workload.
void add_workload_options(CLI::App& command, WorkloadArguments& arguments, const char* count_option);
void add_engine_options(CLI::App& command, EngineArguments& arguments);
CLI::Option& add_policy_option(CLI::App& command, std::string& policy);

// A text that replay::PoolSize::parse takes.
[[nodiscard]] CLI::Validator pool_size();

// Reads or makes the requests, and fills in `source`. Throws what the readers throw.
[[nodiscard]] replay::Workload load(const WorkloadArguments& arguments, replay::WorkloadSource& source);

}  // namespace cairn::tool

#endif  // CAIRN_TOOLS_WORKLOAD_OPTIONS_H_
