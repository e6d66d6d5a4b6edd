#include "replay/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "replay/report_parts.h"

namespace cairn::replay {
namespace {

constexpr const char* kVerifiedName = "verify";

// What only a run of a cache has.
std::string if_run(const RunResult& run, std::string value) {
  return run.ideal ? "-" : std::move(value);
}

std::string tiers_line(const Report::VerifiedRun& run) {
  if (!run.options.tiers) return {};
  const TierOptions& tiers = *run.options.tiers;
  std::string line = "tiers     ";
  if (tiers.ram_bytes > 0) line += fmt::format("{} bytes of RAM, ", grouped(tiers.ram_bytes));
  if (!tiers.directory.empty()) {
    line +=
        fmt::format("{} bytes in {} ({}), ", grouped(tiers.file_bytes), tiers.directory, run.result.tiers->store.io);
  }
  line += fmt::format("fetches of {} tokens and more", grouped(tiers.spill.fetch_tokens_min));
  if (tiers.spill.prefill_tokens_per_s > 0) {
    line += fmt::format(" that beat a prefill of {:.0f} tokens/s", tiers.spill.prefill_tokens_per_s);
  }
  return line + "\n";
}

std::string settings_line(const Report& report) {
  const ComparisonOptions& options = report.options;
  std::string pool = fmt::format("{} blocks", grouped(report.comparison.pool_blocks));
  if (options.pool.is_share()) {
    pool += fmt::format(" ({} of {} distinct)", options.pool.text(), grouped(report.comparison.distinct_blocks));
  }
  std::string line = fmt::format("settings  block size {} tokens, pool {}, {}\n", options.replay.block_size, pool,
                                 overlap_text(options.replay));
  if (!report.verified) return line;
  line += fmt::format("engine    verifying, prefill in chunks of {} tokens",
                      report.verified->options.prefill_chunk_tokens);
  const std::optional<SnapshotOptions>& snapshots = report.verified->options.snapshots;
  if (!snapshots) return line + ", attention layers only\n" + tiers_line(*report.verified);
  line += fmt::format(", {} snapshots of {} bytes, ", grouped(snapshots->slots), grouped(snapshots->slot_bytes));
  line += snapshots->checkpoint_every_tokens == 0
              ? "no checkpoints\n"
              : fmt::format("a checkpoint every {} tokens\n", snapshots->checkpoint_every_tokens);
  if (snapshots->policy != "lru") line += fmt::format("          evicted by the policy {}\n", policy_name(*snapshots));
  return line + tiers_line(*report.verified);
}

std::string rejected_note(std::uint64_t rejected, const std::vector<RejectedRequest>& first, std::size_t pool_blocks) {
  std::string text = fmt::format("\n{} requests can never fit into the pool of {} blocks, the first of them:\n",
                                 grouped(rejected), grouped(pool_blocks));
  for (const RejectedRequest& request : first) {
    text += fmt::format("  line {}: needs {} blocks\n", request.line, grouped(request.blocks_needed));
  }
  return text;
}

std::string notes(const Report& report) {
  std::string text = bad_lines_note(report);
  if (report.verified && report.verified->result.rejected > 0) {
    const VerifiedResult& run = report.verified->result;
    text += rejected_note(run.rejected, run.first_rejected, run.pool_blocks);
  }
  if (report.verified && report.verified->result.tiers && report.verified->result.tiers->store.degraded) {
    text += fmt::format("\nThe file tier is degraded: {}\n", report.verified->result.tiers->store.degraded_reason);
  }
  for (const RunResult& run : report.comparison.runs) {
    if (run.rejected == 0) continue;
    text += rejected_note(run.rejected, run.first_rejected, run.pool_blocks.value_or(0));
    break;  // every run with the pool rejects the same ones
  }
  return text;
}

template <typename Result>
struct Row {
  std::string_view label;
  std::string (*value)(const Result& run);
};

constexpr Row<RunResult> kRows[] = {
    {"requests", [](const RunResult& run) { return grouped(run.requests); }},
    {"  rejected (never fit)", [](const RunResult& run) { return grouped(run.rejected); }},
    {"  waited for blocks", [](const RunResult& run) { return grouped(run.waited); }},
    {"prompt tokens", [](const RunResult& run) { return grouped(run.prompt_tokens); }},
    {"matched tokens", [](const RunResult& run) { return grouped(run.matched_tokens); }},
    {"reused tokens", [](const RunResult& run) { return grouped(run.reused_tokens); }},
    {"token hit rate", [](const RunResult& run) { return percent(run.token_hit_rate()); }},
    {"block hit rate", [](const RunResult& run) { return percent(run.block_hit_rate()); }},
    {"evicted blocks", [](const RunResult& run) { return if_run(run, grouped(run.evicted_blocks)); }},
    {"peak blocks", [](const RunResult& run) { return if_run(run, grouped(run.peak_blocks)); }},
    {"peak running sequences", [](const RunResult& run) { return grouped(run.peak_running); }},
    {"cache time per request, p50",
     [](const RunResult& run) { return if_run(run, fmt::format("{:.1f} us", run.cache_time_p50_us)); }},
    {"cache time per request, p99",
     [](const RunResult& run) { return if_run(run, fmt::format("{:.1f} us", run.cache_time_p99_us)); }},
};

template <std::size_t kSize>
std::string estimated(const VerifiedResult& run) {
  return percent(run.size_estimates.sizes[kSize].hit_rate);
}

constexpr Row<VerifiedResult> kVerifiedRows[] = {
    {"requests", [](const VerifiedResult& run) { return grouped(run.requests); }},
    {"  rejected (never fit)", [](const VerifiedResult& run) { return grouped(run.rejected); }},
    {"  waited for blocks", [](const VerifiedResult& run) { return grouped(run.waited); }},
    {"prompt tokens", [](const VerifiedResult& run) { return grouped(run.prompt_tokens); }},
    {"matched tokens (KV)", [](const VerifiedResult& run) { return grouped(run.matched_tokens); }},
    {"  lost for lack of state", [](const VerifiedResult& run) { return grouped(run.stateless_tokens); }},
    {"reused tokens", [](const VerifiedResult& run) { return grouped(run.reused_tokens); }},
    {"match rate (KV)", [](const VerifiedResult& run) { return percent(run.match_rate()); }},
    {"reuse rate", [](const VerifiedResult& run) { return percent(run.reuse_rate()); }},
    {"match rate of full blocks, estimated", [](const VerifiedResult&) { return std::string(); }},
    {"  with half the pool", &estimated<0>},
    {"  with this pool", &estimated<1>},
    {"  with twice the pool", &estimated<2>},
    {"  with 4 times the pool", &estimated<3>},
    {"published blocks", [](const VerifiedResult& run) { return grouped(run.published_blocks); }},
    {"  computed twice", [](const VerifiedResult& run) { return grouped(run.deduplicated_blocks); }},
    {"evicted blocks", [](const VerifiedResult& run) { return grouped(run.evicted_blocks); }},
    {"peak blocks", [](const VerifiedResult& run) { return grouped(run.peak_blocks); }},
    {"peak running sequences", [](const VerifiedResult& run) { return grouped(run.peak_running); }},
    {"peak snapshots", [](const VerifiedResult& run) { return grouped(run.peak_snapshots); }},
    {"snapshots published", [](const VerifiedResult& run) { return grouped(run.captures_published); }},
    {"  declined (no slot)", [](const VerifiedResult& run) { return grouped(run.captures_declined); }},
    {"  evicted", [](const VerifiedResult& run) { return grouped(run.evicted_snapshots); }},
    {"steps", [](const VerifiedResult& run) { return grouped(run.engine.steps); }},
    {"blocks checked", [](const VerifiedResult& run) { return grouped(run.engine.blocks_checked); }},
    {"  bytes", [](const VerifiedResult& run) { return grouped(run.engine.block_bytes_checked); }},
    {"states checked", [](const VerifiedResult& run) { return grouped(run.engine.states_checked); }},
    {"  bytes", [](const VerifiedResult& run) { return grouped(run.engine.state_bytes_checked); }},
    {"wall time", [](const VerifiedResult& run) { return fmt::format("{:.2f} s", run.wall_time_s); }},
};

std::string text_of(const CaptureStats& kind) {
  return fmt::format("{} kept, {} bytes; {} used: {} tokens", grouped(kind.captures), grouped(kind.bytes),
                     grouped(kind.uses), grouped(kind.reused_tokens));
}

// Of hybrid models: which kind of capture pays.
constexpr Row<VerifiedResult> kCaptureRows[] = {
    {"FLOPs saved", [](const VerifiedResult& run) { return percent(run.flop_rate()); }},
    {"states at tails", [](const VerifiedResult& run) { return text_of(run.captures.tails); }},
    {"  at their siblings", [](const VerifiedResult& run) { return text_of(run.captures.siblings); }},
    {"  at shared tails", [](const VerifiedResult& run) { return text_of(run.captures.shared_tails); }},
    {"  at branch points", [](const VerifiedResult& run) { return text_of(run.captures.branch_points); }},
    {"  at checkpoints", [](const VerifiedResult& run) { return text_of(run.captures.checkpoints); }},
    {"  at the prompt's end", [](const VerifiedResult& run) { return text_of(run.captures.last_tokens); }},
    {"  from the store", [](const VerifiedResult& run) { return text_of(run.captures.from_store); }},
};

std::string in_seconds(double seconds) {
  return fmt::format("{:.2f} s", seconds);
}

// Of runs with tiers.
constexpr Row<VerifiedResult> kTierRows[] = {
    {"reused from memory", [](const VerifiedResult& run) { return grouped(run.tiers->reused_from_memory_tokens); }},
    {"  from the RAM tier", [](const VerifiedResult& run) { return grouped(run.tiers->reused_from_ram_tier_tokens); }},
    {"  from the file tier",
     [](const VerifiedResult& run) { return grouped(run.tiers->reused_from_file_tier_tokens); }},
    {"  computed", [](const VerifiedResult& run) { return grouped(run.computed_tokens); }},
    {"spilled blocks", [](const VerifiedResult& run) { return grouped(run.tiers->spilled_blocks); }},
    {"  snapshots", [](const VerifiedResult& run) { return grouped(run.tiers->spilled_snapshots); }},
    {"  bytes", [](const VerifiedResult& run) { return grouped(run.tiers->spilled_bytes); }},
    {"  declined", [](const VerifiedResult& run) { return grouped(run.tiers->declined_spills); }},
    {"requests that fetched", [](const VerifiedResult& run) { return grouped(run.tiers->fetches); }},
    {"  failed, in part or whole", [](const VerifiedResult& run) { return grouped(run.tiers->failed_fetches); }},
    {"  would not have paid", [](const VerifiedResult& run) { return grouped(run.tiers->unprofitable_fetches); }},
    {"fetched blocks", [](const VerifiedResult& run) { return grouped(run.tiers->fetched_blocks); }},
    {"  snapshots", [](const VerifiedResult& run) { return grouped(run.tiers->fetched_snapshots); }},
    {"  bytes", [](const VerifiedResult& run) { return grouped(run.tiers->fetched_bytes); }},
    {"  time", [](const VerifiedResult& run) { return in_seconds(run.tiers->fetch_time_s); }},
    {"  rate",
     [](const VerifiedResult& run) { return fmt::format("{:.1f} MB/s", run.tiers->fetch_bytes_per_s() / 1e6); }},
    {"waited for files to catch up", [](const VerifiedResult& run) { return in_seconds(run.tiers->catch_up_time_s); }},
    {"records evicted by the store",
     [](const VerifiedResult& run) { return grouped(run.tiers->store.evicted_records); }},
    {"  dropped", [](const VerifiedResult& run) { return grouped(run.tiers->store.puts_dropped); }},
    {"  damaged", [](const VerifiedResult& run) { return grouped(run.tiers->store.damaged_records); }},
    {"  I/O errors", [](const VerifiedResult& run) { return grouped(run.tiers->store.io_errors); }},
    {"  in RAM at the end", [](const VerifiedResult& run) { return grouped(run.tiers->store.ram_records); }},
    {"    bytes", [](const VerifiedResult& run) { return grouped(run.tiers->store.ram_bytes); }},
    {"  in files at the end", [](const VerifiedResult& run) { return grouped(run.tiers->store.file_records); }},
    {"    bytes", [](const VerifiedResult& run) { return grouped(run.tiers->store.file_bytes); }},
    {"bytes written to files", [](const VerifiedResult& run) { return grouped(run.tiers->store.written_bytes); }},
    {"  read", [](const VerifiedResult& run) { return grouped(run.tiers->store.read_bytes); }},
    {"found at the start, blocks", [](const VerifiedResult& run) { return grouped(run.tiers->recovered_blocks); }},
    {"  snapshots", [](const VerifiedResult& run) { return grouped(run.tiers->recovered_snapshots); }},
    {"  useless", [](const VerifiedResult& run) { return grouped(run.tiers->useless_records); }},
    {"  in", [](const VerifiedResult& run) { return in_seconds(run.tiers->open_time_s); }},
    {"saved at the end, blocks",
     [](const VerifiedResult& run) { return run.tiers->save ? grouped(run.tiers->save->blocks) : "-"; }},
    {"  snapshots",
     [](const VerifiedResult& run) { return run.tiers->save ? grouped(run.tiers->save->snapshots) : "-"; }},
    {"  lost",
     [](const VerifiedResult& run) {
       return run.tiers->save ? grouped(run.tiers->save->blocks_lost + run.tiers->save->snapshots_lost) : "-";
     }},
    {"  flushed",
     [](const VerifiedResult& run) {
       return std::string(!run.tiers->save ? "-" : run.tiers->save->flushed ? "yes" : "no");
     }},
    {"  in", [](const VerifiedResult& run) { return in_seconds(run.tiers->save_time_s); }},
    {"files",
     [](const VerifiedResult& run) { return std::string(run.tiers->store.degraded ? "degraded" : "healthy"); }},
};

std::vector<Row<VerifiedResult>> verified_rows(const VerifiedResult& run, bool hybrid) {
  std::vector<Row<VerifiedResult>> rows(std::begin(kVerifiedRows), std::end(kVerifiedRows));
  if (hybrid) rows.insert(rows.end(), std::begin(kCaptureRows), std::end(kCaptureRows));
  if (run.tiers) rows.insert(rows.end(), std::begin(kTierRows), std::end(kTierRows));
  return rows;
}

// One column for each of `runs`.
template <typename Result>
std::string columns(std::span<const Row<Result>> rows, const std::vector<std::string>& names,
                    std::span<const Result> runs) {
  std::size_t label_width = 0;
  std::vector<std::size_t> widths;
  widths.reserve(runs.size());
  for (const std::string& name : names) widths.push_back(name.size());
  for (const Row<Result>& row : rows) {
    label_width = std::max(label_width, row.label.size());
    for (std::size_t i = 0; i < runs.size(); ++i) widths[i] = std::max(widths[i], row.value(runs[i]).size());
  }
  std::string text = fmt::format("{:<{}}", "", label_width);
  for (std::size_t i = 0; i < runs.size(); ++i) text += fmt::format("  {:>{}}", names[i], widths[i]);
  text += '\n';
  for (const Row<Result>& row : rows) {
    text += fmt::format("{:<{}}", row.label, label_width);
    for (std::size_t i = 0; i < runs.size(); ++i) text += fmt::format("  {:>{}}", row.value(runs[i]), widths[i]);
    text += '\n';
  }
  return text;
}

Json json_tiers(const TierOptions& tiers) {
  const bool in_files = !tiers.directory.empty();
  Json settings{{"ram_tier_bytes", tiers.ram_bytes},
                {"spill_dir", in_files ? Json(tiers.directory) : Json()},
                {"spill_bytes", in_files ? Json(tiers.file_bytes) : Json()}};
  settings.update(json_spill(tiers.spill));
  return settings;
}

Json json_settings(const Report& report) {
  Json settings = json_source(report);
  settings["block_size"] = report.options.replay.block_size;
  settings["blocks"] = report.options.pool.text();
  settings["policy"] = report.options.policy;
  add_overlap(report.options.replay, settings);
  settings["engine"] = report.verified ? "verify" : "index";
  if (!report.verified) return settings;
  settings["skip"] = report.verified->options.skip;
  add_verified(report.verified->options, settings);
  settings["tiers"] = report.verified->options.tiers ? json_tiers(*report.verified->options.tiers) : Json();
  return settings;
}

Json json_tier_run(const TierResult& tiers) {
  Json run{{"reused_from_memory_tokens", tiers.reused_from_memory_tokens},
           {"reused_from_ram_tier_tokens", tiers.reused_from_ram_tier_tokens},
           {"reused_from_file_tier_tokens", tiers.reused_from_file_tier_tokens},
           {"spilled_blocks", tiers.spilled_blocks},
           {"spilled_snapshots", tiers.spilled_snapshots},
           {"spilled_bytes", tiers.spilled_bytes},
           {"declined_spills", tiers.declined_spills},
           {"fetches", tiers.fetches},
           {"failed_fetches", tiers.failed_fetches},
           {"failed_leases", tiers.failed_leases},
           {"unprofitable_fetches", tiers.unprofitable_fetches},
           {"fetched_blocks", tiers.fetched_blocks},
           {"fetched_snapshots", tiers.fetched_snapshots},
           {"fetched_bytes", tiers.fetched_bytes},
           {"fetch_time_s", tiers.fetch_time_s},
           {"catch_up_time_s", tiers.catch_up_time_s},
           {"recovered_blocks", tiers.recovered_blocks},
           {"recovered_snapshots", tiers.recovered_snapshots},
           {"useless_records", tiers.useless_records},
           {"open_time_s", tiers.open_time_s},
           {"save_time_s", tiers.save_time_s}};
  run["save"] = tiers.save ? Json{{"blocks", tiers.save->blocks},
                                  {"snapshots", tiers.save->snapshots},
                                  {"blocks_lost", tiers.save->blocks_lost},
                                  {"snapshots_lost", tiers.save->snapshots_lost},
                                  {"flushed", tiers.save->flushed}}
                           : Json();
  const SpillStats& store = tiers.store;
  run["store"] = Json{{"puts", store.puts},
                      {"puts_dropped", store.puts_dropped},
                      {"gets", store.gets},
                      {"found_in_ram", store.found_in_ram},
                      {"found_in_file", store.found_in_file},
                      {"shared_reads", store.shared_reads},
                      {"misses", store.misses},
                      {"failed_gets", store.failed_gets},
                      {"evicted_records", store.evicted_records},
                      {"erased_records", store.erased_records},
                      {"damaged_records", store.damaged_records},
                      {"io_errors", store.io_errors},
                      {"written_bytes", store.written_bytes},
                      {"read_bytes", store.read_bytes},
                      {"recovered_records", store.recovered_records},
                      {"ram_records", store.ram_records},
                      {"ram_bytes", store.ram_bytes},
                      {"file_records", store.file_records},
                      {"file_bytes", store.file_bytes},
                      {"degraded", store.degraded},
                      {"degraded_reason", store.degraded_reason},
                      {"io", store.io}};
  return run;
}

Json json_captures(const CapturesByKind& captures) {
  const auto of = [](const CaptureStats& kind) {
    return Json{{"captures", kind.captures},
                {"bytes", kind.bytes},
                {"uses", kind.uses},
                {"reused_tokens", kind.reused_tokens}};
  };
  return Json{{"tails", of(captures.tails)},
              {"siblings", of(captures.siblings)},
              {"shared_tails", of(captures.shared_tails)},
              {"branch_points", of(captures.branch_points)},
              {"checkpoints", of(captures.checkpoints)},
              {"last_tokens", of(captures.last_tokens)},
              {"from_store", of(captures.from_store)}};
}

Json json_estimates(const SizeEstimates& estimates) {
  Json sizes = Json::array();
  for (const SizeEstimate& size : estimates.sizes) {
    sizes.push_back({{"factor", size.factor}, {"blocks", size.blocks}, {"hit_rate", size.hit_rate}});
  }
  return {{"sizes", std::move(sizes)}, {"sampled_blocks", estimates.sampled_blocks}};
}

Json json_run(const VerifiedResult& run) {
  return Json{{"name", kVerifiedName},
              {"requests", run.requests},
              {"rejected", run.rejected},
              {"first_rejected", json_rejected(run.first_rejected)},
              {"waited", run.waited},
              {"prompt_tokens", run.prompt_tokens},
              {"matched_tokens", run.matched_tokens},
              {"stateless_tokens", run.stateless_tokens},
              {"reused_tokens", run.reused_tokens},
              {"computed_tokens", run.computed_tokens},
              {"match_rate", run.match_rate()},
              {"reuse_rate", run.reuse_rate()},
              {"size_estimates", json_estimates(run.size_estimates)},
              {"output_tokens", run.output_tokens},
              {"published_blocks", run.published_blocks},
              {"deduplicated_blocks", run.deduplicated_blocks},
              {"evicted_blocks", run.evicted_blocks},
              {"pool_blocks", run.pool_blocks},
              {"peak_blocks", run.peak_blocks},
              {"peak_running", run.peak_running},
              {"peak_snapshots", run.peak_snapshots},
              {"captures_published", run.captures_published},
              {"captures_declined", run.captures_declined},
              {"captures_abandoned", run.captures_abandoned},
              {"evicted_snapshots", run.evicted_snapshots},
              {"captures", json_captures(run.captures)},
              {"steps", run.engine.steps},
              {"blocks_checked", run.engine.blocks_checked},
              {"block_bytes_checked", run.engine.block_bytes_checked},
              {"states_checked", run.engine.states_checked},
              {"state_bytes_checked", run.engine.state_bytes_checked},
              {"block_bytes_written", run.engine.block_bytes_written},
              {"states_written", run.engine.states_written},
              {"saved_flops", run.saved_flops},
              {"prompt_flops", run.prompt_flops},
              {"flop_rate", run.flop_rate()},
              {"wall_time_s", run.wall_time_s},
              {"tiers", run.tiers ? json_tier_run(*run.tiers) : Json()}};
}

}  // namespace

std::string table(const Report& report) {
  std::string text = workload_line(report) + settings_line(report) + "\n";
  if (report.verified) {
    const VerifiedResult& run = report.verified->result;
    text += columns<VerifiedResult>(verified_rows(run, report.verified->options.snapshots.has_value()),
                                    {kVerifiedName}, {&run, 1});
  } else {
    std::vector<std::string> names;
    names.reserve(report.comparison.runs.size());
    for (const RunResult& run : report.comparison.runs) names.push_back(run.name);
    text += columns<RunResult>(kRows, names, report.comparison.runs);
  }
  return text + notes(report);
}

std::string json(const Report& report) {
  Json document;
  document["schema_version"] = kSchemaVersion;
  document["settings"] = json_settings(report);
  document["workload"] = {{"requests", report.requests},
                          {"prompt_tokens", report.prompt_tokens},
                          {"output_tokens", report.output_tokens},
                          {"distinct_blocks", report.comparison.distinct_blocks}};
  if (report.verified && !report.options.pool.is_share()) document["workload"]["distinct_blocks"] = Json();
  add_bad_lines(report, document);
  document["runs"] = Json::array();
  if (report.verified) document["runs"].push_back(json_run(report.verified->result));
  for (const RunResult& run : report.comparison.runs) document["runs"].push_back(json_run(run));
  return dumped(document);
}

}  // namespace cairn::replay
