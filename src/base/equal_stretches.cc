#include "base/equal_stretches.h"

#include <algorithm>

namespace cairn {
namespace {

constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;  // odd

constexpr std::uint64_t power(std::uint64_t base, std::size_t exponent) {
  std::uint64_t product = 1;
  for (std::size_t i = 0; i < exponent; ++i) product *= base;
  return product;
}

std::uint64_t mixed(std::uint64_t hash, AdapterId adapter) {
  hash += adapter * kFactor;
  hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93;
  return hash ^ (hash >> 32);
}

// Calls `visit(hash, position)` for each window. The hash is a polynomial in the tokens, rolled along.
template <typename Visit>
void for_each_window(AdapterId adapter, std::span<const TokenId> tokens, std::size_t from, Visit visit) {
  constexpr std::size_t kWindow = SeenWindows::kWindowTokens;
  constexpr std::uint64_t kOut = power(kFactor, kWindow);
  if (tokens.size() < kWindow || from > tokens.size() - kWindow) return;
  std::uint64_t rolled = 0;
  for (std::size_t i = from; i < tokens.size(); ++i) {
    rolled = rolled * kFactor + tokens[i] + 1;
    if (i - from >= kWindow) rolled -= kOut * (tokens[i - kWindow] + std::uint64_t{1});
    if (i - from + 1 < kWindow) continue;
    visit(mixed(rolled, adapter), i + 1 - kWindow);
  }
}

}  // namespace

void SeenWindows::add(const Sequence& sequence, std::span<const TokenId> tokens, std::size_t from) {
  for_each_window(sequence.adapter, tokens, from, [&](std::uint64_t hash, std::size_t position) {
    if ((hash & sample_mask_) != 0) return;
    const Place place{.sequence = sequence.sequence, .position = static_cast<std::uint32_t>(position)};
    if (const auto found = places_.find(hash); found != places_.end()) {
      found->second = place;
    } else if (places_.size() < kWindowsMax) {
      places_.emplace(hash, place);
    }
  });
}

std::vector<SeenWindows::Match> SeenWindows::find(AdapterId adapter, std::span<const TokenId> tokens,
                                                  std::size_t from) const {
  std::vector<Match> matches;
  for_each_window(adapter, tokens, from, [&](std::uint64_t hash, std::size_t position) {
    if ((hash & sample_mask_) != 0) return;
    const auto found = places_.find(hash);
    if (found == places_.end()) return;
    matches.push_back({.seen = found->second, .position = static_cast<std::uint32_t>(position)});
  });
  return matches;
}

SequenceDifference compare_sequences(std::span<const TokenId> old, std::span<const TokenId> now,
                                     std::span<const SeenWindows::Match> matches, std::size_t from) {
  SequenceDifference result;
  const auto [old_end, now_end] = std::ranges::mismatch(old, now);
  result.common = static_cast<std::uint32_t>(now_end - now.begin());
  // A stretch must not reach back into what was equal before it, in either sequence. If they differ before `from`
  // already, all of the old sequence may have moved.
  std::size_t old_low = result.common >= from ? result.common : 0;
  std::size_t new_low = std::max<std::size_t>(result.common, from);
  for (const SeenWindows::Match& match : matches) {
    std::size_t old_begin = match.seen.position;
    std::size_t new_begin = match.position;
    if (old_begin < old_low || new_begin < new_low) continue;
    std::size_t length = 0;
    while (old_begin + length < old.size() && new_begin + length < now.size() &&
           old[old_begin + length] == now[new_begin + length]) {
      ++length;
    }
    if (length < SeenWindows::kWindowTokens) continue;  // equal hashes only
    while (old_begin > old_low && new_begin > new_low && old[old_begin - 1] == now[new_begin - 1]) {
      --old_begin;
      --new_begin;
      ++length;
    }
    if (result.runs++ == 0) {
      result.old_at = static_cast<std::uint32_t>(old_begin);
      result.new_at = static_cast<std::uint32_t>(new_begin);
    }
    old_low = old_begin + length;
    new_low = new_begin + length;
    result.stretches.emplace_back(new_begin, new_low);
  }
  return result;
}

}  // namespace cairn
