#include "replay/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace cairn::replay {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr const char* kVerifiedName = "verify";

// 1234567 as "1,234,567".
std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t from_end = 3; from_end < digits.size(); from_end += 4) {
    digits.insert(digits.size() - from_end, 1, ',');
  }
  return digits;
}

std::string percent(double share) {
  return fmt::format("{:.2f} %", share * 100);
}

// What only a run of a cache has.
std::string if_run(const RunResult& run, std::string value) {
  return run.ideal ? "-" : std::move(value);
}
template <typename Value>
Json if_run(const RunResult& run, Value value) {
  return run.ideal ? Json() : Json(value);
}

std::string_view name_of(TraceFormat format) {
  return format == TraceFormat::kTokens ? "tokens" : "blocks";
}
std::string_view name_of(BlockIdKind kind) {
  return kind == BlockIdKind::kChained ? "chained" : "plain";
}

std::string workload_line(const Report& report) {
  const std::string size = fmt::format("{} requests, {} prompt tokens, {} output tokens", grouped(report.requests),
                                       grouped(report.prompt_tokens), grouped(report.output_tokens));
  if (report.builtin) return fmt::format("workload  built-in, seed {}: {}\n", report.builtin->seed, size);
  const Report::TraceSource& trace = *report.trace;
  std::string kind = "tokens";
  if (trace.format == TraceFormat::kBlockIds) {
    kind = fmt::format("{} block ids of {} tokens", name_of(trace.options.ids), trace.options.trace_block_tokens);
  }
  return fmt::format("workload  {} ({}): {}\n", trace.name, kind, size);
}

std::string settings_line(const Report& report) {
  const ComparisonOptions& options = report.options;
  std::string pool = fmt::format("{} blocks", grouped(report.comparison.pool_blocks));
  if (options.pool.is_share()) {
    pool += fmt::format(" ({} of {} distinct)", options.pool.text(), grouped(report.comparison.distinct_blocks));
  }
  const std::string overlap = options.replay.service_rate
                                  ? fmt::format("{} output tokens/s per sequence", *options.replay.service_rate)
                                  : fmt::format("concurrency {}", options.replay.concurrency);
  std::string line =
      fmt::format("settings  block size {} tokens, pool {}, {}\n", options.replay.block_size, pool, overlap);
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
  std::string text;
  if (report.trace && report.trace->bad_lines > 0) {
    text += fmt::format("\n{} malformed lines skipped, the first of them:\n", grouped(report.trace->bad_lines));
    for (const std::string& reason : report.trace->bad_line_reasons) text += fmt::format("  {}\n", reason);
  }
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
  Json settings;
  if (report.builtin) {
    settings["workload"] = "built-in";
    settings["seed"] = report.builtin->seed;
  } else {
    const Report::TraceSource& trace = *report.trace;
    settings["workload"] = "trace";
    settings["trace"] = trace.name;
    settings["format"] = name_of(trace.format);
    if (trace.format == TraceFormat::kBlockIds) {
      settings["trace_block_size"] = trace.options.trace_block_tokens;
      settings["ids"] = name_of(trace.options.ids);
    }
    settings["skip_bad_lines"] = trace.options.skip_bad_lines;
  }
  settings["requests"] = report.requests;
  settings["block_size"] = report.options.replay.block_size;
  settings["blocks"] = report.options.pool.text();
  const bool by_rate = report.options.replay.service_rate.has_value();
  settings["concurrency"] = by_rate ? Json() : Json(report.options.replay.concurrency);
  settings["service_rate"] = by_rate ? Json(*report.options.replay.service_rate) : Json();
  settings["engine"] = report.verified ? "verify" : "index";
  if (!report.verified) return settings;
  settings["prefill_chunk"] = report.verified->options.prefill_chunk_tokens;
  const std::optional<SnapshotOptions>& snapshots = report.verified->options.snapshots;
  settings["snapshots"] = snapshots ? Json(snapshots->slots) : Json();
  settings["snapshot_bytes"] = snapshots ? Json(snapshots->slot_bytes) : Json();
  settings["checkpoint_every"] = snapshots ? Json(snapshots->checkpoint_every_tokens) : Json();
  return settings;
}

Json json_rejected(const std::vector<RejectedRequest>& first) {
  Json rejected = Json::array();
  for (const RejectedRequest& request : first) {
    rejected.push_back({{"line", request.line}, {"blocks_needed", request.blocks_needed}});
  }
  return rejected;
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

Json json_run(const RunResult& run) {
  return Json{{"name", run.name},
              {"requests", run.requests},
              {"rejected", run.rejected},
              {"first_rejected", json_rejected(run.first_rejected)},
              {"waited", run.waited},
              {"prompt_tokens", run.prompt_tokens},
              {"matched_tokens", run.matched_tokens},
              {"reused_tokens", run.reused_tokens},
              {"token_hit_rate", run.token_hit_rate()},
              {"prompt_blocks", run.prompt_blocks},
              {"matched_blocks", run.matched_blocks},
              {"block_hit_rate", run.block_hit_rate()},
              {"output_tokens", run.output_tokens},
              {"created_blocks", if_run(run, run.created_blocks)},
              {"evicted_blocks", if_run(run, run.evicted_blocks)},
              {"pool_blocks", run.pool_blocks ? Json(*run.pool_blocks) : Json()},
              {"peak_blocks", if_run(run, run.peak_blocks)},
              {"peak_running", run.peak_running},
              {"cache_time_p50_us", if_run(run, run.cache_time_p50_us)},
              {"cache_time_p99_us", if_run(run, run.cache_time_p99_us)},
              {"cache_time_total_s", if_run(run, run.cache_time_total_s)},
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
  if (report.trace) {
    document["bad_lines"] = report.trace->bad_lines;
    document["bad_line_reasons"] = report.trace->bad_line_reasons;
  }
  document["runs"] = Json::array();
  if (report.verified) document["runs"].push_back(json_run(report.verified->result));
  for (const RunResult& run : report.comparison.runs) document["runs"].push_back(json_run(run));
  // File names need not be UTF-8.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cairn::replay
