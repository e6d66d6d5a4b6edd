// The contract's face: checks the arguments that need no look at the cache, takes the lock, lets Index do the step.
#include "cairn/radix_tree.h"

#include <atomic>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "index/index.h"

namespace cairn {
namespace {

[[noreturn]] void refuse(const std::string& argument, const std::string& rule) {
  throw std::invalid_argument("cairn: " + argument + ": " + rule);
}

void check_matched_tokens(std::size_t matched_tokens, std::size_t num_tokens) {
  if (matched_tokens <= num_tokens) return;
  refuse("matched_tokens",
         std::to_string(matched_tokens) + " is more than the " + std::to_string(num_tokens) + " tokens given");
}

void check_disk_block_ids(std::size_t num_disk_blocks, std::size_t num_blocks) {
  if (num_disk_blocks == 0 || num_disk_blocks == num_blocks) return;
  refuse("disk_block_ids", "has " + std::to_string(num_disk_blocks) + " ids; it must be empty or as long as " +
                               "block_table, which has " + std::to_string(num_blocks));
}

void check_snapshot_tokens(std::span<const TokenId> tokens) {
  if (tokens.empty()) refuse("tokens", "a snapshot needs at least one token");
}

std::uint64_t choose_hash_seed(std::uint64_t wanted) {
  if (wanted != 0) return wanted;
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::uint64_t next_tree_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;  // only has to be unique
}

}  // namespace

// Every member takes the one lock for the whole step; nothing calls out while it is held.
class RadixTree::Impl {
 public:
  explicit Impl(const RadixTreeOptions& options)
      : block_size(options.block_size), index(options, choose_hash_seed(options.hash_seed)) {}

  void check_block_size(std::size_t given) const {
    if (given == block_size) return;
    refuse("block_size",
           std::to_string(given) + " given, but this cache has blocks of " + std::to_string(block_size) + " tokens");
  }

  void check_insert(const Index::Insert& what, std::size_t given_block_size) const {
    check_block_size(given_block_size);
    check_disk_block_ids(what.disk_block_ids.size(), what.block_table.size());
    check_matched_tokens(what.matched_tokens, what.tokens.size());
  }

  void check_handle(const PrefixHandle& handle) const {
    if (!handle.valid()) refuse("handle", "it holds no place in a tree (default-constructed, moved from or released)");
    if (handle.tree_ != id) refuse("handle", "it was acquired from another tree");
  }

  static Position place_of(const PrefixHandle& handle) {
    return handle.tokens_ == 0 ? Position{} : Position{handle.edge_, handle.boundary_};
  }

  static void move_handle(PrefixHandle& handle, Position at, std::size_t tokens) {
    handle.edge_ = at.edge;
    handle.boundary_ = at.boundary;
    handle.tokens_ = tokens;
  }

  // The step of a snapshot's put: refuses a slot in use; gives the slot back if the epoch has passed.
  template <class Result, class Step>
  Result put(const SnapshotTable::Put& what, std::optional<std::uint64_t> epoch, Result passed, Step step) {
    check_snapshot_tokens(what.tokens);
    const MutexLock lock(mutex);
    index.check_slot_is_free("snapshot_id", what.slot);
    if (epoch && *epoch != index.epoch(what.adapter_id)) return passed;
    return step(index);
  }

  const std::size_t block_size;
  const std::uint64_t id = next_tree_id();
  mutable Mutex mutex;
  Index index CAIRN_GUARDED_BY(mutex);
};

PrefixHandle& PrefixHandle::operator=(PrefixHandle&& other) noexcept {
  tree_ = std::exchange(other.tree_, 0);
  adapter_id_ = other.adapter_id_;
  epoch_ = other.epoch_;
  tokens_ = std::exchange(other.tokens_, 0);
  edge_ = other.edge_;
  boundary_ = other.boundary_;
  return *this;
}

RadixTree::RadixTree(RadixTreeOptions options) {
  if (options.block_size == 0) refuse("block_size", "0 given; a block has at least one token");
  if (options.first_tier_key == 0) refuse("first_tier_key", "0 given; 0 stands for no key");
  impl_ = std::make_unique<Impl>(options);
}

RadixTree::~RadixTree() = default;

// ---- Blocks ----

PrefixMatch RadixTree::lookup(std::span<const TokenId> tokens, std::size_t block_size, SessionHash session_hash,
                              AdapterId adapter_id) {
  impl_->check_block_size(block_size);
  const MutexLock lock(impl_->mutex);
  return impl_->index.lookup(tokens, session_hash, adapter_id, Index::Claim::kUse).match;
}

std::size_t RadixTree::peek_matched_tokens(std::span<const TokenId> tokens, std::size_t block_size,
                                           AdapterId adapter_id) const {
  impl_->check_block_size(block_size);
  const MutexLock lock(impl_->mutex);
  return impl_->index.peek(tokens, adapter_id);
}

InsertAcquired RadixTree::insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                 std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                 std::size_t matched_tokens, AdapterId adapter_id) {
  const Index::Insert what{tokens, block_table, disk_block_ids, matched_tokens, adapter_id};
  impl_->check_insert(what, block_size);
  const MutexLock lock(impl_->mutex);
  return impl_->index.insert(what);
}

RadixTree::EpochInsert RadixTree::insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                         std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                         std::size_t matched_tokens, AdapterId adapter_id, std::uint64_t epoch) {
  const Index::Insert what{tokens, block_table, disk_block_ids, matched_tokens, adapter_id};
  impl_->check_insert(what, block_size);
  const MutexLock lock(impl_->mutex);
  if (epoch != impl_->index.epoch(adapter_id)) return {{}, true};
  return {impl_->index.insert(what), false};
}

void RadixTree::release(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter_id) {
  release_matched(tokens, block_size, tokens.size(), adapter_id);
}

void RadixTree::release(std::span<const TokenId> tokens, std::size_t block_size, AdapterId adapter_id,
                        std::uint64_t epoch) {
  release_matched(tokens, block_size, tokens.size(), adapter_id, epoch);
}

void RadixTree::release_matched(std::span<const TokenId> tokens, std::size_t block_size, std::size_t matched_tokens,
                                AdapterId adapter_id) {
  impl_->check_block_size(block_size);
  check_matched_tokens(matched_tokens, tokens.size());
  const MutexLock lock(impl_->mutex);
  impl_->index.release(tokens, matched_tokens, adapter_id);
}

void RadixTree::release_matched(std::span<const TokenId> tokens, std::size_t block_size, std::size_t matched_tokens,
                                AdapterId adapter_id, std::uint64_t epoch) {
  impl_->check_block_size(block_size);
  check_matched_tokens(matched_tokens, tokens.size());
  const MutexLock lock(impl_->mutex);
  if (epoch == impl_->index.epoch(adapter_id)) impl_->index.release(tokens, matched_tokens, adapter_id);
}

EvictedBlocks RadixTree::evict(std::size_t num_blocks) {
  const MutexLock lock(impl_->mutex);
  return impl_->index.evict(num_blocks);
}

// ---- Snapshots ----

SnapshotInsert RadixTree::insert_with_snapshot(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                               std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                               SnapshotId snapshot_id, SessionHash session_hash,
                                               std::size_t matched_tokens, AdapterId adapter_id) {
  const Index::Insert what{tokens, block_table, disk_block_ids, matched_tokens, adapter_id};
  const SnapshotTable::Put put{tokens, SnapshotKind::kPlain, session_hash, snapshot_id, adapter_id};
  impl_->check_insert(what, block_size);
  return impl_->put(put, std::nullopt, SnapshotInsert{},
                    [&](Index& index) { return index.insert_with_snapshot(what, put); });
}

RadixTree::EpochSnapshotInsert RadixTree::insert_with_snapshot(std::span<const TokenId> tokens,
                                                               std::span<const BlockId> block_table,
                                                               std::span<const DiskBlockId> disk_block_ids,
                                                               std::size_t block_size, SnapshotId snapshot_id,
                                                               SessionHash session_hash, std::size_t matched_tokens,
                                                               AdapterId adapter_id, std::uint64_t epoch) {
  const Index::Insert what{tokens, block_table, disk_block_ids, matched_tokens, adapter_id};
  const SnapshotTable::Put put{tokens, SnapshotKind::kPlain, session_hash, snapshot_id, adapter_id};
  impl_->check_insert(what, block_size);
  return impl_->put(put, epoch, EpochSnapshotInsert{{snapshot_id, {}}, true},
                    [&](Index& index) { return EpochSnapshotInsert{index.insert_with_snapshot(what, put), false}; });
}

std::optional<SnapshotId> RadixTree::insert_intermediate_snapshot(std::span<const TokenId> tokens,
                                                                  std::span<const BlockId> block_table,
                                                                  std::span<const DiskBlockId> disk_block_ids,
                                                                  std::size_t block_size, SnapshotId snapshot_id,
                                                                  SessionHash session_hash, std::size_t matched_tokens,
                                                                  AdapterId adapter_id) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kPlain, session_hash, snapshot_id, adapter_id};
  impl_->check_insert({tokens, block_table, disk_block_ids, matched_tokens, adapter_id}, block_size);
  return impl_->put(put, std::nullopt, std::optional(snapshot_id), [&](Index& index) { return index.put(put); });
}

std::optional<SnapshotId> RadixTree::insert_intermediate_snapshot(std::span<const TokenId> tokens,
                                                                  std::span<const BlockId> block_table,
                                                                  std::span<const DiskBlockId> disk_block_ids,
                                                                  std::size_t block_size, SnapshotId snapshot_id,
                                                                  SessionHash session_hash, std::size_t matched_tokens,
                                                                  AdapterId adapter_id, std::uint64_t epoch) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kPlain, session_hash, snapshot_id, adapter_id};
  impl_->check_insert({tokens, block_table, disk_block_ids, matched_tokens, adapter_id}, block_size);
  return impl_->put(put, epoch, std::optional(snapshot_id), [&](Index& index) { return index.put(put); });
}

std::vector<SnapshotId> RadixTree::insert_tail_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                                        SessionHash session_hash, AdapterId adapter_id) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kTail, session_hash, snapshot_id, adapter_id};
  return impl_->put(put, std::nullopt, std::vector{snapshot_id}, [&](Index& index) { return index.put_tail(put); });
}

std::vector<SnapshotId> RadixTree::insert_tail_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                                        SessionHash session_hash, AdapterId adapter_id,
                                                        std::uint64_t epoch) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kTail, session_hash, snapshot_id, adapter_id};
  return impl_->put(put, epoch, std::vector{snapshot_id}, [&](Index& index) { return index.put_tail(put); });
}

std::optional<SnapshotId> RadixTree::insert_tail_sibling_snapshot(std::span<const TokenId> tokens,
                                                                  SnapshotId snapshot_id, SessionHash session_hash,
                                                                  AdapterId adapter_id) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kTailSibling, session_hash, snapshot_id, adapter_id};
  return impl_->put(put, std::nullopt, std::optional(snapshot_id),
                    [&](Index& index) { return index.put_tail_sibling(put); });
}

std::optional<SnapshotId> RadixTree::insert_tail_sibling_snapshot(std::span<const TokenId> tokens,
                                                                  SnapshotId snapshot_id, SessionHash session_hash,
                                                                  AdapterId adapter_id, std::uint64_t epoch) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kTailSibling, session_hash, snapshot_id, adapter_id};
  return impl_->put(put, epoch, std::optional(snapshot_id), [&](Index& index) { return index.put_tail_sibling(put); });
}

SnapshotRef RadixTree::find_snapshot(std::span<const TokenId> tokens, std::size_t max_tokens, SessionHash session_hash,
                                     AdapterId adapter_id) {
  const MutexLock lock(impl_->mutex);
  return impl_->index.find_snapshot(tokens, max_tokens, session_hash, adapter_id);
}

std::optional<SnapshotId> RadixTree::evict_snapshot_lru() {
  const MutexLock lock(impl_->mutex);
  return impl_->index.evict_snapshot();
}

std::optional<TierEvict> RadixTree::evict_snapshot_to_tier(std::size_t min_tokens) {
  const MutexLock lock(impl_->mutex);
  return impl_->index.evict_snapshot_to_tier(min_tokens);
}

bool RadixTree::promote_snapshot(TierKey key, SnapshotId new_slot) {
  const MutexLock lock(impl_->mutex);
  return impl_->index.promote(key, new_slot);
}

bool RadixTree::forget_snapshot_tier_key(TierKey key) {
  const MutexLock lock(impl_->mutex);
  return impl_->index.forget(key);
}

std::vector<TierKey> RadixTree::take_orphaned_tier_keys() {
  const MutexLock lock(impl_->mutex);
  return impl_->index.take_orphaned();
}

std::size_t RadixTree::snapshot_count() const {
  const MutexLock lock(impl_->mutex);
  return impl_->index.snapshot_count();
}

// ---- Clearing, watching ----

Cleared RadixTree::clear(AdapterId adapter_id) {
  const MutexLock lock(impl_->mutex);
  return impl_->index.clear(adapter_id);
}

Cleared RadixTree::clear() {
  const MutexLock lock(impl_->mutex);
  return impl_->index.clear(std::nullopt);
}

std::uint64_t RadixTree::epoch(AdapterId adapter_id) const {
  const MutexLock lock(impl_->mutex);
  return impl_->index.epoch(adapter_id);
}

CacheStats RadixTree::stats() const {
  const MutexLock lock(impl_->mutex);
  return impl_->index.stats();
}

RadixTreeCounters RadixTree::counters() const {
  const MutexLock lock(impl_->mutex);
  return impl_->index.counters();
}

std::string RadixTree::validate() const {
  const MutexLock lock(impl_->mutex);
  return impl_->index.validate();
}

// ---- Handles ----

RadixTree::Acquired RadixTree::acquire(std::span<const TokenId> tokens, SessionHash session_hash,
                                       AdapterId adapter_id) {
  Acquired acquired;
  const MutexLock lock(impl_->mutex);
  Index::Found found = impl_->index.lookup(tokens, session_hash, adapter_id, Index::Claim::kHandle);
  acquired.match = std::move(found.match);
  acquired.handle.tree_ = impl_->id;
  acquired.handle.adapter_id_ = adapter_id;
  acquired.handle.epoch_ = impl_->index.epoch(adapter_id);
  Impl::move_handle(acquired.handle, found.end, acquired.match.matched_tokens);
  return acquired;
}

RadixTree::EpochInsert RadixTree::extend(PrefixHandle& handle, std::span<const TokenId> tokens,
                                         std::span<const BlockId> block_table,
                                         std::span<const DiskBlockId> disk_block_ids) {
  impl_->check_handle(handle);
  check_disk_block_ids(disk_block_ids.size(), block_table.size());
  const MutexLock lock(impl_->mutex);
  if (handle.epoch_ != impl_->index.epoch(handle.adapter_id_)) return {{}, true};
  Position at = Impl::place_of(handle);
  const std::size_t added = std::min(tokens.size() / impl_->block_size, block_table.size()) * impl_->block_size;
  EpochInsert result{impl_->index.extend(at, {tokens, block_table, disk_block_ids, 0, handle.adapter_id_}), false};
  Impl::move_handle(handle, at, handle.tokens_ + added);
  return result;
}

void RadixTree::truncate(PrefixHandle& handle, std::size_t tokens) {
  impl_->check_handle(handle);
  if (tokens > handle.tokens_) {
    refuse("tokens",
           std::to_string(tokens) + " is more than the " + std::to_string(handle.tokens_) + " that the handle holds");
  }
  const MutexLock lock(impl_->mutex);
  if (handle.epoch_ != impl_->index.epoch(handle.adapter_id_)) return;
  Position at = Impl::place_of(handle);
  const std::size_t depth = tokens / impl_->block_size;
  impl_->index.truncate(at, depth);
  Impl::move_handle(handle, at, depth * impl_->block_size);
}

void RadixTree::release(PrefixHandle& handle) {
  if (!handle.valid()) return;
  impl_->check_handle(handle);
  const MutexLock lock(impl_->mutex);
  if (handle.epoch_ == impl_->index.epoch(handle.adapter_id_)) {
    impl_->index.release_handle(Impl::place_of(handle));
  }
  handle = PrefixHandle{};
}

}  // namespace cairn
