// cairn: the command line. Exit codes: 0 done, 1 failed, 2 called wrongly.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench_command.h"
#include "explain_command.h"
#include "replay_command.h"
#include "tier_command.h"

namespace {

constexpr int kFailed = 1;
constexpr int kCalledWrongly = 2;

int run(int argc, char** argv) {
  CLI::App app("Cairn, a prefix cache for LLM inference engines");
  app.name("cairn");
  app.set_version_flag("--version", "cairn " CAIRN_VERSION);
  app.require_subcommand(1);
  cairn::tool::add_replay_command(app);
  cairn::tool::add_explain_command(app);
  cairn::tool::add_bench_command(app);
  cairn::tool::add_tier_command(app);
  try {
    app.parse(argc, argv);  // and runs the subcommand
  } catch (const CLI::Success& success) {
    return app.exit(success);  // help or version
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kCalledWrongly;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cairn: %s\n", error.what());
    return kFailed;
  }
}
