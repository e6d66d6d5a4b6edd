#include "support/manual_device.h"

#include <algorithm>
#include <utility>

namespace cairn::testing {

std::byte* ManualDevice::allocate(std::size_t bytes) {
  std::byte* const memory = host_.allocate(bytes);
  const std::lock_guard lock(mutex_);
  allocated_bytes_ += bytes;
  return memory;
}

void ManualDevice::deallocate(std::byte* memory, std::size_t bytes) noexcept {
  host_.deallocate(memory, bytes);
  const std::lock_guard lock(mutex_);
  allocated_bytes_ -= bytes;
}

void ManualDevice::copy_in(std::byte* to_device, std::span<const std::byte> from_host, CopyDone done) {
  begin({.to = to_device, .from = from_host.data(), .bytes = from_host.size(), .done = std::move(done)});
}

void ManualDevice::copy_out(std::span<std::byte> to_host, const std::byte* from_device, CopyDone done) {
  begin({.to = to_host.data(), .from = from_device, .bytes = to_host.size(), .done = std::move(done)});
}

void ManualDevice::copy_within(std::byte* to_device, const std::byte* from_device, std::size_t bytes, CopyDone done) {
  begin({.to = to_device, .from = from_device, .bytes = bytes, .done = std::move(done)});
}

void ManualDevice::begin(Copy copy) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(refuses_, false)) throw std::system_error(std::make_error_code(std::errc::no_such_device));
  copies_.push_back(std::move(copy));
}

ManualDevice::Copy ManualDevice::take(std::size_t which) {
  const std::lock_guard lock(mutex_);
  if (which >= copies_.size()) return {};
  Copy copy = std::move(copies_[which]);
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(which));
  return copy;
}

std::size_t ManualDevice::pending() const {
  const std::lock_guard lock(mutex_);
  return copies_.size();
}

bool ManualDevice::complete(std::size_t which) {
  const Copy copy = take(which);
  if (!copy.done) return false;
  std::copy_n(copy.from, copy.bytes, copy.to);
  copy.done({});
  return true;
}

bool ManualDevice::fail(std::size_t which, std::errc error) {
  const Copy copy = take(which);
  if (!copy.done) return false;
  std::fill_n(copy.to, copy.bytes, kSpoilt);
  copy.done(std::make_error_code(error));
  return true;
}

void ManualDevice::complete_all() {
  while (complete()) {
  }
}

void ManualDevice::refuse_next_copy() {
  const std::lock_guard lock(mutex_);
  refuses_ = true;
}

std::size_t ManualDevice::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  return allocated_bytes_;
}

}  // namespace cairn::testing
