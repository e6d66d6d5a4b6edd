// Where and of what a run was made.
#ifndef CAIRN_BENCH_CORE_MACHINE_H_
#define CAIRN_BENCH_CORE_MACHINE_H_

#include <string>

namespace cairn::bench {

struct Machine {
  std::string cpu;
  unsigned cores = 0;
  bool huge_pages = false;  // for prompts and yardstick
  double load_average = 0;  // of the last minute, before the run: neighbours
  std::string kernel;
  std::string libc;
  std::string compiler;
  std::string build_type;
  std::string commit;  // "-dirty" if the sources differed from it; "unknown" outside a checkout
  std::string date;    // ISO 8601, UTC

  static Machine here_and_now();
};

// Generated at build time.
const char* built_commit();

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_CORE_MACHINE_H_
