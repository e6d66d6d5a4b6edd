#include "replay/snapshot_ceiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "replay/running_sequences.h"

namespace cairn::replay {
namespace {

using Number = BlockTrace::Number;

constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

// Where a lease asks for state, and who sees it there.
enum class Kind : std::uint8_t { kTail, kSibling, kShared };
struct Place {
  std::size_t blocks = 0;
  Kind kind = Kind::kShared;
};

void check(const BlockTrace& blocks, const SnapshotCeilingOptions& options) {
  if (options.slots == 0) throw std::invalid_argument("snapshots 0: must be at least 1");
  if (options.snapshots.last_token) {
    throw std::invalid_argument("last_token: a state in the middle of a block is not among the places of a ceiling");
  }
  if (blocks.block_size() != options.replay.block_size) {
    throw std::invalid_argument(fmt::format("block_size {}: the blocks are numbered for a block size of {}",
                                            options.replay.block_size, blocks.block_size()));
  }
}

// What no choice of snapshots changes, as long as no block is evicted: how far the KV of each request matches, and
// where it would leave states if it had none. The rules are those of docs/leases.md, in blocks.
class Requests {
 public:
  Requests(const Workload& workload, const BlockTrace& blocks, const SnapshotCeilingOptions& options)
      : workload_(workload), blocks_(blocks), options_(options), cached_(blocks.distinct()), seen_(blocks.distinct()) {
    RunningSequences<std::size_t> running(workload, options.replay.concurrency, options.replay.service_rate);
    for (std::size_t i = 0; i < workload.size(); ++i) {
      running.make_room_for(i, [this](std::size_t ended) { publish(blocks_.sequence(ended)); });
      look_up(i);
      publish(blocks_.prompt(i));
      running.add(i, i);
    }
  }

  [[nodiscard]] std::size_t size() const { return matched_.size(); }
  [[nodiscard]] SessionHash session(std::size_t index) const { return workload_[index].session; }
  [[nodiscard]] std::span<const Number> prompt(std::size_t index) const { return blocks_.prompt(index); }
  [[nodiscard]] std::size_t matched(std::size_t index) const { return matched_[index]; }
  [[nodiscard]] std::size_t distinct() const { return blocks_.distinct(); }
  [[nodiscard]] std::size_t tokens(std::size_t blocks) const { return blocks * blocks_.block_size(); }

  // In ascending order, each once; those beyond `have` blocks of state alone.
  void places(std::size_t index, std::size_t have, std::vector<Place>& places) const {
    places.clear();
    const SnapshotOptions& snapshots = options_.snapshots;
    const std::size_t prompt_tokens = workload_[index].prompt_tokens;
    const std::size_t full = prompt_tokens / blocks_.block_size();
    const bool session = workload_[index].session != 0;
    const auto add = [&](std::size_t at, Kind kind) {
      if (at > have) places.push_back({at, kind});
    };
    if (snapshots.tails && full > 1) {
      const std::size_t tail = full - 1;
      add(tail, session ? Kind::kTail : Kind::kShared);
      if (snapshots.siblings && session && tail > have && tail > 1 && tail - 1 >= have) {
        places.push_back({tail - 1, Kind::kSibling});
      }
    }
    if (branches_[index]) add(matched_[index], Kind::kShared);
    if (const std::size_t every = snapshots.checkpoint_every_tokens / blocks_.block_size(); every > 0) {
      for (std::size_t at = every; tokens(at) < prompt_tokens; at += every) add(at, Kind::kShared);
    }
    std::ranges::sort(places, [](const Place& a, const Place& b) {
      return a.blocks != b.blocks ? a.blocks < b.blocks : a.kind < b.kind;
    });
    const auto repeated =
        std::ranges::unique(places, [](const Place& a, const Place& b) { return a.blocks == b.blocks; });
    places.erase(repeated.begin(), repeated.end());
  }

 private:
  void publish(std::span<const Number> numbers) {
    for (const Number number : numbers) cached_[number] = true;
  }

  void look_up(std::size_t index) {
    const std::span<const Number> prompt = blocks_.prompt(index);
    const std::size_t limit = (workload_[index].prompt_tokens - 1) / blocks_.block_size();
    std::size_t matched = 0;
    while (matched < limit && cached_[prompt[matched]]) ++matched;
    bool branches = false;
    if (options_.snapshots.branch_points && matched > 0 && matched < limit) {
      branches = seen_[prompt[matched - 1]];
      seen_[prompt[matched - 1]] = true;
    }
    matched_.push_back(matched);
    branches_.push_back(branches);
  }

  const Workload& workload_;
  const BlockTrace& blocks_;
  const SnapshotCeilingOptions& options_;
  std::vector<bool> cached_;  // by number
  std::vector<bool> seen_;    // by number: a match ended there, and the prompt went on otherwise
  std::vector<std::size_t> matched_;
  std::vector<bool> branches_;
};

// By request: how many blocks it is to go on from.
using Plan = std::vector<std::uint32_t>;

// ---- Step by step ----

class SnapshotCache {
 public:
  // Without a plan the least recently used one is evicted; else the one whose next planned use is furthest away.
  SnapshotCache(const Requests& requests, std::size_t slots, const Plan* plan)
      : requests_(requests), slots_(slots), planned_(plan != nullptr), at_(requests.distinct(), kNoSnapshot) {
    if (planned_) note_uses(*plan);
  }

  SnapshotReplay run() {
    for (now_ = 0; now_ < requests_.size(); ++now_) serve();
    return std::move(result_);
  }

 private:
  static constexpr std::uint32_t kNoSnapshot = std::numeric_limits<std::uint32_t>::max();
  struct Snapshot {
    Number number = 0;
    Kind kind = Kind::kShared;
    SessionHash session = 0;
    std::uint64_t key = 0;  // in queue_
  };
  struct Session {
    std::uint32_t tail = kNoSnapshot;
    std::uint32_t sibling = kNoSnapshot;
  };
  // Filled, and not found by anybody yet.
  struct Pending {
    Number number = 0;
    Kind kind = Kind::kShared;
  };

  static bool sees(SessionHash session, Kind kind, SessionHash owner) {
    if (kind == Kind::kShared) return true;
    return kind == Kind::kTail ? session == owner : session == owner || session == 0;
  }

  void note_uses(const Plan& plan) {
    uses_.resize(requests_.distinct());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (plan[i] > 0) uses_[requests_.prompt(i)[plan[i] - 1]].push_back(static_cast<std::uint32_t>(i));
    }
  }

  // The next request, after the present one, that is to go on from there and may see it.
  [[nodiscard]] std::uint32_t next_use(Number number, Kind kind, SessionHash owner) const {
    const std::vector<std::uint32_t>& uses = uses_[number];
    auto use = std::ranges::upper_bound(uses, static_cast<std::uint32_t>(now_));
    while (use != uses.end() && !sees(requests_.session(*use), kind, owner)) ++use;
    return use == uses.end() ? kNever : *use;
  }

  // What goes first has the least key.
  [[nodiscard]] std::uint64_t key_for(Number number, Kind kind, SessionHash owner) {
    const std::uint64_t tick = ++clock_;
    if (!planned_) return tick;
    return std::uint64_t{kNever - next_use(number, kind, owner)} << 32 | (tick & 0xFFFFFFFF);
  }

  void serve() {
    const SessionHash session = requests_.session(now_);
    const std::span<const Number> prompt = requests_.prompt(now_);
    std::size_t have = requests_.matched(now_);
    while (have > 0 && !is_seen(prompt[have - 1], session)) --have;
    result_.reused_blocks.push_back(have);
    result_.reused_tokens += requests_.tokens(have);
    if (have > 0) touch(at_[prompt[have - 1]]);
    requests_.places(now_, have, places_);
    pending_.clear();
    for (const Place& place : places_) capture(prompt[place.blocks - 1], place.kind, session);
    // What waited for a tail that did not come.
    for (Pending& sibling : std::exchange(pending_, {})) publish(sibling.number, Kind::kTail, session);
  }

  [[nodiscard]] bool is_seen(Number number, SessionHash session) const {
    if (at_[number] == kNoSnapshot) return false;
    const Snapshot& snapshot = snapshots_[at_[number]];
    return sees(session, snapshot.kind, snapshot.session);
  }

  void capture(Number number, Kind kind, SessionHash session) {
    if (used_ + pending_.size() >= slots_ && !make_room(number, kind, session)) {
      if (kind == Kind::kTail) {
        for (Pending& sibling : std::exchange(pending_, {})) publish(sibling.number, Kind::kTail, session);
      }
      return;
    }
    if (kind == Kind::kSibling) {
      pending_.push_back({number, kind});
      return;
    }
    publish(number, kind, session);
    if (kind != Kind::kTail) return;
    for (Pending& sibling : std::exchange(pending_, {})) publish(sibling.number, Kind::kSibling, session);
  }

  // False if nothing can go, or nothing goes for a new one that is used later than all others.
  bool make_room(Number number, Kind kind, SessionHash session) {
    if (queue_.empty()) return false;
    if (planned_) {
      const auto furthest = kNever - static_cast<std::uint32_t>(queue_.begin()->first >> 32);
      if (next_use(number, kind, session) >= furthest) return false;
    }
    ++result_.evicted;
    remove(queue_.begin()->second);
    return true;
  }

  void publish(Number number, Kind kind, SessionHash session) {
    ++result_.captures;
    if (kind == Kind::kTail) {
      if (const auto found = sessions_.find(session); found != sessions_.end()) {
        const Session swept = found->second;
        if (swept.tail != kNoSnapshot) remove(swept.tail);
        if (swept.sibling != kNoSnapshot) remove(swept.sibling);
      }
    }
    if (at_[number] != kNoSnapshot) remove(at_[number]);
    auto index = static_cast<std::uint32_t>(snapshots_.size());
    if (free_.empty()) {
      snapshots_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Snapshot& snapshot = snapshots_[index];
    snapshot = {.number = number,
                .kind = kind,
                .session = kind == Kind::kShared ? 0 : session,
                .key = key_for(number, kind, session)};
    queue_.emplace(snapshot.key, index);
    at_[number] = index;
    ++used_;
    if (kind == Kind::kTail) sessions_[session].tail = index;
    if (kind == Kind::kSibling) sessions_[session].sibling = index;
  }

  void touch(std::uint32_t index) {
    Snapshot& snapshot = snapshots_[index];
    queue_.erase(snapshot.key);
    snapshot.key = key_for(snapshot.number, snapshot.kind, snapshot.session);
    queue_.emplace(snapshot.key, index);
  }

  void remove(std::uint32_t index) {
    const Snapshot& snapshot = snapshots_[index];
    queue_.erase(snapshot.key);
    at_[snapshot.number] = kNoSnapshot;
    --used_;
    free_.push_back(index);
    if (snapshot.kind == Kind::kShared) return;
    Session& session = sessions_[snapshot.session];
    (snapshot.kind == Kind::kTail ? session.tail : session.sibling) = kNoSnapshot;
  }

  const Requests& requests_;
  const std::size_t slots_;
  const bool planned_;
  std::vector<std::uint32_t> at_;                 // by number
  std::vector<std::vector<std::uint32_t>> uses_;  // by number: requests that are to use it
  std::vector<Snapshot> snapshots_;
  std::vector<std::uint32_t> free_;
  boost::unordered_flat_map<SessionHash, Session> sessions_;
  std::map<std::uint64_t, std::uint32_t> queue_;
  std::vector<Place> places_;
  std::vector<Pending> pending_;
  std::size_t used_ = 0;
  std::size_t now_ = 0;
  std::uint64_t clock_ = 0;
  SnapshotReplay result_;
};

// ---- The bound ----

// A request that goes on from a place, which then takes a slot since the request `from` came by it.
struct Interval {
  std::uint32_t from = 0;
  std::uint32_t blocks = 0;
};

class Intervals {
 public:
  explicit Intervals(const Requests& requests) : last_pass_(requests.distinct(), kNever), who_(requests.distinct()) {
    std::vector<Place> places;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      begin_.push_back(all_.size());
      const std::span<const Number> prompt = requests.prompt(i);
      // Deeper places were passed no later. Of those passed last by the same request the deepest is worth most.
      for (std::size_t blocks = requests.matched(i); blocks > 0; --blocks) {
        const Number number = prompt[blocks - 1];
        if (!may_be_there(number, requests.session(i))) continue;
        if (all_.size() > begin_.back() && all_.back().from == last_pass_[number]) continue;
        all_.push_back({.from = last_pass_[number], .blocks = static_cast<std::uint32_t>(blocks)});
      }
      requests.places(i, 0, places);
      for (const Place& place : places) note(prompt[place.blocks - 1], place.kind, requests.session(i));
      for (const Number number : prompt) last_pass_[number] = static_cast<std::uint32_t>(i);
    }
    begin_.push_back(all_.size());
  }

  [[nodiscard]] std::size_t requests() const { return begin_.size() - 1; }
  [[nodiscard]] std::span<const Interval> of(std::size_t request) const {
    return std::span(all_).subspan(begin_[request], begin_[request + 1] - begin_[request]);
  }

 private:
  enum : std::uint8_t { kForAll = 1, kOfASession = 2, kSiblingOfASession = 4 };

  void note(Number number, Kind kind, SessionHash session) {
    if (kind == Kind::kShared) {
      who_[number] |= kForAll;
      return;
    }
    who_[number] |= kind == Kind::kSibling ? kOfASession | kSiblingOfASession : kOfASession;
    sessions_.insert({number, session});
  }
  [[nodiscard]] bool may_be_there(Number number, SessionHash session) const {
    const unsigned who = who_[number];
    if ((who & kForAll) != 0) return true;
    if (session == 0) return (who & kSiblingOfASession) != 0;
    return (who & kOfASession) != 0 && sessions_.contains({number, session});
  }

  std::vector<std::uint32_t> last_pass_;  // by number: the last request whose prompt has it
  std::vector<std::uint8_t> who_;         // by number: for whom a snapshot may have been left there
  boost::unordered_flat_set<std::pair<std::uint64_t, SessionHash>> sessions_;  // by number
  std::vector<Interval> all_;
  std::vector<std::size_t> begin_;  // by request, into all_
};

// The highest number of intervals over any moment of a range; adding one to a range.
class Overlaps {
 public:
  explicit Overlaps(std::size_t moments) : size_(std::bit_ceil(std::max<std::size_t>(1, moments))) {
    most_.resize(2 * size_);
    added_.resize(2 * size_);
  }
  [[nodiscard]] std::int64_t most(std::size_t from, std::size_t to) const { return most(1, 0, size_, from, to); }
  void add(std::size_t from, std::size_t to) { add(1, 0, size_, from, to); }

 private:
  // As deep as the logarithm of the moments.
  [[nodiscard]] std::int64_t most(std::size_t node, std::size_t low, std::size_t high, std::size_t from,
                                  std::size_t to) const {
    if (to <= low || high <= from) return 0;
    if (from <= low && high <= to) return most_[node];
    const std::size_t middle = (low + high) / 2;
    return added_[node] + std::max(most(2 * node, low, middle, from, to), most(2 * node + 1, middle, high, from, to));
  }
  void add(std::size_t node, std::size_t low, std::size_t high, std::size_t from, std::size_t to) {
    if (to <= low || high <= from) return;
    if (from <= low && high <= to) {
      ++most_[node];
      ++added_[node];
      return;
    }
    const std::size_t middle = (low + high) / 2;
    add(2 * node, low, middle, from, to);
    add(2 * node + 1, middle, high, from, to);
    most_[node] = added_[node] + std::max(most_[2 * node], most_[2 * node + 1]);
  }

  std::size_t size_;
  std::vector<std::int64_t> most_;
  std::vector<std::int64_t> added_;
};

class Prices {
 public:
  Prices(const Intervals& intervals, std::size_t slots, std::vector<double> value_of_blocks)
      : intervals_(intervals),
        slots_(static_cast<double>(slots)),
        value_(std::move(value_of_blocks)),
        price_(intervals.requests()),
        sum_(intervals.requests() + 1),
        chosen_(intervals.requests()),
        overlap_(intervals.requests() + 1),
        plan_(intervals.requests()) {}

  // The most that was found of what is chosen without too many at once.
  [[nodiscard]] double feasible() const { return feasible_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }

  // The lowest bound that was found.
  double minimise(std::size_t iterations) {
    double lowest = std::numeric_limits<double>::infinity();
    double step = 1;
    std::size_t worse = 0;
    for (std::size_t i = 0; i <= iterations; ++i) {
      const double bound = choose();
      if (i % kFeasibleEvery == 0) drop_what_is_too_many();
      if (bound < lowest) {
        lowest = bound;
        worse = 0;
      } else if (++worse == kPatience) {
        step /= 2;
        worse = 0;
      }
      if (!descend(step * (bound - feasible_))) break;
    }
    return lowest;
  }

 private:
  static constexpr std::size_t kFeasibleEvery = 10;
  static constexpr std::size_t kPatience = 10;

  [[nodiscard]] double value(const Interval& interval) const { return value_[interval.blocks]; }

  // Each request takes what pays best at the present prices. What comes of it is a bound.
  double choose() {
    const std::size_t requests = intervals_.requests();
    for (std::size_t i = 0; i < requests; ++i) sum_[i + 1] = sum_[i] + price_[i];
    double bound = slots_ * sum_[requests];
    std::ranges::fill(overlap_, 0.0);
    for (std::size_t i = 0; i < requests; ++i) {
      double best = 0;
      chosen_[i] = nullptr;
      for (const Interval& interval : intervals_.of(i)) {
        const double gain = value(interval) - (sum_[i] - sum_[interval.from]);
        if (gain <= best) continue;
        best = gain;
        chosen_[i] = &interval;
      }
      bound += best;
      if (chosen_[i] == nullptr) continue;
      overlap_[chosen_[i]->from] += 1;
      overlap_[i] -= 1;
    }
    for (std::size_t i = 0; i < requests; ++i) overlap_[i + 1] += overlap_[i];
    return bound;
  }

  // Of what is chosen, the most valuable ones that fit.
  void drop_what_is_too_many() {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      if (chosen_[i] != nullptr) order.push_back(i);
    }
    const auto density = [&](std::size_t i) { return value(*chosen_[i]) / static_cast<double>(i - chosen_[i]->from); };
    std::ranges::sort(order, std::ranges::greater{}, density);
    Overlaps overlaps(chosen_.size());
    Plan plan(chosen_.size());
    double sum = 0;
    for (const std::size_t i : order) {
      const std::size_t from = chosen_[i]->from;
      if (static_cast<double>(overlaps.most(from, i)) + 1 > slots_) continue;
      overlaps.add(from, i);
      sum += value(*chosen_[i]);
      plan[i] = chosen_[i]->blocks;
    }
    if (sum <= feasible_) return;
    feasible_ = sum;
    plan_ = std::move(plan);
  }

  // Where too many are chosen slots become dearer, elsewhere cheaper. False if the prices are right.
  bool descend(double gap) {
    double length = 0;
    for (std::size_t t = 0; t < price_.size(); ++t) {
      const double excess = overlap_[t] - slots_;
      if (excess > 0 || price_[t] > 0) length += excess * excess;
    }
    if (length == 0 || gap <= 0) return false;
    for (std::size_t t = 0; t < price_.size(); ++t) {
      price_[t] = std::max(0.0, price_[t] + gap / length * (overlap_[t] - slots_));
    }
    return true;
  }

  const Intervals& intervals_;
  const double slots_;
  const std::vector<double> value_;  // of going on from so many blocks
  std::vector<double> price_;        // of a slot from each request to the next
  std::vector<double> sum_;
  std::vector<const Interval*> chosen_;
  std::vector<double> overlap_;
  double feasible_ = 0;
  Plan plan_;
};

}  // namespace

SnapshotReplay replay_snapshots(const Workload& workload, const BlockTrace& blocks,
                                const SnapshotCeilingOptions& options) {
  check(blocks, options);
  const Requests requests(workload, blocks, options);
  return SnapshotCache(requests, options.slots, nullptr).run();
}

SnapshotCeiling find_snapshot_ceiling(const Workload& workload, const BlockTrace& blocks,
                                      const SnapshotCeilingOptions& options) {
  check(blocks, options);
  const Requests requests(workload, blocks, options);
  const Intervals intervals(requests);
  const ModelShape& model = options.snapshots.policy_options.model;
  std::size_t deepest = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) deepest = std::max(deepest, requests.matched(i));
  std::vector<double> tokens(deepest + 1);
  std::vector<double> flops(deepest + 1);
  for (std::size_t at = 0; at <= deepest; ++at) {
    tokens[at] = static_cast<double>(requests.tokens(at));
    flops[at] = model.flops(requests.tokens(at));
  }
  SnapshotCeiling ceiling;
  Prices by_tokens(intervals, options.slots, std::move(tokens));
  const double bound = by_tokens.minimise(options.iterations);
  // Sums of doubles may be off by their last digits.
  ceiling.tokens = static_cast<std::uint64_t>(bound * (1 + 1e-12));
  ceiling.relaxed_tokens = static_cast<std::uint64_t>(by_tokens.feasible());
  ceiling.flops = Prices(intervals, options.slots, flops).minimise(options.iterations) * (1 + 1e-12);
  const SnapshotReplay clairvoyant = SnapshotCache(requests, options.slots, &by_tokens.plan()).run();
  ceiling.clairvoyant_tokens = clairvoyant.reused_tokens;
  for (const std::size_t reused : clairvoyant.reused_blocks) ceiling.clairvoyant_flops += flops[reused];
  return ceiling;
}

}  // namespace cairn::replay
