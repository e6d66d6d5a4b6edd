#include "support/faulty_io.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "base/mutex.h"

namespace cairn::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool transfers(const IoRequest& request) {
  return request.kind == IoRequest::Kind::kRead || request.kind == IoRequest::Kind::kWrite;
}

void leave_rubbish(const IoRequest& request, std::size_t from) {
  constexpr int kRubbish = 0xA5;
  if (request.kind == IoRequest::Kind::kRead) std::memset(request.memory + from, kRubbish, request.length - from);
}

}  // namespace

class FaultPlan::Impl {
 public:
  // What is to happen to the operation that is submitted now.
  std::optional<IoFault> decide(const IoRequest& request) {
    const MutexLock lock(mutex_);
    ++operations_.at(static_cast<std::size_t>(request.kind));
    std::optional<IoFault> chosen;
    for (Planned& planned : planned_) {
      const IoFault& fault = planned.fault;
      if (fault.kind.has_value() && *fault.kind != request.kind) continue;
      if (fault.effect == IoFault::Effect::kShort && (!transfers(request) || request.length <= fault.bytes)) continue;
      ++planned.seen;
      const bool strikes = planned.seen >= fault.nth && planned.seen - fault.nth < fault.count;
      if (strikes && !chosen.has_value()) chosen = fault;
    }
    if (!chosen.has_value() && draw_below_one() < probability_) chosen = random_fault(request);
    if (chosen.has_value()) ++faults_;
    if (chosen.has_value() && chosen->effect == IoFault::Effect::kSlow) ++slow_;
    return chosen;
  }

  void add(const IoFault& fault) {
    const MutexLock lock(mutex_);
    planned_.push_back({.fault = fault});
  }
  void add_random(std::uint64_t seed, double probability, bool lose) {
    const MutexLock lock(mutex_);
    random_.seed(seed);
    probability_ = probability;
    random_loses_ = lose;
  }
  void heal() {
    {
      const MutexLock lock(mutex_);
      planned_.clear();
      probability_ = 0;
    }
    release();
  }
  void release() {
    const MutexLock lock(mutex_);
    ++releases_;
    for (AsyncIo* io : waiting_) io->wake();
  }

  // `io` is woken by release() from now on.
  void enter(AsyncIo* io) {
    const MutexLock lock(mutex_);
    waiting_.push_back(io);
  }
  void leave(AsyncIo* io, std::size_t slow) {
    const MutexLock lock(mutex_);
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), io));
    slow_ -= slow;
  }
  void slow_one_is_done() {
    const MutexLock lock(mutex_);
    --slow_;
  }

  std::uint64_t releases() {
    const MutexLock lock(mutex_);
    return releases_;
  }
  std::uint64_t operations(IoRequest::Kind kind) {
    const MutexLock lock(mutex_);
    return operations_.at(static_cast<std::size_t>(kind));
  }
  std::uint64_t operations() {
    const MutexLock lock(mutex_);
    std::uint64_t sum = 0;
    for (const std::uint64_t count : operations_) sum += count;
    return sum;
  }
  std::uint64_t faults() {
    const MutexLock lock(mutex_);
    return faults_;
  }
  std::size_t slow() {
    const MutexLock lock(mutex_);
    return slow_;
  }

 private:
  struct Planned {
    IoFault fault;
    std::uint64_t seen = 0;  // operations it could have been meant for
  };

  double draw_below_one() CAIRN_REQUIRES(mutex_) {
    return probability_ > 0 ? static_cast<double>(random_() >> 11) * 0x1p-53 : 1.0;
  }
  std::uint64_t draw(std::uint64_t below) CAIRN_REQUIRES(mutex_) { return random_() % below; }

  IoFault random_fault(const IoRequest& request) CAIRN_REQUIRES(mutex_) {
    static constexpr std::array kErrors{EIO, ENOSPC, EROFS};
    static constexpr std::array kEffects{IoFault::Effect::kFail, IoFault::Effect::kShort, IoFault::Effect::kSlow,
                                         IoFault::Effect::kLose};
    IoFault fault{.effect = kEffects.at(draw(random_loses_ ? 4 : 3))};
    fault.error = kErrors.at(draw(kErrors.size()));
    fault.done_all_the_same = draw(2) == 0;
    fault.operations_until_done = 1 + draw(8);
    fault.waits_until_done = 1 + draw(8);
    if (fault.effect == IoFault::Effect::kShort) {
      const std::uint64_t pages = transfers(request) ? request.length / 4096 : 0;
      if (pages > 0) fault.bytes = 4096 * draw(pages);
      if (pages == 0) fault.effect = IoFault::Effect::kFail;
    }
    return fault;
  }

  Mutex mutex_;
  std::vector<Planned> planned_ CAIRN_GUARDED_BY(mutex_);
  std::mt19937_64 random_ CAIRN_GUARDED_BY(mutex_);
  double probability_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool random_loses_ CAIRN_GUARDED_BY(mutex_) = false;
  std::array<std::uint64_t, 4> operations_ CAIRN_GUARDED_BY(mutex_){};  // by kind
  std::uint64_t faults_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::size_t slow_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t releases_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::vector<AsyncIo*> waiting_ CAIRN_GUARDED_BY(mutex_);
};

FaultPlan::FaultPlan() : impl_(std::make_shared<Impl>()) {}
FaultPlan::~FaultPlan() = default;
void FaultPlan::add(const IoFault& fault) {
  impl_->add(fault);
}
void FaultPlan::add_random(std::uint64_t seed, double probability, bool lose) {
  impl_->add_random(seed, probability, lose);
}
void FaultPlan::heal() {
  impl_->heal();
}
void FaultPlan::release() {
  impl_->release();
}
std::uint64_t FaultPlan::operations() const {
  return impl_->operations();
}
std::uint64_t FaultPlan::operations(IoRequest::Kind kind) const {
  return impl_->operations(kind);
}
std::uint64_t FaultPlan::faults() const {
  return impl_->faults();
}
std::size_t FaultPlan::slow_operations() const {
  return impl_->slow();
}

// One thread's, but for real->wake().
class FaultyIo::Impl {
 public:
  Impl(std::unique_ptr<AsyncIo> real, const FaultPlan& plan) : plan_(plan.impl_), real_(std::move(real)) {
    plan_->enter(real_.get());
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { plan_->leave(real_.get(), slow_.size()); }

  AsyncIo& real() { return *real_; }

  void submit(const IoRequest& request) {
    ++submitted_;
    const std::optional<IoFault> fault = plan_->decide(request);
    if (!fault.has_value()) {
      pass_on(request, {.token = request.token});
    } else {
      strike(request, *fault);
    }
    do_due_ones();
  }

  std::size_t wait(std::span<IoResult> results, milliseconds timeout) {
    const Clock::time_point deadline = Clock::now() + std::min<milliseconds>(timeout, std::chrono::hours(24));
    ++waits_;
    for (;;) {
      do_due_ones();
      const bool idle = under_way_.empty() && waits_for_waits();
      const Clock::duration left = ready_.empty() && !idle ? deadline - Clock::now() : Clock::duration::zero();
      const std::size_t taken = take_from_real(results.size(), std::max(left, Clock::duration::zero()));
      if (!ready_.empty()) return hand_out(results);
      if (taken == 0 && (idle || Clock::now() >= deadline || !some_are_due())) return 0;
    }
  }

 private:
  // An operation that the real one has.
  struct UnderWay {
    std::uint64_t token = 0;
    int error = 0;  // what it is said to have failed with, done as it is
    bool lost = false;
  };
  struct Slow {
    IoRequest request;
    std::uint64_t due_at_submitted = 0;
    std::uint64_t due_at_waits = 0;
    std::uint64_t releases = 0;  // when it was submitted
  };

  void strike(const IoRequest& request, const IoFault& fault) {
    constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
    const bool loses = fault.effect == IoFault::Effect::kLose;
    switch (fault.effect) {
      case IoFault::Effect::kFail:
      case IoFault::Effect::kLose:
        if (fault.done_all_the_same) {
          pass_on(request, {.token = request.token, .error = loses ? 0 : fault.error, .lost = loses});
          break;
        }
        leave_rubbish(request, 0);
        if (!loses) ready_.push_back({.token = request.token, .error = fault.error});
        break;
      case IoFault::Effect::kShort: {
        IoRequest part = request;
        part.length = fault.bytes;
        leave_rubbish(request, part.length);
        if (part.length > 0) pass_on(part, {.token = request.token});
        if (part.length == 0) ready_.push_back({.token = request.token});
        break;
      }
      case IoFault::Effect::kSlow: {
        const std::uint64_t operations = fault.operations_until_done;
        const std::uint64_t waits = fault.waits_until_done;
        slow_.push_back({.request = request,
                         .due_at_submitted = operations > 0 ? submitted_ + operations : kNever,
                         .due_at_waits = waits > 0 ? waits_ + waits : kNever,
                         .releases = plan_->releases()});
        break;
      }
    }
  }

  void pass_on(const IoRequest& request, const UnderWay& what) {
    IoRequest passed = request;
    passed.token = next_++;
    under_way_.emplace(passed.token, what);
    real_->submit(passed);
  }

  [[nodiscard]] bool is_due(const Slow& slow, std::uint64_t releases) const {
    return submitted_ >= slow.due_at_submitted || waits_ >= slow.due_at_waits || releases != slow.releases;
  }
  bool some_are_due() {
    const std::uint64_t releases = plan_->releases();
    return std::any_of(slow_.begin(), slow_.end(), [&](const Slow& slow) { return is_due(slow, releases); });
  }
  [[nodiscard]] bool waits_for_waits() const {
    return std::any_of(slow_.begin(), slow_.end(), [](const Slow& slow) {
      return slow.due_at_waits != std::numeric_limits<std::uint64_t>::max();
    });
  }
  void do_due_ones() {
    if (slow_.empty()) return;
    const std::uint64_t releases = plan_->releases();
    std::vector<Slow> later;
    for (const Slow& slow : slow_) {
      if (!is_due(slow, releases)) {
        later.push_back(slow);
        continue;
      }
      plan_->slow_one_is_done();
      pass_on(slow.request, {.token = slow.request.token});
    }
    slow_ = std::move(later);
  }

  // How many came, those that are lost here included.
  std::size_t take_from_real(std::size_t count_max, Clock::duration timeout) {
    std::vector<IoResult> results(count_max);
    const std::size_t count = real_->wait(results, std::chrono::ceil<milliseconds>(timeout));
    for (const IoResult& result : std::span(results).first(count)) {
      const UnderWay what = under_way_.extract(result.token).mapped();
      if (what.lost) continue;
      const int error = what.error != 0 ? what.error : result.error;
      ready_.push_back({.token = what.token, .error = error, .bytes = error == 0 ? result.bytes : 0});
    }
    return count;
  }

  std::size_t hand_out(std::span<IoResult> results) {
    const std::size_t count = std::min(results.size(), ready_.size());
    const auto end = ready_.begin() + static_cast<std::ptrdiff_t>(count);
    std::copy(ready_.begin(), end, results.begin());
    ready_.erase(ready_.begin(), end);
    return count;
  }

  const std::shared_ptr<FaultPlan::Impl> plan_;
  const std::unique_ptr<AsyncIo> real_;
  std::map<std::uint64_t, UnderWay> under_way_;  // by the real one's token
  std::vector<Slow> slow_;                       // not done
  std::vector<IoResult> ready_;                  // not handed out
  std::uint64_t next_ = 1;
  std::uint64_t submitted_ = 0;
  std::uint64_t waits_ = 0;
};

FaultyIo::FaultyIo(std::unique_ptr<AsyncIo> real, std::shared_ptr<FaultPlan> plan)
    : impl_(std::make_unique<Impl>(std::move(real), *plan)) {}
FaultyIo::~FaultyIo() = default;
std::string_view FaultyIo::name() const noexcept {
  return impl_->real().name();
}
std::size_t FaultyIo::depth() const noexcept {
  return impl_->real().depth();
}
void FaultyIo::submit(const IoRequest& request) noexcept {
  impl_->submit(request);
}
std::size_t FaultyIo::wait(std::span<IoResult> results, std::chrono::milliseconds timeout) noexcept {
  return impl_->wait(results, timeout);
}
void FaultyIo::wake() noexcept {
  impl_->real().wake();
}

}  // namespace cairn::testing
