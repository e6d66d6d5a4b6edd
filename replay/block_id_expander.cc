#include "replay/block_id_expander.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "replay/errors.h"

namespace cairn::replay {
namespace {

std::string describe(const std::optional<std::uint64_t>& predecessor) {
  return predecessor ? fmt::format("after id {}", *predecessor) : "at the start of a prompt";
}

}  // namespace

BlockIdExpander::BlockIdExpander(TokenIdAllocator& token_ids, std::size_t block_tokens, BlockIdKind kind)
    : token_ids_(token_ids), block_tokens_(block_tokens), kind_(kind) {
  if (block_tokens == 0 || block_tokens > kSequenceTokensMax) {
    throw std::invalid_argument(
        fmt::format("trace block size {}: must be from 1 to {} tokens", block_tokens, kSequenceTokensMax));
  }
}

std::vector<TokenRun> BlockIdExpander::expand(std::span<const std::uint64_t> ids, std::uint64_t input_length) {
  check_length(ids.size(), input_length);
  std::vector<TokenRun> runs;
  runs.reserve(ids.size() + 1);
  std::vector<std::uint64_t> added;
  const std::uint64_t token_ids_used = token_ids_.used();
  try {
    std::uint64_t left = input_length;
    Predecessor predecessor;
    for (const std::uint64_t id : ids) {
      const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, block_tokens_));
      runs.push_back({.first = intern(id, predecessor, added), .count = count, .literal = false});
      left -= count;
      predecessor = id;
    }
    if (left > 0) runs.push_back(token_ids_.take(left));
  } catch (...) {
    for (const std::uint64_t id : added) interned_.erase(id);
    token_ids_.roll_back(token_ids_used);
    throw;
  }
  return runs;
}

void BlockIdExpander::check_length(std::size_t ids, std::uint64_t input_length) const {
  if (input_length == 0) throw BadLineError("input_length 0: a prompt has at least one token");
  if (input_length > kSequenceTokensMax) {
    throw BadLineError(fmt::format("input_length {}: at most {} tokens", input_length, kSequenceTokensMax));
  }
  if (ids > 0 && (ids - 1) * block_tokens_ >= input_length) {
    throw BadLineError(fmt::format(
        "input_length {}: too short for {} hash_ids of {} tokens, of which only the last may be partial (is the trace "
        "block size right?)",
        input_length, ids, block_tokens_));
  }
}

std::uint64_t BlockIdExpander::intern(std::uint64_t id, Predecessor predecessor, std::vector<std::uint64_t>& added) {
  if (const auto found = interned_.find(id); found != interned_.end()) {
    if (kind_ == BlockIdKind::kChained && found->second.predecessor != predecessor) {
      throw BadLineError(
          fmt::format("hash id {} stands {}, but was first seen {}: chained ids name a block and its whole prefix (do "
                      "the ids name "
                      "blocks alone?)",
                      id, describe(predecessor), describe(found->second.predecessor)));
    }
    return found->second.first_token;
  }
  added.push_back(id);
  const std::uint64_t first_token = token_ids_.take(block_tokens_).first;
  interned_.emplace(id, Interned{.first_token = first_token, .predecessor = predecessor});
  return first_token;
}

}  // namespace cairn::replay
