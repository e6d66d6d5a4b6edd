#include "replay/content_digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace cairn::replay {

void append_digests(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter,
                    std::vector<ContentDigest>& digests) {
  struct Header {
    ContentDigest previous;
    AdapterId adapter = 0;
  };
  const std::size_t block_bytes = block_size * sizeof(TokenId);
  std::vector<unsigned char> input(sizeof(Header) + block_bytes);
  Header header{.previous = digests.empty() ? ContentDigest{} : digests.back(), .adapter = adapter};
  const std::size_t blocks = tokens.size() / block_size;
  digests.reserve(blocks);
  for (std::size_t i = digests.size(); i < blocks; ++i) {
    std::memcpy(input.data(), &header, sizeof(Header));
    std::memcpy(input.data() + sizeof(Header), tokens.data() + i * block_size, block_bytes);
    const XXH128_hash_t hash = XXH3_128bits(input.data(), input.size());
    header.previous = {.low = hash.low64, .high = hash.high64};
    digests.push_back(header.previous);
  }
}

}  // namespace cairn::replay
