// Policies, priorities and pinned prefixes, as an engine asks for them.
#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using std::chrono::seconds;
using Outcome = PrefixPin::Outcome;

class Retention : public EngineTest {
 protected:
  Retention() : EngineTest({.blocks = 4}) {}

  void start_with(CacheManagerOptions options) {
    options.clock = [this] { return now_; };
    start({.blocks = 4}, std::move(options));
  }
  // A request that computes what is not cached and publishes all its full blocks.
  void serve(std::string_view text, std::span<const PrioritySpan> priorities = {}) {
    const Tokens prompt = tokens(text);
    Lease lease = admit({.tokens = prompt, .priorities = priorities});
    compute(lease, prompt.size());
    lease.finish();
  }
  [[nodiscard]] std::size_t cached(std::string_view text) const {
    Tokens prompt = tokens(text);
    prompt.push_back(0);  // the last token is always computed
    return manager_->peek({.tokens = prompt}).matched_tokens;
  }

  std::chrono::steady_clock::time_point now_{seconds(1000)};
};

TEST_F(Retention, AnUnknownPolicyIsRefused) {
  expect_refusal([this] { start({.blocks = 4}, {.block_policy = "mru"}); }, {"block_policy", "mru", "lru"});
}

TEST_F(Retention, WhatARequestMarksStaysUntilItsTimeIsOver) {
  start_with({.block_policy = "priority"});
  const std::vector<PrioritySpan> system = {{.from = 0, .to = 4, .priority = 10, .keep_for = seconds(60)}};
  serve("ssss aaaa", system);
  serve("bbbb cccc dddd");  // takes the place of aaaa: ssss is marked
  EXPECT_EQ(cached("ssss"), 4U);
  EXPECT_EQ(cached("ssss aaaa"), 4U);
  now_ += seconds(60);
  serve("eeee");
  EXPECT_EQ(cached("ssss"), 0U);
}

TEST_F(Retention, ABlockInSeveralSpansHasTheHighestPriority) {
  start_with({.block_policy = "priority"});
  const std::vector<PrioritySpan> spans = {{.from = 0, .to = 4, .priority = 10}, {.priority = -10}};
  serve("ssss", spans);
  serve("aaaa bbbb cccc");
  serve("dddd eeee");
  EXPECT_EQ(cached("ssss"), 4U);
}

TEST_F(Retention, OtherPoliciesLetPrioritiesPass) {
  start_with({});
  const std::vector<PrioritySpan> spans = {{.priority = 10}};
  serve("ssss", spans);
  serve("aaaa bbbb cccc dddd");
  EXPECT_EQ(cached("ssss"), 0U);
}

TEST_F(Retention, SpansThatSayNothingAreRefused) {
  const Tokens prompt = tokens("aaaa");
  const std::vector<PrioritySpan> empty = {{.from = 3, .to = 3}};
  expect_refusal([&] { static_cast<void>(manager().admit({.tokens = prompt, .priorities = empty})); },
                 {"priorities", "[3, 3)"});
  const std::vector<PrioritySpan> past = {{.keep_for = seconds(-1)}};
  expect_refusal([&] { static_cast<void>(manager().admit({.tokens = prompt, .priorities = past})); },
                 {"priorities", "keep_for"});
}

TEST_F(Retention, APinnedPrefixStaysUntilItIsUnpinned) {
  start_with({.pinned_blocks_max = 1});
  const Tokens prompt = tokens("ssss aaaa");
  const Tokens system = tokens("ssss");
  EXPECT_EQ(manager().pin_prefix({.tokens = system, .adapter = "poet"}).outcome, Outcome::kNotCached);
  serve("ssss aaaa");
  const PrefixPin pin = manager().pin_prefix({.tokens = system});
  EXPECT_EQ(pin.outcome, Outcome::kPinned);
  EXPECT_EQ(manager().pin_prefix({.tokens = prompt}).outcome, Outcome::kOverBudget);
  EXPECT_EQ(manager().pinned_blocks(), 1U);
  serve("bbbb cccc dddd");
  EXPECT_EQ(cached("ssss"), 4U);
  EXPECT_TRUE(manager().unpin_prefix(pin.id));
  EXPECT_FALSE(manager().unpin_prefix(pin.id));
  serve("eeee ffff gggg hhhh");
  EXPECT_EQ(cached("ssss"), 0U);
}

TEST_F(Retention, AClearTakesPinnedBlocksToo) {
  start_with({.pinned_blocks_max = 2});
  serve("ssss");
  const Tokens system = tokens("ssss");
  const PrefixPin pin = manager().pin_prefix({.tokens = system});
  EXPECT_EQ(manager().clear().blocks, 1U);
  EXPECT_EQ(manager().pinned_blocks(), 0U);
  EXPECT_FALSE(manager().unpin_prefix(pin.id));
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(Retention, AClearForgetsWhomPinsWereFor) {
  start_with({.pinned_blocks_max = 2, .adapters_max = 1});
  const Tokens prompt = tokens("ssss x");
  const Tokens system = tokens("ssss");
  for (StepId step = 1; step <= 3; ++step) {
    const Request request{.tokens = prompt, .adapter = "poet", .adapter_generation = step};
    Admission admission = manager().admit(request);
    admission.lease->writes(1000 + step, 0, prompt.size());
    manager().step_done(1000 + step);
    admission.lease->finish();
    const PrefixPin pin = manager().pin_prefix({.tokens = system, .adapter = "poet", .adapter_generation = step});
    ASSERT_EQ(pin.outcome, Outcome::kPinned);
    (void)manager().clear("poet");
    EXPECT_FALSE(manager().unpin_prefix(1000 + pin.id));
  }
  EXPECT_EQ(manager().clear("poet").adapters, 1U) << "nobody uses the others, and one idle name is remembered";
}

TEST_F(Retention, AManagerGivesPinnedBlocksBackAtItsEnd) {
  start_with({.pinned_blocks_max = 2});
  serve("ssss aaaa");
  const Tokens prompt = tokens("ssss aaaa");
  EXPECT_EQ(manager().pin_prefix({.tokens = prompt}).outcome, Outcome::kPinned);
  destroy_manager();
  EXPECT_EQ(used_blocks(), 0U);
}

}  // namespace
}  // namespace cairn
