// How an edge keeps its tokens.
//
// As they are, one word each, or packed: three bytes each, where all are below 2^24 and blocks are whole groups of 16
// tokens. Nearly all are: vocabularies have fewer than 2^18 ids. What is read from a cold tree is then a quarter less.
// The 48 bytes of a group t[0..15], so arranged that a processor compares 8 tokens at a time without sorting bytes:
//
//     8 words of 32 bits     t[i] | t[i + 8] >> 16 << 24      all of t[i], the highest byte of t[i + 8]
//     8 words of 16 bits     t[i + 8] & 0xFFFF
#ifndef CAIRN_INDEX_STORED_TOKENS_H_
#define CAIRN_INDEX_STORED_TOKENS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/prefix_cache.h"
#include "index/token_compare.h"

namespace cairn {

enum class TokenForm : std::uint8_t { kPlain = 0, kPacked = 1 };

// A pointer to tokens that says as well how they are kept: whoever loads it atomically has both. All positions and
// counts of packed tokens are whole groups; two groups share no word, so one can be written while others are read.
class StoredTokens {
 public:
  static constexpr std::size_t kGroup = 16;

  StoredTokens() = default;
  // At least num_words() of them. NOLINTNEXTLINE(readability-non-const-parameter): they are written through this
  StoredTokens(std::uint32_t* words, TokenForm form)
      : tagged_(reinterpret_cast<std::uintptr_t>(words) | static_cast<std::uintptr_t>(form)) {}

  friend bool operator==(StoredTokens, StoredTokens) = default;

  // How blocks of `block_size` tokens are best kept, as long as these fit.
  static TokenForm form_for(std::size_t block_size) noexcept {
    return block_size % kGroup == 0 ? TokenForm::kPacked : TokenForm::kPlain;
  }
  static std::size_t num_words(std::size_t count, TokenForm form) noexcept {
    return form == TokenForm::kPacked ? count / 4 * 3 : count;
  }

  [[nodiscard]] TokenForm form() const noexcept { return static_cast<TokenForm>(tagged_ & 1); }

  // The number of leading tokens, of `count`, in which those from `from` on agree with `tokens`.
  [[nodiscard]] std::size_t matching(std::size_t from, const TokenId* tokens, std::size_t count) const noexcept {
    return form() == TokenForm::kPlain ? matching_tokens(words() + from, tokens, count)
                                       : matching_packed(from, tokens, count);
  }
  [[nodiscard]] bool start_with(std::span<const TokenId> tokens) const noexcept {
    return form() == TokenForm::kPlain ? std::equal(tokens.begin(), tokens.end(), words())
                                       : matching_packed(0, tokens.data(), tokens.size()) == tokens.size();
  }
  void read(std::size_t from, std::span<TokenId> tokens) const noexcept;

  // False if they can't be kept in this form; what is there now then means nothing.
  [[nodiscard]] bool write(std::size_t at, std::span<const TokenId> tokens) const noexcept;
  // The first `count` of `from`, which are kept in this form, or into the plain one.
  void copy_from(StoredTokens from, std::size_t count) const noexcept;

 private:
  static_assert(alignof(std::uint32_t) >= 2);  // so the lowest bit of an address is free

  [[nodiscard]] std::uint32_t* words() const noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): pointer and form are loaded and stored as one
    return reinterpret_cast<std::uint32_t*>(tagged_ & ~std::uintptr_t{1});
  }
  // Where that of the token `from` begins.
  [[nodiscard]] std::uint32_t* group(std::size_t from) const noexcept {
    return words() + num_words(from, TokenForm::kPacked);
  }
  [[nodiscard]] std::size_t matching_packed(std::size_t from, const TokenId* tokens, std::size_t count) const noexcept;

  std::uintptr_t tagged_ = 0;
};

// Of `count` groups, the number of leading ones that hold these tokens. For any processor; exposed for the test alone.
std::size_t matching_groups_anywhere(const std::uint32_t* groups, const TokenId* tokens, std::size_t count) noexcept;

}  // namespace cairn

#endif  // CAIRN_INDEX_STORED_TOKENS_H_
