// Uses the installed package: every class of it, through the public headers alone.
#include <cairn/no_prefix_caching.h>
#include <cairn/prefix_cache.h>
#include <cairn/radix_tree.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace {

void expect(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "consumer: %s\n", what);
    std::exit(1);
  }
}

// The tokens of a prompt that was run before, as a later lookup sees them.
std::size_t matched_the_second_time(cairn::PrefixCache& cache) {
  const std::vector<cairn::TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<cairn::BlockId> blocks = {10, 11};
  expect(cache.lookup(prompt, 4, 0, 0).empty(), "a new cache matches something");
  cache.insert(prompt, blocks, {}, 4, 0, 0);
  cache.release(prompt, 4, 0);
  return cache.lookup(prompt, 4, 0, 0).matched_tokens;
}

}  // namespace

int main() {
  const std::unique_ptr<cairn::PrefixCache> none = std::make_unique<cairn::NoPrefixCaching>();
  expect(matched_the_second_time(*none) == 0, "NoPrefixCaching matched something");

  cairn::RadixTree tree({.block_size = 4});
  expect(matched_the_second_time(tree) == 8, "RadixTree did not match the two full blocks");
  expect(tree.stats().cached_blocks == 2, "RadixTree does not count two blocks");
  expect(tree.validate().empty(), "RadixTree is not valid");
  return 0;
}
