// S3-FIFO (Yang, Zhang, Qiu, Yue, Vinayak, "FIFO queues are all you need for cache eviction", SOSP 2023), adapted to a
// trie whose leaves go first.
//
// Blocks enter a small queue, a tenth of the cache. At its end those that were hit more than once move to the main
// queue, the others go and are remembered for a while; what comes back in that time enters the main queue. At the
// main queue's end, a block that was hit goes round once more for each hit, three times at most.
//
// What the trie changes: only ends are looked at. With a block that moves to the main queue go all before it, which
// were hit as often. A block whose last child goes takes the child's place in its queue, so it is looked at next, with
// the hits that its children did not spend on staying.
#ifndef CAIRN_POLICY_S3_FIFO_POLICY_H_
#define CAIRN_POLICY_S3_FIFO_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "policy/block_fingerprint.h"
#include "policy/block_policy.h"
#include "policy/end_heap.h"
#include "policy/ghosts.h"
#include "policy/prefix_segment.h"

namespace cairn {

class S3FifoPolicy final : public BlockPolicy {
 public:
  S3FifoPolicy(const EdgeStore& edges, std::uint64_t seed) : edges_(edges), fingerprints_(edges.block_size(), seed) {
    inserted_.reserve(kInsertedMax);
  }

  void reserve(std::size_t ends, EdgeId id_limit) override {
    small_.reserve(ends, id_limit);
    main_.reserve(ends, id_limit);
    segment_.reserve(id_limit);
    make_room_by_edge(ends_, id_limit, End());
  }
  void settle(std::span<const Use>, std::size_t) override {
    for (const NewBlocks& blocks : inserted_) {
      for (std::uint32_t boundary = blocks.last; boundary > blocks.first; --boundary) {
        const Position at{blocks.edge, boundary};
        if (ghosts_.take(fingerprints_.of(edges_, at))) segment_.add(at, edges_);
      }
      // Whether a queue is empty decides from which one to take.
      const EdgeId edge = blocks.edge;
      if (!small_.contains(edge) || !segment_.contains({edge, edges_[edge].resident})) continue;
      small_.erase(edge);
      main_.push(edge, {ends_[edge].place, 0});
    }
    inserted_.clear();
  }
  void prepare_evict(std::size_t num_blocks) override { ghosts_.reserve(num_blocks); }

  void push(const BlockEnd& end) noexcept override {
    const bool in_main = segment_.contains(end.at());
    (in_main ? small_ : main_).erase(end.edge);
    (in_main ? main_ : small_).push(end.edge, {ends_[end.edge].place, 0});
  }
  EdgeId pop(const EvictionMoment& moment) noexcept override {
    blocks_ = moment.blocks;
    const bool too_many = moment.blocks - std::min(moment.blocks, segment_.size()) > moment.blocks / kSmallOf;
    was_main_ = !(too_many && !small_.empty()) && !main_.empty();
    EndHeap& heap = was_main_ ? main_ : small_;
    if (heap.empty()) return kNoEdge;
    popped_place_ = heap.first().rank.major;
    return heap.pop().edge;
  }
  Verdict judge(const BlockEnd& end) noexcept override {
    End& facts = ends_[end.edge];
    if (facts.place != popped_place_ || segment_.contains(end.at()) != was_main_) return Verdict::kKeep;
    if (!was_main_) {
      if (end.hits < kHitsToStay) return Verdict::kEvict;
      segment_.add(end.at(), edges_);
    } else {
      facts.rounds = std::min(kRoundsMax, facts.rounds + std::min(kRoundsMax, end.hits));
      if (facts.rounds == 0) return Verdict::kEvict;
      --facts.rounds;
    }
    facts.place = ++last_place_;
    return Verdict::kKeepAndForgetHits;
  }
  void inserted(const NewBlocks& blocks) noexcept override {
    ends_[blocks.edge] = {.place = ++last_place_, .rounds = 0};
    if (inserted_.size() < kInsertedMax) inserted_.push_back(blocks);
  }
  void evicted(const BlockEnd& end) noexcept override {
    if (!segment_.contains(end.at())) ghosts_.add(fingerprints_.of(edges_, end.at()), blocks_);
    segment_.remove(end.at());
    ends_[end.edge].rounds = 0;
  }
  void uncovered(EdgeId parent, EdgeId child) noexcept override {
    ends_[parent] = {.place = ends_[child].place, .rounds = 0};
  }
  void forget_if(const std::function<bool(EdgeId)>& goes) noexcept override {
    small_.erase_if(goes);
    main_.erase_if(goes);
    segment_.forget_if(goes);
    std::erase_if(inserted_, [&](const NewBlocks& blocks) { return goes(blocks.edge); });
  }
  void free_memory() noexcept override {
    small_.free_memory();
    main_.free_memory();
    segment_.free_memory();
    std::vector<End>().swap(ends_);
  }
  [[nodiscard]] std::vector<EdgeId> entries() const override {
    std::vector<EdgeId> edges;
    for (const EndHeap::Entry& entry : small_.entries()) edges.push_back(entry.edge);
    for (const EndHeap::Entry& entry : main_.entries()) edges.push_back(entry.edge);
    return edges;
  }
  [[nodiscard]] std::string validate(const EdgeStore& edges) const override { return segment_.validate(edges); }

 private:
  static constexpr std::size_t kSmallOf = 10;  // the small queue's part of the cache: one in so many
  static constexpr std::uint32_t kHitsToStay = 2;
  static constexpr std::uint32_t kRoundsMax = 3;
  static constexpr std::size_t kInsertedMax = 1024;  // pieces of edges in one insert; of more, the rest counts as new

  struct End {
    std::uint64_t place = 0;   // in its queue: later is larger
    std::uint32_t rounds = 0;  // that it may go yet in the main queue
  };

  const EdgeStore& edges_;
  BlockFingerprints fingerprints_;
  EndHeap small_;
  EndHeap main_;
  PrefixSegment segment_;            // what is in the main queue, or lies before what is
  Ghosts ghosts_;                    // of what went from the small queue
  std::vector<End> ends_;            // by edge
  std::vector<NewBlocks> inserted_;  // since settle(): whether they are ghosts is not known yet
  std::uint64_t last_place_ = 0;
  std::uint64_t popped_place_ = 0;
  bool was_main_ = false;  // the end popped last, when it was queued
  std::size_t blocks_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_POLICY_S3_FIFO_POLICY_H_
