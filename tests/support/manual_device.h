// A device whose copies are done when the test says so, in the order it says, well or not.
#ifndef CAIRN_TESTS_SUPPORT_MANUAL_DEVICE_H_
#define CAIRN_TESTS_SUPPORT_MANUAL_DEVICE_H_

#include <cairn/device.h>

#include <cstddef>
#include <mutex>
#include <span>
#include <system_error>
#include <vector>

namespace cairn::testing {

// Thread-safe. Memory is host memory. A copy moves its bytes when it is completed and not before, so bytes that
// somebody reads too early, or changes too early, are seen to be wrong.
class ManualDevice final : public Device {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override;
  void copy_in(std::byte* to_device, std::span<const std::byte> from_host, CopyDone done) override;
  void copy_out(std::span<std::byte> to_host, const std::byte* from_device, CopyDone done) override;
  void copy_within(std::byte* to_device, const std::byte* from_device, std::size_t bytes, CopyDone done) override;

  // Copies begun and not done.
  [[nodiscard]] std::size_t pending() const;
  // Does the copy at `which` among the pending ones, the oldest of which is 0, and calls its `done` from this thread.
  // False if there are not so many.
  bool complete(std::size_t which = 0);
  // Spoils the target's bytes and reports `error`.
  bool fail(std::size_t which = 0, std::errc error = std::errc::io_error);
  // Oldest first, with those that are begun meanwhile.
  void complete_all();

  // The next copying call throws std::system_error and begins nothing.
  void refuse_next_copy();

  // Allocated and not given back.
  [[nodiscard]] std::size_t allocated_bytes() const;

  static constexpr std::byte kSpoilt{0xEE};  // what a failed copy leaves

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
    CopyDone done;
  };

  void begin(Copy copy);
  // Takes it out of the pending ones; one without `done` if there are not so many.
  Copy take(std::size_t which);

  HostDevice host_;
  mutable std::mutex mutex_;  // guards the rest; not held while bytes move or `done` is called
  std::vector<Copy> copies_;
  bool refuses_ = false;
  std::size_t allocated_bytes_ = 0;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_MANUAL_DEVICE_H_
