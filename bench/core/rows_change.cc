// Rows 7 to 10: inserting and evicting.
#include <malloc.h>
#include <sys/resource.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/core/cached.h"
#include "bench/core/rows.h"
#include "bench/core/snapshots.h"
#include "bench/core/statistics.h"

namespace cairn::bench {
namespace {

constexpr std::size_t kLongPrompt = 32'768;

double minor_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

// The tree holds `prompts` before and after; what it gives back is the memory that the insert takes.
std::vector<Repetition> inserts_into_recycled_memory(const Settings& settings, const MemcmpYardstick& memcmp_128k) {
  const Prompts prompts(4, kLongPrompt, 0, 70);
  RadixTree tree;
  std::size_t next = 0;
  const auto insert = [&] {
    constexpr std::size_t kInserts = 8;
    double ns = 0;
    for (std::size_t i = 0; i < kInserts; ++i, next = (next + 1) % prompts.size()) {
      const double start = wall_now_ns();  // one insert is too short for the other clock
      const InsertAcquired acquired = tree.insert(prompts[next], prompts.blocks(next), {}, kBlockSize, 0, 0);
      ns += wall_now_ns() - start;
      expect(acquired.blocks == prompts.blocks(next), "insert: blocks acquired");
      tree.release(prompts[next], kBlockSize, 0);
      expect(tree.evict(prompts.blocks_each()).size() == prompts.blocks_each(), "evict: blocks evicted");
    }
    return ns / kInserts;
  };
  auto repetitions = alternate(settings, insert, [&] { return memcmp_128k(); });
  expect(tree.stats().cached_blocks == 0, "stats: blocks left");
  return repetitions;
}

struct FirstTouch {
  std::vector<Repetition> repetitions;
  double faults_per_insert = 0;
};

// Nothing is evicted, so each insert takes memory that the process never had, or had given back.
FirstTouch inserts_into_untouched_memory(const Settings& settings, const MemcmpYardstick& memcmp_128k) {
  const std::size_t inserts = settings.sized(32, 2);
  const Prompts prompts(inserts, kLongPrompt, 0, 71);
  FirstTouch result;
  for (std::size_t r = 0; r < settings.repetitions(); ++r) {
    RadixTree tree;
    ::malloc_trim(0);
    const double yardstick = median_of(settings, [&] { return memcmp_128k(); });
    const double faults = minor_faults();
    const double ns = cpu_ns_per_call(inserts, [&](std::size_t i) {
      const InsertAcquired acquired = tree.insert(prompts[i], prompts.blocks(i), {}, kBlockSize, 0, 0);
      expect(acquired.blocks.size() == prompts.blocks_each(), "insert: blocks acquired");
    });
    result.faults_per_insert = (minor_faults() - faults) / static_cast<double>(inserts);
    result.repetitions.push_back({.figure = ns, .yardstick = yardstick});
    for (std::size_t i = 0; i < inserts; ++i) tree.release(prompts[i], kBlockSize, 0);
    expect_cached(tree, prompts);
  }
  return result;
}

// A tree of leaves of one block each.
class Leaves {
 public:
  explicit Leaves(std::size_t count) : prompts_(count, kBlockSize, 0, 80) {}

  [[nodiscard]] std::size_t size() const { return prompts_.size(); }
  void fill(RadixTree& tree) const { cache(tree, prompts_); }
  // Looks all up, in this order.
  void use(RadixTree& tree, const std::vector<std::size_t>& order) const {
    for (const std::size_t i : order) lookup_and_release(tree, prompts_[i]);
  }

 private:
  Prompts prompts_;
};

// Evicts everything in calls of `blocks_per_call`; nanoseconds for a block, the yardstick now and then in between.
// The blocks have to come in `expected_order`.
Repetition evict_all(RadixTree& tree, std::size_t blocks_per_call, const std::vector<std::size_t>& expected_order,
                     const MemcmpYardstick& memcmp_128k) {
  constexpr std::size_t kParts = 10;
  const std::size_t calls_per_part = std::max<std::size_t>(1, expected_order.size() / blocks_per_call / kParts);
  std::vector<BlockId> evicted;
  evicted.reserve(expected_order.size() + blocks_per_call);
  std::vector<double> yardsticks;
  double ns = 0;
  for (bool more = true; more;) {
    yardsticks.push_back(memcmp_128k());
    const double start = cpu_now_ns();
    for (std::size_t i = 0; i < calls_per_part && more; ++i) {
      const EvictedBlocks blocks = tree.evict(blocks_per_call);
      evicted.insert(evicted.end(), blocks.physical.begin(), blocks.physical.end());
      more = !blocks.empty();
    }
    ns += cpu_now_ns() - start;
  }
  expect(evicted.size() == expected_order.size(), "evict: blocks evicted");
  const bool in_order = std::equal(evicted.begin(), evicted.end(), expected_order.begin(),
                                   [](BlockId block, std::size_t leaf) { return block == leaf; });
  expect(in_order, "evict: not in the order of last use");
  expect(tree.stats().cached_blocks == 0, "stats: blocks left");
  return {.figure = ns / static_cast<double>(evicted.size()), .yardstick = median(yardsticks)};
}

// The order in which Leaves::fill inserts.
std::vector<std::size_t> in_turn(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

constexpr std::size_t kLeaves = 200'000;

std::vector<Repetition> drain_snapshots(const Settings& settings, const MemcmpYardstick& memcmp_128k, Where where) {
  const Prompts prompts(1, kLongPrompt, 0, 10);
  RadixTree tree;
  cache(tree, prompts);
  const std::size_t count = settings.sized(kManySnapshots, 64);
  std::vector<Repetition> repetitions;
  for (std::size_t r = 0; r < settings.repetitions(); ++r) {
    put_snapshots(tree, prompts[0], {.count = count, .visible_to_all = false, .where = where});
    const double yardstick = median_of(settings, [&] { return memcmp_128k(); });
    std::size_t next = 0;
    const double ns = cpu_ns_per_call(count, [&](std::size_t) {
      expect(tree.evict_snapshot_lru() == std::optional<SnapshotId>(next++), "evict_snapshot_lru: the oldest slot");
    });
    repetitions.push_back({.figure = ns, .yardstick = yardstick});
    expect(tree.snapshot_count() == 0, "snapshot_count: snapshots left");
  }
  expect_cached(tree, prompts);
  return repetitions;
}

}  // namespace

Measured insert_of_a_prompt(const Settings& settings, const MemcmpYardstick& memcmp_128k) {
  const FirstTouch first_touch = inserts_into_untouched_memory(settings, memcmp_128k);
  const auto recycled = inserts_into_recycled_memory(settings, memcmp_128k);
  auto untouched = Measurement{.name = "7b",
                               .what = "the same, first-touch memory",
                               .yardstick_name = "M",
                               .ratio_unit = "M",
                               .target = 9,
                               .note = fmt::format("{:.0f} page faults an insert", first_touch.faults_per_insert),
                               .details = {{"page_faults_per_insert", first_touch.faults_per_insert}}}
                       .of(first_touch.repetitions);
  return {Measurement{.name = "7a",
                      .what = "insert of an uncached 32k prompt, recycled memory",
                      .yardstick_name = "M",
                      .ratio_unit = "M",
                      .target = 2.2}
              .of(recycled),
          std::move(untouched)};
}

Measured evict_by_64(const Settings& settings, const MemcmpYardstick& memcmp_128k) {
  const Leaves leaves(settings.sized(kLeaves, 1'000));
  const std::vector<std::size_t> inserted = in_turn(leaves.size());
  const std::vector<std::size_t> used = Random(81).order(leaves.size());
  RadixTree tree;
  std::vector<Repetition> fresh;
  std::vector<Repetition> after_use;
  for (std::size_t r = 0; r < settings.few_repetitions(); ++r) {
    leaves.fill(tree);
    fresh.push_back(evict_all(tree, 64, inserted, memcmp_128k));
    leaves.fill(tree);
    leaves.use(tree, used);
    after_use.push_back(evict_all(tree, 64, used, memcmp_128k));
  }
  return {Measurement{.name = "8a",
                      .what = "evict(64) from 200k one-block leaves, a block",
                      .yardstick_name = "M",
                      .ratio_unit = "M",
                      .target = 0.1}
              .of(fresh),
          Measurement{.name = "8b",
                      .what = "the same after all were looked up in random order",
                      .yardstick_name = "M",
                      .ratio_unit = "M",
                      .target = 0.3}
              .of(after_use)};
}

Measured evict_one_by_one(const Settings& settings, const MemcmpYardstick& memcmp_128k) {
  const Leaves leaves(settings.sized(kLeaves, 1'000));
  const std::vector<std::size_t> inserted = in_turn(leaves.size());
  RadixTree tree;
  std::vector<Repetition> repetitions;
  for (std::size_t r = 0; r < settings.few_repetitions(); ++r) {
    leaves.fill(tree);
    repetitions.push_back(evict_all(tree, 1, inserted, memcmp_128k));
  }
  return {Measurement{.name = "9",
                      .what = "evict(1) repeatedly, the same tree",
                      .yardstick_name = "M",
                      .ratio_unit = "M",
                      .target = 0.13}
              .of(repetitions)};
}

Measured evict_snapshots(const Settings& settings, const MemcmpYardstick& memcmp_128k) {
  return {Measurement{.name = "10a",
                      .what = "evict_snapshot_lru with 8,192 snapshots on a prompt",
                      .yardstick_name = "M",
                      .ratio_unit = "M",
                      .target = 0.15}
              .of(drain_snapshots(settings, memcmp_128k, Where::kOn)),
          Measurement{.name = "10b",
                      .what = "the same, on and around it (row 6)",
                      .yardstick_name = "M",
                      .ratio_unit = "M",
                      .target = 0.15}
              .of(drain_snapshots(settings, memcmp_128k, Where::kOnAndAround))};
}

}  // namespace cairn::bench
