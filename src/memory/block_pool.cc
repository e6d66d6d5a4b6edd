// BlockPool and SwapBlockPool: CountedIds, and for the former the bytes.
#include "cairn/block_pool.h"

#include <optional>
#include <string>
#include <utility>

#include "base/refuse.h"
#include "memory/arena.h"
#include "memory/counted_ids.h"
#include "memory/refusals.h"

namespace cairn {

namespace {

void check_bytes(std::size_t bytes, std::size_t block_bytes) {
  if (bytes == block_bytes) return;
  refuse("bytes", std::to_string(bytes) + " given; a block has " + std::to_string(block_bytes));
}

}  // namespace

BlockAllocator::~BlockAllocator() = default;

std::size_t BlockAllocator::block_bytes() const noexcept {
  return 0;
}
// NOLINTNEXTLINE(performance-unnecessary-value-param): who has bytes keeps it
void BlockAllocator::copy_out(BlockId /*block*/, std::span<std::byte> /*to*/, CopyDone /*done*/) {
  refuse("copy_out", "the bytes of these blocks can't be had: block_bytes() is 0");
}
// NOLINTNEXTLINE(performance-unnecessary-value-param): the same
void BlockAllocator::copy_in(BlockId /*block*/, std::span<const std::byte> /*from*/, CopyDone /*done*/) {
  refuse("copy_in", "the bytes of these blocks can't be had: block_bytes() is 0");
}

// ---- BlockPool ----

class BlockPool::Impl {
 public:
  explicit Impl(BlockPoolOptions options) : ids({.count = options.blocks}), block_bytes(options.block_bytes) {
    if (block_bytes > 0) bytes.emplace(std::move(options.device), options.blocks, block_bytes, "block_bytes");
  }

  [[nodiscard]] const Arena& arena() const {
    if (!bytes) refuse("block_bytes", "is 0: this pool has ids only");
    return *bytes;
  }

  CountedIds ids;
  const std::size_t block_bytes;
  std::optional<Arena> bytes;
};

BlockPool::BlockPool(BlockPoolOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

BlockPool::~BlockPool() = default;

bool BlockPool::allocate(std::size_t count, std::vector<BlockId>& out) {
  return impl_->ids.allocate(count, out);
}

void BlockPool::add_references(std::span<const BlockId> blocks) noexcept {
  impl_->ids.add_references(blocks);
}

void BlockPool::drop_references(std::span<const BlockId> blocks) noexcept {
  impl_->ids.drop_references(blocks);
}

std::size_t BlockPool::free_blocks() const noexcept {
  return impl_->ids.num_free();
}

std::size_t BlockPool::total_blocks() const noexcept {
  return impl_->ids.num_total();
}

std::size_t BlockPool::used_blocks() const noexcept {
  return impl_->ids.num_used();
}

std::uint32_t BlockPool::references(BlockId block) const noexcept {
  return impl_->ids.references(block);
}

PoolErrors BlockPool::errors() const {
  return impl_->ids.errors();
}

std::string BlockPool::validate() const {
  return impl_->ids.validate();
}

void BlockPool::copy_out(BlockId block, std::span<std::byte> to, CopyDone done) {
  std::byte* const from = data(block);
  check_bytes(to.size(), block_bytes());
  device().copy_out(to, from, std::move(done));
}

void BlockPool::copy_in(BlockId block, std::span<const std::byte> from, CopyDone done) {
  std::byte* const to = data(block);
  check_bytes(from.size(), block_bytes());
  device().copy_in(to, from, std::move(done));
}

std::byte* BlockPool::data(BlockId block) const {
  const Arena& arena = impl_->arena();
  if (block >= total_blocks()) {
    refuse("block", std::to_string(block) + " is not below " + std::to_string(total_blocks()));
  }
  return arena.piece(block);
}

std::size_t BlockPool::block_bytes() const noexcept {
  return impl_->block_bytes;
}

Device& BlockPool::device() const {
  return impl_->arena().device();
}

// ---- SwapBlockPool ----

class SwapBlockPool::Impl {
 public:
  explicit Impl(std::size_t blocks) : ids({.count = blocks, .let_pass = kNoDiskBlock}) {}

  CountedIds ids;
};

SwapBlockPool::SwapBlockPool(std::size_t blocks) : impl_(std::make_unique<Impl>(blocks)) {}

SwapBlockPool::~SwapBlockPool() = default;

bool SwapBlockPool::allocate(std::size_t count, std::vector<DiskBlockId>& out) {
  return impl_->ids.allocate(count, out);
}

void SwapBlockPool::add_references(std::span<const DiskBlockId> blocks) noexcept {
  impl_->ids.add_references(blocks);
}

void SwapBlockPool::drop_references(std::span<const DiskBlockId> blocks) noexcept {
  impl_->ids.drop_references(blocks);
}

std::size_t SwapBlockPool::free_blocks() const noexcept {
  return impl_->ids.num_free();
}

std::size_t SwapBlockPool::used_blocks() const noexcept {
  return impl_->ids.num_used();
}

std::size_t SwapBlockPool::total_blocks() const noexcept {
  return impl_->ids.num_total();
}

std::uint32_t SwapBlockPool::references(DiskBlockId block) const noexcept {
  return impl_->ids.references(block);
}

PoolErrors SwapBlockPool::errors() const {
  return impl_->ids.errors();
}

std::string SwapBlockPool::validate() const {
  return impl_->ids.validate();
}

}  // namespace cairn
