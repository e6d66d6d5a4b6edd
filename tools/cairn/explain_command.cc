#include "explain_command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "output_file.h"
#include "progress_meter.h"
#include "replay/block_trace.h"
#include "replay/explain_report.h"
#include "replay/optimum.h"
#include "replay/verified_replayer.h"
#include "snapshot_options.h"
#include "workload_options.h"

namespace cairn::tool {
namespace {

constexpr const char* kExamples = R"(Examples:
  cairn explain conversation_trace.jsonl --block-size 512 --blocks 5%
      the ten costliest reasons why prompts were not cached, with examples
  cairn explain tokens.jsonl --blocks 2Mt --requests
      and a line for each request: where its cached prefix ended, and why
  cairn explain tokens.jsonl --requests --json - | jq '.requests[41]'
      why was the 42nd request not cached?
  cairn explain agents.jsonl.zst --trace-block-size 64 --snapshots 200
      a hybrid model: also where the KV was there, but no state of its
      recurrent layers
  cairn explain
      the same of the built-in workload

What the causes mean: docs/insight.md. Formats of traces: docs/trace-formats.md.)";

constexpr std::size_t kStateBytes = 64;  // of the stand-in for a model: enough to tell any two apart
constexpr std::size_t kSnapshotsMax = 10'000'000;

struct Arguments {
  WorkloadArguments workload;
  EngineArguments engine;
  std::string policy = replay::ExplainOptions{}.block_policy;
  std::optional<std::size_t> snapshots;
  std::size_t checkpoint_every = 0;
  bool requests = false;
  std::string json;
};

void run(const Arguments& arguments) {
  check_checkpoints(arguments.checkpoint_every, arguments.engine.replay.block_size);
  replay::ExplainReport report;
  const replay::Workload workload = load(arguments.workload, report);
  report.replay = arguments.engine.replay_options();
  report.pool = replay::PoolSize::parse(arguments.engine.blocks);
  const replay::BlockTrace blocks(workload, report.replay.block_size);
  report.distinct_blocks = blocks.distinct();
  report.pool_blocks = report.pool.blocks(report.replay.block_size, blocks.distinct());
  if (arguments.snapshots) {
    report.snapshots = replay::SnapshotOptions{.slots = *arguments.snapshots,
                                               .slot_bytes = kStateBytes,
                                               .checkpoint_every_tokens = arguments.checkpoint_every};
  }
  // Chained ids name their whole prefix: what follows a difference is never equal.
  report.found_equal_again = !report.trace || report.trace->format == replay::TraceFormat::kTokens ||
                             report.trace->options.ids == replay::BlockIdKind::kPlain;
  {
    ProgressMeter progress(workload.size(), "explained", "requests");
    replay::ExplainOptions options{.pool_blocks = report.pool_blocks,
                                   .block_policy = arguments.policy,
                                   .replay = report.replay,
                                   .find_equal_again = report.found_equal_again,
                                   .snapshots = report.snapshots};
    options.replay.on_request_done = [&progress] { progress.add_one(); };
    report.result = replay::explain(workload, blocks, options);
    if (!report.snapshots) {  // it knows nothing of states
      report.optimum_matched_tokens =
          replay::find_optimum(workload, blocks, report.pool_blocks, report.replay).matched_tokens;
    }
  }
  if (arguments.json == "-") {
    write_to_stdout(replay::json(workload, report, arguments.requests));
    return;
  }
  write_to_stdout(replay::table(workload, report, arguments.requests));
  if (!arguments.json.empty()) {
    write_file_atomically(arguments.json, replay::json(workload, report, arguments.requests));
  }
}

}  // namespace

void add_explain_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("explain", "Say for recorded LLM traffic where each prompt's cached prefix ended, and why");
  // Shared by the options and the callback, which live as long as the app.
  const auto arguments = std::make_shared<Arguments>();
  add_workload_options(*command, arguments->workload, "--workload-requests");
  add_engine_options(*command, arguments->engine);
  add_policy_option(*command, arguments->policy);
  constexpr const char* kGroup = "Hybrid models";
  auto* snapshots =
      command
          ->add_option("--snapshots", arguments->snapshots,
                       "Slots for states of recurrent layers. Replays with the verifying engine: takes longer")
          ->check(CLI::Range(std::size_t{1}, kSnapshotsMax))
          ->type_name("N")
          ->group(kGroup);
  command
      ->add_option("--checkpoint-every", arguments->checkpoint_every,
                   "A state is kept every so many tokens as well; a multiple of the block size")
      ->type_name("TOKENS")
      ->needs(snapshots)
      ->group(kGroup);
  command->add_flag("--requests", arguments->requests, "A line for each request as well");
  command
      ->add_option("--json", arguments->json,
                   "Write every number and the settings to a file; - prints them instead of the table")
      ->type_name("FILE");
  command->footer(kExamples);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace cairn::tool
