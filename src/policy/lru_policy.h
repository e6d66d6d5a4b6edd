// The least recently used end first: the default, and the one whose evictions are prepared beside readers.
//
// No state but the queue. With the gate open, BlockTrie takes from its front what is likely to go (choose); behind the
// closed gate these come first, as long as nothing that is older came since.
#ifndef CAIRN_POLICY_LRU_POLICY_H_
#define CAIRN_POLICY_LRU_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "index/stamp_queue.h"
#include "policy/block_policy.h"

namespace cairn {

class LruPolicy final : public BlockPolicy {
 public:
  void reserve(std::size_t ends, EdgeId) override { queue_.reserve(ends); }

  // ---- With the gate open: choosing what evict() will most likely take ----

  [[nodiscard]] StampQueue& queue() { return queue_; }
  [[nodiscard]] const StampQueue& queue() const { return queue_; }
  void reserve_chosen(std::size_t count) { chosen_.reserve(count); }
  void choose(const StampQueue::Entry& entry) { chosen_.push_back(entry); }
  [[nodiscard]] bool may_choose() const { return chosen_.size() < chosen_.capacity(); }

  // ---- BlockPolicy ----

  void push(const BlockEnd& end) noexcept override { queue_.push({end.stamp, end.edge}); }
  EdgeId pop(const EvictionMoment&) noexcept override {
    if (empty()) return kNoEdge;
    const Candidate candidate = take();
    popped_ = candidate.entry.stamp;
    return candidate.entry.id;
  }
  Verdict judge(const BlockEnd& end) noexcept override {
    return end.stamp == popped_ ? Verdict::kEvict : Verdict::kKeep;
  }
  bool goes_too(const BlockEnd& end) noexcept override { return end.stamp == popped_; }

  // The same in the fewest instructions, for BlockTrie: what is taken goes if its stamp has not changed.
  struct Candidate {
    StampQueue::Entry entry;
    bool was_chosen = false;  // by choose()
  };
  [[nodiscard]] bool empty() const { return next_ == chosen_.size() && queue_.empty(); }
  [[nodiscard]] Candidate take() noexcept {
    // Those chosen are older than what was left in the queue, but not than what came since.
    if (next_ < chosen_.size() && (queue_.empty() || chosen_[next_] < queue_.oldest()))
      return {chosen_[next_++], true};
    const StampQueue::Entry entry = queue_.oldest();
    queue_.pop();
    return {entry, false};
  }

  void give_up_chosen() noexcept {
    for (; next_ < chosen_.size(); ++next_) queue_.push(chosen_[next_]);
    chosen_.clear();
    next_ = 0;
  }
  void forget_if(const std::function<bool(EdgeId)>& goes) noexcept override {
    queue_.remove_if([&](const StampQueue::Entry& entry) { return goes(entry.id); });
  }
  void free_memory() noexcept override {
    queue_.free_memory();
    std::vector<StampQueue::Entry>().swap(chosen_);
  }
  [[nodiscard]] std::vector<EdgeId> entries() const override {
    std::vector<EdgeId> edges;
    for (const StampQueue::Entry& entry : queue_.entries()) edges.push_back(entry.id);
    return edges;
  }
  [[nodiscard]] std::string validate(const EdgeStore& edges) const override {
    const auto wrong = std::ranges::find_if(queue_.entries(), [&](const StampQueue::Entry& entry) {
      return entry.stamp > edges[entry.id].end_stamp.load(std::memory_order_relaxed);
    });
    if (wrong == queue_.entries().end()) return {};
    return "edge " + std::to_string(wrong->id) + ": queued with too new a stamp";
  }

 private:
  StampQueue queue_;
  std::vector<StampQueue::Entry> chosen_;
  std::size_t next_ = 0;  // of those chosen
  Stamp popped_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_POLICY_LRU_POLICY_H_
