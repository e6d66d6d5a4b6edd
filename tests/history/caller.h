// One thread's part in a history: running sequences that keep to the protocol, with a record of every call.
#ifndef CAIRN_TESTS_HISTORY_CALLER_H_
#define CAIRN_TESTS_HISTORY_CALLER_H_

#include <cairn/radix_tree.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "history/call.h"
#include "history/checker.h"

namespace cairn::testing {

// What the threads of one history share.
struct Stage {
  explicit Stage(const RadixTreeOptions& options_given) : options(options_given), tree(options) {}

  RadixTreeOptions options;
  RadixTree tree;
  std::atomic<std::uint64_t> clock{1};  // orders invocations and responses
};

// Prompts are words: each letter stands for a block, a digit at the end for that many tokens of one more.
std::vector<TokenId> tokens_of(std::string_view word, std::size_t block_size);

struct CallerHabits {
  bool epochs = false;       // asks for the epoch first and uses the overloads that compare it
  bool disk_blocks = false;  // gives a disk id for every other block
};

// It releases only what it holds and hands in each block and each slot once. `thread` numbers the callers of a stage
// from 0. Sequences, handles and pins are numbered in their order here; one that is given back leaves, and those after
// it move up.
class Caller {
 public:
  static constexpr std::size_t kHoldsMax = 8;  // acquires and pinning finds of one caller

  Caller(Stage& stage, std::size_t thread, CallerHabits habits = {})
      : stage_(stage), thread_(thread), habits_(habits), holds_(kHoldsMax) {}

  // ---- Sequences by tokens ----
  void lookup(std::string_view word, AdapterId adapter_id = 0, SessionHash session = 0);
  void insert(std::string_view word, AdapterId adapter_id = 0);
  // Of sequence `index`, which goes on with `more` where it was full.
  void insert_more(std::size_t index, std::string_view more);
  void insert_with_snapshot(std::size_t index, std::string_view more, SessionHash session = 0);
  void publish(std::string_view word, AdapterId adapter_id = 0);  // takes no use
  void release(std::size_t index);
  [[nodiscard]] std::size_t sequences() const { return sequences_.size(); }

  // ---- Sequences by handle ----
  void acquire(std::string_view word, AdapterId adapter_id = 0, SessionHash session = 0);
  void extend(std::size_t index, std::string_view more);
  void truncate(std::size_t index, std::size_t blocks);  // to so many, if it has as many
  void release_handle(std::size_t index);
  [[nodiscard]] std::size_t handles() const { return held_.size(); }
  [[nodiscard]] bool can_acquire() const { return acquired_ < kHoldsMax; }

  // ---- Pinned snapshots; a pin that found nothing counts ----
  void acquire_pinned(std::string_view word, std::size_t tokens_max);
  void find_pinned(std::string_view word, SessionHash session = 0);
  void unpin(std::size_t index);
  [[nodiscard]] std::size_t pins() const { return pinned_.size(); }

  void release_all();

  // ---- The rest ----
  void peek(std::string_view word, AdapterId adapter_id = 0);
  std::size_t evict(std::size_t blocks);
  void evict_blocks_to_tier(std::size_t blocks);
  void forget_key(TierKey key);  // of a block or a snapshot
  void put(CallKind kind, std::string_view word, SessionHash session = 0, AdapterId adapter_id = 0);
  void find_snapshot(std::string_view word, SessionHash session = 0, AdapterId adapter_id = 0);
  void evict_snapshot_to_tier(std::size_t tokens_min);
  void promote(TierKey key);
  void forget(TierKey key);
  // One with no arguments but perhaps an adapter.
  Answer simple(CallKind kind, AdapterId adapter_id = 0);

  // Called before each call.
  std::function<void()> before_call = [] {};

  // Once, when all is done.
  std::vector<Call> take_calls();

 private:
  struct Sequence {
    std::vector<TokenId> tokens;
    std::size_t held_tokens = 0;
    AdapterId adapter_id = 0;
    std::optional<std::uint64_t> epoch;
  };
  struct Recorded {
    Call call;
    Answer answer;
  };

  [[nodiscard]] std::size_t block_size() const { return stage_.options.block_size; }
  [[nodiscard]] Call start(CallKind kind, std::vector<TokenId> tokens, AdapterId adapter_id) const;
  [[nodiscard]] Call start_insert(std::size_t index, std::string_view more, CallKind kind);
  const Answer& make(Call call);
  [[nodiscard]] std::optional<std::uint64_t> epoch_before(AdapterId adapter_id);
  void give_blocks(Call& call);
  [[nodiscard]] std::size_t new_slot() { return 1000 * (thread_ + 1) + ++slots_given_; }
  void inserted(std::size_t index, std::size_t blocks, bool epoch_passed);

  Stage& stage_;
  std::size_t thread_;
  CallerHabits habits_;
  std::vector<Sequence> sequences_;
  std::vector<std::size_t> held_;    // of holds_, those with a handle
  std::vector<std::size_t> pinned_;  // of holds_, those with a pin
  std::vector<TreeHold> holds_;
  std::size_t acquired_ = 0;
  std::uint32_t blocks_given_ = 0;
  std::size_t slots_given_ = 0;
  std::vector<Recorded> recorded_;
};

// The history of those callers, after they have evicted all that can be evicted, released what they hold and evicted
// the rest, which tells the order of all stamps. By one thread, when all else is done.
History finish(Stage& stage, std::span<Caller* const> callers);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_HISTORY_CALLER_H_
