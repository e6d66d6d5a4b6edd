#include "bench/core/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>

namespace cairn::bench {

double quantile(std::vector<double> values, double share) {
  if (values.empty()) throw std::invalid_argument("a quantile of no values");
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const auto at_below = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(values.begin(), at_below, values.end());
  const double low = *at_below;
  if (below + 1 == values.size()) return low;
  const double high = *std::min_element(at_below + 1, values.end());
  return low + (place - std::floor(place)) * (high - low);
}

double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

double spread(const std::vector<double>& values) {
  const double middle = median(values);
  return middle == 0 ? 0 : (quantile(values, 0.75) - quantile(values, 0.25)) / middle;
}

}  // namespace cairn::bench
