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
  void measure(std::size_t amount, double seconds) {
    if (!measured_ || amount == 0) return;
    const double now = static_cast<double>(amount) / std::max(seconds, 1e-6);
    rate_ = rate_ <= 0 ? now : rate_ + (now - rate_) / 5;
  }
  [[nodiscard]] bool is_known() const { return rate_ > 0; }
  [[nodiscard]] double get() const { return rate_; }  // per second
  [[nodiscard]] double seconds(std::size_t amount) const { return static_cast<double>(amount) / rate_; }

 private:
  double rate_;
  bool measured_;
};

// Bytes to fetch, or fetched, by the tier that they come from.
struct FetchBytes {
  std::size_t ram = 0;
  std::size_t file = 0;

  void add(Tier tier, std::size_t bytes) { (tier == Tier::kRam ? ram : file) += bytes; }
};

// Thread-safe; its lock is a leaf.
class FetchCost {
 public:
  static constexpr std::size_t kStepTokensMin = 256;  // a step with fewer is decoding, and says nothing of prefill
  static constexpr std::size_t kTryEvery = 16;        // of the fetches that would not pay: rates change

  explicit FetchCost(const SpillOptions& options)
      : tokens_min_(options.fetch_tokens_min),
        may_change_(options.fetch_bytes_per_s <= 0),
        ram_(options.fetch_bytes_per_s),
        file_(options.fetch_bytes_per_s),
        prefill_(options.prefill_tokens_per_s) {}

  [[nodiscard]] bool pays(const FetchBytes& bytes, std::size_t tokens) {
    if (tokens == 0 || tokens < tokens_min_) return false;
    const MutexLock lock(mutex_);
    // As long as a rate is not known, fetching is how to learn it.
    if (!prefill_.is_known() || (bytes.ram > 0 && !ram_.is_known()) || (bytes.file > 0 && !file_.is_known())) {
      return true;
    }
    const double fetching =
        (bytes.ram > 0 ? ram_.seconds(bytes.ram) : 0) + (bytes.file > 0 ? file_.seconds(bytes.file) : 0);
    if (fetching < prefill_.seconds(tokens)) return true;
    return may_change_ && ++refused_ % kTryEvery == 0;
  }
  // A fetch takes as long as its slower part.
  void fetched(const FetchBytes& bytes, double seconds) {
    const MutexLock lock(mutex_);
    if (bytes.file > 0) {
      file_.measure(bytes.file, seconds);
    } else {
      ram_.measure(bytes.ram, seconds);
    }
  }
  void prefilled(std::size_t tokens, double seconds) {
    if (tokens < kStepTokensMin) return;
    const MutexLock lock(mutex_);
    prefill_.measure(tokens, seconds);
  }
  // 0: not known.
  [[nodiscard]] double ram_bytes_per_s() const {
    const MutexLock lock(mutex_);
    return ram_.get();
  }
  [[nodiscard]] double file_bytes_per_s() const {
    const MutexLock lock(mutex_);
    return file_.get();
  }
  [[nodiscard]] double prefill_tokens_per_s() const {
    const MutexLock lock(mutex_);
    return prefill_.get();
  }

 private:
  const std::size_t tokens_min_;
  const bool may_change_;
  mutable Mutex mutex_;
  Rate ram_ CAIRN_GUARDED_BY(mutex_);
  Rate file_ CAIRN_GUARDED_BY(mutex_);
  Rate prefill_ CAIRN_GUARDED_BY(mutex_);
  std::size_t refused_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_FETCH_COST_H_
