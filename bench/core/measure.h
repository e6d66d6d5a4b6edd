// How a row is measured: its figure and its yardstick in turns, in the same run, so that what disturbs one disturbs
// the other; several repetitions, of which the median counts.
#ifndef CAIRN_BENCH_CORE_MEASURE_H_
#define CAIRN_BENCH_CORE_MEASURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/core/token_memory.h"

namespace cairn::bench {

// The cache gave a wrong answer, so its speed does not matter.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
inline void expect(bool right, const char* what) {
  if (!right) throw WrongResult(what);
}

enum class Effort : std::uint8_t {
  kSmoke,  // tiny sizes, once: does it run and give right results? The figures mean nothing
  kQuick,  // the sizes of the table, seven repetitions
  kFull,   // fifteen
};

struct Settings {
  Effort effort = Effort::kFull;

  [[nodiscard]] bool smoke() const { return effort == Effort::kSmoke; }
  [[nodiscard]] std::size_t repetitions() const;
  // Of rows whose set-up takes long.
  [[nodiscard]] std::size_t few_repetitions() const;
  // Turns of figure and yardstick in a repetition.
  [[nodiscard]] std::size_t rounds() const { return smoke() ? 1 : 9; }
  [[nodiscard]] std::size_t sized(std::size_t real, std::size_t smoke_size) const {
    return smoke() ? smoke_size : real;
  }
};

// Time of this thread on a processor: what other processes do meanwhile is not in it. For batches of some 20 us and
// more, since reading it takes a system call.
double cpu_now_ns();
double wall_now_ns();

template <class Call>
double cpu_ns_per_call(std::size_t calls, Call&& call) {
  const double start = cpu_now_ns();
  for (std::size_t i = 0; i < calls; ++i) call(i);
  return (cpu_now_ns() - start) / static_cast<double>(calls);
}

// memcmp whose result the compiler has to want.
bool same_bytes(std::span<const TokenId> a, std::span<const TokenId> b);

// M: memcmp of 128 KiB (32,768 tokens), both sides hot and on huge pages.
class MemcmpYardstick {
 public:
  MemcmpYardstick();
  // Nanoseconds for one, over a batch of some 50 us.
  double operator()() const;

 private:
  TokenMemory a_;
  TokenMemory b_;
};

// One repetition, in nanoseconds for one operation (or whatever the row counts in).
struct Repetition {
  double figure = 0;
  double yardstick = 0;
};

// Runs one batch and answers nanoseconds for one operation.
using Batch = std::function<double()>;
// The median of Settings::rounds() batches.
double median_of(const Settings& settings, const Batch& batch);
// Settings::repetitions() times: the medians of Settings::rounds() batches of each, in turns.
std::vector<Repetition> alternate(const Settings& settings, const Batch& figure, const Batch& yardstick);

// One line of the table.
struct Measurement {
  const char* name = "";  // "1", or "7a" where a row has several cases
  const char* what = "";
  const char* figure_unit = "ns";
  const char* yardstick_name = "";  // "M", "same bytes", ...
  const char* ratio_unit = "";      // "M", "x", "B"
  double target = 0;
  bool at_least = false;  // the target is a floor

  double figure = 0;     // median
  double yardstick = 0;  // median
  double ratio = 0;      // median of the repetitions' ratios
  double spread = 0;     // of the repetitions' ratios: (third quartile - first) / median
  std::size_t repetitions = 0;
  std::string note = {};
  std::vector<std::pair<std::string, double>> details = {};  // for the JSON only

  [[nodiscard]] bool met() const { return at_least ? ratio >= target : ratio <= target; }
  // Fills in the second half.
  [[nodiscard]] Measurement of(const std::vector<Repetition>& repetitions_made) &&;
};

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_CORE_MEASURE_H_
