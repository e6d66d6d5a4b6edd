// What is said of repeated measurements.
#ifndef CAIRN_BENCH_CORE_STATISTICS_H_
#define CAIRN_BENCH_CORE_STATISTICS_H_

#include <vector>

namespace cairn::bench {

// The value below which `share` (0 to 1) of the values lie, interpolated between neighbours. Not of none.
double quantile(std::vector<double> values, double share);
double median(std::vector<double> values);
// (third quartile - first quartile) / median.
double spread(const std::vector<double>& values);

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_CORE_STATISTICS_H_
