// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/prefix_cache.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

// The names, types and signatures that the contract fixes: other code is compiled against them.
namespace cairn {
namespace {

using TokenSpan = std::span<const TokenId>;
using BlockSpan = std::span<const BlockId>;
using DiskSpan = std::span<const DiskBlockId>;
using Size = std::size_t;

template <typename Actual, typename Expected>
inline constexpr bool kSame = std::is_same_v<Actual, Expected>;

static_assert(kSame<TokenId, std::uint32_t>);
static_assert(kSame<BlockId, std::uint32_t>);
static_assert(kSame<DiskBlockId, std::uint32_t>);
static_assert(kSame<SnapshotId, std::size_t>);
static_assert(kSame<SessionHash, std::uint64_t>);
static_assert(kSame<AdapterId, std::uint64_t>);
static_assert(kSame<TierKey, std::uint64_t>);
static_assert(kSame<decltype(kNoDiskBlock), const DiskBlockId>);
static_assert(kNoDiskBlock == 0xFFFFFFFF);

// Results: members, their types, and their order (a designated initialiser accepts no other).
static_assert(kSame<decltype(PrefixMatch::matched_blocks), std::vector<BlockId>>);
static_assert(kSame<decltype(PrefixMatch::matched_disk_block_ids), std::vector<DiskBlockId>>);
static_assert(kSame<decltype(PrefixMatch::matched_tokens), Size>);
static_assert(kSame<decltype(PrefixMatch::ssm_snapshot), std::optional<SnapshotId>>);
static_assert(kSame<decltype(PrefixMatch::ssm_snapshot_tokens), Size>);
static_assert(kSame<decltype(PrefixMatch::ssm_snapshot_tier_key), std::optional<TierKey>>);
static_assert(kSame<decltype(PrefixMatch::ssm_snapshot_tier_tokens), Size>);
static_assert(kSame<decltype(PrefixMatch::ssm_snapshot_is_tail), bool>);
static_assert(kSame<decltype(&PrefixMatch::empty), bool (PrefixMatch::*)() const>);
static_assert(kSame<decltype(InsertAcquired::blocks), std::vector<BlockId>>);
static_assert(kSame<decltype(InsertAcquired::disk_block_ids), std::vector<DiskBlockId>>);
static_assert(kSame<decltype(SnapshotInsert::displaced), std::optional<SnapshotId>>);
static_assert(kSame<decltype(SnapshotInsert::acquired), InsertAcquired>);
static_assert(kSame<decltype(EvictedBlocks::physical), std::vector<BlockId>>);
static_assert(kSame<decltype(EvictedBlocks::disk_block_ids), std::vector<DiskBlockId>>);
static_assert(kSame<decltype(&EvictedBlocks::empty), bool (EvictedBlocks::*)() const>);
static_assert(kSame<decltype(&EvictedBlocks::size), Size (EvictedBlocks::*)() const>);
static_assert(std::is_enum_v<TierEvict::Action> && !std::is_convertible_v<TierEvict::Action, int>);
static_assert(TierEvict::Action::kSpill != TierEvict::Action::kDrop);
static_assert(kSame<decltype(TierEvict::action), TierEvict::Action>);
static_assert(kSame<decltype(TierEvict::slot), SnapshotId>);
static_assert(kSame<decltype(TierEvict::key), TierKey>);
static_assert(kSame<decltype(TierEvict::tokens), Size>);
static_assert(kSame<decltype(CacheStats::entries), Size>);
static_assert(kSame<decltype(CacheStats::cached_blocks), Size>);
static_assert(kSame<decltype(SnapshotRef::slot), std::optional<SnapshotId>>);
static_assert(kSame<decltype(SnapshotRef::tier_key), std::optional<TierKey>>);
static_assert(kSame<decltype(SnapshotRef::tokens), Size>);
static_assert(kSame<decltype(SnapshotRef::is_tail), bool>);
static_assert(kSame<decltype(Cleared::blocks), EvictedBlocks>);
static_assert(kSame<decltype(Cleared::slots), std::vector<SnapshotId>>);
static_assert(kSame<decltype(Cleared::tier_keys), std::vector<TierKey>>);

// The interface. The two overloads of clear are told apart by the type that they are converted to.
static_assert(std::is_abstract_v<PrefixCache> && std::has_virtual_destructor_v<PrefixCache>);
static_assert(
    kSame<decltype(&PrefixCache::lookup), PrefixMatch (PrefixCache::*)(TokenSpan, Size, SessionHash, AdapterId)>);
static_assert(kSame<decltype(&PrefixCache::insert),
                    InsertAcquired (PrefixCache::*)(TokenSpan, BlockSpan, DiskSpan, Size, Size, AdapterId)>);
static_assert(kSame<decltype(&PrefixCache::insert_with_snapshot),
                    SnapshotInsert (PrefixCache::*)(TokenSpan, BlockSpan, DiskSpan, Size, SnapshotId, SessionHash,
                                                    Size, AdapterId)>);
static_assert(kSame<decltype(&PrefixCache::insert_intermediate_snapshot),
                    std::optional<SnapshotId> (PrefixCache::*)(TokenSpan, BlockSpan, DiskSpan, Size, SnapshotId,
                                                               SessionHash, Size, AdapterId)>);
static_assert(kSame<decltype(&PrefixCache::insert_tail_snapshot),
                    std::vector<SnapshotId> (PrefixCache::*)(TokenSpan, SnapshotId, SessionHash, AdapterId)>);
static_assert(kSame<decltype(&PrefixCache::insert_tail_sibling_snapshot),
                    std::optional<SnapshotId> (PrefixCache::*)(TokenSpan, SnapshotId, SessionHash, AdapterId)>);
static_assert(kSame<decltype(&PrefixCache::release), void (PrefixCache::*)(TokenSpan, Size, AdapterId)>);
static_assert(kSame<decltype(&PrefixCache::release_matched), void (PrefixCache::*)(TokenSpan, Size, Size, AdapterId)>);
static_assert(kSame<decltype(&PrefixCache::evict), EvictedBlocks (PrefixCache::*)(Size)>);
static_assert(kSame<decltype(&PrefixCache::evict_snapshot_lru), std::optional<SnapshotId> (PrefixCache::*)()>);
static_assert(kSame<decltype(&PrefixCache::snapshot_count), Size (PrefixCache::*)() const>);
static_assert(kSame<decltype(&PrefixCache::stats), CacheStats (PrefixCache::*)() const>);
static_assert(kSame<decltype(&PrefixCache::is_active), bool (PrefixCache::*)() const>);
static_assert(
    kSame<decltype(&PrefixCache::peek_matched_tokens), Size (PrefixCache::*)(TokenSpan, Size, AdapterId) const>);
static_assert(kSame<decltype(&PrefixCache::evict_snapshot_to_tier), std::optional<TierEvict> (PrefixCache::*)(Size)>);
static_assert(kSame<decltype(&PrefixCache::promote_snapshot), bool (PrefixCache::*)(TierKey, SnapshotId)>);
static_assert(kSame<decltype(&PrefixCache::forget_snapshot_tier_key), bool (PrefixCache::*)(TierKey)>);
static_assert(kSame<decltype(&PrefixCache::find_snapshot),
                    SnapshotRef (PrefixCache::*)(TokenSpan, Size, SessionHash, AdapterId)>);
static_assert(kSame<decltype(&PrefixCache::take_orphaned_tier_keys), std::vector<TierKey> (PrefixCache::*)()>);
static_assert(kSame<decltype(static_cast<Cleared (PrefixCache::*)(AdapterId)>(&PrefixCache::clear)),
                    Cleared (PrefixCache::*)(AdapterId)>);
static_assert(
    kSame<decltype(static_cast<Cleared (PrefixCache::*)()>(&PrefixCache::clear)), Cleared (PrefixCache::*)()>);
static_assert(kSame<decltype(&PrefixCache::epoch), std::uint64_t (PrefixCache::*)(AdapterId) const>);

// An implementation that overrides what the contract leaves pure, and nothing else.
class MinimalCache final : public PrefixCache {
 public:
  PrefixMatch lookup(TokenSpan, Size, SessionHash, AdapterId) override { return {}; }
  InsertAcquired insert(TokenSpan, BlockSpan, DiskSpan, Size, Size, AdapterId) override { return {}; }
  SnapshotInsert insert_with_snapshot(TokenSpan, BlockSpan, DiskSpan, Size, SnapshotId, SessionHash, Size,
                                      AdapterId) override {
    return {};
  }
  std::optional<SnapshotId> insert_intermediate_snapshot(TokenSpan, BlockSpan, DiskSpan, Size, SnapshotId, SessionHash,
                                                         Size, AdapterId) override {
    return {};
  }
  std::vector<SnapshotId> insert_tail_snapshot(TokenSpan, SnapshotId, SessionHash, AdapterId) override { return {}; }
  std::optional<SnapshotId> insert_tail_sibling_snapshot(TokenSpan, SnapshotId, SessionHash, AdapterId) override {
    return {};
  }
  void release(TokenSpan, Size, AdapterId) override {}
  void release_matched(TokenSpan, Size, Size, AdapterId) override {}
  EvictedBlocks evict(Size) override { return {}; }
  std::optional<SnapshotId> evict_snapshot_lru() override { return {}; }
  [[nodiscard]] Size snapshot_count() const override { return 0; }
  [[nodiscard]] CacheStats stats() const override { return {}; }
};

TEST(PrefixCacheHeaderTest, AnImplementationWithoutAFeatureInheritsTheProvidedAnswers) {
  MinimalCache minimal;
  PrefixCache& cache = minimal;
  const std::vector<TokenId> sequence = {1, 2, 3, 4};
  EXPECT_TRUE(cache.is_active());
  EXPECT_EQ(cache.peek_matched_tokens(sequence, 2, 0), 0u);
  EXPECT_EQ(cache.peek_matched_tokens(sequence, 0, 0), 0u) << "and checks nothing";
  EXPECT_FALSE(cache.evict_snapshot_to_tier(0));
  EXPECT_FALSE(cache.promote_snapshot(1, 2));
  EXPECT_FALSE(cache.forget_snapshot_tier_key(1));
  const SnapshotRef found = cache.find_snapshot(sequence, 4, 7, 0);
  EXPECT_FALSE(found.slot);
  EXPECT_FALSE(found.tier_key);
  EXPECT_EQ(found.tokens, 0u);
  EXPECT_FALSE(found.is_tail);
  EXPECT_TRUE(cache.take_orphaned_tier_keys().empty());
  for (const Cleared& cleared : {cache.clear(5), cache.clear()}) {
    EXPECT_TRUE(cleared.blocks.empty());
    EXPECT_TRUE(cleared.blocks.disk_block_ids.empty());
    EXPECT_TRUE(cleared.slots.empty());
    EXPECT_TRUE(cleared.tier_keys.empty());
  }
  EXPECT_EQ(cache.epoch(5), 0u) << "also after a clear";
}

TEST(PrefixCacheHeaderTest, ResultsAreWrittenInTheOrderOfTheContract) {
  const PrefixMatch match{.matched_blocks = {1},
                          .matched_disk_block_ids = {2},
                          .matched_tokens = 16,
                          .ssm_snapshot = 3,
                          .ssm_snapshot_tokens = 4,
                          .ssm_snapshot_tier_key = 5,
                          .ssm_snapshot_tier_tokens = 6,
                          .ssm_snapshot_is_tail = true};
  EXPECT_EQ(match.ssm_snapshot_tier_tokens, 6u);
  const InsertAcquired acquired{.blocks = {1}, .disk_block_ids = {2}};
  const SnapshotInsert inserted{.displaced = 3, .acquired = acquired};
  EXPECT_EQ(inserted.acquired.disk_block_ids.size(), 1u);
  const TierEvict evicted{.action = TierEvict::Action::kSpill, .slot = 1, .key = 2, .tokens = 3};
  EXPECT_EQ(evicted.tokens, 3u);
  const CacheStats stats{.entries = 1, .cached_blocks = 2};
  EXPECT_EQ(stats.cached_blocks, 2u);
  const SnapshotRef ref{.slot = 1, .tier_key = 2, .tokens = 3, .is_tail = true};
  EXPECT_EQ(ref.tokens, 3u);
  const Cleared cleared{.blocks = {.physical = {1}, .disk_block_ids = {2}}, .slots = {3}, .tier_keys = {4}};
  EXPECT_EQ(cleared.tier_keys.size(), 1u);
}

TEST(PrefixCacheHeaderTest, AMatchIsEmptyIfItHasNoTokens) {
  PrefixMatch match;
  EXPECT_TRUE(match.empty());
  EXPECT_EQ(match.ssm_snapshot_tokens, 0u);
  EXPECT_EQ(match.ssm_snapshot_tier_tokens, 0u);
  EXPECT_FALSE(match.ssm_snapshot_is_tail);
  match.matched_tokens = 16;
  EXPECT_FALSE(match.empty());
}

TEST(PrefixCacheHeaderTest, EvictedBlocksAreCountedByPhysicalBlocks) {
  EvictedBlocks evicted;
  EXPECT_TRUE(evicted.empty());
  EXPECT_EQ(evicted.size(), 0u);
  evicted.disk_block_ids = {7};
  EXPECT_TRUE(evicted.empty());
  evicted.physical = {1, 2};
  EXPECT_FALSE(evicted.empty());
  EXPECT_EQ(evicted.size(), 2u);
}

}  // namespace
}  // namespace cairn
