// RadixTree and NaivePrefixCache side by side: each call goes to both, and their answers must be the same.
#ifndef CAIRN_TESTS_SUPPORT_PAIRED_CACHES_H_
#define CAIRN_TESTS_SUPPORT_PAIRED_CACHES_H_

#include <cairn/radix_tree.h>

#include <cstddef>
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

class PairedCaches {
 public:
  PairedCaches(const RadixTreeOptions& options, std::ostream* trace)
      : tree_(options), model_(options), trace_(trace) {}

  [[nodiscard]] RadixTree& tree() { return tree_; }
  [[nodiscard]] NaivePrefixCache& model() { return model_; }
  [[nodiscard]] std::size_t calls() const { return calls_; }

  // The tree's answer, after it was found to be the model's too. `text` says what was called, when asked.
  template <class Text, class OnTree, class OnModel>
  auto both(Text text, OnTree on_tree, OnModel on_model) {
    ++calls_;
    auto from_tree = attempt(on_tree, tree_);
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
  template <class Answer>
  static std::string answer_text(std::optional<Answer>& answer) {
    if (!answer) return "std::invalid_argument";
    sort_unordered(*answer);
    return describe(*answer);
  }

  RadixTree tree_;
  NaivePrefixCache model_;
  std::ostream* trace_;
  std::size_t calls_ = 0;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_PAIRED_CACHES_H_
