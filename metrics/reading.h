// What one cache says at a moment, as samples.
#ifndef CAIRN_METRICS_READING_H_
#define CAIRN_METRICS_READING_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cairn/metrics.h"

namespace cairn {

struct Sample {
  std::size_t family = 0;  // in metric_descriptions()
  std::string label_value{};
  double value = 0;
  std::optional<Histogram> histogram{};  // instead of the value, where the family is one
};

struct Reading {
  std::vector<Sample> samples{};  // those of a family may be apart
  // What is no number; none: there is no such part.
  struct Store {
    std::string degraded_reason;
    std::string io;
  };
  std::optional<Store> store{};
  std::optional<std::string> block_pool_error{};
  std::optional<std::string> snapshot_pool_error{};
};

[[nodiscard]] Reading read_cache(const CacheManager& manager);
[[nodiscard]] Reading read_cache(const RadixTree& index);

}  // namespace cairn

#endif  // CAIRN_METRICS_READING_H_
