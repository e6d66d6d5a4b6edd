// A run of the core rows as a table and as JSON, and what an earlier run said.
#ifndef CAIRN_BENCH_CORE_REPORT_H_
#define CAIRN_BENCH_CORE_REPORT_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/core/machine.h"
#include "bench/core/measure.h"

namespace cairn::bench {

inline constexpr int kReportFormat = 1;

struct Report {
  Machine machine;
  Settings settings;
  std::vector<Measurement> lines;
  std::string program = "cairn bench";

  [[nodiscard]] std::string json() const;
};

// Ratios by Measurement::name.
using EarlierRatios = std::map<std::string, double, std::less<>>;
// From Report::json(). Throws std::runtime_error that says what is wrong with it.
EarlierRatios read_earlier(std::string_view json);

// The table, piece by piece, so that a line can be printed when it is measured. With earlier ratios there is one
// column more: ratio / earlier ratio.
std::string table_head(const Machine& machine, const Settings& settings, bool with_earlier);
std::string table_line(const Measurement& line, const EarlierRatios* earlier);
std::string table_foot(const std::vector<Measurement>& lines, const Settings& settings);

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_CORE_REPORT_H_
