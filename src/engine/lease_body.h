// What one sequence holds, and how it gives it back.
//
// The block table has two parts: the first published() tokens lie in blocks that the cache holds, kept for us by the
// handle, without a reference of our own; each block after them has one reference of ours. publish() moves the border:
// the reference on a block that the cache takes becomes the cache's.
//
// Tokens, in ascending order of what is known of them:
//
//     0 ..... handle.tokens() ..... written_ ..... begun_ ..... accepted_ ..... end
//        published             done steps    steps in flight    to compute    drafted
//
// (begun_ may pass accepted_: drafts are written before they are accepted.)
#ifndef CAIRN_ENGINE_LEASE_BODY_H_
#define CAIRN_ENGINE_LEASE_BODY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/lease.h"
#include "cairn/radix_tree.h"
#include "engine/capture_plan.h"
#include "engine/fetch.h"
#include "engine/manager_core.h"
#include "engine/state_load.h"

namespace cairn {

class Lease::Body final : public Parkable {
 public:
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  // Enters the present era, so that lookups made for it are covered.
  explicit Body(std::shared_ptr<ManagerCore> core);
  // A second sequence beside `parent`, in its era, of the same names.
  explicit Body(const Body* parent);
  // Gives everything back. No step of it is in flight.
  ~Body();
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  // Parks it with a step of its own that is in flight. False if there is none.
  [[nodiscard]] bool park() noexcept;

  // ---- As Lease ----

  [[nodiscard]] std::span<const BlockId> table() const { return table_; }
  [[nodiscard]] std::size_t cached() const { return core_->has_blocks() ? first_ : 0; }
  [[nodiscard]] std::size_t first() const { return first_; }
  [[nodiscard]] std::size_t prompt() const { return prompt_; }
  [[nodiscard]] LeaseExplanation explain() const;  // explain.cc
  [[nodiscard]] std::size_t accepted() const { return accepted_; }
  [[nodiscard]] std::size_t end() const { return tokens_start_ + tokens_.size(); }
  [[nodiscard]] std::size_t published() const { return handle_.tokens(); }
  [[nodiscard]] std::size_t written() {
    settle();
    return written_;
  }
  [[nodiscard]] std::optional<RestorePoint> restore_point() const;
  [[nodiscard]] std::span<const BlockCopy> copies() const {
    return loading_ ? std::span<const BlockCopy>() : std::span<const BlockCopy>(copies_);
  }
  [[nodiscard]] std::span<const CapturePoint> capture_points() const { return capture_points_; }

  void load_state(std::size_t shard, std::span<std::byte> to);
  [[nodiscard]] LeaseState state() const;
  [[nodiscard]] int event_fd() { return load().event_fd(); }
  void restored() noexcept;
  void writes(StepId step, std::size_t from, std::size_t to);
  [[nodiscard]] std::size_t reserve(std::size_t tokens);
  void append(std::span<const TokenId> tokens);
  void draft(std::span<const TokenId> tokens);
  void accept(std::size_t tokens);
  void truncate(std::size_t tokens);
  void publish(std::size_t tokens);
  [[nodiscard]] std::optional<SnapshotId> capture(std::size_t tokens);
  bool captured(SnapshotId slot, std::size_t shard);
  void cancel_capture(SnapshotId slot);
  [[nodiscard]] Forked fork();
  [[nodiscard]] ManagerCounts& counts() { return core_->counts(); }
  // Publishes all that can be.
  void publish_rest();

  // ---- Admission fills these ----

  struct Names {
    AdapterId adapter = 0;       // one use of it, unless it is 0
    std::vector<TokenId> media;  // one use of each
    SessionHash session = 0;
    std::size_t publish_limit = kNoLimit;  // tokens beyond are not found by anybody
    std::vector<PrioritySpan> priorities;  // the lowest first; none if they mean nothing
  };
  [[nodiscard]] Names& names() { return names_; }
  // What explain() can't find out later.
  struct Noted {
    std::uint64_t admission = 0;  // number
    ReuseLimit limit = ReuseLimit::kLastToken;
    bool no_fetch = false;
    std::size_t prompt_tokens = 0;
    std::size_t allowed_tokens = 0;  // from here on, of the last look_up
    std::size_t matched_tokens = 0;
    EvictedMemory::Moment moment{};
    std::optional<std::size_t> reused_tokens{};  // none: first()
  };
  [[nodiscard]] Noted& noted() { return noted_; }
  // Looks up `prompt` below `limit` tokens; how many of them have their KV in the cache.
  [[nodiscard]] std::size_t look_up(std::span<const TokenId> prompt, std::size_t limit);
  // After look_up: chooses what is worth fetching beyond, if anything.
  void choose_fetch(std::span<const TokenId> prompt, std::size_t limit);
  // After that: keeps what can be reused, and the prompt's tokens as far as they are needed.
  void begin(std::span<const TokenId> prompt);
  // After begin: begins again, with what memory has below `limit`. Answers as look_up.
  std::size_t begin_again(std::span<const TokenId> prompt, std::size_t limit);
  // As far as blocks have to be there before anything is computed.
  [[nodiscard]] bool is_loading() const { return loading_.has_value(); }
  [[nodiscard]] std::size_t first_after_loading() const { return loading_ ? loading_->tokens : first_; }
  // What was found, what to plan for captures and how to count. Counts, plans, or begins to fetch and does so later.
  struct Admitted {
    std::size_t matched_tokens = 0;
    bool second_sight = false;     // of a place where prompts part
    bool counts = false;           // else it was counted before
    std::size_t asked_blocks = 0;  // full ones that could have matched
  };
  void admitted(const Admitted& admitted);
  [[nodiscard]] BlockId last_matched_block() const { return table_.back(); }

  // ---- Loading (loading.cc) ----

  // Takes note that what was fetched has come. To be called before anything is asked of the lease.
  void settle_fetch();
  // Throws std::invalid_argument: `call` is not for a lease that is loading, or has failed to.
  void refuse_while_loading(const char* call) const;

 private:
  struct Writing {
    std::shared_ptr<Step> step;
    std::size_t from = 0;
    std::size_t to = 0;                 // not above from: it counts for nothing, but may still be writing
    std::vector<BlockId> retired = {};  // that it may use, and none after it; one reference on each
  };
  struct Capture {
    std::size_t tokens = 0;
    CaptureKind kind = CaptureKind::kCheckpoint;
    SnapshotId slot = 0;
    std::vector<bool> shards;  // that are in
    bool lost = false;         // the tokens that it belongs to are gone: never to be published
    bool complete = false;     // and waiting: a sibling for its tail
  };
  using Captures = std::vector<Capture>;
  // Beyond what memory has: the blocks after the handle up to `tokens`, and the state there.
  struct Loading {
    std::size_t tokens = 0;  // to be reused once all has come
    std::vector<TierKey> block_keys{};
    std::vector<Tier> block_tiers{};  // as they were found, parallel to it
    std::optional<TierKey> snapshot_key{};
    Tier snapshot_tier = Tier::kRam;
    SnapshotId slot = 0;  // for that snapshot: ours until `fetch` fills it
    SnapshotPin pin{};    // or the snapshot, if it is resident
    std::shared_ptr<Fetch> fetch{};
    Admitted admitted{};
  };

  [[nodiscard]] std::span<const TokenId> tokens_from(std::size_t first) const {
    return std::span(tokens_).subspan(first - tokens_start_);
  }
  [[nodiscard]] StateLoad& load();
  void plan(std::size_t matched_tokens, bool second_sight);
  void count(const Admitted& admitted, std::size_t from_ram, std::size_t from_file) noexcept;
  void share_blocks(std::size_t tokens);
  void drop_copies() noexcept;
  [[nodiscard]] bool find_records(std::span<const TokenId> prompt, std::size_t limit, Loading& loading);
  [[nodiscard]] FetchBytes bytes_of(const Loading& loading) const;
  [[nodiscard]] bool choose_state(std::span<const TokenId> prompt, Loading& loading, std::size_t reach);
  void start_fetch();
  void give_up_loading(Loading& loading) noexcept;
  void publish_loaded() noexcept;
  [[nodiscard]] bool restore_loaded(Loading& loading, const Fetch::Outcome& outcome);
  [[nodiscard]] bool go_back_to_memory() noexcept;
  struct ByTier {
    std::size_t ram = 0;
    std::size_t file = 0;
  };
  [[nodiscard]] ByTier by_tier(const Loading& loading, const Fetch::Outcome& outcome, std::size_t from_memory,
                               std::size_t blocks_from) const;
  void let_go(SnapshotPin& pin) noexcept;
  void start_at(std::size_t tokens) noexcept { first_ = fixed_ = written_ = begun_ = tokens; }
  void settle() noexcept;
  void lose_writes_beyond(std::size_t tokens) noexcept;
  void add_tokens(std::span<const TokenId> tokens);
  void drop_old_tokens();
  [[nodiscard]] std::size_t estimator_start() const;
  void note_published(std::size_t before) noexcept;
  void retire(BlockId block) noexcept;
  void prioritize(std::size_t from) noexcept;
  [[nodiscard]] std::size_t publish_limit() const;
  [[nodiscard]] std::size_t fixed() const { return std::max(published(), fixed_); }
  [[nodiscard]] Captures::iterator find_capture(SnapshotId slot);
  [[nodiscard]] CaptureKind kind_at(std::size_t tokens) const;
  [[nodiscard]] bool tail_may_come() const;
  void tail_will_not_come() noexcept;
  [[nodiscard]] bool can_be_published(const Capture& capture) const;
  void publish_complete() noexcept;
  void publish_capture(const Capture& capture);
  // For those that may leave memory again.
  [[nodiscard]] Fingerprint fingerprint_at(std::size_t blocks) const;
  void note_fingerprints(std::span<const BlockId> blocks, std::size_t from) noexcept;
  void note_fingerprint(const Capture& capture) noexcept;
  void note_loaded(const Loading& loading) noexcept;
  void note_snapshot(SnapshotId slot, const EvictedMemory::SnapshotPlace& place) noexcept;

  // ---- Explaining (explain.cc) ----
  [[nodiscard]] std::vector<TokenId> prompt_so_far() const;
  void explain_state(std::span<const TokenId> prompt, LeaseExplanation& what) const;
  [[nodiscard]] bool explain_lost_state(std::span<const TokenId> prompt, LeaseExplanation& what) const;
  void explain_block(std::span<const TokenId> prompt, LeaseExplanation& what) const;
  [[nodiscard]] bool explain_evicted(std::span<const TokenId> prompt, LeaseExplanation& what) const;
  [[nodiscard]] bool explain_other(std::span<const TokenId> prompt, LeaseExplanation& what) const;
  void explain_nearest(std::span<const TokenId> prompt, LeaseExplanation& what) const;
  void tell(const EvictedMemory::Eviction& eviction, LeaseExplanation& what) const;
  void abandon_capture(const Capture& capture) noexcept;

  const std::shared_ptr<ManagerCore> core_;
  Names names_;
  Noted noted_;
  PrefixHandle handle_;
  SnapshotPin pin_;
  std::size_t restore_tokens_ = 0;
  SnapshotOrigin restore_origin_ = SnapshotOrigin::kStore;  // of what pin_ had, if anything
  std::vector<BlockId> table_;
  std::vector<BlockCopy> copies_;  // one reference on each block that is copied from
  std::vector<CapturePoint> capture_points_;
  std::shared_ptr<StateLoad> load_;     // made when it is needed
  std::vector<TierKey> stored_blocks_;  // as look_up found them
  std::optional<Loading> loading_;
  bool loading_failed_ = false;  // and there are no blocks to compute what is missing

  // For the manager's SizeEstimator.
  SizeEstimator::Sampled sampled_;             // of the match
  SizeEstimator::Asked asked_;                 // but not found
  std::optional<SizeEstimator::Chain> chain_;  // as far as is published, once anything is

  std::size_t tokens_start_ = 0;  // what comes before is not needed any more
  std::vector<TokenId> tokens_;
  std::size_t prompt_ = 0;
  std::size_t first_ = 0;
  std::size_t accepted_ = 0;
  std::size_t written_ = 0;
  std::size_t begun_ = 0;
  // What comes before is not written by this lease any more: cached at first, or shared with a fork. What is published
  // is not either.
  std::size_t fixed_ = 0;

  std::deque<Writing> writing_;  // in the order in which they were declared
  Captures captures_;
  bool waited_ = false;  // for a step, after its end

  // Last: nobody leaves the era if a member before it can't be made.
  Eras::Era* const era_;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_LEASE_BODY_H_
