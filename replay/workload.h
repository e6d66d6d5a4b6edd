// The requests of a replay, kept compactly: a prompt is a list of runs and becomes tokens only when it is asked for.
#ifndef CAIRN_REPLAY_WORKLOAD_H_
#define CAIRN_REPLAY_WORKLOAD_H_

#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cairn::replay {

// No prompt and no output is longer; a reader refuses longer ones, so that no line can ask for all memory.
inline constexpr std::uint64_t kSequenceTokensMax = std::uint64_t{1} << 24;

// `count` tokens: consecutive ids from `first` on, or, if literal, those stored in the workload from index `first`.
struct TokenRun {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
  bool literal = false;
};

// Hands out runs of token ids that nobody else has.
class TokenIdAllocator {
 public:
  // Throws std::length_error when the 2^32 token ids are used up.
  [[nodiscard]] TokenRun take(std::uint64_t count);
  [[nodiscard]] std::uint64_t used() const { return next_; }
  // Takes back everything handed out since used() was `used`.
  void roll_back(std::uint64_t used) { next_ = used; }

 private:
  std::uint64_t next_ = 0;
};

struct Request {
  double timestamp_ms = 0;
  SessionHash session = 0;
  std::uint32_t adapter = 0;  // its number in the trace; 0: the base model
  std::uint32_t tenant = 0;   // the same; 0: none
  std::uint64_t line = 0;     // in the trace; for the built-in workload the request's number from 1
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_length = 0;
  bool has_output_tokens = false;  // else only the number of output tokens is known

  // What a cache keeps apart: one for each adapter and tenant.
  [[nodiscard]] AdapterId context() const { return std::uint64_t{tenant} << 32 | adapter; }
};

class Workload {
 public:
  // The prompt's and the output's lengths are set from the runs; if `output` is empty, request.output_length stands.
  void add(Request request, std::span<const TokenRun> prompt, std::span<const TokenRun> output);
  // Keeps the tokens for a run of the next request.
  [[nodiscard]] TokenRun store(std::span<const TokenId> tokens);

  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] const Request& operator[](std::size_t index) const { return requests_[index]; }
  // Replace or append to `tokens`. Safe from several threads while nothing is added.
  void prompt(std::size_t index, std::vector<TokenId>& tokens) const;
  void append_output(std::size_t index, std::vector<TokenId>& tokens) const;
  // Up to `count` tokens from `first` on, of the prompt and the output that follows it, if its tokens are known.
  // O(count and the runs before).
  void sequence(std::size_t index, std::size_t first, std::size_t count, std::vector<TokenId>& tokens) const;

  [[nodiscard]] std::uint64_t prompt_tokens() const { return prompt_tokens_; }
  [[nodiscard]] std::uint64_t output_tokens() const { return output_tokens_; }
  [[nodiscard]] bool has_timestamps() const { return has_timestamps_; }
  void set_has_timestamps() { has_timestamps_ = true; }

 private:
  struct Extent {
    std::size_t prompt = 0;
    std::size_t output = 0;
    std::size_t end = 0;
  };

  void add_runs(std::span<const TokenRun> runs);
  void append(std::size_t begin, std::size_t end, std::vector<TokenId>& tokens) const;
  void append(const TokenRun& run, std::vector<TokenId>& tokens) const;

  std::vector<Request> requests_;
  std::vector<Extent> extents_;  // into runs_, parallel to requests_
  std::vector<TokenRun> runs_;
  std::vector<TokenId> literals_;
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t output_tokens_ = 0;
  bool has_timestamps_ = false;
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_WORKLOAD_H_
