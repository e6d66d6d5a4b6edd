#include "replay/pool_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace cairn::replay {
namespace {

constexpr std::uint64_t kAmountMax = std::uint64_t{1} << 48;
constexpr double kShareUnitsPerPercent = 1000;
constexpr double kPercentMax = 1000;

[[noreturn]] void bad(std::string_view text, std::string_view rule) {
  throw std::invalid_argument(fmt::format("'{}': {}", text, rule));
}

std::uint64_t parse_percent(std::string_view text, std::string_view number) {
  double percent = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
  if (error != std::errc() || end != number.data() + number.size() || !(percent >= 0.001 && percent <= kPercentMax)) {
    bad(text, fmt::format("a percentage is a number from 0.001 to {}", kPercentMax));
  }
  return static_cast<std::uint64_t>(std::llround(percent * kShareUnitsPerPercent));
}

std::uint64_t parse_count(std::string_view text, std::string_view number) {
  std::uint64_t scale = 1;
  if (number.ends_with('k')) scale = 1'000;
  if (number.ends_with('M')) scale = 1'000'000;
  if (number.ends_with('G')) scale = 1'000'000'000;
  if (scale != 1) number.remove_suffix(1);
  std::uint64_t amount = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), amount);
  if (error != std::errc() || end != number.data() + number.size()) {
    bad(text, "must be a whole number, which k, M or G, and then t for tokens, may follow; or a percentage");
  }
  if (amount == 0 || amount > kAmountMax / scale) bad(text, fmt::format("must be from 1 to {}", kAmountMax));
  return amount * scale;
}

}  // namespace

PoolSize PoolSize::parse(std::string_view text) {
  PoolSize size;
  size.text_ = text;
  std::string_view number = text;
  if (number.ends_with('%')) {
    number.remove_suffix(1);
    size.unit_ = Unit::kShare;
    size.amount_ = parse_percent(text, number);
    return size;
  }
  if (number.ends_with('t')) {
    number.remove_suffix(1);
    size.unit_ = Unit::kTokens;
  }
  size.amount_ = parse_count(text, number);
  return size;
}

std::size_t PoolSize::blocks(std::size_t block_size, std::size_t distinct_blocks) const {
  std::uint64_t blocks = amount_;
  if (unit_ == Unit::kTokens) blocks = amount_ / block_size;
  // At most 10^6 times the 2^32 ids: no overflow.
  if (unit_ == Unit::kShare)
    blocks = distinct_blocks * amount_ / static_cast<std::uint64_t>(100 * kShareUnitsPerPercent);
  if (blocks == 0) bad(text_, fmt::format("is less than one block of {} tokens", block_size));
  if (blocks >= std::numeric_limits<std::uint32_t>::max()) bad(text_, "is more than there are block ids (2^32 - 1)");
  return static_cast<std::size_t>(blocks);
}

}  // namespace cairn::replay
