// Segmented LRU (Karedla, Love, Wherry, "Caching strategies to improve disk system performance", IEEE Computer 27(3),
// 1994) over the ends of a trie.
//
// New blocks are on probation; one that is hit there becomes protected, and with it all before it, which were hit too.
// What is on probation goes first, the least recently used. If more than four fifths of the cached blocks are
// protected, the least recently used protected end goes back on probation, as if it had been used just now.
//
// A hit is noticed when the turn comes to the end: that is soon enough, since it matters only then.
#ifndef CAIRN_POLICY_SLRU_POLICY_H_
#define CAIRN_POLICY_SLRU_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "policy/block_policy.h"
#include "policy/end_heap.h"
#include "policy/prefix_segment.h"

namespace cairn {

class SlruPolicy final : public BlockPolicy {
 public:
  explicit SlruPolicy(const EdgeStore& edges) : edges_(edges) {}

  void reserve(std::size_t ends, EdgeId id_limit) override {
    probation_.reserve(ends, id_limit);
    protected_.reserve(ends, id_limit);
    segment_.reserve(id_limit);
    make_room_by_edge(demoted_, id_limit, Demoted());
  }

  void push(const BlockEnd& end) noexcept override {
    const bool is_protected = segment_.contains(end.at());
    (is_protected ? probation_ : protected_).erase(end.edge);
    (is_protected ? protected_ : probation_).push(end.edge, rank_of(end));
  }
  EdgeId pop(const EvictionMoment& moment) noexcept override {
    now_ = moment.now;
    demoting_ = segment_.size() * kProtectedOf > moment.blocks * kProtected && !protected_.empty();
    was_protected_ = demoting_ || probation_.empty();
    EndHeap& heap = was_protected_ ? protected_ : probation_;
    if (heap.empty()) return kNoEdge;
    popped_ = heap.first().rank;
    return heap.pop().edge;
  }
  Verdict judge(const BlockEnd& end) noexcept override {
    if (rank_of(end) != popped_ || segment_.contains(end.at()) != was_protected_) return Verdict::kKeep;
    if (demoting_) {
      segment_.remove(end.at());
      demoted_[end.edge] = {end.boundary, now_, ++demotions_};
      return Verdict::kKeepAndForgetHits;
    }
    if (!was_protected_ && end.hits > 0) {
      segment_.add(end.at(), edges_);
      return Verdict::kKeepAndForgetHits;
    }
    return Verdict::kEvict;
  }
  void evicted(const BlockEnd& end) noexcept override { segment_.remove(end.at()); }
  void forget_if(const std::function<bool(EdgeId)>& goes) noexcept override {
    probation_.erase_if(goes);
    protected_.erase_if(goes);
    segment_.forget_if(goes);
  }
  void free_memory() noexcept override {
    probation_.free_memory();
    protected_.free_memory();
    segment_.free_memory();
    std::vector<Demoted>().swap(demoted_);
  }
  [[nodiscard]] std::vector<EdgeId> entries() const override {
    std::vector<EdgeId> edges;
    for (const EndHeap::Entry& entry : probation_.entries()) edges.push_back(entry.edge);
    for (const EndHeap::Entry& entry : protected_.entries()) edges.push_back(entry.edge);
    return edges;
  }
  [[nodiscard]] std::string validate(const EdgeStore& edges) const override { return segment_.validate(edges); }

 private:
  static constexpr std::size_t kProtected = 4;  // of kProtectedOf parts
  static constexpr std::size_t kProtectedOf = 5;

  struct Demoted {
    std::uint32_t boundary = 0;  // where the block ends; 0: none of this edge
    Stamp at = 0;
    std::uint64_t number = 0;
  };

  // On probation, a block that was protected counts as used when it was demoted, if it was not since.
  [[nodiscard]] EndHeap::Rank rank_of(const BlockEnd& end) const {
    const Demoted& demoted = demoted_[end.edge];
    if (demoted.boundary != end.boundary || demoted.at < end.stamp || segment_.contains(end.at()))
      return {end.stamp, 0};
    return {demoted.at, demoted.number};
  }

  const EdgeStore& edges_;
  EndHeap probation_;
  EndHeap protected_;
  PrefixSegment segment_;         // what is protected
  std::vector<Demoted> demoted_;  // by edge: its block that was demoted last
  std::uint64_t demotions_ = 0;
  EndHeap::Rank popped_;
  Stamp now_ = 0;
  bool was_protected_ = false;  // the end popped last, when it was queued
  bool demoting_ = false;       // it was popped to be demoted
};

}  // namespace cairn

#endif  // CAIRN_POLICY_SLRU_POLICY_H_
