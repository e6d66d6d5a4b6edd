#include "replay/verified_sequence.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "replay/errors.h"

namespace cairn::replay {

cairn::Request VerifiedRequest::view() const {
  return {.tokens = tokens,
          .session = session,
          .adapter = adapter,
          .adapter_generation = adapter_generation,
          .tenant_salt = tenant_salt,
          .media = media,
          .no_read = no_read,
          .no_fetch = no_fetch,
          .no_publish = no_publish,
          .reuse_tokens_max = reuse_tokens_max,
          .reserve_tokens = reserve_tokens,
          .resumed = resumed};
}

// ---- From admission to the first step ----

VerifiedSequence::Start VerifiedSequence::start(VerifyingEngine& engine, VerifiedRequest request) {
  Admission admission = engine.manager().admit(request.view());
  if (!admission.lease) return {.missing_blocks = admission.missing_blocks, .never_fits = admission.never_fits};
  ModelSequence model(request.view(), request.weights);
  VerifiedSequence sequence(engine, std::move(request), std::move(*admission.lease), std::move(model));
  static_cast<void>(sequence.loaded());
  return {.sequence = std::move(sequence)};
}

VerifiedSequence::VerifiedSequence(VerifyingEngine& engine, VerifiedRequest request, Lease lease, ModelSequence model)
    : engine_(&engine),
      name_(std::make_shared<const std::string>(request.name)),
      request_(std::move(request)),
      model_(std::move(model)),
      lease_(std::move(lease)),
      loading_(true) {}

bool VerifiedSequence::loaded() {
  if (!loading_) return true;
  const LeaseState state = lease_.state();
  if (state == LeaseState::kLoading) return false;
  if (state == LeaseState::kReady) begin();
  loading_ = false;
  return true;
}

bool VerifiedSequence::wait_until_loaded(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = Clock::now() + timeout;
  while (!loaded()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) broken(fmt::format("the lease is still loading after {} ms", timeout.count()));
    pollfd ready{.fd = lease_.event_fd(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(left.count())) < 0 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), *name_ + ": poll");
    }
  }
  return lease_.state() == LeaseState::kReady;
}

// What memory and stores had is there.
void VerifiedSequence::begin() {
  computed_ = lease_.first_token_to_compute();
  check_admission();
  follow_table();
}

// What the lease says of itself, before any byte is looked at.
void VerifiedSequence::check_admission() const {
  const std::size_t first = lease_.first_token_to_compute();
  const std::size_t cached = lease_.cached_tokens();
  const std::optional<RestorePoint> restore = lease_.restore_point();
  if (lease_.prompt_tokens() != request_.tokens.size() || lease_.tokens() != request_.tokens.size()) {
    broken(fmt::format("the lease has {} tokens, {} of them prompt, for a prompt of {}", lease_.tokens(),
                       lease_.prompt_tokens(), request_.tokens.size()));
  }
  if (first >= request_.tokens.size()) broken(fmt::format("nothing is left to compute from token {} on", first));
  if (first > request_.reuse_tokens_max || (request_.no_read && first > 0)) {
    broken(fmt::format("{} tokens are to be reused, which is more than was asked for", first));
  }
  if (engine_->snapshots() != nullptr) {
    if (first != (restore ? restore->tokens : 0)) {
      broken(fmt::format("computing starts at token {}, but the state to restore has consumed {}", first,
                         restore ? restore->tokens : 0));
    }
  } else if (restore || !lease_.capture_points().empty()) {
    broken("an attention-only model is asked to restore or to capture state");
  }
  if (engine_->blocks() != nullptr ? first != cached : cached != 0 || !lease_.block_table().empty()) {
    broken(fmt::format("computing starts at token {}, with {} tokens cached in {} blocks", first, cached,
                       lease_.block_table().size()));
  }
}

void VerifiedSequence::restore() {
  if (restored_) return;
  for (const BlockCopy& copy : lease_.copies()) engine_->copy(copy);
  check_blocks(0, lease_.cached_tokens());
  if (const std::optional<RestorePoint> restore = lease_.restore_point()) {
    engine_->check_state(*name_, *restore, model_);
  }
  lease_.restored();
  restored_ = true;
}

// ---- Steps ----

std::size_t VerifiedSequence::compute(VerifiedStep& step, std::size_t tokens) {
  settle();
  restore();
  const std::size_t from = computed_;
  std::size_t to = from + std::min(tokens, request_.tokens.size() - from);
  if (from == to) throw std::logic_error(fmt::format("{}: nothing is left to compute after token {}", *name_, from));
  // The state that was restored may be wanted as well; any other place where it is wanted ends the step.
  const bool capture_first = from == lease_.first_token_to_compute() && next_capture_point(from, from).has_value();
  const std::optional<std::size_t> capture_last = next_capture_point(from + 1, to);
  to = capture_last.value_or(to);
  if (const std::size_t missing = lease_.reserve(to); missing > 0) return missing;
  follow_table();
  const VerifiedStep::Mark mark = step.mark();
  try {
    in_flight_.reserve(in_flight_.size() + 1);
    step.join(name_, in_flight_);
    if (engine_->blocks() != nullptr) {
      step.add_writes(parts(from, to), model_.kv(from, to));
      if (engine_->strict()) {
        const std::size_t read = std::min(from, lease_.written_tokens());
        step.add_reads(parts(0, read), model_.kv(0, read));
      }
    }
    lease_.writes(step.id(), from, to);
  } catch (...) {
    step.roll_back(mark);
    throw;
  }
  in_flight_.push_back(step.outcome_);
  computed_ = to;
  if (capture_first) capture_at(step, from);
  if (capture_last) capture_at(step, to);
  return 0;
}

// From `from` up to and including `to`.
std::optional<std::size_t> VerifiedSequence::next_capture_point(std::size_t from, std::size_t to) const {
  for (const CapturePoint& point : lease_.capture_points()) {
    if (point.tokens >= from && point.tokens <= to) return point.tokens;
  }
  return std::nullopt;
}

std::size_t VerifiedSequence::compute_all(std::size_t chunk) {
  while (!all_computed()) {
    VerifiedStep step(*engine_);
    if (const std::size_t missing = compute(step, chunk); missing > 0) return missing;
    step.done();
  }
  settle();
  return 0;
}

bool VerifiedSequence::capture(VerifiedStep& step) {
  return capture_at(step, computed_);
}

bool VerifiedSequence::capture_at(VerifiedStep& step, std::size_t tokens) {
  captures_.reserve(captures_.size() + 1);
  const std::optional<SnapshotId> slot = lease_.capture(tokens);
  if (!slot) return false;
  const VerifiedStep::Mark mark = step.mark();
  try {
    step.join(name_, in_flight_);
    step.add_state(*slot, model_, tokens);
  } catch (...) {
    step.roll_back(mark);
    lease_.cancel_capture(*slot);
    throw;
  }
  captures_.push_back({.slot = *slot, .tokens = tokens, .outcome = step.outcome_});
  return true;
}

void VerifiedSequence::settle() {
  bool failed = false;
  std::erase_if(in_flight_, [&failed](const std::shared_ptr<const StepOutcome>& outcome) {
    const StepState state = outcome->load(std::memory_order_acquire);
    failed = failed || state == StepState::kFailed;
    return state != StepState::kInFlight;
  });
  if (failed) {
    computed_ = std::min(computed_, lease_.written_tokens());
    lose_captures_beyond(computed_);
  }
  settle_captures();
}

void VerifiedSequence::lose_captures_beyond(std::size_t tokens) {
  for (PendingCapture& capture : captures_) capture.lost = capture.lost || capture.tokens > tokens;
}

void VerifiedSequence::settle_captures() {
  const std::size_t shards = captures_.empty() ? 0 : engine_->snapshots()->shards();
  for (std::size_t i = 0; i < captures_.size();) {
    PendingCapture& capture = captures_[i];
    const StepState state = capture.outcome->load(std::memory_order_acquire);
    if (state == StepState::kInFlight) {
      ++i;
      continue;
    }
    if (capture.lost || state == StepState::kFailed) {
      lease_.cancel_capture(capture.slot);
    } else {
      // A call that throws is made again the next time.
      for (; capture.shards_reported < shards; ++capture.shards_reported) {
        const bool last = capture.shards_reported + 1 == shards;
        if (lease_.captured(capture.slot, capture.shards_reported) != last) {
          broken(fmt::format("shard {} of {} of slot {} was reported, and the snapshot counts as {}",
                             capture.shards_reported, shards, capture.slot, last ? "incomplete" : "complete"));
        }
      }
    }
    captures_.erase(captures_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// ---- Tokens ----

void VerifiedSequence::append(std::span<const TokenId> tokens) {
  add_tokens(tokens, &Lease::append);
}

void VerifiedSequence::draft(std::span<const TokenId> tokens) {
  add_tokens(tokens, &Lease::draft);
}

void VerifiedSequence::add_tokens(std::span<const TokenId> tokens, void (Lease::*add)(std::span<const TokenId>)) {
  settle();
  const std::size_t old_size = request_.tokens.size();
  try {
    request_.tokens.insert(request_.tokens.end(), tokens.begin(), tokens.end());
    model_.append(tokens);
    (lease_.*add)(tokens);
  } catch (...) {
    request_.tokens.resize(old_size);
    model_.truncate(old_size);
    throw;
  }
}

void VerifiedSequence::verify(std::size_t accepted) {
  settle();
  const std::size_t keep = lease_.accepted_tokens() + accepted;
  lease_.accept(keep);
  truncate(keep);
}

void VerifiedSequence::truncate(std::size_t tokens) {
  settle();
  lease_.truncate(tokens);
  model_.truncate(tokens);
  request_.tokens.resize(tokens);
  computed_ = std::min(computed_, tokens);
  lose_captures_beyond(tokens);
}

// ---- Publishing, and the end ----

std::size_t VerifiedSequence::publish(std::size_t tokens) {
  settle();
  const std::size_t published = lease_.publish(tokens);
  if (published > std::min(lease_.written_tokens(), lease_.accepted_tokens()) || published > tokens) {
    broken(fmt::format("{} tokens are published of {} written, {} accepted and {} asked for", published,
                       lease_.written_tokens(), lease_.accepted_tokens(), tokens));
  }
  follow_table();
  return published;
}

void VerifiedSequence::check_everything() {
  settle();
  restore();
  follow_table();
  check_blocks(0, lease_.written_tokens());
}

VerifiedSequence::Forked VerifiedSequence::fork(std::string name) {
  settle();
  restore();
  VerifiedRequest request = request_;
  request.name = std::move(name);
  ModelSequence model = model_;
  Lease::Forked forked = lease_.fork();
  follow_table();  // it publishes
  if (!forked.lease) return {.missing_blocks = forked.missing_blocks};
  VerifiedSequence child(*engine_, std::move(request), std::move(*forked.lease), std::move(model));
  child.loading_ = false;  // it has what its parent has
  child.computed_ = child.lease_.first_token_to_compute();
  if (child.lease_.tokens() != lease_.tokens() || child.computed_ != lease_.written_tokens()) {
    child.broken(fmt::format("forked from {} tokens with {} written, it has {} and computes from {} on",
                             lease_.tokens(), lease_.written_tokens(), child.lease_.tokens(), child.computed_));
  }
  child.follow_table();
  child.restore();
  return {.sequence = std::move(child)};
}

void VerifiedSequence::finish() {
  publish();
  lease_.finish();
}

VerifiedRequest VerifiedSequence::preempt() {
  publish();
  VerifiedRequest request = request_;
  request.tokens.resize(lease_.accepted_tokens());
  request.resumed = true;
  lease_.preempt();
  return request;
}

// ---- Blocks ----

void VerifiedSequence::follow_table() {
  if (engine_->blocks() == nullptr) return;
  const std::span<const BlockId> table = lease_.block_table();
  if (table.size() < table_.size()) {
    broken(fmt::format("its block table has shrunk from {} to {} blocks", table_.size(), table.size()));
  }
  const std::size_t block_size = engine_->block_size();
  const std::size_t seen = table_.size();
  std::vector<std::size_t> replaced;
  for (std::size_t i = 0; i < seen; ++i) {
    if (table[i] != table_[i]) replaced.push_back(i);
  }
  table_.assign(table.begin(), table.end());
  for (const std::size_t i : replaced) {
    if ((i + 1) * block_size > lease_.published_tokens()) {
      broken(fmt::format("block {} of its table has changed to physical block {}, though it is not published", i,
                         table_[i]));
    }
    check_blocks(i * block_size, (i + 1) * block_size);
  }
  if (!engine_->strict()) return;
  // New blocks are its own, but for those that were shared with it at the start, and the one that was fetched for it
  // and is cached in part: what is not to be copied is there.
  const std::size_t shared = (lease_.cached_tokens() + (lease_.copies().empty() ? block_size - 1 : 0)) / block_size;
  for (std::size_t i = std::max(seen, shared); i < table_.size(); ++i) engine_->fill_with_garbage(table_[i]);
}

// In the blocks that the table names now.
std::vector<BlockPart> VerifiedSequence::parts(std::size_t from, std::size_t to) const {
  const std::size_t block_size = engine_->block_size();
  std::vector<BlockPart> parts;
  parts.reserve((to - from) / block_size + 2);
  while (from < to) {
    const std::size_t offset = from % block_size;
    const std::size_t tokens = std::min(block_size - offset, to - from);
    if (from / block_size >= table_.size()) broken(fmt::format("its block table has no block for token {}", from));
    parts.push_back(
        {.block = table_[from / block_size], .first_token = from, .offset_tokens = offset, .tokens = tokens});
    from += tokens;
  }
  return parts;
}

void VerifiedSequence::check_blocks(std::size_t from, std::size_t to) const {
  if (engine_->blocks() == nullptr) return;
  for (const BlockPart& part : parts(from, to)) {
    engine_->check(*name_, part, model_.kv(part.first_token, part.first_token + part.tokens));
  }
}

void VerifiedSequence::broken(const std::string& what) const {
  throw ReplayError(fmt::format("{}: {}", *name_, what));
}

}  // namespace cairn::replay
