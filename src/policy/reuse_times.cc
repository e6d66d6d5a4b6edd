#include "policy/reuse_times.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cairn {
namespace {

// What is believed before anything was seen, and how many blocks it weighs.
constexpr double kPriorHazard = 0.1;
constexpr double kPriorBlocks = 100;

double first_age(std::size_t octave) {
  return octave == 0 ? 0 : std::ldexp(1.0, static_cast<int>(octave) - 1);
}

double width(std::size_t octave) {
  return octave == 0 ? 1 : first_age(octave);
}

double centre(std::size_t octave) {
  return first_age(octave) + (octave == 0 ? 0 : width(octave) / 2);
}

}  // namespace

std::size_t ReuseTimes::class_of(std::uint64_t uses) {
  if (uses <= 4) return uses == 0 ? 0 : static_cast<std::size_t>(uses - 1);
  if (uses <= 8) return 4;
  if (uses <= 16) return 5;
  return uses <= 64 ? 6 : 7;
}

std::size_t ReuseTimes::octave(std::uint64_t age) {
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(age)), kAges - 1);
}

void ReuseTimes::saw(std::size_t use_class, std::uint64_t age, bool reused) {
  const std::size_t at = octave(age);
  gone_[use_class][at] += 1;
  if (reused) reused_[use_class][at] += 1;
  total_ += 1;
}

void ReuseTimes::forget_beyond(double most) {
  if (total_ <= most) return;
  const auto halve = [](Table& table) {
    for (Ages& ages : table) {
      for (double& count : ages) count /= 2;
    }
  };
  halve(reused_);
  halve(gone_);
  total_ /= 2;
}

// The probability of reuse in each octave for a block that has come so far without. Those that were lost sight of in
// an octave were exposed to half of it.
ReuseTimes::Ages ReuseTimes::hazards(const Ages& reused, const Ages& all, const Ages& prior) {
  Ages result{};
  double beyond = 0;
  for (std::size_t age = kAges; age-- > 0;) {
    const double exposed = beyond + (all[age] + reused[age]) / 2;
    beyond += all[age];
    result[age] = (reused[age] + kPriorBlocks * prior[age]) / (exposed + kPriorBlocks);
  }
  return result;
}

// Of a block in the midst of each octave.
ReuseTimes::Ages ReuseTimes::indices(const Ages& hazards) {
  Ages result{};
  for (std::size_t age = 0; age < kAges; ++age) {
    double alive = 1;
    double reused = 0;
    double time = 0;
    for (std::size_t later = age; later < kAges; ++later) {
      const double part = later == age ? 0.5 : 1;
      const double hazard = part * hazards[later];
      reused += alive * hazard;
      time += alive * part * width(later) * (1 - hazard / 2);
      alive *= 1 - hazard;
      result[age] = std::max(result[age], reused / time);
    }
  }
  return result;
}

void ReuseTimes::learn(const Table& waiting) {
  Table all = gone_;
  Ages pooled_reused{};
  Ages pooled_all{};
  for (std::size_t c = 0; c < kClasses; ++c) {
    for (std::size_t age = 0; age < kAges; ++age) {
      all[c][age] += waiting[c][age];
      pooled_reused[age] += reused_[c][age];
      pooled_all[age] += all[c][age];
    }
  }
  Ages prior{};
  prior.fill(kPriorHazard);
  prior = hazards(pooled_reused, pooled_all, prior);
  for (std::size_t c = 0; c < kClasses; ++c) {
    prior = hazards(reused_[c], all[c], prior);  // each class leans on the one below
    value_[c] = indices(prior);
    if (c == 0) continue;
    for (std::size_t age = 0; age < kAges; ++age) {  // more uses never count for less
      value_[c][age] = std::max(value_[c][age], value_[c - 1][age]);
    }
  }
}

double ReuseTimes::value(std::uint64_t uses, std::uint64_t age) const {
  const Ages& values = value_[class_of(uses)];
  const auto exact = static_cast<double>(age);
  const std::size_t at = octave(age);
  std::size_t low = exact < centre(at) ? at - 1 : at;  // octave 0 has its centre at its only age
  low = std::min(low, kAges - 2);
  const double share = (exact - centre(low)) / (centre(low + 1) - centre(low));
  return values[low] + std::min(share, 1.0) * (values[low + 1] - values[low]);
}

}  // namespace cairn
