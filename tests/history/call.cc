#include "history/call.h"

#include <array>
#include <utility>

#include "support/describe.h"

namespace cairn::testing {
namespace {

constexpr auto kNames = std::to_array<std::string_view>({
    "lookup",
    "peek_matched_tokens",
    "insert",
    "insert_with_snapshot",
    "release_matched",
    "acquire",
    "extend",
    "truncate",
    "release(handle)",
    "acquire(pin)",
    "find_snapshot(pin)",
    "unpin_snapshot",
    "evict",
    "evict_blocks_to_tier",
    "forget_tier_key",
    "insert_intermediate_snapshot",
    "insert_tail_snapshot",
    "insert_tail_sibling_snapshot",
    "find_snapshot",
    "evict_snapshot_lru",
    "evict_snapshot_to_tier",
    "promote_snapshot",
    "forget_snapshot_tier_key",
    "take_orphaned_tier_keys",
    "clear(adapter)",
    "clear",
    "epoch",
    "stats().cached_blocks",
    "snapshot_count",
    "counters",
});
static_assert(kNames.size() == static_cast<std::size_t>(CallKind::kCount));

// The two caches have the same members but for block_size, which the tree's options say.
template <class Cache, class Hold>
class Performer {
 public:
  Performer(const Call& call, Cache& cache, std::span<Hold> holds, std::size_t block_size)
      : call_(call), cache_(cache), holds_(holds), block_size_(block_size) {}

  Answer run() {
    switch (call_.kind) {
      case CallKind::kLookup:
        return cache_.lookup(call_.tokens, block_size_, call_.session, call_.adapter_id);
      case CallKind::kPeek:
        return cache_.peek_matched_tokens(call_.tokens, block_size_, call_.adapter_id);
      case CallKind::kEvict:
        return cache_.evict(call_.count);
      case CallKind::kEvictBlocksToTier:
        return cache_.evict_blocks_to_tier(call_.count, 0);
      case CallKind::kForgetKey:
        return cache_.forget_tier_key(call_.key);
      case CallKind::kClearAdapter:
        return cache_.clear(call_.adapter_id);
      case CallKind::kClearAll:
        return cache_.clear();
      case CallKind::kEpoch:
        return cache_.epoch(call_.adapter_id);
      case CallKind::kCachedBlocks:
        return std::uint64_t{cache_.stats().cached_blocks};
      case CallKind::kSnapshotCount:
        return std::uint64_t{cache_.snapshot_count()};
      case CallKind::kCounters:
        return cache_.counters();
      case CallKind::kInsert:
      case CallKind::kInsertWithSnapshot:
      case CallKind::kRelease:
        return by_tokens();
      case CallKind::kAcquire:
      case CallKind::kExtend:
      case CallKind::kTruncate:
      case CallKind::kReleaseHandle:
        return by_handle();
      case CallKind::kAcquirePinned:
      case CallKind::kFindPinned:
      case CallKind::kUnpin:
        return with_pin();
      default:
        return on_snapshots();
    }
  }

 private:
  Answer by_tokens() {
    const Call& c = call_;
    if (c.kind == CallKind::kInsert) {
      if (c.epoch)
        return cache_.insert(c.tokens, c.blocks, c.disk_blocks, block_size_, c.count, c.adapter_id, *c.epoch);
      return RadixTree::EpochInsert{
          cache_.insert(c.tokens, c.blocks, c.disk_blocks, block_size_, c.count, c.adapter_id), false};
    }
    if (c.kind == CallKind::kInsertWithSnapshot) {
      if (c.epoch) {
        return cache_.insert_with_snapshot(c.tokens, c.blocks, c.disk_blocks, block_size_, c.slot, c.session, c.count,
                                           c.adapter_id, *c.epoch);
      }
      return RadixTree::EpochSnapshotInsert{cache_.insert_with_snapshot(c.tokens, c.blocks, c.disk_blocks, block_size_,
                                                                        c.slot, c.session, c.count, c.adapter_id),
                                            false};
    }
    if (c.epoch) {
      cache_.release_matched(c.tokens, block_size_, c.count, c.adapter_id, *c.epoch);
    } else {
      cache_.release_matched(c.tokens, block_size_, c.count, c.adapter_id);
    }
    return std::monostate{};
  }

  Answer by_handle() {
    auto& handle = holds_[call_.hold].handle;
    switch (call_.kind) {
      case CallKind::kAcquire: {
        auto acquired = cache_.acquire(call_.tokens, call_.session, call_.adapter_id);
        handle = std::move(acquired.handle);
        return std::move(acquired.match);
      }
      case CallKind::kExtend:
        return cache_.extend(handle, call_.tokens, call_.blocks, call_.disk_blocks);
      case CallKind::kTruncate:
        cache_.truncate(handle, call_.count);
        return std::monostate{};
      default:
        cache_.release(handle);
        return std::monostate{};
    }
  }

  Answer with_pin() {
    const bool stored = call_.kind == CallKind::kAcquirePinned;
    const ReadOptions options{call_.session, call_.adapter_id, call_.count, true, false, stored};
    Hold& hold = holds_[call_.hold];
    if (call_.kind == CallKind::kUnpin) return cache_.unpin_snapshot(hold.pin);
    if (call_.kind == CallKind::kFindPinned) {
      auto found = cache_.find_snapshot(call_.tokens, options);
      hold.pin = std::move(found.pin);
      return found.snapshot;
    }
    auto acquired = cache_.acquire(call_.tokens, options);
    hold.handle = std::move(acquired.handle);
    hold.pin = std::move(acquired.pin);
    return StoredMatch{std::move(acquired.match), std::move(acquired.stored_blocks)};
  }

  Answer on_snapshots() {
    const Call& c = call_;
    switch (c.kind) {
      case CallKind::kPutPlain:
        if (c.epoch) {
          return cache_.insert_intermediate_snapshot(c.tokens, {}, {}, block_size_, c.slot, c.session, 0, c.adapter_id,
                                                     *c.epoch);
        }
        return cache_.insert_intermediate_snapshot(c.tokens, {}, {}, block_size_, c.slot, c.session, 0, c.adapter_id);
      case CallKind::kPutTail:
        if (c.epoch) return cache_.insert_tail_snapshot(c.tokens, c.slot, c.session, c.adapter_id, *c.epoch);
        return cache_.insert_tail_snapshot(c.tokens, c.slot, c.session, c.adapter_id);
      case CallKind::kPutSibling:
        if (c.epoch) return cache_.insert_tail_sibling_snapshot(c.tokens, c.slot, c.session, c.adapter_id, *c.epoch);
        return cache_.insert_tail_sibling_snapshot(c.tokens, c.slot, c.session, c.adapter_id);
      case CallKind::kFindSnapshot:
        return cache_.find_snapshot(c.tokens, c.count, c.session, c.adapter_id);
      case CallKind::kEvictSnapshot:
        return cache_.evict_snapshot_lru();
      case CallKind::kEvictSnapshotToTier:
        return cache_.evict_snapshot_to_tier(c.count);
      case CallKind::kPromote:
        return cache_.promote_snapshot(c.key, c.slot);
      case CallKind::kForget:
        return cache_.forget_snapshot_tier_key(c.key);
      default:
        return cache_.take_orphaned_tier_keys();
    }
  }

  const Call& call_;
  Cache& cache_;
  std::span<Hold> holds_;
  std::size_t block_size_;
};

std::string arguments_of(const Call& call) {
  std::string text = describe(std::span<const std::uint32_t>(call.tokens));
  const auto add = [&text](const char* name, const std::string& value) {
    text += ", ";
    text += name;
    text += ' ';
    text += value;
  };
  if (!call.blocks.empty()) add("blocks", describe(std::span<const std::uint32_t>(call.blocks)));
  if (!call.disk_blocks.empty()) add("disk", describe(std::span<const std::uint32_t>(call.disk_blocks)));
  add("count", std::to_string(call.count));
  if (call.session != 0) add("session", std::to_string(call.session));
  if (call.adapter_id != 0) add("adapter", std::to_string(call.adapter_id));
  if (call.epoch) add("epoch", std::to_string(*call.epoch));
  if (call.slot != 0) add("slot", std::to_string(call.slot));
  if (call.key != 0) add("key", std::to_string(call.key));
  if (call.kind >= CallKind::kAcquire && call.kind <= CallKind::kUnpin) add("hold", std::to_string(call.hold));
  return text;
}

}  // namespace

std::string_view name_of(CallKind kind) {
  return kNames.at(static_cast<std::size_t>(kind));
}

bool only_reads(CallKind kind) {
  switch (kind) {
    case CallKind::kPeek:
    case CallKind::kEpoch:
    case CallKind::kCachedBlocks:
    case CallKind::kSnapshotCount:
    case CallKind::kCounters:
      return true;
    default:
      return false;
  }
}

Answer perform(const Call& call, std::size_t block_size, RadixTree& tree, std::span<TreeHold> holds) {
  return Performer(call, tree, holds, block_size).run();
}

Answer perform(const Call& call, std::size_t block_size, NaivePrefixCache& model, std::span<ModelHold> holds) {
  return Performer(call, model, holds, block_size).run();
}

std::string text_of(Answer answer) {
  return std::visit(
      [](auto& value) {
        sort_unordered(value);
        return describe(value);
      },
      answer);
}

std::string text_of(const Call& call) {
  return "thread " + std::to_string(call.thread) + "  [" + std::to_string(call.invoked) + ", " +
         std::to_string(call.responded) + "]  " + std::string(name_of(call.kind)) + '(' + arguments_of(call) +
         ")  ->  " + call.answer;
}

}  // namespace cairn::testing
