// What the unit tests of RadixTree share: short ways to write token sequences, and a caller that keeps honest books.
#ifndef CAIRN_UNIT_RADIX_TREE_FIXTURE_H_
#define CAIRN_UNIT_RADIX_TREE_FIXTURE_H_

#include <cairn/radix_tree.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

using Tokens = std::vector<TokenId>;
using Blocks = std::vector<BlockId>;
using DiskBlocks = std::vector<DiskBlockId>;

// One token for each character; spaces are there for the reader and mean nothing.
inline Tokens tokens(std::string_view text) {
  Tokens result;
  for (const char c : text) {
    if (c != ' ') result.push_back(static_cast<TokenId>(static_cast<unsigned char>(c)));
  }
  return result;
}

inline Tokens token_range(TokenId first, std::size_t count) {
  Tokens result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}

inline Blocks block_range(BlockId first, std::size_t count) {
  return token_range(first, count);
}

// Whose request it is.
struct Who {
  SessionHash session = 0;
  AdapterId adapter = 0;
};

struct InsertOptions {
  std::size_t matched_tokens = 0;
  SessionHash session = 0;
  AdapterId adapter = 0;
  DiskBlocks disk = {};
};

// A RadixTree together with what a careful caller writes down: the references it took for the tree, the slots it
// handed in and the tier keys it was given. What the tree gives back without having had it fails the test at once;
// check_books(), at the end of each test, finds what it never gave back.
class TrackedTree {
 public:
  explicit TrackedTree(const RadixTreeOptions& options) : block_size_(options.block_size), tree_(options) {}

  RadixTree& index() { return tree_; }
  [[nodiscard]] CacheStats stats() const { return tree_.stats(); }
  [[nodiscard]] std::size_t snapshot_count() const { return tree_.snapshot_count(); }
  [[nodiscard]] RadixTreeCounters counters() const { return tree_.counters(); }
  [[nodiscard]] std::uint64_t epoch(AdapterId adapter) const { return tree_.epoch(adapter); }

  // ---- Blocks ----

  PrefixMatch lookup(const Tokens& sequence, Who who = {}) {
    return tree_.lookup(sequence, block_size_, who.session, who.adapter);
  }
  [[nodiscard]] std::size_t peek(const Tokens& sequence, AdapterId adapter = 0) const {
    return tree_.peek_matched_tokens(sequence, block_size_, adapter);
  }
  InsertAcquired insert(const Tokens& sequence, const Blocks& table, const InsertOptions& o = {}) {
    InsertAcquired acquired = tree_.insert(sequence, table, o.disk, block_size_, o.matched_tokens, o.adapter);
    note_acquired(acquired);
    return acquired;
  }
  void release(const Tokens& sequence, AdapterId adapter = 0) { tree_.release(sequence, block_size_, adapter); }
  void release_matched(const Tokens& sequence, std::size_t matched_tokens, AdapterId adapter = 0) {
    tree_.release_matched(sequence, block_size_, matched_tokens, adapter);
  }
  // An insert and its release: the nodes stay, and nobody uses them.
  InsertAcquired cache(const Tokens& sequence, const Blocks& table, const InsertOptions& o = {}) {
    InsertAcquired acquired = insert(sequence, table, o);
    release(sequence, o.adapter);
    return acquired;
  }
  // A lookup and its release: it leaves nothing but the stamps.
  PrefixMatch touch(const Tokens& sequence, Who who = {}) {
    PrefixMatch match = lookup(sequence, who);
    release_matched(sequence, match.matched_tokens, who.adapter);
    return match;
  }
  EvictedBlocks evict(std::size_t num_blocks) {
    EvictedBlocks evicted = tree_.evict(num_blocks);
    note_dropped(evicted);
    return evicted;
  }

  // ---- Snapshots ----

  SnapshotInsert insert_with_snapshot(const Tokens& sequence, const Blocks& table, SnapshotId slot,
                                      const InsertOptions& o = {}) {
    SnapshotInsert result =
        tree_.insert_with_snapshot(sequence, table, o.disk, block_size_, slot, o.session, o.matched_tokens, o.adapter);
    note_acquired(result.acquired);
    note_put(slot, result.displaced);
    return result;
  }
  std::optional<SnapshotId> put_plain(const Tokens& sequence, SnapshotId slot, Who who = {}) {
    const auto displaced =
        tree_.insert_intermediate_snapshot(sequence, {}, {}, block_size_, slot, who.session, 0, who.adapter);
    note_put(slot, displaced);
    return displaced;
  }
  std::vector<SnapshotId> put_tail(const Tokens& sequence, SnapshotId slot, Who who) {
    std::vector<SnapshotId> freed = tree_.insert_tail_snapshot(sequence, slot, who.session, who.adapter);
    note_put(slot, {});
    for (const SnapshotId freed_slot : freed) note_freed(freed_slot);
    return freed;
  }
  std::optional<SnapshotId> put_sibling(const Tokens& sequence, SnapshotId slot, Who who) {
    const auto displaced = tree_.insert_tail_sibling_snapshot(sequence, slot, who.session, who.adapter);
    note_put(slot, displaced);
    return displaced;
  }
  SnapshotRef find(const Tokens& sequence, std::size_t max_tokens, Who who = {}) {
    return tree_.find_snapshot(sequence, max_tokens, who.session, who.adapter);
  }
  std::optional<SnapshotId> evict_snapshot() {
    const auto slot = tree_.evict_snapshot_lru();
    if (slot) note_freed(*slot);
    return slot;
  }

  // ---- Tiers ----

  std::optional<TierEvict> spill(std::size_t min_tokens = 0) {
    const auto evicted = tree_.evict_snapshot_to_tier(min_tokens);
    if (!evicted) return evicted;
    note_freed(evicted->slot);
    if (evicted->action == TierEvict::Action::kSpill) {
      EXPECT_TRUE(keys_ever_.insert(evicted->key).second) << "key " << evicted->key << " was handed out before";
      live_keys_.insert(evicted->key);
    }
    return evicted;
  }
  bool promote(TierKey key, SnapshotId new_slot) {
    const bool promoted = tree_.promote_snapshot(key, new_slot);
    if (promoted) {
      EXPECT_EQ(live_keys_.erase(key), 1u);
      note_put(new_slot, {});
    }
    return promoted;
  }
  bool forget(TierKey key) {
    const bool forgotten = tree_.forget_snapshot_tier_key(key);
    if (forgotten) {
      EXPECT_EQ(live_keys_.erase(key), 1u);
    }
    return forgotten;
  }
  std::vector<TierKey> take_orphans() {
    std::vector<TierKey> keys = tree_.take_orphaned_tier_keys();
    for (const TierKey key : keys) EXPECT_EQ(live_keys_.erase(key), 1u) << "key " << key << " was not alive";
    return keys;
  }

  // ---- Blocks in a store ----

  BlockSpills evict_to_tier(std::size_t num_blocks, std::size_t min_tokens = 0) {
    BlockSpills spills = tree_.evict_blocks_to_tier(num_blocks, min_tokens);
    for (const BlockSpill& spill : spills.blocks) drop(block_references_, spill.block);
    for (const DiskBlockId disk : spills.disk_block_ids) drop(disk_references_, disk);
    note_records(spills);
    return spills;
  }
  BlockSpills save(const PrefixHandle& handle, std::size_t num_blocks = 1000, std::size_t min_tokens = 0) {
    BlockSpills spills = tree_.save_blocks(handle, num_blocks, min_tokens);
    note_records(spills);
    return spills;
  }
  BlockSpills save_all(std::size_t num_blocks = 1000, std::size_t min_tokens = 0) {
    BlockSpills spills = tree_.save_blocks(num_blocks, min_tokens);
    note_records(spills);
    return spills;
  }
  bool forget_record(TierKey key) {
    const bool forgotten = tree_.forget_tier_key(key);
    if (forgotten) {
      EXPECT_EQ(live_keys_.erase(key) + recorded_.erase(key), 1u);
    }
    return forgotten;
  }
  bool register_block(TierKey key, TierKey parent, const Tokens& own, AdapterId adapter = 0) {
    const bool registered = tree_.register_stored_block({key, parent, adapter, own});
    if (registered) recorded_.insert(key);
    return registered;
  }
  bool register_snapshot(const StoredSnapshot& snapshot) {
    const bool registered = tree_.register_spilled_snapshot(snapshot);
    if (registered) live_keys_.insert(snapshot.key);
    return registered;
  }
  SnapshotPin promote_and_pin(TierKey key, SnapshotId new_slot) {
    SnapshotPin pin = tree_.promote_and_pin(key, new_slot);
    if (pin.valid()) {
      EXPECT_EQ(live_keys_.erase(key), 1u);
      note_put(new_slot, {});
    }
    return pin;
  }
  // Those that follow what is cached.
  std::vector<TierKey> stored(const Tokens& sequence, AdapterId adapter = 0) {
    const ReadOptions options{.adapter_id = adapter, .stored_blocks = true};
    const std::size_t peeked = tree_.peek(sequence, options).stored_tokens;
    auto acquired = tree_.acquire(sequence, options);
    EXPECT_EQ(peeked, acquired.stored_blocks.size() * block_size_);
    tree_.release(acquired.handle);
    return acquired.stored_blocks;
  }

  // ---- Clearing ----

  Cleared clear(AdapterId adapter) { return note_cleared(tree_.clear(adapter)); }
  Cleared clear_all() { return note_cleared(tree_.clear()); }

  // ---- Handles ----

  RadixTree::Acquired acquire(const Tokens& sequence, Who who = {}) {
    return tree_.acquire(sequence, who.session, who.adapter);
  }
  RadixTree::EpochInsert extend(PrefixHandle& handle, const Tokens& following, const Blocks& table,
                                const DiskBlocks& disk = {}) {
    RadixTree::EpochInsert inserted = tree_.extend(handle, following, table, disk);
    note_acquired(inserted);
    return inserted;
  }
  void truncate(PrefixHandle& handle, std::size_t kept_tokens) { tree_.truncate(handle, kept_tokens); }
  void release(PrefixHandle& handle) { tree_.release(handle); }

  // ---- Pins ----

  RadixTree::AcquiredPinned acquire_with(const Tokens& sequence, const ReadOptions& options) {
    return tree_.acquire(sequence, options);
  }
  RadixTree::PinnedSnapshot find_with(const Tokens& sequence, const ReadOptions& options) {
    return tree_.find_snapshot(sequence, options);
  }
  std::optional<SnapshotId> unpin(SnapshotPin& pin) {
    const auto slot = tree_.unpin_snapshot(pin);
    if (slot) note_freed(*slot);
    return slot;
  }

  // ---- The books; public for tests that call index() themselves ----

  void note_acquired(const InsertAcquired& acquired) {
    for (const BlockId block : acquired.blocks) ++block_references_[block];
    for (const DiskBlockId disk : acquired.disk_block_ids) ++disk_references_[disk];
  }
  void note_put(SnapshotId slot, std::optional<SnapshotId> freed) {
    EXPECT_TRUE(resident_.insert(slot).second) << "slot " << slot << " was resident before it was put";
    if (freed) note_freed(*freed);
  }

  // Gives everything back and compares it with the books: each reference, slot and key comes back exactly once, and
  // what remains is an empty tree.
  void check_books() {
    EXPECT_EQ(tree_.validate(), "");
    EXPECT_EQ(tree_.stats().cached_blocks, total(block_references_));
    take_orphans();
    EXPECT_EQ(tree_.snapshot_count(), resident_.size() + live_keys_.size());
    while (evict_snapshot()) continue;
    EXPECT_TRUE(resident_.empty()) << resident_.size() << " slots were never given back";
    EXPECT_EQ(tree_.snapshot_count(), live_keys_.size());
    EXPECT_EQ(tree_.recorded_blocks(), recorded_.size());
    EXPECT_EQ(tree_.validate(), "");
    clear_all();
    EXPECT_TRUE(recorded_.empty());
    EXPECT_EQ(tree_.recorded_blocks(), 0u);
    EXPECT_TRUE(block_references_.empty());
    EXPECT_TRUE(disk_references_.empty());
    EXPECT_TRUE(live_keys_.empty());
    EXPECT_EQ(tree_.stats().cached_blocks, 0u);
    EXPECT_EQ(tree_.stats().entries, 0u);
    EXPECT_EQ(tree_.snapshot_count(), 0u);
    EXPECT_EQ(tree_.validate(), "");
  }

 private:
  using References = std::map<std::uint32_t, std::size_t>;

  static std::size_t total(const References& references) {
    std::size_t sum = 0;
    for (const auto& [id, count] : references) sum += count;
    return sum;
  }
  static void drop(References& references, std::uint32_t id) {
    const auto found = references.find(id);
    if (found == references.end()) {
      ADD_FAILURE() << "id " << id << " was given back, and no reference on it was held";
    } else if (--found->second == 0) {
      references.erase(found);
    }
  }
  void note_dropped(const EvictedBlocks& evicted) {
    for (const BlockId block : evicted.physical) drop(block_references_, block);
    for (const DiskBlockId disk : evicted.disk_block_ids) drop(disk_references_, disk);
  }
  void note_records(const BlockSpills& spills) {
    EXPECT_EQ(spills.tokens.size(), spills.blocks.size() * block_size_);
    for (const BlockSpill& spill : spills.blocks) {
      if (spill.action == BlockSpill::Action::kDrop) continue;
      const bool is_new = recorded_.insert(spill.key).second;
      EXPECT_EQ(is_new, spill.action == BlockSpill::Action::kSpill) << "key " << spill.key;
    }
  }
  void note_freed(SnapshotId slot) {
    EXPECT_EQ(resident_.erase(slot), 1u) << "slot " << slot << " was given back, and was not resident";
  }
  Cleared note_cleared(Cleared cleared) {
    note_dropped(cleared.blocks);
    for (const SnapshotId slot : cleared.slots) note_freed(slot);
    for (const TierKey key : cleared.tier_keys) {
      EXPECT_EQ(live_keys_.erase(key) + recorded_.erase(key), 1u) << "key " << key;
    }
    return cleared;
  }

  std::size_t block_size_;
  RadixTree tree_;
  References block_references_;
  References disk_references_;
  std::set<SnapshotId> resident_;
  std::set<TierKey> live_keys_;
  std::set<TierKey> keys_ever_;  // of snapshots
  std::set<TierKey> recorded_;   // of blocks
};

// Blocks of four tokens: tokens("aaaa bbbb") are two of them.
class RadixTreeTest : public ::testing::Test {
 protected:
  explicit RadixTreeTest(const RadixTreeOptions& options = {.block_size = 4}) : tree_(options) {}

  void TearDown() override { tree_.check_books(); }

  TrackedTree tree_;
};

// ---- What a test can compare ----

inline auto counter_values(const RadixTreeCounters& counters) {
  static_assert(sizeof(RadixTreeCounters) % sizeof(std::uint64_t) == 0);
  return std::bit_cast<std::array<std::uint64_t, sizeof(RadixTreeCounters) / sizeof(std::uint64_t)>>(counters);
}

// The answers that name a snapshot, in one shape: where it is, its depth, and whether it is a tail.
inline SnapshotRef snapshot_of(const PrefixMatch& match) {
  SnapshotRef ref;
  ref.slot = match.ssm_snapshot;
  ref.tier_key = match.ssm_snapshot_tier_key;
  ref.tokens = match.ssm_snapshot ? match.ssm_snapshot_tokens : match.ssm_snapshot_tier_tokens;
  ref.is_tail = match.ssm_snapshot_is_tail;
  return ref;
}

inline void PrintTo(const SnapshotRef& ref, std::ostream* out) {
  *out << (ref.is_tail ? "tail" : "snapshot") << " at " << ref.tokens << " tokens";
  if (ref.slot) *out << ", slot " << *ref.slot;
  if (ref.tier_key) *out << ", key " << *ref.tier_key;
}

MATCHER(IsNoSnapshot, "") {
  return !arg.slot && !arg.tier_key && arg.tokens == 0 && !arg.is_tail;
}
MATCHER_P2(IsResident, slot, tokens_covered, "") {
  return arg.slot == std::optional<SnapshotId>(static_cast<SnapshotId>(slot)) && !arg.tier_key &&
         arg.tokens == static_cast<std::size_t>(tokens_covered) && !arg.is_tail;
}
MATCHER_P2(IsResidentTail, slot, tokens_covered, "") {
  return arg.slot == std::optional<SnapshotId>(static_cast<SnapshotId>(slot)) && !arg.tier_key &&
         arg.tokens == static_cast<std::size_t>(tokens_covered) && arg.is_tail;
}
MATCHER_P2(IsSpilled, key, tokens_covered, "") {
  return !arg.slot && arg.tier_key == std::optional<TierKey>(static_cast<TierKey>(key)) &&
         arg.tokens == static_cast<std::size_t>(tokens_covered) && !arg.is_tail;
}
MATCHER_P2(IsSpilledTail, key, tokens_covered, "") {
  return !arg.slot && arg.tier_key == std::optional<TierKey>(static_cast<TierKey>(key)) &&
         arg.tokens == static_cast<std::size_t>(tokens_covered) && arg.is_tail;
}

}  // namespace cairn

#endif  // CAIRN_UNIT_RADIX_TREE_FIXTURE_H_
