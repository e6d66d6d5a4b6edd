// What a block's bytes would be computed from, as 128 bits: the check that a cache hands out the right blocks.
#ifndef CAIRN_REPLAY_CONTENT_DIGEST_H_
#define CAIRN_REPLAY_CONTENT_DIGEST_H_

#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cairn::replay {

struct ContentDigest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const ContentDigest&) const = default;
};

// One digest (XXH3, 128 bits) for each full block of `tokens`, over the digest before it, the adapter and the
// block's tokens; so it names the adapter and all tokens up to the block's end. Appends from block
// `digests.size()` on: earlier ones, if any, must be those of the same sequence. Shares nothing with the cache.
void append_digests(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter,
                    std::vector<ContentDigest>& digests);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_CONTENT_DIGEST_H_
