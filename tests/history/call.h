// One call on a prefix cache with all that it was given, when it ran and what it answered: what histories are made of.
#ifndef CAIRN_TESTS_HISTORY_CALL_H_
#define CAIRN_TESTS_HISTORY_CALL_H_

#include <cairn/radix_tree.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/describe.h"
#include "support/naive_prefix_cache.h"

namespace cairn::testing {

enum class CallKind : std::uint8_t {
  kLookup,
  kPeek,
  kInsert,
  kInsertWithSnapshot,
  kRelease,  // release_matched
  kAcquire,
  kExtend,
  kTruncate,
  kReleaseHandle,
  kAcquirePinned,
  kFindPinned,
  kUnpin,
  kEvict,
  kEvictBlocksToTier,
  kForgetKey,  // forget_tier_key
  kPutPlain,
  kPutTail,
  kPutSibling,
  kFindSnapshot,
  kEvictSnapshot,
  kEvictSnapshotToTier,
  kPromote,
  kForget,
  kTakeOrphans,
  kClearAdapter,
  kClearAll,
  kEpoch,
  kCachedBlocks,
  kSnapshotCount,
  kCounters,
  kCount,
};

std::string_view name_of(CallKind kind);
// True if the call changes nothing that another call can see.
bool only_reads(CallKind kind);

// Each kind uses the fields that its arguments need.
struct Call {
  CallKind kind = CallKind::kPeek;
  std::size_t thread = 0;
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;
  std::vector<DiskBlockId> disk_blocks;
  std::size_t count = 0;  // matched, wanted or kept tokens; blocks to evict
  SessionHash session = 0;
  AdapterId adapter_id = 0;
  std::optional<std::uint64_t> epoch;  // for the overload that compares it
  std::size_t slot = 0;
  TierKey key = 0;
  std::size_t hold = 0;  // which of all holds of the history

  // By one counter for the whole history: a call whose `responded` is less than another's `invoked` came before it.
  std::uint64_t invoked = 0;
  std::uint64_t responded = 0;
  std::string answer;
};

using Answer =
    std::variant<std::monostate, bool, std::uint64_t, std::optional<std::uint64_t>, std::vector<std::uint64_t>,
                 PrefixMatch, RadixTree::EpochInsert, RadixTree::EpochSnapshotInsert, EvictedBlocks,
                 std::optional<TierEvict>, SnapshotRef, Cleared, RadixTreeCounters, StoredMatch, BlockSpills>;

// What an acquire or a pinning find gave to its caller.
struct TreeHold {
  PrefixHandle handle;
  SnapshotPin pin;
};
struct ModelHold {
  NaivePrefixCache::Holding handle;
  NaivePrefixCache::Pin pin;
};

// The one that the call is about is holds[call.hold].
Answer perform(const Call& call, std::size_t block_size, RadixTree& tree, std::span<TreeHold> holds);
Answer perform(const Call& call, std::size_t block_size, NaivePrefixCache& model, std::span<ModelHold> holds);
// As text, to compare and to print; lists without a promised order are sorted.
std::string text_of(Answer answer);
// "thread 1  [3, 8]  lookup(...)  ->  answer".
std::string text_of(const Call& call);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_HISTORY_CALL_H_
