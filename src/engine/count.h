// A count that many threads add to.
#ifndef CAIRN_ENGINE_COUNT_H_
#define CAIRN_ENGINE_COUNT_H_

#include <atomic>
#include <cstdint>

namespace cairn {

// Relaxed: it orders nothing.
class Count {
 public:
  void add(std::uint64_t what) noexcept { value_.fetch_add(what, std::memory_order_relaxed); }
  void subtract(std::uint64_t what) noexcept { value_.fetch_sub(what, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_COUNT_H_
