#include "bench/core/measure.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "bench/core/statistics.h"

namespace cairn::bench {
namespace {

double clock_ns(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

constexpr std::size_t kYardstickTokens = 32'768;
constexpr std::size_t kYardstickCalls = 20;

}  // namespace

std::size_t Settings::repetitions() const {
  switch (effort) {
    case Effort::kSmoke:
      return 1;
    case Effort::kQuick:
      return 7;
    case Effort::kFull:
      break;
  }
  return 15;
}

std::size_t Settings::few_repetitions() const {
  return std::min<std::size_t>(repetitions(), 7);
}

double cpu_now_ns() {
  return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}
double wall_now_ns() {
  return clock_ns(CLOCK_MONOTONIC);
}

bool same_bytes(std::span<const TokenId> a, std::span<const TokenId> b) {
  const TokenId* at = a.data();
  asm volatile("" : "+r"(at) : : "memory");                    // not hoisted out of a loop over the same memory
  int difference = std::memcmp(at, b.data(), a.size_bytes());  // NOLINT(misc-const-correctness): written below
  asm volatile("" : "+r"(difference));                         // and not reduced to "equal or not"
  return difference == 0;
}

MemcmpYardstick::MemcmpYardstick() : a_(kYardstickTokens), b_(kYardstickTokens) {
  Random(1).fill(a_.tokens());
  Random(1).fill(b_.tokens());
}

double MemcmpYardstick::operator()() const {
  expect(same_bytes(a_.tokens(), b_.tokens()), "the yardstick's two sides differ");  // and warm again
  return cpu_ns_per_call(kYardstickCalls, [&](std::size_t) { (void)same_bytes(a_.tokens(), b_.tokens()); });
}

double median_of(const Settings& settings, const Batch& batch) {
  std::vector<double> batches(settings.rounds());
  for (double& ns : batches) ns = batch();
  return median(std::move(batches));
}

std::vector<Repetition> alternate(const Settings& settings, const Batch& figure, const Batch& yardstick) {
  figure();  // warms up
  std::vector<Repetition> repetitions;
  for (std::size_t r = 0; r < settings.repetitions(); ++r) {
    std::vector<double> figures;
    std::vector<double> yardsticks;
    for (std::size_t round = 0; round < settings.rounds(); ++round) {
      yardsticks.push_back(yardstick());
      figures.push_back(figure());
    }
    repetitions.push_back({.figure = median(figures), .yardstick = median(yardsticks)});
  }
  return repetitions;
}

Measurement Measurement::of(const std::vector<Repetition>& repetitions_made) && {
  std::vector<double> figures;
  std::vector<double> yardsticks;
  std::vector<double> ratios;
  for (const Repetition& r : repetitions_made) {
    figures.push_back(r.figure);
    yardsticks.push_back(r.yardstick);
    ratios.push_back(r.figure / r.yardstick);
  }
  figure = median(figures);
  yardstick = median(yardsticks);
  ratio = median(ratios);
  spread = bench::spread(ratios);
  repetitions = repetitions_made.size();
  return std::move(*this);
}

}  // namespace cairn::bench
