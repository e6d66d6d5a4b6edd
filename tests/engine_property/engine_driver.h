// Does the operations of a program with a cache manager, as an engine would, and checks all that can be checked.
//
// The bytes are checked by the verifying engine beneath. The driver keeps its own account of what it did (Tally, and
// which steps each sequence has a part in), and from that says what the manager has to report. Alone with its manager
// it compares after every operation; of several drivers the sum is compared at the end.
#ifndef CAIRN_TESTS_ENGINE_PROPERTY_ENGINE_DRIVER_H_
#define CAIRN_TESTS_ENGINE_PROPERTY_ENGINE_DRIVER_H_

#include <cairn/cache_manager.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine_property/broken.h"
#include "engine_property/engine_program.h"
#include "engine_property/shared_engine.h"
#include "replay/verified_sequence.h"
#include "replay/verifying_engine.h"
#include "support/operation_decoder.h"

namespace cairn::testing {

// What the driver's calls have come to; ManagerStats has the same.
struct Tally {
  std::uint64_t requests = 0;
  std::uint64_t resumed = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t reused_tokens = 0;
  std::uint64_t memory_tokens = 0;  // of those; only known to a driver that is alone
  std::uint64_t refused_admissions = 0;
  std::uint64_t refused_reserves = 0;
  std::uint64_t finished = 0;
  std::uint64_t preempted = 0;
  std::uint64_t abandoned = 0;
  std::uint64_t forks = 0;
  std::uint64_t failed_steps = 0;
  std::uint64_t waits = 0;
  // Not the manager's: how often an allocation was made to fail.
  std::uint64_t failed_allocations = 0;

  Tally& operator+=(const Tally& other);
};
// Empty if the manager counts the same.
[[nodiscard]] std::string compare(const Tally& tally, const ManagerStats& stats);

// Belongs to one thread.
class EngineDriver {
 public:
  // Alone: nobody else uses the manager. `name` begins the names of its sequences.
  EngineDriver(SharedEngine& shared, std::string name, bool alone);
  EngineDriver(const EngineDriver&) = delete;
  EngineDriver& operator=(const EngineDriver&) = delete;
  ~EngineDriver() = default;

  // Says what each operation did.
  void trace_to(std::ostream* trace) { trace_ = trace; }

  // Throws Broken, replay::ReplayError, or whatever else a call should not have thrown.
  void run(const EngineOperation& operation);
  // Settles all steps and ends all sequences, as the settings say; gives back what somebody else held. If sequences
  // are to outlive the manager, end_orphans() has to follow.
  void end();
  void end_orphans();

  [[nodiscard]] const Tally& tally() const { return tally_; }  // with this manager
  [[nodiscard]] Tally tally_in_all() const {
    Tally sum = past_;
    sum += tally_;
    return sum;
  }
  [[nodiscard]] std::uint64_t restarts() const { return restarts_; }
  [[nodiscard]] std::uint64_t loading_abandoned() const { return loading_abandoned_; }

 private:
  static constexpr std::size_t kSequencesMax = 5;
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  struct Sequence {
    replay::VerifiedSequence verified;
    replay::VerifiedRequest request;  // what it began with, but for the tokens
    std::size_t adapter = 0;
    std::size_t floor = 0;               // it is not truncated below, nor below what is published
    std::size_t tokens_min = 0;          // that it has had: what follows is not media any more
    bool floor_known = true;             // else it may be lower: an allocation failed in a fork
    bool loading = false;                // and so not counted yet
    std::size_t from_memory = 0;         // while it is loading: what memory alone lets it reuse
    std::size_t joined_to = 0;           // computed_tokens() after it joined a step last
    std::vector<std::uint64_t> steps{};  // that it has a part in and that are not settled
  };
  struct Step {
    explicit Step(replay::VerifyingEngine& engine) : verified(engine) {}
    replay::VerifiedStep verified;
    std::vector<std::uint64_t> earlier{};  // steps that have to be settled before it
    bool submitted = false;
    bool declared = false;  // a sequence has a part in it
    // A sequence has gone back before what the step writes. The verifying engine takes what is computed after it for
    // worthless if it fails, though that does not rest on it any more.
    bool has_to_be_done = false;
  };
  struct Preempted {
    replay::VerifiedRequest request;
    std::size_t adapter = 0;
  };
  // What a sequence that has ended may go on with: the next turn of a conversation.
  using Turns = std::vector<replay::VerifiedRequest>;
  using Steps = std::vector<std::unique_ptr<Step>>;

  // ---- Requests ----
  [[nodiscard]] replay::VerifiedRequest make_request(const EngineOperation& operation);
  void admit(const EngineOperation& operation);
  void resume(const EngineOperation& operation);
  void serve(const EngineOperation& operation);
  void run_on(const EngineOperation& operation);
  bool run_on(Sequence& sequence, const EngineOperation& operation);
  bool start(replay::VerifiedRequest request, std::size_t adapter);
  void check_reuse(const Sequence& sequence, const Peeked& peeked, const ManagerStats& before);
  void failed_to_start(const replay::VerifiedRequest& request);
  void check_refusal(const replay::VerifiedRequest& request, const replay::VerifiedSequence::Start& start, bool idle);
  void peek(const EngineOperation& operation);

  // ---- Steps ----
  void compute(const EngineOperation& operation);
  void capture(const EngineOperation& operation);
  void restore(const EngineOperation& operation);
  void settle(const EngineOperation& operation);
  void check_bytes(const EngineOperation& operation);
  void submit(const EngineOperation& operation);
  void done(const EngineOperation& operation);
  void fail(const EngineOperation& operation);
  [[nodiscard]] bool can_end(const Step& step) const;
  [[nodiscard]] std::vector<std::uint64_t> steps_that_can_end() const;
  [[nodiscard]] Steps::iterator find_step(std::uint64_t id);
  void settled(Steps::iterator step, bool well);
  void gone_back(const Sequence& sequence);
  void settle_all_steps();

  // ---- Tokens, publishing, forks, ends ----
  void append(const EngineOperation& operation);
  void draft(const EngineOperation& operation);
  void verify(const EngineOperation& operation);
  void truncate(const EngineOperation& operation);
  void publish(const EngineOperation& operation);
  void fork(const EngineOperation& operation);
  void finish(const EngineOperation& operation);
  void preempt(const EngineOperation& operation);
  void abandon(const EngineOperation& operation);
  void replace(const EngineOperation& operation);
  void check_floor(Sequence& sequence, std::size_t below);
  void remember_turn(const Sequence& sequence);
  void ended(Sequence& sequence);
  void clear(const EngineOperation& operation);
  void clear_adapter(const EngineOperation& operation);
  void cleared(const ClearReport& report);

  // ---- Stores (engine_driver_stores.cc) ----
  void answer(const EngineOperation& operation);
  void direct_store(const EngineOperation& operation);
  void flush(const EngineOperation& operation);
  void save(const EngineOperation& operation);
  void restart(const EngineOperation& operation);
  void end_all_sequences(bool finish);
  // Whether it has come to the end of that. One that has failed has to go.
  [[nodiscard]] bool poll(Sequence& sequence);
  void wait_until_loaded(Sequence& sequence);
  // Once, when it is not loading any more: what it reuses.
  void count_reuse(Sequence& sequence, std::size_t reused, std::size_t from_memory);
  void abandon(Sequence& sequence);
  void check_stores(const ManagerStats& stats);
  [[nodiscard]] bool any_loading() const;
  [[nodiscard]] static bool has_failed(const Sequence& sequence);

  // ---- Somebody else ----
  void hold_blocks(const EngineOperation& operation);
  void hold_slots(const EngineOperation& operation);
  void let_go(const EngineOperation& operation);
  void let_go();

  // ---- Checks ----
  void check();
  void check_what_is_now(const ManagerStats& stats) const;
  void check_references(const ManagerStats& stats);
  void check_idle();

  // Lets an allocation fail in it, if the operation says so; false if it did and the call threw.
  template <class Call>
  bool attempt(const Call& call);
  // None: there are none, or it is loading.
  [[nodiscard]] Sequence* pick(const EngineOperation& operation);
  void erase(const Sequence& sequence);
  [[nodiscard]] bool has_drafts(const Sequence& sequence) const;
  [[nodiscard]] static bool would_capture_a_draft(const Lease& lease);
  [[nodiscard]] std::vector<TokenId> tokens_of(const EngineOperation& operation, std::size_t room) const;
  template <class... Args>
  void note(const Args&... args);

  SharedEngine& shared_;
  const std::string name_;
  const bool alone_;
  std::ostream* trace_ = nullptr;
  PromptBook prompts_;
  Tally tally_;
  Tally past_;  // with managers before this one
  std::uint64_t restarts_ = 0;
  std::uint64_t loading_abandoned_ = 0;
  std::uint8_t fault_ = 0;  // of the operation that is under way

  std::size_t named_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<Preempted> preempted_;
  Turns turns_;
  std::size_t next_turn_ = 0;  // that is replaced
  Steps steps_;
  std::vector<std::vector<std::uint64_t>> waiting_;  // of sequences that have ended: their steps that are not settled
  std::vector<BlockId> held_blocks_;
  std::vector<SnapshotId> held_slots_;
  std::uint64_t cleared_blocks_ = 0;
  bool cleared_blocks_known_ = true;  // a clear that threw may have done a part of its work
  std::size_t since_references_ = 0;
  std::size_t since_files_ = 0;
  // Leases that were loading have gone: what is fetched for them comes all the same.
  bool strays_ = false;
  bool cleared_since_flush_ = false;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_ENGINE_PROPERTY_ENGINE_DRIVER_H_
