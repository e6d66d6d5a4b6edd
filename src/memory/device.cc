// Device's key function, and the device that is ordinary memory.
#include "cairn/device.h"

#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace cairn {
namespace {

// Copies what does not overlap; nothing if there are no bytes, when either side may be null.
void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void check_done(const CopyDone& done) {
  if (!done) throw std::invalid_argument("cairn: done: must not be empty");
}

}  // namespace

Device::~Device() = default;

std::byte* HostDevice::allocate(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kAlignment}));
  std::memset(memory, 0, bytes);
  return memory;
}

void HostDevice::deallocate(std::byte* memory, std::size_t /*bytes*/) noexcept {
  ::operator delete(memory, std::align_val_t{kAlignment});
}

void HostDevice::copy_in(std::byte* to_device, std::span<const std::byte> from_host, CopyDone done) {
  copy_within(to_device, from_host.data(), from_host.size(), std::move(done));
}

void HostDevice::copy_out(std::span<std::byte> to_host, const std::byte* from_device, CopyDone done) {
  copy_within(to_host.data(), from_device, to_host.size(), std::move(done));
}

void HostDevice::copy_within(std::byte* to_device, const std::byte* from_device, std::size_t bytes, CopyDone done) {
  check_done(done);
  copy(to_device, from_device, bytes);
  done({});
}

const std::shared_ptr<Device>& HostDevice::shared() {
  static const std::shared_ptr<Device> device = std::make_shared<HostDevice>();
  return device;
}

}  // namespace cairn
