#include "index/gate.h"

#include <algorithm>
#include <bit>

namespace cairn {
namespace {

// A number that no other thread has as long as this one lives, while there are any: the lowest that is free, so that
// writers need not look at the slots of threads long gone.
class ThreadNumber {
 public:
  ThreadNumber() noexcept {
    for (std::size_t i = 0; i < taken.size(); ++i) {
      std::uint64_t seen = taken[i].load(std::memory_order_relaxed);  // nothing else depends on the numbers
      while (~seen != 0) {
        const std::uint64_t lowest = ~seen & (seen + 1);
        if (!taken[i].compare_exchange_weak(seen, seen | lowest, std::memory_order_relaxed)) continue;
        value_ = i * kBits + static_cast<std::size_t>(std::countr_one(seen));
        bit_ = lowest;
        return;
      }
    }
  }
  ~ThreadNumber() { taken[value_ / kBits].fetch_sub(bit_, std::memory_order_relaxed); }
  ThreadNumber(const ThreadNumber&) = delete;
  ThreadNumber& operator=(const ThreadNumber&) = delete;

  [[nodiscard]] std::size_t value() const noexcept { return value_; }

 private:
  static constexpr std::size_t kBits = 64;
  inline static std::array<std::atomic<std::uint64_t>, 2> taken{};
  std::size_t value_ = 0;
  std::uint64_t bit_ = 0;  // none if there was none left: then 0 is shared
};

// Which slot a thread tries first.
std::size_t preferred_slot() noexcept {
  thread_local const ThreadNumber number;
  return number.value();
}

}  // namespace

// ---- Readers ----

Gate::Reader::Reader(Gate& gate) : slot_(gate.claim_slot()), epoch_(slot_.word.load(std::memory_order_relaxed) >> 1) {
  // If the epoch moved on before the claim was seen, memory of the old one may be gone: move on as well.
  for (std::uint64_t now = gate.epoch_.load(); now != epoch_; now = gate.epoch_.load()) {
    epoch_ = now;
    slot_.word.store(now << 1);
  }
}

Gate::Slot& Gate::claim_slot() noexcept {
  Backoff backoff;
  for (std::size_t i = preferred_slot();; ++i) {
    const std::size_t index = i % kNumSlots;
    std::size_t used = slots_used_.load();
    while (used <= index && !slots_used_.compare_exchange_weak(used, index + 1)) {
    }
    std::uint64_t free = 0;
    if (slots_[index].word.compare_exchange_strong(free, epoch_.load() << 1)) return slots_[index];
    if (i - preferred_slot() > kNumSlots) backoff.pause();
  }
}

Gate::Commit::Commit(Gate& gate, Reader& reader) : reader_(reader) {
  const std::uint64_t idle = reader.epoch_ << 1;
  while (true) {
    reader.slot_.word.store(idle | 1);
    if (!gate.closed_.load()) return;
    reader.slot_.word.store(idle, std::memory_order_release);
    for (Backoff backoff; gate.closed_.load(std::memory_order_acquire);) backoff.pause();
  }
}

// ---- Writers ----

Gate::Closed::Closed(Gate& gate) : gate_(gate) {
  gate.closed_.store(true);
  const std::size_t used = gate.slots_used_.load();
  for (std::size_t i = 0; i < used; ++i) {
    for (Backoff backoff; gate.slots_[i].word.load() & 1;) backoff.pause();
  }
}

Gate::ReaderCounters Gate::counters() const {
  ReaderCounters sum;
  for (std::size_t i = 0; i < slots_used_.load(); ++i) {
    const ReaderCounters& counters = slots_[i].counters;
    sum.lookups += counters.lookups;
    sum.hit_tokens += counters.hit_tokens;
    sum.missed_tokens += counters.missed_tokens;
    sum.protocol_errors += counters.protocol_errors;
  }
  return sum;
}

std::uint64_t Gate::reclaim() noexcept {
  // Who comes from now on does not see what was unlinked before.
  std::uint64_t oldest = epoch_.fetch_add(1) + 1;
  const std::size_t used = slots_used_.load();
  for (std::size_t i = 0; i < used; ++i) {
    const std::uint64_t word = slots_[i].word.load();
    if (word != 0) oldest = std::min(oldest, word >> 1);
  }
  const auto first_kept =
      std::ranges::find_if(retired_, [oldest](const Retired& retired) { return retired.epoch >= oldest; });
  retired_.erase(retired_.begin(), first_kept);
  return oldest;
}

}  // namespace cairn
