// The copies that bring a snapshot's state to where the engine wants it, and who waits for them.
#ifndef CAIRN_ENGINE_STATE_LOAD_H_
#define CAIRN_ENGINE_STATE_LOAD_H_

#include <cstddef>
#include <system_error>

#include "base/mutex.h"
#include "cairn/lease.h"

namespace cairn {

// Shared by a lease and the copies that it has begun: either may go first. Thread-safe; its lock is a leaf.
class StateLoad {
 public:
  StateLoad() = default;
  StateLoad(const StateLoad&) = delete;
  StateLoad& operator=(const StateLoad&) = delete;
  ~StateLoad();

  void begin();
  void end(std::error_code error) noexcept;

  [[nodiscard]] LeaseState state() const;
  // An eventfd, the same at each call, that can be read while nothing is under way. Throws std::system_error.
  [[nodiscard]] int event_fd();

 private:
  void signal() const noexcept CAIRN_REQUIRES(mutex_);
  void unsignal() const noexcept CAIRN_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::size_t under_way_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool failed_ CAIRN_GUARDED_BY(mutex_) = false;
  int event_fd_ CAIRN_GUARDED_BY(mutex_) = -1;  // none so far
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_STATE_LOAD_H_
