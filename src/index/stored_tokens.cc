#include "index/stored_tokens.h"

#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cairn {
namespace {

constexpr std::size_t kGroup = StoredTokens::kGroup;
constexpr std::size_t kLanes = kGroup / 2;
constexpr std::size_t kGroupWords = 12;
constexpr std::size_t kPiece = 4;  // groups compared between two branches
constexpr std::uint32_t kMostPacked = (1U << 24) - 1;

using Lanes = std::array<std::uint32_t, kLanes>;
using HalfLanes = std::array<std::uint16_t, kLanes>;
using Group = std::array<TokenId, kGroup>;

HalfLanes halves_of(const std::uint32_t* group) noexcept {
  HalfLanes halves;
  std::memcpy(halves.data(), group + kLanes, sizeof halves);
  return halves;
}

Group unpack(const std::uint32_t* group) noexcept {
  const HalfLanes halves = halves_of(group);
  Group tokens;
  for (std::size_t i = 0; i < kLanes; ++i) {
    tokens[i] = group[i] & kMostPacked;
    tokens[i + kLanes] = group[i] >> 24 << 16 | halves[i];
  }
  return tokens;
}

void pack(const TokenId* tokens, std::uint32_t* group, Lanes& any) noexcept {
  Lanes lanes;
  HalfLanes halves;
  for (std::size_t i = 0; i < kLanes; ++i) any[i] |= tokens[i] | tokens[i + kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = tokens[i] | tokens[i + kLanes] >> 16 << 24;
  for (std::size_t i = 0; i < kLanes; ++i) halves[i] = static_cast<std::uint16_t>(tokens[i + kLanes]);
  std::memcpy(group, lanes.data(), sizeof lanes);
  std::memcpy(group + kLanes, halves.data(), sizeof halves);
}

// A group holds the tokens t if for each lane l of it, and its half h, with x = l ^ t[i]: t[i] is below 2^24, the
// lower 24 bits of x are zero, and t[i + 8] is the upper 8 bits of x, moved down by 16, and h. All three have to be
// looked at: what t[i] has above 2^24 would change x just where t[i + 8] could make up for it.

bool differ_anywhere(const std::uint32_t* groups, const TokenId* tokens, std::size_t count) noexcept {
  Lanes differing{};
  for (std::size_t i = 0; i < count; ++i, groups += kGroupWords, tokens += kGroup) {
    const HalfLanes halves = halves_of(groups);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t x = groups[lane] ^ tokens[lane];
      differing[lane] |= x << 8 | tokens[lane] >> 24 | (x >> 8 ^ halves[lane] ^ tokens[lane + kLanes]);
    }
  }
  return std::reduce(differing.begin(), differing.end(), 0U, std::bit_or<>{}) != 0;
}

#if defined(__x86_64__)
__attribute__((target("avx2"), always_inline)) inline __m256i load(const std::uint32_t* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

__attribute__((target("avx2"), always_inline)) inline bool differ_avx2(const std::uint32_t* groups,
                                                                       const TokenId* tokens,
                                                                       std::size_t count) noexcept {
  __m256i first = _mm256_setzero_si256();   // its upper 8 bits: those of all t[i]
  __m256i below = _mm256_setzero_si256();   // its lower 24 bits: those of all x
  __m256i second = _mm256_setzero_si256();  // differences of all t[i + 8]
  for (std::size_t i = 0; i < count; ++i, groups += kGroupWords, tokens += kGroup) {
    const __m256i t = load(tokens);
    const __m256i x = _mm256_xor_si256(load(groups), t);
    const __m256i halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(groups + kLanes)));
    const __m256i y = _mm256_xor_si256(_mm256_srli_epi32(x, 8), load(tokens + kLanes));
    first = _mm256_or_si256(first, t);
    below = _mm256_or_si256(below, x);
    second = _mm256_or_si256(second, _mm256_xor_si256(y, halves));
  }
  const __m256i of_first = _mm256_or_si256(_mm256_srli_epi32(first, 24), _mm256_slli_epi32(below, 8));
  const __m256i differing = _mm256_or_si256(of_first, second);
  return _mm256_testz_si256(differing, differing) == 0;
}

__attribute__((target("avx2"))) std::size_t matching_groups_avx2(const std::uint32_t* groups, const TokenId* tokens,
                                                                 std::size_t count) noexcept {
  const auto differ = [&](std::size_t from, std::size_t n) __attribute__((target("avx2"), always_inline)) {
    return differ_avx2(groups + from * kGroupWords, tokens + from * kGroup, n);
  };
  std::size_t same = 0;
  if (count >= kPiece) {
    const std::size_t last = count - kPiece;  // the last piece overlaps the one before it
    while (same < last && !differ(same, kPiece)) same += kPiece;
    if (same >= last && !differ(last, kPiece)) return count;
    same = std::min(same, last);
  }
  while (same < count && !differ(same, 1)) ++same;
  return same;
}
#endif

std::size_t matching_groups(const std::uint32_t* groups, const TokenId* tokens, std::size_t count) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return matching_groups_avx2(groups, tokens, count);
#endif
  return matching_groups_anywhere(groups, tokens, count);
}

// In pieces so small that memcpy does not fall back on `rep movsb`, which some processors are slow at if the addresses
// are almost the same modulo 4096.
void copy_words(const std::uint32_t* from, std::size_t count, std::uint32_t* to) noexcept {
  constexpr std::size_t kCopied = 512;
  for (; count > kCopied; count -= kCopied, from += kCopied, to += kCopied) {
    std::memcpy(to, from, kCopied * sizeof *to);
  }
  if (count > 0) std::memcpy(to, from, count * sizeof *to);
}

}  // namespace

std::size_t matching_groups_anywhere(const std::uint32_t* groups, const TokenId* tokens, std::size_t count) noexcept {
  const auto differ = [&](std::size_t from, std::size_t n) {
    return differ_anywhere(groups + from * kGroupWords, tokens + from * kGroup, n);
  };
  std::size_t same = 0;
  while (count - same >= kPiece && !differ(same, kPiece)) same += kPiece;
  while (same < count && !differ(same, 1)) ++same;
  return same;
}

std::size_t StoredTokens::matching_packed(std::size_t from, const TokenId* tokens, std::size_t count) const noexcept {
  CAIRN_DCHECK(from % kGroup == 0);
  CAIRN_DCHECK(count % kGroup == 0);
  const std::uint32_t* const groups = group(from);
  const std::size_t same = matching_groups(groups, tokens, count / kGroup);
  if (same == count / kGroup) return count;
  const Group stored = unpack(groups + same * kGroupWords);
  const auto first = std::mismatch(stored.begin(), stored.end(), tokens + same * kGroup).first;
  return same * kGroup + static_cast<std::size_t>(first - stored.begin());
}

void StoredTokens::read(std::size_t from, std::span<TokenId> tokens) const noexcept {
  if (form() == TokenForm::kPlain) {
    copy_words(words() + from, tokens.size(), tokens.data());
    return;
  }
  CAIRN_DCHECK(from % kGroup == 0);
  CAIRN_DCHECK(tokens.size() % kGroup == 0);
  const std::uint32_t* packed = group(from);
  for (std::size_t i = 0; i < tokens.size(); i += kGroup, packed += kGroupWords) {
    std::ranges::copy(unpack(packed), tokens.data() + i);
  }
}

bool StoredTokens::write(std::size_t at, std::span<const TokenId> tokens) const noexcept {
  if (form() == TokenForm::kPlain) {
    copy_words(tokens.data(), tokens.size(), words() + at);
    return true;
  }
  CAIRN_DCHECK(at % kGroup == 0);
  CAIRN_DCHECK(tokens.size() % kGroup == 0);
  std::uint32_t* packed = group(at);
  Lanes any{};
  for (std::size_t i = 0; i < tokens.size(); i += kGroup, packed += kGroupWords) pack(tokens.data() + i, packed, any);
  return std::reduce(any.begin(), any.end(), 0U, std::bit_or<>{}) <= kMostPacked;
}

void StoredTokens::copy_from(StoredTokens from, std::size_t count) const noexcept {
  if (form() == from.form()) {
    copy_words(from.words(), num_words(count, form()), words());
  } else {
    CAIRN_DCHECK(form() == TokenForm::kPlain);
    from.read(0, {words(), count});
  }
}

}  // namespace cairn
