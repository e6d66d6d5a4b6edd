// Whether fetching from a store takes less time than computing.
#ifndef CAIRN_ENGINE_FETCH_COST_H_
#define CAIRN_ENGINE_FETCH_COST_H_

#include <algorithm>
#include <cstddef>

#include "base/mutex.h"
#include "cairn/cache_manager.h"

namespace cairn {

// A rate that is given, or a moving average of what was measured: each measurement weighs a fifth of what came before.
class Rate {
 public:
  explicit Rate(double given) : rate_(given), measured_(given <= 0) {}
  void measure(double amount, double seconds) {
    if (!measured_ || amount <= 0) return;
    const double now = amount / std::max(seconds, 1e-6);
    rate_ = rate_ <= 0 ? now : rate_ + (now - rate_) / 5;
  }
  [[nodiscard]] double get() const { return rate_; }  // per second; 0: not known

 private:
  double rate_;
  bool measured_;
};

// Thread-safe; its lock is a leaf.
class FetchCost {
 public:
  static constexpr std::size_t kStepTokensMin = 256;  // a step with fewer is decoding, and says nothing of prefill

  explicit FetchCost(const SpillOptions& options)
      : tokens_min_(options.fetch_tokens_min),
        bytes_per_s_(options.fetch_bytes_per_s),
        tokens_per_s_(options.prefill_tokens_per_s) {}

  [[nodiscard]] bool pays(std::size_t bytes, std::size_t tokens) const {
    if (tokens == 0 || tokens < tokens_min_) return false;
    const MutexLock lock(mutex_);
    // As long as a rate is not known, fetching is how to learn it.
    if (bytes_per_s_.get() <= 0 || tokens_per_s_.get() <= 0) return true;
    return static_cast<double>(bytes) / bytes_per_s_.get() < static_cast<double>(tokens) / tokens_per_s_.get();
  }
  void fetched(std::size_t bytes, double seconds) {
    const MutexLock lock(mutex_);
    bytes_per_s_.measure(static_cast<double>(bytes), seconds);
  }
  void prefilled(std::size_t tokens, double seconds) {
    if (tokens < kStepTokensMin) return;
    const MutexLock lock(mutex_);
    tokens_per_s_.measure(static_cast<double>(tokens), seconds);
  }
  [[nodiscard]] double fetch_bytes_per_s() const {
    const MutexLock lock(mutex_);
    return bytes_per_s_.get();
  }
  [[nodiscard]] double prefill_tokens_per_s() const {
    const MutexLock lock(mutex_);
    return tokens_per_s_.get();
  }

 private:
  const std::size_t tokens_min_;
  mutable Mutex mutex_;
  Rate bytes_per_s_ CAIRN_GUARDED_BY(mutex_);
  Rate tokens_per_s_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_FETCH_COST_H_
