// From a request to a lease: what keeps it apart, what is cached of it, and blocks for the rest.
#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "base/refuse.h"
#include "engine/lease_body.h"
#include "engine/manager_core.h"
#include "engine/real_tokens.h"

namespace cairn {
namespace {

void check(const Request& request) {
  if (request.tokens.empty()) refuse("tokens", "empty: a request has at least one token");
  check_real_tokens(request.tokens);
  std::size_t free_from = 0;
  for (const MediaSpan& span : request.media) {
    const std::string name =
        "media span [" + std::to_string(span.position) + ", +" + std::to_string(span.length) + ")";
    if (span.length == 0 || span.length > kMediaLengthMax) refuse("media", name + ": 1 to 2^20 tokens are allowed");
    if (span.position < free_from) refuse("media", name + " overlaps the one before it, or comes before it");
    if (span.position > request.tokens.size() || span.length > request.tokens.size() - span.position) {
      refuse("media", name + " ends after the " + std::to_string(request.tokens.size()) + " tokens of the prompt");
    }
    free_from = span.position + span.length;
  }
  for (const PrioritySpan& span : request.priorities) {
    const std::string name = "span [" + std::to_string(span.from) + ", " + std::to_string(span.to) + ")";
    if (span.from >= span.to) refuse("priorities", name + " is empty");
    if (span.keep_for < std::chrono::nanoseconds::zero()) refuse("priorities", name + ": keep_for is negative");
  }
}

AdapterView adapter_of(const Request& request) {
  return {request.adapter, request.adapter_generation, request.tenant_salt};
}

// The prompt with placeholders replaced, up to the first medium that `token_of` has no token for: cut off there.
template <class TokenOf>
std::vector<TokenId> with_media(const Request& request, TokenOf token_of) {
  std::vector<TokenId> tokens(request.tokens.begin(), request.tokens.end());
  for (const MediaSpan& span : request.media) {
    const std::optional<TokenId> content = token_of(MediaName{span.content_id, span.length});
    if (!content) {
      tokens.resize(span.position);
      break;
    }
    tokens[span.position] = *content;
    for (std::size_t i = 1; i < span.length; ++i) {
      tokens[span.position + i] = kFirstReservedToken + static_cast<TokenId>(i);
    }
  }
  return tokens;
}

// How far reuse may go: at least the last token is computed, for its logits.
std::size_t reuse_limit(const Request& request) {
  return request.no_read ? 0 : std::min(request.reuse_tokens_max, request.tokens.size() - 1);
}

}  // namespace

Admission ManagerCore::admit(const Request& request) {
  check(request);
  const std::size_t wanted = request.reserve_tokens.value_or(request.tokens.size());
  if (has_blocks() && blocks_for(wanted) > options_.blocks->total_blocks()) {
    counts_.refused_admissions.add(1);
    return {.lease = std::nullopt,
            .missing_blocks = blocks_for(wanted) - options_.blocks->total_blocks(),
            .leaving_blocks = 0,
            .never_fits = true};
  }

  auto body = std::make_unique<Lease::Body>(shared_from_this());
  Lease::Body::Names& names = body->names();
  names.session = request.session;
  Lease::Body::Noted& noted = body->noted();
  noted.admission = admissions_.fetch_add(1, std::memory_order_relaxed) + 1;
  noted.no_fetch = request.no_fetch;
  noted.prompt_tokens = request.tokens.size();
  if (request.no_read) {
    noted.limit = ReuseLimit::kNoRead;
  } else if (request.reuse_tokens_max < request.tokens.size() - 1) {
    noted.limit = ReuseLimit::kReuseMax;
  }
  if (request.no_publish) names.publish_limit = 0;
  if (takes_priorities()) {
    names.priorities.assign(request.priorities.begin(), request.priorities.end());
    // A later mark of a block replaces an earlier one: the highest comes last, of equal ones the one kept longest.
    std::ranges::sort(names.priorities, [](const PrioritySpan& a, const PrioritySpan& b) {
      return std::tie(a.priority, a.keep_for) < std::tie(b.priority, b.keep_for);
    });
  }
  const AdapterView adapter = adapter_of(request);
  if (!adapter.is_base()) names.adapter = adapters_.use(adapter).value();  // 2^64 ids are not used up

  std::span<const TokenId> prompt = request.tokens;
  std::vector<TokenId> replaced;
  std::size_t limit = reuse_limit(request);
  if (!request.media.empty()) {
    names.media.reserve(request.media.size());
    replaced = with_media(request, [&](const MediaName& name) {
      const std::optional<TokenId> token = media_.use(name);
      if (token) names.media.push_back(*token);
      return token;
    });
    if (replaced.size() < prompt.size()) {
      if (replaced.size() < limit) noted.limit = ReuseLimit::kMedium;
      limit = std::min(limit, replaced.size());
      names.publish_limit = std::min(names.publish_limit, replaced.size());
      const auto rest = prompt.subspan(replaced.size());
      replaced.insert(replaced.end(), rest.begin(), rest.end());
    }
    prompt = replaced;
  }

  std::size_t matched = body->look_up(prompt, limit);
  const bool parts = has_blocks() && matched > 0 && matched / block_size() < limit / block_size();
  const BlockId last_block = parts ? body->last_matched_block() : 0;
  if (has_store() && !request.no_fetch) body->choose_fetch(prompt, limit);
  body->begin(prompt);

  std::size_t missing = body->reserve(std::max(wanted, body->first_after_loading()));
  if (missing > 0 && body->is_loading()) {
    matched = body->begin_again(prompt, limit);
    missing = body->reserve(std::max(wanted, body->first()));
  }
  if (missing > 0 && !body->copies().empty()) {
    // The missing block may be the very one that is copied from, which nothing but this admission keeps. A request
    // must not be refused for what it could compute by itself, again and again, while nothing runs.
    matched = body->begin_again(prompt, 0);
    noted.limit = ReuseLimit::kNoCopyBlock;
    missing = body->reserve(wanted);
  }
  if (missing > 0) {
    counts_.refused_admissions.add(1);
    const std::size_t leaving = has_store() ? std::min(missing, spiller_->blocks_leaving()) : 0;
    return {.lease = std::nullopt, .missing_blocks = missing, .leaving_blocks = leaving, .never_fits = false};
  }
  const bool branches = parts && matched > 0;
  const bool second_sight =
      branches && options_.capture_branch_points && has_snapshots() && branch_sights_.see(last_block);
  body->admitted({.matched_tokens = matched,
                  .second_sight = second_sight,
                  .counts = !request.resumed,
                  .asked_blocks = limit / block_size()});
  if (request.resumed) {
    counts_.resumed.add(1);
  } else if (names.publish_limit < prompt.size() && !request.no_publish) {
    counts_.uncacheable_media.add(1);
  }
  return {.lease = Lease(std::move(body)), .missing_blocks = 0, .leaving_blocks = 0, .never_fits = false};
}

PrefixPin ManagerCore::pin_prefix(const Request& request) {
  check(request);
  if (!has_blocks()) refuse("pin_prefix", "the model has no attention layers: there are no blocks to pin");
  PinnedNames names;
  try {
    const AdapterView adapter = adapter_of(request);
    if (!adapter.is_base()) names.adapter = adapters_.use(adapter).value();  // 2^64 ids are not used up
    names.media.reserve(request.media.size());
    const std::vector<TokenId> tokens = with_media(request, [&](const MediaName& name) {
      const std::optional<TokenId> token = media_.use(name);
      if (token) names.media.push_back(*token);
      return token;
    });
    names.epoch = tree_.epoch(names.adapter);
    const PrefixPin pin = tree_.pin_prefix(tokens, names.adapter);
    if (pin.id == 0) {
      drop(names);
      return pin;
    }
    try {
      const MutexLock lock(pins_mutex_);
      pins_[pin.id] = std::move(names);
    } catch (...) {
      tree_.unpin_prefix(pin.id);
      throw;
    }
    return pin;
  } catch (...) {
    drop(names);
    throw;
  }
}

bool ManagerCore::unpin_prefix(std::uint64_t id) {
  PinnedNames names;
  {
    const MutexLock lock(pins_mutex_);
    if (const auto pin = pins_.find(id); pin != pins_.end()) {
      names = std::move(pin->second);
      pins_.erase(pin);
    }
  }
  const bool pinned = tree_.unpin_prefix(id);  // else it was cleared
  drop(names);
  return pinned;
}

// A pin that was made while a clear ran may lose its names here and stay: its blocks are pinned all the same.
void ManagerCore::drop_cleared_pins() noexcept {
  while (true) {
    PinnedNames names;
    {
      const MutexLock lock(pins_mutex_);
      const auto cleared = std::ranges::find_if(
          pins_, [this](const auto& pin) { return pin.second.epoch != tree_.epoch(pin.second.adapter); });
      if (cleared == pins_.end()) return;
      names = std::move(cleared->second);
      pins_.erase(cleared);
    }
    drop(names);
  }
}

void ManagerCore::drop(const PinnedNames& names) noexcept {
  if (names.adapter != 0) adapters_.drop(names.adapter);
  for (const TokenId token : names.media) media_.drop(token);
}

Peeked ManagerCore::peek(const Request& request) const {
  check(request);
  std::span<const TokenId> prompt = request.tokens.first(reuse_limit(request));
  std::vector<TokenId> replaced;
  if (!request.media.empty()) {
    replaced = with_media(request, [&](const MediaName& name) { return media_.find(name); });
    prompt = std::span<const TokenId>(replaced).first(std::min(replaced.size(), prompt.size()));
  }
  const AdapterView adapter = adapter_of(request);
  const std::optional<AdapterId> id = adapter.is_base() ? AdapterId{0} : adapters_.find(adapter);
  if (!id) return {};
  const ReadOptions options{.session_hash = request.session,
                            .adapter_id = *id,
                            .resident_snapshots_only = has_store(),
                            .stored_blocks = has_store()};
  if (!has_blocks())
    return {.matched_tokens = 0, .reusable_tokens = tree_.peek_snapshot(prompt, options).tokens, .stored_tokens = 0};
  const RadixTree::Peek found = tree_.peek(prompt, options);
  const std::size_t reusable = !has_snapshots()      ? found.matched_tokens
                               : found.snapshot.slot ? found.snapshot.tokens
                                                     : std::size_t{0};
  return {.matched_tokens = found.matched_tokens, .reusable_tokens = reusable, .stored_tokens = found.stored_tokens};
}

}  // namespace cairn
