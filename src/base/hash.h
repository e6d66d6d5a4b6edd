// The one home of hashing. A hash only ever narrows a search: whoever uses one compares the keys afterwards. But for
// EvictedMemory, whose keys are gone by then: it answers people, and no block is handed out for its answer.
#ifndef CAIRN_BASE_HASH_H_
#define CAIRN_BASE_HASH_H_

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cairn/prefix_cache.h"

namespace cairn {

// XXH3-64 of the bytes, mixed with `seed`. With CAIRN_CONSTANT_HASH, which one test build defines, every hash is
// equal: what passes there does not depend on hashes for correctness.
inline std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
#ifdef CAIRN_CONSTANT_HASH
  static_cast<void>(bytes);
  static_cast<void>(seed);
  return 0;
#else
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
#endif
}

inline std::uint64_t hash_tokens(std::span<const TokenId> tokens, std::uint64_t seed) noexcept {
  return hash_bytes(std::as_bytes(tokens), seed);
}

inline std::uint64_t hash_name(std::string_view name) noexcept {
  return hash_bytes(std::as_bytes(std::span(name)), 0);
}

// Hash of an id that is a 64-bit number, for the hash tables.
struct IdHash {
  using is_avalanching = void;
  std::size_t operator()(std::uint64_t id) const noexcept {
#ifdef CAIRN_CONSTANT_HASH
    static_cast<void>(id);
    return 0;
#else
    return XXH3_64bits(&id, sizeof id);
#endif
  }
};

}  // namespace cairn

#endif  // CAIRN_BASE_HASH_H_
