// Rows 15 and 16: what a tree of a million blocks takes, and what it gives back.
#include <malloc.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>

#include "bench/core/cached.h"
#include "bench/core/rows.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAIRN_BENCH_OTHER_MALLOC
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define CAIRN_BENCH_OTHER_MALLOC
#endif

namespace cairn::bench {
namespace {

#ifdef CAIRN_BENCH_OTHER_MALLOC
bool can_count() {
  return false;
}
double live_bytes() {
  return 0;
}
#else
// What is resident of the memory that asked for huge pages: the trees' long edges, which don't come from malloc, and
// prompts of our own, which are there before and after.
double huge_page_bytes() {
  std::ifstream smaps("/proc/self/smaps");
  double bytes = 0;
  double resident_kib = 0;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with("Rss:")) resident_kib = std::stod(line.substr(4));
    if (line.starts_with("VmFlags:") && line.find(" hg") != std::string::npos) bytes += 1024 * resident_kib;
  }
  return bytes;
}

// Whether the kernel marks that memory.
bool can_count() {
  const TokenMemory memory(1);
  return huge_page_bytes() > 0;
}

// And what malloc has handed out in the process, its own headers and rounding included.
double live_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) + huge_page_bytes();
}
#endif

// Fills and churns a tree. Everything that it needs itself is allocated by its constructor.
class Load {
 public:
  explicit Load(std::size_t blocks_wanted) : wanted_(blocks_wanted), blocks_(kPromptBlocks) {}
  virtual ~Load() = default;
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // Up to the blocks wanted, nothing shared.
  virtual void fill(RadixTree& tree) = 0;
  // Replaces everything several times, in pieces of random sizes, and fills up.
  virtual void churn(RadixTree& tree) = 0;

  static constexpr std::size_t kPromptBlocks = 2'048;

 protected:
  // Looks up, inserts the rest, releases.
  void insert(RadixTree& tree, std::span<const TokenId> tokens, std::size_t expected_new) {
    const std::span<BlockId> blocks(blocks_.data(), tokens.size() / kBlockSize);
    std::iota(blocks.begin(), blocks.end(), next_block_);
    const PrefixMatch match = tree.lookup(tokens, kBlockSize, 0, 0);
    const InsertAcquired acquired = tree.insert(tokens, blocks, {}, kBlockSize, match.matched_tokens, 0);
    tree.release(tokens, kBlockSize, 0);
    expect(acquired.blocks.size() == expected_new, "insert: the number of blocks acquired");
    next_block_ += static_cast<BlockId>(expected_new);
    cached_ += expected_new;
  }
  void evict(RadixTree& tree, std::size_t blocks) { cached_ -= tree.evict(blocks).size(); }
  [[nodiscard]] bool full() const { return cached_ >= wanted_; }
  // Churned blocks, in terms of those wanted.
  static constexpr std::size_t kTurnovers = 4;

  const std::size_t wanted_;
  std::size_t cached_ = 0;
  Random random_{150};

 private:
  std::vector<BlockId> blocks_;
  BlockId next_block_ = 0;
};

// Prompts of 32,768 tokens; in the churn, prompts of up to that length, half of them grown in turns of 1,024 tokens,
// several at a time.
class LongPrompts final : public Load {
 public:
  explicit LongPrompts(std::size_t blocks_wanted)
      : Load(blocks_wanted), memory_((kGrowing + 1) * kPromptTokens), grown_(kGrowing) {}

  void fill(RadixTree& tree) override {
    while (!full()) insert_whole(tree, kPromptTokens);
  }

  void churn(RadixTree& tree) override {
    for (std::size_t inserted = 0; inserted < kTurnovers * wanted_;) {
      evict(tree, 1 + random_.below(2 * kPromptBlocks));
      while (!full()) {
        const std::size_t before = cached_;
        if (random_.below(2) == 0) {
          insert_whole(tree, kBlockSize * (1 + random_.below(kPromptBlocks)));
        } else {
          for (std::size_t turn = 0; turn < kPromptBlocks / 2 / (kTurn / kBlockSize); ++turn) grow_one(tree);
        }
        inserted += cached_ - before;
      }
    }
  }

 private:
  static constexpr std::size_t kPromptTokens = kPromptBlocks * kBlockSize;
  static constexpr std::size_t kTurn = 1'024;
  static constexpr std::size_t kGrowing = 32;

  void insert_whole(RadixTree& tree, std::size_t length) {
    const std::span<TokenId> tokens = memory_.tokens().first(length);
    random_.fill(tokens);
    insert(tree, tokens, length / kBlockSize);
  }

  // The next turn of one of those that grow.
  void grow_one(RadixTree& tree) {
    const std::size_t which = random_.below(kGrowing);
    std::size_t& length = grown_[which];
    if (length == kPromptTokens) length = 0;
    const std::span<TokenId> tokens = memory_.tokens().subspan((1 + which) * kPromptTokens, length + kTurn);
    random_.fill(tokens.subspan(length));
    const std::size_t matched = tree.peek_matched_tokens(tokens, kBlockSize, 0);
    insert(tree, tokens, (tokens.size() - matched) / kBlockSize);
    length += kTurn;
  }

  TokenMemory memory_;  // one prompt for insert_whole, then those that grow
  std::vector<std::size_t> grown_;
};

// Sequences of one block; in the churn, half as many are looked up as are inserted, so that they are evicted in
// another order.
class OneBlock final : public Load {
 public:
  using Load::Load;

  void fill(RadixTree& tree) override {
    while (!full()) insert_next(tree);
  }

  void churn(RadixTree& tree) override {
    for (std::size_t inserted = 0; inserted < kTurnovers * wanted_;) {
      evict(tree, 1 + random_.below(2 * kPromptBlocks));
      for (; !full(); ++inserted) {
        insert_next(tree);
        if (random_.below(2) == 0) {
          const auto tokens = tokens_of(next_ - 1 - random_.below(wanted_));
          const std::size_t matched = tree.lookup(tokens, kBlockSize, 0, 0).matched_tokens;
          tree.release_matched(tokens, kBlockSize, matched, 0);
        }
      }
    }
  }

 private:
  static std::array<TokenId, kBlockSize> tokens_of(std::size_t sequence) {
    std::array<TokenId, kBlockSize> tokens{};
    Random(sequence).fill(tokens);
    return tokens;
  }
  void insert_next(RadixTree& tree) { insert(tree, tokens_of(next_++), 1); }

  std::size_t next_ = 0;
};

std::size_t million(const Settings& settings) {
  return settings.sized(1'000'000, 10'000);
}

struct MemoryUse {
  double fresh_bytes_per_block = 0;
  double churned_bytes_per_block = 0;
  double slack_bytes = 0;  // of the emptied tree over that of a new one
  double peak_bytes = 0;
  double left_bytes = 0;  // when the tree is gone
};

MemoryUse measure_memory(Load& load) {
  MemoryUse use;
  const double before = live_bytes();
  auto tree = std::make_unique<RadixTree>();
  const double empty = live_bytes();
  const auto per_block = [&] {
    const double bytes = live_bytes() - before;
    use.peak_bytes = std::max(use.peak_bytes, bytes);
    return bytes / static_cast<double>(tree->stats().cached_blocks);
  };
  load.fill(*tree);
  use.fresh_bytes_per_block = per_block();
  load.churn(*tree);
  use.churned_bytes_per_block = per_block();
  while (!tree->evict(4'096).empty()) {
  }
  expect(tree->stats().cached_blocks == 0, "stats: blocks left");
  use.slack_bytes = live_bytes() - empty;
  tree.reset();
  use.left_bytes = live_bytes() - before;
  return use;
}

}  // namespace

Measured memory_per_block(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  if (!can_count()) return {};
  LongPrompts long_prompts(million(settings));
  const MemoryUse long_edges = measure_memory(long_prompts);
  OneBlock leaves(million(settings));
  const MemoryUse one_block = measure_memory(leaves);
  Measured lines;
  for (const bool in_long_edges : {true, false}) {
    const MemoryUse& use = in_long_edges ? long_edges : one_block;
    lines.push_back(Measurement{.name = in_long_edges ? "15a" : "15c",
                                .what = in_long_edges ? "memory per block, a million in long edges"
                                                      : "memory per block, a million one-block edges",
                                .figure_unit = "B",
                                .yardstick_name = "a byte",
                                .ratio_unit = "B",
                                .target = in_long_edges ? 72.0 : 120.0}
                        .of({{.figure = use.fresh_bytes_per_block, .yardstick = 1}}));
    lines.push_back(Measurement{.name = in_long_edges ? "15b" : "15d",
                                .what = "the same after heavy churn",
                                .figure_unit = "B",
                                .yardstick_name = "before",
                                .ratio_unit = "x",
                                .target = 1.25}
                        .of({{.figure = use.churned_bytes_per_block, .yardstick = use.fresh_bytes_per_block}}));
  }
  return lines;
}

Measured memory_after_evicting(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  if (!can_count()) return {};
  LongPrompts long_prompts(million(settings));
  OneBlock leaves(million(settings));
  Measured lines;
  for (Load* load : {static_cast<Load*>(&long_prompts), static_cast<Load*>(&leaves)}) {
    const bool in_long_edges = load == &long_prompts;
    const MemoryUse use = measure_memory(*load);
    lines.push_back(Measurement{
        .name = in_long_edges ? "16a" : "16b",
        .what = in_long_edges ? "memory kept after evicting everything, long edges" : "the same, one-block edges",
        .figure_unit = "B",
        .yardstick_name = "peak",
        .ratio_unit = "x",
        .target = 0.05,
        .note = fmt::format("{:.0f} bytes left when the tree is gone", use.left_bytes),
        .details = {{"bytes_left_without_the_tree", use.left_bytes}}}
                        .of({{.figure = use.slack_bytes, .yardstick = use.peak_bytes}}));
  }
  return lines;
}

}  // namespace cairn::bench
