// A std::mutex that clang's thread-safety analysis understands.
#ifndef CAIRN_BASE_MUTEX_H_
#define CAIRN_BASE_MUTEX_H_

#include <mutex>

#include "base/pause.h"

#if defined(__clang__)
#define CAIRN_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define CAIRN_THREAD_ANNOTATION(x)
#endif

#define CAIRN_CAPABILITY(name) CAIRN_THREAD_ANNOTATION(capability(name))
#define CAIRN_SCOPED_CAPABILITY CAIRN_THREAD_ANNOTATION(scoped_lockable)
#define CAIRN_GUARDED_BY(mutex) CAIRN_THREAD_ANNOTATION(guarded_by(mutex))
#define CAIRN_ACQUIRE(...) CAIRN_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define CAIRN_ACQUIRE_SHARED(...) CAIRN_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define CAIRN_REQUIRES(...) CAIRN_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define CAIRN_REQUIRES_SHARED(...) CAIRN_THREAD_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define CAIRN_RELEASE(...) CAIRN_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace cairn {

class CAIRN_CAPABILITY("mutex") Mutex {
 public:
  // Spins for a few microseconds before it sleeps: to sleep and be woken takes longer than most holders do.
  void lock() CAIRN_ACQUIRE() {
    constexpr int kSpins = 128;
    for (int i = 0; i < kSpins; ++i) {
      if (mutex_.try_lock()) return;
      pause_processor();
    }
    mutex_.lock();
  }
  void unlock() CAIRN_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class CAIRN_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) CAIRN_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() CAIRN_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace cairn

#endif  // CAIRN_BASE_MUTEX_H_
