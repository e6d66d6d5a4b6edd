// The size of a block pool as a user writes it.
#ifndef CAIRN_REPLAY_POOL_SIZE_H_
#define CAIRN_REPLAY_POOL_SIZE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cairn::replay {

// "20000": blocks. "1000000t": tokens, rounded down to whole blocks. "12.5%": of the workload's distinct full blocks,
// rounded down. Numbers of blocks and tokens may carry k, M or G (10^3, 10^6, 10^9): "20k", "2Mt".
class PoolSize {
 public:
  // Throws std::invalid_argument that says what is wrong with the text.
  static PoolSize parse(std::string_view text);

  [[nodiscard]] bool is_share() const { return unit_ == Unit::kShare; }
  // `distinct_blocks` counts for a share only. Throws std::invalid_argument if that is less than one block, or more
  // than there are block ids.
  [[nodiscard]] std::size_t blocks(std::size_t block_size, std::size_t distinct_blocks) const;
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  enum class Unit { kBlocks, kTokens, kShare };

  std::string text_;
  Unit unit_ = Unit::kBlocks;
  std::uint64_t amount_ = 0;  // blocks, tokens, or thousandths of a percent
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_POOL_SIZE_H_
