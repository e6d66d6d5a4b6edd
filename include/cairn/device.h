// How the bytes of blocks and snapshots are reached. HostDevice is ordinary memory; an engine implements the same four
// calls for its GPU (cudaMemcpyAsync and an event, say), and nothing above changes.
#ifndef CAIRN_DEVICE_H_
#define CAIRN_DEVICE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <system_error>

namespace cairn {

// Called exactly once for each copy, from any thread, perhaps before the copying call returns, with no lock held that
// anything of Cairn's may take. No error: all bytes are there. An error: the target's bytes are undefined. It must not
// throw and should be short.
using CopyDone = std::function<void(std::error_code)>;

// Thread-safe. A copying call that throws has not begun and does not call `done`. Both sides of a copy stay valid and
// unchanged by others until `done`; they don't overlap. Who calls must pass a `done` that is not empty.
//
// A pool that is destroyed while copies are pending gives its memory back, and its share in the device, when the last
// of them is done, inside that call: deallocate must be callable there, and who doesn't want the device destroyed
// there keeps a share of their own until its copies are done.
class Device {
 public:
  virtual ~Device();

  // Memory on the device, aligned to kAlignment bytes. Throws std::bad_alloc.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void deallocate(std::byte* memory, std::size_t bytes) noexcept = 0;

  virtual void copy_in(std::byte* to_device, std::span<const std::byte> from_host, CopyDone done) = 0;
  virtual void copy_out(std::span<std::byte> to_host, const std::byte* from_device, CopyDone done) = 0;
  virtual void copy_within(std::byte* to_device, const std::byte* from_device, std::size_t bytes, CopyDone done) = 0;

  static constexpr std::size_t kAlignment = 4096;  // bytes
};

// Host memory, all of it zeroed by allocate; copies are done when the call returns, and never fail. Throws
// std::invalid_argument: an empty `done`.
class HostDevice final : public Device {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override;
  void copy_in(std::byte* to_device, std::span<const std::byte> from_host, CopyDone done) override;
  void copy_out(std::span<std::byte> to_host, const std::byte* from_device, CopyDone done) override;
  void copy_within(std::byte* to_device, const std::byte* from_device, std::size_t bytes, CopyDone done) override;

  // One for all who need no other.
  static const std::shared_ptr<Device>& shared();
};

}  // namespace cairn

#endif  // CAIRN_DEVICE_H_
