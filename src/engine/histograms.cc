#include "engine/histograms.h"

#include <algorithm>

#include "base/check.h"

namespace cairn {
namespace {

constexpr std::uint64_t kUs = 1'000;  // in nanoseconds
constexpr std::uint64_t kMs = 1'000 * kUs;
constexpr std::uint64_t kS = 1'000 * kMs;

// An admission reads its prompt once: from a microsecond to a second, should it have to wait for writers and evict.
constexpr std::array kAdmitNs{1 * kUs,   2 * kUs + 500, 5 * kUs,   10 * kUs,    25 * kUs, 50 * kUs, 100 * kUs,
                              250 * kUs, 500 * kUs,     1 * kMs,   2'500 * kUs, 5 * kMs,  10 * kMs, 25 * kMs,
                              50 * kMs,  100 * kMs,     250 * kMs, 500 * kMs,   1 * kS};
// A load is as long as a store may take: FileStoreOptions::io_timeout is ten seconds.
constexpr std::array kLoadNs{100 * kUs, 250 * kUs, 500 * kUs, 1 * kMs,   2'500 * kUs, 5 * kMs,     10 * kMs, 25 * kMs,
                             50 * kMs,  100 * kMs, 250 * kMs, 500 * kMs, 1 * kS,      2'500 * kMs, 5 * kS,   10 * kS};
// Nothing at all is the case to tell apart; then powers of two up to a million.
constexpr std::array<std::uint64_t, 18> kMatchedTokens{0,      16,     32,      64,      128,     256,
                                                       512,    1'024,  2'048,   4'096,   8'192,   16'384,
                                                       32'768, 65'536, 131'072, 262'144, 524'288, 1'048'576};

std::size_t shard_of_this_thread() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

HistogramCounts::HistogramCounts(std::span<const std::uint64_t> bounds) : bounds_(bounds) {
  CAIRN_CHECK(bounds.size() <= kBoundsMax);
  CAIRN_CHECK(std::ranges::is_sorted(bounds));
}

void HistogramCounts::observe(std::uint64_t value) noexcept {
  const auto bucket = static_cast<std::size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin());
  Shard& shard = shards_[shard_of_this_thread() % kShards];
  shard.counts[bucket].fetch_add(1, std::memory_order_relaxed);
  shard.sum.fetch_add(value, std::memory_order_relaxed);
}

Histogram HistogramCounts::get(double per_unit) const {
  Histogram histogram;
  histogram.bounds.reserve(bounds_.size());
  for (const std::uint64_t bound : bounds_) histogram.bounds.push_back(static_cast<double>(bound) / per_unit);
  histogram.counts.resize(bounds_.size() + 1);
  std::uint64_t sum = 0;
  for (const Shard& shard : shards_) {
    sum += shard.sum.load(std::memory_order_relaxed);
    for (std::size_t bucket = 0; bucket < histogram.counts.size(); ++bucket) {
      histogram.counts[bucket] += shard.counts[bucket].load(std::memory_order_relaxed);
    }
  }
  histogram.sum = static_cast<double>(sum) / per_unit;
  return histogram;
}

EngineHistograms::EngineHistograms(bool on)
    : on_(on), admit_ns_(kAdmitNs), load_ns_(kLoadNs), matched_tokens_(kMatchedTokens) {}

void EngineHistograms::admitted(std::chrono::nanoseconds took) noexcept {
  if (on_) admit_ns_.observe(static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0)));
}

void EngineHistograms::loaded(double took_s) noexcept {
  if (on_) load_ns_.observe(static_cast<std::uint64_t>(std::max(took_s, 0.0) * static_cast<double>(kS)));
}

void EngineHistograms::matched(std::size_t tokens) noexcept {
  if (on_) matched_tokens_.observe(tokens);
}

ManagerHistograms EngineHistograms::get() const {
  if (!on_) return {};
  return {.admit_seconds = admit_ns_.get(static_cast<double>(kS)),
          .load_seconds = load_ns_.get(static_cast<double>(kS)),
          .matched_tokens = matched_tokens_.get(1)};
}

}  // namespace cairn
