// The least frequently used end first, with aging: LFU-DA (Arlitt, Cherkasova, Dilley, Friedrich, Jin, "Evaluating
// content management techniques for Web proxy caches", Performance Evaluation Review 27(4), 2000).
//
// A block's key is its uses plus the cache's age at the last of them; the least key goes, and becomes the age. So what
// was used often once, and is not any more, is overtaken. Ties go to the one used longer ago. The age at a use is told
// from its stamp: the ages that there were are kept with the stamps from which on they held.
#ifndef CAIRN_POLICY_LFU_POLICY_H_
#define CAIRN_POLICY_LFU_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/containers.h"
#include "policy/block_policy.h"
#include "policy/end_heap.h"

namespace cairn {

class LfuPolicy final : public BlockPolicy {
 public:
  void reserve(std::size_t ends, EdgeId id_limit) override { heap_.reserve(ends, id_limit); }
  void prepare_evict(std::size_t) override {
    // The oldest half: blocks that nobody used since count as used when the other half began.
    if (ages_.size() >= kAgesMax) {
      forgotten_ = ages_[kAgesMax / 2 - 1].age;
      ages_.erase(ages_.begin(), ages_.begin() + kAgesMax / 2);
    }
    make_room(ages_, 1);
  }

  void push(const BlockEnd& end) noexcept override { heap_.push(end.edge, rank_of(end)); }
  EdgeId pop(const EvictionMoment& moment) noexcept override {
    if (heap_.empty()) return kNoEdge;
    now_ = moment.now;
    popped_ = heap_.first().rank;
    return heap_.pop().edge;
  }
  Verdict judge(const BlockEnd& end) noexcept override {
    if (rank_of(end) != popped_) return Verdict::kKeep;
    if (const std::uint64_t age = ages_.empty() ? 0 : ages_.back().age; popped_.major > age) grow_to(popped_.major);
    return Verdict::kEvict;
  }
  bool goes_too(const BlockEnd& end) noexcept override { return rank_of(end) == popped_; }
  void forget_if(const std::function<bool(EdgeId)>& goes) noexcept override { heap_.erase_if(goes); }
  void free_memory() noexcept override { heap_.free_memory(); }
  [[nodiscard]] std::vector<EdgeId> entries() const override {
    std::vector<EdgeId> edges;
    for (const EndHeap::Entry& entry : heap_.entries()) edges.push_back(entry.edge);
    return edges;
  }

 private:
  static constexpr std::ptrdiff_t kAgesMax = 65'536;

  struct Age {
    Stamp after = 0;  // of uses with later stamps
    std::uint64_t age = 0;
  };

  void grow_to(std::uint64_t age) noexcept {
    if (ages_.empty() || ages_.back().after < now_) {
      ages_.push_back({now_, age});
    } else {
      ages_.back().age = age;
    }
  }
  [[nodiscard]] std::uint64_t age_at(Stamp stamp) const {
    const auto later = std::ranges::lower_bound(ages_, stamp, {}, &Age::after);  // the first that did not hold yet
    return later == ages_.begin() ? forgotten_ : std::prev(later)->age;
  }
  // The insert that cached it is a use beside the lookups.
  [[nodiscard]] EndHeap::Rank rank_of(const BlockEnd& end) const {
    return {1 + std::uint64_t{end.hits} + age_at(end.stamp), end.stamp};
  }

  EndHeap heap_;
  EndHeap::Rank popped_;
  Stamp now_ = 0;
  std::vector<Age> ages_;        // both growing
  std::uint64_t forgotten_ = 0;  // the age before those
};

}  // namespace cairn

#endif  // CAIRN_POLICY_LFU_POLICY_H_
