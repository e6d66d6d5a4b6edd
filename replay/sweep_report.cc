#include "replay/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "replay/line_plot.h"
#include "replay/report_parts.h"

namespace cairn::replay {
namespace {

// Of the unbounded cache's hits: where a curve is called good enough.
constexpr double kEnough = 0.9;
constexpr const char* kUnbounded = "unbounded";

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

using Cells = std::vector<std::string>;

// Columns aligned to the right.
std::string aligned(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      text += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    text += '\n';
  }
  return text;
}

// Of the sweeps by the verifying engine, whose pool of blocks is the same in all runs.
std::string left_out_note(const VerifiedResult& run) {
  if (run.rejected == 0) return "";
  return fmt::format("\n{} requests can never fit into the pool of blocks and are left out.\n", grouped(run.rejected));
}

std::uint64_t rejected_at(const SweepResult& result, std::size_t size) {
  std::uint64_t rejected = 0;
  for (const SweepResult::Curve& curve : result.curves) rejected = std::max(rejected, curve.at(size).rejected);
  return rejected;
}

const SweepResult::Curve* curve_named(const SweepResult& result, std::string_view name) {
  const auto found = std::ranges::find(result.curves, name, &SweepResult::Curve::policy);
  return found == result.curves.end() ? nullptr : &*found;
}

// For each policy, the smallest size of the sweep that gives most of what the unbounded cache gives.
std::string enough_note(const SweepReport& report) {
  const SweepResult& result = report.result;
  const SweepResult::Curve* unbounded = curve_named(result, kUnbounded);
  if (unbounded == nullptr || result.pool_blocks.empty() || unbounded->at(0).matched_tokens == 0) return "";
  const double all = result.hit_rate(unbounded->at(0));
  std::string text = fmt::format("\nUnbounded, the hit rate is {}. Nine tenths of that ({}) takes\n", percent(all),
                                 percent(kEnough * all));
  for (const SweepResult::Curve& curve : result.curves) {
    if (curve.policy == kUnbounded) continue;
    std::size_t size = 0;
    while (size < curve.runs.size() && result.hit_rate(curve.runs[size]) < kEnough * all) ++size;
    if (size == curve.runs.size()) {
      text += fmt::format("  {}: more than the largest of these sizes\n", curve.policy);
      continue;
    }
    const std::size_t blocks = result.pool_blocks[size];
    text += fmt::format("  {}: {} blocks ({} tokens, {} of the distinct blocks){}\n", curve.policy, grouped(blocks),
                        grouped(blocks * report.replay.block_size), percent(share(blocks, result.distinct_blocks)),
                        size == 0 ? ", the smallest of these sizes" : "");
  }
  return text;
}

Json json_head(const WorkloadSource& source, const ReplayOptions& options) {
  Json document;
  document["schema_version"] = kSchemaVersion;
  Json settings = json_source(source);
  settings["block_size"] = options.block_size;
  add_overlap(options, settings);
  document["settings"] = settings;
  document["workload"] = {
      {"requests", source.requests}, {"prompt_tokens", source.prompt_tokens}, {"output_tokens", source.output_tokens}};
  add_bad_lines(source, document);
  return document;
}

std::string name_of_source(const WorkloadSource& source) {
  if (!source.trace) return "built-in workload";
  const std::string& path = source.trace->name;
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

std::string table(const SweepReport& report) {
  const SweepResult& result = report.result;
  std::string text = workload_line(report);
  text += fmt::format("settings  block size {} tokens, {}; {} distinct blocks\n\n", report.replay.block_size,
                      overlap_text(report.replay), grouped(result.distinct_blocks));
  text += "Hit rate: matched tokens in percent of all prompt tokens\n\n";
  bool any_rejected = false;
  for (std::size_t size = 0; size < result.pool_blocks.size(); ++size) any_rejected |= rejected_at(result, size) > 0;
  std::vector<Cells> rows;
  Cells head{"blocks", "tokens", "of distinct"};
  for (const SweepResult::Curve& curve : result.curves) head.push_back(curve.policy);
  if (any_rejected) head.emplace_back("never fit");
  rows.push_back(head);
  for (std::size_t size = 0; size < result.pool_blocks.size(); ++size) {
    const std::size_t blocks = result.pool_blocks[size];
    Cells row{grouped(blocks), grouped(blocks * report.replay.block_size),
              percent(share(blocks, result.distinct_blocks))};
    for (const SweepResult::Curve& curve : result.curves) row.push_back(percent(result.hit_rate(curve.at(size))));
    if (any_rejected) row.push_back(grouped(rejected_at(result, size)));
    rows.push_back(row);
  }
  return text + aligned(rows) + enough_note(report) + bad_lines_note(report);
}

std::string json(const SweepReport& report) {
  const SweepResult& result = report.result;
  Json document = json_head(report, report.replay);
  document["workload"]["distinct_blocks"] = result.distinct_blocks;
  document["curves"] = Json::array();
  for (const SweepResult::Curve& curve : result.curves) {
    Json points = Json::array();
    for (std::size_t size = 0; size < result.pool_blocks.size(); ++size) {
      points.push_back({{"pool_blocks", result.pool_blocks[size]},
                        {"share_of_distinct", share(result.pool_blocks[size], result.distinct_blocks)},
                        {"hit_rate", result.hit_rate(curve.at(size))},
                        {"run", json_run(curve.at(size))}});
    }
    document["curves"].push_back({{"policy", curve.policy}, {"points", points}});
  }
  return dumped(document);
}

std::string csv(const SweepReport& report) {
  const SweepResult& result = report.result;
  std::string text =
      "policy,pool_blocks,pool_tokens,share_of_distinct,hit_rate,matched_tokens,prompt_tokens,rejected\n";
  for (const SweepResult::Curve& curve : result.curves) {
    for (std::size_t size = 0; size < result.pool_blocks.size(); ++size) {
      const std::size_t blocks = result.pool_blocks[size];
      const RunResult& run = curve.at(size);
      text += fmt::format("{},{},{},{:.6f},{:.6f},{},{},{}\n", curve.policy, blocks, blocks * report.replay.block_size,
                          share(blocks, result.distinct_blocks), result.hit_rate(run), run.matched_tokens,
                          result.prompt_tokens, run.rejected);
    }
  }
  return text;
}

std::string plot(const SweepReport& report) {
  const SweepResult& result = report.result;
  LinePlot plot{.title = fmt::format("Hit rate over pool size: {}", name_of_source(report)),
                .x_label = fmt::format("pool size in blocks of {} tokens (the workload has {} distinct ones)",
                                       report.replay.block_size, grouped(result.distinct_blocks)),
                .y_label = "matched tokens in % of all prompt tokens",
                .curves = {}};
  for (const SweepResult::Curve& curve : result.curves) {
    LinePlot::Curve drawn{.name = curve.policy, .points = {}, .dashed = curve.policy == kUnbounded};
    for (std::size_t size = 0; size < result.pool_blocks.size(); ++size) {
      drawn.points.emplace_back(static_cast<double>(result.pool_blocks[size]), result.hit_rate(curve.at(size)));
    }
    plot.curves.push_back(std::move(drawn));
  }
  return svg(plot);
}

// ---- Snapshot slots ----

namespace {

constexpr const char* kCeiling = "ceiling";
constexpr const char* kClairvoyant = "clairvoyant";

double ceiling_rate(const SnapshotSweepResult& result, std::uint64_t tokens) {
  return share(tokens, result.unbounded.prompt_tokens);
}

double ceiling_flop_rate(const SnapshotSweepResult& result, double flops) {
  return result.unbounded.prompt_flops > 0 ? flops / result.unbounded.prompt_flops : 0;
}

// One column for each policy, then those that know the future.
template <typename OfRun, typename OfCeiling, typename OfClairvoyant>
std::string by_policy(const SnapshotSweepResult& result, OfRun of_run, OfCeiling of_ceiling,
                      OfClairvoyant of_clairvoyant) {
  std::vector<Cells> rows{{"slots"}};
  for (const SnapshotSweepResult::Curve& curve : result.curves) rows[0].push_back(curve.policy);
  const bool ceilings = !result.ceilings.empty();
  if (ceilings) rows[0].insert(rows[0].end(), {kClairvoyant, kCeiling});
  for (std::size_t i = 0; i < result.slots.size(); ++i) {
    Cells row{grouped(result.slots[i])};
    for (const SnapshotSweepResult::Curve& curve : result.curves) row.push_back(percent(of_run(curve.runs[i])));
    if (ceilings) {
      row.push_back(percent(of_clairvoyant(result.ceilings[i])));
      row.push_back(percent(of_ceiling(result.ceilings[i])));
    }
    rows.push_back(row);
  }
  Cells last{kUnbounded};
  last.resize(rows[0].size(), percent(of_run(result.unbounded)));
  rows.push_back(last);
  return aligned(rows);
}

}  // namespace

std::string table(const SnapshotSweepReport& report) {
  const SnapshotSweepResult& result = report.result;
  const std::size_t every = report.verified.snapshots->checkpoint_every_tokens;
  std::string text = workload_line(report);
  text += fmt::format("settings  block size {} tokens, pool {} blocks, {}\n", report.verified.replay.block_size,
                      grouped(result.pool_blocks), overlap_text(report.verified.replay));
  text += fmt::format("engine    verifying, a hybrid model, {}\n\n",
                      every == 0 ? "no checkpoints" : fmt::format("a checkpoint every {} tokens", every));
  text += fmt::format("Reused, in percent of the prompt tokens; with attention layers alone {} could be\n\n",
                      percent(result.unbounded.match_rate()));
  text += by_policy(
      result, [](const VerifiedResult& run) { return run.reuse_rate(); },
      [&](const SnapshotCeiling& ceiling) { return ceiling_rate(result, ceiling.tokens); },
      [&](const SnapshotCeiling& ceiling) { return ceiling_rate(result, ceiling.clairvoyant_tokens); });
  text += "\nSaved, in percent of the prompts' FLOPs\n\n";
  text += by_policy(
      result, [](const VerifiedResult& run) { return run.flop_rate(); },
      [&](const SnapshotCeiling& ceiling) { return ceiling_flop_rate(result, ceiling.flops); },
      [&](const SnapshotCeiling& ceiling) { return ceiling_flop_rate(result, ceiling.clairvoyant_flops); });
  if (result.ceilings.empty() && report.verified.snapshots->last_token) {
    text +=
        "\nStates are kept at the last token of a prompt as well: the ceiling of snapshots is known only for those "
        "at\n"
        "the end of a block (--captures without last-token).\n";
  } else if (result.ceilings.empty()) {
    text +=
        "\nThe pool evicts blocks, or has no room for some requests: the ceiling of snapshots is known only where\n"
        "all KV is kept (a larger --blocks).\n";
  }
  return text + left_out_note(result.unbounded) + bad_lines_note(report);
}

std::string json(const SnapshotSweepReport& report) {
  const SnapshotSweepResult& result = report.result;
  Json document = json_head(report, report.verified.replay);
  Json& settings = document["settings"];
  settings["pool_blocks"] = result.pool_blocks;
  add_verified(report.verified, settings);
  settings.erase("snapshot_policy");  // each point has its own
  settings.erase("snapshots");
  document["needed"] = result.needed;
  document["points"] = Json::array();
  const auto add_point = [&document](const Json& policy, const Json& slots, const VerifiedResult& run) {
    document["points"].push_back({{"policy", policy},
                                  {"snapshots", slots},
                                  {"reuse_rate", run.reuse_rate()},
                                  {"flop_rate", run.flop_rate()},
                                  {"reused_tokens", run.reused_tokens},
                                  {"matched_tokens", run.matched_tokens},
                                  {"stateless_tokens", run.stateless_tokens},
                                  {"prompt_tokens", run.prompt_tokens},
                                  {"saved_flops", run.saved_flops},
                                  {"prompt_flops", run.prompt_flops},
                                  {"captures_published", run.captures_published},
                                  {"evicted_snapshots", run.evicted_snapshots},
                                  {"rejected", run.rejected}});
  };
  for (const SnapshotSweepResult::Curve& curve : result.curves) {
    for (std::size_t i = 0; i < result.slots.size(); ++i) add_point(curve.policy, result.slots[i], curve.runs[i]);
  }
  add_point(Json(), Json(), result.unbounded);
  document["ceilings"] = Json::array();
  for (std::size_t i = 0; i < result.ceilings.size(); ++i) {
    const SnapshotCeiling& ceiling = result.ceilings[i];
    document["ceilings"].push_back({{"snapshots", result.slots[i]},
                                    {"tokens", ceiling.tokens},
                                    {"flops", ceiling.flops},
                                    {"relaxed_tokens", ceiling.relaxed_tokens},
                                    {"clairvoyant_tokens", ceiling.clairvoyant_tokens},
                                    {"clairvoyant_flops", ceiling.clairvoyant_flops}});
  }
  return dumped(document);
}

std::string csv(const SnapshotSweepReport& report) {
  const SnapshotSweepResult& result = report.result;
  std::string text =
      "policy,snapshots,reuse_rate,flop_rate,reused_tokens,stateless_tokens,prompt_tokens,evicted_snapshots\n";
  for (const SnapshotSweepResult::Curve& curve : result.curves) {
    for (std::size_t i = 0; i < result.slots.size(); ++i) {
      const VerifiedResult& run = curve.runs[i];
      text += fmt::format("{},{},{:.6f},{:.6f},{},{},{},{}\n", curve.policy, result.slots[i], run.reuse_rate(),
                          run.flop_rate(), run.reused_tokens, run.stateless_tokens, run.prompt_tokens,
                          run.evicted_snapshots);
    }
  }
  for (std::size_t i = 0; i < result.ceilings.size(); ++i) {
    const SnapshotCeiling& ceiling = result.ceilings[i];
    const std::uint64_t all = result.unbounded.prompt_tokens;
    text += fmt::format("{},{},{:.6f},{:.6f},{},,{},\n", kClairvoyant, result.slots[i],
                        ceiling_rate(result, ceiling.clairvoyant_tokens),
                        ceiling_flop_rate(result, ceiling.clairvoyant_flops), ceiling.clairvoyant_tokens, all);
    text +=
        fmt::format("{},{},{:.6f},{:.6f},{},,{},\n", kCeiling, result.slots[i], ceiling_rate(result, ceiling.tokens),
                    ceiling_flop_rate(result, ceiling.flops), ceiling.tokens, all);
  }
  return text;
}

std::string plot(const SnapshotSweepReport& report) {
  const SnapshotSweepResult& result = report.result;
  std::vector<LinePlot::Curve> curves;
  curves.reserve(result.curves.size() + 4);
  for (const SnapshotSweepResult::Curve& curve : result.curves) curves.push_back({.name = curve.policy, .points = {}});
  LinePlot::Curve unbounded{.name = kUnbounded, .points = {}, .dashed = true};
  LinePlot::Curve attention{.name = "attention alone", .points = {}, .dashed = true};
  LinePlot::Curve ceiling{.name = kCeiling, .points = {}, .dashed = true};
  for (std::size_t i = 0; i < result.slots.size(); ++i) {
    const auto slots = static_cast<double>(result.slots[i]);
    for (std::size_t curve = 0; curve < curves.size(); ++curve) {
      curves[curve].points.emplace_back(slots, result.curves[curve].runs[i].reuse_rate());
    }
    unbounded.points.emplace_back(slots, result.unbounded.reuse_rate());
    attention.points.emplace_back(slots, result.unbounded.match_rate());
    if (!result.ceilings.empty()) {
      ceiling.points.emplace_back(slots, std::min(1.0, ceiling_rate(result, result.ceilings[i].tokens)));
    }
  }
  if (!result.ceilings.empty()) curves.push_back(std::move(ceiling));
  curves.push_back(std::move(unbounded));
  curves.push_back(std::move(attention));
  return svg({.title = fmt::format("Reuse over snapshot slots: {}", name_of_source(report)),
              .x_label = fmt::format("snapshot slots (pool of {} blocks of {} tokens)", grouped(result.pool_blocks),
                                     report.verified.replay.block_size),
              .y_label = "reused tokens in % of all prompt tokens",
              .curves = std::move(curves)});
}

// ---- Bytes behind the pool ----

std::string table(const TierSweepReport& report) {
  const TierSweepResult& result = report.result;
  std::string text = workload_line(report);
  text += fmt::format("settings  block size {} tokens, pool {} blocks, {}\n", report.verified.replay.block_size,
                      grouped(result.pool_blocks), overlap_text(report.verified.replay));
  text += fmt::format("engine    verifying, {}, a RAM tier that evicts the least recently used\n\n",
                      report.verified.snapshots ? "a hybrid model" : "attention layers only");
  text += "In percent of the prompt tokens; the tier's room in blocks of KV\n\n";
  std::vector<Cells> rows{
      {"tier blocks", "tokens", "of distinct", "reused", "from memory", "from the tier", "fetches"}};
  rows.reserve(result.runs.size() + 2);
  rows.push_back({"none", "0", percent(0), percent(result.without.reuse_rate()), percent(result.without.reuse_rate()),
                  percent(0), "0"});
  for (std::size_t i = 0; i < result.runs.size(); ++i) {
    const VerifiedResult& run = result.runs[i];
    rows.push_back({grouped(result.tier_blocks[i]), grouped(result.tier_blocks[i] * report.verified.replay.block_size),
                    percent(share(result.tier_blocks[i], result.distinct_blocks)), percent(run.reuse_rate()),
                    percent(share(run.tiers->reused_from_memory_tokens, run.prompt_tokens)),
                    percent(share(run.tiers->reused_from_ram_tier_tokens, run.prompt_tokens)),
                    grouped(run.tiers->fetches)});
  }
  text += aligned(rows);
  return text + left_out_note(result.without) + bad_lines_note(report);
}

std::string json(const TierSweepReport& report) {
  const TierSweepResult& result = report.result;
  Json document = json_head(report, report.verified.replay);
  Json& settings = document["settings"];
  settings["pool_blocks"] = result.pool_blocks;
  add_verified(report.verified, settings);
  settings["tiers"] = json_spill(report.verified.tiers.value_or(TierOptions()).spill);
  document["workload"]["distinct_blocks"] = result.distinct_blocks;
  document["points"] = Json::array();
  const auto add_point = [&document](std::size_t blocks, std::size_t bytes, const VerifiedResult& run) {
    document["points"].push_back({{"tier_blocks", blocks},
                                  {"tier_bytes", bytes},
                                  {"reuse_rate", run.reuse_rate()},
                                  {"reused_tokens", run.reused_tokens},
                                  {"reused_from_tier_tokens", run.tiers ? run.tiers->reused_from_ram_tier_tokens : 0},
                                  {"prompt_tokens", run.prompt_tokens},
                                  {"fetches", run.tiers ? run.tiers->fetches : 0},
                                  {"fetched_bytes", run.tiers ? run.tiers->fetched_bytes : 0},
                                  {"spilled_bytes", run.tiers ? run.tiers->spilled_bytes : 0},
                                  {"rejected", run.rejected}});
  };
  add_point(0, 0, result.without);
  for (std::size_t i = 0; i < result.runs.size(); ++i) {
    add_point(result.tier_blocks[i], result.tier_bytes[i], result.runs[i]);
  }
  return dumped(document);
}

std::string csv(const TierSweepReport& report) {
  const TierSweepResult& result = report.result;
  std::string text = "tier_blocks,reuse_rate,reused_tokens,reused_from_tier_tokens,prompt_tokens\n";
  text += fmt::format("0,{:.6f},{},0,{}\n", result.without.reuse_rate(), result.without.reused_tokens,
                      result.without.prompt_tokens);
  for (std::size_t i = 0; i < result.runs.size(); ++i) {
    const VerifiedResult& run = result.runs[i];
    text += fmt::format("{},{:.6f},{},{},{}\n", result.tier_blocks[i], run.reuse_rate(), run.reused_tokens,
                        run.tiers->reused_from_ram_tier_tokens, run.prompt_tokens);
  }
  return text;
}

std::string plot(const TierSweepReport& report) {
  const TierSweepResult& result = report.result;
  LinePlot::Curve reused{.name = "with the tier", .points = {}};
  LinePlot::Curve without{.name = "without", .points = {}, .dashed = true};
  for (std::size_t i = 0; i < result.runs.size(); ++i) {
    const auto blocks = static_cast<double>(result.tier_blocks[i]);
    reused.points.emplace_back(blocks, result.runs[i].reuse_rate());
    without.points.emplace_back(blocks, result.without.reuse_rate());
  }
  return svg({.title = fmt::format("Reuse over a tier's size: {}", name_of_source(report)),
              .x_label = fmt::format("room in the tier, blocks of {} tokens (pool of {} blocks)",
                                     report.verified.replay.block_size, grouped(result.pool_blocks)),
              .y_label = "reused tokens in % of all prompt tokens",
              .curves = {reused, without}});
}

}  // namespace cairn::replay
