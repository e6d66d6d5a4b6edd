// The contract's face: checks the arguments that need no look at the cache and lets Index do the step.
#include "cairn/radix_tree.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/hash_seed.h"
#include "base/refuse.h"
#include "index/index.h"

namespace cairn {
namespace {

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

std::uint64_t next_tree_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;  // only has to be unique
}

}  // namespace

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

  // None if nothing was pinned.
  [[nodiscard]] SnapshotPin make_pin(SnapshotTable::Index pinned, std::optional<SnapshotId> slot) const {
    SnapshotPin pin;
    if (pinned == SnapshotTable::kNone) return pin;
    pin.tree_ = id;
    pin.slot_ = *slot;
    pin.index_ = pinned;
    return pin;
  }

  const std::size_t block_size;
  const std::uint64_t id = next_tree_id();
  Index index;
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

SnapshotPin& SnapshotPin::operator=(SnapshotPin&& other) noexcept {
  tree_ = std::exchange(other.tree_, 0);
  slot_ = other.slot_;
  index_ = other.index_;
  return *this;
}

RadixTree::RadixTree(const RadixTreeOptions& options) {
  if (options.block_size == 0) refuse("block_size", "0 given; a block has at least one token");
  if (options.first_tier_key == 0) refuse("first_tier_key", "0 given; 0 stands for no key");
  impl_ = std::make_unique<Impl>(options);
}

RadixTree::~RadixTree() = default;

// ---- Blocks ----

PrefixMatch RadixTree::lookup(std::span<const TokenId> tokens, std::size_t block_size, SessionHash session_hash,
                              AdapterId adapter_id) {
  impl_->check_block_size(block_size);
  return impl_->index.lookup(tokens, {.session_hash = session_hash, .adapter_id = adapter_id}, Claim::kUse).match;
}

std::size_t RadixTree::peek_matched_tokens(std::span<const TokenId> tokens, std::size_t block_size,
                                           AdapterId adapter_id) const {
  impl_->check_block_size(block_size);
  return impl_->index.peek(tokens, adapter_id);
}

InsertAcquired RadixTree::insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                 std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                 std::size_t matched_tokens, AdapterId adapter_id) {
  const Index::Insert what{tokens, block_table, disk_block_ids, matched_tokens, adapter_id};
  impl_->check_insert(what, block_size);
  return impl_->index.insert(what, std::nullopt);
}

RadixTree::EpochInsert RadixTree::insert(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                         std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                         std::size_t matched_tokens, AdapterId adapter_id, std::uint64_t epoch) {
  const Index::Insert what{tokens, block_table, disk_block_ids, matched_tokens, adapter_id};
  impl_->check_insert(what, block_size);
  return impl_->index.insert(what, epoch);
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
  impl_->index.release(tokens, matched_tokens, adapter_id, std::nullopt);
}

void RadixTree::release_matched(std::span<const TokenId> tokens, std::size_t block_size, std::size_t matched_tokens,
                                AdapterId adapter_id, std::uint64_t epoch) {
  impl_->check_block_size(block_size);
  check_matched_tokens(matched_tokens, tokens.size());
  impl_->index.release(tokens, matched_tokens, adapter_id, epoch);
}

EvictedBlocks RadixTree::evict(std::size_t num_blocks) {
  return impl_->index.evict(num_blocks);
}

// ---- Snapshots ----

SnapshotInsert RadixTree::insert_with_snapshot(std::span<const TokenId> tokens, std::span<const BlockId> block_table,
                                               std::span<const DiskBlockId> disk_block_ids, std::size_t block_size,
                                               SnapshotId snapshot_id, SessionHash session_hash,
                                               std::size_t matched_tokens, AdapterId adapter_id) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kPlain, session_hash, snapshot_id, adapter_id};
  const Index::Insert what{tokens, block_table, disk_block_ids, matched_tokens, adapter_id};
  impl_->check_insert(what, block_size);
  check_snapshot_tokens(tokens);
  return impl_->index.insert_with_snapshot(what, put, std::nullopt);
}

RadixTree::EpochSnapshotInsert RadixTree::insert_with_snapshot(std::span<const TokenId> tokens,
                                                               std::span<const BlockId> block_table,
                                                               std::span<const DiskBlockId> disk_block_ids,
                                                               std::size_t block_size, SnapshotId snapshot_id,
                                                               SessionHash session_hash, std::size_t matched_tokens,
                                                               AdapterId adapter_id, std::uint64_t epoch) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kPlain, session_hash, snapshot_id, adapter_id};
  const Index::Insert what{tokens, block_table, disk_block_ids, matched_tokens, adapter_id};
  impl_->check_insert(what, block_size);
  check_snapshot_tokens(tokens);
  return impl_->index.insert_with_snapshot(what, put, epoch);
}

std::optional<SnapshotId> RadixTree::insert_intermediate_snapshot(std::span<const TokenId> tokens,
                                                                  std::span<const BlockId> block_table,
                                                                  std::span<const DiskBlockId> disk_block_ids,
                                                                  std::size_t block_size, SnapshotId snapshot_id,
                                                                  SessionHash session_hash, std::size_t matched_tokens,
                                                                  AdapterId adapter_id) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kPlain, session_hash, snapshot_id, adapter_id};
  impl_->check_insert({tokens, block_table, disk_block_ids, matched_tokens, adapter_id}, block_size);
  check_snapshot_tokens(tokens);
  return impl_->index.put(put, std::nullopt);
}

std::optional<SnapshotId> RadixTree::insert_intermediate_snapshot(std::span<const TokenId> tokens,
                                                                  std::span<const BlockId> block_table,
                                                                  std::span<const DiskBlockId> disk_block_ids,
                                                                  std::size_t block_size, SnapshotId snapshot_id,
                                                                  SessionHash session_hash, std::size_t matched_tokens,
                                                                  AdapterId adapter_id, std::uint64_t epoch) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kPlain, session_hash, snapshot_id, adapter_id};
  impl_->check_insert({tokens, block_table, disk_block_ids, matched_tokens, adapter_id}, block_size);
  check_snapshot_tokens(tokens);
  return impl_->index.put(put, epoch);
}

std::vector<SnapshotId> RadixTree::insert_tail_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                                        SessionHash session_hash, AdapterId adapter_id) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kTail, session_hash, snapshot_id, adapter_id};
  check_snapshot_tokens(tokens);
  return impl_->index.put_tail(put, std::nullopt);
}

std::vector<SnapshotId> RadixTree::insert_tail_snapshot(std::span<const TokenId> tokens, SnapshotId snapshot_id,
                                                        SessionHash session_hash, AdapterId adapter_id,
                                                        std::uint64_t epoch) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kTail, session_hash, snapshot_id, adapter_id};
  check_snapshot_tokens(tokens);
  return impl_->index.put_tail(put, epoch);
}

std::optional<SnapshotId> RadixTree::insert_tail_sibling_snapshot(std::span<const TokenId> tokens,
                                                                  SnapshotId snapshot_id, SessionHash session_hash,
                                                                  AdapterId adapter_id) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kTailSibling, session_hash, snapshot_id, adapter_id};
  check_snapshot_tokens(tokens);
  return impl_->index.put_tail_sibling(put, std::nullopt);
}

std::optional<SnapshotId> RadixTree::insert_tail_sibling_snapshot(std::span<const TokenId> tokens,
                                                                  SnapshotId snapshot_id, SessionHash session_hash,
                                                                  AdapterId adapter_id, std::uint64_t epoch) {
  const SnapshotTable::Put put{tokens, SnapshotKind::kTailSibling, session_hash, snapshot_id, adapter_id};
  check_snapshot_tokens(tokens);
  return impl_->index.put_tail_sibling(put, epoch);
}

SnapshotRef RadixTree::find_snapshot(std::span<const TokenId> tokens, std::size_t max_tokens, SessionHash session_hash,
                                     AdapterId adapter_id) {
  return impl_->index.find_snapshot(tokens, {session_hash, adapter_id, max_tokens}).ref;
}

std::optional<SnapshotId> RadixTree::evict_snapshot_lru() {
  return impl_->index.evict_snapshot();
}

std::optional<TierEvict> RadixTree::evict_snapshot_to_tier(std::size_t min_tokens) {
  return impl_->index.evict_snapshot_to_tier(min_tokens);
}

bool RadixTree::promote_snapshot(TierKey key, SnapshotId new_slot) {
  return impl_->index.promote(key, new_slot, false) != SnapshotTable::kNone;
}

bool RadixTree::forget_snapshot_tier_key(TierKey key) {
  return impl_->index.forget(key);
}

std::vector<TierKey> RadixTree::take_orphaned_tier_keys() {
  return impl_->index.take_orphaned();
}

std::size_t RadixTree::snapshot_count() const {
  return impl_->index.snapshot_count();
}

// ---- Clearing, watching ----

Cleared RadixTree::clear(AdapterId adapter_id) {
  return impl_->index.clear(adapter_id);
}

Cleared RadixTree::clear() {
  return impl_->index.clear(std::nullopt);
}

std::uint64_t RadixTree::epoch(AdapterId adapter_id) const {
  return impl_->index.epoch(adapter_id);
}

CacheStats RadixTree::stats() const {
  return impl_->index.stats();
}

RadixTreeCounters RadixTree::counters() const {
  return impl_->index.counters();
}

std::string RadixTree::validate() const {
  return impl_->index.validate();
}

// ---- Handles ----

RadixTree::Acquired RadixTree::acquire(std::span<const TokenId> tokens, SessionHash session_hash,
                                       AdapterId adapter_id) {
  AcquiredPinned acquired = acquire(tokens, {.session_hash = session_hash, .adapter_id = adapter_id});
  return {std::move(acquired.handle), std::move(acquired.match)};
}

RadixTree::AcquiredPinned RadixTree::acquire(std::span<const TokenId> tokens, const ReadOptions& options) {
  Index::Found found = impl_->index.lookup(tokens, options, Claim::kHandle);
  AcquiredPinned acquired;
  acquired.match = std::move(found.match);
  acquired.handle.tree_ = impl_->id;
  acquired.handle.adapter_id_ = options.adapter_id;
  acquired.handle.epoch_ = found.epoch;
  Impl::move_handle(acquired.handle, found.end, acquired.match.matched_tokens);
  acquired.pin = impl_->make_pin(found.pinned, acquired.match.ssm_snapshot);
  acquired.stored_blocks = std::move(found.stored_blocks);
  return acquired;
}

RadixTree::Extended RadixTree::extend(PrefixHandle& handle, std::span<const TokenId> tokens,
                                      std::span<const BlockId> block_table,
                                      std::span<const DiskBlockId> disk_block_ids) {
  impl_->check_handle(handle);
  check_disk_block_ids(disk_block_ids.size(), block_table.size());
  Position at = Impl::place_of(handle);
  const Index::Insert what{tokens, block_table, disk_block_ids, 0, handle.adapter_id_};
  Extended result = impl_->index.extend(at, what, handle.epoch_);
  if (result.epoch_passed) return result;
  const std::size_t added = std::min(tokens.size() / impl_->block_size, block_table.size()) * impl_->block_size;
  Impl::move_handle(handle, at, handle.tokens_ + added);
  return result;
}

void RadixTree::truncate(PrefixHandle& handle, std::size_t tokens) {
  impl_->check_handle(handle);
  if (tokens > handle.tokens_) {
    refuse("tokens",
           std::to_string(tokens) + " is more than the " + std::to_string(handle.tokens_) + " that the handle holds");
  }
  const std::size_t depth = tokens / impl_->block_size;
  Position at = Impl::place_of(handle);
  impl_->index.truncate(at, depth, handle.adapter_id_, handle.epoch_);
  Impl::move_handle(handle, at, depth * impl_->block_size);
}

PrefixHandle RadixTree::share(const PrefixHandle& handle) {
  impl_->check_handle(handle);
  impl_->index.share_handle(Impl::place_of(handle), handle.adapter_id_, handle.epoch_);
  PrefixHandle other;
  other.tree_ = handle.tree_;
  other.adapter_id_ = handle.adapter_id_;
  other.epoch_ = handle.epoch_;
  Impl::move_handle(other, Impl::place_of(handle), handle.tokens_);
  return other;
}

void RadixTree::release(PrefixHandle& handle) {
  if (!handle.valid()) return;
  impl_->check_handle(handle);
  impl_->index.release_handle(Impl::place_of(handle), handle.adapter_id_, handle.epoch_);
  handle = PrefixHandle{};
}

void RadixTree::prioritize(const PrefixHandle& handle, std::size_t from_token, std::size_t to_token,
                           const BlockPriority& priority) {
  impl_->check_handle(handle);
  const std::size_t end = std::min(to_token, handle.tokens_);
  if (from_token >= end) return;
  const std::size_t to_depth = end / impl_->block_size + (end % impl_->block_size == 0 ? 0 : 1);
  impl_->index.prioritize(Impl::place_of(handle), handle.adapter_id_, handle.epoch_,
                          {from_token / impl_->block_size, to_depth, priority});
}

// ---- Pinned prefixes ----

PrefixPin RadixTree::pin_prefix(std::span<const TokenId> tokens, AdapterId adapter_id) {
  const std::size_t num_blocks = tokens.size() / impl_->block_size;
  if (num_blocks == 0) {
    refuse("tokens", std::to_string(tokens.size()) + " given; a block, which is the least that can be pinned, has " +
                         std::to_string(impl_->block_size));
  }
  return impl_->index.pin_prefix(tokens.first(num_blocks * impl_->block_size), adapter_id);
}

bool RadixTree::unpin_prefix(std::uint64_t id) {
  return impl_->index.unpin_prefix(id);
}

void RadixTree::unpin_prefixes() {
  impl_->index.unpin_prefixes();
}

std::size_t RadixTree::pinned_blocks() const {
  return impl_->index.pinned_blocks();
}

// ---- Pinned snapshots, and looking without an effect ----

RadixTree::PinnedSnapshot RadixTree::find_snapshot(std::span<const TokenId> tokens, const ReadOptions& options) {
  const Index::FoundSnapshot found = impl_->index.find_snapshot(tokens, options);
  return {found.ref, impl_->make_pin(found.pinned, found.ref.slot)};
}

std::optional<SnapshotId> RadixTree::unpin_snapshot(SnapshotPin& pin) {
  if (!pin.valid()) return std::nullopt;
  if (pin.tree_ != impl_->id) refuse("pin", "it was made by another tree");
  const auto slot = impl_->index.unpin(pin.index_);
  pin = SnapshotPin{};
  return slot;
}

RadixTree::Peek RadixTree::peek(std::span<const TokenId> tokens, const ReadOptions& options) const {
  return impl_->index.peek(tokens, options);
}

SnapshotRef RadixTree::peek_snapshot(std::span<const TokenId> tokens, const ReadOptions& options) const {
  return impl_->index.peek_snapshot(tokens, options);
}

// ---- Blocks in a store ----

BlockSpills RadixTree::evict_blocks_to_tier(std::size_t num_blocks, std::size_t min_tokens) {
  return impl_->index.evict_to_store(num_blocks, min_tokens);
}

BlockSpills RadixTree::save_blocks(const PrefixHandle& handle, std::size_t num_blocks, std::size_t min_tokens,
                                   std::size_t from_tokens) {
  impl_->check_handle(handle);
  return impl_->index.save_chain(Impl::place_of(handle), handle.adapter_id_, handle.epoch_,
                                 {.num_blocks = num_blocks, .min_tokens = min_tokens, .from_tokens = from_tokens});
}

BlockSpills RadixTree::save_blocks(std::size_t num_blocks, std::size_t min_tokens) {
  return impl_->index.save_all(num_blocks, min_tokens);
}

bool RadixTree::forget_tier_key(TierKey key) {
  return impl_->index.forget_record(key);
}

std::optional<RadixTree::SpilledSnapshot> RadixTree::spilled_snapshot(TierKey key, bool from_start) {
  return impl_->index.spilled_snapshot(key, from_start);
}

SnapshotPin RadixTree::promote_and_pin(TierKey key, SnapshotId new_slot) {
  return impl_->make_pin(impl_->index.promote(key, new_slot, true), new_slot);
}

bool RadixTree::register_stored_block(const StoredBlock& block) {
  if (block.tokens.size() != impl_->block_size) {
    refuse("tokens", "a block of this cache has " + std::to_string(impl_->block_size) + ", not " +
                         std::to_string(block.tokens.size()));
  }
  return impl_->index.register_block(block);
}

bool RadixTree::register_spilled_snapshot(const StoredSnapshot& snapshot) {
  if (snapshot.parent != 0 && snapshot.tokens.size() >= impl_->block_size) {
    refuse("tokens", std::to_string(snapshot.tokens.size()) +
                         " given; those after the last full block are fewer than " +
                         std::to_string(impl_->block_size));
  }
  if (snapshot.parent == 0) check_snapshot_tokens(snapshot.tokens);
  return impl_->index.register_snapshot(snapshot);
}

std::size_t RadixTree::recorded_blocks() const {
  return impl_->index.recorded_blocks();
}

// ---- Explaining ----

std::vector<TokenId> RadixTree::tokens_of(const PrefixHandle& handle) const {
  impl_->check_handle(handle);
  return impl_->index.tokens_of(Impl::place_of(handle), handle.adapter_id_, handle.epoch_);
}

RadixTree::Neighbours RadixTree::neighbours(const PrefixHandle& handle, std::size_t after_tokens,
                                            std::span<const TokenId> rest, std::size_t tokens_max) const {
  impl_->check_handle(handle);
  if (after_tokens > handle.tokens_) {
    refuse("after_tokens", std::to_string(after_tokens) + " is more than the " + std::to_string(handle.tokens_) +
                               " that the handle holds");
  }
  if (rest.size() < impl_->block_size) refuse("rest", "less than a block");
  return impl_->index.neighbours(
      Impl::place_of(handle), after_tokens / impl_->block_size,
      {.adapter_id = handle.adapter_id_, .epoch = handle.epoch_, .rest = rest, .tokens_max = tokens_max});
}

}  // namespace cairn
