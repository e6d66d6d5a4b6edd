// What pools of other sizes would have found, by the running cache's own estimate.
#include "engine/size_estimator.h"

#include <cairn/block_pool.h>
#include <cairn/cache_manager.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace cairn {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::size_t kBlockSize = 1024;  // so that each block is a mark

CacheManager manager_of(std::size_t blocks, std::size_t block_size = kBlockSize, bool estimates = true) {
  return CacheManager({.block_size = block_size,
                       .blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = blocks}),
                       .estimate_sizes = estimates,
                       .hash_seed = 7});
}

// One request, computed in steps of so many blocks, and ended.
void serve(CacheManager& manager, const Request& request, std::size_t chunk_tokens = 3 * kBlockSize) {
  Admission admission = manager.admit(request);
  ASSERT_TRUE(admission.lease);
  Lease& lease = *admission.lease;
  static thread_local StepId step = 0;
  for (std::size_t from = lease.first_token_to_compute(); from < request.tokens.size(); from += chunk_tokens) {
    lease.writes(++step, from, std::min(from + chunk_tokens, request.tokens.size()));
    manager.step_done(step);
    lease.publish();
  }
  lease.finish();
}

Tokens prompt_of(const std::vector<TokenId>& blocks) {
  Tokens tokens;
  for (const TokenId block : blocks) tokens.insert(tokens.end(), kBlockSize, block);
  tokens.push_back(0);  // the last token is always computed
  return tokens;
}

// An unbounded stack of blocks, each named by all that comes before: a pool of n blocks would have the first n.
class NaiveStack {
 public:
  using Path = std::vector<TokenId>;

  void use(const Path& request, std::array<std::uint64_t, 4>& hits, const std::array<std::size_t, 4>& sizes) {
    for (std::size_t depth = 1; depth <= request.size(); ++depth) {
      const Path path(request.begin(), request.begin() + static_cast<std::ptrdiff_t>(depth));
      const auto found = std::ranges::find(stack_, path);
      const auto above = static_cast<std::size_t>(std::distance(stack_.begin(), found));
      for (std::size_t i = 0; i < sizes.size(); ++i) hits[i] += found != stack_.end() && above < sizes[i] ? 1 : 0;
    }
    for (std::size_t depth = request.size(); depth > 0; --depth) {
      const Path path(request.begin(), request.begin() + static_cast<std::ptrdiff_t>(depth));
      stack_.remove(path);
      stack_.push_front(path);
    }
  }

 private:
  std::list<Path> stack_;
};

TEST(SizeEstimator, AgreesWithAStackOfAllBlocksWhereAllAreInTheSample) {
  std::mt19937_64 random(3);
  for (const std::size_t pool : {std::size_t{12}, std::size_t{20}, std::size_t{32}}) {
    CacheManager manager = manager_of(pool);
    NaiveStack naive;
    std::array<std::uint64_t, 4> hits{};
    const std::array<std::size_t, 4> sizes = {pool / 2, pool, 2 * pool, 4 * pool};
    std::uint64_t asked = 0;
    for (int i = 0; i < 400; ++i) {
      std::vector<TokenId> blocks(1 + random() % 8);
      for (TokenId& block : blocks) block = static_cast<TokenId>(1 + random() % 2 + random() % 2);
      for (std::size_t times = 1 + random() % 3; times > 0; --times) {
        serve(manager, {.tokens = prompt_of(blocks)}, (1 + random() % 4) * kBlockSize);
        naive.use(blocks, hits, sizes);
        asked += blocks.size();
      }
    }
    const SizeEstimates estimates = manager.size_estimates();
    EXPECT_EQ(estimates.sampled_blocks, asked);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(estimates.sizes[i].blocks, sizes[i]);
      EXPECT_DOUBLE_EQ(estimates.sizes[i].hit_rate, static_cast<double>(hits[i]) / static_cast<double>(asked))
          << sizes[i] << " blocks";
    }
    EXPECT_LT(hits[0], hits[3]);
    EXPECT_EQ(manager.validate(), "");
  }
}

TEST(SizeEstimator, SaysThatTwiceTheMemoryWouldHoldWhatIsAskedForInTurns) {
  CacheManager manager = manager_of(10);
  // Twelve blocks in turns: by the time that one is asked for again, ten have pushed it out.
  for (TokenId turn = 0; turn < 200; ++turn) serve(manager, {.tokens = prompt_of({turn % 6 + 1, turn % 6 + 1})});
  const SizeEstimates estimates = manager.size_estimates();
  EXPECT_EQ(manager.stats().matched_tokens, 0U);
  EXPECT_EQ(estimates.sizes[0].hit_rate, 0.0);
  EXPECT_EQ(estimates.sizes[1].hit_rate, 0.0);
  EXPECT_EQ(estimates.sizes[2].factor, 2.0);
  EXPECT_DOUBLE_EQ(estimates.sizes[2].hit_rate, 194.0 / 200);
}

TEST(SizeEstimator, TakesWhatIsApartForApart) {
  CacheManager manager = manager_of(20);
  const Tokens prompt = prompt_of({1, 2, 3});
  serve(manager, {.tokens = prompt});
  serve(manager, {.tokens = prompt, .adapter = "lora"});
  serve(manager, {.tokens = prompt, .tenant_salt = "t"});
  EXPECT_EQ(manager.size_estimates().sizes[3].hit_rate, 0.0);
  (void)manager.clear();
  serve(manager, {.tokens = prompt});
  EXPECT_EQ(manager.size_estimates().sizes[3].hit_rate, 0.0);
  serve(manager, {.tokens = prompt});
  EXPECT_DOUBLE_EQ(manager.size_estimates().sizes[3].hit_rate, 3.0 / 15);
}

TEST(SizeEstimator, CountsARequestOnce) {
  CacheManager manager = manager_of(20);
  const Tokens prompt = prompt_of({1, 2, 3});
  serve(manager, {.tokens = prompt});
  serve(manager, {.tokens = prompt, .resumed = true});
  EXPECT_EQ(manager.size_estimates().sampled_blocks, 3U);
  EXPECT_EQ(manager.size_estimates().sizes[1].hit_rate, 0.0);
}

TEST(SizeEstimator, SaysNothingWhereItIsOff) {
  CacheManager manager = manager_of(20, kBlockSize, false);
  for (int i = 0; i < 3; ++i) serve(manager, {.tokens = prompt_of({1, 2, 3})});
  EXPECT_EQ(manager.size_estimates().sampled_blocks, 0U);
  EXPECT_EQ(manager.size_estimates().sizes[1].blocks, 0U);
}

// The index takes 52.5 bytes for a block of 16 tokens, 4 of them its id (docs/benchmarks.md, row 15).
TEST(SizeEstimator, TakesOnePercentOfTheIndexAtMost) {
  for (const std::size_t block_size : {std::size_t{16}, std::size_t{64}, std::size_t{512}}) {
    constexpr std::size_t kBlocks = 400'000;  // with far fewer it is 64 KB, which is more
    SizeEstimator estimator(kBlocks, block_size, 7);
    const Tokens tokens(block_size, 1);
    std::mt19937_64 random(1);
    // All blocks of the pool known, and the stack full: four times as many were published.
    for (std::size_t turn = 0; turn < 4; ++turn) {
      for (BlockId first = 0; first < kBlocks; first += 100) {
        std::vector<BlockId> blocks(100);
        Tokens run;
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          blocks[i] = first + static_cast<BlockId>(i);
          run.insert(run.end(), tokens.begin(), tokens.end());
          run.back() = static_cast<TokenId>(random() % 1'000'000'000);
        }
        estimator.forget(blocks);
        SizeEstimator::Chain chain = estimator.resume({}, {});
        SizeEstimator::Sampled sampled;
        estimator.publish(chain, {.tokens = run, .blocks = blocks, .asked = {}}, sampled);
      }
    }
    EXPECT_EQ(estimator.validate(), "");
    EXPECT_LE(static_cast<double>(estimator.memory_bytes()),
              0.01 * static_cast<double>(kBlocks * (4 + 3 * block_size)))
        << block_size << " tokens in a block";
  }
}

TEST(SizeEstimator, IsUsedByManyThreads) {
  CacheManager manager = manager_of(64);
  std::vector<std::jthread> threads;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&manager, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 100; ++i) {
        std::vector<TokenId> blocks(1 + random() % 8);
        for (TokenId& block : blocks) block = static_cast<TokenId>(1 + random() % 3);
        const Tokens prompt = prompt_of(blocks);
        Admission admission = manager.admit({.tokens = prompt});
        if (!admission.lease) continue;
        const StepId step = seed << 32 | static_cast<StepId>(i);
        admission.lease->writes(step, admission.lease->first_token_to_compute(), prompt.size());
        manager.step_done(step);
        admission.lease->finish();
        if (i % 16 == 0) (void)manager.size_estimates();
      }
    });
  }
  threads.clear();
  EXPECT_EQ(manager.validate(), "");
  const SizeEstimates estimates = manager.size_estimates();
  EXPECT_GT(estimates.sampled_blocks, 0U);
  EXPECT_LE(estimates.sizes[0].hit_rate, estimates.sizes[3].hit_rate);
}

}  // namespace
}  // namespace cairn
