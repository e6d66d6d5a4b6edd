#include "replay/explainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "replay/comparison.h"
#include "replay/errors.h"
#include "src/base/equal_stretches.h"

namespace cairn::replay {
namespace {

using Number = BlockTrace::Number;

constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kEqualAgainMin = 32;  // tokens
// Prompts of one model all begin with a token or two of its template: that alone makes no two of them alike.
constexpr std::size_t kAlikeMin = 8;

// The trie of everything seen so far. For each block it knows who had it last, and for each place which blocks follow,
// in the order of their tokens, so that the nearest one to any other is beside it.
class SeenTrie {
 public:
  SeenTrie(const Workload& workload, const BlockTrace& blocks)
      : workload_(workload),
        block_size_(blocks.block_size()),
        last_(blocks.distinct(), kNobody),
        children_(blocks.distinct()) {}

  [[nodiscard]] bool contains(Number block) const { return last_[block] != kNobody; }
  // The last request that had it.
  [[nodiscard]] std::uint32_t last(Number block) const { return last_[block]; }

  // The request had the first `count` blocks of `sequence`, those from `first` on anew.
  void add(std::uint32_t request, std::span<const Number> sequence, std::size_t first) {
    for (std::size_t depth = 0; depth < sequence.size(); ++depth) {
      const Number block = sequence[depth];
      const bool added = depth >= first && !contains(block);
      last_[block] = request;
      if (added) link(request, sequence, depth);
    }
  }

  struct Nearest {
    bool any = false;           // anything follows there at all
    std::uint32_t request = 0;  // that has what is nearest
    std::size_t common = 0;     // tokens of the block that are equal
  };
  // To the block at `depth` of the request's sequence, which was never seen, among those that follow `parent`, or that
  // begin sequences of the adapter.
  [[nodiscard]] Nearest nearest(std::optional<Number> parent, AdapterId adapter, std::size_t depth,
                                std::span<const TokenId> tokens) {
    const Children* children = nullptr;
    if (parent) {
      children = &children_[*parent];
    } else if (const auto found = roots_.find(adapter); found != roots_.end()) {
      children = &found->second;
    }
    Nearest best;
    if (children == nullptr || children->first == kNobody) return best;
    const auto consider = [&](Number block) {
      const std::vector<TokenId>& other = tokens_of(block, depth);
      const auto common = static_cast<std::size_t>(std::ranges::mismatch(other, tokens).in1 - other.begin());
      if (!best.any || common > best.common) best = {.any = true, .request = last_[block], .common = common};
    };
    if (children->list == kNobody) {
      consider(children->first);
      return best;
    }
    const std::vector<Number>& list = lists_[children->list];
    const auto after = lower_bound(list, depth, tokens);
    if (after != list.end()) consider(*after);
    if (after != list.begin()) consider(*std::prev(after));
    return best;
  }

 private:
  // Most places have one child: a list is made for the second.
  struct Children {
    Number first = kNobody;
    std::uint32_t list = kNobody;  // in lists_; kNobody: `first` alone
  };

  void link(std::uint32_t request, std::span<const Number> sequence, std::size_t depth) {
    Children& children = depth == 0 ? roots_[workload_[request].context()] : children_[sequence[depth - 1]];
    const Number block = sequence[depth];
    if (children.first == kNobody) {
      children.first = block;
      return;
    }
    if (children.list == kNobody) {
      children.list = static_cast<std::uint32_t>(lists_.size());
      lists_.push_back({children.first});
    }
    const std::vector<TokenId> tokens = tokens_of(block, depth);
    std::vector<Number>& list = lists_[children.list];
    list.insert(lower_bound(list, depth, tokens), block);
  }

  // Where in the list the first block stands that is not less than `tokens`.
  std::vector<Number>::const_iterator lower_bound(const std::vector<Number>& list, std::size_t depth,
                                                  std::span<const TokenId> tokens) {
    return std::lower_bound(list.begin(), list.end(), tokens, [&](Number block, std::span<const TokenId> wanted) {
      return std::ranges::lexicographical_compare(tokens_of(block, depth), wanted);
    });
  }

  // Good until the next call.
  const std::vector<TokenId>& tokens_of(Number block, std::size_t depth) {
    workload_.sequence(last_[block], depth * block_size_, block_size_, buffer_);
    return buffer_;
  }

  const Workload& workload_;
  std::size_t block_size_;
  std::vector<std::uint32_t> last_;  // by number
  std::vector<Children> children_;   // by number
  boost::unordered_flat_map<AdapterId, Children> roots_;
  std::vector<std::vector<Number>> lists_;
  std::vector<TokenId> buffer_;
};

class Explainer final : public ReplayObserver, public VerifiedObserver {
 public:
  Explainer(const Workload& workload, const BlockTrace& blocks, const ExplainOptions& options)
      : workload_(workload),
        blocks_(blocks),
        options_(options),
        block_size_(blocks.block_size()),
        seen_(workload, blocks),
        evicted_by_(blocks.distinct(), kNobody) {
    const auto differ = [&](auto member) {
      for (std::size_t i = 1; i < workload.size(); ++i) {
        if (workload[i].*member != workload[0].*member) return true;
      }
      return false;
    };
    if (differ(&Request::tenant)) {
      other_tenants_.emplace(workload, block_size_, BlockTrace::Adapters::kTenantsAsIfSame);
    }
    if (differ(&Request::adapter)) {
      other_adapters_.emplace(workload, block_size_, BlockTrace::Adapters::kAsIfSame);
    }
  }

  void on_admitted(std::size_t index, std::size_t matched_blocks) override;
  void on_admitted(std::size_t index, const Lease& lease) override;
  void on_published(std::size_t index, std::span<const BlockId> table, std::span<const BlockId> taken) override;
  void on_published(std::size_t index, const Lease& lease) override;
  void on_evicted(std::size_t index, std::span<const BlockId> blocks) override;

  ExplainResult take_result() { return std::move(result_); }

 private:
  [[nodiscard]] bool is_hybrid() const { return options_.snapshots.has_value(); }
  // Of the prompt, those that can match: a CacheManager leaves out the last token.
  [[nodiscard]] std::size_t full_blocks(std::size_t index) const {
    const std::size_t tokens = workload_[index].prompt_tokens;
    return (is_hybrid() ? tokens - 1 : tokens) / block_size_;
  }
  [[nodiscard]] Number owner(BlockId block) const { return block < owner_.size() ? owner_[block] : kNobody; }
  [[nodiscard]] std::size_t request_of(std::uint64_t admission) const;
  void explain_rest(Explanation explanation, std::size_t matched_blocks);
  void explain_evicted(Explanation& explanation, std::size_t& depth) const;
  // Whoever had a block, where those of several are alike.
  struct Alike {
    Alike(const Workload& workload, std::size_t block_size, BlockTrace::Adapters adapters)
        : blocks(workload, block_size, adapters), last(blocks.distinct(), kNobody) {}
    BlockTrace blocks;
    std::vector<std::uint32_t> last;  // by number: the last request that had it
  };
  void explain_other(const std::optional<Alike>& alike, MissCause cause, std::uint64_t TokenCauses::* tokens,
                     Explanation& explanation, std::size_t& depth) const;
  void explain_unseen(Explanation& explanation, std::size_t depth);
  struct EqualAgain {
    std::uint32_t other = 0;  // request
    SequenceDifference how;
  };
  std::optional<EqualAgain> find_equal_again(Explanation& explanation, std::size_t from);

  const Workload& workload_;
  const BlockTrace& blocks_;
  const ExplainOptions& options_;
  std::size_t block_size_;
  SeenTrie seen_;
  std::vector<std::uint32_t> evicted_by_;  // by number: the request; kNobody while it is cached or was never
  std::vector<Number> owner_;              // by physical block, what it holds for the cache
  std::optional<Alike> other_tenants_;     // if there are several
  std::optional<Alike> other_adapters_;    // the same
  SeenWindows windows_;
  std::vector<TokenId> prompt_;
  std::vector<TokenId> other_;
  std::vector<std::pair<std::uint64_t, std::size_t>>
      admissions_;  // of a CacheManager, by number; and of which request
  ExplainResult result_;
};

void Explainer::on_admitted(std::size_t index, std::size_t matched_blocks) {
  Explanation explanation;
  explanation.index = index;
  explanation.tokens.matched = matched_blocks * block_size_;
  explain_rest(explanation, matched_blocks);
}

void Explainer::on_admitted(std::size_t index, const Lease& lease) {
  const LeaseExplanation what = lease.explain();
  admissions_.emplace_back(what.admission, index);
  // Its own blocks were free, or were evicted for it: a manager evicts what is short, and no more.
  for (const BlockId block : lease.block_table().subspan(lease.published_tokens() / block_size_)) {
    if (owner(block) == kNobody) continue;
    on_evicted(index, {&block, 1});
    owner_[block] = kNobody;
  }
  Explanation explanation;
  explanation.index = index;
  explanation.tokens.matched = what.reused_tokens;
  explanation.tokens.stateless = what.matched_tokens - what.reused_tokens;
  if (explanation.tokens.stateless > 0) {
    explanation.cause = MissCause::kStateMissing;
    explanation.state = what.state;
    explanation.state_tokens = what.state_tokens;
    if (what.state == StateLoss::kEvicted || what.state == StateLoss::kReplaced) {
      explanation.state_evicted_by = request_of(what.evicted_for_admission);
    }
  }
  explain_rest(explanation, what.matched_tokens / block_size_);
}

// Some admissions were refused: their requests were admitted by the next one that was not.
std::size_t Explainer::request_of(std::uint64_t admission) const {
  const auto found =
      std::ranges::lower_bound(admissions_, admission, {}, &std::pair<std::uint64_t, std::size_t>::first);
  if (found == admissions_.end()) {
    throw ReplayError(fmt::format("a lease names admission {} as the reason, and there is none yet", admission));
  }
  return found->second;
}

void Explainer::explain_rest(Explanation explanation, std::size_t matched_blocks) {
  const std::size_t index = explanation.index;
  const Request& request = workload_[index];
  const std::span<const Number> prompt = blocks_.prompt(index).first(full_blocks(index));
  workload_.prompt(index, prompt_);
  explanation.tokens.prompt = request.prompt_tokens;
  explanation.tokens.too_short = request.prompt_tokens - prompt.size() * block_size_;
  std::size_t depth = matched_blocks;
  if (prompt.empty()) {
    explanation.cause = MissCause::kTooShort;
  } else {
    explain_evicted(explanation, depth);
    if (depth > 0) explanation.parent = prompt[depth - 1];
    explain_other(other_tenants_, MissCause::kOtherTenant, &TokenCauses::other_tenant, explanation, depth);
    explain_other(other_adapters_, MissCause::kOtherAdapter, &TokenCauses::other_adapter, explanation, depth);
    if (depth < prompt.size()) explain_unseen(explanation, depth);
  }
  result_.tokens += explanation.tokens;
  ++result_.by_cause[static_cast<std::size_t>(explanation.cause)];
  result_.requests.push_back(explanation);
}

void Explainer::explain_evicted(Explanation& explanation, std::size_t& depth) const {
  const std::span<const Number> prompt = blocks_.prompt(explanation.index).first(full_blocks(explanation.index));
  const std::size_t first = depth;
  while (depth < prompt.size() && seen_.contains(prompt[depth])) ++depth;
  if (depth == first) return;
  std::size_t evicted_by = evicted_by_[prompt[first]];
  // Of what was evicted for an admission that was refused all the same, nobody tells: it was this request's.
  if (evicted_by == kNobody && is_hybrid()) evicted_by = explanation.index;
  if (evicted_by == kNobody) {
    throw ReplayError(fmt::format("request {}: block {} of its prompt was seen, was never evicted, and is not cached",
                                  explanation.index + 1, first));
  }
  if (explanation.cause == MissCause::kNone) explanation.cause = MissCause::kEvicted;
  explanation.tokens.evicted = (depth - first) * block_size_;
  explanation.evicted_by = evicted_by;
  explanation.last_used_by = seen_.last(prompt[first]);
}

void Explainer::explain_other(const std::optional<Alike>& alike, MissCause cause, std::uint64_t TokenCauses::* tokens,
                              Explanation& explanation, std::size_t& depth) const {
  if (!alike) return;
  const std::span<const Number> prompt = alike->blocks.prompt(explanation.index).first(full_blocks(explanation.index));
  const std::size_t first = depth;
  while (depth < prompt.size() && alike->last[prompt[depth]] != kNobody) ++depth;
  if (depth == first) return;
  explanation.tokens.*tokens = (depth - first) * block_size_;
  if (explanation.cause != MissCause::kNone) return;
  explanation.cause = cause;
  explanation.nearest = alike->last[prompt[first]];
}

// From the block at `depth` on: never seen at this place.
void Explainer::explain_unseen(Explanation& explanation, std::size_t depth) {
  const std::size_t from = depth * block_size_;
  explanation.tokens.unseen = (full_blocks(explanation.index) - depth) * block_size_;
  std::optional<EqualAgain> equal;
  if (options_.find_equal_again) equal = find_equal_again(explanation, from);
  if (explanation.cause != MissCause::kNone) return;
  const SeenTrie::Nearest nearest = seen_.nearest(explanation.parent, workload_[explanation.index].context(), depth,
                                                  std::span(prompt_).subspan(from, block_size_));
  if (depth > 0 && !nearest.any) {
    explanation.cause = MissCause::kNeverSeen;
    explanation.goes_on = true;
    explanation.nearest = seen_.last(*explanation.parent);
  } else if (equal) {
    explanation.cause = MissCause::kDiffersThenEqual;
    explanation.nearest = equal->other;
    explanation.moved = equal->how.common < from;
    explanation.differs_at = explanation.moved ? static_cast<std::uint32_t>(from) : equal->how.common;
    explanation.removed = explanation.moved ? 0 : equal->how.old_at - equal->how.common;
    explanation.added = equal->how.new_at - explanation.differs_at;
    explanation.runs = equal->how.runs;
  } else if (nearest.any && (depth > 0 || nearest.common >= std::min(kAlikeMin, block_size_))) {
    explanation.cause = MissCause::kDiffers;
    explanation.nearest = nearest.request;
    explanation.differs_at = static_cast<std::uint32_t>(from + nearest.common);
  } else {
    explanation.cause = MissCause::kNeverSeen;
  }
}

// Of the prompt's tokens from `from` on. Nothing, if too few are equal to be of use.
std::optional<Explainer::EqualAgain> Explainer::find_equal_again(Explanation& explanation, std::size_t from) {
  const AdapterId adapter = workload_[explanation.index].context();
  std::vector<SeenWindows::Match> matches = windows_.find(adapter, prompt_, from);
  if (matches.empty()) return std::nullopt;
  // The sequence that most windows point to; of several the latest.
  boost::unordered_flat_map<std::uint32_t, std::size_t> votes;
  for (const SeenWindows::Match& match : matches) ++votes[match.seen.sequence];
  const std::uint32_t other =
      std::ranges::max_element(votes, {}, [](const auto& vote) { return std::pair(vote.second, vote.first); })->first;
  std::erase_if(matches, [other](const SeenWindows::Match& match) { return match.seen.sequence != other; });
  workload_.sequence(other, 0, std::numeric_limits<std::size_t>::max(), other_);
  EqualAgain equal{.other = other, .how = compare_sequences(other_, prompt_, matches, from)};
  // Only full blocks could have been cached.
  const std::size_t full = full_blocks(explanation.index) * block_size_;
  std::size_t tokens = 0;
  for (const auto& [begin, end] : equal.how.stretches) {
    tokens += std::min<std::size_t>(end, full) - std::min<std::size_t>(begin, full);
  }
  if (tokens < std::max(kEqualAgainMin, block_size_)) return std::nullopt;
  explanation.tokens.equal_again = tokens;
  explanation.tokens.unseen -= tokens;
  return equal;
}

// Admission or the end: all of `table` is cached now, of which `taken`, its last ones, are new there.
void Explainer::on_published(std::size_t index, std::span<const BlockId> table, std::span<const BlockId> taken) {
  const std::span<const Number> sequence = blocks_.sequence(index).first(table.size());
  const std::size_t first_taken = table.size() - taken.size();
  for (std::size_t depth = first_taken; depth < table.size(); ++depth) {
    const BlockId block = table[depth];
    if (block >= owner_.size()) owner_.resize(block + std::size_t{1}, kNobody);
    owner_[block] = sequence[depth];
    evicted_by_[sequence[depth]] = kNobody;
  }
  const auto request = static_cast<std::uint32_t>(index);
  std::size_t first_new = first_taken;
  while (first_new < sequence.size() && seen_.contains(sequence[first_new])) ++first_new;
  seen_.add(request, sequence, first_taken);
  for (std::optional<Alike>* alike : {&other_tenants_, &other_adapters_}) {
    if (!*alike) continue;
    for (const Number block : (*alike)->blocks.sequence(index).first(table.size())) (*alike)->last[block] = request;
  }
  if (!options_.find_equal_again || first_new == sequence.size()) return;
  const bool ended = table.size() > blocks_.prompt(index).size();
  workload_.sequence(index, 0, ended ? std::numeric_limits<std::size_t>::max() : workload_[index].prompt_tokens,
                     other_);
  windows_.add({.sequence = request, .adapter = workload_[index].context()}, other_, first_new * block_size_);
}

void Explainer::on_published(std::size_t index, const Lease& lease) {
  const std::span<const BlockId> table = lease.block_table().first(lease.published_tokens() / block_size_);
  const std::span<const Number> sequence = blocks_.sequence(index);
  // Those that the cache had already come first.
  std::size_t had = 0;
  while (had < table.size() && owner(table[had]) == sequence[had]) ++had;
  on_published(index, table, table.subspan(had));
}

void Explainer::on_evicted(std::size_t index, std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) evicted_by_[owner_[block]] = static_cast<std::uint32_t>(index);
}

}  // namespace

std::string_view name_of(MissCause cause) {
  constexpr std::array<std::string_view, kMissCauses> kNames{
      "none",          "too_short",          "state_missing", "evicted",   "other_tenant",
      "other_adapter", "differs_then_equal", "differs",       "never_seen"};
  return kNames[static_cast<std::size_t>(cause)];
}

TokenCauses& TokenCauses::operator+=(const TokenCauses& other) {
  prompt += other.prompt;
  matched += other.matched;
  stateless += other.stateless;
  evicted += other.evicted;
  other_tenant += other.other_tenant;
  other_adapter += other.other_adapter;
  equal_again += other.equal_again;
  unseen += other.unseen;
  too_short += other.too_short;
  return *this;
}

namespace {

RunResult run_index(const Workload& workload, const ExplainOptions& options, Explainer& explainer) {
  ReplayOptions replay = options.replay;
  replay.observer = &explainer;
  return run_policy(options.block_policy, workload, replay, options.pool_blocks);
}

// Matched is what was reused.
RunResult run_of(const VerifiedResult& verified) {
  RunResult run;
  run.requests = verified.requests;
  run.rejected = verified.rejected;
  run.first_rejected = verified.first_rejected;
  run.waited = verified.waited;
  run.prompt_tokens = verified.prompt_tokens;
  run.matched_tokens = run.reused_tokens = verified.reused_tokens;
  run.output_tokens = verified.output_tokens;
  run.created_blocks = verified.published_blocks;
  run.evicted_blocks = verified.evicted_blocks;
  run.peak_blocks = verified.peak_blocks;
  run.peak_running = verified.peak_running;
  run.pool_blocks = verified.pool_blocks;
  run.wall_time_s = verified.wall_time_s;
  return run;
}

}  // namespace

ExplainResult explain(const Workload& workload, const BlockTrace& blocks, const ExplainOptions& options) {
  if (blocks.block_size() != options.replay.block_size) {
    throw std::invalid_argument(fmt::format("block_size {}: the blocks are numbered for a block size of {}",
                                            options.replay.block_size, blocks.block_size()));
  }
  Explainer explainer(workload, blocks, options);
  RunResult run;
  ExplainResult result;
  if (options.snapshots) {
    const VerifiedResult verified = replay_verified(workload, options.pool_blocks,
                                                    {.block_policy = options.block_policy,
                                                     .replay = options.replay,
                                                     .snapshots = options.snapshots,
                                                     .observer = &explainer});
    run = run_of(verified);
    result = explainer.take_result();
    if (result.tokens.stateless != verified.stateless_tokens) {
      throw ReplayError("the tokens that lack a state do not add up to the replayed ones");
    }
  } else {
    run = run_index(workload, options, explainer);
    result = explainer.take_result();
  }
  const TokenCauses& tokens = result.tokens;
  if (tokens.matched != run.matched_tokens || tokens.prompt != run.prompt_tokens ||
      tokens.prompt != tokens.matched + tokens.stateless + tokens.evicted + tokens.other_tenant +
                           tokens.other_adapter + tokens.equal_again + tokens.unseen + tokens.too_short) {
    throw ReplayError("the explained tokens do not add up to the replayed ones");
  }
  run.name = options.block_policy;
  result.run = std::move(run);
  return result;
}

}  // namespace cairn::replay
