#include "bench/core/token_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <numeric>
#include <string>
#include <utility>

namespace cairn::bench {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t mapped_bytes(std::size_t tokens) {
  return std::max<std::size_t>(1, (tokens * sizeof(TokenId) + kHugePage - 1) / kHugePage) * kHugePage;
}

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void Random::fill(std::span<TokenId> tokens) {
  for (TokenId& t : tokens) t = token();
}

std::vector<std::size_t> Random::order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[below(i)]);
  return order;
}

TokenMemory::TokenMemory(std::size_t tokens) : tokens_(tokens) {
  const std::size_t bytes = mapped_bytes(tokens);
  // One huge page more than needed, so that a whole number of them fits in between.
  void* mapped = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  char* const begin = static_cast<char*>(mapped);
  const std::size_t skipped = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (skipped > 0) ::munmap(begin, skipped);
  ::munmap(begin + skipped + bytes, kHugePage - skipped);
  ::madvise(begin + skipped, bytes, MADV_HUGEPAGE);  // a wish; has_huge_pages() tells
  data_ = reinterpret_cast<TokenId*>(begin + skipped);
  std::fill_n(data_, tokens_, TokenId{0});
}

TokenMemory::TokenMemory(TokenMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), tokens_(std::exchange(other.tokens_, 0)) {}

TokenMemory& TokenMemory::operator=(TokenMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(tokens_, other.tokens_);
  return *this;
}

TokenMemory::~TokenMemory() {
  if (data_ != nullptr) ::munmap(data_, mapped_bytes(tokens_));
}

bool has_huge_pages() {
  const TokenMemory memory(kHugePage / sizeof(TokenId));
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;) {
    std::size_t kib = 0;
    if (word == "AnonHugePages:" && rollup >> kib) return kib > 0;
  }
  return false;
}

Prompts::Prompts(std::size_t count, std::size_t length, std::size_t shared, std::uint64_t seed, BlockId first_block)
    : count_(count), length_(length), shared_(shared), memory_(count * length), blocks_(count) {
  Random random(seed);
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<TokenId> prompt = memory_.tokens().subspan(i * length, length);
    const std::size_t kept = i == 0 ? 0 : shared;
    std::copy_n(memory_.tokens().begin(), kept, prompt.begin());
    random.fill(prompt.subspan(kept));
    blocks_[i].resize(blocks_each());
    std::iota(blocks_[i].begin(), blocks_[i].end(), first_block + static_cast<BlockId>(i * blocks_each()));
    if (i > 0) std::copy_n(blocks_[0].begin(), shared / kBlockSize, blocks_[i].begin());
  }
}

std::size_t Prompts::blocks_each() const {
  return length_ / kBlockSize;
}

std::size_t Prompts::distinct_blocks() const {
  return count_ * blocks_each() - (count_ - 1) * (shared_ / kBlockSize);
}

}  // namespace cairn::bench
