#include "progress_meter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace cairn::tool {
namespace {

constexpr std::chrono::milliseconds kPrintEvery{200};
constexpr const char* kEraseLine = "\r\x1b[K";

}  // namespace

ProgressMeter::ProgressMeter(std::uint64_t total, std::string_view verb, std::string_view things)
    : total_(total), verb_(verb), things_(things), on_terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressMeter::~ProgressMeter() {
  if (on_terminal_) std::fputs(kEraseLine, stderr);
}

void ProgressMeter::add_one() {
  done_.fetch_add(1, std::memory_order_relaxed);
  if (!on_terminal_) return;
  const std::unique_lock lock(printing_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto now = Clock::now();
  if (now - last_print_ < kPrintEvery) return;
  last_print_ = now;
  print(now);
}

void ProgressMeter::print(Clock::time_point now) {
  const std::uint64_t done = done_.load(std::memory_order_relaxed);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double per_second = static_cast<double>(done) / seconds;
  const double left_s = static_cast<double>(total_ - done) / per_second;
  const std::string line =
      fmt::format("{}{} {} of {} {} ({:.0f} %), {:.0f}/s, {:.0f} s left", kEraseLine, verb_, done, total_, things_,
                  100.0 * static_cast<double>(done) / static_cast<double>(total_), per_second, left_s);
  std::fputs(line.c_str(), stderr);
}

}  // namespace cairn::tool
