#include "bench/core/machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "bench/core/token_memory.h"

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

namespace cairn::bench {
namespace {

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string kernel_release() {
  utsname name{};
  return ::uname(&name) == 0 ? std::string(name.release) : "unknown";
}

std::string libc_version() {
#ifdef __GLIBC__
  return fmt::format("glibc {}", ::gnu_get_libc_version());
#else
  return "unknown";
#endif
}

std::string compiler_version() {
#ifdef __clang__
  return __VERSION__;  // "Clang 19.1.7 ..."
#else
  return "GCC " __VERSION__;
#endif
}

}  // namespace

Machine Machine::here_and_now() {
  Machine machine{.cpu = cpu_model(),
                  .cores = std::thread::hardware_concurrency(),
                  .huge_pages = has_huge_pages(),
                  .kernel = kernel_release(),
                  .libc = libc_version(),
                  .compiler = compiler_version(),
                  .build_type = CAIRN_BENCH_BUILD_TYPE,
                  .commit = built_commit(),
                  .date = {}};
  ::getloadavg(&machine.load_average, 1);
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  machine.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
  return machine;
}

}  // namespace cairn::bench
