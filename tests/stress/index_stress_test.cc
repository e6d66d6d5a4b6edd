// Threads on one index, each with callers by tokens and by handle, over pools that are counted by reference and know
// whose content each block and slot holds.
//
// What such callers have to keep to, as an engine does:
//   - The reference that the index will hold on a block is taken before the insert and dropped if the block was not
//     acquired: another thread may evict a new node before insert has returned to its caller.
//   - A lookup and the taking of references on what it matched must not be torn apart by a clear, which frees blocks
//     in use; nor may a slot be freed between being found and being read. So lookups, until they have checked what
//     they got, hold `gate` shared; a clear, and whoever frees slots, holds it alone. All other calls run freely.
//   - For the same reason the epoch for the later calls by tokens is read together with the lookup.
#include <cairn/radix_tree.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <latch>
#include <limits>
#include <shared_mutex>
#include <string>
#include <thread>

#include "stress/shared_pools.h"
#include "support/operation_decoder.h"
#include "support/sanitizers.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kOperations = kSanitized ? 12'000 : 150'000;
constexpr std::size_t kThreads = 4;
constexpr std::size_t kCallersMax = 3;
constexpr std::size_t kSlots = 300;
constexpr std::size_t kRounds = 12;  // each on a new index: growing tables are part of what is tested

struct Shared {
  Shared(std::size_t block_size, std::size_t num_blocks, const std::string& policy)
      : tree({.block_size = block_size, .block_policy = policy}),
        blocks(num_blocks, complaints),
        slots(kSlots, complaints),
        tier(complaints) {}

  RadixTree tree;
  Complaints complaints;
  SharedBlocks blocks;
  SharedSlots slots;
  SharedTier tier;
  std::shared_mutex gate;
};

struct Caller {
  AdapterId adapter_id = 0;
  SessionHash session = 0;
  std::uint64_t epoch = 0;
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;  // for the first blocks of the tokens; one reference on each
  bool by_handle = false;
  std::size_t held_blocks = 0;
  PrefixHandle handle;
};

// The callers of one thread.
class Worker {
 public:
  Worker(Shared& shared, std::span<const std::uint8_t> bytes, std::size_t block_size)
      : shared_(shared), program_(decode_program(bytes)), block_size_(block_size), book_(settings()) {}

  void run() {
    for (const Operation& operation : program_.operations) {
      if (shared_.complaints.any()) break;
      step(operation);
    }
    while (!callers_.empty()) finish(callers_.size() - 1, 0);
  }

 private:
  [[nodiscard]] ProgramSettings settings() const {
    ProgramSettings settings;
    settings.block_size = block_size_;
    settings.tokens_max = 12 * block_size_;
    settings.wide_tokens = block_size_ == 16;
    return settings;
  }
  [[nodiscard]] std::uint64_t digest(const std::vector<TokenId>& tokens, std::size_t count, AdapterId adapter) const {
    return digest_of(std::span(tokens).first(count), adapter);
  }

  void step(const Operation& operation);
  void start(const Operation& operation);
  void check_match(const Caller& caller, const PrefixMatch& match);
  void check_snapshot(const std::vector<TokenId>& tokens, AdapterId adapter_id, SnapshotId slot, std::size_t count);
  Caller& any_caller(const Operation& operation);
  bool fill_blocks(Caller& caller, std::size_t count);
  void insert(Caller& caller, bool publish);
  void look_again(Caller& caller);
  void truncate(Caller& caller, const Operation& operation);
  void finish(std::size_t index, unsigned way);
  void put(const Operation& operation);
  void give_back(std::span<const SnapshotId> slots);
  void evict_snapshot(const Operation& operation);
  void promote(const Operation& operation);
  void find_snapshot(const Operation& operation);
  void give_back(const Cleared& cleared);

  Shared& shared_;
  Program program_;
  std::size_t block_size_;
  PromptBook book_;
  std::vector<Caller> callers_;
};

// ---- Blocks ----

void Worker::check_snapshot(const std::vector<TokenId>& tokens, AdapterId adapter_id, SnapshotId slot,
                            std::size_t count) {
  if (shared_.slots.digest(slot) != digest(tokens, count, adapter_id)) {
    shared_.complaints.add("slot " + std::to_string(slot) + " holds the state of other tokens");
  }
}

void Worker::check_match(const Caller& caller, const PrefixMatch& match) {
  if (match.matched_blocks.size() * block_size_ != match.matched_tokens) {
    shared_.complaints.add("matched_tokens and matched_blocks differ");
  }
  for (std::size_t i = 0; i < match.matched_blocks.size(); ++i) {
    if (shared_.blocks.digest(match.matched_blocks[i]) !=
        digest(caller.tokens, (i + 1) * block_size_, caller.adapter_id)) {
      shared_.complaints.add("block " + std::to_string(match.matched_blocks[i]) + " holds other tokens");
    }
  }
  if (match.ssm_snapshot) {
    check_snapshot(caller.tokens, caller.adapter_id, *match.ssm_snapshot, match.ssm_snapshot_tokens);
  }
}

void Worker::start(const Operation& operation) {
  if (callers_.size() >= kCallersMax) finish(operation.who % callers_.size(), operation.extra);
  Caller caller;
  caller.adapter_id = operation.adapter_id();
  caller.session = operation.session();
  caller.tokens = book_.make(operation);
  caller.by_handle = operation.kind == OperationKind::kAcquire;
  PrefixMatch match;
  {
    const std::shared_lock lock(shared_.gate);
    if (caller.by_handle) {
      auto acquired = shared_.tree.acquire(caller.tokens, caller.session, caller.adapter_id);
      caller.handle = std::move(acquired.handle);
      match = std::move(acquired.match);
    } else {
      caller.epoch = shared_.tree.epoch(caller.adapter_id);
      match = shared_.tree.lookup(caller.tokens, block_size_, caller.session, caller.adapter_id);
    }
    for (const BlockId block : match.matched_blocks) shared_.blocks.add_reference(block);
    check_match(caller, match);
  }
  caller.blocks = std::move(match.matched_blocks);
  caller.held_blocks = caller.blocks.size();
  callers_.push_back(std::move(caller));
}

Caller& Worker::any_caller(const Operation& operation) {
  if (callers_.empty()) start(operation);
  return callers_[operation.who % callers_.size()];
}

// Blocks of its own for what the caller has none for yet. False if the pool has none left.
bool Worker::fill_blocks(Caller& caller, std::size_t count) {
  while (caller.blocks.size() < count) {
    const std::uint64_t content = digest(caller.tokens, (caller.blocks.size() + 1) * block_size_, caller.adapter_id);
    auto block = shared_.blocks.allocate(content);
    if (!block) {
      shared_.blocks.drop_references(shared_.tree.evict(count).physical);
      block = shared_.blocks.allocate(content);
    }
    if (!block) return false;
    caller.blocks.push_back(*block);
  }
  return true;
}

void Worker::insert(Caller& caller, bool publish) {
  const std::size_t count = caller.tokens.size() / block_size_;
  if (!fill_blocks(caller, count)) return;
  // The reference of the index, in case that it takes the block. What the caller holds already is not asked for.
  const auto offered = std::span(caller.blocks).subspan(caller.held_blocks, count - caller.held_blocks);
  for (const BlockId block : offered) shared_.blocks.add_reference(block);
  RadixTree::EpochInsert result;
  if (caller.by_handle && !publish) {
    const auto rest = std::span<const TokenId>(caller.tokens).subspan(caller.held_blocks * block_size_);
    result = shared_.tree.extend(caller.handle, rest, offered, {});
  } else {
    const std::size_t matched = publish ? caller.tokens.size() : caller.held_blocks * block_size_;
    const std::uint64_t epoch = caller.by_handle ? caller.handle.epoch() : caller.epoch;
    result = shared_.tree.insert(caller.tokens, caller.blocks, {}, block_size_, matched, caller.adapter_id, epoch);
  }
  std::vector<BlockId> acquired = result.blocks;
  for (const BlockId block : offered) {
    const auto taken = std::find(acquired.begin(), acquired.end(), block);
    if (taken == acquired.end()) {
      shared_.blocks.drop_reference(block);
    } else {
      acquired.erase(taken);
    }
  }
  if (!acquired.empty()) shared_.complaints.add("insert acquired a block that was not offered");
  if (!publish && !result.epoch_passed) caller.held_blocks = count;
}

// What a caller holds must be found, all of it, whatever others do meanwhile.
void Worker::look_again(Caller& caller) {
  const std::shared_lock lock(shared_.gate);
  const std::uint64_t epoch = caller.by_handle ? caller.handle.epoch() : caller.epoch;
  if (epoch != shared_.tree.epoch(caller.adapter_id)) return;
  const auto match = shared_.tree.lookup(caller.tokens, block_size_, caller.session, caller.adapter_id);
  check_match(caller, match);
  if (match.matched_blocks.size() < caller.held_blocks) {
    shared_.complaints.add("only " + std::to_string(match.matched_blocks.size()) + " blocks of " +
                           std::to_string(caller.held_blocks) + " in use were found");
  }
  shared_.tree.release_matched(caller.tokens, block_size_, match.matched_tokens, caller.adapter_id, epoch);
}

void Worker::truncate(Caller& caller, const Operation& operation) {
  if (!caller.by_handle) return;
  const std::size_t kept = operation.cut * (caller.handle.tokens() + 1) / 256;
  shared_.tree.truncate(caller.handle, kept);
  // A clear meanwhile may have made this a call without effect; blocks past the handle are kept as the caller's own.
  caller.held_blocks = caller.handle.tokens() / block_size_;
}

void Worker::finish(std::size_t index, unsigned way) {
  Caller& caller = callers_[index];
  if (caller.by_handle) {
    shared_.tree.release(caller.handle);
  } else if (way % 2 == 0 && caller.held_blocks == caller.tokens.size() / block_size_) {
    shared_.tree.release(caller.tokens, block_size_, caller.adapter_id, caller.epoch);
  } else {
    shared_.tree.release_matched(caller.tokens, block_size_, caller.held_blocks * block_size_, caller.adapter_id,
                                 caller.epoch);
  }
  shared_.blocks.drop_references(caller.blocks);
  callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(index));
}

// ---- Snapshots ----

void Worker::give_back(std::span<const SnapshotId> slots) {
  if (slots.empty()) return;
  const std::unique_lock lock(shared_.gate);  // whoever found one of them has read it
  for (const SnapshotId slot : slots) shared_.slots.give_back(slot);
}

void Worker::put(const Operation& operation) {
  auto tokens = book_.make(operation);
  if (tokens.empty()) return;
  const AdapterId adapter = operation.adapter_id();
  auto slot = shared_.slots.take(digest(tokens, tokens.size(), adapter));
  if (!slot) return evict_snapshot(operation);
  std::vector<SnapshotId> freed;
  std::optional<SnapshotId> displaced;
  switch (operation.kind) {
    case OperationKind::kPutTail:
      freed = shared_.tree.insert_tail_snapshot(tokens, *slot, operation.session(), adapter);
      break;
    case OperationKind::kPutSibling:
      displaced = shared_.tree.insert_tail_sibling_snapshot(tokens, *slot, operation.session(), adapter);
      break;
    default:
      displaced = shared_.tree.insert_intermediate_snapshot(tokens, {}, {}, block_size_, *slot, operation.session(), 0,
                                                            adapter);
  }
  if (displaced) freed.push_back(*displaced);
  give_back(freed);
}

void Worker::evict_snapshot(const Operation& operation) {
  if (operation.kind == OperationKind::kEvictSnapshot) {
    if (const auto slot = shared_.tree.evict_snapshot_lru()) give_back(std::span(&*slot, 1));
    return;
  }
  const auto victim = shared_.tree.evict_snapshot_to_tier(operation.cut % (2 * block_size_));
  if (!victim) return;
  // The slot is still this thread's: its bytes can be read.
  if (victim->action == TierEvict::Action::kSpill) {
    shared_.tier.store(victim->key, shared_.slots.digest(victim->slot));
  }
  give_back(std::span(&victim->slot, 1));
}

void Worker::promote(const Operation& operation) {
  const TierKey key = shared_.tier.some_key(operation.source);
  const auto content = shared_.tier.find(key);
  if (!content) return;
  const auto slot = shared_.slots.take(*content);
  if (!slot) return;
  if (!shared_.tree.promote_snapshot(key, *slot)) shared_.slots.give_back(*slot);
}

void Worker::find_snapshot(const Operation& operation) {
  const auto tokens = book_.make(operation);
  const AdapterId adapter = operation.adapter_id();
  const std::shared_lock lock(shared_.gate);
  const auto found = shared_.tree.find_snapshot(tokens, tokens.size(), operation.session(), adapter);
  if (found.slot) check_snapshot(tokens, adapter, *found.slot, found.tokens);
  if (!found.tier_key) return;
  const auto content = shared_.tier.find(*found.tier_key);  // not there yet if it is being spilled right now
  if (content && *content != digest(tokens, found.tokens, adapter)) {
    shared_.complaints.add("tier key " + std::to_string(*found.tier_key) + " holds the state of other tokens");
  }
}

void Worker::give_back(const Cleared& cleared) {
  shared_.blocks.drop_references(cleared.blocks.physical);
  for (const SnapshotId slot : cleared.slots) shared_.slots.give_back(slot);
}

void Worker::step(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kLookup:
    case OperationKind::kAcquire:
      return start(operation);
    case OperationKind::kInsert:
    case OperationKind::kInsertWithSnapshot:
    case OperationKind::kExtend:
    case OperationKind::kGrow:
      return insert(any_caller(operation), false);
    case OperationKind::kPublish:
      return insert(any_caller(operation), true);
    case OperationKind::kTruncate:
      return truncate(any_caller(operation), operation);
    case OperationKind::kRelease:
      if (!callers_.empty()) finish(operation.who % callers_.size(), operation.extra);
      return;
    case OperationKind::kEvict:
      return shared_.blocks.drop_references(shared_.tree.evict(operation.extra % 8).physical);
    case OperationKind::kPutPlain:
    case OperationKind::kPutTail:
    case OperationKind::kPutSibling:
      return put(operation);
    case OperationKind::kEvictSnapshot:
    case OperationKind::kEvictSnapshotToTier:
      return evict_snapshot(operation);
    case OperationKind::kPromote:
      return promote(operation);
    case OperationKind::kForget:
      shared_.tree.forget_snapshot_tier_key(shared_.tier.some_key(operation.source));
      return;
    case OperationKind::kTakeOrphans:
      shared_.tree.take_orphaned_tier_keys();
      return;
    case OperationKind::kFindSnapshot:
      return find_snapshot(operation);
    case OperationKind::kClearAdapter: {
      const std::unique_lock lock(shared_.gate);
      return give_back(shared_.tree.clear(operation.adapter_id()));
    }
    case OperationKind::kClearAll: {
      const std::unique_lock lock(shared_.gate);
      return give_back(shared_.tree.clear());
    }
    case OperationKind::kPeek:
      return look_again(any_caller(operation));
    default:
      static_cast<void>(shared_.tree.peek_matched_tokens(book_.make(operation), block_size_, 0));
      if (operation.extra % 64 == 0) {
        if (const auto wrong = shared_.tree.validate(); !wrong.empty()) shared_.complaints.add(wrong);
      }
  }
}

class IndexStress : public ::testing::TestWithParam<std::size_t> {};

void run_threads(Shared& shared, std::size_t block_size, std::uint64_t round) {
  constexpr std::array<std::uint8_t, kThreads> kProfiles = {0, 1, 2, 3};  // of the decoder: see kKindInfo
  std::vector<Worker> workers;
  workers.reserve(kThreads);
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    auto bytes = random_program_bytes(1000 * block_size + kThreads * round + thread, kOperations / kRounds);
    bytes[4] = kProfiles[thread];
    workers.emplace_back(shared, bytes, block_size);
  }
  std::latch start(kThreads);
  std::vector<std::jthread> threads;
  for (Worker& worker : workers) {
    threads.emplace_back([&worker, &start] {
      start.arrive_and_wait();
      worker.run();
    });
  }
}

// The default most often, each of the others in one round.
std::string policy_of(std::uint64_t round) {
  return block_policy_names()[round < kRounds ? 0 : round - kRounds + 1];
}

TEST_P(IndexStress, ThreadsNeverSeeOtherTokensBlocksAndEverythingComesBack) {
  const std::size_t block_size = GetParam();
  constexpr std::size_t kBlocks = 300;
  for (std::uint64_t round = 0; round < kRounds + block_policy_names().size() - 1; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + ", " + policy_of(round));
    Shared shared(block_size, kBlocks, policy_of(round));
    run_threads(shared, block_size, round);
    EXPECT_EQ(shared.tree.validate(), "");
    EXPECT_EQ(shared.tree.counters().protocol_errors, 0U);
    EXPECT_GT(shared.tree.counters().hit_tokens, 0U);

    shared.blocks.drop_references(shared.tree.evict(std::numeric_limits<std::size_t>::max()).physical);
    EXPECT_EQ(shared.tree.stats().cached_blocks, 0U);
    EXPECT_EQ(shared.blocks.free_count(), kBlocks);
    while (const auto slot = shared.tree.evict_snapshot_lru()) shared.slots.give_back(*slot);
    EXPECT_EQ(shared.slots.free_count(), kSlots);
    shared.tree.clear();
    EXPECT_EQ(shared.tree.snapshot_count(), 0U);
    EXPECT_EQ(shared.tree.validate(), "");
    for (const std::string& complaint : shared.complaints.all()) ADD_FAILURE() << complaint;
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(BlockSizes, IndexStress, ::testing::Values(1, 2, 4, 16),
                         [](const auto& block_size) { return std::to_string(block_size.param); });

}  // namespace
}  // namespace cairn::testing
