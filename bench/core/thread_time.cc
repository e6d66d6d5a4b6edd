#include "bench/core/thread_time.h"

#include <fstream>

#include "bench/core/measure.h"

namespace cairn::bench {

ThreadTime ThreadTime::now() {
  ThreadTime time{.wall_ns = wall_now_ns(), .cpu_ns = cpu_now_ns()};
  std::ifstream schedstat("/proc/thread-self/schedstat");
  double running = 0;
  double waiting = 0;
  if (schedstat >> running >> waiting) time.waiting_ns = waiting;
  return time;
}

}  // namespace cairn::bench
