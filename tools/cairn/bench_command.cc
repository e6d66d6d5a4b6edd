#include "bench_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/core/report.h"
#include "bench/core/rows.h"
#include "output_file.h"

namespace cairn::tool {
namespace {

constexpr int kLastQuickRow = 11;

constexpr const char* kExamples = R"(Examples:
  cairn bench
      rows 1 to 11 in some ten seconds
  cairn bench --full
      all of them, with twice the repetitions
  cairn bench --rows 1,5,8 --json before.json
      three of them, every number also to a file
  cairn bench --rows 1,5,8 --compare before.json
      the same again, and how the ratios have changed

What each row measures, and how: docs/benchmarks.md.)";

struct Arguments {
  std::vector<int> rows;
  bool full = false;
  bool smoke = false;
  std::string json;
  std::string compare;
};

bench::EarlierRatios read_earlier_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be read", path));
  const std::string content(std::istreambuf_iterator<char>(file), {});
  try {
    return bench::read_earlier(content);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
}

bool wanted(const Arguments& arguments, int row) {
  if (!arguments.rows.empty()) return std::ranges::find(arguments.rows, row) != arguments.rows.end();
  return arguments.full || arguments.smoke || row <= kLastQuickRow;
}

bench::Settings settings_of(const Arguments& arguments) {
  if (arguments.smoke) return {.effort = bench::Effort::kSmoke};
  return {.effort = arguments.full ? bench::Effort::kFull : bench::Effort::kQuick};
}

void run(const Arguments& arguments) {
  std::optional<bench::EarlierRatios> earlier;
  if (!arguments.compare.empty()) earlier = read_earlier_file(arguments.compare);
  const bench::EarlierRatios* const compared = earlier ? &*earlier : nullptr;
  const bool with_table = arguments.json != "-";
  bench::Report report{.machine = bench::Machine::here_and_now(), .settings = settings_of(arguments), .lines = {}};
  if (with_table) write_to_stdout(bench::table_head(report.machine, report.settings, compared != nullptr));
  const bench::MemcmpYardstick memcmp_128k;
  for (const bench::Row& row : bench::rows()) {
    if (!wanted(arguments, row.number)) continue;
    try {
      for (const bench::Measurement& line : row.measure(report.settings, memcmp_128k)) {
        report.lines.push_back(line);
        if (with_table) write_to_stdout(bench::table_line(line, compared));
      }
    } catch (const bench::WrongResult& wrong) {
      throw std::runtime_error(fmt::format("row {} ({}): wrong result: {}", row.number, row.title, wrong.what()));
    }
  }
  if (with_table) {
    write_to_stdout(bench::table_foot(report.lines, report.settings));
  } else {
    write_to_stdout(report.json());
  }
  if (with_table && !arguments.json.empty()) write_file_atomically(arguments.json, report.json());
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench", "Measure the index on this machine, each figure against a yardstick of the same run");
  // Shared by the options and the callback, which live as long as the app.
  const auto arguments = std::make_shared<Arguments>();
  const auto last_row = bench::rows().back().number;
  command->add_option("--rows", arguments->rows, fmt::format("Only these rows, 1 to {}", last_row))
      ->check(CLI::Range(1, last_row))
      ->delimiter(',')
      ->type_name("N,...");
  auto* full = command->add_flag("--full", arguments->full, "All rows, fifteen repetitions instead of seven");
  command->add_flag("--smoke", arguments->smoke, "All rows, tiny, once: are the results right? No meaningful figures")
      ->excludes(full);
  command
      ->add_option("--json", arguments->json,
                   "Write every number, machine, compiler and commit to a file; - prints them instead of the table")
      ->type_name("FILE");
  command->add_option("--compare", arguments->compare, "A file that --json wrote: adds ratio / earlier ratio")
      ->type_name("FILE");
  command->footer(kExamples);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace cairn::tool
