// The one piece of device memory that holds the bytes of all blocks, or of all slots, of a pool.
#ifndef CAIRN_MEMORY_ARENA_H_
#define CAIRN_MEMORY_ARENA_H_

#include <cairn/device.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/refuse.h"

namespace cairn {

class Arena {
 public:
  // `count` pieces of `piece_bytes` each, which the caller has checked not to be 0. No device: host memory. `argument`
  // names the size to whoever chose it. Throws std::invalid_argument: more bytes than can be addressed;
  // std::bad_alloc.
  Arena(std::shared_ptr<Device> device, std::size_t count, std::size_t piece_bytes, const char* argument)
      : device_(device ? std::move(device) : std::shared_ptr(HostDevice::shared())), piece_bytes_(piece_bytes) {
    if (piece_bytes > std::numeric_limits<std::size_t>::max() / count) {
      refuse(argument, std::to_string(count) + " times " + std::to_string(piece_bytes) +
                           " bytes are more than can be addressed");
    }
    bytes_ = count * piece_bytes;
    memory_ = device_->allocate(bytes_);
  }
  ~Arena() { device_->deallocate(memory_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] std::byte* piece(std::size_t index) const noexcept { return memory_ + index * piece_bytes_; }
  [[nodiscard]] Device& device() const noexcept { return *device_; }

 private:
  const std::shared_ptr<Device> device_;
  const std::size_t piece_bytes_;
  std::size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace cairn

#endif  // CAIRN_MEMORY_ARENA_H_
