// Two requests that start alike: the second one reuses the first one's KV blocks. The marked part is in the README.
#include <cairn/radix_tree.h>

#include <cstdio>
#include <vector>

int main() {
  // [readme]
  cairn::RadixTree cache({.block_size = 4});
  const std::vector<cairn::TokenId> prompt = {11, 12, 13, 14, 15, 16, 17, 18, 19};  // two full blocks and a token
  const std::vector<cairn::BlockId> blocks = {70, 71};                              // from your block pool

  auto first = cache.acquire(prompt, /*session_hash=*/0, /*adapter_id=*/0);  // nothing matched: compute it all
  auto acquired = cache.extend(first.handle, prompt, blocks, {});  // 70, 71: take a reference on each for the cache
  cache.release(first.handle);                                     // the request is done; its blocks stay cached

  auto second = cache.acquire(prompt, 0, 0);  // matched_tokens: 8, matched_blocks: 70, 71; only token 19 is left
  cache.release(second.handle);
  auto evicted = cache.evict(2);  // 71, 70: the end of a chain goes first; drop the cache's reference on each
  // [readme end]

  const bool as_described = first.match.empty() && acquired.blocks == blocks && second.match.matched_tokens == 8 &&
                            second.match.matched_blocks == blocks &&
                            evicted.physical == std::vector<cairn::BlockId>{71, 70};
  std::printf("%zu tokens matched, %zu blocks evicted\n", second.match.matched_tokens, evicted.size());
  return as_described ? 0 : 1;
}
