// The end that is least worth its room goes first, by what has been learned of when blocks are used again
// (ReuseTimes).
//
// Every other block of each path is *monitored*: a table of fixed size, four entries for each cached block, has when
// it was used last and how often, whether it is cached or not. It is the sample from which reuse is learned, and it
// knows a block again that was evicted and comes back. Time is counted in stamps.
//
// The least of a few ends drawn at random goes, so nothing has to be kept in order while values change with time; a
// block from which the last one was taken, and which was used as often and as long ago, follows it without a draw.
//
// What happened is heard of with the gate open (settle), from the log of uses and what inserts left; lookups beyond
// what the log has room for are not learned from.
#ifndef CAIRN_POLICY_LEARNED_POLICY_H_
#define CAIRN_POLICY_LEARNED_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "policy/block_fingerprint.h"
#include "policy/block_policy.h"
#include "policy/monitored_blocks.h"
#include "policy/reuse_times.h"

namespace cairn {

class LearnedPolicy final : public BlockPolicy {
 public:
  LearnedPolicy(const EdgeStore& edges, std::uint64_t seed);

  void reserve(std::size_t ends, EdgeId id_limit) override;
  void settle(std::span<const Use> uses, std::size_t blocks) override;

  void push(const BlockEnd& end) noexcept override;
  EdgeId pop(const EvictionMoment& moment) noexcept override;
  Verdict judge(const BlockEnd& end) noexcept override;
  bool goes_too(const BlockEnd& end) noexcept override;
  void inserted(const NewBlocks& blocks) noexcept override;
  void evicted(const BlockEnd& end) noexcept override;
  void uncovered(EdgeId parent, EdgeId child) noexcept override;
  void forget_if(const std::function<bool(EdgeId)>& goes) noexcept override;
  void free_memory() noexcept override;
  [[nodiscard]] std::vector<EdgeId> entries() const override { return ends_; }
  [[nodiscard]] std::string validate(const EdgeStore& edges) const override;

 private:
  // Of the block that was the edge's end when it was written down: how often it was used, what is known from before it
  // was cached included, when it had so many hits.
  struct Known {
    std::uint32_t boundary = 0;
    std::uint32_t hits = 0;
    std::uint64_t uses = 0;
  };
  [[nodiscard]] BlockEnd end_of(EdgeId id) const;
  [[nodiscard]] std::uint64_t uses_of(const BlockEnd& end) const;
  [[nodiscard]] std::uint64_t monitored_uses(Position at);
  [[nodiscard]] double value_of(const BlockEnd& end) const;
  [[nodiscard]] bool is_cached(Position at) const;
  void learn_of_insert(const NewBlocks& blocks);
  void learn_of_use(const Use& use);
  std::uint64_t monitor(Position at, Stamp stamp, std::uint64_t uses_below);
  void remove(EdgeId edge) noexcept;
  std::uint64_t draw() noexcept;

  const EdgeStore& edges_;
  BlockFingerprints fingerprints_;
  MonitoredBlocks monitored_;
  ReuseTimes times_;
  std::uint64_t random_;
  std::size_t events_ = 0;  // in the table, since values were computed

  std::vector<EdgeId> ends_;           // in no order
  std::vector<std::uint32_t> places_;  // by edge: in ends_
  std::vector<Known> known_;           // by edge
  std::vector<NewBlocks> inserted_;    // since settle(), the deepest of an insert first

  Stamp now_ = 0;
  // Of the end that was judged last.
  Stamp gone_stamp_ = 0;
  std::size_t gone_class_ = 0;
  EdgeId follower_ = kNoEdge;  // became an end in its place, and goes next
  EdgeId uncovered_ = kNoEdge;
};

}  // namespace cairn

#endif  // CAIRN_POLICY_LEARNED_POLICY_H_
