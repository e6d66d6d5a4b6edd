// Prompts as an engine's hot path has them: in memory that is there already, on huge pages where they can be had.
#ifndef CAIRN_BENCH_CORE_TOKEN_MEMORY_H_
#define CAIRN_BENCH_CORE_TOKEN_MEMORY_H_

#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cairn::bench {

// The same numbers on every machine (SplitMix64, public domain, S. Vigna).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // Below `limit`, which is above 0 and far below 2^64.
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }
  TokenId token() { return static_cast<TokenId>(next() % kVocabulary); }
  void fill(std::span<TokenId> tokens);
  // 0 to count - 1 in random order.
  std::vector<std::size_t> order(std::size_t count);

  static constexpr TokenId kVocabulary = 150'000;

 private:
  std::uint64_t state_;
};

// Zeroed, touched, 2 MiB-aligned, with MADV_HUGEPAGE.
class TokenMemory {
 public:
  explicit TokenMemory(std::size_t tokens);  // throws std::bad_alloc
  TokenMemory(TokenMemory&& other) noexcept;
  TokenMemory& operator=(TokenMemory&& other) noexcept;
  TokenMemory(const TokenMemory&) = delete;
  TokenMemory& operator=(const TokenMemory&) = delete;
  ~TokenMemory();

  [[nodiscard]] std::span<TokenId> tokens() const { return {data_, tokens_}; }

 private:
  TokenId* data_ = nullptr;
  std::size_t tokens_ = 0;
};

// Did the kernel give huge pages to memory like that? False also where it does not say.
bool has_huge_pages();

// `count` random prompts of `length` tokens that start with the same `shared` tokens, one after the other in memory,
// and the block ids under which a tree holds them if they are inserted in this order: block j of prompt i is block
// first_block + i * (length / kBlockSize) + j, in the shared part that of prompt 0.
class Prompts {
 public:
  Prompts(std::size_t count, std::size_t length, std::size_t shared, std::uint64_t seed, BlockId first_block = 0);

  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::size_t length() const { return length_; }
  [[nodiscard]] std::size_t shared() const { return shared_; }
  [[nodiscard]] std::size_t blocks_each() const;
  [[nodiscard]] std::span<const TokenId> operator[](std::size_t i) const {
    return memory_.tokens().subspan(i * length_, length_);
  }
  [[nodiscard]] const std::vector<BlockId>& blocks(std::size_t i) const { return blocks_[i]; }
  // Blocks that a tree holds when all are cached.
  [[nodiscard]] std::size_t distinct_blocks() const;

 private:
  std::size_t count_;
  std::size_t length_;
  std::size_t shared_;
  TokenMemory memory_;
  std::vector<std::vector<BlockId>> blocks_;
};

inline constexpr std::size_t kBlockSize = 16;

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_CORE_TOKEN_MEMORY_H_
