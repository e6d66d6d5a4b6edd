#include "replay/report_parts.h"

#include <cairn/model_shape.h>
#include <fmt/format.h>

#include <string_view>

namespace cairn::replay {
namespace {

std::string_view name_of(TraceFormat format) {
  return format == TraceFormat::kTokens ? "tokens" : "blocks";
}
std::string_view name_of(BlockIdKind kind) {
  return kind == BlockIdKind::kChained ? "chained" : "plain";
}

Json json_captures(const SnapshotOptions& snapshots) {
  Json kinds = Json::array();
  if (snapshots.tails) kinds.push_back("tails");
  if (snapshots.siblings) kinds.push_back("siblings");
  if (snapshots.branch_points) kinds.push_back("branch-points");
  if (snapshots.last_token) kinds.push_back("last-token");
  return kinds;
}

// Null: none of the presets.
Json json_model(const ModelShape& model) {
  for (const ModelPreset& preset : model_presets()) {
    if (preset.shape == model) return preset.name;
  }
  return {};
}

// What only a run of a cache has.
template <typename Value>
Json if_run(const RunResult& run, Value value) {
  return run.ideal ? Json() : Json(value);
}

}  // namespace

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

std::string workload_line(const WorkloadSource& source) {
  const std::string size = fmt::format("{} requests, {} prompt tokens, {} output tokens", grouped(source.requests),
                                       grouped(source.prompt_tokens), grouped(source.output_tokens));
  if (source.builtin) return fmt::format("workload  built-in, seed {}: {}\n", source.builtin->seed, size);
  const WorkloadSource::TraceSource& trace = *source.trace;
  std::string kind = "tokens";
  if (trace.format == TraceFormat::kBlockIds) {
    kind = fmt::format("{} block ids of {} tokens", name_of(trace.options.ids), trace.options.trace_block_tokens);
  }
  return fmt::format("workload  {} ({}): {}\n", trace.name, kind, size);
}

std::string overlap_text(const ReplayOptions& options) {
  return options.service_rate ? fmt::format("{} output tokens/s per sequence", *options.service_rate)
                              : fmt::format("concurrency {}", options.concurrency);
}

std::string bad_lines_note(const WorkloadSource& source) {
  if (!source.trace || source.trace->bad_lines == 0) return "";
  std::string text =
      fmt::format("\n{} malformed lines skipped, the first of them:\n", grouped(source.trace->bad_lines));
  for (const std::string& reason : source.trace->bad_line_reasons) text += fmt::format("  {}\n", reason);
  return text;
}

Json json_source(const WorkloadSource& source) {
  Json settings;
  if (source.builtin) {
    settings["workload"] = "built-in";
    settings["seed"] = source.builtin->seed;
  } else {
    const WorkloadSource::TraceSource& trace = *source.trace;
    settings["workload"] = "trace";
    settings["trace"] = trace.name;
    settings["format"] = name_of(trace.format);
    if (trace.format == TraceFormat::kBlockIds) {
      settings["trace_block_size"] = trace.options.trace_block_tokens;
      settings["ids"] = name_of(trace.options.ids);
    }
    settings["skip_bad_lines"] = trace.options.skip_bad_lines;
  }
  settings["requests"] = source.requests;
  return settings;
}

void add_overlap(const ReplayOptions& options, Json& settings) {
  const bool by_rate = options.service_rate.has_value();
  settings["concurrency"] = by_rate ? Json() : Json(options.concurrency);
  settings["service_rate"] = by_rate ? Json(*options.service_rate) : Json();
}

void add_bad_lines(const WorkloadSource& source, Json& document) {
  if (!source.trace) return;
  document["bad_lines"] = source.trace->bad_lines;
  document["bad_line_reasons"] = source.trace->bad_line_reasons;
}

std::string policy_name(const SnapshotOptions& snapshots) {
  const bool tuned = snapshots.policy == "flop" && !snapshots.policy_options.flop_alpha;
  return tuned ? "flop-auto" : snapshots.policy;
}

Json json_snapshots(const std::optional<SnapshotOptions>& snapshots) {
  const SnapshotOptions options = snapshots.value_or(SnapshotOptions());
  const SnapshotPolicyOptions& policy = options.policy_options;
  Json settings{{"snapshot_policy", policy_name(options)},
                {"snapshots", options.slots},
                {"snapshot_bytes", options.slot_bytes},
                {"checkpoint_every", options.checkpoint_every_tokens},
                {"captures", json_captures(options)},
                {"model", json_model(policy.model)},
                {"flop_alpha", policy.flop_alpha ? Json(*policy.flop_alpha) : Json()},
                {"session_leases", policy.session_leases_max},
                {"session_lease_evictions", policy.session_lease_evictions}};
  if (snapshots) return settings;
  for (auto& setting : settings) setting = Json();
  return settings;
}

Json json_spill(const SpillOptions& spill) {
  return Json{{"spill_min_tokens", spill.block_tokens_min},   {"spill_min_uses", spill.block_uses_min},
              {"write_through", spill.write_through},         {"fetch_min_tokens", spill.fetch_tokens_min},
              {"fetch_bytes_per_s", spill.fetch_bytes_per_s}, {"prefill_tokens_per_s", spill.prefill_tokens_per_s}};
}

void add_verified(const VerifiedReplayOptions& options, Json& settings) {
  settings["policy"] = options.block_policy;
  settings["prefill_chunk"] = options.prefill_chunk_tokens;
  settings.update(json_snapshots(options.snapshots));
}

Json json_rejected(const std::vector<RejectedRequest>& first) {
  Json rejected = Json::array();
  for (const RejectedRequest& request : first) {
    rejected.push_back({{"line", request.line}, {"blocks_needed", request.blocks_needed}});
  }
  return rejected;
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

std::string dumped(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cairn::replay
