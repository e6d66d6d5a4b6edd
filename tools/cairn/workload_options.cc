#include "workload_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "replay/comparison.h"
#include "replay/line_source.h"
#include "replay/pool_size.h"

namespace cairn::tool {
namespace {

constexpr std::size_t kConcurrencyMax = 1'000'000;

CLI::Validator above_zero() {
  return CLI::Validator(
      [](std::string& text) {
        double number = 0;
        const bool right = CLI::detail::lexical_cast(text, number) && std::isfinite(number) && number > 0;
        return right ? std::string() : fmt::format("{} is not a number above 0", text);
      },
      "");
}

void add_trace_options(CLI::App& command, WorkloadArguments& arguments) {
  auto* trace = command.get_option("trace");
  constexpr const char* kGroup = "Trace";
  command.add_option("--format", arguments.format, "Told by the first line (auto), or named")
      ->check(CLI::IsMember({"auto", "blocks", "tokens"}))
      ->type_name("")
      ->capture_default_str()
      ->needs(trace)
      ->group(kGroup);
  command
      .add_option("--trace-block-size", arguments.trace_options.trace_block_tokens,
                  "Tokens that a block id of the trace stands for")
      ->check(CLI::Range(std::size_t{1}, kBlockTokensMax))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->needs(trace)
      ->group(kGroup);
  command
      .add_option("--ids", arguments.ids,
                  "chained: a block id names a block and its whole prefix; plain: a block alone")
      ->check(CLI::IsMember({"chained", "plain"}))
      ->type_name("")
      ->capture_default_str()
      ->needs(trace)
      ->group(kGroup);
  command.add_flag("--skip-bad-lines", arguments.trace_options.skip_bad_lines, "Count malformed lines and go on")
      ->needs(trace)
      ->group(kGroup);
}

// What CLI11 checks by name, as the library's own types.
replay::TraceOptions trace_options_of(const WorkloadArguments& arguments) {
  replay::TraceOptions options = arguments.trace_options;
  if (arguments.format == "blocks") options.format = replay::TraceFormat::kBlockIds;
  if (arguments.format == "tokens") options.format = replay::TraceFormat::kTokens;
  if (arguments.ids == "plain") options.ids = replay::BlockIdKind::kPlain;
  return options;
}

replay::Workload read(const WorkloadArguments& arguments, replay::WorkloadSource& source) {
  if (arguments.trace.empty()) {
    source.builtin = arguments.workload;
    return replay::builtin_workload(arguments.workload);
  }
  replay::LineSource lines = replay::LineSource::open(arguments.trace);
  const replay::TraceOptions options = trace_options_of(arguments);
  replay::Trace trace = replay::read_trace(lines, options);
  source.trace = replay::WorkloadSource::TraceSource{.name = lines.name(),
                                                     .options = options,
                                                     .format = trace.format,
                                                     .bad_lines = trace.bad_lines,
                                                     .bad_line_reasons = std::move(trace.bad_line_reasons)};
  return std::move(trace.workload);
}

}  // namespace

CLI::Validator pool_size() {
  return CLI::Validator(
      [](std::string& text) {
        try {
          replay::PoolSize::parse(text);
        } catch (const std::invalid_argument& error) {
          return std::string(error.what());
        }
        return std::string();
      },
      "");
}

replay::ReplayOptions EngineArguments::replay_options() const {
  replay::ReplayOptions options = replay;
  if (service_rate > 0) options.service_rate = service_rate;
  return options;
}

void add_workload_options(CLI::App& command, WorkloadArguments& arguments, const char* count_option) {
  auto* trace = command
                    .add_option("trace", arguments.trace,
                                "Trace file (.gz and .zst as they are), or - for standard input. Without one, the "
                                "built-in workload is replayed")
                    ->type_name("FILE");
  constexpr const char* kGroup = "Built-in workload";
  command.add_flag("--workload", arguments.builtin, "Replay the built-in workload (default if no trace is given)")
      ->excludes(trace)
      ->group(kGroup);
  command.add_option(count_option, arguments.workload.requests, "Requests to generate")
      ->check(CLI::Range(std::size_t{1}, replay::BuiltinWorkloadOptions::kRequestsMax))
      ->type_name("N")
      ->capture_default_str()
      ->excludes(trace)
      ->group(kGroup);
  command.add_option("--seed", arguments.workload.seed, "The same seed gives the same requests")
      ->type_name("N")
      ->capture_default_str()
      ->excludes(trace)
      ->group(kGroup);
  add_trace_options(command, arguments);
}

void add_engine_options(CLI::App& command, EngineArguments& arguments) {
  constexpr const char* kGroup = "Engine";
  command.add_option("--block-size", arguments.replay.block_size, "Tokens in a KV block")
      ->check(CLI::Range(std::size_t{1}, kBlockTokensMax))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--blocks", arguments.blocks,
                  "Size of the pool: blocks (20000, 20k), tokens (2Mt), or a share of the workload's distinct full "
                  "blocks (12.5%)")
      ->check(pool_size())
      ->type_name("SIZE")
      ->capture_default_str()
      ->group(kGroup);
  auto* concurrency = command
                          .add_option("--concurrency", arguments.replay.concurrency,
                                      "Sequences that run at once, at most; 1 replays one request after the other")
                          ->check(CLI::Range(std::size_t{1}, kConcurrencyMax))
                          ->type_name("N")
                          ->capture_default_str()
                          ->group(kGroup);
  command
      .add_option("--service-rate", arguments.service_rate,
                  "Overlap from the time stamps instead: output tokens per second of each sequence")
      ->check(above_zero())
      ->type_name("RATE")
      ->excludes(concurrency)
      ->group(kGroup);
}

CLI::Option& add_policy_option(CLI::App& command, std::string& policy) {
  return *command
              .add_option("--policy", policy,
                          fmt::format("Which blocks are evicted: {}", fmt::join(replay::policy_names(), ", ")))
              ->check(CLI::IsMember(replay::policy_names()))
              ->type_name("NAME")
              ->capture_default_str();
}

replay::Workload load(const WorkloadArguments& arguments, replay::WorkloadSource& source) {
  replay::Workload workload = read(arguments, source);
  source.requests = workload.size();
  source.prompt_tokens = workload.prompt_tokens();
  source.output_tokens = workload.output_tokens();
  return workload;
}

}  // namespace cairn::tool
