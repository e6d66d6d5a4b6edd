// AsyncIo by the kernel's io_uring.
//
// submit() only prepares entries of the submission queue, and wait() hands them over in the same system call that
// waits; but once there is work for the disk that should not idle meanwhile (kBytesAtOnce), submit() hands it over.
//
// Writes that are submitted one after the other and lie one behind the other in the file are one operation for the
// kernel. Should it fail, or be done in part, each is made once more alone, so each has a result of its own.
//
// wake() writes to an eventfd, which a poll entry of the ring watches: it completes, and so ends the wait. The poll is
// put in at the next wait after it has completed, by the thread that waits: an entry ends with the thread that made
// it.
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tier/async_io.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAbandonAfter{1'000};
constexpr std::chrono::hours kWaitMax{24};  // no timeout overflows the clock
// The kernel has 32 bits for it; a longer request is done as far, and its result says so. Requests are not split: in
// pieces of 1 to 16 MiB those of 64 MiB took as long, or longer.
constexpr std::size_t kLengthMax = std::size_t{1} << 30;
constexpr std::size_t kBytesAtOnce = std::size_t{256} << 10;
constexpr std::size_t kEntriesMax = 256;
constexpr std::size_t kJoinedMax = 16;
constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};
constexpr std::uint64_t kPollData = ~std::uint64_t{0};  // user_data of the poll entry
constexpr std::uint64_t kProbeData = kPollData - 1;

__kernel_timespec timespec_of(Clock::duration duration) {
  const auto ns = std::max<std::int64_t>(std::chrono::nanoseconds(duration).count(), 0);
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

class UringIo final : public AsyncIo {
 public:
  // Null if the kernel refuses.
  static std::unique_ptr<UringIo> make(std::size_t depth) {
    std::unique_ptr<UringIo> io(new UringIo(depth));
    return io->open() ? std::move(io) : nullptr;
  }

  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;

  ~UringIo() override {
    const Clock::time_point deadline = Clock::now() + kAbandonAfter;
    std::vector<IoResult> results(slots_.size());
    while (ring_open_ && free_slots_.size() < slots_.size() && Clock::now() < deadline) {
      (void)wait(results, std::chrono::ceil<milliseconds>(deadline - Clock::now()));
    }
    if (ring_open_) io_uring_queue_exit(&ring_);
    if (event_ >= 0) ::close(event_);
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "io_uring"; }
  [[nodiscard]] std::size_t depth() const noexcept override { return slots_.size(); }

  void submit(const IoRequest& request) noexcept override {
    CAIRN_CHECK(free_slots_.size() > done_.size());  // the caller keeps below depth()
    const std::uint32_t number = free_slots_.back();
    free_slots_.pop_back();
    slots_[number] = {.request = request, .next = kNoSlot};
    if (!continues_writes(request)) prepare_writes();
    if (request.kind == IoRequest::Kind::kWrite) {
      if (!writes_.empty()) slots_[writes_.back()].next = number;
      writes_.push_back(number);
    } else {
      prepare(number);
    }
    if (request.kind == IoRequest::Kind::kRead || request.kind == IoRequest::Kind::kWrite) {
      prepared_bytes_ += request.length;
    }
    if (prepared_bytes_ >= kBytesAtOnce) hand_over();
  }

  [[nodiscard]] std::size_t wait(std::span<IoResult> results, milliseconds timeout) noexcept override {
    const Clock::time_point deadline = Clock::now() + std::min<milliseconds>(timeout, kWaitMax);
    for (reap(); done_.empty() && !woken_; reap()) {
      prepare_writes();
      prepare_failed();
      watch_event();
      if (!done_.empty() || woken_) break;  // the queue was full meanwhile
      if (!failed_.empty()) continue;
      const Clock::duration left = deadline - Clock::now();
      if (left <= Clock::duration::zero()) break;
      __kernel_timespec time = timespec_of(left);
      io_uring_cqe* unused = nullptr;
      const int answer = io_uring_submit_and_wait_timeout(&ring_, &unused, 1, &time, nullptr);
      if (io_uring_sq_ready(&ring_) == 0) prepared_bytes_ = 0;
      if (answer == -EAGAIN || answer == -EBUSY || answer == -ENOMEM) pause(deadline);
    }
    if (io_uring_sq_ready(&ring_) > 0 || !writes_.empty() || !failed_.empty()) hand_over();
    woken_ = false;
    const std::size_t count = std::min(results.size(), done_.size());
    const auto end = done_.begin() + static_cast<std::ptrdiff_t>(count);
    std::copy(done_.begin(), end, results.begin());
    done_.erase(done_.begin(), end);
    return count;
  }

  void wake() noexcept override {
    const std::uint64_t one = 1;
    (void)!::write(event_, &one, sizeof one);  // fails only if the counter is full: it is awake then
  }

 private:
  struct Slot {
    IoRequest request;
    std::uint32_t next = kNoSlot;  // of the writes that are made with it
  };

  explicit UringIo(std::size_t depth) : slots_(depth), vectors_(depth * kJoinedMax) {
    free_slots_.reserve(depth);
    done_.reserve(depth);
    writes_.reserve(kJoinedMax);
    failed_.reserve(depth);
    for (std::size_t i = depth; i > 0; --i) free_slots_.push_back(static_cast<std::uint32_t>(i - 1));
  }

  bool open() {
    event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_ < 0) return false;
    const auto entries = static_cast<unsigned>(std::clamp<std::size_t>(slots_.size() + 1, 8, kEntriesMax));
    io_uring_params params{};
    params.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE;
    params.cq_entries =
        static_cast<unsigned>(std::clamp<std::size_t>(2 * slots_.size(), 2 * std::size_t{entries}, 8 * kEntriesMax));
    if (io_uring_queue_init_params(entries, &ring_, &params) != 0) return false;
    ring_open_ = true;
    // Of Linux 5.11; all operations are older.
    constexpr unsigned kNeeded = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP;
    return (params.features & kNeeded) == kNeeded && probe();
  }

  // Some sandboxes let a ring be made, but not used.
  bool probe() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data64(entry, kProbeData);
    __kernel_timespec timeout{.tv_sec = 1, .tv_nsec = 0};
    io_uring_cqe* completion = nullptr;
    if (io_uring_submit_and_wait_timeout(&ring_, &completion, 1, &timeout, nullptr) < 0) return false;
    if (io_uring_peek_cqe(&ring_, &completion) != 0) return false;
    const bool right = completion->res == 0 && io_uring_cqe_get_data64(completion) == kProbeData;
    io_uring_cqe_seen(&ring_, completion);
    return right;
  }

  io_uring_sqe* next_entry() noexcept {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    while (entry == nullptr) {  // the queue is full
      (void)io_uring_submit(&ring_);
      reap();  // while completions find no room, the kernel may take nothing
      entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) pause(Clock::now() + milliseconds(10));
    }
    return entry;
  }

  // Whether it is a write that goes on where the last of writes_ ends.
  [[nodiscard]] bool continues_writes(const IoRequest& request) const noexcept {
    if (request.kind != IoRequest::Kind::kWrite || writes_.empty() || writes_.size() == kJoinedMax) return false;
    const IoRequest& last = slots_[writes_.back()].request;
    return request.file == last.file && request.offset == last.offset + last.length;
  }

  void prepare_writes() noexcept {
    if (writes_.empty()) return;
    const std::uint32_t first = writes_.front();
    if (writes_.size() == 1) {
      prepare(first);
    } else {
      iovec* const vectors = &vectors_[first * kJoinedMax];
      std::ranges::transform(writes_, vectors, [this](std::uint32_t number) {
        const IoRequest& request = slots_[number].request;
        return iovec{.iov_base = request.memory, .iov_len = request.length};
      });
      const IoRequest& request = slots_[first].request;
      io_uring_sqe* entry = next_entry();
      io_uring_prep_writev(entry, request.file, vectors, static_cast<unsigned>(writes_.size()), request.offset);
      io_uring_sqe_set_data64(entry, first);
    }
    writes_.clear();
  }

  // Those that failed together are made alone.
  void prepare_failed() noexcept {
    while (!failed_.empty()) {
      const std::uint32_t number = failed_.back();
      failed_.pop_back();
      prepare(number);
    }
  }

  void prepare(std::uint32_t slot) noexcept {
    const IoRequest& request = slots_[slot].request;
    io_uring_sqe* entry = next_entry();
    const auto length = static_cast<unsigned>(std::min(request.length, kLengthMax));
    switch (request.kind) {
      case IoRequest::Kind::kRead:
        io_uring_prep_read(entry, request.file, request.memory, length, request.offset);
        break;
      case IoRequest::Kind::kWrite:
        io_uring_prep_write(entry, request.file, request.memory, length, request.offset);
        break;
      case IoRequest::Kind::kSync:
        io_uring_prep_fsync(entry, request.file, IORING_FSYNC_DATASYNC);
        break;
      case IoRequest::Kind::kPunch:
        io_uring_prep_fallocate(entry, request.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(request.offset), static_cast<off_t>(request.length));
        break;
    }
    io_uring_sqe_set_data64(entry, slot);
  }

  void watch_event() noexcept {
    if (watching_) return;
    io_uring_sqe* entry = next_entry();
    io_uring_prep_poll_add(entry, event_, POLLIN);
    io_uring_sqe_set_data64(entry, kPollData);
    watching_ = true;
  }

  // What the kernel does not take now stays in the queue for the next time.
  void hand_over() noexcept {
    prepare_writes();
    prepare_failed();
    (void)io_uring_submit(&ring_);
    prepared_bytes_ = 0;
  }

  // The kernel takes nothing for want of memory: it is asked again in a moment.
  void pause(Clock::time_point deadline) noexcept {
    pollfd event{.fd = event_, .events = POLLIN, .revents = 0};
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    (void)::poll(&event, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 10)));
    take_wakes();
  }

  void take_wakes() noexcept {
    std::uint64_t times = 0;
    woken_ = ::read(event_, &times, sizeof times) == sizeof times || woken_;
  }

  // Takes the completions that are there.
  void reap() noexcept {
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&ring_, &completion) == 0) {
      const std::uint64_t data = io_uring_cqe_get_data64(completion);
      const int result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (data == kPollData) {
        watching_ = false;
        take_wakes();
      } else {
        finish(static_cast<std::uint32_t>(data), result);
      }
    }
  }

  void finish(std::uint32_t first, int result) noexcept {
    if (slots_[first].next == kNoSlot) {
      finish_one(first, result);
      return;
    }
    std::size_t bytes = 0;
    for (std::uint32_t slot = first; slot != kNoSlot; slot = slots_[slot].next) bytes += slots_[slot].request.length;
    const bool whole = result >= 0 && static_cast<std::size_t>(result) == bytes;
    for (std::uint32_t slot = first; slot != kNoSlot;) {
      const std::uint32_t next = std::exchange(slots_[slot].next, kNoSlot);
      if (whole) {
        finish_one(slot, static_cast<int>(slots_[slot].request.length));
      } else {
        failed_.push_back(slot);
      }
      slot = next;
    }
  }

  void finish_one(std::uint32_t slot, int result) noexcept {
    const bool failed = result < 0;
    done_.push_back({.token = slots_[slot].request.token,
                     .error = failed ? -result : 0,
                     .bytes = failed ? 0 : static_cast<std::size_t>(result)});
    free_slots_.push_back(slot);
  }

  std::vector<Slot> slots_;     // what is under way
  std::vector<iovec> vectors_;  // kJoinedMax for each slot, in use by the first of the writes made together
  // These never grow beyond what they reserve at first.
  std::vector<std::uint32_t> free_slots_;  // also those of done_
  std::vector<IoResult> done_;             // not handed out
  std::vector<std::uint32_t> writes_;      // not prepared yet, one behind the other in the file
  std::vector<std::uint32_t> failed_;      // to be made alone
  io_uring ring_{};
  bool ring_open_ = false;
  int event_ = -1;
  bool watching_ = false;           // the poll entry is in the ring
  bool woken_ = false;              // by a wake() that no wait() has returned for
  std::size_t prepared_bytes_ = 0;  // not handed over
};

}  // namespace

std::unique_ptr<AsyncIo> make_uring_io(std::size_t depth) {
  return UringIo::make(depth);
}

}  // namespace cairn
