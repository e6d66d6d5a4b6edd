// Stores of spilled records against plain direct I/O and memcpy.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "bench/core/report.h"
#include "bench/tier/plain_disk.h"
#include "bench/tier/rows.h"

namespace cairn::bench {

Batches large_values(const Settings& settings) {
  return {.snapshots = true,
          .payload_bytes = settings.sized(std::size_t{64} << 20, std::size_t{1} << 20),
          .count = settings.sized(8, 3),
          .depth = 4,
          .kept = 2};
}

Batches small_blocks(const Settings& settings) {
  return {.snapshots = false,
          .payload_bytes = std::size_t{64} << 10,
          .count = settings.sized(4'096, 32),
          .depth = 64,
          .kept = 2};
}

namespace {

constexpr int kSkipped = 77;

struct Arguments {
  std::string directory = ".";
  std::string json;
  bool full = false;
  bool smoke = false;
};

// A folder of its own in `parent`, gone at the end with all that is in it.
class Folder {
 public:
  explicit Folder(const std::string& parent) : path_(parent + "/cairn_bench_tier_XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::runtime_error(fmt::format("{}: no folder can be made there: {}", parent, std::strerror(errno)));
    }
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // An empty one in it.
  [[nodiscard]] std::string inner(const char* name) const {
    std::string inner = path_ + "/" + name;
    std::filesystem::create_directory(inner);
    return inner;
  }

 private:
  std::string path_;
};

class Table {
 public:
  Table(Report& report, bool printed) : report_(report), printed_(printed) {
    print(table_head(report.machine, report.settings, false));
  }
  void add(const Measurement& line) {
    report_.lines.push_back(line);
    print(table_line(line, nullptr));
  }
  void print(const std::string& text) const {
    if (!printed_) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

 private:
  Report& report_;
  const bool printed_;
};

void measure_all(const Arguments& arguments, Report& report) {
  const Settings& settings = report.settings;
  const Folder folder(arguments.directory);
  Table table(report, arguments.json != "-");
  for (const bool large : {true, false}) {
    const Batches batches = large ? large_values(settings) : small_blocks(settings);
    // With a store each, and the file of the one gone before the other's is made.
    const std::string inner = folder.inner(large ? "large" : "small");
    for (const Measurement& line : file_store(settings, inner, batches)) table.add(line);
    std::filesystem::remove_all(inner);
  }
  for (const bool large : {true, false}) {
    table.add(ram_store(settings, large ? large_values(settings) : small_blocks(settings)));
  }
  if (!settings.smoke()) {
    table.print(
        "\nBytes of payload per second of wall clock. Direct I/O: io_uring, O_DIRECT, the same sizes, as many at a "
        "time,\non the same disk; figure and yardstick in turns. Ratio: the median of the repetitions' ratios; "
        "spread: "
        "between\ntheir quartiles.\n");
  }
}

int run(int argc, char** argv) {
  CLI::App app("Measures the stores of spilled records against plain direct I/O and memcpy, in the same run.");
  Arguments arguments;
  app.add_option("--directory", arguments.directory, "On the disk to measure; takes up to 2.5 GB there meanwhile")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--json", arguments.json, "Write every number to a file; - prints them instead of the table")
      ->type_name("FILE");
  auto* full = app.add_flag("--full", arguments.full, "Fifteen repetitions instead of seven");
  app.add_flag("--smoke", arguments.smoke, "Tiny, once: are the results right? No meaningful figures")->excludes(full);
  CLI11_PARSE(app, argc, argv);
  if (!PlainDisk::available()) {
    std::fputs("cairn_bench_tier: skipped: the yardstick needs io_uring, which this kernel does not allow\n", stderr);
    return kSkipped;
  }
  Effort effort = arguments.full ? Effort::kFull : Effort::kQuick;
  if (arguments.smoke) effort = Effort::kSmoke;
  Report report{
      .machine = Machine::here_and_now(), .settings = {.effort = effort}, .lines = {}, .program = "cairn_bench_tier"};
  measure_all(arguments, report);
  if (arguments.json == "-") std::fputs(report.json().c_str(), stdout);
  if (!arguments.json.empty() && arguments.json != "-") {
    std::ofstream file(arguments.json);
    file << report.json();
    if (!file.flush()) throw std::runtime_error(fmt::format("{}: can't be written", arguments.json));
  }
  return 0;
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  try {
    return cairn::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cairn_bench_tier: %s\n", error.what());
    return 1;
  }
}
