// Histograms that requests fill: no lock, and threads seldom share a cache line.
#ifndef CAIRN_ENGINE_HISTOGRAMS_H_
#define CAIRN_ENGINE_HISTOGRAMS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/cache_manager.h"

namespace cairn {

// Of whole numbers: nanoseconds, tokens. Relaxed throughout, since nothing is ordered by it: a reading beside
// observations may have one in its bucket and not yet in the sum.
class HistogramCounts {
 public:
  static constexpr std::size_t kBoundsMax = 24;

  // `bounds` ascend, are at most kBoundsMax, and live on.
  explicit HistogramCounts(std::span<const std::uint64_t> bounds);
  HistogramCounts(const HistogramCounts&) = delete;
  HistogramCounts& operator=(const HistogramCounts&) = delete;

  void observe(std::uint64_t value) noexcept;
  // `per_unit` of what was observed make one of what is shown: 1e9 for nanoseconds as seconds.
  [[nodiscard]] Histogram get(double per_unit) const;

 private:
  static constexpr std::size_t kShards = 8;  // threads take turns at them
  struct alignas(64) Shard {
    std::array<std::atomic<std::uint64_t>, kBoundsMax + 1> counts{};
    std::atomic<std::uint64_t> sum{0};
  };

  const std::span<const std::uint64_t> bounds_;
  std::array<Shard, kShards> shards_;
};

// What ManagerHistograms is read from.
class EngineHistograms {
 public:
  explicit EngineHistograms(bool on);

  // Whether anything is observed.
  [[nodiscard]] bool on() const noexcept { return on_; }
  void admitted(std::chrono::nanoseconds took) noexcept;
  void loaded(double took_s) noexcept;
  void matched(std::size_t tokens) noexcept;
  [[nodiscard]] ManagerHistograms get() const;

 private:
  const bool on_;
  HistogramCounts admit_ns_;
  HistogramCounts load_ns_;
  HistogramCounts matched_tokens_;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_HISTOGRAMS_H_
