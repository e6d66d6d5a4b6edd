// A workload's full blocks as numbers: what is the same block, said once and shared by all who ask.
#ifndef CAIRN_REPLAY_BLOCK_TRACE_H_
#define CAIRN_REPLAY_BLOCK_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "replay/workload.h"

namespace cairn::replay {

// Each distinct full block of a workload has a number, from 0 up in order of its first appearance. A block is its
// tokens, all tokens before them, the adapter and the tenant: what a prefix cache can share. So a number stands for
// one place in the trie of everything that is ever asked for, and a parent's number is less than its children's.
//
// Memory: 4 bytes for each full block of each request. Immutable; any thread may read.
class BlockTrace {
 public:
  using Number = std::uint32_t;

  enum class Adapters {
    kApart,            // as a cache has it
    kTenantsAsIfSame,  // a block is its tokens, those before them and the adapter, whichever tenant asks
    kAsIfSame,         // a block is its tokens and those before them, whoever asks
  };

  // O(tokens of the workload). Blocks are told apart by 128-bit digests (content_digest.h). Throws
  // std::invalid_argument: block_size zero; std::length_error: 2^32 - 1 distinct blocks or more.
  BlockTrace(const Workload& workload, std::size_t block_size, Adapters adapters = Adapters::kApart);

  [[nodiscard]] std::size_t block_size() const { return block_size_; }
  // Number of distinct blocks, those of output tokens included: what an unbounded cache takes.
  [[nodiscard]] std::size_t distinct() const { return distinct_; }
  // The full blocks of a request's prompt.
  [[nodiscard]] std::span<const Number> prompt(std::size_t index) const {
    return between(extents_[index].prompt, extents_[index].output);
  }
  // Those that follow when its output's tokens are known: full blocks of prompt and output beyond the prompt's.
  [[nodiscard]] std::span<const Number> output(std::size_t index) const {
    return between(extents_[index].output, extents_[index].end);
  }
  // prompt, then output.
  [[nodiscard]] std::span<const Number> sequence(std::size_t index) const {
    return between(extents_[index].prompt, extents_[index].end);
  }
  // Where prompt(index) begins among the blocks of all requests, and how many those are.
  [[nodiscard]] std::size_t offset(std::size_t index) const { return extents_[index].prompt; }
  [[nodiscard]] std::size_t size() const { return numbers_.size(); }

 private:
  struct Extent {
    std::size_t prompt = 0;
    std::size_t output = 0;
    std::size_t end = 0;
  };

  [[nodiscard]] std::span<const Number> between(std::size_t begin, std::size_t end) const {
    return std::span(numbers_).subspan(begin, end - begin);
  }

  std::size_t block_size_;
  std::size_t distinct_ = 0;
  std::vector<Number> numbers_;
  std::vector<Extent> extents_;  // into numbers_, by request
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_BLOCK_TRACE_H_
