// One running sequence: a lease, what the model says its bytes are, and the checks of all that the lease hands out.
#ifndef CAIRN_REPLAY_VERIFIED_SEQUENCE_H_
#define CAIRN_REPLAY_VERIFIED_SEQUENCE_H_

#include <cairn/cache_manager.h>
#include <cairn/lease.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replay/verifying_engine.h"
#include "replay/verifying_model.h"

namespace cairn::replay {

// A cairn::Request that owns what it names.
struct VerifiedRequest {
  std::string name;  // in messages
  std::vector<TokenId> tokens;
  SessionHash session = 0;
  std::string adapter{};
  std::uint64_t adapter_generation = 0;
  std::string tenant_salt{};
  std::vector<MediaSpan> media{};
  bool no_read = false;
  bool no_fetch = false;
  bool no_publish = false;
  std::size_t reuse_tokens_max = std::numeric_limits<std::size_t>::max();
  std::optional<std::size_t> reserve_tokens{};
  bool resumed = false;
  std::uint64_t weights = 0;  // of the model: other weights, other bytes

  [[nodiscard]] cairn::Request view() const;
};

// What the engine does with a sequence, in small steps; the one who drives it decides which, and when steps are done.
// Belongs to one thread at a time, as its lease. Dropping it abandons the lease. If a call throws (std::bad_alloc,
// say), the sequence can be driven on, or dropped. Calls that need the lease throw std::invalid_argument, as it does,
// once it has ended. All can throw ReplayError: the cache broke a promise.
//
// With a store it may be loading at first: then loaded() or wait_until_loaded() have to say that this is over before
// anything else is called but name(), running(), lease() and abandon().
class VerifiedSequence {
 public:
  struct Start;
  // Admits the request. Throws as CacheManager::admit.
  [[nodiscard]] static Start start(VerifyingEngine& engine, VerifiedRequest request);

  VerifiedSequence(VerifiedSequence&&) noexcept = default;
  VerifiedSequence& operator=(VerifiedSequence&&) noexcept = default;
  VerifiedSequence(const VerifiedSequence&) = delete;
  VerifiedSequence& operator=(const VerifiedSequence&) = delete;
  ~VerifiedSequence() = default;

  [[nodiscard]] const std::string& name() const { return *name_; }
  [[nodiscard]] bool running() const { return lease_.valid(); }
  [[nodiscard]] const Lease& lease() const { return lease_; }
  // All tokens so far, drafted ones included.
  [[nodiscard]] std::span<const TokenId> tokens() const { return request_.tokens; }
  // Of these, steps have been joined for so many, and have not failed.
  [[nodiscard]] std::size_t computed_tokens() const { return computed_; }
  [[nodiscard]] bool all_computed() const { return computed_ == request_.tokens.size(); }

  // Whether the lease waits for nothing. If it is kFailed, all that can be done is to abandon it.
  [[nodiscard]] bool loaded();
  // Sleeps until loaded(), and says whether the lease is kReady. Throws ReplayError: it is loading still.
  [[nodiscard]] bool wait_until_loaded(std::chrono::milliseconds timeout);

  // Makes the copies, reads the state, checks both and every block with cached tokens, and says restored(). Once;
  // whatever needs it calls it. To be called early or late.
  void restore();

  // Joins `step` with the next tokens, `tokens` of them at most: up to the end or a capture point, whose state the
  // step then captures (and that of a capture point where it begins, if that is the state that was restored). Returns
  // how many blocks are missing; then it has not joined. Throws std::logic_error: nothing is left to compute.
  [[nodiscard]] std::size_t compute(VerifiedStep& step, std::size_t tokens = std::numeric_limits<std::size_t>::max());
  // As compute, with a step of its own that is done at once, and again until nothing is left to compute; `chunk`
  // tokens for each step at most. Returns as compute: what is missing when it had to stop.
  [[nodiscard]] std::size_t compute_all(std::size_t chunk = std::numeric_limits<std::size_t>::max());
  // Has `step`, the last one joined, capture the state after computed_tokens(), wherever that is. False: declined.
  bool capture(VerifiedStep& step);

  void append(std::span<const TokenId> tokens);
  void draft(std::span<const TokenId> tokens);
  // Accepts that many of the drafted tokens and forgets the rest.
  void verify(std::size_t accepted);
  void truncate(std::size_t tokens);

  // Publishes, and checks the blocks that have come in the place of others. Returns published_tokens().
  std::size_t publish(std::size_t tokens = std::numeric_limits<std::size_t>::max());
  // Takes note of steps that are settled: reports their captures, goes back to what is written if one has failed. All
  // other calls begin with it.
  void settle();
  // Checks every byte that is written.
  void check_everything();

  struct Forked;
  // The child has made its copies already.
  [[nodiscard]] Forked fork(std::string name);
  // Publishes, checks, and ends the lease.
  void finish();
  // Ends it, and returns the request to come back with.
  VerifiedRequest preempt();
  void abandon() noexcept { lease_.abandon(); }

 private:
  struct PendingCapture {
    SnapshotId slot = 0;
    std::size_t tokens = 0;
    std::shared_ptr<const StepOutcome> outcome;
    std::size_t shards_reported = 0;
    bool lost = false;  // what it is of has failed or was forgotten: to be cancelled
  };

  VerifiedSequence(VerifyingEngine& engine, VerifiedRequest request, Lease lease, ModelSequence model);

  void begin();
  void check_admission() const;
  [[nodiscard]] std::optional<std::size_t> next_capture_point(std::size_t from, std::size_t to) const;
  bool capture_at(VerifiedStep& step, std::size_t tokens);
  void lose_captures_beyond(std::size_t tokens);
  void settle_captures();
  // What has changed in the block table since the last call: others' blocks, and new ones.
  void follow_table();
  [[nodiscard]] std::vector<BlockPart> parts(std::size_t from, std::size_t to) const;
  void check_blocks(std::size_t from, std::size_t to) const;
  void add_tokens(std::span<const TokenId> tokens, void (Lease::*add)(std::span<const TokenId>));
  [[noreturn]] void broken(const std::string& what) const;

  VerifyingEngine* engine_;
  std::shared_ptr<const std::string> name_;
  VerifiedRequest request_;  // its tokens grow
  ModelSequence model_;
  Lease lease_;
  bool loading_ = false;
  bool restored_ = false;
  std::size_t computed_ = 0;
  std::vector<BlockId> table_;  // as last seen
  std::vector<std::shared_ptr<const StepOutcome>> in_flight_;
  std::vector<PendingCapture> captures_;
};

struct VerifiedSequence::Start {
  std::optional<VerifiedSequence> sequence{};
  std::size_t missing_blocks = 0;  // as Admission
  bool never_fits = false;
};

struct VerifiedSequence::Forked {
  std::optional<VerifiedSequence> sequence{};
  std::size_t missing_blocks = 0;
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_VERIFIED_SEQUENCE_H_
