// Rows 17 and 18: what the engine layer adds.
#include <cairn/cache_manager.h>

#include <memory>
#include <vector>

#include "bench/core/cached.h"
#include "bench/core/rows.h"

namespace cairn::bench {
namespace {

constexpr std::size_t kLongPrompt = 32'768;

// An attention-only engine that has computed and published one prompt.
class Engine {
 public:
  explicit Engine(std::span<const TokenId> prompt) {
    Lease lease = admit(prompt);
    compute(lease, 0, prompt.size());
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
  CacheManager manager_{
      {.block_size = kBlockSize,
       .blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = 4 * kLongPrompt / kBlockSize})}};
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

}  // namespace

Measured admit_and_finish(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  constexpr std::size_t kCalls = 20;  // in a batch
  const Prompts prompts(1, kLongPrompt, 0, 10);
  RadixTree tree;
  cache(tree, prompts);
  Engine engine(prompts[0]);
  const auto repetitions = alternate(
      settings,
      [&] {
        return cpu_ns_per_call(kCalls, [&](std::size_t) {
          Lease lease = engine.admit(prompts[0]);
          expect(lease.cached_tokens() == kLongPrompt - kBlockSize, "admit: cached tokens");
          lease.finish();
        });
      },
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

}  // namespace cairn::bench
