// Scrapes beside requests: nothing goes down that only grows, and in the end everything adds up.
#include <atomic>
#include <latch>
#include <thread>

#include "metrics_fixture.h"
#include "support/sanitizers.h"

namespace cairn {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kRequests = testing::kSanitized ? 100 : 1000;  // of each thread
constexpr std::size_t kPromptTokens = 41;

// One thread's requests: prompts that share a start of five blocks, and part.
void serve(CacheManager& manager, std::size_t thread, std::atomic<std::uint64_t>& admitted) {
  for (std::size_t i = 0; i < kRequests; ++i) {
    Tokens prompt(kPromptTokens, 7);
    for (std::size_t at = 20; at < prompt.size(); ++at) prompt[at] = static_cast<TokenId>(thread * kRequests + i % 16);
    Admission admission = manager.admit({.tokens = prompt});
    if (!admission.lease) continue;
    admitted.fetch_add(1, std::memory_order_relaxed);
    const StepId step = 1 + thread * kRequests + i;
    admission.lease->writes(step, admission.lease->first_token_to_compute(), kPromptTokens);
    manager.step_done(step);
    admission.lease->finish();
  }
}

TEST(MetricsThreadsTest, ScrapesBesideRequestsSeeCountersThatGrowAndAddUpInTheEnd) {
  CacheManager manager(
      {.block_size = 4, .blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = kThreads * 24})});
  CacheMetrics metrics;
  metrics.add("c", manager);
  std::atomic<std::uint64_t> admitted{0};
  std::latch begin(kThreads + 1);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      begin.arrive_and_wait();
      serve(manager, thread, admitted);
    });
  }
  begin.arrive_and_wait();
  std::map<std::string, double> before;
  for (int scrape = 0; scrape < 50; ++scrape) {
    auto now = samples_of(metrics.text());
    for (const auto& [name, value] : before) {
      if (name.find("_total") != std::string::npos || name.find("_bucket") != std::string::npos) {
        EXPECT_GE(now.at(name), value) << name;
      }
    }
    before = std::move(now);
  }
  for (std::thread& thread : threads) thread.join();

  const auto samples = samples_of(metrics.text());
  const auto count = static_cast<double>(admitted.load());
  EXPECT_GT(count, 0);
  EXPECT_EQ(samples.at(R"(cairn_requests_total{cache="c"})"), count);
  EXPECT_EQ(samples.at(R"(cairn_admit_seconds_count{cache="c"})"), count);
  EXPECT_EQ(samples.at(R"(cairn_matched_tokens_count{cache="c"})"), count);
  EXPECT_EQ(samples.at(R"(cairn_ended_leases_total{cache="c",how="finished"})"), count);
  EXPECT_EQ(samples.at(R"(cairn_refusals_total{cache="c",call="admit"})"), kThreads * kRequests - count);
  EXPECT_EQ(samples.at(R"(cairn_prompt_tokens_total{cache="c",source="memory"})") +
                samples.at(R"(cairn_prompt_tokens_total{cache="c",source="computed"})"),
            count * kPromptTokens);
  EXPECT_EQ(samples.at(R"(cairn_matched_tokens_sum{cache="c"})"), static_cast<double>(manager.stats().matched_tokens));
  EXPECT_EQ(manager.validate(), "");
}

TEST(MetricsThreadsTest, CachesComeAndGoBesideScrapes) {
  CacheMetrics metrics;
  std::atomic<bool> over{false};
  std::thread scraper([&] {
    while (!over.load(std::memory_order_relaxed)) {
      EXPECT_EQ(metrics.json().find("\"schema_version\": 1"), 4U);
    }
  });
  for (int i = 0; i < 100; ++i) {
    const RadixTree tree({.block_size = 4});
    metrics.add("passing", tree);
    EXPECT_NE(metrics.text().find("passing"), std::string::npos);
    metrics.remove("passing");
  }
  over.store(true, std::memory_order_relaxed);
  scraper.join();
  EXPECT_EQ(metrics.text(), "");
}

}  // namespace
}  // namespace cairn
