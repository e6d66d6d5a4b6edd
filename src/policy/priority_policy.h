// What requests marked with a low priority goes first, and with equal priority the least recently used end. A mark
// counts until it expires; a block that nobody marked, or whose mark has expired, has priority 0. (Compare
// KvCacheRetentionConfig of TensorRT-LLM: ranges of tokens with a priority and a duration.)
#ifndef CAIRN_POLICY_PRIORITY_POLICY_H_
#define CAIRN_POLICY_PRIORITY_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/containers.h"
#include "policy/block_policy.h"
#include "policy/end_heap.h"

namespace cairn {

class PriorityPolicy final : public BlockPolicy {
 public:
  using Clock = std::function<BlockMark::TimePoint()>;

  explicit PriorityPolicy(Clock clock) : clock_(std::move(clock)) {}

  void reserve(std::size_t ends, EdgeId id_limit) override {
    heap_.reserve(ends, id_limit);
    expiring_.reserve(ends, id_limit);
  }
  // Time passes between evictions only.
  void prepare_evict(std::size_t) override { now_ = clock_(); }

  [[nodiscard]] bool takes_marks() const override { return true; }
  void mark(EdgeId edge, std::uint32_t first, std::uint32_t last, const BlockMark& mark) override {
    make_room(marks_, last - first);
    for (std::uint32_t boundary = first + 1; boundary <= last; ++boundary)
      marks_[Position{edge, boundary}.key()] = mark;
  }

  void push(const BlockEnd& end) noexcept override {
    const BlockMark mark = mark_of(end);
    if (mark.expires < BlockMark::TimePoint::max()) {
      expiring_.push(end.edge, {as_number(mark.expires), end.stamp});
    } else {
      expiring_.erase(end.edge);
    }
    heap_.push(end.edge, {as_number(mark.priority), end.stamp});
  }
  EdgeId pop(const EvictionMoment&) noexcept override {
    // An expired mark counts as none. The stamp may be newer by now, as ever: judge sees to that.
    while (!expiring_.empty() && expiring_.first().rank.major <= as_number(now_)) {
      const EndHeap::Entry entry = expiring_.pop();
      heap_.push(entry.edge, {as_number(0), entry.rank.minor});
    }
    if (heap_.empty()) return kNoEdge;
    const EndHeap::Entry entry = heap_.pop();
    expiring_.erase(entry.edge);
    popped_ = entry.rank;
    return entry.edge;
  }
  Verdict judge(const BlockEnd& end) noexcept override {
    return end.stamp == popped_.minor ? Verdict::kEvict : Verdict::kKeep;
  }
  bool goes_too(const BlockEnd& end) noexcept override {
    return end.stamp == popped_.minor && as_number(mark_of(end).priority) == popped_.major;
  }
  void evicted(const BlockEnd& end) noexcept override { marks_.erase(end.at().key()); }
  void forget_if(const std::function<bool(EdgeId)>& goes) noexcept override {
    heap_.erase_if(goes);
    expiring_.erase_if(goes);
    boost::unordered::erase_if(marks_, [&](const auto& mark) { return goes(Position::of_key(mark.first).edge); });
  }
  void free_memory() noexcept override {
    heap_.free_memory();
    expiring_.free_memory();
    IdMap<BlockMark>().swap(marks_);
  }
  [[nodiscard]] std::vector<EdgeId> entries() const override {
    std::vector<EdgeId> edges;
    for (const EndHeap::Entry& entry : heap_.entries()) edges.push_back(entry.edge);
    return edges;
  }
  [[nodiscard]] std::string validate(const EdgeStore& edges) const override {
    for (const auto& [key, mark] : marks_) {
      const Position at = Position::of_key(key);
      if (!edges[at.edge].live || at.boundary > edges[at.edge].resident) return "a mark outlived its block";
    }
    for (const EndHeap::Entry& entry : expiring_.entries()) {
      if (!heap_.contains(entry.edge)) return "an end that is not queued waits for its mark to expire";
    }
    return {};
  }

 private:
  // As far as it counts at present.
  [[nodiscard]] BlockMark mark_of(const BlockEnd& end) const {
    const auto found = marks_.find(end.at().key());
    return found == marks_.end() || found->second.expires <= now_ ? BlockMark() : found->second;
  }
  // In order as unsigned numbers.
  static std::uint64_t as_number(std::int64_t value) {
    return static_cast<std::uint64_t>(value) + (std::uint64_t{1} << 63);
  }
  static std::uint64_t as_number(BlockMark::TimePoint time) {
    return as_number(std::int64_t{time.time_since_epoch().count()});
  }

  const Clock clock_;
  BlockMark::TimePoint now_{};
  EndHeap heap_;            // by priority, then stamp
  EndHeap expiring_;        // of those in heap_ whose mark will expire: by when, then stamp as in heap_
  IdMap<BlockMark> marks_;  // by Position::key
  EndHeap::Rank popped_;
};

}  // namespace cairn

#endif  // CAIRN_POLICY_PRIORITY_POLICY_H_
