// RadixTree and NaivePrefixCache side by side: each call goes to both, and their answers must be the same.
#ifndef CAIRN_TESTS_SUPPORT_PAIRED_CACHES_H_
#define CAIRN_TESTS_SUPPORT_PAIRED_CACHES_H_

#include <cairn/radix_tree.h>

#include <cstddef>
#include <new>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "support/describe.h"
#include "support/ledgers.h"
#include "support/naive_prefix_cache.h"

namespace cairn::testing {

// "name(argument, ...)".
template <class... Arguments>
std::string call_text(const char* name, const Arguments&... arguments) {
  std::string text = name;
  [[maybe_unused]] const char* separator = "(";
  ((text += separator, text += describe(arguments), separator = ", "), ...);
  return text + (sizeof...(arguments) == 0 ? "()" : ")");
}

// Calls; the answer, or nothing where std::invalid_argument was thrown.
template <class Call, class Cache>
auto attempt(Call& call, Cache& cache) {
  using Result = std::invoke_result_t<Call&, Cache&>;
  using Stored = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;
  std::optional<Stored> answer;
  try {
    if constexpr (std::is_void_v<Result>) {
      call(cache);
      answer.emplace();
    } else {
      answer.emplace(call(cache));
    }
  } catch (const std::invalid_argument& error) {
    if (std::string_view(error.what()).empty()) throw Violation("std::invalid_argument without a message");
  }
  return answer;
}

// Makes allocations fail while the tree is called. What it learns about a call it may check.
class FaultInjector {
 public:
  virtual ~FaultInjector() = default;
  // From now on the nth allocation fails, counted from 1.
  virtual void arm(std::size_t nth) = 0;
  virtual void disarm() = 0;
  virtual void note_failed(std::string_view name) = 0;
  virtual void note_done(std::string_view name) = 0;
};

class PairedCaches {
 public:
  PairedCaches(const RadixTreeOptions& options, std::ostream* trace, FaultInjector* faults)
      : tree_(options), model_(options), trace_(trace), faults_(faults) {}

  [[nodiscard]] RadixTree& tree() { return tree_; }
  [[nodiscard]] NaivePrefixCache& model() { return model_; }
  [[nodiscard]] std::size_t calls() const { return calls_; }

  // The tree's answer, after it was found to be the model's too. `text` says what was called, when asked.
  template <class Text, class OnTree, class OnModel>
  auto both(Text text, OnTree on_tree, OnModel on_model) {
    ++calls_;
    auto from_tree = faults_ == nullptr ? attempt(on_tree, tree_) : attempt_with_faults(text(), on_tree);
    auto from_model = attempt(on_model, model_);
    const std::string tree_text = answer_text(from_tree);
    const std::string model_text = answer_text(from_model);
    if (trace_ != nullptr) *trace_ << "    " << text() << "  ->  " << tree_text << '\n';
    if (tree_text != model_text) {
      throw Violation(text() + "\n  answered:  " + tree_text + "\n  the model: " + model_text);
    }
    return from_tree;
  }
  template <class Text, class Call>
  auto both(Text text, Call call) {
    return both(text, call, call);
  }

 private:
  // Lets the first allocation of the call fail, then the second, and so on, until the call is done. Each failed
  // attempt must leave the tree as it was.
  template <class OnTree>
  auto attempt_with_faults(const std::string& text, OnTree& on_tree) {
    const std::string_view name = std::string_view(text).substr(0, text.find('('));
    const std::string before = describe_tree();
    for (std::size_t nth = 1;; ++nth) {
      try {
        faults_->arm(nth);
        auto answer = attempt(on_tree, tree_);
        faults_->disarm();
        if (answer) faults_->note_done(name);
        return answer;
      } catch (const std::bad_alloc&) {
        faults_->disarm();
        faults_->note_failed(name);
      }
      const std::string after = describe_tree();
      if (after == before) continue;
      throw Violation(text + "\n  failed at allocation " + std::to_string(nth) + "\n  before: " + before +
                      "\n  after:  " + after);
    }
  }
  [[nodiscard]] std::string describe_tree() const {
    const CacheStats stats = tree_.stats();
    return "entries " + std::to_string(stats.entries) + " blocks " + std::to_string(stats.cached_blocks) +
           " snapshots " + std::to_string(tree_.snapshot_count()) + " " + describe(tree_.counters()) + " " +
           tree_.validate();
  }

  template <class Answer>
  static std::string answer_text(std::optional<Answer>& answer) {
    if (!answer) return "std::invalid_argument";
    sort_unordered(*answer);
    return describe(*answer);
  }

  RadixTree tree_;
  NaivePrefixCache model_;
  std::ostream* trace_;
  FaultInjector* faults_;
  std::size_t calls_ = 0;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_PAIRED_CACHES_H_
