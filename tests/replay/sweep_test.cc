#include "replay/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "replay/builtin_workload.h"
#include "replay/comparison.h"
#include "replay/line_plot.h"
#include "replay/lines.h"
#include "replay/optimum.h"
#include "replay/sweep_report.h"

namespace cairn::replay {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(RunInParallel, RunsEachTaskOnceAndPassesTheFirstFailureOn) {
  for (const std::size_t jobs : {1U, 2U, 7U}) {
    std::vector<std::atomic<int>> runs(40);
    run_in_parallel(runs.size(), jobs, [&](std::size_t i) { ++runs[i]; });
    for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    EXPECT_THROW(run_in_parallel(40, jobs,
                                 [](std::size_t i) {
                                   if (i == 3) throw std::length_error("three");
                                 }),
                 std::length_error);
  }
  run_in_parallel(0, 3, [](std::size_t) { FAIL(); });
  EXPECT_THROW(run_in_parallel(1, 0, [](std::size_t) {}), std::invalid_argument);
}

TEST(Sweep, DefaultSizesGrowEvenlyOnALogarithmicScale) {
  const std::vector<std::size_t> sizes = default_sweep_sizes(100'000);
  ASSERT_EQ(sizes.size(), 20U);
  EXPECT_EQ(sizes.front(), 500U);
  EXPECT_EQ(sizes.back(), 100'000U);
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(sizes[i]) / static_cast<double>(sizes[i - 1]), 1.3216, 0.002);
  }
  EXPECT_THAT(default_sweep_sizes(3), ElementsAre(1U, 2U, 3U)) << "each once, none of them 0";
  EXPECT_THAT(default_sweep_sizes(0), ElementsAre(1U));
}

TEST(Sweep, GivesWhatSingleReplaysGiveWhateverTheNumberOfJobs) {
  const Workload workload = builtin_workload({.requests = 200});
  const ReplayOptions replay{.block_size = 16, .concurrency = 3};
  const BlockTrace blocks(workload, 16);
  for (const std::size_t jobs : {1U, 3U}) {
    std::atomic<std::size_t> done{0};
    SweepOptions options{.sizes = {PoolSize::parse("50%"), PoolSize::parse("3000"), PoolSize::parse("3k")},
                         .jobs = jobs,
                         .replay = replay};
    options.replay.on_request_done = [&done] { ++done; };
    Sweep sweep(workload, options);
    EXPECT_EQ(sweep.replays(), 2U + 2 + 1);
    const SweepResult result = sweep.run();
    EXPECT_EQ(done.load(), 5U * 200);
    EXPECT_EQ(result.distinct_blocks, blocks.distinct());
    ASSERT_THAT(result.pool_blocks, ElementsAre(3000U, blocks.distinct() / 2));
    ASSERT_EQ(result.curves.size(), 3U);
    for (std::size_t size = 0; size < 2; ++size) {
      const std::size_t pool = result.pool_blocks[size];
      EXPECT_EQ(result.curves[0].at(size).matched_tokens, run_policy("lru", workload, replay, pool).matched_tokens);
      EXPECT_EQ(result.curves[1].at(size).matched_tokens, find_optimum(workload, blocks, pool, replay).matched_tokens);
      EXPECT_EQ(result.curves[2].at(size).matched_tokens, run_unbounded(workload, blocks, replay).matched_tokens);
      EXPECT_EQ(result.curves[0].at(size).pool_blocks, pool);
    }
  }
}

TEST(Sweep, CountsARequestThatNeverFitsAsMissed) {
  const Workload workload = workload_of({{.prompt = "aa"}, {.prompt = "aa"}, {.prompt = "bbbb"}});
  const SweepResult result =
      Sweep(workload,
            {.sizes = {PoolSize::parse("2"), PoolSize::parse("9")}, .policies = {"lru"}, .replay = {.block_size = 1}})
          .run();
  EXPECT_EQ(result.curves[0].at(0).rejected, 1U);
  EXPECT_DOUBLE_EQ(result.hit_rate(result.curves[0].at(0)), 2.0 / 8);
  EXPECT_DOUBLE_EQ(result.curves[0].at(0).token_hit_rate(), 2.0 / 4);
  EXPECT_DOUBLE_EQ(result.hit_rate(result.curves[0].at(1)), 2.0 / 8);
}

TEST(Sweep, RefusesPoliciesThatDoNotExist) {
  const Workload workload = workload_of({{.prompt = "aa"}});
  const auto sweep = [&](std::vector<std::string> policies) { Sweep(workload, {.policies = std::move(policies)}); };
  EXPECT_THROW(sweep({"mru"}), std::invalid_argument);
  EXPECT_THROW(sweep({"lru", "lru"}), std::invalid_argument);
  EXPECT_THROW(sweep({}), std::invalid_argument);
}

SweepReport report_of(const Workload& workload, SweepOptions options) {
  SweepReport report;
  report.builtin = BuiltinWorkloadOptions{};
  report.requests = workload.size();
  report.prompt_tokens = workload.prompt_tokens();
  report.replay = options.replay;
  report.result = Sweep(workload, std::move(options)).run();
  return report;
}

// Three prompts in turn: LRU needs room for all of them, the optimum makes do with less.
SweepReport small_report() {
  std::vector<Line> lines;
  for (int i = 0; i < 30; ++i) lines.push_back({.prompt = std::string(2, "abc"[i % 3])});
  SweepOptions options{.replay = {.block_size = 1}};
  for (const char* size : {"2", "4", "6"}) options.sizes.push_back(PoolSize::parse(size));
  return report_of(workload_of(lines), options);
}

TEST(SweepReport, TheTableSaysWhatNineTenthsOfTheHitsTake) {
  const std::string text = table(small_report());
  EXPECT_THAT(text, HasSubstr("blocks  tokens  of distinct      lru  optimum  unbounded\n"
                              "     2       2      33.33 %   0.00 %   0.00 %    90.00 %\n"
                              "     4       4      66.67 %   0.00 %  46.67 %    90.00 %\n"
                              "     6       6     100.00 %  90.00 %  90.00 %    90.00 %\n"));
  EXPECT_THAT(text, HasSubstr("Unbounded, the hit rate is 90.00 %. Nine tenths of that (81.00 %) takes\n"
                              "  lru: 6 blocks (6 tokens, 100.00 % of the distinct blocks)\n"));
}

TEST(SweepReport, JsonAndCsvHaveEachPoint) {
  const SweepReport report = small_report();
  const Json document = Json::parse(json(report));
  EXPECT_EQ(document.at("schema_version"), 1);
  EXPECT_EQ(document.at("workload").at("distinct_blocks"), 6);
  ASSERT_EQ(document.at("curves").size(), 3U);
  const Json& lru = document.at("curves").at(0);
  EXPECT_EQ(lru.at("policy"), "lru");
  ASSERT_EQ(lru.at("points").size(), 3U);
  EXPECT_EQ(lru.at("points").at(2).at("pool_blocks"), 6);
  EXPECT_DOUBLE_EQ(lru.at("points").at(2).at("hit_rate").get<double>(), 0.9);
  EXPECT_EQ(lru.at("points").at(2).at("run").at("matched_tokens"), 54);
  const std::string lines = csv(report);
  EXPECT_THAT(lines, StartsWith("policy,pool_blocks,pool_tokens,share_of_distinct,hit_rate,"));
  EXPECT_THAT(lines, HasSubstr("\nlru,6,6,1.000000,0.900000,54,60,0\n"));
  EXPECT_EQ(std::ranges::count(lines, '\n'), 1 + 3 * 3);
}

TEST(SweepReport, ThePlotHasAxesWithUnitsALegendAndOneLineForEachPolicy) {
  const std::string drawing = plot(small_report());
  EXPECT_THAT(drawing, StartsWith("<svg xmlns="));
  EXPECT_THAT(drawing, HasSubstr("pool size in blocks of 1 tokens"));
  EXPECT_THAT(drawing, HasSubstr("matched tokens in % of all prompt tokens"));
  EXPECT_THAT(drawing, HasSubstr(">90 %</text>"));
  for (const char* name : {">lru</text>", ">optimum</text>", ">unbounded</text>"})
    EXPECT_THAT(drawing, HasSubstr(name));
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = drawing.find("<polyline", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 3U);
}

TEST(LinePlot, EscapesTextAndRefusesWhatItCannotDraw) {
  LinePlot plot{
      .title = "a < b & \"c\"", .x_label = "x", .y_label = "y", .curves = {{.name = "n", .points = {{1, 0.5}}}}};
  EXPECT_THAT(svg(plot), HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  plot.curves[0].points = {{0, 0.5}};
  EXPECT_THROW((void)svg(plot), std::invalid_argument);
  plot.curves.clear();
  EXPECT_THROW((void)svg(plot), std::invalid_argument);
}

TEST(SnapshotSweep, GrowsWithTheSlotsUpToTheUnboundedOne) {
  const Workload workload = builtin_workload({.requests = 60});
  const SnapshotSweepOptions options{
      .pool_blocks = 40'000,
      .jobs = 2,
      .verified = {.replay = {.block_size = 16}, .snapshots = SnapshotOptions{.slot_bytes = 16}}};
  const SnapshotSweepResult result = sweep_snapshots(workload, options);
  ASSERT_EQ(result.curves.size(), 1U);
  const std::vector<VerifiedResult>& runs = result.curves[0].runs;
  ASSERT_EQ(runs.size(), result.slots.size());
  EXPECT_EQ(result.unbounded.evicted_snapshots, 0U);
  EXPECT_GT(result.unbounded.reused_tokens, 0U);
  EXPECT_EQ(runs.back().reused_tokens, result.unbounded.reused_tokens);
  EXPECT_LT(runs.front().reused_tokens, result.unbounded.reused_tokens);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    VerifiedReplayOptions single = options.verified;
    single.snapshots->slots = result.slots[i];
    EXPECT_EQ(runs[i].reused_tokens, replay_verified(workload, options.pool_blocks, single).reused_tokens);
  }
  SnapshotSweepReport report;
  report.builtin = BuiltinWorkloadOptions{};
  report.verified = options.verified;
  report.result = result;
  EXPECT_THAT(table(report), HasSubstr("Saved, in percent of the prompts' FLOPs"));
  EXPECT_EQ(Json::parse(json(report)).at("points").size(), result.slots.size() + 1);
  EXPECT_THAT(csv(report), StartsWith("policy,snapshots,reuse_rate,flop_rate,"));
  EXPECT_THAT(plot(report), HasSubstr("attention alone"));
  EXPECT_THROW((void)sweep_snapshots(workload, {.pool_blocks = 9}), std::invalid_argument);
}

TEST(SnapshotSweep, HasNoCeilingWhereStatesAreKeptInTheMiddleOfABlock) {
  SnapshotSweepReport report;
  report.builtin = BuiltinWorkloadOptions{};
  report.verified = {.prefill_chunk_tokens = 300, .snapshots = SnapshotOptions{.slot_bytes = 16}};
  const auto sweep = [&] {
    report.result = sweep_snapshots(builtin_workload({.requests = 20}),
                                    {.slots = {5}, .pool_blocks = 40'000, .verified = report.verified});
  };
  sweep();
  EXPECT_EQ(report.result.ceilings.size(), 1U) << "the pool is large enough for one";
  report.verified.snapshots->last_token = true;
  sweep();
  EXPECT_TRUE(report.result.ceilings.empty());
  EXPECT_THAT(table(report), HasSubstr("(--captures without last-token)"));
  const Json settings = Json::parse(json(report)).at("settings");
  EXPECT_EQ(settings.at("policy"), "lru");
  EXPECT_EQ(settings.at("prefill_chunk"), 300);
  EXPECT_EQ(settings.at("captures").size(), 4U);
  EXPECT_TRUE(settings.at("model").is_string());
  EXPECT_FALSE(settings.contains("snapshots")) << "that is what is swept";
}

}  // namespace
TEST(TierSweep, ReusesMoreTheMoreRoomThereIsBehindThePool) {
  const Workload workload = builtin_workload({.requests = 60});
  TierSweepOptions options{.sizes = {PoolSize::parse("200"), PoolSize::parse("100%"), PoolSize::parse("5%")},
                           .pool_blocks = 3'000,
                           .jobs = 2,
                           .verified = {.replay = {.block_size = 16}}};
  options.distinct_blocks = count_distinct_blocks(workload, options.verified.replay);
  const TierSweepResult result = sweep_tiers(workload, options);
  ASSERT_EQ(result.tier_blocks.size(), 3U);
  EXPECT_EQ(result.tier_blocks.front(), 200U);
  EXPECT_EQ(result.tier_blocks.back(), options.distinct_blocks);
  EXPECT_FALSE(result.without.tiers);
  std::uint64_t before = result.without.reused_tokens;
  for (std::size_t i = 0; i < result.runs.size(); ++i) {
    VerifiedReplayOptions single = options.verified;
    single.tiers = TierOptions{.ram_bytes = result.tier_bytes[i]};
    EXPECT_EQ(result.runs[i].reused_tokens, replay_verified(workload, options.pool_blocks, single).reused_tokens);
    EXPECT_GE(result.runs[i].reused_tokens, before);
    before = result.runs[i].reused_tokens;
  }
  EXPECT_GT(before, result.without.reused_tokens);
  TierSweepReport report;
  report.builtin = BuiltinWorkloadOptions{};
  report.verified = options.verified;
  report.result = result;
  EXPECT_THAT(table(report), HasSubstr("from the tier"));
  EXPECT_EQ(Json::parse(json(report)).at("points").size(), 4U);
  report.verified.tiers = TierOptions{.spill = {.fetch_tokens_min = 77}};
  const Json settings = Json::parse(json(report)).at("settings");
  EXPECT_EQ(settings.at("policy"), "lru");
  EXPECT_EQ(settings.at("prefill_chunk"), 2048);
  EXPECT_TRUE(settings.at("snapshots").is_null());
  EXPECT_EQ(settings.at("tiers").at("fetch_min_tokens"), 77);
  EXPECT_THAT(csv(report), StartsWith("tier_blocks,reuse_rate,"));
  EXPECT_THAT(plot(report), HasSubstr("with the tier"));
}

TEST(TierSweep, TakesMultiplesOfThePoolWhereNoSizesAreGiven) {
  const Workload workload = builtin_workload({.requests = 20});
  TierSweepOptions options{.pool_blocks = 2'000, .verified = {.replay = {.block_size = 16}}};
  options.distinct_blocks = 7'000;
  EXPECT_EQ(sweep_tiers(workload, options).tier_blocks, (std::vector<std::size_t>{1'000, 2'000, 4'000, 7'000}));
  options.distinct_blocks = 0;
  EXPECT_EQ(sweep_tiers(Workload(), options).tier_blocks, std::vector<std::size_t>{1});
}

}  // namespace cairn::replay
