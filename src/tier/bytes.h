// Numbers in bytes that outlive the machine: little-endian, at any address.
#ifndef CAIRN_TIER_BYTES_H_
#define CAIRN_TIER_BYTES_H_

#include <concepts>
#include <cstddef>

namespace cairn {

template <std::unsigned_integral T>
void store_little_endian(std::byte* to, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    to[i] = static_cast<std::byte>(value & 0xFF);
    value = static_cast<T>(value >> 7 >> 1);  // in two steps: a byte can't be shifted by 8
  }
}

template <std::unsigned_integral T>
[[nodiscard]] T load_little_endian(const std::byte* from) noexcept {
  T value = 0;
  for (std::size_t i = sizeof(T); i > 0; --i) {
    value = static_cast<T>(value << 7 << 1 | std::to_integer<T>(from[i - 1]));
  }
  return value;
}

}  // namespace cairn

#endif  // CAIRN_TIER_BYTES_H_
