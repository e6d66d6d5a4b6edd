// What a driver does with a store: leases that wait for it, and all that becomes of it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "engine_property/attempt.h"
#include "engine_property/engine_driver.h"

namespace cairn::testing {

// ---- Leases that are loading ----

bool EngineDriver::any_loading() const {
  return std::ranges::any_of(sequences_, &Sequence::loading);
}

bool EngineDriver::has_failed(const Sequence& sequence) {
  return sequence.verified.lease().state() == LeaseState::kFailed;
}

void EngineDriver::count_reuse(Sequence& sequence, std::size_t reused, std::size_t from_memory) {
  sequence.loading = false;
  sequence.floor = reused;
  const replay::VerifiedRequest& request = sequence.request;
  if (request.resumed) return;
  ++tally_.requests;
  tally_.prompt_tokens += request.tokens.size();
  tally_.reused_tokens += reused;
  tally_.memory_tokens += from_memory;
}

bool EngineDriver::poll(Sequence& sequence) {
  if (!sequence.loading) return true;
  // The lease takes note of it, or an allocation fails and it does so the next time.
  if (!attempt([&] { static_cast<void>(sequence.verified.lease().state()); })) return false;
  if (!sequence.verified.loaded()) return false;
  count_reuse(sequence, sequence.verified.lease().first_token_to_compute(), sequence.from_memory);
  note(sequence.verified.name(), "has loaded, computes from", sequence.floor);
  if (!has_failed(sequence)) return true;
  note("has failed to load");
  abandon(sequence);
  return false;
}

void EngineDriver::wait_until_loaded(Sequence& sequence) {
  constexpr std::chrono::seconds kForEver{60};
  const auto until = std::chrono::steady_clock::now() + kForEver;
  while (!sequence.verified.loaded()) {
    if (shared_.tiers().pump()) continue;
    if (std::chrono::steady_clock::now() > until) throw Broken(sequence.verified.name() + " is loading for ever");
    std::this_thread::yield();
  }
}

// ---- The store, and the device before it ----

void EngineDriver::answer(const EngineOperation& operation) {
  TestTiers& tiers = shared_.tiers();
  if (!tiers.any()) return;
  if (HeldStore* const held = tiers.held(); held != nullptr && operation.source % 2 == 0) {
    attempt([&] { note(held->answer_gets(1 + operation.cut % 3), "gets are answered"); });
  }
  if (tiers.device() == nullptr) return;
  ManualDevice& copies = tiers.device()->copies();
  for (std::size_t i = 0; i <= operation.run_a % 4u && copies.pending() > 0; ++i) {
    const std::size_t which = (operation.run_b + i) % copies.pending();
    const bool fails = operation.extra % 8 == 0 && i == 0;
    note(fails ? "a copy fails" : "a copy is done");
    attempt([&] { fails ? copies.fail(which) : copies.complete(which); });
  }
}

void EngineDriver::direct_store(const EngineOperation& operation) {
  HeldStore* const held = shared_.tiers().held();
  if (held == nullptr) return;
  using Status = GetResult::Status;
  constexpr std::array<std::optional<Status>, 8> kAnswers = {std::nullopt,    std::nullopt,      std::nullopt,
                                                             std::nullopt,    Status::kMissing,  Status::kFailed,
                                                             Status::kFailed, Status::kQueueFull};
  constexpr std::array<PutResult, 8> kPuts = {PutResult::kAccepted, PutResult::kAccepted, PutResult::kAccepted,
                                              PutResult::kAccepted, PutResult::kAccepted, PutResult::kQueueFull,
                                              PutResult::kDegraded, PutResult::kTooLarge};
  switch (operation.source % 4) {
    case 0:
      held->hold_gets(operation.cut % 3 != 0);
      break;
    case 1:
      held->answer_with(kAnswers[operation.cut % kAnswers.size()]);
      break;
    case 2:
      held->answer_puts_with(kPuts[operation.cut % kPuts.size()]);
      break;
    default:
      if (const std::vector<TierKey> keys = held->keys(); !keys.empty()) {
        const TierKey key = keys[operation.cut % keys.size()];
        // Some stores can't tell what they have lost.
        operation.run_a % 2 == 0 ? held->lose(key) : held->erase(key);
        note("key", key, "is lost");
      }
      break;
  }
}

void EngineDriver::flush(const EngineOperation& /*operation*/) {
  TestTiers& tiers = shared_.tiers();
  constexpr std::chrono::milliseconds kAmongOthers{20};
  if (!alone_) return static_cast<void>(shared_.manager().flush(kAmongOthers));
  tiers.pump();
  bool flushed = false;
  if (!attempt([&] { flushed = shared_.manager().flush(tiers.flush_timeout()); })) return;
  note(flushed ? "all rests" : "not all rests");
  if (flushed) cleared_since_flush_ = false;
  if (!flushed && tiers.is_reliable()) throw Broken("a flush does not say that all rests");
}

void EngineDriver::save(const EngineOperation& /*operation*/) {
  TestTiers& tiers = shared_.tiers();
  constexpr std::chrono::milliseconds kAmongOthers{20};
  if (!alone_) return static_cast<void>(shared_.manager().save(kAmongOthers));
  if (!tiers.any()) return;
  tiers.pump();
  // It waits for its copies itself.
  if (tiers.device()) tiers.device()->be_late(false);
  SaveReport report;
  const bool well = attempt([&] { report = shared_.manager().save(tiers.flush_timeout()); });
  if (tiers.device()) tiers.device()->be_late(true);
  if (!well) return;
  note(report.blocks, "blocks and", report.snapshots, "snapshots are saved,", report.blocks_lost, "and",
       report.snapshots_lost, "lost");
  if (report.flushed) cleared_since_flush_ = false;
  if (!report.flushed && tiers.is_reliable()) throw Broken("a save does not say that all rests");
}

void EngineDriver::restart(const EngineOperation& operation) {
  TestTiers& tiers = shared_.tiers();
  if (!alone_ || !tiers.any()) return;
  fault_ = 0;
  let_go();
  settle_all_steps();
  // Those that wait may go while it is under way.
  end_all_sequences(operation.source % 3 == 0);
  if (operation.cut % 2 == 0) save(operation);
  // What was cleared and not flushed may come back.
  if (cleared_since_flush_) flush(operation);
  if (strays_ && operation.run_a % 2 == 0) {
    tiers.quiesce();
    strays_ = false;
  }
  check();
  past_ += tally_;
  tally_ = {};
  shared_.restart(cleared_since_flush_);
  ++restarts_;
  strays_ = cleared_since_flush_ = false;
  cleared_blocks_ = 0;
  cleared_blocks_known_ = true;
}

// ---- Checks ----

void EngineDriver::check_stores(const ManagerStats& stats) {
  TestTiers& tiers = shared_.tiers();
  if (!tiers.any()) return;
  if (const std::string wrong = tiers.validate(); !wrong.empty()) throw Broken(wrong);
  constexpr std::size_t kEvery = 16;
  if (++since_files_ >= kEvery) {
    since_files_ = 0;
    if (const std::string wrong = tiers.validate_files(); !wrong.empty()) throw Broken(wrong);
  }
  if (stats.reused_from_memory_tokens != tally_.memory_tokens) {
    throw Broken(fmt::format("{} tokens count as reused from memory, but it had {}", stats.reused_from_memory_tokens,
                             tally_.memory_tokens));
  }
  const EngineSettings& settings = shared_.settings();
  const bool ram = settings.store != StoreKind::kHeld || settings.held_tier == Tier::kRam;
  const bool file = settings.store != StoreKind::kHeld ? tiers.has_files() : settings.held_tier == Tier::kFile;
  if ((!ram && stats.reused_from_ram_tier_tokens > 0) || (!file && stats.reused_from_file_tier_tokens > 0)) {
    throw Broken(fmt::format("{} tokens count as reused from the RAM tier and {} from the file tier",
                             stats.reused_from_ram_tier_tokens, stats.reused_from_file_tier_tokens));
  }
  const auto loading = std::ranges::count_if(sequences_, &Sequence::loading);
  if (stats.loading_leases != static_cast<std::size_t>(loading)) {
    throw Broken(fmt::format("stats().loading_leases is {}, but it should be {}", stats.loading_leases, loading));
  }
}

}  // namespace cairn::testing
