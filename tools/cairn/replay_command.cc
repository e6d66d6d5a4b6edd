#include "replay_command.h"

#include <fmt/format.h>
#ifdef CAIRN_HAS_METRICS
#include <cairn/metrics.h>
#endif

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "given_options.h"
#include "output_file.h"
#include "progress_meter.h"
#include "replay/comparison.h"
#include "replay/report.h"
#include "replay/verified_replayer.h"
#include "replay_tier_options.h"
#include "snapshot_options.h"
#include "sweep_options.h"
#include "workload_options.h"

namespace cairn::tool {
namespace {

constexpr std::size_t kRuns = 4;
constexpr std::size_t kSweptSnapshotBytes = 64;

constexpr const char* kExamples = R"(Examples:
  cairn replay
      the built-in workload, with a pool of a tenth of its distinct blocks
  cairn replay --requests 20000 --seed 7 --blocks 2Mt --concurrency 32
      more of it, with room for 2,000,000 tokens and 32 sequences at once
  cairn replay conversation_trace.jsonl --block-size 512 --blocks 5%
      a trace of block ids that stand for 512 tokens each
  cairn replay conversation_trace.jsonl --block-size 512 --policy s3fifo
      with another eviction policy; docs/policies.md says what each one does
  cairn replay agents.jsonl.zst --trace-block-size 64 --service-rate 40
      ids of 64 tokens; overlap from the time stamps, 40 output tokens/s each
  cairn replay blocks.jsonl --trace-block-size 16 --ids plain
      ids that name a block alone, not its prefix
  cairn replay conversation_trace.jsonl --engine verify --blocks 566k
      with an engine that writes every KV block and checks every byte it gets
  cairn replay --engine verify --snapshots 200 --checkpoint-every 1024
      the same of a hybrid model, whose recurrent state is kept in 200 slots
  cairn replay --engine verify --snapshots 200 --snapshot-policy session
      and those of sessions that are idle longest are evicted first
  cairn replay conversation_trace.jsonl --block-size 512 --sweep --plot hits.svg
      the hit rate over the pool's size: would more memory help?
  cairn replay agents.jsonl.zst --trace-block-size 64 --sweep-snapshots
      what a hybrid model reuses, over the number of slots for its states
  cairn replay agents.jsonl.zst --trace-block-size 64 --blocks 2% --sweep-tiers
      how much room behind the pool is worth having
  cairn replay --engine verify --ram-tier-bytes 256M --spill-dir /tmp/spill --spill-bytes 4G
      what leaves memory goes to RAM and from there to files, and comes back
  zcat tokens.jsonl.gz | cairn replay - --json - | jq '.runs[].token_hit_rate'
      tokens from standard input, the report as JSON

Formats of traces and report: docs/trace-formats.md, docs/replay.md and
docs/insight.md.)";

struct Arguments {
  WorkloadArguments workload;
  EngineArguments engine;
  bool verify = false;
  std::size_t prefill_chunk = replay::VerifiedReplayOptions{}.prefill_chunk_tokens;
  SnapshotArguments snapshots;
  SweepArguments sweep;
  TierArguments tiers;
  std::string policy = replay::policy_names().front();
  std::string json;
  std::string metrics;
};

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
#ifdef CAIRN_HAS_METRICS
  command
      .add_option("--metrics", arguments.metrics,
                  "Write what the cache has counted by the end to a file, as it would to Prometheus")
      ->type_name("FILE")
      ->group(kGroup);
#endif
}

std::string metrics_of([[maybe_unused]] const CacheManager& manager) {
#ifdef CAIRN_HAS_METRICS
  CacheMetrics metrics;
  metrics.add("replay", manager);
  return metrics.text();
#else
  return {};
#endif
}

// What one option asks of another.
void check_combinations(const CLI::App& command, const Arguments& arguments) {
  const GivenOptions given(command);
  const SweepArguments& sweep = arguments.sweep;
  const bool verifies = arguments.verify || sweep.snapshots || sweep.tiers;
  for (const char* name :
       {"--snapshots", "--snapshot-bytes", "--checkpoint-every", "--captures", "--snapshot-policy", "--model",
        "--flop-alpha", "--session-leases", "--session-lease-evictions", "--prefill-chunk"}) {
    if (!given.has(name) || verifies) continue;
    given.refuse(name, sweep.blocks
                           ? "not with --sweep, which has no verifying engine; take --sweep-snapshots or --sweep-tiers"
                           : "only the verifying engine has it; add --engine verify");
  }
  if (!arguments.metrics.empty() && !arguments.verify) {
    given.refuse("--metrics", sweep.any() ? fmt::format("not with {}, which makes many replays; leave one of them out",
                                                        sweep.name())
                                          : "only the verifying engine has it; add --engine verify");
  }
  for (const char* name : {"--jobs", "--csv", "--plot"}) {
    if (given.has(name) && !sweep.any()) {
      given.refuse(name, "only a sweep has it; add --sweep, --sweep-snapshots or --sweep-tiers");
    }
  }
  if (sweep.csv == "-" && arguments.json == "-") {
    given.refuse("--csv", "--json - has standard output already; give one of them a file");
  }
  check_tier_combinations(command, arguments.tiers, arguments.verify, sweep);
  check_snapshot_combinations(command, arguments.snapshots, sweep.snapshots ? &sweep.snapshot_policies : nullptr);
  check_checkpoints(arguments.snapshots.options.checkpoint_every_tokens, arguments.engine.replay.block_size);
}

void compare(const replay::Workload& workload, replay::Report& report) {
  ProgressMeter progress(workload.size() * kRuns, "replayed", "requests");
  report.options.replay.on_request_done = [&progress] { progress.add_one(); };
  report.comparison = replay::compare(workload, report.options);
  report.options.replay.on_request_done = nullptr;
}

replay::VerifiedReplayOptions verified_options(const Arguments& arguments) {
  replay::VerifiedReplayOptions options;
  options.prefill_chunk_tokens = arguments.prefill_chunk;
  options.replay = arguments.engine.replay_options();
  if (arguments.snapshots.slots) options.snapshots = arguments.snapshots.complete();
  if (arguments.tiers.given()) options.tiers = arguments.tiers.tiers;
  options.block_policy = arguments.policy;
  options.skip = arguments.tiers.skip;
  options.stop_after = arguments.tiers.stop_after;
  return options;
}

// What the cache has counted, for --metrics.
std::string verify(const replay::Workload& workload, const Arguments& arguments, replay::Report& report) {
  replay::Report::VerifiedRun& verified = report.verified.emplace();
  verified.options = verified_options(arguments);
  const replay::PoolSize& pool = report.options.pool;
  ProgressMeter progress(workload.size(), "replayed", "requests");
  verified.options.replay.on_request_done = [&progress] { progress.add_one(); };
  if (pool.is_share()) {
    report.comparison.distinct_blocks = replay::count_distinct_blocks(workload, verified.options.replay);
  }
  report.comparison.pool_blocks = pool.blocks(report.options.replay.block_size, report.comparison.distinct_blocks);
  std::string metrics;
  verified.options.on_end = [&metrics](const CacheManager& manager) { metrics = metrics_of(manager); };
  verified.result = replay::replay_verified(workload, report.comparison.pool_blocks, verified.options);
  verified.options.replay.on_request_done = nullptr;
  verified.options.on_end = nullptr;
  return metrics;
}

void sweep(const CLI::App& command, const replay::Workload& workload, const replay::WorkloadSource& source,
           const Arguments& arguments) {
  if (arguments.sweep.blocks) {
    sweep_blocks(workload, source, arguments.sweep, arguments.engine.replay_options(), arguments.json);
    return;
  }
  replay::VerifiedReplayOptions verified = verified_options(arguments);
  if (arguments.sweep.tiers) {
    verified.tiers.emplace().spill = arguments.tiers.tiers.spill;
    sweep_tier_sizes(workload, source, arguments.sweep, {.blocks = arguments.engine.blocks, .verified = verified},
                     arguments.json);
    return;
  }
  verified.snapshots = arguments.snapshots.complete();
  // Sizes change no count, and a sweep's largest pool has slots for all that is ever captured.
  if (command.get_option("--snapshot-bytes")->count() == 0) verified.snapshots->slot_bytes = kSweptSnapshotBytes;
  sweep_snapshot_slots(workload, source, arguments.sweep, {.blocks = arguments.engine.blocks, .verified = verified},
                       arguments.json);
}

void run(const CLI::App& command, const Arguments& arguments) {
  check_combinations(command, arguments);
  replay::Report report;
  const replay::Workload workload = load(arguments.workload, report);
  if (arguments.sweep.any()) {
    sweep(command, workload, report, arguments);
    return;
  }
  report.options.pool = replay::PoolSize::parse(arguments.engine.blocks);
  report.options.replay = arguments.engine.replay_options();
  report.options.policy = arguments.policy;
  std::string metrics;
  if (arguments.verify) {
    metrics = verify(workload, arguments, report);
  } else {
    compare(workload, report);
  }
  write_to_stdout(arguments.json == "-" ? replay::json(report) : replay::table(report));
  if (!arguments.json.empty() && arguments.json != "-") write_file_atomically(arguments.json, replay::json(report));
  if (!arguments.metrics.empty()) write_file_atomically(arguments.metrics, metrics);
}

}  // namespace

void add_replay_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "replay", "Replay recorded LLM traffic through no cache, the cache at a given size, and an unbounded one");
  // Shared by the options and the callback, which live as long as the app.
  const auto arguments = std::make_shared<Arguments>();
  add_workload_options(*command, arguments->workload, "--requests");
  add_engine_options(*command, arguments->engine);
  add_verifying_options(*command, *arguments);
  add_snapshot_options(*command, arguments->snapshots);
  add_sweep_options(*command, arguments->sweep);
  add_policy_option(*command, arguments->policy)
      .excludes(command->get_option("--policies"))
      ->excludes(command->get_option("--sweep"));
  add_tier_options(*command, arguments->tiers);
  command
      ->add_option("--json", arguments->json,
                   "Write every number and the settings to a file; - prints them instead "
                   "of the table")
      ->type_name("FILE");
  command->footer(kExamples);
  command->callback([command, arguments] { run(*command, *arguments); });
}

}  // namespace cairn::tool
