// What hit rates pools of other sizes would have had, estimated from a sample of the blocks while the cache works.
//
// Of a stack of blocks ordered by their last use, a pool of n blocks that evicts the least recently used one has
// exactly the first n. SHARDS (Waldspurger et al., FAST 2015, section 3) keeps that stack for a sample: the blocks
// whose hash is below a threshold, all uses of those and of no others, so that a depth in the sample is a depth in the
// stack, divided by the rate. What the sample has too many or too few uses of is put right at the smallest depth
// (their SHARDS-adj). A prefix cache evicts ends first: of one request's blocks the deeper ones are below.
//
// A block's hash has to be that of all tokens up to its end, and prompts are not hashed when they are looked up.
// Hashes are computed when blocks are published. Every so many blocks one is a *mark*, and only marks can be in the
// sample; one bit for each block id tells whether it is, so a match finds its own among the ids that it gets anyway.
// Every few marks one keeps its hash in any case, for as long as the cache has the block: what is published below goes
// on from there. What has been evicted is recognised when somebody publishes it again. A hash has 32 bits: two blocks
// that share one by chance count as one, in an estimate.
#ifndef CAIRN_ENGINE_SIZE_ESTIMATOR_H_
#define CAIRN_ENGINE_SIZE_ESTIMATOR_H_

#include <array>
#include <atomic>
#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/containers.h"
#include "base/mutex.h"
#include "cairn/cache_manager.h"
#include "engine/count.h"
#include "engine/use_stack.h"

namespace cairn {

// Thread-safe. Losing a use to a lack of memory makes an estimate worse, never an answer wrong: nothing throws.
class SizeEstimator {
 public:
  // Of a pool of so many blocks, with ids below that number; 0: estimates nothing.
  SizeEstimator(std::size_t pool_blocks, std::size_t block_size, std::uint64_t hash_seed);
  SizeEstimator(const SizeEstimator&) = delete;
  SizeEstimator& operator=(const SizeEstimator&) = delete;

  // A sequence's hash as far as it has been followed.
  struct Chain {
    std::uint64_t hash = 0;
    std::size_t blocks = 0;
    bool is_known = false;
  };
  // What makes equal tokens different blocks.
  struct Identity {
    AdapterId adapter_id = 0;
    std::uint64_t epoch = 0;
  };

  [[nodiscard]] bool is_on() const noexcept { return !sampled_.empty(); }

  using Sampled = boost::container::small_vector<BlockId, 8>;
  // The marks of a match that are in the sample; without a lock. One load for each mark.
  [[nodiscard]] Sampled find_sampled(std::span<const BlockId> matched) const noexcept;
  // A request used a match of so many blocks with those marks, on which it holds uses.
  void use(std::span<const BlockId> sampled, std::size_t matched_blocks) noexcept;

  // Up to where `blocks` blocks can be followed without their tokens: the end of one of them, or 0.
  [[nodiscard]] std::size_t resume_at(std::size_t blocks) const noexcept;
  // The chain at the end of `blocks`, as many as resume_at said. Not known if that one was not published here.
  [[nodiscard]] Chain resume(const Identity& identity, std::span<const BlockId> blocks) const noexcept;
  // The blocks of a sequence that a request looked for and did not find, by depth.
  struct Asked {
    std::size_t from = 0;
    std::size_t to = 0;
  };
  // The cache has published `tokens`, full blocks, after `chain`, under the ids `blocks`. `sampled`, the marks of the
  // sequence above that are in the sample, gets those among the new ones.
  struct Published {
    std::span<const TokenId> tokens;
    std::span<const BlockId> blocks;
    Asked asked;
  };
  void publish(Chain& chain, const Published& what, Sampled& sampled) noexcept;
  // The blocks have left the cache; nobody else has their ids yet.
  void forget(std::span<const BlockId> blocks) noexcept;

  [[nodiscard]] SizeEstimates estimate() const;
  // Bytes, tables included.
  [[nodiscard]] std::size_t memory_bytes() const;
  // Empty, or what is wrong. For tests.
  [[nodiscard]] std::string validate() const;

 private:
  static constexpr std::size_t kSizes = std::tuple_size_v<decltype(SizeEstimates::sizes)>;
  static_assert(kSizes == UseStack::kSegments);
  struct Mark {
    UseStack::Value hash = 0;
    BlockId block = 0;
    bool is_asked = false;
    bool is_kept = false;  // its hash
  };

  [[nodiscard]] bool is_mark(std::size_t depth) const noexcept { return depth % stride_ == stride_ / 2; }
  [[nodiscard]] bool keeps_hash(std::size_t depth) const noexcept { return depth % kept_stride_ == stride_ / 2; }
  [[nodiscard]] bool is_sampled(UseStack::Value hash) const noexcept { return hash <= threshold_; }
  [[nodiscard]] std::size_t marks_among(std::size_t first_depth, std::size_t blocks) const noexcept;
  // By block.
  using Hashes = boost::unordered_flat_map<BlockId, UseStack::Value, IdHash>;
  struct Place {
    UseStack::Value hash = 0;
    UseStack::Id id = UseStack::kNoId;  // until the stack gets a new one
  };
  [[nodiscard]] Place find(UseStack::Value hash) const noexcept CAIRN_REQUIRES(mutex_) {
    return {.hash = hash, .id = stack_.find(hash)};
  }
  // path_: those of a sequence, in order.
  void find_path(std::span<const BlockId> sampled) noexcept CAIRN_REQUIRES(mutex_);
  // A prompt's use of one that is where it was before.
  void count(const Place& place) noexcept CAIRN_REQUIRES(mutex_);
  void raise(const Place& place) noexcept CAIRN_REQUIRES(mutex_);
  void raise_path() noexcept CAIRN_REQUIRES(mutex_);
  void note_on_top(std::span<const BlockId> sampled) noexcept CAIRN_REQUIRES(mutex_);

  // One bit for each block.
  class Bits {
   public:
    explicit Bits(std::size_t count) : words_((count + 63) / 64) {}
    [[nodiscard]] bool empty() const noexcept { return words_.empty(); }
    [[nodiscard]] std::size_t bytes() const noexcept { return words_.size() * sizeof(words_[0]); }
    [[nodiscard]] bool get(BlockId block) const noexcept {
      return block / 64 < words_.size() && (words_[block / 64].load(std::memory_order_relaxed) >> block % 64 & 1) != 0;
    }
    void set(BlockId block, bool value) noexcept {
      if (block / 64 >= words_.size()) return;
      const std::uint64_t bit = std::uint64_t{1} << block % 64;
      if (value) words_[block / 64].fetch_or(bit, std::memory_order_relaxed);
      if (!value) words_[block / 64].fetch_and(~bit, std::memory_order_relaxed);
    }

   private:
    std::vector<std::atomic<std::uint64_t>> words_;
  };

  const std::size_t block_size_;
  const std::size_t stride_;       // blocks from one mark to the next
  const std::size_t kept_stride_;  // from one whose hash is kept to the next: a multiple
  const std::uint64_t seed_;
  const std::size_t pool_blocks_;
  const double rate_;                // of marks in the sample
  const UseStack::Value threshold_;  // the same, as a hash
  Bits sampled_;                     // marks in the sample
  Count asked_;                      // marks, in the sample or not

  mutable Mutex mutex_;
  Hashes hashes_ CAIRN_GUARDED_BY(mutex_);  // by block: of those kept, and of the sample
  UseStack stack_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Place> path_ CAIRN_GUARDED_BY(mutex_);  // of the call under way
  // The marks of the last use, if they are what lies on top, all in the first segment: a prompt that comes again and
  // again changes nothing. Else empty.
  Sampled on_top_ CAIRN_GUARDED_BY(mutex_);
  std::array<std::uint64_t, kSizes> hits_ CAIRN_GUARDED_BY(mutex_){};  // by segment
  std::uint64_t sampled_uses_ CAIRN_GUARDED_BY(mutex_) = 0;            // of prompts
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_SIZE_ESTIMATOR_H_
