#include "replay/report.h"

#include <cairn/model_shape.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace cairn::replay {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RunResult run_named(const std::string& name) {
  return {.name = name,
          .requests = 3,
          .rejected = 1,
          .first_rejected = {{.line = 2, .blocks_needed = 4321}},
          .waited = 1,
          .prompt_tokens = 1'234'567,
          .matched_tokens = 617'283,
          .reused_tokens = 617'282,
          .prompt_blocks = 80,
          .matched_blocks = 20,
          .output_tokens = 9,
          .created_blocks = 60,
          .evicted_blocks = 12,
          .peak_blocks = 55,
          .peak_running = 2,
          .pool_blocks = 1000,
          .cache_time_p50_us = 1.25,
          .cache_time_p99_us = 99.75,
          .cache_time_total_s = 0.5,
          .wall_time_s = 2.0};
}

Report trace_report() {
  Report report;
  report.trace = Report::TraceSource{.name = "some/trace.jsonl",
                                     .options = {.trace_block_tokens = 64, .ids = BlockIdKind::kPlain},
                                     .format = TraceFormat::kBlockIds,
                                     .bad_lines = 7,
                                     .bad_line_reasons = {"some/trace.jsonl:4: not JSON"}};
  report.requests = 3;
  report.prompt_tokens = 2'000'000;
  report.output_tokens = 10;
  report.options = {.pool = PoolSize::parse("12.5%"), .replay = {.block_size = 32, .concurrency = 4}};
  report.comparison = {.pool_blocks = 1000,
                       .distinct_blocks = 8000,
                       .runs = {run_named("none"), run_named("lru"), run_named("unbounded")}};
  report.comparison.runs[2].pool_blocks = std::nullopt;
  return report;
}

TEST(Report, JsonHasEveryNumberAndTheSettings) {
  const Json document = Json::parse(json(trace_report()));
  EXPECT_EQ(document.at("schema_version"), 1);
  EXPECT_EQ(document.at("settings"), Json::parse(R"({"workload": "trace", "trace": "some/trace.jsonl",
      "format": "blocks", "trace_block_size": 64, "ids": "plain", "skip_bad_lines": false, "requests": 3,
      "block_size": 32, "blocks": "12.5%", "concurrency": 4, "service_rate": null, "engine": "index", "policy": "lru"})"));
  EXPECT_EQ(document.at("workload"), Json::parse(R"({"requests": 3, "prompt_tokens": 2000000, "output_tokens": 10,
      "distinct_blocks": 8000})"));
  EXPECT_EQ(document.at("bad_lines"), 7);
  EXPECT_EQ(document.at("bad_line_reasons"), Json::parse(R"(["some/trace.jsonl:4: not JSON"])"));
  ASSERT_EQ(document.at("runs").size(), 3U);
  EXPECT_EQ(document.at("runs")[0].at("name"), "none");
  EXPECT_EQ(document.at("runs")[2].at("name"), "unbounded");
  EXPECT_TRUE(document.at("runs")[2].at("pool_blocks").is_null());
  Json lru = document.at("runs")[1];
  EXPECT_DOUBLE_EQ(lru.at("token_hit_rate").get<double>(), 617283.0 / 1234567.0);
  lru.erase("token_hit_rate");
  EXPECT_EQ(lru, Json::parse(R"({"name": "lru", "requests": 3, "rejected": 1,
      "first_rejected": [{"line": 2, "blocks_needed": 4321}], "waited": 1, "prompt_tokens": 1234567,
      "matched_tokens": 617283, "reused_tokens": 617282, "prompt_blocks": 80, "matched_blocks": 20,
      "block_hit_rate": 0.25, "output_tokens": 9, "created_blocks": 60, "evicted_blocks": 12, "pool_blocks": 1000,
      "peak_blocks": 55, "peak_running": 2, "cache_time_p50_us": 1.25, "cache_time_p99_us": 99.75,
      "cache_time_total_s": 0.5, "wall_time_s": 2.0})"));
}

TEST(Report, WhatOnlyARunOfACacheHasIsLeftOutOfAnIdealOne) {
  Report report = trace_report();
  RunResult& run = report.comparison.runs[1];
  run.ideal = true;
  const Json ideal = Json::parse(json(report)).at("runs")[1];
  for (const char* name : {"created_blocks", "evicted_blocks", "peak_blocks", "cache_time_p50_us", "cache_time_p99_us",
                           "cache_time_total_s"}) {
    EXPECT_TRUE(ideal.at(name).is_null()) << name;
  }
  EXPECT_EQ(ideal.at("matched_blocks"), 20);
  EXPECT_EQ(ideal.at("peak_running"), 2);
  EXPECT_THAT(table(report), testing::ContainsRegex("\nevicted blocks +12 +- +12\n"));
}

TEST(Report, JsonOfTheBuiltinWorkloadNamesItsSeed) {
  Report report = trace_report();
  report.trace.reset();
  report.builtin = {.requests = 3, .seed = 42};
  report.options.replay.service_rate = 12.5;
  const Json document = Json::parse(json(report));
  EXPECT_EQ(document.at("settings"), Json::parse(R"({"workload": "built-in", "seed": 42, "requests": 3,
      "block_size": 32, "blocks": "12.5%", "concurrency": null, "service_rate": 12.5, "engine": "index", "policy": "lru"})"));
  EXPECT_FALSE(document.contains("bad_lines"));
}

TEST(Report, JsonSurvivesAFileNameThatIsNotUtf8) {
  Report report = trace_report();
  report.trace->name = "t\xff.jsonl";
  EXPECT_EQ(Json::parse(json(report)).at("schema_version"), 1);
}

TEST(Report, TheTableNamesWorkloadAndSettings) {
  const std::string text = table(trace_report());
  EXPECT_THAT(text,
              HasSubstr("workload  some/trace.jsonl (plain block ids of 64 tokens): 3 requests, 2,000,000 prompt "
                        "tokens, 10 output tokens\n"));
  EXPECT_THAT(text, HasSubstr("settings  block size 32 tokens, pool 1,000 blocks (12.5% of 8,000 distinct), "
                              "concurrency 4\n"));
  EXPECT_THAT(text, HasSubstr("\n7 malformed lines skipped, the first of them:\n  some/trace.jsonl:4: not JSON\n"));
  EXPECT_THAT(text, HasSubstr("\n1 requests can never fit into the pool of 1,000 blocks, the first of them:\n"
                              "  line 2: needs 4,321 blocks\n"));
}

TEST(Report, TheTableSaysNothingOfTroubleThatThereWasNot) {
  Report report = trace_report();
  report.trace->bad_lines = 0;
  for (RunResult& run : report.comparison.runs) run.rejected = 0;
  EXPECT_THAT(table(report), Not(HasSubstr("malformed")));
  EXPECT_THAT(table(report), Not(HasSubstr("never fit into")));
}

TEST(Report, TheTableHasOneAlignedColumnForEachRun) {
  Report report = trace_report();
  report.trace->bad_lines = 0;
  for (RunResult& run : report.comparison.runs) run.rejected = 0;
  report.comparison.runs[0].matched_tokens = 0;
  std::istringstream in(table(report));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_GT(lines.size(), 12U);
  const std::size_t width = lines[3].size();
  EXPECT_TRUE(lines[3].ends_with("none        lru  unbounded")) << lines[3];
  for (std::size_t i = 3; i < lines.size(); ++i) EXPECT_EQ(lines[i].size(), width) << lines[i];
  const auto row = [&](const std::string& label) {
    const auto found =
        std::find_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(label); });
    std::istringstream cells(found == lines.end() ? "" : found->substr(label.size()));
    std::vector<std::string> values;
    for (std::string value; cells >> value;) values.push_back(value);
    return values;
  };
  EXPECT_THAT(row("prompt tokens"), ElementsAre("1,234,567", "1,234,567", "1,234,567"));
  EXPECT_THAT(row("matched tokens"), ElementsAre("0", "617,283", "617,283"));
  EXPECT_THAT(row("token hit rate"), ElementsAre("0.00", "%", "50.00", "%", "50.00", "%"));
  EXPECT_THAT(row("block hit rate"), ElementsAre("25.00", "%", "25.00", "%", "25.00", "%"));
  EXPECT_THAT(row("evicted blocks"), ElementsAre("12", "12", "12"));
  EXPECT_THAT(row("peak blocks"), ElementsAre("55", "55", "55"));
  EXPECT_THAT(row("cache time per request, p99"), ElementsAre("99.8", "us", "99.8", "us", "99.8", "us"));
}

// ---- With the verifying engine ----

Report verified_report() {
  Report report = trace_report();
  report.comparison.runs.clear();
  report.verified = Report::VerifiedRun{
      .options = {.replay = report.options.replay,
                  .prefill_chunk_tokens = 512,
                  .snapshots = SnapshotOptions{.slots = 1200, .slot_bytes = 4096, .checkpoint_every_tokens = 64}},
      .result = {.requests = 3,
                 .rejected = 1,
                 .first_rejected = {{.line = 2, .blocks_needed = 4321}},
                 .waited = 2,
                 .prompt_tokens = 4000,
                 .matched_tokens = 3000,
                 .reused_tokens = 1000,
                 .stateless_tokens = 2000,
                 .computed_tokens = 3001,
                 .output_tokens = 9,
                 .published_blocks = 60,
                 .deduplicated_blocks = 4,
                 .evicted_blocks = 12,
                 .captures_published = 31,
                 .captures_declined = 32,
                 .captures_abandoned = 33,
                 .evicted_snapshots = 34,
                 .captures = {.tails = {.captures = 101, .bytes = 102, .uses = 103, .reused_tokens = 104},
                              .last_tokens = {.captures = 105, .bytes = 106, .uses = 107, .reused_tokens = 108}},
                 .saved_flops = 3,
                 .prompt_flops = 4,
                 .engine = {.blocks_checked = 41,
                            .block_bytes_checked = 42,
                            .states_checked = 43,
                            .state_bytes_checked = 44,
                            .block_bytes_written = 45,
                            .states_written = 46,
                            .steps = 47},
                 .tiers = {},
                 .size_estimates = {.sizes = {{{0.5, 500, 0.25}, {1, 1000, 0.5}, {2, 2000, 0.625}, {4, 4000, 0.75}}},
                                    .sampled_blocks = 48},
                 .pool_blocks = 1000,
                 .peak_blocks = 55,
                 .peak_running = 5,
                 .wall_time_s = 2.5}};
  return report;
}

TEST(Report, JsonOfAVerifiedRunHasEveryNumberAndTheSettings) {
  Report report = verified_report();
  Json document = Json::parse(json(report));
  const Json& settings = document.at("settings");
  EXPECT_EQ(settings.at("engine"), "verify");
  EXPECT_EQ(settings.at("prefill_chunk"), 512);
  EXPECT_EQ(settings.at("snapshots"), 1200);
  EXPECT_EQ(settings.at("snapshot_bytes"), 4096);
  EXPECT_EQ(settings.at("checkpoint_every"), 64);
  EXPECT_EQ(settings.at("snapshot_policy"), "lru");
  EXPECT_EQ(settings.at("captures"), Json::parse(R"(["tails", "siblings", "branch-points"])"));
  EXPECT_EQ(settings.at("model"), model_presets().front().name);
  EXPECT_EQ(settings.at("flop_alpha"), 1.0);
  EXPECT_EQ(settings.at("session_leases"), 1024);
  EXPECT_EQ(settings.at("session_lease_evictions"), 4096);
  EXPECT_EQ(document.at("runs"), Json::parse(R"([{"name": "verify", "requests": 3, "rejected": 1,
      "first_rejected": [{"line": 2, "blocks_needed": 4321}], "waited": 2, "prompt_tokens": 4000,
      "matched_tokens": 3000, "stateless_tokens": 2000, "reused_tokens": 1000, "computed_tokens": 3001,
      "match_rate": 0.75, "reuse_rate": 0.25, "size_estimates": {"sampled_blocks": 48, "sizes": [
        {"factor": 0.5, "blocks": 500, "hit_rate": 0.25}, {"factor": 1.0, "blocks": 1000, "hit_rate": 0.5},
        {"factor": 2.0, "blocks": 2000, "hit_rate": 0.625}, {"factor": 4.0, "blocks": 4000, "hit_rate": 0.75}]},
      "output_tokens": 9, "published_blocks": 60, "deduplicated_blocks": 4,
      "evicted_blocks": 12, "pool_blocks": 1000, "peak_blocks": 55, "peak_running": 5, "peak_snapshots": 0, "captures_published": 31,
      "captures_declined": 32, "captures_abandoned": 33, "evicted_snapshots": 34, "captures": {
        "tails": {"captures": 101, "bytes": 102, "uses": 103, "reused_tokens": 104},
        "siblings": {"captures": 0, "bytes": 0, "uses": 0, "reused_tokens": 0},
        "shared_tails": {"captures": 0, "bytes": 0, "uses": 0, "reused_tokens": 0},
        "branch_points": {"captures": 0, "bytes": 0, "uses": 0, "reused_tokens": 0},
        "checkpoints": {"captures": 0, "bytes": 0, "uses": 0, "reused_tokens": 0},
        "last_tokens": {"captures": 105, "bytes": 106, "uses": 107, "reused_tokens": 108},
        "from_store": {"captures": 0, "bytes": 0, "uses": 0, "reused_tokens": 0}}, "steps": 47, "blocks_checked": 41,
      "block_bytes_checked": 42, "states_checked": 43, "state_bytes_checked": 44, "block_bytes_written": 45,
      "states_written": 46, "saved_flops": 3.0, "prompt_flops": 4.0, "flop_rate": 0.75, "wall_time_s": 2.5, "tiers": null}])"));
  EXPECT_EQ(settings.at("skip"), 0);
  EXPECT_TRUE(settings.at("tiers").is_null());
  EXPECT_EQ(document.at("workload").at("distinct_blocks"), 8000);
  report.options.pool = PoolSize::parse("1000");
  report.verified->options.snapshots.reset();
  document = Json::parse(json(report));
  EXPECT_TRUE(document.at("workload").at("distinct_blocks").is_null()) << "they were not counted";
  EXPECT_TRUE(document.at("settings").at("snapshots").is_null());
  EXPECT_TRUE(document.at("settings").at("snapshot_bytes").is_null());
  EXPECT_TRUE(document.at("settings").at("checkpoint_every").is_null());
  EXPECT_TRUE(document.at("settings").at("captures").is_null());
}

TEST(Report, NamesTheSnapshotPolicyAsItWasChosen) {
  Report report = verified_report();
  report.verified->options.snapshots->last_token = true;
  choose_policy(*report.verified->options.snapshots, "flop-auto");
  const Json settings = Json::parse(json(report)).at("settings");
  EXPECT_EQ(settings.at("snapshot_policy"), "flop-auto");
  EXPECT_TRUE(settings.at("flop_alpha").is_null()) << "it is tuned";
  EXPECT_EQ(settings.at("captures").at(3), "last-token");
  EXPECT_THAT(table(report), HasSubstr("evicted by the policy flop-auto\n"));
}

TEST(Report, TheTableOfAVerifiedRunNamesTheModelAndWhatIsLostForLackOfState) {
  Report report = verified_report();
  const std::string text = table(report);
  EXPECT_THAT(text,
              HasSubstr("\nengine    verifying, prefill in chunks of 512 tokens, 1,200 snapshots of 4,096 bytes, "
                        "a checkpoint every 64 tokens\n\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n  lost for lack of state +2,000\nreused tokens +1,000\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nstates at tails +101 kept, 102 bytes; 103 used: 104 tokens\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nmatch rate \\(KV\\) +75.00 %\nreuse rate +25.00 %\n"
                                           "match rate of full blocks, estimated *\n  with half the pool +25.00 %\n"
                                           "  with this pool +50.00 %\n  with twice the pool +62.50 %\n"
                                           "  with 4 times the pool +75.00 %\n"));
  EXPECT_THAT(text, HasSubstr("\n1 requests can never fit into the pool of 1,000 blocks, the first of them:\n"
                              "  line 2: needs 4,321 blocks\n"));
  report.verified->options.snapshots->checkpoint_every_tokens = 0;
  EXPECT_THAT(table(report), HasSubstr("4,096 bytes, no checkpoints\n"));
  report.verified->options.snapshots.reset();
  EXPECT_THAT(table(report), HasSubstr("chunks of 512 tokens, attention layers only\n"));
}

// ---- With tiers ----

Report tiers_report() {
  Report report = verified_report();
  report.verified->options.skip = 12;
  report.verified->options.tiers = TierOptions{.ram_bytes = 1'000'000,
                                               .directory = "some/store",
                                               .file_bytes = 2'000'000,
                                               .spill = {.block_tokens_min = 5,
                                                         .block_uses_min = 2,
                                                         .write_through = true,
                                                         .fetch_tokens_min = 300,
                                                         .fetch_bytes_per_s = 1e9,
                                                         .prefill_tokens_per_s = 5000}};
  report.verified->result.tiers = TierResult{
      .reused_from_memory_tokens = 100,
      .reused_from_ram_tier_tokens = 200,
      .reused_from_file_tier_tokens = 700,
      .spilled_blocks = 51,
      .spilled_snapshots = 52,
      .spilled_bytes = 53,
      .declined_spills = 54,
      .fetches = 55,
      .failed_fetches = 56,
      .failed_leases = 57,
      .unprofitable_fetches = 58,
      .fetched_blocks = 59,
      .fetched_snapshots = 60,
      .fetched_bytes = 61'000'000,
      .fetch_time_s = 0.5,
      .catch_up_time_s = 62.5,
      .recovered_blocks = 63,
      .recovered_snapshots = 64,
      .useless_records = 65,
      .store = {.puts = 71,
                .evicted_records = 72,
                .ram_records = 73,
                .file_records = 74,
                .degraded = true,
                .degraded_reason = "some/store/0.slab: no space",
                .io = "io_uring"},
      .open_time_s = 0.25,
      .save = SaveReport{.blocks = 81, .snapshots = 82, .blocks_lost = 83, .snapshots_lost = 84, .flushed = false},
      .save_time_s = 0.75};
  return report;
}

TEST(Report, JsonOfARunWithTiersHasEveryNumberAndTheSettings) {
  const Json document = Json::parse(json(tiers_report()));
  EXPECT_EQ(document.at("settings").at("skip"), 12);
  EXPECT_EQ(document.at("settings").at("tiers"), Json::parse(R"({"ram_tier_bytes": 1000000,
      "spill_dir": "some/store", "spill_bytes": 2000000, "spill_min_tokens": 5, "spill_min_uses": 2,
      "write_through": true, "fetch_min_tokens": 300, "fetch_bytes_per_s": 1e9, "prefill_tokens_per_s": 5000.0})"));
  Json tiers = document.at("runs").at(0).at("tiers");
  const Json store = tiers.at("store");
  tiers.erase("store");
  EXPECT_EQ(tiers, Json::parse(R"({"reused_from_memory_tokens": 100, "reused_from_ram_tier_tokens": 200,
      "reused_from_file_tier_tokens": 700, "spilled_blocks": 51, "spilled_snapshots": 52, "spilled_bytes": 53,
      "declined_spills": 54, "fetches": 55, "failed_fetches": 56, "failed_leases": 57, "unprofitable_fetches": 58,
      "fetched_blocks": 59, "fetched_snapshots": 60, "fetched_bytes": 61000000, "fetch_time_s": 0.5,
      "catch_up_time_s": 62.5, "recovered_blocks": 63, "recovered_snapshots": 64, "useless_records": 65,
      "open_time_s": 0.25, "save_time_s": 0.75, "save": {"blocks": 81, "snapshots": 82, "blocks_lost": 83,
      "snapshots_lost": 84, "flushed": false}})"));
  EXPECT_EQ(store.at("puts"), 71);
  EXPECT_EQ(store.at("evicted_records"), 72);
  EXPECT_EQ(store.at("ram_records"), 73);
  EXPECT_EQ(store.at("file_records"), 74);
  EXPECT_EQ(store.at("degraded_reason"), "some/store/0.slab: no space");
  EXPECT_EQ(store.at("io"), "io_uring");
}

TEST(Report, TheTableOfARunWithTiersSaysWhereWhatWasReusedCameFrom) {
  Report report = tiers_report();
  const std::string text = table(report);
  EXPECT_THAT(text,
              HasSubstr("\ntiers     1,000,000 bytes of RAM, 2,000,000 bytes in some/store (io_uring), fetches of "
                        "300 tokens and more that beat a prefill of 5000 tokens/s\n\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nreused from memory +100\n  from the RAM tier +200\n"
                                           "  from the file tier +700\n  computed +3,001\n"));
  EXPECT_THAT(text,
              testing::ContainsRegex("\n  time +0.50 s\n  rate +122.0 MB/s\nwaited for files to catch up +62.50 s\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n  lost +167\n  flushed +no\n  in +0.75 s\nfiles +degraded\n"));
  EXPECT_THAT(text, HasSubstr("\nThe file tier is degraded: some/store/0.slab: no space\n"));
  report.verified->result.tiers->save.reset();
  report.verified->options.tiers->directory.clear();
  EXPECT_THAT(table(report), HasSubstr("\ntiers     1,000,000 bytes of RAM, fetches of 300 tokens"));
  EXPECT_THAT(table(report), testing::ContainsRegex("\n  flushed +-\n"));
  EXPECT_THAT(table(verified_report()), testing::Not(HasSubstr("from the RAM tier")));
}

}  // namespace
}  // namespace cairn::replay
