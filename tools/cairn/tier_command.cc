#include "tier_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <stdexcept>
#include <string>

#include "output_file.h"
#include "progress_meter.h"
#include "tier/inspect.h"
#include "tier_report.h"

namespace cairn::tool {
namespace {

constexpr const char* kExamples = R"(Examples:
  cairn tier /var/cache/cairn
      what is there: fingerprint, records by kind and by adapter, bytes on disk
  cairn tier /var/cache/cairn --records --json - | jq '.records[].key'
      each record, with the key of its parent and its tokens
  cairn tier /var/cache/cairn --verify
      reads every record and compares its checksum
  cairn tier /var/cache/cairn --empty --yes
      removes all records

Exit codes: 0 done and nothing damaged, 1 damaged records or an error, 2 called wrongly. All but --empty change
nothing, also while a server has the directory open. What to do when: docs/operations.md.)";

struct Arguments {
  std::string directory;
  bool records = false;
  bool verify = false;
  bool empty = false;
  bool yes = false;
  std::string json;
};

TierReport::Verification verify(DirectoryInspector& inspector) {
  TierReport::Verification verification;
  ProgressMeter progress(inspector.records().size(), "verified", "records");
  for (const RecordHeader& record : inspector.records()) {
    switch (inspector.verify(record)) {
      case DirectoryInspector::Verdict::kWhole:
        ++verification.whole;
        break;
      case DirectoryInspector::Verdict::kGone:
        ++verification.gone;
        break;
      case DirectoryInspector::Verdict::kDamaged:
        verification.damaged.push_back(record);
        break;
    }
    progress.add_one();
  }
  return verification;
}

void run(const Arguments& arguments) {
  if (arguments.empty) {
    if (!arguments.yes) throw CLI::ValidationError("--empty", "removes all records; say --yes as well");
    empty_store_directory(arguments.directory);
    write_to_stdout(fmt::format("{} is empty\n", arguments.directory));
    return;
  }
  DirectoryInspector inspector(arguments.directory);
  TierReport report{.directory = arguments.directory,
                    .inspector = &inspector,
                    .list_records = arguments.records,
                    .verification = {}};
  if (arguments.verify) report.verification = verify(inspector);
  if (arguments.json == "-") {
    write_to_stdout(json(report));
  } else {
    write_to_stdout(text(report));
    if (!arguments.json.empty()) write_file_atomically(arguments.json, json(report));
  }
  if (arguments.verify && report.damaged() > 0) {
    throw std::runtime_error(fmt::format("{}: {} damaged records", arguments.directory, report.damaged()));
  }
}

}  // namespace

void add_tier_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tier", "List, verify or empty the directory of a file store");
  // Shared by the options and the callback, which live as long as the app.
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("directory", arguments->directory, "The store's directory")->type_name("DIR")->required();
  auto* records = command->add_flag("--records", arguments->records, "List each record");
  auto* verify = command->add_flag("--verify", arguments->verify, "Read every record and compare its checksum");
  auto* empty =
      command->add_flag("--empty", arguments->empty, "Remove all records")->excludes(records)->excludes(verify);
  command->add_flag("--yes", arguments->yes, "Really")->needs(empty);
  command->add_option("--json", arguments->json, "Write the same to a file as JSON; - prints it instead of the table")
      ->type_name("FILE")
      ->excludes(empty);
  command->footer(kExamples);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace cairn::tool
