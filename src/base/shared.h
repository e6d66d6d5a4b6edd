// A value that one thread at a time writes while others read it.
#ifndef CAIRN_BASE_SHARED_H_
#define CAIRN_BASE_SHARED_H_

#include <atomic>

namespace cairn {

// Reads acquire and writes release, so who reads a value sees what its writer did before. Not for read-modify-write:
// there is one writer at a time.
template <class T>
class Shared {
 public:
  Shared() = default;
  Shared(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): stands for a T
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  [[nodiscard]] T get() const noexcept { return value_.load(std::memory_order_acquire); }
  operator T() const noexcept { return get(); }  // NOLINT(google-explicit-constructor): stands for a T
  T operator=(T value) noexcept {                // NOLINT: as for a T
    value_.store(value, std::memory_order_release);
    return value;
  }

 private:
  std::atomic<T> value_{};
};

}  // namespace cairn

#endif  // CAIRN_BASE_SHARED_H_
