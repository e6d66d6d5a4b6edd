// Pools of blocks and slots as an engine has them: counted by reference from many threads. Each block and slot
// remembers whose content it holds, so that one handed out for other tokens is noticed.
#ifndef CAIRN_TESTS_STRESS_SHARED_POOLS_H_
#define CAIRN_TESTS_STRESS_SHARED_POOLS_H_

#include <cairn/prefix_cache.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace cairn::testing {

// Stands for the bytes that belong to the tokens of one adapter: equal exactly when both are, but for chance.
std::uint64_t digest_of(std::span<const TokenId> tokens, AdapterId adapter_id);

// What went wrong, from any thread.
class Complaints {
 public:
  void add(const std::string& complaint);
  [[nodiscard]] std::vector<std::string> all() const;
  [[nodiscard]] bool any() const { return any_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> complaints_;
  std::atomic<bool> any_{false};  // only to stop early: orders nothing
};

class SharedBlocks {
 public:
  SharedBlocks(std::size_t count, Complaints& complaints);

  // A block with one reference, the caller's, that holds `digest`.
  std::optional<BlockId> allocate(std::uint64_t digest);
  void add_reference(BlockId block);
  void drop_reference(BlockId block);
  void drop_references(std::span<const BlockId> blocks);
  [[nodiscard]] std::uint64_t digest(BlockId block) const;
  [[nodiscard]] std::size_t free_count() const;

 private:
  struct Block {
    // The last reference is dropped with release and acquire order: whoever allocates the block next sees that.
    std::atomic<std::int64_t> references{0};
    std::atomic<std::uint64_t> digest{0};  // published by the index's lock
  };
  std::vector<Block> blocks_;
  Complaints& complaints_;
  mutable std::mutex mutex_;
  std::vector<BlockId> free_;  // guarded by mutex_
};

class SharedSlots {
 public:
  SharedSlots(std::size_t count, Complaints& complaints);

  // A slot that holds `digest`; it counts as the index's from now on.
  std::optional<SnapshotId> take(std::uint64_t digest);
  void give_back(SnapshotId slot);
  [[nodiscard]] std::uint64_t digest(SnapshotId slot) const;
  [[nodiscard]] std::size_t free_count() const;

 private:
  Complaints& complaints_;
  mutable std::mutex mutex_;
  std::set<SnapshotId> free_;
  std::vector<std::uint64_t> digests_;
};

// The bytes of spilled snapshots by tier key.
class SharedTier {
 public:
  explicit SharedTier(Complaints& complaints) : complaints_(complaints) {}

  void store(TierKey key, std::uint64_t digest);
  [[nodiscard]] std::optional<std::uint64_t> find(TierKey key) const;
  // Any key stored lately, dead or alive; 0 if there is none.
  [[nodiscard]] TierKey some_key(std::size_t which) const;

 private:
  Complaints& complaints_;
  mutable std::mutex mutex_;
  std::map<TierKey, std::uint64_t> digests_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_STRESS_SHARED_POOLS_H_
