#include "replay/block_trace.h"

#include <boost/unordered/unordered_flat_map.hpp>
#include <limits>
#include <stdexcept>

#include "replay/content_digest.h"

namespace cairn::replay {
namespace {

constexpr std::size_t kDistinctMax = std::numeric_limits<BlockTrace::Number>::max();

struct DigestHash {
  using is_avalanching = void;  // a digest's bits are as good as random
  std::size_t operator()(const ContentDigest& digest) const { return static_cast<std::size_t>(digest.low); }
};

AdapterId context_of(const Request& request, BlockTrace::Adapters adapters) {
  switch (adapters) {
    case BlockTrace::Adapters::kApart:
      return request.context();
    case BlockTrace::Adapters::kTenantsAsIfSame:
      return request.adapter;
    case BlockTrace::Adapters::kAsIfSame:
      break;
  }
  return 0;
}

}  // namespace

BlockTrace::BlockTrace(const Workload& workload, std::size_t block_size, Adapters adapters) : block_size_(block_size) {
  if (block_size == 0) throw std::invalid_argument("block_size 0: must be at least 1");
  boost::unordered_flat_map<ContentDigest, Number, DigestHash> numbers;
  std::vector<TokenId> tokens;
  std::vector<ContentDigest> digests;
  extents_.reserve(workload.size());
  for (std::size_t i = 0; i < workload.size(); ++i) {
    const Request& request = workload[i];
    workload.prompt(i, tokens);
    if (request.has_output_tokens) workload.append_output(i, tokens);
    digests.clear();
    append_digests(tokens, block_size, context_of(request, adapters), digests);
    const std::size_t begin = numbers_.size();
    for (const ContentDigest& digest : digests) {
      const auto [found, added] = numbers.try_emplace(digest, static_cast<Number>(numbers.size()));
      if (added && numbers.size() > kDistinctMax) throw std::length_error("more than 2^32 - 1 distinct blocks");
      numbers_.push_back(found->second);
    }
    extents_.push_back(
        {.prompt = begin, .output = begin + request.prompt_tokens / block_size, .end = numbers_.size()});
  }
  distinct_ = numbers.size();
}

}  // namespace cairn::replay
