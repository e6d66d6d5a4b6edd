// One line on a terminal that says how far we are.
#ifndef CAIRN_TOOLS_PROGRESS_METER_H_
#define CAIRN_TOOLS_PROGRESS_METER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace cairn::tool {

// Silent if standard error is no terminal. add_one() may be called from any thread: `done_` is a plain count (relaxed,
// nothing is published with it); whoever finds the mutex free and the last print old enough prints.
class ProgressMeter {
 public:
  // What it says: "VERB 5 of 20 THINGS"; the texts outlive it.
  ProgressMeter(std::uint64_t total, std::string_view verb, std::string_view things);
  ~ProgressMeter();  // removes the line
  ProgressMeter(const ProgressMeter&) = delete;
  ProgressMeter& operator=(const ProgressMeter&) = delete;

  void add_one();

 private:
  using Clock = std::chrono::steady_clock;
  void print(Clock::time_point now);

  const std::uint64_t total_;
  const std::string_view verb_;
  const std::string_view things_;
  const bool on_terminal_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<std::uint64_t> done_{0};
  std::mutex printing_;
  Clock::time_point last_print_ = start_;  // guarded by printing_
};

}  // namespace cairn::tool

#endif  // CAIRN_TOOLS_PROGRESS_METER_H_
