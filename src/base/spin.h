// Waiting without sleeping, for what lasts nanoseconds unless a thread is scheduled away.
#ifndef CAIRN_BASE_SPIN_H_
#define CAIRN_BASE_SPIN_H_

#include <atomic>
#include <thread>

#include "base/mutex.h"
#include "base/pause.h"

namespace cairn {

// Tells the processor, and after a while the scheduler, that this thread waits.
class Backoff {
 public:
  void pause() noexcept {
    constexpr int kSpins = 64;
    if (++spins_ > kSpins) {
      std::this_thread::yield();
      return;
    }
    pause_processor();
  }

 private:
  int spins_ = 0;
};

class CAIRN_CAPABILITY("mutex") SpinLock {
 public:
  void lock() noexcept CAIRN_ACQUIRE() {
    Backoff backoff;
    while (taken_.exchange(true, std::memory_order_acquire)) {  // pairs with the release in unlock
      backoff.pause();
    }
  }
  void unlock() noexcept CAIRN_RELEASE() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

class CAIRN_SCOPED_CAPABILITY SpinLockGuard {
 public:
  explicit SpinLockGuard(SpinLock& lock) CAIRN_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  ~SpinLockGuard() CAIRN_RELEASE() { lock_.unlock(); }
  SpinLockGuard(const SpinLockGuard&) = delete;
  SpinLockGuard& operator=(const SpinLockGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace cairn

#endif  // CAIRN_BASE_SPIN_H_
