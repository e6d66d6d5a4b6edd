// Lease::explain: where a request's cached prefix ended, and why, from what admission noted and the cache knows now.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/equal_stretches.h"
#include "cairn/explanation.h"
#include "engine/evicted_memory.h"
#include "engine/lease_body.h"
#include "engine/manager_core.h"

namespace cairn {
namespace {

constexpr std::size_t kProbesMax = 64;      // of other adapters of the tenant, and of other tenants
constexpr std::size_t kEqualAgainMin = 32;  // tokens, together
// Prompts of one model all begin with a token or two of its template: that alone makes no two of them alike.
constexpr std::size_t kAlikeMin = 8;

// Of the first `count` tokens; the fingerprints of whole blocks are kept, so each further one costs a block at most.
class PromptFingerprints {
 public:
  PromptFingerprints(Fingerprint start, std::span<const TokenId> prompt, std::size_t block_size)
      : prompt_(prompt), block_size_(block_size), of_blocks_{start} {}

  [[nodiscard]] Fingerprint of_blocks(std::size_t count) {
    while (of_blocks_.size() <= count) {
      const std::size_t from = (of_blocks_.size() - 1) * block_size_;
      of_blocks_.push_back(fingerprint_after(of_blocks_.back(), prompt_.subspan(from, block_size_)));
    }
    return of_blocks_[count];
  }
  [[nodiscard]] Fingerprint of_snapshot(std::size_t tokens) {
    const std::size_t whole = tokens / block_size_;
    return fingerprint_after(of_blocks(whole), prompt_.subspan(whole * block_size_, tokens % block_size_));
  }

 private:
  std::span<const TokenId> prompt_;
  std::size_t block_size_;
  std::vector<Fingerprint> of_blocks_;
};

MissReason reason_of(ReuseLimit limit) {
  return limit == ReuseLimit::kLastToken ? MissReason::kNone : MissReason::kForbidden;
}

}  // namespace

LeaseExplanation Lease::Body::explain() const {
  const ManagerCore& core = *core_;
  const std::size_t block_size = core.block_size();
  LeaseExplanation what;
  what.admission = noted_.admission;
  what.limit = noted_.limit;
  what.prompt_tokens = std::min(prompt_, noted_.prompt_tokens);
  what.allowed_tokens = std::min(noted_.allowed_tokens, what.prompt_tokens);
  what.reused_tokens = std::min(noted_.reused_tokens.value_or(first_), what.prompt_tokens);
  if (core.has_blocks()) {
    const std::size_t matched = std::max(noted_.matched_tokens, what.reused_tokens);
    what.matched_tokens = std::min(matched, what.prompt_tokens) / block_size * block_size;
  }
  const EvictedMemory& memory = core_->evicted_memory();
  what.evictions_forgotten =
      core.has_blocks() ? memory.has_forgotten_blocks(noted_.moment) : memory.has_forgotten_snapshots(noted_.moment);

  const std::vector<TokenId> prompt = prompt_so_far();
  if (core_->tree().epoch(names_.adapter) != handle_.epoch() || prompt.size() < what.prompt_tokens) {
    what.reason = MissReason::kCleared;
    return what;
  }
  const auto allowed = std::span(prompt).first(what.allowed_tokens);
  if (!core.has_blocks()) {
    what.reason = reason_of(what.limit);
    if (what.reused_tokens < allowed.size()) explain_state(allowed, what);
  } else if (what.prompt_tokens <= block_size) {
    what.reason = MissReason::kTooShort;
  } else if (core.has_snapshots() && what.reused_tokens < what.matched_tokens) {
    explain_state(allowed.first(std::min(what.matched_tokens, allowed.size())), what);
  } else if (what.matched_tokens + block_size > allowed.size()) {
    what.reason = reason_of(what.limit);
  } else {
    explain_block(allowed, what);
  }
  return what;
}

// None if the cache was cleared, and those that were published are nowhere any more.
std::vector<TokenId> Lease::Body::prompt_so_far() const {
  std::vector<TokenId> tokens;
  if (tokens_start_ > 0) tokens = core_->tree().tokens_of(handle_);
  if (tokens.size() < tokens_start_) return {};
  const auto rest = tokens_from(tokens.size());
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  tokens.resize(std::min({tokens.size(), prompt_, noted_.prompt_tokens}));
  return tokens;
}

void Lease::Body::tell(const EvictedMemory::Eviction& eviction, LeaseExplanation& what) const {
  what.evicted_for_admission = eviction.admission;
  what.evicted_admissions_ago = noted_.admission - std::min(noted_.admission, eviction.admission);
  what.evicted_ago =
      std::chrono::duration_cast<std::chrono::milliseconds>(EvictedMemory::Clock::now() - eviction.when);
}

// ---- States ----

// `prompt` is as long as a state could have been used.
void Lease::Body::explain_state(std::span<const TokenId> prompt, LeaseExplanation& what) const {
  if (explain_lost_state(prompt, what)) {
    what.reason = what.state == StateLoss::kStored ? MissReason::kStored : MissReason::kStateMissing;
  } else if (core_->has_blocks()) {
    what.reason = MissReason::kStateMissing;
    what.state = StateLoss::kNeverTaken;
  } else {
    what.reason = MissReason::kNeverSeen;
    what.goes_on = what.reused_tokens > 0;
  }
}

bool Lease::Body::explain_lost_state(std::span<const TokenId> prompt, LeaseExplanation& what) const {
  const SnapshotRef now = core_->tree().peek_snapshot(
      prompt, {.session_hash = names_.session, .adapter_id = names_.adapter, .max_snapshot_tokens = prompt.size()});
  if (now.tokens > what.reused_tokens) {
    if (now.tier_key) {
      what.state = StateLoss::kStored;
      what.state_tokens = now.tokens;
      return true;
    }
    what.published_since = now.slot.has_value();
  }
  struct Candidate {
    EvictedMemory::SnapshotPlace place;
    EvictedMemory::Eviction eviction;
  };
  std::vector<Candidate> candidates;
  const bool shared = core_->options().share_snapshots_across_sessions;
  core_->evicted_memory().for_each_snapshot(noted_.moment, [&](const auto& place, const auto& eviction) {
    const bool visible =
        place.session == names_.session || (!place.is_tail && (shared || place.session == 0 || names_.session == 0));
    if (!visible || place.tokens <= what.reused_tokens || place.tokens > prompt.size()) return;
    candidates.push_back({place, eviction});
  });
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return std::pair(a.place.tokens, a.eviction.when) > std::pair(b.place.tokens, b.eviction.when);
  });
  PromptFingerprints fingerprints(fingerprint_of_start(names_.adapter, handle_.epoch()), prompt, core_->block_size());
  for (const auto& [place, eviction] : candidates) {
    if (fingerprints.of_snapshot(place.tokens) != place.fingerprint) continue;
    what.state = eviction.how == EvictedMemory::How::kEvicted ? StateLoss::kEvicted : StateLoss::kReplaced;
    what.state_tokens = place.tokens;
    tell(eviction, what);
    return true;
  }
  return false;
}

// ---- Blocks ----

// The block of `prompt` behind what.matched_tokens, which could have been used and was not there.
void Lease::Body::explain_block(std::span<const TokenId> prompt, LeaseExplanation& what) const {
  const RadixTree::Peek now = core_->tree().peek(
      prompt, {.session_hash = names_.session, .adapter_id = names_.adapter, .stored_blocks = core_->has_store()});
  what.published_since = now.matched_tokens > what.matched_tokens;
  if (now.stored_tokens > 0 && !what.published_since) {
    what.reason = MissReason::kStored;
    what.stored_tokens = now.stored_tokens;
    return;
  }
  if (explain_evicted(prompt, what) || explain_other(prompt, what)) return;
  explain_nearest(prompt, what);
}

bool Lease::Body::explain_evicted(std::span<const TokenId> prompt, LeaseExplanation& what) const {
  const std::size_t block_size = core_->block_size();
  const EvictedMemory& memory = core_->evicted_memory();
  PromptFingerprints fingerprints(fingerprint_of_start(names_.adapter, handle_.epoch()), prompt, block_size);
  const std::size_t first = what.matched_tokens / block_size;
  std::size_t blocks = first;
  for (; blocks < prompt.size() / block_size; ++blocks) {
    const auto eviction = memory.find_block(fingerprints.of_blocks(blocks + 1), noted_.moment);
    if (!eviction) break;
    if (blocks == first) tell(*eviction, what);
  }
  if (blocks == first) return false;
  what.reason = MissReason::kEvicted;
  what.evicted_tokens = (blocks - first) * block_size;
  return true;
}

bool Lease::Body::explain_other(std::span<const TokenId> prompt, LeaseExplanation& what) const {
  AdapterTable& adapters = core_->adapters();
  const bool across_tenants = core_->options().explain_across_tenants;
  const std::optional<AdapterName> own = names_.adapter == 0 ? std::nullopt : adapters.name_of(names_.adapter);
  const std::string salt(own ? own->view().salt : std::string_view());
  std::vector<AdapterId> of_tenant;
  std::vector<AdapterId> of_others;
  if (names_.adapter != 0 && (salt.empty() || across_tenants)) (salt.empty() ? of_tenant : of_others).push_back(0);
  adapters.for_each([&](const AdapterView& view, AdapterId id) {
    const bool same_tenant = view.salt == salt;
    if (id != names_.adapter && (same_tenant || across_tenants)) (same_tenant ? of_tenant : of_others).push_back(id);
  });
  std::size_t most = what.matched_tokens;
  std::optional<AdapterId> best;
  const auto probe = [&](std::vector<AdapterId>& ids) {
    if (ids.size() > kProbesMax) {
      // Those in use come first, those that went out of use last at the end.
      std::move(ids.end() - kProbesMax / 2, ids.end(), ids.begin() + kProbesMax / 2);
      ids.resize(kProbesMax);
    }
    for (const AdapterId id : ids) {
      const std::size_t matched = core_->tree().peek_matched_tokens(prompt, core_->block_size(), id);
      if (matched <= most) continue;
      most = matched;
      best = id;
    }
  };
  probe(of_tenant);
  const bool same_tenant = best.has_value();
  if (!same_tenant) probe(of_others);
  if (!best) return false;
  what.reason = same_tenant ? MissReason::kOtherAdapter : MissReason::kOtherTenant;
  what.other_tokens = most;
  if (!same_tenant || *best == 0) return true;
  if (const std::optional<AdapterName> name = adapters.name_of(*best)) {
    what.other_adapter = name->view().adapter;
    what.other_generation = name->view().generation;
  }
  return true;
}

void Lease::Body::explain_nearest(std::span<const TokenId> prompt, LeaseExplanation& what) const {
  const std::size_t block_size = core_->block_size();
  const std::size_t from = what.matched_tokens;
  const auto rest = prompt.subspan(from);
  const std::size_t full = rest.size() / block_size * block_size;
  what.reason = MissReason::kNeverSeen;
  what.goes_on = from > 0;
  if (handle_.tokens() < from) return;
  const RadixTree::Neighbours neighbours =
      core_->tree().neighbours(handle_, from, rest, LeaseExplanation::kComparedTokensMax);
  for (const RadixTree::Neighbours::Neighbour& nearest : neighbours.nearest) {
    SeenWindows windows(SeenWindows::Sample::kAll);
    windows.add({}, nearest.tokens, 0);
    const SequenceDifference how = compare_sequences(nearest.tokens, rest, windows.find(0, rest, 0), 0);
    std::size_t equal = 0;
    for (const auto& [begin, end] : how.stretches) {
      equal += std::min<std::size_t>(end, full) - std::min<std::size_t>(begin, full);
    }
    if (equal < std::max(kEqualAgainMin, block_size) || equal <= what.equal_again_tokens) continue;
    what.reason = MissReason::kDiffersThenEqual;
    what.differs_at = from + how.common;
    what.removed_tokens = how.old_at - how.common;
    what.added_tokens = how.new_at - how.common;
    what.equal_again_tokens = equal;
    what.equal_stretches = how.runs;
  }
  if (what.reason != MissReason::kDiffersThenEqual && !neighbours.nearest.empty()) {
    const std::size_t common = neighbours.nearest.front().common_tokens;
    if (from > 0 || common >= std::min(kAlikeMin, block_size)) {
      what.reason = MissReason::kDiffers;
      what.differs_at = from + common;
    }
  }
  if (what.reason != MissReason::kNeverSeen) what.goes_on = false;
}

// ---- In words ----

std::string_view name_of(MissReason reason) {
  constexpr std::array<std::string_view, kMissReasons> kNames{
      "none",    "cleared",       "too_short",    "state_missing",      "forbidden", "stored",
      "evicted", "other_adapter", "other_tenant", "differs_then_equal", "differs",   "never_seen"};
  return kNames.at(static_cast<std::size_t>(reason));
}

namespace {

std::string count(std::uint64_t number, const char* what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

std::string limit_text(ReuseLimit limit) {
  switch (limit) {
    case ReuseLimit::kLastToken:
      return "the last token is computed for its logits";
    case ReuseLimit::kNoRead:
      return "the request reads nothing (no_read)";
    case ReuseLimit::kReuseMax:
      return "the request reuses no more (reuse_tokens_max)";
    case ReuseLimit::kMedium:
      return "a medium follows that could not be remembered";
    case ReuseLimit::kNoCopyBlock:
      return "there was no block to copy the last shared one into";
  }
  std::abort();
}

std::string eviction_text(const LeaseExplanation& what) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(what.evicted_ago);
  std::string text = seconds.count() > 0 ? count(static_cast<std::uint64_t>(seconds.count()), "second")
                                         : count(static_cast<std::uint64_t>(what.evicted_ago.count()), "millisecond");
  text += " ago for ";
  if (what.evicted_for_admission == what.admission) return text + "this very admission";
  return text + "admission " + std::to_string(what.evicted_for_admission) + ", " +
         count(what.evicted_admissions_ago, "admission") + " before this one";
}

std::string state_text(const LeaseExplanation& what) {
  // A state is missing where no KV was only for purely recurrent models, which have none.
  const bool has_kv = what.matched_tokens > 0;
  const std::string text =
      has_kv ? "the KV of " + count(what.matched_tokens, "token") + " was there, but no state beyond; "
             : std::string();
  const std::string the_one =
      text + (has_kv ? "the one" : "the state") + " at token " + std::to_string(what.state_tokens);
  switch (what.state) {
    case StateLoss::kNone:
    case StateLoss::kNeverTaken:
      return text + (has_kv ? "none" : "no state") + " is known to have been kept there";
    case StateLoss::kEvicted:
      return the_one + " was evicted " + eviction_text(what);
    case StateLoss::kReplaced:
      return the_one + " made room for a later one of its session " + eviction_text(what);
    case StateLoss::kStored:
      return the_one + " is in the store, and was not fetched";
  }
  std::abort();
}

std::string reason_text(const LeaseExplanation& what) {
  switch (what.reason) {
    case MissReason::kNone:
      return "all full blocks were there";
    case MissReason::kCleared:
      return "the cache was cleared since, and nothing can be said of before";
    case MissReason::kTooShort:
      return "the prompt has no full block below its last token";
    case MissReason::kStateMissing:
      return state_text(what);
    case MissReason::kForbidden:
      return limit_text(what.limit);
    case MissReason::kStored:
      if (what.state == StateLoss::kStored) return state_text(what);
      return "the next " + count(what.stored_tokens, "token") + " are in the store, and were not fetched";
    case MissReason::kEvicted:
      return "the next " + count(what.evicted_tokens, "token") + " were evicted " + eviction_text(what);
    case MissReason::kOtherAdapter:
      return count(what.other_tokens, "token") + " are cached " +
             (what.other_adapter.empty()
                  ? std::string("without an adapter")
                  : "for adapter \"" + what.other_adapter + "\", generation " + std::to_string(what.other_generation));
    case MissReason::kOtherTenant:
      return count(what.other_tokens, "token") + " are cached for another tenant";
    case MissReason::kDiffersThenEqual:
      return "differs at token " + std::to_string(what.differs_at) + " from the nearest cached prompt: a run of " +
             count(what.removed_tokens, "token") + " is replaced by " + std::to_string(what.added_tokens) + ", then " +
             count(what.equal_again_tokens, "token") + " are equal again" +
             (what.equal_stretches > 1 ? " in " + std::to_string(what.equal_stretches) + " stretches" : "");
    case MissReason::kDiffers:
      return "differs at token " + std::to_string(what.differs_at) + " from the nearest cached prompt";
    case MissReason::kNeverSeen:
      return what.goes_on ? "goes on where all that is cached ends" : "begins like nothing that is cached";
  }
  std::abort();
}

}  // namespace

std::string LeaseExplanation::describe() const {
  std::string text =
      std::to_string(reused_tokens) + " of " + count(prompt_tokens, "token") + " reused: " + reason_text(*this) + ".";
  if (published_since) text += " It is there now: it has been published since.";
  const bool may_be_evicted = reason >= MissReason::kOtherAdapter && evictions_forgotten;
  if (may_be_evicted) text += " It may have been evicted: not all evictions are remembered.";
  return text;
}

}  // namespace cairn
