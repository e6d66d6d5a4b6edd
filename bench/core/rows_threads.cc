// Rows 12 to 14: two threads.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <latch>
#include <memory>

#include "bench/core/cached.h"
#include "bench/core/rows.h"
#include "bench/core/statistics.h"
#include "bench/core/thread_time.h"

namespace cairn::bench {
namespace {

struct Traffic {
  std::size_t prompt_tokens;
  std::size_t hot;           // prompts that are looked up, by both threads
  std::size_t buffered;      // prompts inserted by the threads that stay before they are evicted
  std::size_t operations;    // of one thread; the first that has done them stops both
  std::size_t insert_every;  // which operations are inserts; 0: none
};

// One thread's operations, with memory of its own for all that it passes in.
class Worker {
 public:
  Worker(RadixTree& tree, const Traffic& traffic, std::size_t number)
      : tree_(tree),
        traffic_(traffic),
        hot_(traffic.hot, traffic.prompt_tokens, 0, 120),
        own_(2 * traffic.buffered, traffic.prompt_tokens, 0, 121 + number, static_cast<BlockId>((1 + number) << 24)),
        random_(130 + number) {
    for (std::size_t i = 0; i < traffic.buffered / 2; ++i) insert();
  }

  [[nodiscard]] const Prompts& hot() const { return hot_; }

  void operate() {
    // Regularly, so that never so many inserts follow each other that a hot prompt becomes the least recently used.
    const bool inserts = traffic_.insert_every > 0 && ++operations_ % traffic_.insert_every == 0;
    if (!inserts) {
      lookup_and_release(tree_, hot_[random_.below(hot_.size())]);
      return;
    }
    insert();
    expect(tree_.evict(own_.blocks_each()).size() == own_.blocks_each(), "evict: blocks evicted");
  }

 private:
  void insert() {
    const std::size_t i = next_;
    next_ = (next_ + 1) % own_.size();
    const InsertAcquired acquired = tree_.insert(own_[i], own_.blocks(i), {}, kBlockSize, 0, 0);
    expect(acquired.blocks.size() == own_.blocks_each(), "insert: blocks acquired");
    tree_.release(own_[i], kBlockSize, 0);
  }

  RadixTree& tree_;
  const Traffic traffic_;
  Prompts hot_;
  Prompts own_;  // for inserts, in turn; twice what stays, so that each is forgotten when its turn comes
  std::size_t next_ = 0;
  std::size_t operations_ = 0;
  Random random_;
};

// Operations per second, summed over the threads, by three clocks.
struct Throughput {
  double undisturbed = 0;
  double wall = 0;
  double cpu = 0;

  Throughput& operator+=(const Throughput& other) {
    undisturbed += other.undisturbed;
    wall += other.wall;
    cpu += other.cpu;
    return *this;
  }
};

Throughput run(std::span<const std::unique_ptr<Worker>> workers, std::size_t operations) {
  std::latch ready(static_cast<std::ptrdiff_t>(workers.size()));
  std::atomic<bool> stop{false};
  std::vector<std::future<Throughput>> running(workers.size());
  for (std::size_t i = 0; i < workers.size(); ++i) {
    running[i] = std::async(std::launch::async, [&, i] {
      ready.arrive_and_wait();
      const ThreadTime start = ThreadTime::now();
      std::size_t done = 0;
      while (done < operations && !stop.load(std::memory_order_relaxed)) {
        workers[i]->operate();
        ++done;
      }
      const ThreadTime took = ThreadTime::now() - start;
      stop.store(true, std::memory_order_relaxed);
      const double operations_e9 = 1e9 * static_cast<double>(done);
      return Throughput{operations_e9 / took.undisturbed_ns(), operations_e9 / took.wall_ns,
                        operations_e9 / took.cpu_ns};
    });
  }
  Throughput sum;
  for (auto& one : running) sum += one.get();
  return sum;
}

Measurement two_threads(const Settings& settings, const Traffic& traffic, Measurement line) {
  RadixTree tree;
  const std::array<std::unique_ptr<Worker>, 2> workers{std::make_unique<Worker>(tree, traffic, 0),
                                                       std::make_unique<Worker>(tree, traffic, 1)};
  const Prompts& hot = workers[0]->hot();
  cache(tree, hot);
  const std::span<const std::unique_ptr<Worker>> both = workers;
  run(both, traffic.operations);  // warms up
  std::vector<Repetition> undisturbed;
  std::vector<double> wall;
  std::vector<double> cpu;
  for (std::size_t r = 0; r < settings.repetitions(); ++r) {
    const Throughput one = run(both.first(1), traffic.operations);
    const Throughput two = run(both, traffic.operations);
    undisturbed.push_back({.figure = two.undisturbed, .yardstick = one.undisturbed});
    wall.push_back(two.wall / one.wall);
    cpu.push_back(two.cpu / one.cpu);
  }
  expect_cached(tree, hot);
  expect(tree.counters().protocol_errors == 0, "counters: protocol errors");
  line.figure_unit = "op/s";
  line.yardstick_name = "one thread";
  line.ratio_unit = "x";
  line.at_least = true;
  line.note = fmt::format("by wall clock {:.2f}, by CPU time {:.2f}", median(wall), median(cpu));
  line.details = {{"ratio_by_wall_clock", median(wall)}, {"ratio_by_cpu_time", median(cpu)}};
  return std::move(line).of(undisturbed);
}

// ---- Row 14 ----

// Inserts and evicts without pause until told to stop.
class Writer {
 public:
  // Sequences of `tokens` each, of which as many as fit into `cached_blocks` are cached already.
  Writer(RadixTree& tree, std::size_t tokens, std::size_t cached_blocks)
      : tree_(tree), own_(2 * (cached_blocks * kBlockSize / tokens), tokens, 0, 141, BlockId{1} << 24) {
    for (std::size_t i = 0; i < own_.size() / 2; ++i) insert();
  }

  // Answers how many blocks it inserted.
  std::size_t run(const std::atomic<bool>& stop) {
    std::size_t inserted = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      for (std::size_t blocks = 0; blocks < kBlocks; blocks += own_.blocks_each()) insert();
      inserted += kBlocks;
      for (std::size_t evicted = 0; evicted < kBlocks;) {
        const std::size_t now = tree_.evict(64).size();
        expect(now > 0, "evict: nothing left to evict");
        evicted += now;
      }
    }
    return inserted;
  }

 private:
  static constexpr std::size_t kBlocks = 2'048 / kBlockSize;  // of a prompt, or of as many small ones

  void insert() {
    const InsertAcquired acquired = tree_.insert(own_[next_], own_.blocks(next_), {}, kBlockSize, 0, 0);
    expect(acquired.blocks.size() == own_.blocks_each(), "insert: blocks acquired");
    tree_.release(own_[next_], kBlockSize, 0);
    next_ = (next_ + 1) % own_.size();
  }

  RadixTree& tree_;
  Prompts own_;
  std::size_t next_ = 0;
};

// Looks up hot prompts and times each lookup.
class Reader {
 public:
  Reader(RadixTree& tree, std::size_t hot) : tree_(tree), hot_(hot, 2'048, 0, 140) { cache(tree, hot_); }

  double p99_ns(std::size_t lookups) {
    std::vector<double> took;
    took.reserve(lookups);
    while (took.size() < lookups) {
      const std::size_t i = random_.below(hot_.size());
      const double start = wall_now_ns();
      const PrefixMatch match = tree_.lookup(hot_[i], kBlockSize, 0, 0);
      const double ns = wall_now_ns() - start;
      if (match.matched_tokens == hot_.length()) {
        expect(match.matched_blocks == hot_.blocks(i), "lookup: matched blocks");
        tree_.release_matched(hot_[i], kBlockSize, match.matched_tokens, 0);
        took.push_back(ns);
      } else {
        // This thread did not get to run for so long that the prompt became the least recently used.
        const InsertAcquired back = tree_.insert(hot_[i], hot_.blocks(i), {}, kBlockSize, match.matched_tokens, 0);
        tree_.release(hot_[i], kBlockSize, 0);
        expect(tree_.evict(back.blocks.size()).size() == back.blocks.size(), "evict: blocks evicted");
      }
    }
    return quantile(std::move(took), 0.99);
  }

 private:
  RadixTree& tree_;
  Prompts hot_;
  Random random_{142};
};

Measurement beside_a_writer(const Settings& settings, std::size_t tokens_per_sequence, Measurement line) {
  RadixTree tree;
  Writer writer(tree, tokens_per_sequence, settings.sized(200'000, 2'000));
  Reader reader(tree, settings.sized(64, 2));
  const std::size_t lookups = settings.sized(50'000, 500);
  reader.p99_ns(lookups);  // warms up
  std::vector<Repetition> repetitions;
  std::vector<double> blocks_per_second;
  for (std::size_t r = 0; r < settings.repetitions(); ++r) {
    const double alone = reader.p99_ns(lookups);
    std::atomic<bool> stop{false};
    const double start = wall_now_ns();
    std::future<std::size_t> writing = std::async(std::launch::async, [&] { return writer.run(stop); });
    const double beside = reader.p99_ns(lookups);
    stop.store(true, std::memory_order_relaxed);
    const std::size_t inserted = writing.get();
    blocks_per_second.push_back(1e9 * static_cast<double>(inserted) / (wall_now_ns() - start));
    repetitions.push_back({.figure = beside, .yardstick = alone});
  }
  line.yardstick_name = "alone";
  line.ratio_unit = "x";
  line.target = 2;
  line.note = fmt::format("the writer: {:.1f} M blocks/s", median(blocks_per_second) / 1e6);
  line.details = {{"writer_blocks_per_second", median(blocks_per_second)}};
  return std::move(line).of(repetitions);
}

}  // namespace

Measured two_threads_long_prompts(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  Traffic traffic{
      .prompt_tokens = 32'768, .hot = 4, .buffered = 4, .operations = settings.sized(10'000, 50), .insert_every = 0};
  Measured lines{
      two_threads(settings, traffic, {.name = "12a", .what = "two threads / one, 32k prompts", .target = 1.9})};
  traffic.insert_every = 20;
  lines.push_back(two_threads(settings, traffic, {.name = "12b", .what = "the same with 5% inserts", .target = 1.8}));
  return lines;
}

Measured two_threads_short_prompts(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  Traffic traffic{.prompt_tokens = 2'048,
                  .hot = 64,
                  .buffered = 128,
                  .operations = settings.sized(100'000, 500),
                  .insert_every = 0};
  Measured lines{
      two_threads(settings, traffic, {.name = "13a", .what = "two threads / one, 2k prompts", .target = 1.8})};
  traffic.insert_every = 20;
  lines.push_back(two_threads(settings, traffic, {.name = "13b", .what = "the same with 5% inserts", .target = 1.6}));
  return lines;
}

Measured lookup_beside_a_writer(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  return {
      beside_a_writer(settings, 2'048, {.name = "14a", .what = "p99 of a 2k lookup beside a writer of 2k prompts"}),
      beside_a_writer(settings, kBlockSize, {.name = "14b", .what = "the same, all leaves one block"})};
}

}  // namespace cairn::bench
