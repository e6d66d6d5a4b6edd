// What the tests of cairn::metrics share.
#ifndef CAIRN_METRICS_METRICS_FIXTURE_H_
#define CAIRN_METRICS_METRICS_FIXTURE_H_

#include <cairn/metrics.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/tiers_fixture.h"

namespace cairn {

inline std::string contents_of(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) ADD_FAILURE() << "can't read " << path;
  return std::move(text).str();
}

// Samples of Prometheus' text format by what stands before the value: the name with all labels.
inline std::map<std::string, double> samples_of(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t space = line.rfind(' ');
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second) << line;
  }
  return samples;
}

}  // namespace cairn

#endif  // CAIRN_METRICS_METRICS_FIXTURE_H_
