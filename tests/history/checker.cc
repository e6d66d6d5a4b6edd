#include "history/checker.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "support/naive_prefix_cache.h"

namespace cairn::testing {
namespace {

// Depth first. At each point the candidates are the first calls left of each thread that no other call left has
// preceded. One that only reads and has the answer that the model gives here is taken without looking at the others:
// it changes nothing, so any order that explains the rest also does with this call first.
class Search {
 public:
  explicit Search(const History& history) : history_(history) {
    for (std::size_t i = 0; i < history.calls.size(); ++i) {
      const std::size_t thread = history.calls[i].thread;
      if (thread >= threads_.size()) threads_.resize(thread + 1);
      threads_[thread].push_back(i);
    }
    State start{NaivePrefixCache(history.options), {}, std::vector<std::size_t>(threads_.size())};
    start.holds.resize(history.holds);
    stack_.push_back({std::move(start), {}, kNoCall});
    stack_.back().candidates = candidates(stack_.back().state);
  }

  Verdict run() {
    while (!stack_.empty()) {
      if (stack_.size() - 1 == history_.calls.size()) return {true, steps_, {}};
      Point& point = stack_.back();
      if (point.candidates.empty()) {
        stack_.pop_back();
        continue;
      }
      const std::size_t call = point.candidates.back();
      point.candidates.pop_back();
      try_call(call);
    }
    return {false, steps_, complaint()};
  }

 private:
  static constexpr std::size_t kNoCall = std::numeric_limits<std::size_t>::max();
  struct State {
    NaivePrefixCache model;
    std::vector<ModelHold> holds;
    std::vector<std::size_t> done;  // calls of each thread
  };
  struct Point {
    State state;
    std::vector<std::size_t> candidates;  // calls not tried yet, the last first
    std::size_t call;                     // which led here
  };

  [[nodiscard]] std::vector<std::size_t> candidates(const State& state) const {
    std::vector<std::size_t> found;
    std::uint64_t first_response = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t thread = 0; thread < threads_.size(); ++thread) {
      if (state.done[thread] == threads_[thread].size()) continue;
      found.push_back(threads_[thread][state.done[thread]]);
      first_response = std::min(first_response, history_.calls[found.back()].responded);
    }
    std::erase_if(found, [&](std::size_t call) { return history_.calls[call].invoked > first_response; });
    // The likely one last, so that it is tried first; but before all others what only reads.
    std::ranges::sort(found, [&](std::size_t a, std::size_t b) {
      const Call& left = history_.calls[a];
      const Call& right = history_.calls[b];
      if (only_reads(left.kind) != only_reads(right.kind)) return only_reads(right.kind);
      return left.responded > right.responded;
    });
    return found;
  }

  void try_call(std::size_t index) {
    const Call& call = history_.calls[index];
    ++steps_;
    State state = stack_.back().state;
    const Answer answer = perform(call, history_.options.block_size, state.model, state.holds);
    if (text_of(answer) != call.answer) return;
    if (only_reads(call.kind)) stack_.back().candidates.clear();
    ++state.done[call.thread];
    auto next = candidates(state);
    stack_.push_back({std::move(state), std::move(next), index});
    if (stack_.size() > longest_.size() + 1) remember();
  }

  void remember() {
    longest_.clear();
    for (std::size_t i = 1; i < stack_.size(); ++i) longest_.push_back(stack_[i].call);
  }

  [[nodiscard]] std::string complaint() const {
    std::string text =
        "no order explains this history (block_size " + std::to_string(history_.options.block_size) + "):\n";
    for (const Call& call : history_.calls) text += "  " + text_of(call) + '\n';
    text += "the longest order found:\n";
    for (const std::size_t call : longest_) text += "  " + text_of(history_.calls[call]) + '\n';
    text += "after which the model answers otherwise:\n";
    return text + next_answers();
  }

  // What the model would answer after the longest order.
  [[nodiscard]] std::string next_answers() const {
    State state{NaivePrefixCache(history_.options), {}, std::vector<std::size_t>(threads_.size())};
    state.holds.resize(history_.holds);
    for (const std::size_t call : longest_) {
      perform(history_.calls[call], history_.options.block_size, state.model, state.holds);
      ++state.done[history_.calls[call].thread];
    }
    std::string text;
    for (const std::size_t call : candidates(state)) {
      State copy = state;
      text += "  " + text_of(history_.calls[call]) + "\n    model: " +
              text_of(perform(history_.calls[call], history_.options.block_size, copy.model, copy.holds)) + '\n';
    }
    return text;
  }

  const History& history_;
  std::vector<std::vector<std::size_t>> threads_;  // the calls of each
  std::vector<Point> stack_;
  std::vector<std::size_t> longest_;
  std::size_t steps_ = 0;
};

}  // namespace

Verdict explain(const History& history) {
  return Search(history).run();
}

bool any_overlap(const History& history) {
  for (std::size_t i = 0; i < history.calls.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Call& a = history.calls[i];
      const Call& b = history.calls[j];
      if (a.invoked < b.responded && b.invoked < a.responded) return true;
    }
  }
  return false;
}

}  // namespace cairn::testing
