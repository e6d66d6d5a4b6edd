#include "replay/optimum.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "replay/errors.h"
#include "replay/running_sequences.h"

namespace cairn::replay {
namespace {

using Number = BlockTrace::Number;

constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

// Blocks that are kept though nobody holds them; the one to drop is the one used furthest in the future, the deepest
// of a prompt first. Which block it is, the request that uses it next tells.
class KeptBlocks {
 public:
  explicit KeptBlocks(const BlockTrace& blocks) : blocks_(blocks), kept_(blocks.distinct(), 0) {}

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool contains(Number block) const { return kept_[block] != 0; }

  // `depth`: the block's index in its prompt. It must not be kept already.
  void add(Number block, std::uint32_t next_use, std::size_t depth) {
    kept_[block] = 1;
    ++size_;
    order_.emplace_back(next_use, static_cast<std::uint32_t>(depth));
    std::ranges::push_heap(order_);
  }

  // Its next use is now: the request at index `now` holds it from here on. Its entry stays until it is met; that
  // `now` is in the past tells that it is void.
  void take(Number block) {
    kept_[block] = 0;
    --size_;
  }

  // There must be one. All whose next use was the request at index `now` or an earlier one have been taken.
  void drop_last_used(std::uint32_t now) {
    if (order_.size() > 2 * size_ + kVoidEntriesMin) remove_void_entries(now);
    std::ranges::pop_heap(order_);
    const auto [next_use, depth] = order_.back();
    order_.pop_back();
    if (next_use <= now) throw std::logic_error("optimum: more blocks are counted as kept than there are");
    kept_[blocks_.prompt(next_use)[depth]] = 0;
    --size_;
  }

 private:
  static constexpr std::size_t kVoidEntriesMin = 4096;

  void remove_void_entries(std::uint32_t now) {
    std::erase_if(order_, [now](const Entry& entry) { return entry.first <= now; });
    std::ranges::make_heap(order_);
  }

  using Entry = std::pair<std::uint32_t, std::uint32_t>;  // next use, depth

  const BlockTrace& blocks_;
  std::vector<char> kept_;    // by number
  std::vector<Entry> order_;  // a heap, with the one to drop first at the front
  std::size_t size_ = 0;
};

class Optimum {
 public:
  Optimum(const Workload& workload, const BlockTrace& blocks, std::optional<std::size_t> pool_blocks,
          const ReplayOptions& options)
      : workload_(workload),
        blocks_(blocks),
        capacity_(pool_blocks.value_or(std::numeric_limits<std::size_t>::max())),
        options_(options),
        running_(workload, options.concurrency, options.service_rate),
        kept_(blocks),
        next_use_(blocks.distinct(), kNever),
        following_use_(blocks.size(), kNever),
        holders_(blocks.distinct(), 0) {
    result_.name = "optimum";
    result_.ideal = true;
    result_.pool_blocks = pool_blocks;
  }

  RunResult run() {
    const auto start = std::chrono::steady_clock::now();
    result_.requests = workload_.size();
    find_next_uses();
    for (std::size_t i = 0; i < workload_.size(); ++i) {
      if (fits(i)) {
        admit(i);
      } else {
        ++result_.rejected;
        if (result_.first_rejected.size() < RunResult::kRejectedNamedMax) {
          result_.first_rejected.push_back({.line = workload_[i].line, .blocks_needed = blocks_needed(i)});
        }
      }
      if (options_.on_request_done) options_.on_request_done();
    }
    result_.peak_running = running_.peak();
    result_.wall_time_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::size_t blocks_for(std::size_t tokens) const {
    return tokens / options_.block_size + (tokens % options_.block_size != 0 ? 1 : 0);
  }
  [[nodiscard]] std::size_t blocks_needed(std::size_t index) const {
    return blocks_for(workload_[index].prompt_tokens) + blocks_for(workload_[index].output_length);
  }
  [[nodiscard]] bool fits(std::size_t index) const { return blocks_needed(index) <= capacity_; }
  // That nobody shares.
  [[nodiscard]] std::size_t private_blocks(std::size_t index) const {
    return blocks_needed(index) - blocks_.prompt(index).size();
  }

  void find_next_uses();
  void admit(std::size_t index);
  void finish(std::size_t index);
  void keep(Number block, std::size_t depth);

  const Workload& workload_;
  const BlockTrace& blocks_;
  const std::size_t capacity_;
  const ReplayOptions& options_;
  RunningSequences<std::size_t> running_;  // their indices
  KeptBlocks kept_;
  std::vector<std::uint32_t> next_use_;       // by number: the next admitted request whose prompt has it
  std::vector<std::uint32_t> following_use_;  // by place in blocks_: the one after that
  std::vector<std::uint32_t> holders_;        // by number: running sequences whose prompt has it
  std::size_t held_ = 0;                      // numbers with holders
  std::size_t private_ = 0;                   // blocks of running sequences that nobody shares
  RunResult result_;
};

void Optimum::find_next_uses() {
  for (std::size_t i = workload_.size(); i-- > 0;) {
    if (!fits(i)) continue;
    const std::span<const Number> prompt = blocks_.prompt(i);
    for (std::size_t depth = 0; depth < prompt.size(); ++depth) {
      following_use_[blocks_.offset(i) + depth] =
          std::exchange(next_use_[prompt[depth]], static_cast<std::uint32_t>(i));
    }
  }
}

void Optimum::admit(std::size_t index) {
  running_.make_room_for(index, [this](std::size_t ended) { finish(ended); });
  const std::span<const Number> prompt = blocks_.prompt(index);
  // What others hold of it is a prefix.
  const auto not_held = [&] {
    return static_cast<std::size_t>(
        std::ranges::count_if(prompt, [this](Number block) { return holders_[block] == 0; }));
  };
  const std::size_t own = private_blocks(index);
  bool waited = false;
  while (!running_.empty() && held_ + private_ + not_held() + own > capacity_) {
    waited = true;
    finish(running_.take_first());
  }
  if (waited) ++result_.waited;
  std::size_t matched = 0;
  for (std::size_t depth = 0; depth < prompt.size(); ++depth) {
    const Number block = prompt[depth];
    const bool kept = kept_.contains(block);
    if (kept || holders_[block] > 0) {
      if (matched != depth) throw std::logic_error("optimum: a block is kept without its parent when it is used");
      ++matched;
    }
    if (kept) kept_.take(block);
    if (holders_[block]++ == 0) ++held_;
    next_use_[block] = following_use_[blocks_.offset(index) + depth];
  }
  private_ += own;
  while (kept_.size() > 0 && kept_.size() + held_ + private_ > capacity_) {
    kept_.drop_last_used(static_cast<std::uint32_t>(index));
  }
  running_.add(index, index);
  const Request& request = workload_[index];
  result_.prompt_tokens += request.prompt_tokens;
  result_.output_tokens += request.output_length;
  result_.prompt_blocks += prompt.size();
  result_.matched_blocks += matched;
  result_.matched_tokens += matched * options_.block_size;
  result_.reused_tokens += std::min<std::size_t>(matched * options_.block_size, request.prompt_tokens - 1);
}

void Optimum::finish(std::size_t index) {
  private_ -= private_blocks(index);
  const std::span<const Number> sequence = blocks_.sequence(index);
  const std::size_t prompt_blocks = blocks_.prompt(index).size();
  for (std::size_t depth = 0; depth < sequence.size(); ++depth) {
    const Number block = sequence[depth];
    if (depth < prompt_blocks) {
      if (--holders_[block] > 0) continue;
      --held_;
    }
    keep(block, depth);
  }
}

// From now on, if it is used again and neither held nor kept already.
void Optimum::keep(Number block, std::size_t depth) {
  if (next_use_[block] == kNever || holders_[block] > 0 || kept_.contains(block)) return;
  kept_.add(block, next_use_[block], depth);
}

}  // namespace

RunResult find_optimum(const Workload& workload, const BlockTrace& blocks, std::optional<std::size_t> pool_blocks,
                       const ReplayOptions& options) {
  if (blocks.block_size() != options.block_size) {
    throw std::invalid_argument(fmt::format("block_size {}: the blocks are numbered for a block size of {}",
                                            options.block_size, blocks.block_size()));
  }
  if (workload.size() >= kNever) throw std::length_error("optimum: 2^32 - 1 requests or more");
  return Optimum(workload, blocks, pool_blocks, options).run();
}

}  // namespace cairn::replay
