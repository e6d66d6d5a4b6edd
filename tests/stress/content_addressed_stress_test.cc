// Threads on one index with nothing else between them: no pool, no lock of the test's, so that the thread sanitizer
// sees races that the engine's own locks would hide.
//
// Block ids and slots say by themselves what they hold: a block's id is a digest of its adapter and of all tokens up
// to its end, and the lower half of a slot is the digest of the snapshot's tokens. So every answer can be checked on
// the spot. What each thread acquired and got back is compared when all are done.
#include <cairn/radix_tree.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "stress/shared_pools.h"
#include "support/operation_decoder.h"
#include "support/sanitizers.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kOperations = kSanitized ? 24'000 : 150'000;
constexpr std::size_t kRounds = 24;  // each on a new index: growing tables are part of what is tested
constexpr std::size_t kThreads = 4;
constexpr std::size_t kCallersMax = 4;
constexpr std::size_t kBlockSize = 2;
// Uses by tokens are taken of this adapter only, which nobody clears: between a lookup and the reading of its epoch
// there could be a clear. Handles know their epoch.
constexpr AdapterId kLastingAdapter = 0;

std::uint32_t short_digest(std::span<const TokenId> tokens, AdapterId adapter_id) {
  const std::uint64_t digest = digest_of(tokens, adapter_id);
  return static_cast<std::uint32_t>(digest ^ digest >> 32);
}

// What one thread took over from the index and gave to it.
struct Balance {
  std::vector<BlockId> acquired;
  std::vector<BlockId> given_back;
  std::vector<SnapshotId> slots_handed_in;
  std::vector<SnapshotId> slots_given_back;
};

struct Caller {
  AdapterId adapter_id = 0;
  SessionHash session = 0;
  std::vector<TokenId> tokens;
  bool by_handle = false;
  std::size_t held_blocks = 0;  // by tokens
  PrefixHandle handle;
};

class Worker {
 public:
  Worker(RadixTree& tree, Complaints& complaints, std::span<const std::uint8_t> bytes, std::size_t number)
      : tree_(tree), complaints_(complaints), program_(decode_program(bytes)), book_(settings()), number_(number) {}

  void run() {
    for (const Operation& operation : program_.operations) {
      if (complaints_.any()) break;
      step(operation);
    }
    while (!callers_.empty()) finish(callers_.size() - 1);
  }
  [[nodiscard]] const Balance& balance() const { return balance_; }

 private:
  static ProgramSettings settings() {
    ProgramSettings settings;
    settings.block_size = kBlockSize;
    settings.tokens_max = 16 * kBlockSize;
    return settings;
  }

  void step(const Operation& operation);
  void check_snapshot(const std::vector<TokenId>& tokens, AdapterId adapter_id, SnapshotId slot, std::size_t count);
  void check_match(const Caller& caller, const PrefixMatch& match);
  void start(const Operation& operation);
  Caller& any_caller(const Operation& operation);
  void insert(Caller& caller);
  void publish(const Operation& operation);
  void look_again(Caller& caller);
  void finish(std::size_t index);
  void put(const Operation& operation);
  void evict_snapshot(const Operation& operation);
  void find_snapshot(const Operation& operation);
  void clear(AdapterId adapter_id);
  SnapshotId new_slot(std::span<const TokenId> tokens, AdapterId adapter_id) {
    const std::uint64_t serial = kThreads * puts_++ + number_;
    const SnapshotId slot = serial << 32 | short_digest(tokens, adapter_id);
    balance_.slots_handed_in.push_back(slot);
    return slot;
  }
  [[nodiscard]] static std::vector<BlockId> table_of(const Caller& caller, std::size_t from_block) {
    std::vector<BlockId> table;
    for (std::size_t end = (from_block + 1) * kBlockSize; end <= caller.tokens.size(); end += kBlockSize) {
      table.push_back(short_digest(std::span(caller.tokens).first(end), caller.adapter_id));
    }
    return table;
  }
  template <class Ids>
  static void append(Ids& to, const Ids& ids) {
    to.insert(to.end(), ids.begin(), ids.end());
  }

  RadixTree& tree_;
  Complaints& complaints_;
  Program program_;
  PromptBook book_;
  std::size_t number_;
  std::uint64_t puts_ = 0;
  Balance balance_;
  std::vector<Caller> callers_;
};

// ---- Checks ----

void Worker::check_snapshot(const std::vector<TokenId>& tokens, AdapterId adapter_id, SnapshotId slot,
                            std::size_t count) {
  if (static_cast<std::uint32_t>(slot) != short_digest(std::span(tokens).first(count), adapter_id)) {
    complaints_.add("a snapshot of other tokens was returned");
  }
}

void Worker::check_match(const Caller& caller, const PrefixMatch& match) {
  if (match.matched_blocks.size() * kBlockSize != match.matched_tokens) {
    complaints_.add("matched_tokens and matched_blocks differ");
  }
  const auto expected = table_of(caller, 0);
  if (match.matched_blocks.size() > expected.size() ||
      !std::equal(match.matched_blocks.begin(), match.matched_blocks.end(), expected.begin())) {
    complaints_.add("a block of other tokens was returned");
  }
  if (match.ssm_snapshot) {
    if (match.ssm_snapshot_tokens > match.matched_tokens) complaints_.add("a snapshot lies beyond the match");
    check_snapshot(caller.tokens, caller.adapter_id, *match.ssm_snapshot, match.ssm_snapshot_tokens);
  }
}

// What a caller holds must be found, all of it, whatever others do meanwhile.
void Worker::look_again(Caller& caller) {
  if (caller.by_handle && caller.adapter_id != kLastingAdapter) return;
  const auto match = tree_.lookup(caller.tokens, kBlockSize, caller.session, caller.adapter_id);
  check_match(caller, match);
  const std::size_t held = caller.by_handle ? caller.handle.tokens() / kBlockSize : caller.held_blocks;
  if (match.matched_blocks.size() < held) complaints_.add("blocks in use were not found");
  tree_.release_matched(caller.tokens, kBlockSize, match.matched_tokens, caller.adapter_id);
}

// ---- Blocks ----

void Worker::start(const Operation& operation) {
  if (callers_.size() >= kCallersMax) finish(operation.who % callers_.size());
  Caller caller;
  caller.by_handle = operation.kind == OperationKind::kAcquire;
  caller.adapter_id = caller.by_handle ? operation.adapter_id() : kLastingAdapter;
  caller.session = operation.session();
  caller.tokens = book_.make(operation);
  if (caller.by_handle) {
    auto acquired = tree_.acquire(caller.tokens, caller.session, caller.adapter_id);
    caller.handle = std::move(acquired.handle);
    check_match(caller, acquired.match);
  } else {
    const auto match = tree_.lookup(caller.tokens, kBlockSize, caller.session, caller.adapter_id);
    caller.held_blocks = match.matched_blocks.size();
    check_match(caller, match);
  }
  callers_.push_back(std::move(caller));
}

Caller& Worker::any_caller(const Operation& operation) {
  if (callers_.empty()) start(operation);
  return callers_[operation.who % callers_.size()];
}

void Worker::insert(Caller& caller) {
  if (caller.by_handle) {
    const std::size_t held = caller.handle.tokens();
    const auto rest = std::span<const TokenId>(caller.tokens).subspan(held);
    append(balance_.acquired, tree_.extend(caller.handle, rest, table_of(caller, held / kBlockSize), {}).blocks);
    return;
  }
  const std::size_t matched = caller.held_blocks * kBlockSize;
  const auto table = table_of(caller, 0);
  append(balance_.acquired, tree_.insert(caller.tokens, table, {}, kBlockSize, matched, caller.adapter_id).blocks);
  caller.held_blocks = table.size();
}

void Worker::publish(const Operation& operation) {
  const Caller& caller = any_caller(operation);
  const auto acquired =
      tree_.insert(caller.tokens, table_of(caller, 0), {}, kBlockSize, caller.tokens.size(), caller.adapter_id);
  append(balance_.acquired, acquired.blocks);
}

void Worker::finish(std::size_t index) {
  Caller& caller = callers_[index];
  if (caller.by_handle) {
    tree_.release(caller.handle);
  } else {
    tree_.release_matched(caller.tokens, kBlockSize, caller.held_blocks * kBlockSize, caller.adapter_id);
  }
  callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(index));
}

// ---- Snapshots ----

void Worker::put(const Operation& operation) {
  auto tokens = book_.make(operation);
  if (tokens.empty()) return;
  const AdapterId adapter = operation.adapter_id();
  const SnapshotId slot = new_slot(tokens, adapter);
  std::optional<SnapshotId> displaced;
  switch (operation.kind) {
    case OperationKind::kPutTail:
      append(balance_.slots_given_back, tree_.insert_tail_snapshot(tokens, slot, operation.session(), adapter));
      return;
    case OperationKind::kPutSibling:
      displaced = tree_.insert_tail_sibling_snapshot(tokens, slot, operation.session(), adapter);
      break;
    default:
      displaced =
          tree_.insert_intermediate_snapshot(tokens, {}, {}, kBlockSize, slot, operation.session(), 0, adapter);
  }
  if (displaced) balance_.slots_given_back.push_back(*displaced);
}

void Worker::evict_snapshot(const Operation& operation) {
  if (operation.kind == OperationKind::kEvictSnapshot) {
    if (const auto slot = tree_.evict_snapshot_lru()) balance_.slots_given_back.push_back(*slot);
    return;
  }
  const auto victim = tree_.evict_snapshot_to_tier(operation.cut % (2 * kBlockSize));
  if (!victim) return;
  balance_.slots_given_back.push_back(victim->slot);
  if (victim->action == TierEvict::Action::kDrop || operation.extra % 4 == 0) return;
  // The bytes come back at once, into a slot of the same content.
  const SnapshotId slot = (kThreads * puts_++ + number_) << 32 | (victim->slot & 0xFFFFFFFF);
  if (tree_.promote_snapshot(victim->key, slot)) balance_.slots_handed_in.push_back(slot);
}

void Worker::find_snapshot(const Operation& operation) {
  const auto tokens = book_.make(operation);
  const auto found = tree_.find_snapshot(tokens, tokens.size(), operation.session(), operation.adapter_id());
  if (found.slot) check_snapshot(tokens, operation.adapter_id(), *found.slot, found.tokens);
}

void Worker::clear(AdapterId adapter_id) {
  if (adapter_id == kLastingAdapter) return;
  const auto cleared = tree_.clear(adapter_id);
  append(balance_.given_back, cleared.blocks.physical);
  append(balance_.slots_given_back, cleared.slots);
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
      return insert(any_caller(operation));
    case OperationKind::kPublish:
      return publish(operation);
    case OperationKind::kTruncate: {
      Caller& caller = any_caller(operation);
      if (caller.by_handle) tree_.truncate(caller.handle, operation.cut * (caller.handle.tokens() + 1) / 256);
      return;
    }
    case OperationKind::kRelease:
      if (!callers_.empty()) finish(operation.who % callers_.size());
      return;
    case OperationKind::kEvict:
      return append(balance_.given_back, tree_.evict(operation.extra % 8).physical);
    case OperationKind::kPutPlain:
    case OperationKind::kPutTail:
    case OperationKind::kPutSibling:
      return put(operation);
    case OperationKind::kEvictSnapshot:
    case OperationKind::kEvictSnapshotToTier:
      return evict_snapshot(operation);
    case OperationKind::kTakeOrphans:
      tree_.take_orphaned_tier_keys();
      return;
    case OperationKind::kFindSnapshot:
      return find_snapshot(operation);
    case OperationKind::kClearAdapter:
    case OperationKind::kClearAll:
      return clear(operation.adapter_id());
    default:
      if (!callers_.empty()) look_again(callers_[operation.who % callers_.size()]);
      if (operation.kind != OperationKind::kInvalid || operation.extra % 64 != 0) return;
      if (const auto wrong = tree_.validate(); !wrong.empty()) complaints_.add(wrong);
  }
}

// ---- The test ----

void run_threads(std::vector<Worker>& workers) {
  std::latch start(static_cast<std::ptrdiff_t>(workers.size()));
  std::vector<std::jthread> threads;
  for (Worker& worker : workers) {
    threads.emplace_back([&worker, &start] {
      start.arrive_and_wait();
      worker.run();
    });
  }
}

template <class Ids>
Ids sorted(Ids ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(ContentAddressedStress, EveryAnswerIsOfTheTokensAskedForAndEverythingComesBack) {
  constexpr std::array<std::uint8_t, kThreads> kProfiles = {0, 1, 1, 3};  // of the decoder: see kKindInfo
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    RadixTree tree({.block_size = kBlockSize, .share_snapshots_across_sessions = round % 2 == 1});
    Complaints complaints;
    std::vector<Worker> workers;
    workers.reserve(kThreads);
    for (std::size_t number = 0; number < kThreads; ++number) {
      // Two threads have the same program, and so the same prompts at about the same time.
      auto bytes = random_program_bytes(5000 + kThreads * round + number / 2, kOperations / kRounds);
      bytes[4] = kProfiles[number];
      workers.emplace_back(tree, complaints, bytes, number);
    }
    run_threads(workers);
    for (const std::string& complaint : complaints.all()) ADD_FAILURE() << complaint;
    EXPECT_EQ(tree.validate(), "");
    EXPECT_EQ(tree.counters().protocol_errors, 0U);
    EXPECT_GT(tree.counters().hit_tokens, 0U);

    Balance sum;
    for (const Worker& worker : workers) {
      const auto append = [](auto& to, const auto& ids) { to.insert(to.end(), ids.begin(), ids.end()); };
      append(sum.acquired, worker.balance().acquired);
      append(sum.given_back, worker.balance().given_back);
      append(sum.slots_handed_in, worker.balance().slots_handed_in);
      append(sum.slots_given_back, worker.balance().slots_given_back);
    }
    const auto rest = tree.evict(std::numeric_limits<std::size_t>::max()).physical;
    sum.given_back.insert(sum.given_back.end(), rest.begin(), rest.end());
    EXPECT_EQ(tree.stats().cached_blocks, 0U);
    EXPECT_EQ(sorted(sum.acquired), sorted(sum.given_back));
    while (const auto slot = tree.evict_snapshot_lru()) sum.slots_given_back.push_back(*slot);
    EXPECT_EQ(sorted(sum.slots_handed_in), sorted(sum.slots_given_back));
    EXPECT_EQ(tree.validate(), "");
    ASSERT_FALSE(HasFailure());
  }
}

// The tables of the index grow while others read them.
TEST(ContentAddressedStress, FindsWhatIsThereWhileTheTablesGrow) {
  constexpr std::size_t kPuts = kOperations / 10;
  constexpr std::size_t kReaders = 2;
  for (std::size_t round = 0; round < 4; ++round) {
    RadixTree tree({.block_size = kBlockSize, .share_snapshots_across_sessions = true});
    Complaints complaints;
    std::atomic<std::size_t> put{0};  // released after the put: a reader finds all that it counts
    std::latch start(kReaders + 1);
    const auto tokens_of = [](std::size_t i) {
      const auto token = static_cast<TokenId>(i);
      return std::vector<TokenId>{token % 7, token % 5, token, token + 1, token % 3};
    };
    const auto read = [&] {
      start.arrive_and_wait();
      std::size_t which = 0;
      for (std::size_t count = 0; count < kPuts; count = put.load(std::memory_order_acquire)) {
        if (count == 0) continue;
        which = (which + count / 2 + 1) % count;
        const auto tokens = tokens_of(which);
        const auto found = tree.find_snapshot(tokens, tokens.size(), which % 3, which % 2);
        if (found.slot != which) complaints.add("snapshot " + std::to_string(which) + " was not found");
        const auto match = tree.lookup(tokens, kBlockSize, which % 3, which % 2);
        if (match.matched_blocks.size() != 2) complaints.add("prompt " + std::to_string(which) + " was not found");
        tree.release_matched(tokens, kBlockSize, match.matched_tokens, which % 2);
      }
    };
    std::vector<std::jthread> readers;
    for (std::size_t i = 0; i < kReaders; ++i) readers.emplace_back(read);
    start.arrive_and_wait();
    for (std::size_t i = 0; i < kPuts; ++i) {
      const auto tokens = tokens_of(i);
      const std::array<BlockId, 2> table = {1, 2};
      tree.insert_with_snapshot(tokens, table, {}, kBlockSize, i, i, tokens.size(), i % 2);
      put.store(i + 1, std::memory_order_release);
    }
    readers.clear();
    for (const std::string& complaint : complaints.all()) ADD_FAILURE() << complaint;
    EXPECT_EQ(tree.validate(), "");
    EXPECT_EQ(tree.snapshot_count(), kPuts);
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace cairn::testing
