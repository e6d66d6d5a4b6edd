#include "replay/verifying_model.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace cairn::replay {
namespace {

constexpr std::uint64_t kMediumBit = std::uint64_t{1} << 63;  // no token id has it

template <std::size_t n>
std::uint64_t mix(std::uint64_t seed, const std::array<std::uint64_t, n>& words) {
  return XXH3_64bits_withSeed(words.data(), sizeof(words), seed);
}

std::uint64_t mix(std::uint64_t seed, std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), mix(seed, std::array{std::uint64_t{text.size()}}));
}

std::uint64_t next_digest(std::uint64_t digest, std::uint64_t item, std::size_t position) {
  return mix(digest, std::array{item, std::uint64_t{position}});
}

std::uint64_t item_of(const MediaSpan& medium, std::size_t offset) {
  return mix(0, std::array{medium.content_id[0], medium.content_id[1], std::uint64_t{offset}}) | kMediumBit;
}

}  // namespace

ModelSequence::ModelSequence(const cairn::Request& request, std::uint64_t weights) {
  digests_.reserve(request.tokens.size() + 1);
  std::uint64_t digest = mix(0, std::array{weights, request.adapter_generation});
  digest = mix(mix(digest, request.adapter), request.tenant_salt);
  digests_.push_back(digest);
  std::size_t done = 0;
  for (const MediaSpan& medium : request.media) {
    append(request.tokens.subspan(done, medium.position - done));
    for (std::size_t offset = 0; offset < medium.length; ++offset) {
      digests_.push_back(next_digest(digests_.back(), item_of(medium, offset), tokens()));
    }
    done = tokens();
  }
  append(request.tokens.subspan(done));
}

void ModelSequence::append(std::span<const TokenId> tokens) {
  const std::size_t old_size = digests_.size();
  digests_.resize(old_size + tokens.size());
  std::uint64_t digest = digests_[old_size - 1];
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    digest = next_digest(digest, tokens[i], old_size - 1 + i);
    digests_[old_size + i] = digest;
  }
}

void ModelSequence::truncate(std::size_t tokens) {
  check_range(tokens, tokens);
  digests_.resize(tokens + 1);
}

std::span<const std::byte> ModelSequence::kv(std::size_t from, std::size_t to) const {
  check_range(from, to);
  return std::as_bytes(std::span(digests_).subspan(from + 1, to - from));
}

void ModelSequence::state(std::size_t tokens, std::size_t shard, std::span<std::byte> to) const {
  check_range(tokens, tokens);
  const std::uint64_t digest = digests_[tokens];
  for (std::size_t at = 0; at < to.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = mix(digest, std::array{std::uint64_t{shard}, std::uint64_t{at}});
    std::memcpy(to.data() + at, &word, std::min(sizeof(word), to.size() - at));
  }
}

void ModelSequence::check_range(std::size_t from, std::size_t to) const {
  if (from > to || to > tokens()) {
    throw std::out_of_range(fmt::format("tokens {} to {} of a sequence of {}", from, to, tokens()));
  }
}

}  // namespace cairn::replay
