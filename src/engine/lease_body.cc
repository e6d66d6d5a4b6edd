#include "engine/lease_body.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/containers.h"
#include "base/refuse.h"
#include "engine/real_tokens.h"

namespace cairn {

Lease::Body::Body(std::shared_ptr<ManagerCore> core) : core_(std::move(core)), era_(core_->eras().enter()) {
  core_->counts().live_leases.add(1);
}

Lease::Body::Body(const Body* parent) : core_(parent->core_), era_(parent->era_) {
  core_->eras().enter_again(era_);
  core_->counts().live_leases.add(1);
}

Lease::Body::~Body() {
  ManagerCore& core = *core_;
  for (const Writing& writing : writing_) CAIRN_CHECK(writing.step->state() != Step::State::kInFlight);
  for (const Capture& capture : captures_) abandon_capture(capture);
  restored();
  if (loading_) give_up_loading(*loading_);
  const std::size_t held_by_handle = core.has_blocks() ? published() / core.block_size() : 0;
  core.tree().release(handle_);
  core.drop_references(std::span(table_).subspan(std::min(held_by_handle, table_.size())));
  for (const Writing& writing : writing_) core.drop_references(writing.retired);
  if (names_.adapter != 0) core.adapters().drop(names_.adapter);
  for (const TokenId token : names_.media) core.media().drop(token);
  core.eras().leave(era_);
  core.drop_unused_eras();
  core.counts().live_leases.subtract(1);
}

bool Lease::Body::park() noexcept {
  if (!waited_ && std::ranges::any_of(writing_, [](const Writing& writing) {
        return writing.step->state() == Step::State::kInFlight;
      })) {
    waited_ = true;
    core_->counts().waits.add(1);
  }
  // Once it is parked, another thread may have it.
  return std::ranges::any_of(writing_,
                             [this](const Writing& writing) { return core_->steps().park(*writing.step, this); });
}

// ---- Admission ----

std::size_t Lease::Body::look_up(std::span<const TokenId> prompt, std::size_t limit) {
  const bool blocks = core_->has_blocks();
  const ReadOptions options{.session_hash = names_.session,
                            .adapter_id = names_.adapter,
                            .max_snapshot_tokens = limit,
                            .pin_snapshot = core_->has_snapshots(),
                            .resident_snapshots_only = core_->has_store(),
                            .stored_blocks = core_->has_store()};
  auto acquired = core_->tree().acquire(prompt.first(blocks ? limit : 0), options);
  noted_.moment = core_->evicted_memory().now();
  handle_ = std::move(acquired.handle);
  pin_ = std::move(acquired.pin);
  restore_tokens_ = acquired.match.ssm_snapshot_tokens;
  table_ = std::move(acquired.match.matched_blocks);
  stored_blocks_ = std::move(acquired.stored_blocks);
  sampled_ = core_->size_estimator().find_sampled(table_);
  if (!blocks && limit > 0) {
    auto found = core_->tree().find_snapshot(prompt.first(limit), options);
    pin_ = std::move(found.pin);
    restore_tokens_ = found.snapshot.slot ? found.snapshot.tokens : 0;
  }
  if (pin_.valid()) restore_origin_ = core_->snapshot_kinds().get(pin_.slot());
  noted_.allowed_tokens = limit;
  noted_.matched_tokens = handle_.tokens();
  return handle_.tokens();
}

void Lease::Body::begin(std::span<const TokenId> prompt) {
  const bool states = core_->has_snapshots();
  prompt_ = accepted_ = prompt.size();
  start_at(states ? restore_tokens_ : handle_.tokens());
  if (core_->has_blocks()) share_blocks(first_after_loading());
  // Snapshots are put by all their tokens, blocks by those that follow the handle.
  tokens_start_ = states ? 0 : estimator_start();
  const auto needed = prompt.subspan(tokens_start_);
  tokens_.assign(needed.begin(), needed.end());
}

// From where on tokens are wanted: the handle's end, or before that, from where the estimator can go on. Not for a
// prompt of which nothing is missing: as a rule it leaves nothing new, and copying more would be felt.
std::size_t Lease::Body::estimator_start() const {
  const SizeEstimator& estimator = core_->size_estimator();
  const std::size_t block_size = core_->block_size();
  const std::size_t held = handle_.tokens() / block_size;
  const bool is_wanted = estimator.is_on() && names_.publish_limit > 0 && (prompt_ - 1) / block_size > held;
  return (is_wanted ? estimator.resume_at(held) : held) * block_size;
}

// Keeps the blocks of the first `tokens` tokens as far as they match: those after them will be computed again, so they
// must be our own. One that `tokens` ends in is copied.
void Lease::Body::share_blocks(std::size_t tokens) {
  const std::size_t block_size = core_->block_size();
  const std::size_t partly = tokens % block_size;
  const std::size_t shared = std::min(tokens, handle_.tokens()) / block_size;
  if (partly > 0 && tokens < handle_.tokens()) {
    copies_.push_back({.from = table_[shared], .to = 0, .tokens = partly});
    core_->options().blocks->add_references({&table_[shared], 1});
  }
  table_.resize(shared);
  if (shared * block_size < handle_.tokens()) core_->tree().truncate(handle_, shared * block_size);
}

std::size_t Lease::Body::begin_again(std::span<const TokenId> prompt, std::size_t limit) {
  restored();
  if (loading_) give_up_loading(*loading_);
  loading_.reset();
  table_.clear();  // first: they are the handle's
  core_->tree().release(handle_);
  const std::size_t matched = look_up(prompt, limit);
  stored_blocks_.clear();
  begin(prompt);
  return matched;
}

void Lease::Body::plan(std::size_t matched_tokens, bool second_sight) {
  const CacheManagerOptions& options = core_->options();
  if (!core_->has_snapshots() || names_.publish_limit == 0) return;
  const CapturePlan plan{.block_size = options.block_size,
                         .prompt_tokens = std::min(prompt_, names_.publish_limit),
                         .have_tokens = first_,
                         .tails = options.capture_tails,
                         .siblings = options.capture_siblings,
                         .last_token = options.capture_last_token,
                         .session = names_.session != 0,
                         .branch_tokens = second_sight ? std::optional(matched_tokens) : std::nullopt,
                         .checkpoint_every_tokens = options.checkpoint_every_tokens};
  capture_points_ = plan_captures(plan);
}

StateLoad& Lease::Body::load() {
  if (!load_) load_ = std::make_shared<StateLoad>();
  return *load_;
}

void Lease::Body::load_state(std::size_t shard, std::span<std::byte> to) {
  if (!pin_.valid()) refuse("load_state", "there is no snapshot to restore, or restored was called");
  load().begin();
  try {
    core_->options().snapshots->read(pin_.slot(), shard, to,
                                     [load = load_](std::error_code error) { load->end(error); });
  } catch (...) {
    load_->end({});  // it has not begun
    throw;
  }
}

std::optional<RestorePoint> Lease::Body::restore_point() const {
  if (!pin_.valid() || loading_) return std::nullopt;
  return RestorePoint{.slot = pin_.slot(), .tokens = restore_tokens_};
}

void Lease::Body::restored() noexcept {
  let_go(pin_);
  drop_copies();
}

void Lease::Body::let_go(SnapshotPin& pin) noexcept {
  if (!pin.valid()) return;
  const std::optional<SnapshotId> slot = core_->tree().unpin_snapshot(pin);
  if (slot) core_->free_slot(*slot);
}

void Lease::Body::drop_copies() noexcept {
  for (const BlockCopy& copy : copies_) core_->drop_references({&copy.from, 1});
  copies_.clear();
}

// ---- Computing ----

// Takes note of steps that are over.
void Lease::Body::settle() noexcept {
  while (!writing_.empty()) {
    const Writing& writing = writing_.front();
    const Step::State state = writing.step->state();
    if (state == Step::State::kInFlight) return;
    if (state == Step::State::kDone) restored();  // what had to come before the first step has come
    if (writing.from < writing.to) {
      if (state == Step::State::kFailed) {
        lose_writes_beyond(writing.from);
      } else {
        written_ = std::max(written_, writing.to);
      }
    }
    core_->drop_references(writing.retired);
    writing_.pop_front();
  }
}

// What steps in flight write beyond counts for nothing: it rests on tokens that are not there.
void Lease::Body::lose_writes_beyond(std::size_t tokens) noexcept {
  for (Writing& writing : writing_) writing.to = std::min(writing.to, tokens);
  written_ = std::min(written_, tokens);
  begun_ = std::min(begun_, tokens);
  for (Capture& capture : captures_) capture.lost = capture.lost || capture.tokens > tokens;
  std::erase_if(captures_, [this](const Capture& capture) {
    const bool over = capture.lost && capture.complete;  // else its slot is still being filled
    if (over) abandon_capture(capture);
    return over;
  });
}

void Lease::Body::writes(StepId step, std::size_t from, std::size_t to) {
  settle();
  const auto range = "[" + std::to_string(from) + ", " + std::to_string(to) + ")";
  if (from >= to) refuse("from, to", range + " is empty");
  if (from > begun_) {
    refuse("from", range + " leaves a gap: steps write up to token " + std::to_string(begun_) + " so far");
  }
  if (from < fixed()) {
    refuse("from", range + " begins before token " + std::to_string(fixed()) +
                       ": what is cached, published or shared with a fork is never written again");
  }
  if (to > end()) refuse("to", range + " ends after the " + std::to_string(end()) + " tokens of the sequence");
  if (core_->has_blocks() && core_->blocks_for(to) > table_.size()) {
    refuse("to", range + " needs " + std::to_string(core_->blocks_for(to)) + " blocks, but there are " +
                     std::to_string(table_.size()) + ": reserve first");
  }
  writing_.emplace_back();
  try {
    writing_.back().step = core_->steps().in_flight(step);
  } catch (...) {
    writing_.pop_back();
    throw;
  }
  lose_writes_beyond(from);  // what is written once more is not written until then
  writing_.back().from = from;
  writing_.back().to = begun_ = to;
  writing_.back().step->add_tokens(to - from);
}

std::size_t Lease::Body::reserve(std::size_t tokens) {
  settle();
  if (!core_->has_blocks()) return 0;
  const std::size_t wanted = core_->blocks_for(tokens);
  if (wanted <= table_.size()) return 0;
  const std::size_t missing = core_->allocate(wanted - table_.size(), table_, noted_.admission);
  if (missing > 0) return missing;
  // The first block of ours, if a snapshot ends within it.
  for (BlockCopy& copy : copies_) copy.to = table_[handle_.tokens() / core_->block_size()];
  return 0;
}

void Lease::Body::add_tokens(std::span<const TokenId> tokens) {
  check_real_tokens(tokens);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Lease::Body::append(std::span<const TokenId> tokens) {
  if (end() > accepted_) {
    refuse("tokens", std::to_string(end() - accepted_) + " drafted tokens are waiting for accept or truncate");
  }
  add_tokens(tokens);
  accepted_ = end();
}

void Lease::Body::draft(std::span<const TokenId> tokens) {
  add_tokens(tokens);
}

void Lease::Body::accept(std::size_t tokens) {
  if (tokens < accepted_ || tokens > end()) {
    refuse("tokens", std::to_string(tokens) + " is not between the " + std::to_string(accepted_) +
                         " accepted already and the " + std::to_string(end()) + " that there are");
  }
  accepted_ = tokens;
}

void Lease::Body::truncate(std::size_t tokens) {
  settle();
  if (tokens < fixed() || tokens > end()) {
    refuse("tokens", std::to_string(tokens) + " is not between the " + std::to_string(fixed()) +
                         " that are cached, published or shared with a fork and the " + std::to_string(end()) +
                         " that there are");
  }
  tokens_.resize(tokens - tokens_start_);
  accepted_ = std::min(accepted_, tokens);
  prompt_ = std::min(prompt_, tokens);
  lose_writes_beyond(tokens);
  const bool tail_is_lost = std::ranges::any_of(
      capture_points_, [tokens](const CapturePoint& p) { return p.tokens > tokens && p.kind == CaptureKind::kTail; });
  std::erase_if(capture_points_, [tokens](const CapturePoint& p) { return p.tokens > tokens; });
  if (tail_is_lost) tail_will_not_come();
}

// ---- Publishing blocks ----

void Lease::Body::publish(std::size_t tokens) {
  settle();
  publish_complete();
  const std::size_t block_size = core_->block_size();
  const std::size_t from = published();
  const std::size_t ready = std::min({tokens, written_, accepted_, publish_limit()});
  if (!core_->has_blocks() || ready / block_size <= from / block_size) return;

  const std::size_t count = ready / block_size - from / block_size;
  const auto ours = std::span(table_).subspan(from / block_size, count);
  if (!writing_.empty()) make_room(writing_.back().retired, count);
  note_fingerprints(ours, from);
  const auto extended = core_->tree().extend(handle_, tokens_from(from).first(count * block_size), ours, {});
  if (extended.epoch_passed) {
    names_.publish_limit = 0;
    return;
  }
  // Our references on the blocks that the cache took from us are its own now. In the place of the others come those
  // that somebody published first, which the handle holds.
  const std::span<const BlockId> existing = extended.existing_blocks;
  core_->counts().published_blocks.add(extended.blocks.size());
  core_->counts().deduplicated_blocks.add(existing.size());
  for (std::size_t i = 0; i < existing.size(); ++i) retire(std::exchange(ours[i], existing[i]));
  prioritize(from);
  core_->write_through(handle_, count);
  note_published(from / block_size);
  drop_old_tokens();
}

// Tells the estimator of what was published beyond the first `before` blocks.
void Lease::Body::note_published(std::size_t before) noexcept {
  SizeEstimator& estimator = core_->size_estimator();
  if (!estimator.is_on()) return;
  const std::size_t block_size = core_->block_size();
  if (!chain_) {
    const std::size_t start = estimator.resume_at(before);
    chain_.emplace();
    if (start * block_size >= tokens_start_) {
      chain_ =
          estimator.resume({.adapter_id = names_.adapter, .epoch = handle_.epoch()}, std::span(table_).first(start));
    }
  }
  if (!chain_->is_known) return;
  const std::size_t from = chain_->blocks;
  const std::size_t count = published() / block_size - from;
  estimator.publish(*chain_,
                    {.tokens = tokens_from(from * block_size).first(count * block_size),
                     .blocks = std::span(table_).subspan(from, count),
                     .asked = asked_},
                    sampled_);
}

// Of the first `blocks` blocks of the sequence, which are published; 0 if it is not known.
Fingerprint Lease::Body::fingerprint_at(std::size_t blocks) const {
  return blocks == 0 ? fingerprint_of_start(names_.adapter, handle_.epoch())
                     : core_->evicted_memory().of_block(table_[blocks - 1]);
}

// Of blocks that are about to be published, which follow the first `from` tokens.
void Lease::Body::note_fingerprints(std::span<const BlockId> blocks, std::size_t from) noexcept {
  EvictedMemory& memory = core_->evicted_memory();
  if (!memory.is_on()) return;
  const std::size_t block_size = core_->block_size();
  Fingerprint fingerprint = fingerprint_at(from / block_size);
  std::span<const TokenId> tokens = tokens_from(from);
  for (const BlockId block : blocks) {
    if (fingerprint != 0) fingerprint = fingerprint_after(fingerprint, tokens.first(block_size));
    memory.set_block(block, fingerprint);
    tokens = tokens.subspan(block_size);
  }
}

void Lease::Body::note_fingerprint(const Capture& capture) noexcept {
  const bool is_tail = capture.kind == CaptureKind::kTail;
  const bool is_session_s = is_tail || capture.kind == CaptureKind::kTailSibling;
  note_snapshot(capture.slot,
                {.tokens = capture.tokens, .session = is_session_s ? names_.session : 0, .is_tail = is_tail});
}

// Of a snapshot that is about to be published, at `place`, whose fingerprint is to be taken: after whole blocks, then
// the tokens beyond.
void Lease::Body::note_snapshot(SnapshotId slot, const EvictedMemory::SnapshotPlace& place) noexcept {
  EvictedMemory& memory = core_->evicted_memory();
  if (!memory.is_on()) return;
  const std::size_t block_size = core_->block_size();
  const std::size_t whole = place.tokens / block_size;
  std::size_t known = core_->has_blocks() ? std::min(published() / block_size, whole) : 0;
  Fingerprint fingerprint = fingerprint_at(known);
  if (fingerprint == 0) {
    known = 0;
    fingerprint = fingerprint_at(0);
  }
  const std::span<const TokenId> tokens(tokens_);
  for (; known < whole; ++known) {
    fingerprint = fingerprint_after(fingerprint, tokens.subspan(known * block_size, block_size));
  }
  fingerprint = fingerprint_after(fingerprint, tokens.subspan(whole * block_size, place.tokens % block_size));
  memory.set_snapshot(
      slot, {.fingerprint = fingerprint, .tokens = place.tokens, .session = place.session, .is_tail = place.is_tail});
}

// Marks what the request said of the blocks that are published, from the one at token `from` on. Without memory for it
// they stay as they are: it is a wish.
void Lease::Body::prioritize(std::size_t from) noexcept {
  try {
    for (const PrioritySpan& span : names_.priorities) {
      core_->tree().prioritize(handle_, std::max(span.from, from), span.to,
                               {.priority = span.priority, .keep_for = span.keep_for});
    }
  } catch (const std::bad_alloc&) {
    return;
  }
}

// Gives up a block of ours as soon as no step in flight may use it. There is room for it.
void Lease::Body::retire(BlockId block) noexcept {
  if (writing_.empty()) {
    core_->drop_references({&block, 1});
  } else {
    writing_.back().retired.push_back(block);
  }
}

std::size_t Lease::Body::publish_limit() const {
  return core_->closed() ? 0 : names_.publish_limit;
}

// Those of published blocks, in one go when they are the greater part.
void Lease::Body::drop_old_tokens() {
  if (core_->has_snapshots()) return;
  const std::size_t old = published() - tokens_start_;
  if (old <= tokens_.size() / 2) return;
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(old));
  tokens_start_ += old;
}

void Lease::Body::publish_rest() {
  publish(kNoLimit);
  tail_will_not_come();
}

// ---- Publishing snapshots ----

Lease::Body::Captures::iterator Lease::Body::find_capture(SnapshotId slot) {
  const auto capture =
      std::ranges::find_if(captures_, [&](const Capture& c) { return c.slot == slot && !c.complete; });
  if (capture == captures_.end()) {
    refuse("slot", std::to_string(slot) + " is not one that this lease is capturing into");
  }
  return capture;
}

CaptureKind Lease::Body::kind_at(std::size_t tokens) const {
  const auto point = std::ranges::find(capture_points_, tokens, &CapturePoint::tokens);
  if (point != capture_points_.end()) return point->kind;
  return tokens > prompt_ ? CaptureKind::kLastToken : CaptureKind::kCheckpoint;
}

std::optional<SnapshotId> Lease::Body::capture(std::size_t tokens) {
  settle();
  const std::size_t known = std::min(begun_, accepted_);
  if (tokens == 0 || tokens < first_ || tokens > known) {
    refuse("tokens", std::to_string(tokens) + ": this lease has states from token " +
                         std::to_string(std::max<std::size_t>(first_, 1)) + " to " + std::to_string(known) +
                         ", as far as steps have been declared and tokens accepted");
  }
  if (!core_->has_snapshots() || tokens > publish_limit()) return std::nullopt;
  if (std::ranges::find(captures_, tokens, &Capture::tokens) != captures_.end()) return std::nullopt;
  make_room(captures_, 1);
  std::vector<bool> shards(core_->options().snapshots->shards());
  const CaptureKind kind = kind_at(tokens);
  const std::optional<SnapshotId> slot = core_->allocate_slot(noted_.admission);
  if (!slot) {
    core_->counts().captures_declined.add(1);
    if (kind == CaptureKind::kTail) tail_will_not_come();
    return std::nullopt;
  }
  captures_.push_back({.tokens = tokens, .kind = kind, .slot = *slot, .shards = std::move(shards)});
  return slot;
}

bool Lease::Body::captured(SnapshotId slot, std::size_t shard) {
  settle();
  const auto capture = find_capture(slot);
  if (shard >= capture->shards.size()) {
    refuse("shard", std::to_string(shard) + ": a snapshot has " + std::to_string(capture->shards.size()));
  }
  if (capture->shards[shard]) refuse("shard", std::to_string(shard) + " of this slot was reported already");
  capture->shards[shard] = true;
  if (!std::ranges::all_of(capture->shards, [](bool in) { return in; })) return false;
  if (!capture->lost && !core_->options().snapshots->commit(slot)) {
    capture->shards[shard] = false;
    refuse("slot", std::to_string(slot) + " has a write that is not done");
  }
  if (capture->lost) {
    cancel_capture(slot);
  } else {
    capture->complete = true;
    publish_complete();
  }
  return true;
}

// A tail sweeps the session's earlier ones, so its sibling, which is reached first, has to wait for it.
bool Lease::Body::tail_may_come() const {
  return std::ranges::any_of(capture_points_, [](const CapturePoint& p) { return p.kind == CaptureKind::kTail; });
}

// The sibling is the best place to go on from then.
void Lease::Body::tail_will_not_come() noexcept {
  std::erase_if(capture_points_, [](const CapturePoint& p) { return p.kind == CaptureKind::kTail; });
  for (Capture& capture : captures_) {
    if (capture.kind == CaptureKind::kTailSibling) capture.kind = CaptureKind::kTail;
  }
  publish_complete();
}

bool Lease::Body::can_be_published(const Capture& capture) const {
  return capture.complete && capture.tokens <= written_ &&
         !(capture.kind == CaptureKind::kTailSibling && tail_may_come());
}

void Lease::Body::publish_complete() noexcept {
  const auto next = [this] {
    return std::ranges::find_if(captures_, [this](const Capture& capture) { return can_be_published(capture); });
  };
  for (auto found = next(); found != captures_.end(); found = next()) {
    const Capture capture = std::move(*found);
    captures_.erase(found);
    if (capture.kind == CaptureKind::kTail) {
      std::erase_if(capture_points_, [](const CapturePoint& p) { return p.kind == CaptureKind::kTail; });
    }
    try {
      publish_capture(capture);
    } catch (const std::bad_alloc&) {
      abandon_capture(capture);  // a snapshot less never fails a request
    }
  }
}

void Lease::Body::publish_capture(const Capture& capture) {
  if (publish_limit() == 0) return abandon_capture(capture);
  RadixTree& tree = core_->tree();
  const auto tokens = std::span<const TokenId>(tokens_).first(capture.tokens);
  const auto adapter = names_.adapter;
  const auto epoch = handle_.epoch();
  bool kept = true;
  note_fingerprint(capture);
  const auto give_back = [&](std::optional<SnapshotId> freed) {
    if (!freed) return;
    if (*freed != capture.slot) {
      core_->evicted_memory().snapshot_left(*freed, EvictedMemory::How::kReplaced, noted_.admission);
    }
    core_->free_slot(*freed);
    if (*freed == capture.slot) kept = false;
  };
  core_->snapshot_kinds().set(capture.slot, origin_of(capture.kind));
  switch (capture.kind) {
    case CaptureKind::kTail:
      for (const SnapshotId freed : tree.insert_tail_snapshot(tokens, capture.slot, names_.session, adapter, epoch)) {
        give_back(freed);
      }
      break;
    case CaptureKind::kTailSibling:
      give_back(tree.insert_tail_sibling_snapshot(tokens, capture.slot, names_.session, adapter, epoch));
      break;
    case CaptureKind::kBranchPoint:
    case CaptureKind::kSharedTail:
    case CaptureKind::kCheckpoint:
    case CaptureKind::kLastToken:
      // For everybody: it is at a place that others are expected to come by.
      give_back(
          tree.insert_intermediate_snapshot(tokens, {}, {}, core_->block_size(), capture.slot, 0, 0, adapter, epoch));
      break;
  }
  (kept ? core_->counts().captures_published : core_->counts().captures_abandoned).add(1);
  if (kept) core_->snapshot_kinds().published(origin_of(capture.kind));
}

// It is not published, and its slot goes back.
void Lease::Body::abandon_capture(const Capture& capture) noexcept {
  core_->free_slot(capture.slot);
  core_->counts().captures_abandoned.add(1);
}

void Lease::Body::cancel_capture(SnapshotId slot) {
  const auto capture = find_capture(slot);
  abandon_capture(*capture);
  captures_.erase(capture);
}

// ---- Forks ----

Lease::Forked Lease::Body::fork() {
  settle();
  if (pin_.valid() || !copies_.empty()) {
    refuse("fork", "restored has to be called first: there is a snapshot to restore or a block to copy");
  }
  if (end() > accepted_) {
    refuse("fork", std::to_string(end() - accepted_) + " drafted tokens are waiting for accept or truncate");
  }
  publish(kNoLimit);
  ManagerCore& core = *core_;
  const std::size_t block_size = core.block_size();
  const std::size_t full = core.has_blocks() ? written_ / block_size : 0;
  const std::size_t partly = core.has_blocks() ? written_ % block_size : 0;
  const std::size_t held_by_handle = core.has_blocks() ? published() / block_size : 0;

  auto child = std::make_unique<Body>(this);
  // The child's ~Body gives back what it has by then; so each line leaves it consistent.
  child->tokens_ = tokens_;
  child->tokens_start_ = tokens_start_;
  child->prompt_ = prompt_;
  child->chain_ = chain_;
  child->sampled_ = sampled_;
  child->accepted_ = accepted_;
  child->first_ = child->fixed_ = child->written_ = child->begun_ = written_;
  child->names_.priorities = names_.priorities;
  child->names_.media.reserve(names_.media.size());
  for (const TokenId token : names_.media) {
    core.media().use_again(token);
    child->names_.media.push_back(token);
  }
  if (names_.adapter != 0) core.adapters().use_again(names_.adapter);
  child->names_.adapter = names_.adapter;
  child->names_.session = names_.session;
  child->names_.publish_limit = names_.publish_limit;
  child->noted_ = noted_;
  child->noted_.reused_tokens = noted_.reused_tokens.value_or(first_);
  std::vector<BlockId> shared(table_.begin(), table_.begin() + static_cast<std::ptrdiff_t>(full));
  child->handle_ = core.tree().share(handle_);
  if (core.has_blocks()) {
    core.options().blocks->add_references(std::span(shared).subspan(held_by_handle));
    child->table_ = std::move(shared);
  }
  if (partly > 0) {
    child->copies_.reserve(1);
    const std::size_t missing = child->reserve(written_);
    if (missing > 0) {
      core.counts().refused_reserves.add(1);
      return {.lease = std::nullopt, .missing_blocks = missing};
    }
    core.options().blocks->add_references({&table_[full], 1});
    child->copies_.push_back({.from = table_[full], .to = child->table_[full], .tokens = partly});
  }
  fixed_ = std::max(fixed_, written_);
  core.counts().forks.add(1);
  return {.lease = Lease(std::move(child)), .missing_blocks = 0};
}

}  // namespace cairn
