// Steps, tokens and ends. Requests are in engine_driver_requests.cc, the checks in engine_driver_checks.cc.
#include "engine_property/engine_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine_property/attempt.h"

namespace cairn::testing {
namespace {

using replay::VerifiedRequest;
using replay::VerifiedSequence;

constexpr std::size_t kStepsMax = 4;
constexpr std::size_t kPreemptedMax = 4;

// Media of which the first `tokens` tokens are left.
void cut_media(std::vector<MediaSpan>& media, std::size_t tokens) {
  std::erase_if(media, [&](const MediaSpan& span) { return span.position >= tokens; });
  for (MediaSpan& span : media) span.length = std::min(span.length, tokens - span.position);
}

}  // namespace

EngineDriver::EngineDriver(SharedEngine& shared, std::string name, bool alone)
    : shared_(shared),
      name_(std::move(name)),
      alone_(alone),
      prompts_({.block_size = shared.settings().block_size, .tokens_max = shared.settings().tokens_max}) {}

void EngineDriver::run(const EngineOperation& operation) {
  using Action = void (EngineDriver::*)(const EngineOperation&);
  using D = EngineDriver;
  // In the order of EngineOperationKind.
  constexpr std::array<Action, static_cast<std::size_t>(EngineOperationKind::kCount)> kActions = {
      &D::admit,   &D::resume,       &D::serve,         &D::run_on, &D::compute,     &D::submit,     &D::done,
      &D::fail,    &D::capture,      &D::restore,       &D::append, &D::draft,       &D::verify,     &D::truncate,
      &D::publish, &D::settle,       &D::check_bytes,   &D::fork,   &D::finish,      &D::preempt,    &D::abandon,
      &D::replace, &D::clear,        &D::clear_adapter, &D::peek,   &D::hold_blocks, &D::hold_slots, &D::let_go,
      &D::answer,  &D::direct_store, &D::flush,         &D::save,   &D::restart,
  };
  fault_ = operation.fault;
  note(name_of(operation.kind));
  (this->*kActions[static_cast<std::size_t>(operation.kind)])(operation);
  fault_ = 0;
  if (alone_) check();
}

// ---- Steps ----

void EngineDriver::compute(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr) return;
  VerifiedSequence& verified = sequence->verified;
  verified.settle();
  if (verified.all_computed() || would_capture_a_draft(verified.lease())) return;
  if (steps_.empty() || steps_.back()->submitted) {
    if (steps_.size() >= kStepsMax) return;
    steps_.push_back(std::make_unique<Step>(shared_.engine()));
  }
  Step& step = *steps_.back();
  const std::size_t block_size = shared_.settings().block_size;
  const std::size_t most = operation.extra % 2 == 0 ? kNoLimit : 1 + operation.extra % (2 * block_size + 1);
  const std::size_t before = verified.computed_tokens();
  std::size_t missing = 0;
  attempt([&] { missing = verified.compute(step.verified, most); });
  if (missing > 0) ++tally_.refused_reserves;
  // It may have joined and then thrown.
  if (verified.computed_tokens() == before) return;
  const std::uint64_t id = step.verified.id();
  step.declared = true;
  sequence->joined_to = verified.computed_tokens();
  note(verified.name(), "joins step", id, "with tokens", before, "to", sequence->joined_to);
  if (std::ranges::find(sequence->steps, id) != sequence->steps.end()) return;
  step.earlier.insert(step.earlier.end(), sequence->steps.begin(), sequence->steps.end());
  sequence->steps.push_back(id);
}

void EngineDriver::capture(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr || shared_.slots() == nullptr || sequence->steps.empty()) return;
  VerifiedSequence& verified = sequence->verified;
  verified.settle();
  const std::size_t computed = verified.computed_tokens();
  if (computed != sequence->joined_to || computed > verified.lease().accepted_tokens()) return;
  const auto step = find_step(sequence->steps.back());
  bool captures = false;
  attempt([&] { captures = verified.capture((*step)->verified); });
  note(verified.name(), captures ? "captures at" : "can't capture at", computed);
}

void EngineDriver::submit(const EngineOperation& /*operation*/) {
  if (!steps_.empty()) steps_.back()->submitted = true;
}

EngineDriver::Steps::iterator EngineDriver::find_step(std::uint64_t id) {
  return std::ranges::find_if(steps_, [id](const auto& step) { return step->verified.id() == id; });
}

bool EngineDriver::can_end(const Step& step) const {
  return std::ranges::none_of(step.earlier, [this](std::uint64_t earlier) {
    return std::ranges::any_of(steps_, [&](const auto& other) { return other->verified.id() == earlier; });
  });
}

// In any order, but that of the steps that one sequence has a part in: those run on one queue.
std::vector<std::uint64_t> EngineDriver::steps_that_can_end() const {
  std::vector<std::uint64_t> steps;
  for (const auto& step : steps_) {
    if (can_end(*step)) steps.push_back(step->verified.id());
  }
  return steps;
}

void EngineDriver::done(const EngineOperation& operation) {
  const std::vector<std::uint64_t> ready = steps_that_can_end();
  if (ready.empty()) return;
  const auto step = find_step(ready[operation.who % ready.size()]);
  note("step", (*step)->verified.id());
  if ((*step)->has_to_be_done) fault_ = 0;
  settled(step, attempt([&] { (*step)->verified.done(); }));
}

void EngineDriver::fail(const EngineOperation& operation) {
  const std::vector<std::uint64_t> ready = steps_that_can_end();
  if (ready.empty()) return;
  const auto step = find_step(ready[operation.who % ready.size()]);
  if ((*step)->has_to_be_done) return;
  note("step", (*step)->verified.id());
  (*step)->verified.fail();
  settled(step, false);
}

void EngineDriver::settled(Steps::iterator step, bool well) {
  if (!(*step)->verified.settled()) throw Broken("a step is not settled, whatever became of it");
  if (!well && (*step)->declared) ++tally_.failed_steps;
  const std::uint64_t id = (*step)->verified.id();
  for (Sequence& sequence : sequences_) {
    if (std::erase(sequence.steps, id) > 0 && !well) gone_back(sequence);
  }
  for (auto& steps : waiting_) std::erase(steps, id);
  std::erase_if(waiting_, [](const auto& steps) { return steps.empty(); });
  steps_.erase(step);
}

void EngineDriver::gone_back(const Sequence& sequence) {
  for (const std::uint64_t id : sequence.steps) (*find_step(id))->has_to_be_done = true;
}

void EngineDriver::settle_all_steps() {
  while (!steps_.empty()) {
    const auto ready = std::ranges::find_if(steps_, [this](const auto& step) { return can_end(*step); });
    (*ready)->verified.done();
    settled(ready, true);
  }
}

void EngineDriver::restore(const EngineOperation& operation) {
  if (Sequence* const sequence = pick(operation)) attempt([&] { sequence->verified.restore(); });
}

void EngineDriver::settle(const EngineOperation& operation) {
  if (Sequence* const sequence = pick(operation)) attempt([&] { sequence->verified.settle(); });
}

void EngineDriver::check_bytes(const EngineOperation& operation) {
  if (Sequence* const sequence = pick(operation)) attempt([&] { sequence->verified.check_everything(); });
}

// ---- Tokens ----

void EngineDriver::append(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr || has_drafts(*sequence)) return;
  const std::vector<TokenId> tokens = tokens_of(operation, shared_.settings().block_size + 1);
  if (!tokens.empty()) attempt([&] { sequence->verified.append(tokens); });
}

void EngineDriver::draft(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr) return;
  const std::vector<TokenId> tokens = tokens_of(operation, 4);
  if (!tokens.empty()) attempt([&] { sequence->verified.draft(tokens); });
}

void EngineDriver::verify(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr || !has_drafts(*sequence)) return;
  const Lease& lease = sequence->verified.lease();
  const std::size_t drafts = lease.tokens() - lease.accepted_tokens();
  attempt([&] { sequence->verified.verify(operation.extra % (drafts + 1)); });
  note(sequence->verified.name(), "has", lease.accepted_tokens(), "tokens");
  gone_back(*sequence);
  sequence->tokens_min = std::min(sequence->tokens_min, lease.tokens());
}

void EngineDriver::truncate(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr) return;
  const Lease& lease = sequence->verified.lease();
  const std::size_t floor = std::max(sequence->floor, lease.published_tokens());
  if (operation.source % 4 == 0) return check_floor(*sequence, floor);
  const std::size_t before = lease.tokens();
  const std::size_t keep = floor + operation.extra % (before - floor + 1);
  attempt([&] { sequence->verified.truncate(keep); });
  note(sequence->verified.name(), "has", lease.tokens(), "tokens");
  gone_back(*sequence);
  sequence->tokens_min = std::min(sequence->tokens_min, lease.tokens());
  if (operation.source % 2 == 0 || has_drafts(*sequence)) return;
  // Others in their place, at once.
  const std::vector<TokenId> others(before - lease.tokens(), 2 + operation.run_a % 2);
  attempt([&] { sequence->verified.append(others); });
}

// What is published, restored or shared with a fork stays as it is.
void EngineDriver::check_floor(Sequence& sequence, std::size_t below) {
  if (below == 0 || !sequence.floor_known) return;
  try {
    sequence.verified.truncate(below - 1);
  } catch (const std::invalid_argument&) {
    return;
  }
  throw Broken(fmt::format("{}: truncated below token {}", sequence.verified.name(), below));
}

// ---- Publishing, forks, ends ----

void EngineDriver::publish(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr) return;
  const std::size_t published = sequence->verified.lease().published_tokens();
  const std::size_t limit =
      operation.extra % 3 == 0 ? kNoLimit : published + operation.extra % shared_.settings().tokens_max;
  attempt([&] { sequence->verified.publish(limit); });
  note(sequence->verified.name(), "has published", sequence->verified.lease().published_tokens());
}

void EngineDriver::fork(const EngineOperation& operation) {
  Sequence* const parent = pick(operation);
  if (parent == nullptr || has_drafts(*parent) || sequences_.size() >= kSequencesMax) return;
  std::string name = fmt::format("{}{}", name_, named_++);
  const std::uint64_t forks_before = tally_.forks;
  std::optional<VerifiedSequence::Forked> forked;
  const bool well = attempt([&] { forked.emplace(parent->verified.fork(std::move(name))); });
  const std::size_t written = parent->verified.lease().written_tokens();
  if (!well) {
    parent->floor = std::max(parent->floor, written);
    parent->floor_known = false;
    // If the lease had been forked already, the child has been dropped again.
    tally_.forks = shared_.manager().stats().forks;
    tally_.abandoned += tally_.forks - forks_before;
    tally_.refused_reserves = shared_.manager().stats().refused_reserves;
    return;
  }
  if (!forked->sequence) {
    ++tally_.refused_reserves;
    return;
  }
  ++tally_.forks;
  parent->floor = std::max(parent->floor, written);
  note(parent->verified.name(), "has child", forked->sequence->name(), "at", written);
  Sequence child{.verified = std::move(*forked->sequence),
                 .request = parent->request,
                 .adapter = parent->adapter,
                 .floor = written,
                 .tokens_min = parent->tokens_min};
  sequences_.push_back(std::move(child));
}

void EngineDriver::finish(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr) return;
  note(sequence->verified.name());
  if (!attempt([&] { sequence->verified.finish(); })) return;
  ++tally_.finished;
  ended(*sequence);
}

void EngineDriver::preempt(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr) return;
  note(sequence->verified.name());
  std::optional<VerifiedRequest> request;
  if (!attempt([&] { request.emplace(sequence->verified.preempt()); })) return;
  ++tally_.preempted;
  if (!request->tokens.empty() && preempted_.size() < kPreemptedMax) {
    cut_media(request->media, std::min(sequence->tokens_min, request->tokens.size()));
    preempted_.push_back({.request = std::move(*request), .adapter = sequence->adapter});
  }
  ended(*sequence);
}

void EngineDriver::abandon(const EngineOperation& operation) {
  if (!sequences_.empty()) abandon(sequences_[operation.who % sequences_.size()]);
}

void EngineDriver::abandon(Sequence& sequence) {
  note(sequence.verified.name());
  if (sequence.loading) {
    // It may be over already, but the lease has not been asked since.
    ++loading_abandoned_;
    strays_ = true;
    count_reuse(sequence, sequence.from_memory, sequence.from_memory);
  }
  attempt([&] { sequence.verified.abandon(); });
  ++tally_.abandoned;
  ended(sequence);
}

void EngineDriver::replace(const EngineOperation& operation) {
  if (sequences_.size() < 2) return;
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr || sequence == &sequences_.back()) return;
  ++tally_.abandoned;
  if (!sequence->steps.empty()) {
    ++tally_.waits;
    waiting_.push_back(sequence->steps);
  }
  Sequence last = std::move(sequences_.back());
  sequences_.pop_back();
  attempt([&] { *sequence = std::move(last); });
}

void EngineDriver::remember_turn(const Sequence& sequence) {
  constexpr std::size_t kTurnsMax = 4;
  const auto tokens = sequence.verified.tokens();
  if (tokens.empty() || tokens.size() >= shared_.settings().tokens_max) return;
  if (turns_.size() < kTurnsMax) turns_.emplace_back();
  VerifiedRequest& turn = turns_[next_turn_++ % kTurnsMax];
  turn = sequence.request;
  turn.tokens.assign(tokens.begin(), tokens.end());
  turn.resumed = turn.no_read = turn.no_publish = false;
  turn.reserve_tokens.reset();
  cut_media(turn.media, std::min(sequence.tokens_min, tokens.size()));
}

// Forgets a sequence that has ended, but for the steps that keep what it held.
void EngineDriver::ended(Sequence& sequence) {
  if (sequence.verified.running()) throw Broken(sequence.verified.name() + " runs on after its end");
  prompts_.continue_from({sequence.verified.tokens().begin(), sequence.verified.tokens().end()}, {});
  remember_turn(sequence);
  if (!sequence.steps.empty()) {
    ++tally_.waits;
    waiting_.push_back(std::move(sequence.steps));
  }
  erase(sequence);
}

void EngineDriver::clear(const EngineOperation& /*operation*/) {
  if (!alone_) return;
  cleared_since_flush_ = true;
  cleared_blocks_known_ &= attempt([&] { cleared(shared_.clear()); });
}

void EngineDriver::clear_adapter(const EngineOperation& operation) {
  if (!alone_) return;
  cleared_since_flush_ = true;
  cleared_blocks_known_ &= attempt([&] { cleared(shared_.clear(operation.who % kAdapterNames.size())); });
}

// ---- Somebody else ----

void EngineDriver::hold_blocks(const EngineOperation& operation) {
  if (shared_.blocks() == nullptr) return;
  const std::size_t free = shared_.blocks()->free_blocks();
  if (!shared_.blocks()->allocate(operation.extra % (free + 1), held_blocks_)) note("none");
}

void EngineDriver::hold_slots(const EngineOperation& operation) {
  if (shared_.slots() == nullptr) return;
  for (std::size_t i = 0; i <= operation.extra % 3u; ++i) {
    if (const auto slot = shared_.slots()->allocate()) held_slots_.push_back(*slot);
  }
}

void EngineDriver::let_go(const EngineOperation& /*operation*/) {
  let_go();
}

void EngineDriver::let_go() {
  if (!held_blocks_.empty()) shared_.blocks()->drop_references(held_blocks_);
  held_blocks_.clear();
  for (const SnapshotId slot : held_slots_) shared_.slots()->free(slot);
  held_slots_.clear();
}

// ---- The end ----

void EngineDriver::end() {
  let_go();
  settle_all_steps();
  if (shared_.settings().ending == Ending::kOutliveManager) return;
  end_all_sequences(shared_.settings().ending == Ending::kFinish);
  if (!alone_) return;
  shared_.tiers().quiesce();
  strays_ = false;
  check();
  check_idle();
  shared_.tiers().quiesce();
}

void EngineDriver::end_all_sequences(bool finish) {
  while (!sequences_.empty()) {
    Sequence& sequence = sequences_.back();
    if (finish && sequence.loading) {
      wait_until_loaded(sequence);
      if (!poll(sequence)) continue;  // it had to go
    }
    if (finish) {
      sequence.verified.check_everything();
      sequence.verified.finish();
      ++tally_.finished;
      ended(sequence);
    } else {
      abandon(sequence);
    }
  }
}

void EngineDriver::end_orphans() {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    VerifiedSequence& verified = sequences_[i].verified;
    if (i % 3 == 2) continue;  // dropped below
    if (sequences_[i].loading) {
      wait_until_loaded(sequences_[i]);
      if (verified.lease().state() == LeaseState::kFailed) continue;
    }
    verified.check_everything();
    if (!has_drafts(sequences_[i])) verified.append(std::array<TokenId, 1>{1});
    verified.publish();
    verified.finish();
  }
  sequences_.clear();
}

// ---- Helpers ----

EngineDriver::Sequence* EngineDriver::pick(const EngineOperation& operation) {
  if (sequences_.empty()) return nullptr;
  Sequence& sequence = sequences_[operation.who % sequences_.size()];
  if (!sequence.loading) return &sequence;
  if (operation.cut % 4 == 0) wait_until_loaded(sequence);
  return poll(sequence) ? &sequence : nullptr;
}

void EngineDriver::erase(const Sequence& sequence) {
  sequences_.erase(sequences_.begin() + (&sequence - sequences_.data()));
}

bool EngineDriver::has_drafts(const Sequence& sequence) const {
  const Lease& lease = sequence.verified.lease();
  return lease.tokens() > lease.accepted_tokens();
}

// After a truncate below a capture point the lease may reach it by drafts, whose states are not to be had.
bool EngineDriver::would_capture_a_draft(const Lease& lease) {
  return std::ranges::any_of(lease.capture_points(), [&](const CapturePoint& point) {
    return point.tokens > lease.accepted_tokens() && point.tokens <= lease.tokens();
  });
}

// Few values, so that sequences go on alike; as many as are allowed.
std::vector<TokenId> EngineDriver::tokens_of(const EngineOperation& operation, std::size_t count_max) const {
  const std::size_t at = operation.who % sequences_.size();
  const std::size_t room =
      shared_.settings().tokens_max - std::min(shared_.settings().tokens_max, sequences_[at].verified.tokens().size());
  const std::size_t count = std::min(1 + operation.extra % count_max, room);
  std::vector<TokenId> tokens(count, operation.run_a % 2);
  if (count > 1) tokens.back() = operation.run_b % 2;
  return tokens;
}

}  // namespace cairn::testing
