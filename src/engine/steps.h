// Which of the engine's steps are in flight, and what waits for them.
//
// A lease that ends while steps of it are in flight must keep what they read and write: its body is parked with one of
// them and taken up again when that one is over.
#ifndef CAIRN_ENGINE_STEPS_H_
#define CAIRN_ENGINE_STEPS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/containers.h"
#include "base/mutex.h"
#include "cairn/lease.h"

namespace cairn {

// What can wait for a step; a lease's body. Linked into the step it waits for.
class Parkable {
 protected:
  Parkable() = default;
  ~Parkable() = default;

 private:
  friend class Steps;
  Parkable* next_parked_ = nullptr;  // under Steps::mutex_
};

// One submission. Shared by the leases that take part and the table, while it is in flight.
class Step {
 public:
  enum class State : std::uint8_t { kInFlight, kDone, kFailed };

  // Acquire, the partner of the release in Steps::over: who sees that a step is done sees what its caller wrote
  // before.
  [[nodiscard]] State state() const { return state_.load(std::memory_order_acquire); }
  // Tokens that a lease has it write: for measuring, so nothing is ordered by it.
  void add_tokens(std::size_t tokens) noexcept { tokens_.fetch_add(tokens, std::memory_order_relaxed); }

 private:
  friend class Steps;
  std::atomic<State> state_{State::kInFlight};
  std::atomic<std::size_t> tokens_{0};
  std::chrono::steady_clock::time_point begun_;
  Parkable* parked_ = nullptr;  // under Steps::mutex_
};

// Thread-safe; its lock is a leaf.
class Steps {
 public:
  // The step in flight with that id, new if there is none; after close(), one that is done. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<Step> in_flight(StepId id);

  // Parks `what` with `step`, if that is in flight still. False, and nothing happens, if it is over. Never allocates.
  [[nodiscard]] bool park(Step& step, Parkable* what) noexcept;

  struct Over {
    Parkable* parked = nullptr;  // what was parked with it: the first of a list that next_parked() goes along
    std::size_t tokens = 0;      // that it wrote
    double seconds = 0;          // since it was declared
  };
  // The step is over: from now on its state is `how`. None if there is no such step in flight.
  std::optional<Over> over(StepId id, Step::State how) noexcept;
  [[nodiscard]] static Parkable* next_parked(Parkable* parked) noexcept;
  // Nobody will say any more that a step is over: there are no new ones. Ends one of those in flight as done and
  // answers as over(); none if there are none left.
  std::optional<Over> close_one() noexcept;

  [[nodiscard]] std::size_t count() const;
  [[nodiscard]] std::size_t parked_count() const;

 private:
  Over end(IdMap<std::shared_ptr<Step>>::iterator known, Step::State how) noexcept CAIRN_REQUIRES(mutex_);

  mutable Mutex mutex_;
  IdMap<std::shared_ptr<Step>> steps_ CAIRN_GUARDED_BY(mutex_);
  bool closed_ CAIRN_GUARDED_BY(mutex_) = false;
  std::size_t parked_count_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_STEPS_H_
