// Requests, steps, tokens and ends. The checks are in engine_driver_checks.cc.
#include "engine_property/engine_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "engine_property/attempt.h"

namespace cairn::testing {
namespace {

using replay::VerifiedRequest;
using replay::VerifiedSequence;

constexpr std::size_t kSequencesMax = 5;
constexpr std::size_t kStepsMax = 4;
constexpr std::size_t kPreemptedMax = 4;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// Up to two media at places where other requests have some too, so that all that tells them apart is their content.
std::vector<MediaSpan> media_of(const EngineOperation& operation, std::size_t block_size, std::size_t tokens) {
  std::vector<MediaSpan> media;
  std::size_t from = operation.run_a % 3 * (block_size / 2);
  for (std::size_t bits = operation.run_b; media.size() < 2; bits /= 16) {
    const std::size_t length = 1 + bits % 2 * block_size;
    if (from + length > tokens) break;
    const std::uint64_t content = bits / 2 % 4;
    media.push_back({.position = from, .length = length, .content_id = {content % 2, content / 2}});
    from += length + block_size;
  }
  return media;
}

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
  using Kind = EngineOperationKind;
  fault_ = operation.fault;
  note(name_of(operation.kind));
  switch (operation.kind) {
    case Kind::kAdmit:
      admit(operation);
      break;
    case Kind::kResume:
      resume(operation);
      break;
    case Kind::kServe:
      serve(operation);
      break;
    case Kind::kRunOn:
      run_on(operation);
      break;
    case Kind::kCompute:
      compute(operation);
      break;
    case Kind::kSubmit:
      submit();
      break;
    case Kind::kDone:
      done(operation);
      break;
    case Kind::kFail:
      fail(operation);
      break;
    case Kind::kCapture:
      capture(operation);
      break;
    case Kind::kAppend:
      append(operation);
      break;
    case Kind::kDraft:
      draft(operation);
      break;
    case Kind::kVerify:
      verify(operation);
      break;
    case Kind::kTruncate:
      truncate(operation);
      break;
    case Kind::kPublish:
      publish(operation);
      break;
    case Kind::kFork:
      fork(operation);
      break;
    case Kind::kFinish:
      finish(operation);
      break;
    case Kind::kPreempt:
      preempt(operation);
      break;
    case Kind::kAbandon:
      abandon(operation);
      break;
    case Kind::kReplace:
      replace(operation);
      break;
    case Kind::kClear:
      clear(operation);
      break;
    case Kind::kClearAdapter:
      clear_adapter(operation);
      break;
    case Kind::kPeek:
      peek(operation);
      break;
    case Kind::kHoldBlocks:
      hold_blocks(operation);
      break;
    case Kind::kHoldSlots:
      hold_slots(operation);
      break;
    case Kind::kLetGo:
      let_go();
      break;
    case Kind::kRestore:
    case Kind::kSettle:
    case Kind::kCheck:
      if (Sequence* const sequence = pick(operation)) {
        VerifiedSequence& verified = sequence->verified;
        attempt([&] {
          if (operation.kind == Kind::kRestore) verified.restore();
          if (operation.kind == Kind::kSettle) verified.settle();
          if (operation.kind == Kind::kCheck) verified.check_everything();
        });
      }
      break;
    case Kind::kCount:
      break;
  }
  fault_ = 0;
  if (alone_) check();
}

// ---- Requests ----

VerifiedRequest EngineDriver::make_request(const EngineOperation& operation) {
  if (!turns_.empty() && operation.extra % 8 >= 5) {
    VerifiedRequest turn = turns_[operation.source % turns_.size()];
    turn.name = fmt::format("{}{}", name_, named_++);
    const std::vector<TokenId> more(operation.run_a % (shared_.settings().block_size + 2), operation.run_b % 2);
    turn.tokens.insert(turn.tokens.end(), more.begin(), more.end());
    return turn;
  }
  VerifiedRequest request;
  request.name = fmt::format("{}{}", name_, named_++);
  request.tokens = prompts_.make(
      {.source = operation.source, .cut = operation.cut, .run_a = operation.run_a, .run_b = operation.run_b});
  constexpr TokenId kLargest = (TokenId{1} << 31) - 1;  // those beyond stand for media
  for (TokenId& token : request.tokens) token = std::min(token, kLargest);
  const std::size_t who = operation.who;
  request.session = who % 4 % 3;
  // Mostly the base model.
  const std::size_t name = who / 4 % 16;
  request.adapter = kAdapterNames[name < 12 ? 0 : name < 15 ? 1 : 2];
  if (name % 8 == 4) request.adapter_generation = who / 64 % 2;
  if (name % 5 == 4) request.tenant_salt = who / 128 == 0 ? "x" : "y";
  const std::size_t extra = operation.extra;
  if (extra % 5 == 0) request.media = media_of(operation, shared_.settings().block_size, request.tokens.size());
  if (extra % 32 == 1) request.no_read = true;
  if (extra % 32 == 2) request.no_publish = true;
  if (extra % 32 == 3) request.reuse_tokens_max = operation.cut % (request.tokens.size() + 1);
  if (extra % 3 != 0) request.reserve_tokens = operation.run_a % (request.tokens.size() + 1);
  return request;
}

void EngineDriver::admit(const EngineOperation& operation) {
  VerifiedRequest request = make_request(operation);
  if (request.tokens.empty() || sequences_.size() >= kSequencesMax) return;
  const auto adapter = std::ranges::find(kAdapterNames, request.adapter) - kAdapterNames.begin();
  static_cast<void>(start(std::move(request), static_cast<std::size_t>(adapter)));
}

void EngineDriver::resume(const EngineOperation& operation) {
  if (preempted_.empty() || sequences_.size() >= kSequencesMax) return;
  const auto which = preempted_.begin() + static_cast<std::ptrdiff_t>(operation.who % preempted_.size());
  if (start(which->request, which->adapter)) preempted_.erase(which);
}

// What most requests do, so that much is cached.
void EngineDriver::serve(const EngineOperation& operation) {
  const std::size_t before = sequences_.size();
  admit(operation);
  if (sequences_.size() == before) return;
  Sequence& sequence = sequences_.back();
  if (!run_on(sequence, operation)) return;
  if (!attempt([&] { sequence.verified.finish(); })) return;
  ++tally_.finished;
  ended(sequence);
}

void EngineDriver::run_on(const EngineOperation& operation) {
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr || !sequence->steps.empty() || would_capture_a_draft(sequence->verified.lease())) return;
  if (run_on(*sequence, operation)) attempt([&] { sequence->verified.publish(); });
}

// False: there are not enough blocks.
bool EngineDriver::run_on(Sequence& sequence, const EngineOperation& operation) {
  const std::size_t chunk = operation.extra % 2 == 0 ? kNoLimit : 1 + operation.extra % shared_.settings().tokens_max;
  const std::size_t missing = sequence.verified.compute_all(chunk);
  note(sequence.verified.name(), "has computed", sequence.verified.computed_tokens(), "and misses", missing, "blocks");
  if (missing > 0) ++tally_.refused_reserves;
  return missing == 0;
}

bool EngineDriver::start(VerifiedRequest request, std::size_t adapter) {
  const std::uint64_t clears = shared_.clears();
  request.weights = shared_.weights(adapter);
  const bool idle = sequences_.empty() && waiting_.empty() && held_blocks_.empty();
  const Peeked peeked = alone_ ? shared_.manager().peek(request.view()) : Peeked{};
  const std::uint64_t matched_before = alone_ ? shared_.manager().stats().matched_tokens : 0;

  std::optional<VerifiedSequence::Start> start;
  VerifiedRequest handed_over = request;
  if (!attempt([&] { start.emplace(VerifiedSequence::start(shared_.engine(), std::move(handed_over))); })) {
    failed_to_start(request);
    return false;
  }
  if (!start->sequence) {
    ++tally_.refused_admissions;
    check_refusal(request, *start, alone_ && idle);
    return false;
  }
  const Lease& lease = start->sequence->lease();
  const std::size_t first = lease.first_token_to_compute();
  note(request.name, request.tokens.size(), "tokens, computes from", first, "session", request.session, "adapter",
       request.adapter, request.adapter_generation, request.tenant_salt, "media", request.media.size());
  if (request.resumed) {
    ++tally_.resumed;
  } else {
    ++tally_.requests;
    tally_.prompt_tokens += request.tokens.size();
    tally_.reused_tokens += first;
  }
  if (alone_) {
    const std::uint64_t matched = shared_.manager().stats().matched_tokens - matched_before;
    const bool kept = first == peeked.reusable_tokens && (request.resumed || matched == peeked.matched_tokens);
    // Where state ends within a block, that is copied; if there is no room for both, nothing is reused.
    const bool given_up = first == 0 && matched == 0 && peeked.reusable_tokens % shared_.settings().block_size != 0;
    if (!kept && !given_up) {
      throw Broken(fmt::format("{}: peek promised {} tokens of {} that match, and admit reuses {} of {}", request.name,
                               peeked.reusable_tokens, peeked.matched_tokens, first, matched));
    }
  }
  const std::size_t tokens = request.tokens.size();
  Sequence sequence{.verified = std::move(*start->sequence),
                    .request = std::move(request),
                    .adapter = adapter,
                    .floor = first,
                    .tokens_min = tokens};
  // A clear came between: nobody can say with which weights it has to go on.
  if (clears % 2 != 0 || shared_.clears() != clears) {
    ++tally_.abandoned;
    return true;
  }
  sequences_.push_back(std::move(sequence));
  return true;
}

// An allocation failed. If that was after the admission, the lease has been dropped again.
void EngineDriver::failed_to_start(const VerifiedRequest& request) {
  const ManagerStats stats = shared_.manager().stats();
  if (stats.requests == tally_.requests && stats.resumed == tally_.resumed) return;
  ++(request.resumed ? tally_.resumed : tally_.requests);
  ++tally_.abandoned;
  if (request.resumed) return;
  tally_.prompt_tokens += request.tokens.size();
  tally_.reused_tokens = stats.reused_tokens;
}

void EngineDriver::check_refusal(const VerifiedRequest& request, const VerifiedSequence::Start& start, bool idle) {
  note(request.name, "refused:", start.missing_blocks, "blocks are missing", start.never_fits ? "for ever" : "");
  const std::size_t block_size = shared_.settings().block_size;
  const std::size_t wanted = (request.reserve_tokens.value_or(request.tokens.size()) + block_size - 1) / block_size;
  const bool never_fits = wanted > shared_.settings().blocks;
  if (start.missing_blocks == 0 || start.never_fits != never_fits) {
    throw Broken(fmt::format("{}: refused for {} missing blocks of {} in the pool, never_fits {}; it wants {}",
                             request.name, start.missing_blocks, shared_.settings().blocks, start.never_fits, wanted));
  }
  if (idle && !never_fits) {
    throw Broken(fmt::format("{}: refused for {} missing blocks, but nothing runs and it wants {} of {}", request.name,
                             start.missing_blocks, wanted, shared_.settings().blocks));
  }
}

void EngineDriver::peek(const EngineOperation& operation) {
  const VerifiedRequest request = make_request(operation);
  if (request.tokens.empty()) return;
  attempt([&] {
    const Peeked peeked = shared_.manager().peek(request.view());
    const std::size_t most = request.tokens.size() - 1;
    const bool blocks = shared_.blocks() != nullptr;
    if (peeked.reusable_tokens > most || peeked.matched_tokens > most ||
        (blocks && peeked.reusable_tokens > peeked.matched_tokens)) {
      throw Broken(fmt::format("{}: peek finds {} tokens that match and {} that can be reused, of {}", request.name,
                               peeked.matched_tokens, peeked.reusable_tokens, request.tokens.size()));
    }
  });
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

void EngineDriver::submit() {
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
  Sequence* const sequence = pick(operation);
  if (sequence == nullptr) return;
  note(sequence->verified.name());
  attempt([&] { sequence->verified.abandon(); });
  ++tally_.abandoned;
  ended(*sequence);
}

void EngineDriver::replace(const EngineOperation& operation) {
  if (sequences_.size() < 2) return;
  Sequence* const sequence = pick(operation);
  if (sequence == &sequences_.back()) return;
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
  cleared_blocks_known_ &= attempt([&] { cleared(shared_.clear()); });
}

void EngineDriver::clear_adapter(const EngineOperation& operation) {
  if (!alone_) return;
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
  while (!sequences_.empty()) {
    VerifiedSequence& verified = sequences_.back().verified;
    if (shared_.settings().ending == Ending::kFinish) {
      verified.check_everything();
      verified.finish();
      ++tally_.finished;
    } else {
      verified.abandon();
      ++tally_.abandoned;
    }
    ended(sequences_.back());
  }
  if (alone_) {
    check();
    check_idle();
  }
}

void EngineDriver::end_orphans() {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    VerifiedSequence& verified = sequences_[i].verified;
    if (i % 3 == 2) continue;  // dropped below
    verified.check_everything();
    if (!has_drafts(sequences_[i])) verified.append(std::array<TokenId, 1>{1});
    verified.publish();
    verified.finish();
  }
  sequences_.clear();
}

// ---- Helpers ----

EngineDriver::Sequence* EngineDriver::pick(const EngineOperation& operation) {
  return sequences_.empty() ? nullptr : &sequences_[operation.who % sequences_.size()];
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
