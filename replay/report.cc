#include "replay/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace cairn::replay {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

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
  return fmt::format("settings  block size {} tokens, pool {}, {}\n", options.replay.block_size, pool, overlap);
}

std::string notes(const Report& report) {
  std::string text;
  if (report.trace && report.trace->bad_lines > 0) {
    text += fmt::format("\n{} malformed lines skipped, the first of them:\n", grouped(report.trace->bad_lines));
    for (const std::string& reason : report.trace->bad_line_reasons) text += fmt::format("  {}\n", reason);
  }
  for (const RunResult& run : report.comparison.runs) {
    if (run.rejected == 0) continue;
    text += fmt::format("\n{} requests can never fit into the pool of {} blocks, the first of them:\n",
                        grouped(run.rejected), grouped(run.pool_blocks.value_or(0)));
    for (const RejectedRequest& request : run.first_rejected) {
      text += fmt::format("  line {}: needs {} blocks\n", request.line, grouped(request.blocks_needed));
    }
    break;  // every run with the pool rejects the same ones
  }
  return text;
}

struct Row {
  std::string_view label;
  std::string (*value)(const RunResult& run);
};

constexpr Row kRows[] = {
    {"requests", [](const RunResult& run) { return grouped(run.requests); }},
    {"  rejected (never fit)", [](const RunResult& run) { return grouped(run.rejected); }},
    {"  waited for blocks", [](const RunResult& run) { return grouped(run.waited); }},
    {"prompt tokens", [](const RunResult& run) { return grouped(run.prompt_tokens); }},
    {"matched tokens", [](const RunResult& run) { return grouped(run.matched_tokens); }},
    {"reused tokens", [](const RunResult& run) { return grouped(run.reused_tokens); }},
    {"token hit rate", [](const RunResult& run) { return percent(run.token_hit_rate()); }},
    {"block hit rate", [](const RunResult& run) { return percent(run.block_hit_rate()); }},
    {"evicted blocks", [](const RunResult& run) { return grouped(run.evicted_blocks); }},
    {"peak blocks", [](const RunResult& run) { return grouped(run.peak_blocks); }},
    {"peak running sequences", [](const RunResult& run) { return grouped(run.peak_running); }},
    {"cache time per request, p50",
     [](const RunResult& run) { return fmt::format("{:.1f} us", run.cache_time_p50_us); }},
    {"cache time per request, p99",
     [](const RunResult& run) { return fmt::format("{:.1f} us", run.cache_time_p99_us); }},
};

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
  return settings;
}

Json json_run(const RunResult& run) {
  Json rejected = Json::array();
  for (const RejectedRequest& request : run.first_rejected) {
    rejected.push_back({{"line", request.line}, {"blocks_needed", request.blocks_needed}});
  }
  return Json{{"name", run.name},
              {"requests", run.requests},
              {"rejected", run.rejected},
              {"first_rejected", rejected},
              {"waited", run.waited},
              {"prompt_tokens", run.prompt_tokens},
              {"matched_tokens", run.matched_tokens},
              {"reused_tokens", run.reused_tokens},
              {"token_hit_rate", run.token_hit_rate()},
              {"prompt_blocks", run.prompt_blocks},
              {"matched_blocks", run.matched_blocks},
              {"block_hit_rate", run.block_hit_rate()},
              {"output_tokens", run.output_tokens},
              {"created_blocks", run.created_blocks},
              {"evicted_blocks", run.evicted_blocks},
              {"pool_blocks", run.pool_blocks ? Json(*run.pool_blocks) : Json()},
              {"peak_blocks", run.peak_blocks},
              {"peak_running", run.peak_running},
              {"cache_time_p50_us", run.cache_time_p50_us},
              {"cache_time_p99_us", run.cache_time_p99_us},
              {"cache_time_total_s", run.cache_time_total_s},
              {"wall_time_s", run.wall_time_s}};
}

}  // namespace

std::string table(const Report& report) {
  std::string text = workload_line(report) + settings_line(report) + "\n";
  const std::vector<RunResult>& runs = report.comparison.runs;
  std::size_t label_width = 0;
  std::vector<std::size_t> widths;
  widths.reserve(runs.size());
  for (const RunResult& run : runs) widths.push_back(run.name.size());
  for (const Row& row : kRows) {
    label_width = std::max(label_width, row.label.size());
    for (std::size_t i = 0; i < runs.size(); ++i) widths[i] = std::max(widths[i], row.value(runs[i]).size());
  }
  text += fmt::format("{:<{}}", "", label_width);
  for (std::size_t i = 0; i < runs.size(); ++i) text += fmt::format("  {:>{}}", runs[i].name, widths[i]);
  text += '\n';
  for (const Row& row : kRows) {
    text += fmt::format("{:<{}}", row.label, label_width);
    for (std::size_t i = 0; i < runs.size(); ++i) text += fmt::format("  {:>{}}", row.value(runs[i]), widths[i]);
    text += '\n';
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
  if (report.trace) {
    document["bad_lines"] = report.trace->bad_lines;
    document["bad_line_reasons"] = report.trace->bad_line_reasons;
  }
  document["runs"] = Json::array();
  for (const RunResult& run : report.comparison.runs) document["runs"].push_back(json_run(run));
  // File names need not be UTF-8.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cairn::replay
