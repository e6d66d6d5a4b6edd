#include "replay/running_sequences.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace cairn::replay {

Overlap::Overlap(const Workload& workload, std::size_t running_max, std::optional<double> tokens_per_s)
    : concurrency(running_max), service_rate(tokens_per_s) {
  if (concurrency == 0) throw std::invalid_argument("concurrency 0: must be at least 1");
  if (!service_rate) return;
  if (!std::isfinite(*service_rate) || *service_rate <= 0) {
    throw std::invalid_argument(fmt::format("service_rate {}: must be above 0", *service_rate));
  }
  if (!workload.has_timestamps()) {
    throw std::invalid_argument("service_rate: needs a workload with time stamps");
  }
}

}  // namespace cairn::replay
