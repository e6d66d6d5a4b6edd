#include "replay/report.h"

#include <fmt/format.h>

#include <algorithm>
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
  if (!snapshots) return line + ", attention layers only\n";
  line += fmt::format(", {} snapshots of {} bytes, ", grouped(snapshots->slots), grouped(snapshots->slot_bytes));
  return line + (snapshots->checkpoint_every_tokens == 0
                     ? "no checkpoints\n"
                     : fmt::format("a checkpoint every {} tokens\n", snapshots->checkpoint_every_tokens));
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
    {"published blocks", [](const VerifiedResult& run) { return grouped(run.published_blocks); }},
    {"  computed twice", [](const VerifiedResult& run) { return grouped(run.deduplicated_blocks); }},
    {"evicted blocks", [](const VerifiedResult& run) { return grouped(run.evicted_blocks); }},
    {"peak blocks", [](const VerifiedResult& run) { return grouped(run.peak_blocks); }},
    {"peak running sequences", [](const VerifiedResult& run) { return grouped(run.peak_running); }},
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

Json json_settings(const Report& report) {
  Json settings = json_source(report);
  settings["block_size"] = report.options.replay.block_size;
  settings["blocks"] = report.options.pool.text();
  add_overlap(report.options.replay, settings);
  settings["engine"] = report.verified ? "verify" : "index";
  if (!report.verified) return settings;
  settings["prefill_chunk"] = report.verified->options.prefill_chunk_tokens;
  const std::optional<SnapshotOptions>& snapshots = report.verified->options.snapshots;
  settings["snapshots"] = snapshots ? Json(snapshots->slots) : Json();
  settings["snapshot_bytes"] = snapshots ? Json(snapshots->slot_bytes) : Json();
  settings["checkpoint_every"] = snapshots ? Json(snapshots->checkpoint_every_tokens) : Json();
  return settings;
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
              {"output_tokens", run.output_tokens},
              {"published_blocks", run.published_blocks},
              {"deduplicated_blocks", run.deduplicated_blocks},
              {"evicted_blocks", run.evicted_blocks},
              {"pool_blocks", run.pool_blocks},
              {"peak_blocks", run.peak_blocks},
              {"peak_running", run.peak_running},
              {"captures_published", run.captures_published},
              {"captures_declined", run.captures_declined},
              {"captures_abandoned", run.captures_abandoned},
              {"evicted_snapshots", run.evicted_snapshots},
              {"steps", run.engine.steps},
              {"blocks_checked", run.engine.blocks_checked},
              {"block_bytes_checked", run.engine.block_bytes_checked},
              {"states_checked", run.engine.states_checked},
              {"state_bytes_checked", run.engine.state_bytes_checked},
              {"block_bytes_written", run.engine.block_bytes_written},
              {"states_written", run.engine.states_written},
              {"wall_time_s", run.wall_time_s}};
}

}  // namespace

std::string table(const Report& report) {
  std::string text = workload_line(report) + settings_line(report) + "\n";
  if (report.verified) {
    text += columns<VerifiedResult>(kVerifiedRows, {kVerifiedName}, {&report.verified->result, 1});
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
