// Snapshots by recency + alpha * efficiency: the lowest first. <cairn/snapshot_policy.h> says what the two are.
//
// Efficiencies fall into classes, eight for each power of two. Within a class the score grows with recency alone, so
// the next to go is the one used longest ago of some class, and normalising takes no more than the ends of the
// classes: O(classes that have any), at most 512, whatever the number of snapshots.
#ifndef CAIRN_POLICY_FLOP_ORDER_H_
#define CAIRN_POLICY_FLOP_ORDER_H_

#include <algorithm>
#include <array>
#include <bit>
#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>

namespace cairn {

class FlopOrder {
 public:
  static constexpr std::size_t kClasses = 512;
  using Class = std::uint16_t;

  struct Node : boost::intrusive::set_base_hook<> {
    std::uint64_t last_use = 0;  // the number of its last use; no two have the same
    Class efficiency = 0;
  };

  FlopOrder() = default;
  FlopOrder(const FlopOrder&) = delete;
  FlopOrder& operator=(const FlopOrder&) = delete;
  ~FlopOrder() { clear(); }

  // Rounded down. Less than 1 counts as 1, 2^64 and more as what is just below.
  [[nodiscard]] static Class class_of(double efficiency) {
    if (!(efficiency >= 1)) return 0;
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(efficiency) >> kDroppedBits;
    return static_cast<Class>(std::min<std::uint64_t>(bits - kOne, kClasses - 1));
  }
  [[nodiscard]] static double efficiency_of(Class efficiency) {
    return std::bit_cast<double>((kOne + efficiency) << kDroppedBits);
  }

  void insert(Node& node) noexcept {
    Members& members = classes_[node.efficiency];
    if (members.empty()) any_[node.efficiency / 64] |= bit_of(node.efficiency);
    members.insert(members.end(), node);
  }
  void erase(Node& node) noexcept {
    Members& members = classes_[node.efficiency];
    members.erase(Members::s_iterator_to(node));
    if (members.empty()) any_[node.efficiency / 64] &= ~bit_of(node.efficiency);
  }
  void clear() noexcept {
    for (Members& members : classes_) members.clear();
    any_ = {};
  }

  // Null if it is empty. `now` is greater than every last use. Of equal scores the one used longest ago.
  [[nodiscard]] Node* first(double alpha, std::uint64_t now) noexcept {
    Range recency;
    Range efficiency;
    for_each_class([&](Class which) {
      recency.add(recency_of(*classes_[which].begin(), now));
      recency.add(recency_of(*classes_[which].rbegin(), now));
      efficiency.add(efficiency_of(which));
    });
    Node* first = nullptr;
    double lowest = 0;
    for_each_class([&](Class which) {
      Node& node = *classes_[which].begin();
      const double score =
          recency.normalised(recency_of(node, now)) + alpha * efficiency.normalised(efficiency_of(which));
      if (first != nullptr && (score > lowest || (score == lowest && node.last_use > first->last_use))) return;
      first = &node;
      lowest = score;
    });
    return first;
  }

 private:
  static constexpr int kDroppedBits = 49;  // of a double's 52 after the first: three stay
  static constexpr std::uint64_t kOne = std::bit_cast<std::uint64_t>(1.0) >> kDroppedBits;

  struct ByLastUse {
    using type = std::uint64_t;
    type operator()(const Node& node) const { return node.last_use; }
  };
  using Members = boost::intrusive::set<Node, boost::intrusive::key_of_value<ByLastUse>,
                                        boost::intrusive::constant_time_size<false>>;
  struct Range {
    double least = 0;
    double greatest = 0;
    bool any = false;

    void add(double value) {
      least = any ? std::min(least, value) : value;
      greatest = any ? std::max(greatest, value) : value;
      any = true;
    }
    [[nodiscard]] double normalised(double value) const {
      return greatest == least ? 1.0 : (value - least) / (greatest - least);
    }
  };

  [[nodiscard]] static std::uint64_t bit_of(Class which) { return std::uint64_t{1} << which % 64; }
  [[nodiscard]] static double recency_of(const Node& node, std::uint64_t now) {
    return 1.0 / static_cast<double>(now - node.last_use);
  }
  template <class Visit>
  void for_each_class(Visit visit) const {
    for (std::size_t word = 0; word < any_.size(); ++word) {
      for (std::uint64_t bits = any_[word]; bits != 0; bits &= bits - 1) {
        visit(static_cast<Class>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
      }
    }
  }

  std::array<Members, kClasses> classes_;
  std::array<std::uint64_t, kClasses / 64> any_{};  // a bit for each class that has members
};

}  // namespace cairn

#endif  // CAIRN_POLICY_FLOP_ORDER_H_
