// CacheManager's options, what its counts add up to, and peek.
#include <algorithm>

#include "engine/engine_fixture.h"

namespace cairn {
namespace {

using OptionsTest = AttentionTest;
using StatsTest = HybridTest;
using PeekTest = HybridTest;

// ---- Options ----

TEST_F(OptionsTest, OptionsThatCannotBeAreRefusedByName) {
  const auto refused = [&](CacheManagerOptions options, std::initializer_list<std::string_view> parts) {
    expect_refusal([&] { const CacheManager unused(std::move(options)); }, parts);
  };
  refused({.block_size = 0, .blocks = blocks_}, {"block_size", "0"});
  refused({.block_size = 4}, {"blocks", "snapshots", "neither"});
  refused({.block_size = 4, .blocks = blocks_, .sliding_window_tokens = 1024},
          {"sliding_window_tokens", "1024", "not supported yet"});
  refused({.block_size = 4, .blocks = blocks_, .checkpoint_every_tokens = 6},
          {"checkpoint_every_tokens", "6", "multiple of block_size", "4"});
}

TEST_F(OptionsTest, AnEmptyPromptIsRefused) {
  expect_refusal([&] { (void)manager().admit({.tokens = {}}); }, {"tokens", "empty"});
  expect_refusal([&] { (void)manager().peek({.tokens = {}}); }, {"tokens", "empty"});
}

// An engine with blocks of its own.
class CountingAllocator final : public BlockAllocator {
 public:
  bool allocate(std::size_t count, std::vector<BlockId>& out) override { return pool_.allocate(count, out); }
  void add_references(std::span<const BlockId> blocks) noexcept override { pool_.add_references(blocks); }
  void drop_references(std::span<const BlockId> blocks) noexcept override { pool_.drop_references(blocks); }
  [[nodiscard]] std::size_t free_blocks() const noexcept override { return pool_.free_blocks(); }
  [[nodiscard]] std::size_t total_blocks() const noexcept override { return pool_.total_blocks(); }

 private:
  BlockPool pool_{BlockPoolOptions{.blocks = 4}};
};

TEST_F(OptionsTest, AnEngineMayBringABlockAllocatorOfItsOwn) {
  const auto allocator = std::make_shared<CountingAllocator>();
  {
    CacheManager own({.block_size = kBlockSize, .blocks = allocator});
    Admission admission = own.admit({.tokens = tokens("aaaa b")});
    ASSERT_TRUE(admission.lease);
    admission.lease->writes(1, 0, 5);
    own.step_done(1);
    admission.lease->finish();
    EXPECT_EQ(own.peek({.tokens = tokens("aaaa b")}).matched_tokens, 4U);
    EXPECT_EQ(allocator->free_blocks(), 3U);
    EXPECT_TRUE(own.admit({.tokens = Tokens(17, 'x')}).never_fits);
    EXPECT_EQ(own.validate(), "");
  }
  EXPECT_EQ(allocator->free_blocks(), 4U);
}

// ---- Counts ----

TEST_F(StatsTest, EachKindOfCaptureIsCostedAlone) {
  start({.blocks = 32, .slots = 8}, {.capture_last_token = true, .checkpoint_every_tokens = 4});
  const Tokens first = tokens("aaaa bbbb cccc dddd e");
  {
    Lease lease = admit({.tokens = first, .session = 1});
    compute_as_planned(lease);  // checkpoint 4, sibling 8, tail 12, checkpoint 16, last token 17
    lease.finish();
  }
  CapturesByKind captures = stats().captures;
  EXPECT_EQ(captures.tails.captures, 1U);
  EXPECT_EQ(captures.siblings.captures, 1U);
  EXPECT_EQ(captures.checkpoints.captures, 2U);
  EXPECT_EQ(captures.last_tokens.captures, 1U);
  EXPECT_EQ(captures.checkpoints.bytes, 2 * slots_->slot_bytes());
  const auto go_on = [&](const char* prompt, SessionHash session) {
    const Lease lease = admit({.tokens = tokens(prompt), .session = session, .no_publish = true});
    return lease.first_token_to_compute();
  };
  EXPECT_EQ(go_on("aaaa bbbb cccc xxxx y", 1), 12U);
  EXPECT_EQ(go_on("aaaa bbbb xxxx y", 1), 8U);
  EXPECT_EQ(go_on("aaaa bbbb xxxx y", 2), 4U);
  EXPECT_EQ(go_on("aaaa bbbb cccc dddd ffff", 2), 16U);
  captures = stats().captures;
  EXPECT_EQ(captures.tails.uses, 1U);
  EXPECT_EQ(captures.tails.reused_tokens, 12U);
  EXPECT_EQ(captures.siblings.reused_tokens, 8U);
  EXPECT_EQ(captures.checkpoints.uses, 2U);
  EXPECT_EQ(captures.checkpoints.reused_tokens, 4U + 16);
  EXPECT_EQ(captures.shared_tails.captures + captures.branch_points.captures + captures.from_store.uses, 0U);
}

TEST_F(StatsTest, AStateOfWhereThePromptEndedServesWhoGoesOnFromThere) {
  start({.blocks = 32, .slots = 8}, {.capture_tails = false, .capture_last_token = true});
  {
    Lease lease = admit({.tokens = tokens("aaaa bbbb cc")});
    compute_as_planned(lease);
    const Tokens decoded = tokens("ddd");
    lease.append(decoded);
    ASSERT_EQ(lease.reserve(13), 0U);
    compute(lease);
    EXPECT_TRUE(capture(lease, 13)) << "beyond the prompt it counts as the same";
    lease.finish();
  }
  EXPECT_EQ(stats().captures.last_tokens.captures, 2U);
  {
    const Lease next = admit({.tokens = tokens("aaaa bbbb ccdd xxxx"), .no_publish = true});
    EXPECT_EQ(next.first_token_to_compute(), 10U);
  }
  EXPECT_EQ(stats().captures.last_tokens.reused_tokens, 10U);
}

TEST_F(StatsTest, EachPromptTokenIsReusedOrComputedAndWhatWasLostForLackOfStateIsNamed) {
  cache_with_states({.tokens = tokens("aaaa bbbb cccc d")}, {4});  // 13 computed
  EXPECT_EQ(stats().computed_tokens, 13U);
  cache({.tokens = tokens("aaaa bbbb cccc d")});  // 12 matched, 4 reused
  cache({.tokens = tokens("aaaa x")});            // 4 matched and reused
  cache({.tokens = tokens("xxxx y")});            // 0 matched
  const ManagerStats s = stats();
  EXPECT_EQ(s.requests, 4U);
  EXPECT_EQ(s.prompt_tokens, 13U + 13U + 5U + 5U);
  EXPECT_EQ(s.reused_tokens, 4U + 4U);
  EXPECT_EQ(s.computed_tokens, s.prompt_tokens - 8U);
  EXPECT_EQ(s.matched_tokens, 12U + 4U);
  EXPECT_EQ(s.stateless_tokens, 8U);
  EXPECT_EQ(s.finished, 4U);
  EXPECT_EQ(s.live_leases, 0U);
}

TEST_F(StatsTest, EachMatchIsInTheBucketOfItsSize) {
  start({.blocks = 64});
  const Tokens prompt(40, 'a');
  const auto first = [&](std::size_t n) { return Request{.tokens = std::span(prompt).first(n)}; };
  cache(first(40));                                                // 0 matched
  for (const std::size_t n : {17UL, 21UL, 36UL}) cache(first(n));  // 16, 20, 32
  const Histogram matched = manager().histograms().matched_tokens;
  ASSERT_GE(matched.bounds.size(), 4U);
  EXPECT_EQ(std::vector(matched.bounds.begin(), matched.bounds.begin() + 3), (std::vector<double>{0, 16, 32}));
  EXPECT_EQ(matched.counts.size(), matched.bounds.size() + 1);
  EXPECT_EQ(std::vector(matched.counts.begin(), matched.counts.begin() + 4), (std::vector<std::uint64_t>{1, 1, 2, 0}));
  EXPECT_EQ(matched.sum, 68);
}

TEST_F(StatsTest, AnAdmissionIsTimedIfItGivesALease) {
  start({.blocks = 4});
  const Tokens prompt(16, 'a');
  Lease lease = admit({.tokens = prompt});
  EXPECT_FALSE(manager().admit({.tokens = prompt}).lease);
  const Histogram admit_seconds = manager().histograms().admit_seconds;
  EXPECT_EQ(count_of(admit_seconds), 1U);
  EXPECT_GT(admit_seconds.sum, 0);
  EXPECT_EQ(admit_seconds.bounds.back(), 1);
  EXPECT_TRUE(std::ranges::is_sorted(admit_seconds.bounds));
  lease.abandon();
}

TEST_F(StatsTest, WithoutHistogramsNothingIsObserved) {
  start({.blocks = 4}, {.histograms = false});
  cache({.tokens = tokens("aaaa b")});
  const ManagerHistograms histograms = manager().histograms();
  EXPECT_EQ(count_of(histograms.admit_seconds) + count_of(histograms.matched_tokens), 0U);
  EXPECT_TRUE(histograms.admit_seconds.bounds.empty());
  EXPECT_EQ(stats().requests, 1U);
}

TEST_F(StatsTest, WhatIsGoingOnNowIsCounted) {
  cache_with_states({.tokens = tokens("aaaa b")}, {4});
  Lease reader = admit({.tokens = tokens("aaaa b")});
  Lease writer = admit({.tokens = tokens("xxxx y")});
  writer.writes(1, 0, 4);
  writer.writes(2, 4, 5);
  EXPECT_EQ(stats().live_leases, 2U);
  EXPECT_EQ(stats().pinned_snapshots, 1U);
  EXPECT_EQ(stats().steps_in_flight, 2U);
  writer.abandon();
  EXPECT_EQ(stats().live_leases, 1U);
  EXPECT_EQ(stats().waiting_for_steps, 1U);
  manager().step_done(2);
  EXPECT_EQ(stats().waiting_for_steps, 1U);
  manager().step_done(1);
  EXPECT_EQ(stats().waiting_for_steps, 0U);
  EXPECT_EQ(stats().steps_in_flight, 0U);
  reader.abandon();
  EXPECT_EQ(stats().live_leases, 0U);
  EXPECT_EQ(stats().pinned_snapshots, 0U);
}

TEST_F(StatsTest, ARefusedReserveIsCountedAndLeavesTheLeaseAsItWas) {
  start({.blocks = 3, .slots = 1});
  Lease lease = admit({.tokens = tokens("aaaa b")});
  const Blocks table = table_of(lease);
  EXPECT_EQ(lease.reserve(16), 1U);
  EXPECT_EQ(stats().refused_reserves, 1U);
  EXPECT_EQ(table_of(lease), table);
  EXPECT_EQ(used_blocks(), 2U);
  EXPECT_EQ(lease.reserve(12), 0U);
  EXPECT_EQ(lease.reserve(1), 0U) << "there is room already";
  EXPECT_EQ(lease.block_table().size(), 3U);
}

TEST_F(StatsTest, ReserveEvictsWhatNobodyUses) {
  start({.blocks = 3});
  cache({.tokens = tokens("xxxx y")});
  Lease lease = admit({.tokens = tokens("aaaa b")});
  EXPECT_EQ(lease.reserve(12), 0U);
  EXPECT_EQ(stats().evicted_blocks, 1U);
  EXPECT_EQ(matched({.tokens = tokens("xxxx y")}), 0U);
}

TEST_F(StatsTest, AStepThatFailsIsCountedIfItWasInFlight) {
  manager().step_failed(1);
  EXPECT_EQ(stats().failed_steps, 0U);
  Lease lease = admit({.tokens = tokens("aaaa b")});
  lease.writes(1, 0, 4);
  manager().step_failed(1);
  manager().step_failed(1);
  EXPECT_EQ(stats().failed_steps, 1U);
}

// ---- peek ----

TEST_F(PeekTest, PeekSaysWhatAdmitThenFinds) {
  const MediaSpan cat[] = {{.position = 2, .length = 3, .content_id = {1, 2}}};
  cache_with_states({.tokens = tokens("aaaa bbbb cccc d")}, {4, 10});
  cache_with_states({.tokens = tokens("aaaa bbbb xxxx y"), .session = 1}, {4, 8});
  cache_with_states({.tokens = tokens("aaaa bbbb c"), .adapter = "lora"}, {8});
  cache_with_states({.tokens = tokens("aapp pbbb c"), .media = cat}, {8});
  const std::string_view prompts[] = {"a",           "aaaa",           "aaaa b",           "aaaa bbbb",
                                      "aaaa bbbb c", "aaaa bbbb cccc", "aaaa bbbb cccc d", "aaaa bbbb xxxx z",
                                      "aapp pbbb c", "xxxx y"};
  std::size_t found = 0;
  for (const std::string_view text : prompts) {
    const Tokens prompt = tokens(text);
    const auto media = prompt.size() >= 5 ? std::span<const MediaSpan>(cat) : std::span<const MediaSpan>();
    const Request requests[] = {{.tokens = prompt},
                                {.tokens = prompt, .session = 1},
                                {.tokens = prompt, .adapter = "lora"},
                                {.tokens = prompt, .adapter = "unknown"},
                                {.tokens = prompt, .media = media},
                                {.tokens = prompt, .no_read = true},
                                {.tokens = prompt, .reuse_tokens_max = 9}};
    for (const Request& request : requests) {
      const Peeked peeked = manager().peek(request);
      const ManagerStats before = stats();
      const Lease lease = admit(request);
      EXPECT_EQ(peeked.reusable_tokens, lease.first_token_to_compute()) << text;
      EXPECT_EQ(peeked.matched_tokens, stats().matched_tokens - before.matched_tokens) << text;
      found += peeked.reusable_tokens;
    }
  }
  EXPECT_GT(found, 0U);
}

TEST_F(PeekTest, PeekHasNoEffect) {
  start({.blocks = 3, .slots = 2});
  cache_with_states({.tokens = tokens("aaaa b")}, {4});
  cache_with_states({.tokens = tokens("xxxx y")}, {4});
  const ManagerStats before = stats();
  const Peeked peeked = manager().peek({.tokens = tokens("aaaa b")});
  EXPECT_EQ(peeked.matched_tokens, 4U);
  EXPECT_EQ(peeked.reusable_tokens, 4U);
  EXPECT_EQ(stats().requests, before.requests);
  EXPECT_EQ(stats().matched_tokens, before.matched_tokens);
  EXPECT_EQ(stats().prompt_tokens, before.prompt_tokens);
  EXPECT_EQ(stats().pinned_snapshots, 0U);
  // What was peeked at was used longest ago all the same: it goes first.
  Lease lease = admit({.tokens = tokens("pppp q")});
  EXPECT_EQ(matched({.tokens = tokens("aaaa b")}), 0U);
  EXPECT_EQ(matched({.tokens = tokens("xxxx y")}), 4U);
  compute(lease);
  EXPECT_TRUE(capture(lease, 4));
  EXPECT_EQ(reusable({.tokens = tokens("xxxx y")}), 4U);
}

TEST_F(PeekTest, PeekIsRecurrentToo) {
  start({.slots = 4});
  cache_with_states({.tokens = tokens("aaaa b")}, {3, 5});
  EXPECT_EQ(matched({.tokens = tokens("aaaa b")}), 0U);
  EXPECT_EQ(reusable({.tokens = tokens("aaaa b")}), 3U);
  EXPECT_EQ(reusable({.tokens = tokens("aaaa b c")}), 5U);
  EXPECT_EQ(reusable({.tokens = tokens("aaaa b c"), .no_read = true}), 0U);
  EXPECT_EQ(reusable({.tokens = tokens("aaaa b c"), .adapter = "lora"}), 0U);
}

}  // namespace
}  // namespace cairn
