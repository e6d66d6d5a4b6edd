// The engine's block pool as the replay imitates it: reference counts and contents, no bytes.
#ifndef CAIRN_REPLAY_BLOCK_POOL_H_
#define CAIRN_REPLAY_BLOCK_POOL_H_

#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "replay/content_digest.h"

namespace cairn::replay {

// A block is free or has references: one for the cache if a node holds it, one for each running sequence that has it
// in its table. used() + free() is the capacity at all times.
class SimulatedBlockPool {
 public:
  // Without a capacity it grows as needed.
  explicit SimulatedBlockPool(std::optional<std::size_t> capacity);

  [[nodiscard]] std::optional<std::size_t> capacity() const { return capacity_; }
  [[nodiscard]] std::size_t used() const { return references_.size() - free_.size(); }
  [[nodiscard]] std::size_t peak_used() const { return peak_used_; }
  // How many of `blocks` could not be had now.
  [[nodiscard]] std::size_t shortage(std::size_t blocks) const;

  // Appends `blocks` free blocks to `table`, each with one reference. Throws ReplayError if there are not enough, or
  // no block ids are left.
  void allocate(std::size_t blocks, std::vector<BlockId>& table);
  // Both throw ReplayError for a block that is not in use.
  void add_reference(BlockId block);
  void drop_reference(BlockId block);

  // What the block was last filled with. Both throw ReplayError for a block that is not in use.
  void fill(BlockId block, const ContentDigest& content);
  [[nodiscard]] const ContentDigest& content(BlockId block) const;

 private:
  void check_in_use(BlockId block) const;

  std::optional<std::size_t> capacity_;
  std::vector<std::uint32_t> references_;  // by block; grows up to the capacity
  std::vector<ContentDigest> contents_;    // by block
  std::vector<BlockId> free_;              // those of references_ that have none; last freed, first used
  std::size_t peak_used_ = 0;
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_BLOCK_POOL_H_
