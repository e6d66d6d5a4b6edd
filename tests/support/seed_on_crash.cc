#include "support/seed_on_crash.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace cairn::testing {
namespace {

std::array<char, 96> g_message;
volatile std::sig_atomic_t g_message_size = 0;

void print_seed_and_die(int signal) {
  static_cast<void>(!write(STDERR_FILENO, g_message.data(), static_cast<std::size_t>(g_message_size)));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void set_handler(void (*handler)(int)) {
  std::signal(SIGABRT, handler);
  std::signal(SIGSEGV, handler);
}

}  // namespace

SeedOnCrash::SeedOnCrash(const std::string& variables, std::uint64_t seed) {
  const std::string message =
      "\nreplay with " + variables + "_SHRINK=1 " + variables + "_SEED=" + std::to_string(seed) + "\n";
  const std::size_t size = std::min(message.size(), g_message.size());
  std::copy_n(message.begin(), size, g_message.begin());
  g_message_size = static_cast<std::sig_atomic_t>(size);
  set_handler(print_seed_and_die);
}

SeedOnCrash::~SeedOnCrash() {
  set_handler(SIG_DFL);
}

}  // namespace cairn::testing
