#include "replay/block_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "replay/errors.h"

namespace cairn::replay {
namespace {

constexpr std::size_t kBlockIds = std::numeric_limits<BlockId>::max();  // the last id stays unused

}  // namespace

SimulatedBlockPool::SimulatedBlockPool(std::optional<std::size_t> capacity) : capacity_(capacity) {}

std::size_t SimulatedBlockPool::shortage(std::size_t blocks) const {
  if (!capacity_) return 0;
  const std::size_t available = *capacity_ - used();
  return blocks > available ? blocks - available : 0;
}

void SimulatedBlockPool::allocate(std::size_t blocks, std::vector<BlockId>& table) {
  if (const std::size_t missing = shortage(blocks); missing > 0) {
    throw ReplayError(fmt::format("{} blocks asked from a pool that is {} short of them", blocks, missing));
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    if (free_.empty()) {
      if (references_.size() >= kBlockIds) throw ReplayError("the pool has no block ids left (2^32 - 1)");
      free_.push_back(static_cast<BlockId>(references_.size()));
      references_.push_back(0);
      contents_.emplace_back();
    }
    const BlockId block = free_.back();
    free_.pop_back();
    references_[block] = 1;
    table.push_back(block);
  }
  peak_used_ = std::max(peak_used_, used());
}

void SimulatedBlockPool::add_reference(BlockId block) {
  check_in_use(block);
  ++references_[block];
}

void SimulatedBlockPool::drop_reference(BlockId block) {
  check_in_use(block);
  if (--references_[block] == 0) free_.push_back(block);
}

void SimulatedBlockPool::fill(BlockId block, const ContentDigest& content) {
  check_in_use(block);
  contents_[block] = content;
}

const ContentDigest& SimulatedBlockPool::content(BlockId block) const {
  check_in_use(block);
  return contents_[block];
}

void SimulatedBlockPool::check_in_use(BlockId block) const {
  if (block >= references_.size() || references_[block] == 0) {
    throw ReplayError(fmt::format("block {} is named, but nobody holds a reference on it", block));
  }
}

}  // namespace cairn::replay
