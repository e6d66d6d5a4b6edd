#include "policy/alpha_tuner.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cairn {
namespace {

constexpr std::size_t kEvictedMax = AlphaTuner::kSlotsMax * AlphaTuner::kWindowSlots;
constexpr double kWorthAChange = 1.01;

}  // namespace

AlphaTuner::AlphaTuner() {
  log_.reserve(log_max_);
  window_.reserve(log_max_);
  make_room(evicted_, kEvictedMax + 1);
  evicted_ring_.resize(kEvictedMax);
}

// ---- What happens ----

void AlphaTuner::log(const Snapshot& snapshot, What what) noexcept {
  if (snapshot.name % sampled_ != 0 || log_.size() >= log_max_) return;
  log_.push_back({.name = snapshot.name,
                  .saved_flops = snapshot.saved_flops,
                  .efficiency = FlopOrder::class_of(snapshot.efficiency),
                  .what = what});
}

void AlphaTuner::put(const Snapshot& snapshot) noexcept {
  const bool again = evicted_.erase(snapshot.name) > 0;
  log(snapshot, again ? What::kPutAgain : What::kPut);
}

void AlphaTuner::used(const Snapshot& snapshot) noexcept {
  log(snapshot, What::kUse);
}

void AlphaTuner::evicted(std::uint64_t name) noexcept {
  try {
    evicted_.insert(name);
  } catch (const std::bad_alloc&) {
    return;  // what it cost will not be seen
  }
  const std::uint64_t oldest = std::exchange(evicted_ring_[evicted_next_], name);
  if (oldest != name) evicted_.erase(oldest);
  evicted_next_ = (evicted_next_ + 1) % evicted_ring_.size();
}

void AlphaTuner::gone(std::uint64_t name) noexcept {
  log({.name = name}, What::kGone);
}

// ---- Replaying ----

void AlphaTuner::take_window(std::size_t slots) {
  if (alpha_ < kAlphas.size() || log_.size() < log_max_ || slots == 0) return;
  // What is logged next is of the size that there is now.
  const std::uint64_t sampled = (slots + kSlotsMax - 1) / kSlotsMax;
  const std::size_t slots_max = std::max<std::size_t>(1, slots / sampled);
  const std::size_t next_max = std::max(kWindowMin, slots_max * kWindowSlots);
  if (sampled != sampled_ || next_max > log_max_) {
    log_.clear();
    log_.reserve(next_max);
    window_.reserve(next_max);
    log_max_ = next_max;
    sampled_ = sampled;
    return;
  }
  const std::size_t most = slots_max + 1;
  while (slots_.size() < most) slots_.emplace_back();
  if (free_.capacity() < slots_.size()) free_.reserve(slots_.size());
  make_room(by_name_, slots_.size());
  slots_max_ = slots_max;
  window_.swap(log_);
  log_.clear();
  alpha_ = 0;
  begin_replay();
}

void AlphaTuner::begin_replay() noexcept {
  order_.clear();
  by_name_.clear();
  free_.clear();
  for (std::size_t i = 0; i < slots_max_; ++i) free_.push_back(&slots_[i]);
  next_ = 0;
  if (alpha_ < kAlphas.size()) saved_[alpha_] = 0;
}

void AlphaTuner::replay_some() noexcept {
  if (alpha_ >= kAlphas.size()) return;
  const std::size_t end = std::min(window_.size(), next_ + kEventsAtOnce);
  for (; next_ < end; ++next_) replay(window_[next_]);
  if (next_ < window_.size()) return;
  ++alpha_;
  begin_replay();
  if (alpha_ < kAlphas.size()) return;
  ++windows_;
  const auto most = static_cast<std::size_t>(std::ranges::max_element(saved_) - saved_.begin());
  if (saved_[most] > kWorthAChange * saved_[best_]) best_ = most;
}

void AlphaTuner::replay(const Event& event) noexcept {
  const auto found = by_name_.find(event.name);
  const bool kept = found != by_name_.end();
  const bool asked_for = event.what == What::kUse || event.what == What::kPutAgain;
  if (kept && asked_for && next_ >= window_.size() / 2) saved_[alpha_] += event.saved_flops;
  if (kept) free_slot(event.name);
  // One that was in the cache and is not in this one stays out until it is put again.
  if (event.what == What::kGone || (event.what == What::kUse && !kept && next_ >= window_.size() / 2)) return;
  put_into_slot(event);
}

void AlphaTuner::put_into_slot(const Event& event) noexcept {
  const std::uint64_t now = next_ + 1;
  if (free_.empty()) {
    auto* const victim = static_cast<Slot*>(order_.first(kAlphas[alpha_], now));
    free_slot(victim->name);
  }
  Slot& slot = *free_.back();
  try {
    by_name_.emplace(event.name, &slot);
  } catch (const std::bad_alloc&) {
    return;  // the replay is a little off
  }
  free_.pop_back();
  slot.name = event.name;
  slot.last_use = now;
  slot.efficiency = event.efficiency;
  order_.insert(slot);
}

void AlphaTuner::free_slot(std::uint64_t name) noexcept {
  const auto found = by_name_.find(name);
  Slot* const slot = found->second;
  order_.erase(*slot);
  free_.push_back(slot);
  by_name_.erase(found);
}

}  // namespace cairn
