#include "engine/steps.h"

#include <utility>

namespace cairn {

std::shared_ptr<Step> Steps::in_flight(StepId id) {
  const MutexLock lock(mutex_);
  const auto known = steps_.find(id);
  if (known != steps_.end()) return known->second;
  auto step = std::make_shared<Step>();
  if (closed_) {
    step->state_.store(Step::State::kDone, std::memory_order_release);
    return step;
  }
  step->begun_ = std::chrono::steady_clock::now();
  steps_.emplace(id, step);
  return step;
}

bool Steps::park(Step& step, Parkable* what) noexcept {
  const MutexLock lock(mutex_);
  if (step.state() != Step::State::kInFlight) return false;
  what->next_parked_ = std::exchange(step.parked_, what);
  ++parked_count_;
  return true;
}

std::optional<Steps::Over> Steps::over(StepId id, Step::State how) noexcept {
  const MutexLock lock(mutex_);
  const auto known = steps_.find(id);
  if (known == steps_.end()) return std::nullopt;
  return end(known, how);
}

std::optional<Steps::Over> Steps::close_one() noexcept {
  const MutexLock lock(mutex_);
  closed_ = true;
  if (steps_.empty()) return std::nullopt;
  return end(steps_.begin(), Step::State::kDone);
}

Steps::Over Steps::end(IdMap<std::shared_ptr<Step>>::iterator known, Step::State how) noexcept {
  Step& step = *known->second;
  step.state_.store(how, std::memory_order_release);
  Parkable* const parked = std::exchange(step.parked_, nullptr);
  for (Parkable* p = parked; p != nullptr; p = p->next_parked_) --parked_count_;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - step.begun_;
  const Over over{
      .parked = parked, .tokens = step.tokens_.load(std::memory_order_relaxed), .seconds = seconds.count()};
  steps_.erase(known);
  return over;
}

Parkable* Steps::next_parked(Parkable* parked) noexcept {
  return std::exchange(parked->next_parked_, nullptr);
}

std::size_t Steps::count() const {
  const MutexLock lock(mutex_);
  return steps_.size();
}

std::size_t Steps::parked_count() const {
  const MutexLock lock(mutex_);
  return parked_count_;
}

}  // namespace cairn
