#include "bench/core/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace cairn::bench {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Effort effort) {
  switch (effort) {
    case Effort::kSmoke:
      return "smoke";
    case Effort::kQuick:
      return "quick";
    case Effort::kFull:
      break;
  }
  return "full";
}

// Three significant digits or so, in the unit's larger steps.
std::string with_unit(double value, std::string_view unit) {
  struct Step {
    double size;
    std::string_view name;
  };
  static constexpr Step kTimes[] = {{1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
  static constexpr Step kBytes[] = {{1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}};
  static constexpr Step kRates[] = {{1e6, "M op/s"}, {1e3, "k op/s"}, {1, "op/s"}};
  static constexpr Step kByteRates[] = {{1e9, "GB/s"}, {1e6, "MB/s"}, {1, "B/s"}};
  std::span<const Step> steps = kTimes;
  if (unit == "B") steps = kBytes;
  if (unit == "op/s") steps = kRates;
  if (unit == "B/s") steps = kByteRates;
  for (const Step& step : steps) {
    if (std::abs(value) >= step.size || step.size == 1) return fmt::format("{:.3g} {}", value / step.size, step.name);
  }
  return {};
}

std::string ratio_text(double ratio, std::string_view unit) {
  return fmt::format("{:.{}f} {}", ratio, ratio >= 10 ? 1 : ratio >= 0.995 ? 2 : 3, unit);
}

Json json_of(const Measurement& line) {
  Json one;
  one["name"] = line.name;
  one["what"] = line.what;
  one["figure"] = line.figure;
  one["figure_unit"] = line.figure_unit;
  one["yardstick"] = line.yardstick;
  one["yardstick_name"] = line.yardstick_name;
  one["ratio"] = line.ratio;
  one["ratio_unit"] = line.ratio_unit;
  one["target"] = line.target;
  one["target_is"] = line.at_least ? "at least" : "at most";
  one["met"] = line.met();
  one["spread"] = line.spread;
  one["repetitions"] = line.repetitions;
  for (const auto& [key, value] : line.details) one[key] = value;
  return one;
}

constexpr std::string_view kColumns = "{:<4} {:<58} {:>12} {:>12} {:<11} {:>9} {:>10} {:>7}  {:<4}";

}  // namespace

std::string Report::json() const {
  Json document;
  document["program"] = program;
  document["format"] = kReportFormat;
  document["date"] = machine.date;
  document["commit"] = machine.commit;
  document["machine"] = {{"cpu", machine.cpu},
                         {"cores", machine.cores},
                         {"huge_pages", machine.huge_pages},
                         {"load_average", machine.load_average},
                         {"kernel", machine.kernel},
                         {"libc", machine.libc}};
  document["compiler"] = machine.compiler;
  document["build_type"] = machine.build_type;
  document["effort"] = name_of(settings.effort);
  document["rows"] = Json::array();
  for (const Measurement& line : lines) document["rows"].push_back(json_of(line));
  return document.dump(2) + "\n";
}

EarlierRatios read_earlier(std::string_view json) {
  try {
    const Json document = Json::parse(json);
    if (document.at("format") != kReportFormat) throw std::runtime_error("it is of another format");
    EarlierRatios ratios;
    for (const Json& row : document.at("rows")) ratios[row.at("name")] = row.at("ratio");
    return ratios;
  } catch (const Json::exception& error) {
    throw std::runtime_error(fmt::format("it is no report of cairn bench: {}", error.what()));
  }
}

std::string table_head(const Machine& machine, const Settings& settings, bool with_earlier) {
  std::string head =
      fmt::format("{}, {} cores, huge pages {}, load {:.1f}; {}, {}; {}, {}; commit {}; {}\n", machine.cpu,
                  machine.cores, machine.huge_pages ? "yes" : "no", machine.load_average, machine.kernel, machine.libc,
                  machine.compiler, machine.build_type, machine.commit, machine.date);
  if (settings.smoke()) head += "Smoke run: tiny sizes, measured once. The figures mean nothing.\n";
  head += '\n';
  head += fmt::format(kColumns, "row", "what", "figure", "yardstick", "", "ratio", "target", "spread", "met");
  head += with_earlier ? "  x earlier\n" : "\n";
  return head;
}

std::string table_line(const Measurement& line, const EarlierRatios* earlier) {
  const bool absolute = std::string_view(line.ratio_unit) == "B";
  std::string text =
      fmt::format(kColumns, line.name, line.what, with_unit(line.figure, line.figure_unit),
                  absolute ? "" : with_unit(line.yardstick, line.figure_unit), absolute ? "" : line.yardstick_name,
                  ratio_text(line.ratio, line.ratio_unit),
                  fmt::format("{} {:g} {}", line.at_least ? ">=" : "<=", line.target, line.ratio_unit),
                  line.repetitions > 1 ? fmt::format("{:.1f}%", 100 * line.spread) : "", line.met() ? "yes" : "NO");
  if (earlier != nullptr) {
    const auto found = earlier->find(line.name);
    const bool comparable = found != earlier->end() && found->second > 0;
    text += comparable ? fmt::format("  {:>9.3f}", line.ratio / found->second) : "          -";
  }
  if (!line.note.empty()) text += "  " + line.note;
  text.erase(text.find_last_not_of(' ') + 1);
  return text + '\n';
}

std::string table_foot(const std::vector<Measurement>& lines, const Settings& settings) {
  if (settings.smoke()) return {};
  const auto met = std::count_if(lines.begin(), lines.end(), [](const Measurement& line) { return line.met(); });
  return fmt::format(
      "\n{} of {} targets met. M: memcmp of 32,768 tokens, hot. Ratio: the median of the repetitions' ratios of "
      "figure "
      "to\nyardstick, measured in turns; spread: between their quartiles. Rows 1 to 11 by CPU time; 12 and 13 by wall "
      "clock\nwithout the time in which other processes had the processors.\n",
      met, lines.size());
}

}  // namespace cairn::bench
