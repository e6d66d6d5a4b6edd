// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/radix_tree.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace cairn {
namespace {

static_assert(std::is_final_v<RadixTree>);
static_assert(std::is_convertible_v<RadixTree*, PrefixCache*>);
static_assert(std::is_default_constructible_v<RadixTree>);
static_assert(std::is_constructible_v<RadixTree, RadixTreeOptions>);
static_assert(!std::is_copy_constructible_v<RadixTree> && !std::is_copy_assignable_v<RadixTree>);

static_assert(std::is_aggregate_v<RadixTreeOptions>);
static_assert(std::is_same_v<decltype(RadixTreeOptions::block_size), std::size_t>);
static_assert(std::is_same_v<decltype(RadixTreeOptions::share_snapshots_across_sessions), bool>);
static_assert(std::is_same_v<decltype(RadixTreeOptions::first_tier_key), TierKey>);

static_assert(std::is_nothrow_move_constructible_v<PrefixHandle> && std::is_nothrow_move_assignable_v<PrefixHandle>);
static_assert(!std::is_copy_constructible_v<PrefixHandle> && !std::is_copy_assignable_v<PrefixHandle>);

static_assert(std::is_nothrow_move_constructible_v<SnapshotPin> && std::is_nothrow_move_assignable_v<SnapshotPin>);
static_assert(!std::is_copy_constructible_v<SnapshotPin> && !std::is_copy_assignable_v<SnapshotPin>);
static_assert(sizeof(SnapshotPin) <= 24);

// The overloads that take the epoch last.
using Tokens = std::span<const TokenId>;
using Blocks = std::span<const BlockId>;
using Disks = std::span<const DiskBlockId>;
using Size = std::size_t;
using Epoch = std::uint64_t;

template <typename Result, typename... Arguments>
using Member = Result (RadixTree::*)(Arguments..., Epoch);
// The conversion picks the overload, and doesn't compile if there is none.
template <typename Signature>
using Fits = std::is_member_function_pointer<Signature>;

static_assert(Fits<decltype(static_cast<Member<RadixTree::EpochInsert, Tokens, Blocks, Disks, Size, Size, AdapterId>>(
                  &RadixTree::insert))>::value);
static_assert(
    Fits<decltype(static_cast<Member<RadixTree::EpochSnapshotInsert, Tokens, Blocks, Disks, Size, SnapshotId,
                                     SessionHash, Size, AdapterId>>(&RadixTree::insert_with_snapshot))>::value);
static_assert(
    Fits<decltype(static_cast<Member<std::optional<SnapshotId>, Tokens, Blocks, Disks, Size, SnapshotId, SessionHash,
                                     Size, AdapterId>>(&RadixTree::insert_intermediate_snapshot))>::value);
static_assert(Fits<decltype(static_cast<Member<std::vector<SnapshotId>, Tokens, SnapshotId, SessionHash, AdapterId>>(
                  &RadixTree::insert_tail_snapshot))>::value);
static_assert(Fits<decltype(static_cast<Member<std::optional<SnapshotId>, Tokens, SnapshotId, SessionHash, AdapterId>>(
                  &RadixTree::insert_tail_sibling_snapshot))>::value);
static_assert(Fits<decltype(static_cast<Member<void, Tokens, Size, AdapterId>>(&RadixTree::release))>::value);
static_assert(
    Fits<decltype(static_cast<Member<void, Tokens, Size, Size, AdapterId>>(&RadixTree::release_matched))>::value);

TEST(RadixTreeHeaderTest, OptionsDefaultToBlocksOf16PrivateSnapshotsAndKeysFromOne) {
  const RadixTreeOptions options;
  EXPECT_EQ(options.block_size, 16u);
  EXPECT_FALSE(options.share_snapshots_across_sessions);
  EXPECT_EQ(options.first_tier_key, 1u);
}

TEST(RadixTreeHeaderTest, AReadMayReturnTheDeepestSnapshotAndPinsNoneByDefault) {
  const ReadOptions options;
  EXPECT_EQ(options.session_hash, 0u);
  EXPECT_EQ(options.adapter_id, 0u);
  EXPECT_EQ(options.max_snapshot_tokens, std::numeric_limits<std::size_t>::max());
  EXPECT_FALSE(options.pin_snapshot);
}

TEST(RadixTreeHeaderTest, ARadixTreeIsAnActiveAndEmptyPrefixCache) {
  RadixTree tree;
  const PrefixCache& cache = tree;
  EXPECT_TRUE(cache.is_active());
  EXPECT_EQ(cache.stats().cached_blocks, 0u);
  EXPECT_EQ(cache.stats().entries, 0u);
  EXPECT_EQ(cache.snapshot_count(), 0u);
  EXPECT_EQ(cache.epoch(0), 0u);
  EXPECT_EQ(tree.validate(), "");
}

}  // namespace
}  // namespace cairn
