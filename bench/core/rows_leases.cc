// Rows 17 to 19: what the engine layer adds.
#include <cairn/cache_manager.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "bench/core/cached.h"
#include "bench/core/rows.h"

namespace cairn::bench {
namespace {

constexpr std::size_t kLongPrompt = 32'768;
constexpr std::size_t kPoolBlocks = 4 * kLongPrompt / kBlockSize;

// An attention-only engine that has computed and published some prompts.
class Engine {
 public:
  explicit Engine(std::span<const TokenId> prompt, std::size_t pool_blocks = kPoolBlocks,
                  const CacheManagerOptions& watching = {})
      : manager_([&] {
          CacheManagerOptions options = watching;
          options.block_size = kBlockSize;
          options.blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = pool_blocks});
          return options;
        }()) {
    publish(prompt);
  }

  void publish(std::span<const TokenId> prompt) {
    Lease lease = admit(prompt);
    compute(lease, lease.first_token_to_compute(), prompt.size());
    lease.finish();
  }

  void admit_and_finish(std::span<const TokenId> prompt) {
    Lease lease = admit(prompt);
    expect(lease.cached_tokens() == prompt.size() - kBlockSize, "admit: cached tokens");
    lease.finish();
  }

  Lease admit(std::span<const TokenId> prompt) {
    Admission admission = manager_.admit({.tokens = prompt});
    expect(admission.lease.has_value(), "admit: blocks for the prompt");
    return std::move(*admission.lease);
  }

  // One step of this sequence alone.
  void compute(Lease& lease, std::size_t from, std::size_t to) {
    const StepId step = ++last_step_;
    lease.writes(step, from, to);
    manager_.step_done(step);
  }

  // One decoded token, its block if it needs a new one, its step, and what is full by then published.
  void decode(Lease& lease, TokenId token) {
    lease.append({&token, 1});
    expect(lease.reserve(lease.tokens()) == 0, "reserve: a block for the next token");
    compute(lease, lease.tokens() - 1, lease.tokens());
    lease.publish();
  }

  [[nodiscard]] const CacheManager& manager() const { return manager_; }

 private:
  CacheManager manager_;
  StepId last_step_ = 0;
};

// Decoding goes on at the end of a prompt of `prompt_tokens`; each batch is a sequence of its own.
Batch decodes(Engine& engine, std::span<const TokenId> prompt) {
  return [&engine, prompt] {
    constexpr std::size_t kTokens = 256;
    Lease lease = engine.admit(prompt);
    engine.compute(lease, lease.first_token_to_compute(), prompt.size());
    const double ns = cpu_ns_per_call(kTokens, [&](std::size_t i) { engine.decode(lease, static_cast<TokenId>(i)); });
    expect(lease.tokens() == prompt.size() + kTokens, "append: tokens of the sequence");
    expect(lease.published_tokens() == prompt.size() + kTokens, "publish: tokens published");
    lease.finish();
    return ns;
  };
}

// Admissions of all prompts in turn with `options`, against those without estimates and histograms.
Measurement watched(const Settings& settings, const Measurement& row, const Prompts& prompts,
                    const CacheManagerOptions& options) {
  const std::size_t pool_blocks = settings.sized(200'000, 4 * prompts.distinct_blocks());
  const auto make = [&](const CacheManagerOptions& watching) {
    auto engine = std::make_unique<Engine>(prompts[0], pool_blocks, watching);
    for (std::size_t i = 1; i < prompts.size(); ++i) engine->publish(prompts[i]);
    return engine;
  };
  const auto with = make(options);
  const auto without = make({.estimate_sizes = false, .histograms = false});
  const auto batch = [&prompts](Engine& engine) {
    return [&] {
      const std::size_t calls = std::max<std::size_t>(prompts.size(), 20);
      return cpu_ns_per_call(calls, [&](std::size_t i) { engine.admit_and_finish(prompts[i % prompts.size()]); });
    };
  };
  const auto repetitions = alternate(settings, batch(*with), batch(*without));
  expect(with->manager().validate().empty() && without->manager().validate().empty(), "a manager is not valid");
  return Measurement(row).of(repetitions);
}

}  // namespace

Measured admit_and_finish(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  constexpr std::size_t kCalls = 20;  // in a batch
  const Prompts prompts(1, kLongPrompt, 0, 10);
  RadixTree tree;
  cache(tree, prompts);
  Engine engine(prompts[0]);
  const auto repetitions = alternate(
      settings, [&] { return cpu_ns_per_call(kCalls, [&](std::size_t) { engine.admit_and_finish(prompts[0]); }); },
      [&] { return cpu_ns_per_call(kCalls, [&](std::size_t) { lookup_and_release(tree, prompts[0]); }); });
  expect(engine.manager().validate().empty(), "the manager is not valid");
  return {Measurement{.name = "17",
                      .what = "admit + finish of a resident 32k prompt",
                      .yardstick_name = "row 1",
                      .ratio_unit = "x",
                      .target = 1.0}
              .of(repetitions)};
}

Measured decode_steps(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  const Prompts prompts(1, kLongPrompt, 0, 10);
  Engine behind_long(prompts[0]);
  const std::span<const TokenId> short_prompt = prompts[0].first(1'024);
  Engine behind_short(short_prompt);
  const auto repetitions = alternate(settings, decodes(behind_long, prompts[0]), decodes(behind_short, short_prompt));
  expect(behind_long.manager().validate().empty() && behind_short.manager().validate().empty(),
         "a manager is not valid");
  return {Measurement{.name = "18",
                      .what = "a decode step behind 32k tokens",
                      .yardstick_name = "behind 1k",
                      .ratio_unit = "x",
                      .target = 1.15}
              .of(repetitions)};
}

Measured watched_admissions(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  const CacheManagerOptions estimates{.estimate_sizes = true, .histograms = false};
  const CacheManagerOptions histograms{.estimate_sizes = false, .histograms = true};
  const auto row = [](const char* name, const char* what, double target) {
    return Measurement{.name = name, .what = what, .yardstick_name = "without", .ratio_unit = "x", .target = target};
  };
  const Prompts one(1, settings.sized(kLongPrompt, 1'024), 0, 11);
  const Prompts many(settings.sized(64, 2), settings.sized(kLongPrompt, 1'024), 0, 12);
  const Prompts short_ones(settings.sized(512, 4), settings.sized(2'048, 256), 0, 13);
  return {
      watched(settings, row("19a", "size estimates: one resident 32k prompt again and again", 1.05), one, estimates),
      watched(settings, row("19b", "the same, 64 of them in turn", 1.05), many, estimates),
      watched(settings, row("19c", "the same, 512 prompts of 2,048 tokens in turn", 1.05), short_ones, estimates),
      watched(settings, row("19d", "histograms: 64 resident 32k prompts in turn", 1.05), many, histograms),
      watched(settings, row("19e", "the same, 512 prompts of 2,048 tokens in turn", 1.15), short_ones, histograms)};
}

}  // namespace cairn::bench
