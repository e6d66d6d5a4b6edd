// What CacheMetrics shows of caches whose course is known.
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "metrics_fixture.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MetricsTest : public TiersTest {
 protected:
  // Five requests against eight blocks and three slots, a store behind them: of 80 prompt tokens 12 + 4 are reused
  // from memory and 12 from the store. One more is refused.
  void run_known_course() {
    start({.blocks = 8, .slots = 3}, {.hash_seed = 1});
    cache({.tokens = tokens("aaaa bbbb cccc d")}, {4, 12});
    cache({.tokens = tokens("aaaa bbbb cccc d")});
    cache({.tokens = tokens("aaaa xxxx y")});
    push_out_blocks();
    cache({.tokens = tokens("aaaa bbbb cccc d")});
    EXPECT_FALSE(manager().admit({.tokens = Tokens(33, 1)}).lease);
  }

  // Without what depends on the clock.
  [[nodiscard]] static std::string without_times(const std::string& text) {
    std::istringstream lines(text);
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
      const bool is_time = line.starts_with("cairn_admit_seconds_bucket") ||
                           line.starts_with("cairn_load_seconds_b") || line.starts_with("cairn_admit_seconds_sum") ||
                           line.starts_with("cairn_load_seconds_sum") ||
                           line.starts_with("cairn_fetch_bytes_per_second{");
      if (!is_time) kept += line + "\n";
    }
    return kept;
  }
};

TEST_F(MetricsTest, AKnownCacheShowsKnownText) {
  run_known_course();
  CacheMetrics metrics;
  metrics.add("known", manager());
  EXPECT_EQ(without_times(metrics.text()), contents_of(CAIRN_METRICS_GOLDEN));
}

TEST_F(MetricsTest, WhatShouldAddUpDoes) {
  run_known_course();
  CacheMetrics metrics;
  metrics.add("c", manager());
  const auto samples = samples_of(metrics.text());
  const auto at = [&](const std::string& name, const std::string& more = "") {
    return samples.at(name + "{cache=\"c\"" + more + "}");
  };
  const ManagerStats s = stats();
  EXPECT_GT(s.reused_tokens, 0U);
  EXPECT_EQ(at("cairn_prompt_tokens_total", R"(,source="memory")") +
                at("cairn_prompt_tokens_total", R"(,source="ram_tier")") +
                at("cairn_prompt_tokens_total", R"(,source="file_tier")") +
                at("cairn_prompt_tokens_total", R"(,source="computed")"),
            static_cast<double>(s.prompt_tokens));
  EXPECT_EQ(at("cairn_matched_tokens_count"), at("cairn_requests_total"));
  EXPECT_EQ(at("cairn_matched_tokens_sum"), static_cast<double>(s.matched_tokens));
  EXPECT_EQ(at("cairn_admit_seconds_count"),
            at("cairn_requests_total") + at("cairn_resumed_requests_total") + at("cairn_loading_leases"));
  double published = 0;
  double reused_by_kind = 0;
  for (const auto& [name, value] : samples) {
    if (name.starts_with("cairn_published_captures_total")) published += value;
    if (name.starts_with("cairn_snapshot_reused_tokens_total")) reused_by_kind += value;
  }
  EXPECT_EQ(published, at("cairn_captures_total", R"(,outcome="published")"));
  EXPECT_EQ(reused_by_kind, static_cast<double>(s.reused_tokens));
  EXPECT_EQ(at("cairn_load_seconds_count"), at("cairn_fetches_total"));
  EXPECT_EQ(at("cairn_ended_leases_total", R"(,how="finished")") +
                at("cairn_ended_leases_total", R"(,how="preempted")") +
                at("cairn_ended_leases_total", R"(,how="abandoned")") + at("cairn_live_leases"),
            at("cairn_requests_total") + at("cairn_resumed_requests_total") + at("cairn_forks_total"));
  EXPECT_EQ(at("cairn_blocks", R"(,state="free")") + at("cairn_blocks", R"(,state="used")"), 8);
  EXPECT_EQ(at("cairn_block_memory_bytes", R"(,state="used")"),
            at("cairn_blocks", R"(,state="used")") * static_cast<double>(kBlockBytes));
  EXPECT_EQ(at("cairn_index_created_blocks_total") - at("cairn_index_removed_blocks_total", R"(,reason="evicted")") -
                at("cairn_index_removed_blocks_total", R"(,reason="cleared")"),
            at("cairn_cached_blocks"));
}

TEST_F(MetricsTest, HistogramsAreCumulative) {
  run_known_course();
  CacheMetrics metrics;
  metrics.add("c", manager());
  bool found = false;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    if (family.name != "cairn_matched_tokens") continue;
    found = true;
    ASSERT_EQ(family.metric.size(), 1U);
    const auto& histogram = family.metric.front().histogram;
    EXPECT_TRUE(std::ranges::is_sorted(histogram.bucket, {}, &prometheus::ClientMetric::Bucket::cumulative_count));
    EXPECT_EQ(histogram.bucket.front().upper_bound, 0) << "prompts of which nothing matched";
    EXPECT_EQ(histogram.bucket.back().cumulative_count, histogram.sample_count);
    EXPECT_EQ(histogram.sample_count, stats().requests);
  }
  EXPECT_TRUE(found);
}

TEST_F(MetricsTest, SwitchedOffHistogramsAreNotShown) {
  start({}, {.histograms = false});
  CacheMetrics metrics;
  metrics.add("c", manager());
  EXPECT_THAT(metrics.text(), Not(HasSubstr("cairn_admit_seconds")));
  EXPECT_THAT(metrics.text(), HasSubstr("cairn_requests_total"));
}

TEST_F(MetricsTest, EstimatesOfOtherSizesAreShownUnlessTheyAreOff) {
  start({});
  CacheManager without(
      {.blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = 5}), .estimate_sizes = false});
  CacheMetrics metrics;
  metrics.add("with", manager());
  metrics.add("without", without);
  const auto samples = samples_of(metrics.text());
  const SizeEstimates estimates = manager().size_estimates();
  for (const SizeEstimate& size : estimates.sizes) EXPECT_GT(size.factor, 0);
  for (const char* size : {"0.5", "1", "2", "4"}) {
    EXPECT_TRUE(samples.contains(R"(cairn_estimated_hit_ratio{cache="with",size=")" + std::string(size) + "\"}"))
        << size;
  }
  EXPECT_FALSE(samples.contains(R"(cairn_estimated_hit_ratio{cache="without",size="1"})"));
}

TEST_F(MetricsTest, EachCacheHasItsName) {
  start({});
  CacheManager other({.blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = 5})});
  CacheMetrics metrics;
  metrics.add("one", manager());
  metrics.add("other", other);
  const auto samples = samples_of(metrics.text());
  EXPECT_EQ(samples.at(R"(cairn_blocks{cache="one",state="free"})"), 8);
  EXPECT_EQ(samples.at(R"(cairn_blocks{cache="other",state="free"})"), 5);
  EXPECT_FALSE(samples.contains(R"(cairn_snapshot_slots{cache="one",state="free"})")) << "it has none";
  EXPECT_FALSE(samples.contains(R"(cairn_block_memory_bytes{cache="other",state="free"})")) << "ids only";
  metrics.remove("one");
  metrics.remove("nobody");
  EXPECT_THAT(metrics.text(), Not(HasSubstr("\"one\"")));
  EXPECT_THAT(metrics.text(), HasSubstr("\"other\""));
}

TEST_F(MetricsTest, AnIndexAloneShowsWhatItCounts) {
  RadixTree tree({.block_size = 4});
  CacheMetrics metrics;
  metrics.add("tree", tree);
  (void)tree.lookup(tokens("aaaa bbbb c"), 4, 0, 0);
  const auto samples = samples_of(metrics.text());
  EXPECT_EQ(samples.at(R"(cairn_index_lookups_total{cache="tree"})"), 1);
  EXPECT_EQ(samples.at(R"(cairn_index_lookup_tokens_total{cache="tree",result="miss"})"), 9);
  EXPECT_FALSE(samples.contains(R"(cairn_requests_total{cache="tree"})"));
}

TEST_F(MetricsTest, LabelsAreEscaped) {
  start({});
  CacheMetrics metrics;
  metrics.add("a\"b\\c\nd \xC3\xA9", manager());
  EXPECT_THAT(metrics.text(), HasSubstr("cairn_requests_total{cache=\"a\\\"b\\\\c\\nd \xC3\xA9\"} 0\n"));
  EXPECT_TRUE(nlohmann::json::parse(metrics.json())["caches"].contains("a\"b\\c\nd \xC3\xA9"));
}

TEST_F(MetricsTest, NamesThatCannotBeAreRefused) {
  start({});
  CacheMetrics metrics;
  expect_refusal([&] { metrics.add("", manager()); }, {"name", "empty"});
  expect_refusal([&] { metrics.add("a\xFF", manager()); }, {"name", "UTF-8"});
  metrics.add("a", manager());
  expect_refusal([&] { metrics.add("a", manager()); }, {"name", "'a'", "already"});
}

TEST_F(MetricsTest, JsonSaysTheSameAsText) {
  run_known_course();
  CacheMetrics metrics;
  metrics.add("c", manager());
  const auto all = nlohmann::json::parse(metrics.json());
  EXPECT_EQ(all["schema_version"], 1);
  const auto& cache = all["caches"]["c"];
  EXPECT_EQ(cache["store"]["degraded_reason"], "");
  EXPECT_EQ(cache["block_pool"]["last_error"], "");
  std::size_t compared = 0;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      const auto& shown = metric.label.size() == 1 ? cache[family.name] : cache[family.name][metric.label[1].value];
      ++compared;
      if (family.type == prometheus::MetricType::Histogram) {
        EXPECT_EQ(shown["count"], metric.histogram.sample_count) << family.name;
        EXPECT_EQ(shown["sum"], metric.histogram.sample_sum) << family.name;
        EXPECT_EQ(shown["buckets"].back()["count"], metric.histogram.bucket.back().cumulative_count) << family.name;
      } else {
        EXPECT_EQ(shown, metric.counter.value + metric.gauge.value) << family.name;
      }
    }
  }
  EXPECT_GT(compared, 80U);
}

TEST_F(MetricsTest, AStoreOfFilesSaysHowItReadsThem) {
  const auto buffers = std::make_shared<SpillBuffers>(
      SpillLayout{.fingerprint = {.weights = "w"}, .block_size = kBlockSize, .block_bytes = kBlockBytes}, 1 << 20);
  const std::string directory = ::testing::TempDir() + "cairn_metrics_" + std::to_string(::getpid());
  {
    OpenedStore opened = open_file_store(
        {.buffers = buffers, .directory = directory, .bytes_max = 1 << 24, .io = FileStoreOptions::Io::kThreads});
    ASSERT_TRUE(opened.store) << opened.error.message;
    CacheManager with_files({.block_size = kBlockSize,
                             .blocks = std::make_shared<BlockPool>(BlockPoolOptions{8, kBlockBytes}),
                             .store = opened.store});
    Admission admission = with_files.admit({.tokens = tokens("aaaa bbbb c")});
    ASSERT_TRUE(admission.lease);
    admission.lease->writes(1, 0, 9);
    with_files.step_done(1);
    admission.lease->finish();
    EXPECT_EQ(with_files.save(std::chrono::seconds(60)).blocks, 2U);
    CacheMetrics metrics;
    metrics.add("c", with_files);
    const auto samples = samples_of(metrics.text());
    EXPECT_EQ(samples.at(R"(cairn_store_info{cache="c",io="pread/pwrite"})"), 1);
    EXPECT_EQ(samples.at(R"(cairn_store_degraded{cache="c"})"), 0);
    EXPECT_EQ(samples.at(R"(cairn_store_puts_total{cache="c"})"), 2);
    EXPECT_EQ(samples.at(R"(cairn_store_records{cache="c",tier="file"})"), 2);
    EXPECT_GE(samples.at(R"(cairn_store_written_bytes_total{cache="c"})"), 2 * kBlockBytes);
    EXPECT_EQ(samples.at(R"(cairn_spilled_records_total{cache="c",kind="block"})"), 2);
    EXPECT_EQ(samples.at(R"(cairn_store_buffer_bytes{cache="c",state="free"})") +
                  samples.at(R"(cairn_store_buffer_bytes{cache="c",state="used"})"),
              1 << 20);
    EXPECT_EQ(nlohmann::json::parse(metrics.json())["caches"]["c"]["store"]["io"], "pread/pwrite");
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace cairn
