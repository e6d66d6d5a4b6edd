// What a thread did with its time.
#ifndef CAIRN_BENCH_CORE_THREAD_TIME_H_
#define CAIRN_BENCH_CORE_THREAD_TIME_H_

namespace cairn::bench {

// Since some moment in the past, of the calling thread.
struct ThreadTime {
  double wall_ns = 0;
  double cpu_ns = 0;      // on a processor
  double waiting_ns = 0;  // ready to run, while others had the processors; 0 where the system does not tell

  static ThreadTime now();
  // Wall time but for the waiting: waiting for locks and spinning are in it, neighbours are not.
  [[nodiscard]] double undisturbed_ns() const { return wall_ns - waiting_ns; }
  friend ThreadTime operator-(const ThreadTime& a, const ThreadTime& b) {
    return {a.wall_ns - b.wall_ns, a.cpu_ns - b.cpu_ns, a.waiting_ns - b.waiting_ns};
  }
};

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_CORE_THREAD_TIME_H_
