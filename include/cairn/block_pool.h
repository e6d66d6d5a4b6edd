// Who holds which KV block. Ids and reference counts; the bytes are reached through a Device, if the pool has any.
//
// BlockAllocator is what CacheManager asks of an engine's block memory. An engine that has a pool of its own
// implements it; the others use BlockPool. SwapBlockPool is the same for the blocks of the engine's swap file.
#ifndef CAIRN_BLOCK_POOL_H_
#define CAIRN_BLOCK_POOL_H_

#include <cairn/device.h>
#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cairn {

// Every member may be called from any thread at any time, takes no lock of Cairn's, does no I/O and must not call
// back into a CacheManager or a Lease (but for `done` of a copy).
class BlockAllocator {
 public:
  virtual ~BlockAllocator();

  // Appends `count` free blocks to `out`, each with one reference, or none at all: false if fewer are free. Strong
  // guarantee if it throws std::bad_alloc.
  [[nodiscard]] virtual bool allocate(std::size_t count, std::vector<BlockId>& out) = 0;
  // One more reference on each; all of them have one already.
  virtual void add_references(std::span<const BlockId> blocks) noexcept = 0;
  // One reference less on each; a block without one is free again.
  virtual void drop_references(std::span<const BlockId> blocks) noexcept = 0;
  [[nodiscard]] virtual std::size_t free_blocks() const noexcept = 0;
  [[nodiscard]] virtual std::size_t total_blocks() const noexcept = 0;

  // ---- Bytes, for a store; an allocator without them inherits these ----
  // The bytes of one block, all layers and ranks, as they go to a store; 0: they can't be had.
  [[nodiscard]] virtual std::size_t block_bytes() const noexcept;
  // Copies a block to or from host memory of block_bytes(). `done` as Device promises. Throws std::invalid_argument:
  // no such block, the wrong size, no bytes; and what the device throws.
  virtual void copy_out(BlockId block, std::span<std::byte> to, CopyDone done);
  virtual void copy_in(BlockId block, std::span<const std::byte> from, CopyDone done);
};

struct BlockPoolOptions {
  std::size_t blocks = 0;       // ids 0 .. blocks - 1
  std::size_t block_bytes = 0;  // of one block; 0: the pool hands out ids only
  // Where the bytes live. Null: host memory. Not used if block_bytes is 0.
  std::shared_ptr<Device> device{};
};

// What a pool has refused so far. For a log: a refusal is a bug of the caller.
struct PoolErrors {
  std::uint64_t unknown_ids = 0;   // no such block or slot
  std::uint64_t not_in_use = 0;    // it is free: a double free, say
  std::uint64_t count_limits = 0;  // 2^32 - 1 references on one block
  std::uint64_t wrong_states = 0;  // a slot in use, but not as the call needs it
  std::string last;                // the last of them in words, with the id. Empty if there was none
};

// Reference-counted ids. Invariant: free + used == total, always. allocate and drop are O(1) for each block, newest
// free first; construction is O(blocks). Thread-safe: one short lock, taken last in Cairn's order.
//
// Each call is one atomic step. A large batch holds the lock for all of its blocks.
//
// Errors: what the caller can check is refused block by block, changes nothing for that block, and is counted in
// errors() with the id. No member throws but as said, or std::bad_alloc if it is not noexcept; those that are noexcept
// never allocate.
class BlockPool final : public BlockAllocator {
 public:
  // Throws std::invalid_argument: no blocks, or more than 2^32 - 1; more bytes than can be addressed; std::bad_alloc,
  // and what the device throws.
  explicit BlockPool(BlockPoolOptions options);
  ~BlockPool() override;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  [[nodiscard]] bool allocate(std::size_t count, std::vector<BlockId>& out) override;
  void add_references(std::span<const BlockId> blocks) noexcept override;
  void drop_references(std::span<const BlockId> blocks) noexcept override;
  [[nodiscard]] std::size_t free_blocks() const noexcept override;
  [[nodiscard]] std::size_t total_blocks() const noexcept override;

  [[nodiscard]] std::size_t used_blocks() const noexcept;
  // 0: free, or no such block.
  [[nodiscard]] std::uint32_t references(BlockId block) const noexcept;
  [[nodiscard]] PoolErrors errors() const;
  // Checks every invariant. Empty if all hold, else what is wrong. O(blocks).
  [[nodiscard]] std::string validate() const;

  // ---- Bytes ----
  // data and device throw std::invalid_argument if block_bytes is 0.

  // Where the block's bytes lie, for the device that was given: at block * block_bytes in one piece of its memory.
  // Throws std::invalid_argument: no such block.
  [[nodiscard]] std::byte* data(BlockId block) const;
  [[nodiscard]] std::size_t block_bytes() const noexcept override;
  void copy_out(BlockId block, std::span<std::byte> to, CopyDone done) override;
  void copy_in(BlockId block, std::span<const std::byte> from, CopyDone done) override;
  [[nodiscard]] Device& device() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The same for the blocks of the engine's swap file, which DiskBlockId names; the bytes are in the engine's file.
// kNoDiskBlock is never handed out, and is let pass wherever ids are given, since block tables hold it where a block
// has no copy.
class SwapBlockPool {
 public:
  // Ids 0 .. blocks - 1. Throws std::invalid_argument: no blocks, or more than 2^32 - 1; std::bad_alloc.
  explicit SwapBlockPool(std::size_t blocks);
  ~SwapBlockPool();
  SwapBlockPool(const SwapBlockPool&) = delete;
  SwapBlockPool& operator=(const SwapBlockPool&) = delete;

  [[nodiscard]] bool allocate(std::size_t count, std::vector<DiskBlockId>& out);
  void add_references(std::span<const DiskBlockId> blocks) noexcept;
  void drop_references(std::span<const DiskBlockId> blocks) noexcept;
  [[nodiscard]] std::size_t free_blocks() const noexcept;
  [[nodiscard]] std::size_t used_blocks() const noexcept;
  [[nodiscard]] std::size_t total_blocks() const noexcept;
  [[nodiscard]] std::uint32_t references(DiskBlockId block) const noexcept;
  [[nodiscard]] PoolErrors errors() const;
  [[nodiscard]] std::string validate() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

#endif  // CAIRN_BLOCK_POOL_H_
