// Reads and writes of files that are under way while the caller goes on: the one seam through which the file store
// touches its data. The kernel's io_uring behind it, or threads with pread and pwrite; tests put faults in between.
#ifndef CAIRN_TIER_ASYNC_IO_H_
#define CAIRN_TIER_ASYNC_IO_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace cairn {

// One operation. Buffer, offset and length are multiples of 4096, as direct I/O asks.
struct IoRequest {
  enum class Kind : std::uint8_t {
    kRead,
    kWrite,
    kSync,   // all writes that were done before it survive a power loss
    kPunch,  // gives the space of [offset, offset + length) back; it reads as zeros then
  };
  Kind kind = Kind::kRead;
  int file = -1;
  std::uint64_t offset = 0;
  std::byte* memory = nullptr;  // kRead: written to; kWrite: read only
  std::size_t length = 0;
  std::uint64_t token = 0;  // the caller's
};

struct IoResult {
  std::uint64_t token = 0;
  int error = 0;          // an errno; 0: none
  std::size_t bytes = 0;  // read or written: may be fewer than asked for
};

// Used by one thread, but for wake().
class AsyncIo {
 public:
  // What is under way is waited for, for a second at most; what is not over then is abandoned. The device may read or
  // write an abandoned operation's memory, and its file, at any time later: whoever can't be sure that all results
  // have come must not free or use that memory again, nor close the file.
  virtual ~AsyncIo();

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;  // "io_uring", "pread/pwrite"
  // How many may be under way at once.
  [[nodiscard]] virtual std::size_t depth() const noexcept = 0;

  // Begins it; the caller has fewer than depth() under way. The memory stays valid until its result has come. Whether
  // the device takes it at once or at the next wait() is open. Never fails: errors are results.
  virtual void submit(const IoRequest& request) noexcept = 0;
  // Hands out results, as many as there are and fit; waits for the first of them, or wake(), or until `timeout` has
  // passed. How many.
  [[nodiscard]] virtual std::size_t wait(std::span<IoResult> results, std::chrono::milliseconds timeout) noexcept = 0;
  // From any thread: the present wait(), or the next one, returns.
  virtual void wake() noexcept = 0;
};

// Null if the kernel does not allow it, or is older than Linux 5.11.
[[nodiscard]] std::unique_ptr<AsyncIo> make_uring_io(std::size_t depth);
// Throws std::system_error if there can't be a single thread.
[[nodiscard]] std::unique_ptr<AsyncIo> make_threaded_io(std::size_t depth, std::size_t threads = 4);

}  // namespace cairn

#endif  // CAIRN_TIER_ASYNC_IO_H_
