#include "interleaving/virtual_threads.h"

#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "interleaving/yielding.h"

#if defined(__SANITIZE_ADDRESS__)
#define CAIRN_TEST_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CAIRN_TEST_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(CAIRN_TEST_ADDRESS_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#endif

namespace cairn::testing {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 18;
constexpr std::size_t kAccessesMax = 100'000;  // of one run; the scenarios need some hundreds

// A place to run on: the stack of a virtual thread, or the one that came before them.
struct Context {
  ucontext_t state{};
  const void* stack_bottom = nullptr;
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // the address sanitizer's
};

// `ends`: nobody will come back to `from`.
void switch_context(Context& from, Context& to, [[maybe_unused]] bool ends) {
#if defined(CAIRN_TEST_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.stack_bottom, to.stack_bytes);
#endif
  swapcontext(&from.state, &to.state);
#if defined(CAIRN_TEST_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

// Stacks are kept from run to run.
std::byte* stack_of(std::size_t thread) {
  static std::vector<std::unique_ptr<std::byte[]>> stacks;
  while (stacks.size() <= thread) stacks.push_back(std::make_unique<std::byte[]>(kStackBytes));
  return stacks[thread].get();
}

class Scheduler {
 public:
  Scheduler(std::span<const std::function<void()>> bodies, Chooser& chooser)
      : bodies_(bodies), chooser_(chooser), threads_(bodies.size()) {}

  Outcome run() {
    for (std::size_t i = 0; i < threads_.size(); ++i) prepare(threads_[i].context, stack_of(i));
    running_ = this;
    current_ = choose(/*preempts=*/false);
    switch_context(main_, threads_[current_].context, false);
    running_ = nullptr;
    note_turn();
    return std::move(run_);
  }

  // getcontext may return twice, as far as the compiler knows: it must not stand in a loop.
  static void prepare(Context& context, std::byte* stack) {
    context.stack_bottom = stack;
    context.stack_bytes = kStackBytes;
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = stack;
    context.state.uc_stack.ss_size = kStackBytes;
    makecontext(&context.state, &Scheduler::enter, 0);
  }

  static Scheduler* running() { return running_; }

  void before_access() {
    if (run_.accesses == kAccessesMax) give_up();
    const std::size_t next = choose(/*preempts=*/true);
    if (next != current_) go_to(next, false);
    ++run_.accesses;
    ++turn_;
  }

  void after_change() {
    for (Thread& thread : threads_) thread.waits = false;
  }

  void wait_for_others() {
    threads_[current_].waits = true;
    if (std::ranges::all_of(threads_, [](const Thread& thread) { return thread.done || thread.waits; })) give_up();
    go_to(choose(/*preempts=*/false), false);
  }

 private:
  struct Thread {
    Context context;
    bool done = false;
    bool waits = false;
  };

  static void enter() {
    Scheduler& scheduler = *running_;
#if defined(CAIRN_TEST_ADDRESS_SANITIZER)
    Context& main = scheduler.main_;
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (main.stack_bottom == nullptr) {  // the first thread comes from there
      main.stack_bottom = bottom;
      main.stack_bytes = bytes;
    }
#endif
    scheduler.bodies_[scheduler.current_]();
    scheduler.threads_[scheduler.current_].done = true;
    scheduler.leave();
  }

  void leave() {
    if (std::ranges::all_of(threads_, &Thread::done)) switch_context(threads_[current_].context, main_, true);
    if (std::ranges::all_of(threads_, [](const Thread& thread) { return thread.done || thread.waits; })) give_up();
    go_to(choose(/*preempts=*/false), true);
  }

  void give_up() {
    run_.stuck = true;
    switch_context(threads_[current_].context, main_, true);
  }

  // The running one first, if it can go on.
  std::size_t choose(bool preempts) {
    options_.clear();
    if (preempts) options_.push_back(current_);
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      if (!threads_[i].done && !threads_[i].waits && !(preempts && i == current_)) options_.push_back(i);
    }
    return options_.size() == 1 ? options_.front() : options_[chooser_.choose(options_, preempts)];
  }

  void note_turn() {
    if (turn_ == 0) return;
    run_.schedule += (run_.schedule.empty() ? "" : " ") + std::to_string(current_) + ':' + std::to_string(turn_);
    turn_ = 0;
  }

  void go_to(std::size_t next, bool ends) {
    note_turn();
    Context& from = threads_[current_].context;
    current_ = next;
    switch_context(from, threads_[next].context, ends);
  }

  static inline Scheduler* running_ = nullptr;  // NOLINT(readability-identifier-naming): a member, not a global
  std::span<const std::function<void()>> bodies_;
  Chooser& chooser_;
  Context main_;
  std::vector<Thread> threads_;
  std::vector<std::size_t> options_;
  std::size_t current_ = 0;
  std::size_t turn_ = 0;  // accesses since the last switch
  Outcome run_;
};

}  // namespace

void before_access() noexcept {
  if (Scheduler::running() != nullptr) Scheduler::running()->before_access();
}

void after_change() noexcept {
  if (Scheduler::running() != nullptr) Scheduler::running()->after_change();
}

void wait_for_others() noexcept {
  if (Scheduler::running() != nullptr) Scheduler::running()->wait_for_others();
}

Outcome run_virtual_threads(std::span<const std::function<void()>> bodies, Chooser& chooser) {
  return Scheduler(bodies, chooser).run();
}

// ---- Choosers ----

std::size_t BoundedSearch::choose(std::span<const std::size_t> threads, bool preempts) {
  if (preempts && preemptions_ == preemptions_max_) return 0;
  if (position_ == path_.size()) path_.push_back({0, threads.size()});
  const std::size_t taken = path_[position_++].taken;
  if (preempts && taken != 0) ++preemptions_;
  return taken;
}

bool BoundedSearch::next() {
  while (!path_.empty() && path_.back().taken + 1 == path_.back().options) path_.pop_back();
  position_ = 0;
  preemptions_ = 0;
  if (path_.empty()) return false;
  ++path_.back().taken;
  return true;
}

std::size_t RandomChooser::choose(std::span<const std::size_t> threads, bool preempts) {
  if (!preempts) return static_cast<std::size_t>(engine_() % threads.size());
  if (engine_() % one_in_ != 0) return 0;
  return 1 + static_cast<std::size_t>(engine_() % (threads.size() - 1));
}

}  // namespace cairn::testing
