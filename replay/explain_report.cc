#include "replay/explain_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "replay/report_parts.h"

namespace cairn::replay {
namespace {

constexpr std::string_view kStateLabel = "  state missing";
constexpr std::string_view kTailCause = "shorter_than_a_block";

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string request_name(const Workload& workload, std::size_t index) {
  std::string name = fmt::format("request {} (line {}", index + 1, workload[index].line);
  if (workload.has_timestamps()) name += fmt::format(", at {:.1f} s", workload[index].timestamp_ms / 1e3);
  return name + ")";
}

// How long before the request at `index` the one at `earlier` came.
std::string ago(const Workload& workload, std::size_t index, std::size_t earlier) {
  const std::size_t requests = index - earlier;
  std::string text = fmt::format("{} request{}", grouped(requests), requests == 1 ? "" : "s");
  if (workload.has_timestamps()) {
    text += fmt::format(" and {}", duration((workload[index].timestamp_ms - workload[earlier].timestamp_ms) / 1e3));
  }
  return text + " ago";
}

// ---- Groups ----

// From when a block was pushed out to when it was asked for.
struct Age {
  double below_s;
  std::size_t below_requests;
  std::string_view seconds;
  std::string_view requests;
};
constexpr std::array kAges{Age{10, 10, "less than 10 s", "less than 10 requests"},
                           Age{60, 100, "10 s to 1 min", "10 to 99 requests"},
                           Age{600, 1000, "1 to 10 min", "100 to 999 requests"},
                           Age{3600, 10'000, "10 min to 1 h", "1,000 to 9,999 requests"}};
constexpr std::string_view kOldestSeconds = "1 h or more";
constexpr std::string_view kOldestRequests = "10,000 requests or more";

std::size_t age_class(const Workload& workload, const Explanation& explanation) {
  const std::size_t now = explanation.index;
  const std::size_t then = explanation.evicted_by;
  const double seconds = (workload[now].timestamp_ms - workload[then].timestamp_ms) / 1e3;
  std::size_t age = 0;
  while (age < kAges.size() &&
         (workload.has_timestamps() ? seconds >= kAges[age].below_s : now - then >= kAges[age].below_requests)) {
    ++age;
  }
  return age;
}

std::string_view age_name(const Workload& workload, std::size_t age) {
  if (workload.has_timestamps()) return age < kAges.size() ? kAges[age].seconds : kOldestSeconds;
  return age < kAges.size() ? kAges[age].requests : kOldestRequests;
}

enum class Kind {
  kStateNever,
  kStateEvicted,
  kStateReplaced,
  kEvicted,
  kOtherTenant,
  kOtherAdapter,
  kEqualAgain,
  kMovedElsewhere,
  kDiffers,
  kFirst,
  kNew,
  kShortPrompt,
  kTail
};

// What tells groups apart: their kind, and the age, the adapter, or the block behind which the prompts differ.
using Key = std::pair<Kind, std::uint64_t>;

// Prompts that differ behind one and the same block are a group of their own if there are so many, else one with all
// others of their kind.
constexpr std::size_t kAlikeRequestsMin = 5;
constexpr std::uint64_t kFew = ~std::uint64_t{0};

struct Groups {
  std::map<Key, MissGroup> groups;
  std::map<Key, std::uint64_t> example_tokens;

  void merge_small_ones() {
    for (auto at = groups.begin(); at != groups.end();) {
      const auto [kind, which] = at->first;
      const bool has_which = kind == Kind::kEqualAgain || kind == Kind::kDiffers;
      if (!has_which || which == kFew || at->second.requests >= kAlikeRequestsMin) {
        ++at;
        continue;
      }
      const Key few{kind, kFew};
      MissGroup& group = groups[few];
      group.tokens += at->second.tokens;
      group.requests += at->second.requests;
      if (std::uint64_t& most = example_tokens[few]; example_tokens[at->first] > most) {
        most = example_tokens[at->first];
        group.example = at->second.example;
      }
      at = groups.erase(at);
    }
  }

  void add(const Key& key, std::uint64_t tokens, std::size_t request) {
    if (tokens == 0) return;
    MissGroup& group = groups[key];
    group.tokens += tokens;
    ++group.requests;
    if (std::uint64_t& most = example_tokens[key]; tokens > most) {
      most = tokens;
      group.example = request;
    }
  }
};

std::uint64_t parent_key(const Explanation& explanation) {
  return explanation.parent ? *explanation.parent + std::uint64_t{1} : 0;
}

Kind state_kind(StateLoss state) {
  if (state == StateLoss::kEvicted) return Kind::kStateEvicted;
  return state == StateLoss::kReplaced ? Kind::kStateReplaced : Kind::kStateNever;
}

void add_misses(const Workload& workload, const Explanation& explanation, std::size_t request, Groups& groups) {
  const TokenCauses& tokens = explanation.tokens;
  groups.add({state_kind(explanation.state), 0}, tokens.stateless, request);
  if (tokens.evicted > 0) groups.add({Kind::kEvicted, age_class(workload, explanation)}, tokens.evicted, request);
  groups.add({Kind::kOtherTenant, workload[explanation.index].tenant}, tokens.other_tenant, request);
  groups.add({Kind::kOtherAdapter, workload[explanation.index].adapter}, tokens.other_adapter, request);
  const bool differs_then_equal = explanation.cause == MissCause::kDiffersThenEqual;
  groups.add(differs_then_equal ? Key{Kind::kEqualAgain, parent_key(explanation)} : Key{Kind::kMovedElsewhere, 0},
             tokens.equal_again, request);
  Key unseen{Kind::kNew, 0};
  if (explanation.cause == MissCause::kDiffers) unseen = {Kind::kDiffers, parent_key(explanation)};
  if (explanation.cause == MissCause::kNeverSeen && !explanation.goes_on) unseen = {Kind::kFirst, 0};
  groups.add(unseen, tokens.unseen, request);
  groups.add({explanation.cause == MissCause::kTooShort ? Kind::kShortPrompt : Kind::kTail, 0}, tokens.too_short,
             request);
}

std::string shared_start(const Key& key, const Explanation& example) {
  if (key.second == kFew) return "behind starts that few prompts share";
  const std::uint64_t tokens = example.tokens.matched + example.tokens.evicted;
  return tokens == 0 ? "from the first block on" : fmt::format("behind a shared start of {} tokens", grouped(tokens));
}

// The words of a group.
void put_into_words(const Workload& workload, const Key& key, const Explanation& example, MissGroup& group) {
  const auto say = [&group](std::string_view cause, std::string what, std::string_view to_do) {
    group.cause = cause;
    group.what = std::move(what);
    group.to_do = to_do;
  };
  switch (key.first) {
    case Kind::kStateNever:
      return say(
          name_of(MissCause::kStateMissing), "their KV was there, but no state is known to have been kept that deep",
          "Keep states where prompts part: checkpoints (`--checkpoint-every`), if branch points are not enough.");
    case Kind::kStateEvicted:
      return say(name_of(MissCause::kStateMissing), "their KV was there, but the state at its end was evicted",
                 "More slots for states: `cairn replay --sweep-snapshots` shows what they would give.");
    case Kind::kStateReplaced:
      return say(name_of(MissCause::kStateMissing),
                 "their KV was there, but the state at its end made room for a later one of its session",
                 "If sessions go back this often, keep states that do not move along: checkpoints.");
    case Kind::kEvicted:
      return say(name_of(MissCause::kEvicted),
                 fmt::format("evicted {} before they were asked for again", age_name(workload, key.second)),
                 "More memory or a better policy: `cairn replay --sweep` shows what each would give.");
    case Kind::kOtherTenant:
      return say(name_of(MissCause::kOtherTenant),
                 key.second == 0 ? "asked for without a tenant, seen for one only"
                                 : fmt::format("asked for by tenant number {}, seen for others only", key.second),
                 "Tenants are kept apart on purpose. What is public and the same for all (a system prompt, a tool's "
                 "description) can be shared if it is asked for without a tenant's salt.");
    case Kind::kOtherAdapter:
      return say(
          name_of(MissCause::kOtherAdapter),
          key.second == 0 ? "asked for without an adapter, seen for one only"
                          : fmt::format("asked for with adapter number {}, seen for another only", key.second),
          "Adapters cannot share KV. If some of these requests need no adapter of their own, send them with the "
          "other one's.");
    case Kind::kEqualAgain:
      return say(name_of(MissCause::kDiffersThenEqual),
                 fmt::format("equal to what was seen but for some tokens before it, {}", shared_start(key, example)),
                 "Move what changes (a time stamp, an id, a name) behind what stays the same.");
    case Kind::kMovedElsewhere:
      return say(name_of(MissCause::kDiffersThenEqual), "seen elsewhere, behind a beginning that was new or evicted",
                 "If it is the same document or example each time, put it before what is different each time.");
    case Kind::kDiffers:
      return say(name_of(MissCause::kDiffers),
                 fmt::format("new text that takes another way, {}", shared_start(key, example)),
                 "Nothing, if these are different texts. If they share something further on, put that first.");
    case Kind::kFirst:
      return say(name_of(MissCause::kNeverSeen), "prompts that begin like nothing seen before",
                 "Nothing: the first of its kind is always computed.");
    case Kind::kNew:
      return say(name_of(MissCause::kNeverSeen), "new text behind all that was seen, as the next turn brings",
                 "Nothing: new text is always computed.");
    case Kind::kShortPrompt:
      return say(name_of(MissCause::kTooShort), "prompts shorter than a block",
                 "Smaller blocks, if there are many of them.");
    case Kind::kTail:
      return say(kTailCause, "the rest of a prompt behind its last full block", "Smaller blocks make it shorter.");
  }
}

// ---- Texts ----

std::string tokens_of(std::uint64_t count) {
  return fmt::format("{} token{}", grouped(count), count == 1 ? "" : "s");
}

std::string difference(const Workload& workload, const Explanation& explanation) {
  if (explanation.moved) {
    return fmt::format("differs at token {}; {} tokens further on it is equal to a part of {}",
                       grouped(explanation.differs_at), grouped(explanation.added),
                       request_name(workload, explanation.nearest));
  }
  const std::string run =
      explanation.removed == explanation.added
          ? fmt::format("a run of {} is replaced", tokens_of(explanation.added))
          : fmt::format("a run of {} is replaced by {}", tokens_of(explanation.removed), grouped(explanation.added));
  return fmt::format("differs at token {} from {}: {}, then {} tokens are equal again{}",
                     grouped(explanation.differs_at), request_name(workload, explanation.nearest), run,
                     grouped(explanation.tokens.equal_again),
                     explanation.runs > 1 ? fmt::format(" in {} pieces", explanation.runs) : "");
}

std::string missing_state(const Workload& workload, const Explanation& explanation) {
  std::string text = fmt::format("the KV of {} more was there, but no state; ", grouped(explanation.tokens.stateless));
  if (explanation.state != StateLoss::kEvicted && explanation.state != StateLoss::kReplaced) {
    return text + "none is known to have been kept there";
  }
  text += fmt::format("the one at token {} ", grouped(explanation.state_tokens));
  text += explanation.state == StateLoss::kEvicted ? "was evicted" : "made room for a later one of its session";
  if (explanation.state_evicted_by == explanation.index) return text + " for this request";
  return text + fmt::format(" {} for {}", ago(workload, explanation.index, explanation.state_evicted_by),
                            request_name(workload, explanation.state_evicted_by));
}

std::string reason(const Workload& workload, const Explanation& explanation) {
  const std::size_t index = explanation.index;
  switch (explanation.cause) {
    case MissCause::kNone:
      return "all full blocks";
    case MissCause::kTooShort:
      return "shorter than a block";
    case MissCause::kStateMissing:
      return missing_state(workload, explanation);
    case MissCause::kEvicted:
      return fmt::format("the next {} tokens were evicted {} for {}; last used by {}",
                         grouped(explanation.tokens.evicted), ago(workload, index, explanation.evicted_by),
                         request_name(workload, explanation.evicted_by),
                         request_name(workload, explanation.last_used_by));
    case MissCause::kOtherTenant: {
      const std::uint32_t other = workload[explanation.nearest].tenant;
      return fmt::format("the next {} tokens were seen {} in {}", grouped(explanation.tokens.other_tenant),
                         other == 0 ? "without a tenant" : fmt::format("for tenant number {}", other),
                         request_name(workload, explanation.nearest));
    }
    case MissCause::kOtherAdapter: {
      const std::uint32_t other = workload[explanation.nearest].adapter;
      return fmt::format("the next {} tokens were seen {} in {}", grouped(explanation.tokens.other_adapter),
                         other == 0 ? "without an adapter" : fmt::format("with adapter number {}", other),
                         request_name(workload, explanation.nearest));
    }
    case MissCause::kDiffersThenEqual:
      return difference(workload, explanation);
    case MissCause::kDiffers:
      return fmt::format("differs at token {} from {}, for good", grouped(explanation.differs_at),
                         request_name(workload, explanation.nearest));
    case MissCause::kNeverSeen:
      if (!explanation.goes_on) return "never seen";
      return fmt::format("goes on where {} and all others end", request_name(workload, explanation.nearest));
  }
  return "";
}

std::string summary(const ExplainReport& report) {
  const TokenCauses& tokens = report.result.tokens;
  struct Line {
    std::string_view label;
    std::uint64_t tokens;
  };
  const std::array lines{Line{"prompt tokens", tokens.prompt},
                         Line{report.snapshots ? "  reused" : "  matched", tokens.matched},
                         Line{kStateLabel, tokens.stateless},
                         Line{"  evicted", tokens.evicted},
                         Line{"  seen for another tenant", tokens.other_tenant},
                         Line{"  seen for another adapter", tokens.other_adapter},
                         Line{"  equal again behind a difference", tokens.equal_again},
                         Line{"  never seen", tokens.unseen},
                         Line{"  behind the last full block", tokens.too_short}};
  std::string text;
  for (const Line& line : lines) {
    if (line.label == kStateLabel && !report.snapshots) continue;
    text += fmt::format("{:<33}  {:>15}  {:>9}\n", line.label, grouped(line.tokens),
                        percent(share(line.tokens, tokens.prompt)));
  }
  if (report.snapshots) {
    text += fmt::format("With a state wherever one is wanted, {} would be reused.\n",
                        percent(share(tokens.matched + tokens.stateless, tokens.prompt)));
  } else {
    text += fmt::format(
        "With the same pool, the best choice of what to keep would match {}; had nothing been evicted, {}.\n",
        percent(share(report.optimum_matched_tokens, tokens.prompt)),
        percent(share(tokens.matched + tokens.evicted, tokens.prompt)));
  }
  if (!report.found_equal_again) {
    text += "Chained block ids: nothing can be equal again behind a difference, so it was not looked for.\n";
  }
  return text;
}

std::string cause_counts(const ExplainResult& result) {
  constexpr std::array<std::string_view, kMissCauses> kLabels{"nowhere: all full blocks were cached",
                                                              "the prompt is shorter than a block",
                                                              "the KV was there, but no state",
                                                              "the next block had been evicted",
                                                              "seen for another tenant only",
                                                              "seen for another adapter only",
                                                              "differs, then is equal again",
                                                              "differs for good",
                                                              "never seen"};
  std::string text = "Where the cached prefix ended           requests\n";
  for (std::size_t i = 0; i < kMissCauses; ++i) {
    text += fmt::format("  {:<36}  {:>8}\n", kLabels[i], grouped(result.by_cause[i]));
  }
  return text;
}

Json json_tokens(const TokenCauses& tokens) {
  return Json{{"prompt", tokens.prompt},
              {"matched", tokens.matched},
              {"state_missing", tokens.stateless},
              {"evicted", tokens.evicted},
              {"other_tenant", tokens.other_tenant},
              {"other_adapter", tokens.other_adapter},
              {"equal_again", tokens.equal_again},
              {"never_seen", tokens.unseen},
              {"shorter_than_a_block", tokens.too_short}};
}

void add_state(const Workload& workload, const Explanation& explanation, Json& request) {
  if (explanation.state != StateLoss::kEvicted && explanation.state != StateLoss::kReplaced) {
    request["state"] = "never_kept";
    return;
  }
  request["state"] = explanation.state == StateLoss::kEvicted ? "evicted" : "replaced";
  request["state_tokens"] = explanation.state_tokens;
  request["state_evicted_by_request"] = explanation.state_evicted_by + 1;
  request["state_evicted_requests_ago"] = explanation.index - explanation.state_evicted_by;
  if (workload.has_timestamps()) {
    request["state_evicted_seconds_ago"] =
        (workload[explanation.index].timestamp_ms - workload[explanation.state_evicted_by].timestamp_ms) / 1e3;
  }
}

Json json_request(const Workload& workload, const Explanation& explanation) {
  Json request{{"request", explanation.index + 1},
               {"line", workload[explanation.index].line},
               {"cause", name_of(explanation.cause)},
               {"tokens", json_tokens(explanation.tokens)}};
  if (workload.has_timestamps()) request["timestamp_ms"] = workload[explanation.index].timestamp_ms;
  switch (explanation.cause) {
    case MissCause::kStateMissing:
      add_state(workload, explanation, request);
      break;
    case MissCause::kEvicted:
      request["evicted_by_request"] = explanation.evicted_by + 1;
      request["evicted_requests_ago"] = explanation.index - explanation.evicted_by;
      request["last_used_by_request"] = explanation.last_used_by + 1;
      if (workload.has_timestamps()) {
        request["evicted_seconds_ago"] =
            (workload[explanation.index].timestamp_ms - workload[explanation.evicted_by].timestamp_ms) / 1e3;
      }
      break;
    case MissCause::kDiffersThenEqual:
      request["removed_tokens"] = explanation.moved ? Json() : Json(explanation.removed);
      request["added_tokens"] = explanation.added;
      request["runs"] = explanation.runs;
      [[fallthrough]];
    case MissCause::kDiffers:
      request["differs_at_token"] = explanation.differs_at;
      [[fallthrough]];
    case MissCause::kOtherTenant:
    case MissCause::kOtherAdapter:
      request["nearest_request"] = explanation.nearest + 1;
      break;
    case MissCause::kNeverSeen:
      request["nearest_request"] = explanation.goes_on ? Json(explanation.nearest + 1) : Json();
      break;
    case MissCause::kNone:
    case MissCause::kTooShort:
      break;
  }
  return request;
}

}  // namespace

std::vector<MissGroup> group_misses(const Workload& workload, const ExplainResult& result) {
  Groups all;
  for (std::size_t i = 0; i < result.requests.size(); ++i) add_misses(workload, result.requests[i], i, all);
  all.merge_small_ones();
  std::vector<MissGroup> groups;
  for (auto& [key, group] : all.groups) {
    put_into_words(workload, key, result.requests[group.example], group);
    groups.push_back(std::move(group));
  }
  std::ranges::sort(groups, [](const MissGroup& a, const MissGroup& b) {
    return a.tokens != b.tokens ? a.tokens > b.tokens : std::tie(a.example, a.what) < std::tie(b.example, b.what);
  });
  return groups;
}

std::string describe(const Workload& workload, const Explanation& explanation) {
  return fmt::format("{} of {} tokens matched; {}", grouped(explanation.tokens.matched),
                     grouped(explanation.tokens.prompt), reason(workload, explanation));
}

std::string table(const Workload& workload, const ExplainReport& report, bool with_requests) {
  const ExplainResult& result = report.result;
  std::string text = workload_line(report);
  text += fmt::format("settings  block size {} tokens, pool {} blocks ({} of {} distinct), {}, {}\n\n",
                      report.replay.block_size, grouped(report.pool_blocks),
                      percent(share(report.pool_blocks, report.distinct_blocks)), grouped(report.distinct_blocks),
                      result.run.name, overlap_text(report.replay));
  if (report.snapshots) {
    text.pop_back();
    text += fmt::format(
        "          {} slots for states, {}\n\n", grouped(report.snapshots->slots),
        report.snapshots->checkpoint_every_tokens == 0
            ? "no checkpoints"
            : fmt::format("checkpoints every {} tokens", grouped(report.snapshots->checkpoint_every_tokens)));
  }
  text += summary(report) + "\n" + cause_counts(result) + "\n";
  const std::vector<MissGroup> groups = group_misses(workload, result);
  const std::size_t shown = std::min(groups.size(), ExplainReport::kGroupsShown);
  text += fmt::format("The costliest causes ({} of {})\n", shown, grouped(groups.size()));
  for (std::size_t i = 0; i < shown; ++i) {
    const MissGroup& group = groups[i];
    const Explanation& example = result.requests[group.example];
    text += fmt::format("\n{:>2}. {} tokens ({}) of {} requests: {}\n", i + 1, grouped(group.tokens),
                        percent(share(group.tokens, result.tokens.prompt)), grouped(group.requests), group.what);
    text += fmt::format("    Example: {}: {}.\n", request_name(workload, example.index), describe(workload, example));
    text += fmt::format("    To do: {}\n", group.to_do);
  }
  if (result.run.rejected > 0) {
    text += fmt::format("\n{} requests can never fit into the pool and are left out.\n", grouped(result.run.rejected));
  }
  text += bad_lines_note(report);
  if (!with_requests) return text;
  text += "\n";
  for (const Explanation& explanation : result.requests) {
    text += fmt::format("{}: {}\n", request_name(workload, explanation.index), describe(workload, explanation));
  }
  return text;
}

std::string json(const Workload& workload, const ExplainReport& report, bool with_requests) {
  const ExplainResult& result = report.result;
  Json document;
  document["schema_version"] = kSchemaVersion;
  document["settings"] = json_source(report);
  document["settings"]["block_size"] = report.replay.block_size;
  document["settings"]["blocks"] = report.pool.text();
  document["settings"]["policy"] = result.run.name;
  add_overlap(report.replay, document["settings"]);
  document["workload"] = {{"requests", report.requests},
                          {"prompt_tokens", report.prompt_tokens},
                          {"output_tokens", report.output_tokens},
                          {"distinct_blocks", report.distinct_blocks}};
  add_bad_lines(report, document);
  if (report.snapshots) {
    document["settings"]["snapshots"] = report.snapshots->slots;
    document["settings"]["checkpoint_every_tokens"] = report.snapshots->checkpoint_every_tokens;
  }
  document["pool_blocks"] = report.pool_blocks;
  if (!report.snapshots) document["optimum_matched_tokens"] = report.optimum_matched_tokens;
  document["rejected"] = result.run.rejected;
  document["tokens"] = json_tokens(result.tokens);
  for (std::size_t i = 0; i < kMissCauses; ++i) {
    document["requests_by_cause"][name_of(static_cast<MissCause>(i))] = result.by_cause[i];
  }
  document["costliest"] = Json::array();
  const std::vector<MissGroup> groups = group_misses(workload, result);
  for (std::size_t i = 0; i < std::min(groups.size(), ExplainReport::kGroupsShown); ++i) {
    const MissGroup& group = groups[i];
    document["costliest"].push_back({{"cause", group.cause},
                                     {"what", group.what},
                                     {"tokens", group.tokens},
                                     {"requests", group.requests},
                                     {"to_do", group.to_do},
                                     {"example", json_request(workload, result.requests[group.example])}});
  }
  if (with_requests) {
    document["requests"] = Json::array();
    for (const Explanation& explanation : result.requests) {
      document["requests"].push_back(json_request(workload, explanation));
    }
  }
  return dumped(document);
}

}  // namespace cairn::replay
