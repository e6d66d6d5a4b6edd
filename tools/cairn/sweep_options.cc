#include "sweep_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "output_file.h"
#include "progress_meter.h"
#include "replay/comparison.h"
#include "replay/pool_size.h"
#include "replay/sweep.h"
#include "replay/sweep_report.h"
#include "workload_options.h"

namespace cairn::tool {
namespace {

constexpr std::size_t kJobsMax = 1024;
constexpr std::size_t kSlotsMax = 10'000'000;

std::size_t jobs_of(const SweepArguments& arguments) {
  return arguments.jobs > 0 ? arguments.jobs : std::max(1U, std::thread::hardware_concurrency());
}

template <typename Report>
void write(const Report& report, const SweepArguments& arguments, const std::string& json) {
  if (json == "-") {
    write_to_stdout(replay::json(report));
  } else if (arguments.csv == "-") {
    write_to_stdout(replay::csv(report));
  } else {
    write_to_stdout(replay::table(report));
  }
  if (!json.empty() && json != "-") write_file_atomically(json, replay::json(report));
  if (!arguments.csv.empty() && arguments.csv != "-") write_file_atomically(arguments.csv, replay::csv(report));
  if (!arguments.plot.empty()) write_file_atomically(arguments.plot, replay::plot(report));
}

double share_of(const std::string& percentage) {
  constexpr double kHundred = 100;
  return std::stod(percentage) / kHundred;
}

CLI::Validator percentage() {
  return {[](const std::string& text) -> std::string {
            double number = 0;
            char* end = nullptr;
            number = std::strtod(text.c_str(), &end);
            const bool is_percentage = end != text.c_str() && std::string_view(end) == "%";
            constexpr double kHundred = 100;
            if (is_percentage && number > 0 && number <= kHundred) return {};
            return fmt::format("{}: must be above 0% and at most 100%", text);
          },
          "P%"};
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names = replay::policy_names();
  names.insert(names.end(), {"optimum", "unbounded"});
  return names;
}

}  // namespace

void add_sweep_options(CLI::App& command, SweepArguments& arguments) {
  constexpr const char* kGroup = "Sweep";
  auto* engine = command.get_option("--engine");
  auto* blocks = command
                     .add_flag("--sweep", arguments.blocks,
                               "Hit rate over the pool's size instead: many sizes, several policies, in parallel")
                     ->excludes(engine)
                     ->excludes(command.get_option("--blocks"))
                     ->group(kGroup);
  auto* snapshots = command
                        .add_flag("--sweep-snapshots", arguments.snapshots,
                                  "What a hybrid model reuses over its slots for states instead, by the verifying "
                                  "engine, in a pool of --blocks")
                        ->excludes(engine)
                        ->excludes(command.get_option("--snapshots"))
                        ->excludes(blocks)
                        ->group(kGroup);
  auto* tiers =
      command
          .add_flag("--sweep-tiers", arguments.tiers,
                    "What is reused over the size of a tier in RAM behind a pool of --blocks instead, by the "
                    "verifying engine; with --snapshots of a hybrid model")
          ->excludes(engine)
          ->excludes(blocks)
          ->excludes(snapshots)
          ->group(kGroup);
  command
      .add_option("--tier-sizes", arguments.tier_sizes,
                  "Sizes of the tier, written as for --blocks (default: 0.5 to 32 times the pool)")
      ->check(pool_size())
      ->delimiter(',')
      ->type_name("SIZE,...")
      ->needs(tiers)
      ->group(kGroup);
  command
      .add_option("--sizes", arguments.sizes,
                  "Sizes of the pool, written as for --blocks (default: 20 from 0.5% to 100%, evenly spaced on a "
                  "logarithmic scale)")
      ->check(pool_size())
      ->delimiter(',')
      ->type_name("SIZE,...")
      ->needs(blocks)
      ->group(kGroup);
  command.add_option("--slots", arguments.slots, "Numbers of slots (default: 20, up to what is ever asked for)")
      ->check(CLI::Range(std::size_t{1}, kSlotsMax))
      ->delimiter(',')
      ->type_name("N,...")
      ->needs(snapshots)
      ->group(kGroup);
  command
      .add_option("--slot-shares", arguments.shares,
                  "The same, in percent of the fewest with which no state is evicted: 1%,20%")
      ->check(percentage())
      ->delimiter(',')
      ->type_name("P%,...")
      ->needs(snapshots)
      ->group(kGroup);
  arguments.snapshot_policies = replay::replay_policy_names();
  command
      .add_option("--snapshot-policies", arguments.snapshot_policies,
                  fmt::format("Of {}", fmt::join(replay::replay_policy_names(), ", ")))
      ->check(CLI::IsMember(replay::replay_policy_names()))
      ->delimiter(',')
      ->type_name("NAME,...")
      ->needs(snapshots)
      ->group(kGroup);
  arguments.policies = replay::SweepOptions().policies;
  command.add_option("--policies", arguments.policies, fmt::format("Of {}", fmt::join(all_policies(), ", ")))
      ->capture_default_str()
      ->check(CLI::IsMember(all_policies()))
      ->delimiter(',')
      ->type_name("NAME,...")
      ->needs(blocks)
      ->group(kGroup);
  command.add_option("--jobs", arguments.jobs, "Replays at once (default: the number of cores)")
      ->check(CLI::Range(std::size_t{1}, kJobsMax))
      ->type_name("N")
      ->group(kGroup);
  command.add_option("--csv", arguments.csv, "Write a line for each policy and size to a file; - prints them instead")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_option("--plot", arguments.plot, "Draw the curves into a file")->type_name("FILE.svg")->group(kGroup);
}

void sweep_blocks(const replay::Workload& workload, const replay::WorkloadSource& source,
                  const SweepArguments& arguments, const replay::ReplayOptions& options, const std::string& json) {
  replay::SweepOptions sweep_options{.policies = arguments.policies, .jobs = jobs_of(arguments), .replay = options};
  for (const std::string& size : arguments.sizes) sweep_options.sizes.push_back(replay::PoolSize::parse(size));
  replay::SweepReport report;
  static_cast<replay::WorkloadSource&>(report) = source;
  report.replay = options;
  // Each replay is told of, when there is a meter to tell.
  std::unique_ptr<ProgressMeter> progress;
  sweep_options.replay.on_request_done = [&progress] { progress->add_one(); };
  replay::Sweep sweep(workload, std::move(sweep_options));
  progress = std::make_unique<ProgressMeter>(workload.size() * sweep.replays(), "replayed", "requests");
  report.result = sweep.run();
  progress.reset();
  write(report, arguments, json);
}

void sweep_snapshot_slots(const replay::Workload& workload, const replay::WorkloadSource& source,
                          const SweepArguments& arguments, const VerifiedSweepSettings& settings,
                          const std::string& json) {
  replay::SnapshotSweepReport report;
  static_cast<replay::WorkloadSource&>(report) = source;
  report.verified = settings.verified;
  replay::SnapshotSweepOptions options{.slots = arguments.slots,
                                       .shares = {},
                                       .policies = arguments.snapshot_policies,
                                       .pool_blocks = 0,
                                       .jobs = jobs_of(arguments),
                                       .verified = settings.verified};
  for (const std::string& share : arguments.shares) options.shares.push_back(share_of(share));
  const replay::PoolSize pool = replay::PoolSize::parse(settings.blocks);
  const std::size_t distinct = pool.is_share() ? replay::count_distinct_blocks(workload, settings.verified.replay) : 0;
  options.pool_blocks = pool.blocks(settings.verified.replay.block_size, distinct);
  {
    const std::size_t given = arguments.slots.size() + arguments.shares.size();
    const std::size_t replays = (given > 0 ? given : replay::SweepOptions::kDefaultSizes) * options.policies.size();
    ProgressMeter progress(workload.size() * (replays + 1), "replayed", "requests");
    options.verified.replay.on_request_done = [&progress] { progress.add_one(); };
    report.result = replay::sweep_snapshots(workload, options);
  }
  write(report, arguments, json);
}

void sweep_tier_sizes(const replay::Workload& workload, const replay::WorkloadSource& source,
                      const SweepArguments& arguments, const VerifiedSweepSettings& settings,
                      const std::string& json) {
  replay::TierSweepReport report;
  static_cast<replay::WorkloadSource&>(report) = source;
  report.verified = settings.verified;
  replay::TierSweepOptions options{.jobs = jobs_of(arguments), .verified = settings.verified};
  for (const std::string& size : arguments.tier_sizes) options.sizes.push_back(replay::PoolSize::parse(size));
  options.distinct_blocks = replay::count_distinct_blocks(workload, settings.verified.replay);
  options.pool_blocks =
      replay::PoolSize::parse(settings.blocks).blocks(settings.verified.replay.block_size, options.distinct_blocks);
  {
    const std::size_t sizes =
        options.sizes.empty() ? replay::TierSweepOptions::kDefaultMultiples.size() : options.sizes.size();
    ProgressMeter progress(workload.size() * (sizes + 1), "replayed", "requests");
    options.verified.replay.on_request_done = [&progress] { progress.add_one(); };
    report.result = replay::sweep_tiers(workload, options);
  }
  write(report, arguments, json);
}

}  // namespace cairn::tool
