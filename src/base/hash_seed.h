// The seed of hash tables whose keys callers choose: with one that they know they could choose keys that collide.
#ifndef CAIRN_BASE_HASH_SEED_H_
#define CAIRN_BASE_HASH_SEED_H_

#include <cstdint>
#include <random>

namespace cairn {

// `wanted`, or a random one if it is 0.
inline std::uint64_t choose_hash_seed(std::uint64_t wanted) {
  if (wanted != 0) return wanted;
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace cairn

#endif  // CAIRN_BASE_HASH_SEED_H_
