// From a random request to a sequence.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine_property/attempt.h"
#include "engine_property/engine_driver.h"

namespace cairn::testing {
namespace {

using replay::VerifiedRequest;
using replay::VerifiedSequence;

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

}  // namespace

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
  if (extra % 32 == 4) request.no_fetch = true;
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
  if (sequence.loading) {
    if (operation.cut % 4 == 0) return;
    wait_until_loaded(sequence);
    if (!poll(sequence)) return;
  }
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
  const bool idle = sequences_.empty() && waiting_.empty() && held_blocks_.empty() && !strays_;
  const Peeked peeked = alone_ ? shared_.manager().peek(request.view()) : Peeked{};
  const ManagerStats before = alone_ ? shared_.manager().stats() : ManagerStats{};

  std::optional<VerifiedSequence::Start> start;
  VerifiedRequest handed_over = request;
  if (!attempt([&] { start.emplace(VerifiedSequence::start(shared_.engine(), std::move(handed_over))); })) {
    failed_to_start(request);
    return false;
  }
  if (!start->sequence) {
    ++tally_.refused_admissions;
    // What leaves for the store is free a little later.
    check_refusal(request, *start, alone_ && idle && !shared_.tiers().holds());
    return false;
  }
  const std::size_t tokens = request.tokens.size();
  Sequence sequence{.verified = std::move(*start->sequence),
                    .request = std::move(request),
                    .adapter = adapter,
                    .tokens_min = tokens,
                    .loading = true};
  // What it shows of itself while it is loading is what memory has; it may take note that it is over in between.
  sequence.from_memory = sequence.verified.lease().first_token_to_compute();
  if (alone_) check_reuse(sequence, peeked, before);
  const bool going = sequence.verified.loaded() && !has_failed(sequence);
  note(sequence.request.name, tokens, "tokens, computes from", sequence.from_memory, going ? "" : "loading", "session",
       sequence.request.session, "adapter", sequence.request.adapter, sequence.request.adapter_generation,
       sequence.request.tenant_salt, "media", sequence.request.media.size());
  if (sequence.request.resumed) ++tally_.resumed;
  sequences_.push_back(std::move(sequence));
  Sequence& started = sequences_.back();
  if (going) {
    count_reuse(started, started.verified.lease().first_token_to_compute(),
                std::min(started.from_memory, peeked.reusable_tokens));
  } else if (started.verified.loaded()) {
    static_cast<void>(poll(started));
    return true;
  }
  // A clear came between: nobody can say with which weights it has to go on.
  if (clears % 2 != 0 || shared_.clears() != clears) abandon(started);
  return true;
}

void EngineDriver::check_reuse(const Sequence& sequence, const Peeked& peeked, const ManagerStats& before) {
  const ManagerStats stats = shared_.manager().stats();
  const std::size_t first = sequence.from_memory;
  const std::uint64_t matched = stats.matched_tokens - before.matched_tokens;
  // Some of it may have come from the store at once.
  const bool fetched = stats.fetches > before.fetches;
  const bool counted = !sequence.request.resumed && stats.requests > before.requests;
  const bool kept = fetched ? first >= peeked.reusable_tokens && (!counted || matched >= peeked.matched_tokens)
                            : first == peeked.reusable_tokens && (!counted || matched == peeked.matched_tokens);
  // Where state ends within a block, that is copied; if there is no room for both, nothing is reused.
  const bool given_up = first == 0 && matched == 0 && peeked.reusable_tokens % shared_.settings().block_size != 0;
  if (kept || given_up) return;
  throw Broken(fmt::format("{}: peek promised {} tokens of {} that match, and admit reuses {} of {}{}",
                           sequence.request.name, peeked.reusable_tokens, peeked.matched_tokens, first, matched,
                           fetched ? ", having fetched" : ""));
}

// An allocation failed. If that was after the admission, the lease has been dropped again.
void EngineDriver::failed_to_start(const VerifiedRequest& request) {
  const ManagerStats stats = shared_.manager().stats();
  if (stats.requests == tally_.requests && stats.resumed == tally_.resumed) return;
  strays_ = true;  // maybe
  ++(request.resumed ? tally_.resumed : tally_.requests);
  ++tally_.abandoned;
  if (request.resumed) return;
  tally_.prompt_tokens += request.tokens.size();
  tally_.reused_tokens = stats.reused_tokens;
  tally_.memory_tokens = stats.reused_from_memory_tokens;
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

}  // namespace cairn::testing
