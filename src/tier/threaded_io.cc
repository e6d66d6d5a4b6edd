// AsyncIo by threads that call pread and pwrite, one operation at a time each.
//
// All state is shared with the threads, so one that the device holds on to can outlive the AsyncIo.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "tier/async_io.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAbandonAfter{1'000};
constexpr std::chrono::hours kWaitMax{24};  // no timeout overflows the clock

template <class Call>
auto uninterrupted(Call call) noexcept {
  auto answer = call();
  while (answer < 0 && errno == EINTR) answer = call();
  return answer;
}

IoResult perform(const IoRequest& request) noexcept {
  const auto offset = static_cast<off_t>(request.offset);
  const ssize_t answer = uninterrupted([&]() -> ssize_t {
    switch (request.kind) {
      case IoRequest::Kind::kRead:
        return ::pread(request.file, request.memory, request.length, offset);
      case IoRequest::Kind::kWrite:
        return ::pwrite(request.file, request.memory, request.length, offset);
      case IoRequest::Kind::kSync:
        return ::fdatasync(request.file);
      case IoRequest::Kind::kPunch:
        return ::fallocate(request.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                           static_cast<off_t>(request.length));
    }
    errno = EINVAL;
    return -1;
  });
  if (answer < 0) return {.token = request.token, .error = errno};
  return {.token = request.token, .bytes = static_cast<std::size_t>(answer)};
}

class Shared {
 public:
  explicit Shared(std::size_t depth) : depth_(depth) {
    requests_.reserve(depth);
    results_.reserve(depth);
  }

  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }

  void submit(const IoRequest& request) {
    {
      const MutexLock lock(mutex_);
      CAIRN_CHECK(requests_.size() + performing_ + results_.size() < depth_);  // the caller keeps below depth()
      requests_.push_back(request);
    }
    has_requests_.notify_one();
  }

  std::size_t wait(std::span<IoResult> results, milliseconds timeout) {
    const Clock::time_point deadline = Clock::now() + std::min<milliseconds>(timeout, kWaitMax);
    const MutexLock lock(mutex_);
    while (results_.empty() && !woken_) {
      if (has_results_.wait_until(mutex_, deadline) == std::cv_status::timeout) break;
    }
    woken_ = false;
    const std::size_t count = std::min(results.size(), results_.size());
    const auto end = results_.begin() + static_cast<std::ptrdiff_t>(count);
    std::copy(results_.begin(), end, results.begin());
    results_.erase(results_.begin(), end);
    return count;
  }

  void wake() {
    {
      const MutexLock lock(mutex_);
      woken_ = true;
    }
    has_results_.notify_one();
  }

  // What every thread of the pool does.
  void serve() {
    for (;;) {
      IoRequest request;
      {
        const MutexLock lock(mutex_);
        while (requests_.empty() && !stopping_) has_requests_.wait(mutex_);
        if (requests_.empty()) return;
        request = requests_.front();
        requests_.erase(requests_.begin());
        ++performing_;
      }
      const IoResult result = perform(request);
      {
        const MutexLock lock(mutex_);
        --performing_;
        results_.push_back(result);
      }
      has_results_.notify_one();
    }
  }

  // Waits until all is performed, until `deadline` at most; what is not begun then never is. Whether all was.
  bool stop(Clock::time_point deadline) {
    bool all = false;
    {
      const MutexLock lock(mutex_);
      while (!requests_.empty() || performing_ > 0) {
        if (has_results_.wait_until(mutex_, deadline) == std::cv_status::timeout) break;
      }
      requests_.clear();
      all = performing_ == 0;
      stopping_ = true;
    }
    has_requests_.notify_all();
    return all;
  }

 private:
  const std::size_t depth_;
  Mutex mutex_;
  std::condition_variable_any has_requests_;
  std::condition_variable_any has_results_;
  // These two never grow beyond what they reserve at first.
  std::vector<IoRequest> requests_ CAIRN_GUARDED_BY(mutex_);  // not begun
  std::vector<IoResult> results_ CAIRN_GUARDED_BY(mutex_);    // not handed out
  std::size_t performing_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool woken_ CAIRN_GUARDED_BY(mutex_) = false;
  bool stopping_ CAIRN_GUARDED_BY(mutex_) = false;
};

class ThreadedIo final : public AsyncIo {
 public:
  ThreadedIo(std::size_t depth, std::size_t threads) : shared_(std::make_shared<Shared>(depth)) {
    threads_.reserve(threads);
    for (std::size_t i = 0; i < std::max<std::size_t>(threads, 1); ++i) {
      try {
        threads_.emplace_back([shared = shared_] { shared->serve(); });
      } catch (const std::system_error&) {
        if (threads_.empty()) throw;
        break;  // fewer will do
      }
    }
  }
  ThreadedIo(const ThreadedIo&) = delete;
  ThreadedIo& operator=(const ThreadedIo&) = delete;

  ~ThreadedIo() override {
    const bool all_performed = shared_->stop(Clock::now() + kAbandonAfter);
    for (std::thread& thread : threads_) all_performed ? thread.join() : thread.detach();
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "pread/pwrite"; }
  [[nodiscard]] std::size_t depth() const noexcept override { return shared_->depth(); }
  void submit(const IoRequest& request) noexcept override { shared_->submit(request); }
  [[nodiscard]] std::size_t wait(std::span<IoResult> results, milliseconds timeout) noexcept override {
    return shared_->wait(results, timeout);
  }
  void wake() noexcept override { shared_->wake(); }

 private:
  const std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<AsyncIo> make_threaded_io(std::size_t depth, std::size_t threads) {
  return std::make_unique<ThreadedIo>(depth, threads);
}

}  // namespace cairn
