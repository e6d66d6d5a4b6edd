#include "engine/state_load.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/check.h"

namespace cairn {

StateLoad::~StateLoad() {
  if (event_fd_ >= 0) ::close(event_fd_);
}

void StateLoad::begin() {
  const MutexLock lock(mutex_);
  if (under_way_++ == 0) unsignal();
}

void StateLoad::end(std::error_code error) noexcept {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(under_way_ > 0);
  failed_ = failed_ || error;
  if (--under_way_ == 0) signal();
}

LeaseState StateLoad::state() const {
  const MutexLock lock(mutex_);
  if (under_way_ > 0) return LeaseState::kLoading;
  return failed_ ? LeaseState::kFailed : LeaseState::kReady;
}

int StateLoad::event_fd() {
  const MutexLock lock(mutex_);
  if (event_fd_ < 0) {
    event_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd_ < 0) throw std::system_error(errno, std::generic_category(), "cairn: event_fd: eventfd");
    if (under_way_ == 0) signal();
  }
  return event_fd_;
}

// Neither can fail: the count is 0 or 1, and nobody else writes it.
void StateLoad::signal() const noexcept {
  const std::uint64_t one = 1;
  if (event_fd_ >= 0) CAIRN_CHECK(::write(event_fd_, &one, sizeof one) == sizeof one);
}

void StateLoad::unsignal() const noexcept {
  std::uint64_t count = 0;
  if (event_fd_ < 0) return;
  const auto read = ::read(event_fd_, &count, sizeof count);
  CAIRN_CHECK(read == sizeof count || errno == EAGAIN);  // the engine may have read it itself
}

}  // namespace cairn
