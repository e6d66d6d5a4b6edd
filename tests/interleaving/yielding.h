// What the interleaving test puts in the place of std::atomic and std::mutex in its build of the library, so that its
// scheduler decides at each access of shared memory which thread goes on. Forced into every file of that build.
//
// All virtual threads run on one real thread, so a plain value does. What is explored are therefore the sequentially
// consistent interleavings: memory orders that are too weak are for the thread sanitizer and for real threads.
#ifndef CAIRN_TESTS_INTERLEAVING_YIELDING_H_
#define CAIRN_TESTS_INTERLEAVING_YIELDING_H_

#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>

namespace cairn::testing {

// Before a virtual thread accesses what others may access; after it changed that; before it looks again at what it
// waits for, which makes no sense until another has changed something. They do nothing outside of a virtual thread.
void before_access() noexcept;
void after_change() noexcept;
void wait_for_others() noexcept;

template <class T>
class Atomic {
 public:
  Atomic() = default;
  Atomic(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order = std::memory_order_seq_cst) const noexcept {
    before_access();
    return value_;
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) noexcept { exchange(value); }
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    before_access();
    return set(value);
  }
  T fetch_add(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    before_access();
    return set(value_ + value);
  }
  T fetch_sub(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    before_access();
    return set(value_ - value);
  }
  T fetch_or(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    before_access();
    return set(value_ | value);
  }
  T fetch_and(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    before_access();
    return set(value_ & value);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst) noexcept {
    before_access();
    if (value_ != expected) {
      expected = value_;
      return false;
    }
    set(desired);
    return true;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                             std::memory_order = std::memory_order_seq_cst) noexcept {
    return compare_exchange_strong(expected, desired);
  }

 private:
  T set(T value) noexcept {
    const T before = std::exchange(value_, value);
    if (before != value) after_change();
    return before;
  }

  T value_{};
};

// Tokens are compared beside writers, who may free their memory.
inline int compare_memory(const void* a, const void* b, std::size_t bytes) noexcept {
  before_access();
  return std::memcmp(a, b, bytes);
}

class YieldingMutex {
 public:
  void lock() noexcept {
    before_access();
    while (taken_) wait_for_others();
    taken_ = true;
  }
  bool try_lock() noexcept {
    before_access();
    return !std::exchange(taken_, true);
  }
  void unlock() noexcept {
    before_access();
    taken_ = false;
    after_change();
  }

 private:
  bool taken_ = false;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_INTERLEAVING_YIELDING_H_
