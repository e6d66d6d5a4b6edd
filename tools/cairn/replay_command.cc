#include "replay_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "output_file.h"
#include "progress_meter.h"
#include "replay/builtin_workload.h"
#include "replay/comparison.h"
#include "replay/line_source.h"
#include "replay/report.h"
#include "replay/trace_reader.h"
#include "replay/verified_replayer.h"

namespace cairn::tool {
namespace {

constexpr std::size_t kBlockTokensMax = 65'536;
constexpr std::size_t kConcurrencyMax = 1'000'000;
constexpr std::size_t kRuns = 4;
constexpr std::size_t kSnapshotsMax = 10'000'000;
constexpr std::size_t kSnapshotBytesMax = std::size_t{1} << 32;

constexpr const char* kExamples = R"(Examples:
  cairn replay
      the built-in workload, with a pool of a tenth of its distinct blocks
  cairn replay --requests 20000 --seed 7 --blocks 2Mt --concurrency 32
      more of it, with room for 2,000,000 tokens and 32 sequences at once
  cairn replay conversation_trace.jsonl --block-size 512 --blocks 5%
      a trace of block ids that stand for 512 tokens each
  cairn replay agents.jsonl.zst --trace-block-size 64 --service-rate 40
      ids of 64 tokens; overlap from the time stamps, 40 output tokens/s each
  cairn replay blocks.jsonl --trace-block-size 16 --ids plain
      ids that name a block alone, not its prefix
  cairn replay conversation_trace.jsonl --engine verify --blocks 566k
      with an engine that writes every KV block and checks every byte it gets
  cairn replay --engine verify --snapshots 200 --checkpoint-every 1024
      the same of a hybrid model, whose recurrent state is kept in 200 slots
  zcat tokens.jsonl.gz | cairn replay - --json - | jq '.runs[].token_hit_rate'
      tokens from standard input, the report as JSON

Formats of traces and report: docs/trace-formats.md and docs/replay.md.)";

struct Arguments {
  std::string trace;
  bool builtin = false;
  replay::BuiltinWorkloadOptions workload;
  std::string format = "auto";
  std::string ids = "chained";
  replay::TraceOptions trace_options;  // but for the two above
  std::string blocks = "10%";
  replay::ReplayOptions replay;
  double service_rate = 0;
  bool verify = false;
  std::size_t prefill_chunk = replay::VerifiedReplayOptions{}.prefill_chunk_tokens;
  std::optional<std::size_t> snapshots;
  replay::SnapshotOptions snapshot;  // but for the slots
  std::string json;
};

CLI::Validator above_zero() {
  return CLI::Validator(
      [](std::string& text) {
        double number = 0;
        const bool right = CLI::detail::lexical_cast(text, number) && std::isfinite(number) && number > 0;
        return right ? std::string() : fmt::format("{} is not a number above 0", text);
      },
      "");
}

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

void add_workload_options(CLI::App& command, Arguments& arguments) {
  auto* trace = command
                    .add_option("trace", arguments.trace,
                                "Trace file (.gz and .zst as they are), or - for standard input. Without one, the "
                                "built-in workload is replayed")
                    ->type_name("FILE");
  constexpr const char* kGroup = "Built-in workload";
  command.add_flag("--workload", arguments.builtin, "Replay the built-in workload (default if no trace is given)")
      ->excludes(trace)
      ->group(kGroup);
  command.add_option("--requests", arguments.workload.requests, "Requests to generate")
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
}

void add_trace_options(CLI::App& command, Arguments& arguments) {
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

void add_engine_options(CLI::App& command, Arguments& arguments) {
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

void add_verifying_options(CLI::App& command, Arguments& arguments) {
  constexpr const char* kGroup = "Verifying engine";
  command
      .add_option_function<std::string>(
          "--engine", [&arguments](const std::string& name) { arguments.verify = name == "verify"; },
          "index: the calls of an engine, no bytes; verify: an engine on leases that checks every byte")
      ->check(CLI::IsMember({"index", "verify"}))
      ->type_name("")
      ->default_str("index")
      ->group(kGroup);
  command.add_option("--prefill-chunk", arguments.prefill_chunk, "Tokens of a prompt that one step computes, at most")
      ->check(CLI::Range(std::uint64_t{1}, replay::kSequenceTokensMax))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--snapshots", arguments.snapshots, "A hybrid model, with slots for so many states")
      ->check(CLI::Range(std::size_t{1}, kSnapshotsMax))
      ->type_name("N")
      ->group(kGroup);
  command.add_option("--snapshot-bytes", arguments.snapshot.slot_bytes, "Size of a state")
      ->check(CLI::Range(std::size_t{1}, kSnapshotBytesMax))
      ->type_name("BYTES")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--checkpoint-every", arguments.snapshot.checkpoint_every_tokens,
                  "Keep the state every so many tokens of a prompt, beside tails and branch points; 0: do not")
      ->check(CLI::Range(std::uint64_t{0}, replay::kSequenceTokensMax))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(kGroup);
}

// What one option asks of another.
void check_combinations(const CLI::App& command, const Arguments& arguments) {
  const auto given = [&command](const char* name) { return command.get_option(name)->count() > 0; };
  const auto value = [&command](const char* name) { return command.get_option(name)->results().front(); };
  for (const char* name : {"--snapshots", "--snapshot-bytes", "--checkpoint-every", "--prefill-chunk"}) {
    if (given(name) && !arguments.verify) {
      throw CLI::ValidationError(
          name, fmt::format("{}: only the verifying engine has it; add --engine verify", value(name)));
    }
  }
  for (const char* name : {"--snapshot-bytes", "--checkpoint-every"}) {
    if (given(name) && !arguments.snapshots) {
      throw CLI::ValidationError(
          name, fmt::format("{}: without --snapshots no state is kept; add --snapshots N", value(name)));
    }
  }
  const std::size_t block_size = arguments.replay.block_size;
  const std::size_t every = arguments.snapshot.checkpoint_every_tokens;
  if (every % block_size != 0) {
    const std::size_t below = every / block_size * block_size;
    throw CLI::ValidationError(
        "--checkpoint-every",
        fmt::format("{}: must be a multiple of the block size {}; take {}{}", every, block_size,
                    below > 0 ? fmt::format("{} or ", below) : std::string(), below + block_size));
  }
}

// What CLI11 checks by name, as the library's own types.
replay::TraceOptions trace_options_of(const Arguments& arguments) {
  replay::TraceOptions options = arguments.trace_options;
  if (arguments.format == "blocks") options.format = replay::TraceFormat::kBlockIds;
  if (arguments.format == "tokens") options.format = replay::TraceFormat::kTokens;
  if (arguments.ids == "plain") options.ids = replay::BlockIdKind::kPlain;
  return options;
}

// Fills in where the requests come from, beside returning them.
replay::Workload load(const Arguments& arguments, replay::Report& report) {
  if (arguments.trace.empty()) {
    report.builtin = arguments.workload;
    return replay::builtin_workload(arguments.workload);
  }
  replay::LineSource source = replay::LineSource::open(arguments.trace);
  const replay::TraceOptions options = trace_options_of(arguments);
  replay::Trace trace = replay::read_trace(source, options);
  report.trace = replay::Report::TraceSource{.name = source.name(),
                                             .options = options,
                                             .format = trace.format,
                                             .bad_lines = trace.bad_lines,
                                             .bad_line_reasons = std::move(trace.bad_line_reasons)};
  return std::move(trace.workload);
}

void compare(const replay::Workload& workload, replay::Report& report) {
  ProgressMeter progress(workload.size() * kRuns);
  report.options.replay.on_request_done = [&progress] { progress.add_one(); };
  report.comparison = replay::compare(workload, report.options);
  report.options.replay.on_request_done = nullptr;
}

void verify(const replay::Workload& workload, const Arguments& arguments, replay::Report& report) {
  replay::Report::VerifiedRun& verified = report.verified.emplace();
  verified.options.prefill_chunk_tokens = arguments.prefill_chunk;
  if (arguments.snapshots) {
    verified.options.snapshots = arguments.snapshot;
    verified.options.snapshots->slots = *arguments.snapshots;
  }
  const replay::PoolSize& pool = report.options.pool;
  ProgressMeter progress(workload.size());
  verified.options.replay = report.options.replay;
  verified.options.replay.on_request_done = [&progress] { progress.add_one(); };
  if (pool.is_share()) {
    report.comparison.distinct_blocks = replay::count_distinct_blocks(workload, verified.options.replay);
  }
  report.comparison.pool_blocks = pool.blocks(report.options.replay.block_size, report.comparison.distinct_blocks);
  verified.result = replay::replay_verified(workload, report.comparison.pool_blocks, verified.options);
  verified.options.replay.on_request_done = nullptr;
}

void run(const CLI::App& command, const Arguments& arguments) {
  check_combinations(command, arguments);
  replay::Report report;
  const replay::Workload workload = load(arguments, report);
  report.requests = workload.size();
  report.prompt_tokens = workload.prompt_tokens();
  report.output_tokens = workload.output_tokens();
  report.options.pool = replay::PoolSize::parse(arguments.blocks);
  report.options.replay = arguments.replay;
  if (arguments.service_rate > 0) report.options.replay.service_rate = arguments.service_rate;
  if (arguments.verify) {
    verify(workload, arguments, report);
  } else {
    compare(workload, report);
  }
  if (arguments.json == "-") {
    write_to_stdout(replay::json(report));
    return;
  }
  write_to_stdout(replay::table(report));
  if (!arguments.json.empty()) write_file_atomically(arguments.json, replay::json(report));
}

}  // namespace

void add_replay_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "replay", "Replay recorded LLM traffic through no cache, the cache at a given size, and an unbounded one");
  // Shared by the options and the callback, which live as long as the app.
  const auto arguments = std::make_shared<Arguments>();
  add_workload_options(*command, *arguments);
  add_trace_options(*command, *arguments);
  add_engine_options(*command, *arguments);
  add_verifying_options(*command, *arguments);
  command
      ->add_option("--json", arguments->json,
                   "Write every number and the settings to a file; - prints them instead "
                   "of the table")
      ->type_name("FILE");
  command->footer(kExamples);
  command->callback([command, arguments] { run(*command, *arguments); });
}

}  // namespace cairn::tool
