#include "policy/learned_policy.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/containers.h"
#include "policy/end_heap.h"

namespace cairn {
namespace {

constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMonitoredEvery = 2;  // blocks of a path
constexpr std::size_t kEntriesForEachBlock = 4;
constexpr std::size_t kDrawn = 32;               // ends, to take the least of
constexpr std::size_t kEventsMin = 256;          // before values are computed anew
constexpr std::size_t kEntriesForEachEvent = 8;  // that this may look at
constexpr double kSeenForEachBlock = 4;          // events that count, beyond which old ones fade
constexpr double kSeenMin = 8000;
constexpr std::size_t kInsertedMax = 1024;  // pieces of edges between two writers' turns

bool is_monitored(std::size_t depth) {
  return depth % kMonitoredEvery == 1;  // the first block of a prompt among them
}

}  // namespace

LearnedPolicy::LearnedPolicy(const EdgeStore& edges, std::uint64_t seed)
    : edges_(edges), fingerprints_(edges.block_size(), seed), random_(seed) {
  inserted_.reserve(kInsertedMax);
}

// ---- With the gate open ----

void LearnedPolicy::reserve(std::size_t ends, EdgeId id_limit) {
  if (ends > ends_.size()) make_room(ends_, ends - ends_.size());
  make_room_by_edge(places_, id_limit, kNowhere);
  make_room_by_edge(known_, id_limit, Known());
}

void LearnedPolicy::settle(std::span<const Use> uses, std::size_t blocks) {
  follower_ = uncovered_ = kNoEdge;  // of the eviction before
  monitored_.reserve(std::max(kEventsMin, kEntriesForEachBlock * blocks));
  // What was inserted, was in turns before this one; most of what was used, since then.
  for (const NewBlocks& piece : inserted_) {
    if (is_cached({piece.edge, piece.last})) learn_of_insert(piece);
  }
  inserted_.clear();
  for (const Use& use : uses) {
    if (is_cached(use.at)) learn_of_use(use);  // else it went meanwhile
  }
  if (events_ < std::max(kEventsMin, monitored_.filled() / kEntriesForEachEvent)) return;
  events_ = 0;
  ReuseTimes::Table waiting{};
  for (const MonitoredBlocks::Entry& entry : monitored_.all()) {
    if (entry.uses == 0) continue;
    const std::uint64_t age = now_ - std::min(now_, entry.last);
    waiting[ReuseTimes::class_of(entry.uses)][ReuseTimes::octave(age)] += 1;
  }
  times_.learn(waiting);
  times_.forget_beyond(std::max(kSeenMin, kSeenForEachBlock * static_cast<double>(blocks)));
}

bool LearnedPolicy::is_cached(Position at) const {
  return at.edge < edges_.id_limit() && edges_[at.edge].live && at.boundary <= edges_[at.edge].resident;
}

void LearnedPolicy::learn_of_insert(const NewBlocks& blocks) {
  std::uint64_t uses = 0;
  for (std::uint32_t boundary = blocks.last; boundary > blocks.first; --boundary) {
    uses = monitor({blocks.edge, boundary}, blocks.stamp, uses);
    if (boundary == blocks.last && edges_[blocks.edge].resident == boundary) {
      known_[blocks.edge] = {.boundary = boundary, .hits = 0, .uses = std::max<std::uint64_t>(1, uses)};
    }
  }
}

void LearnedPolicy::learn_of_use(const Use& use) {
  std::uint64_t uses = 0;
  for (Position at = use.at; at.edge != kTop;) {
    uses = monitor(at, use.stamp, uses);
    at = at.boundary > 1 ? Position{at.edge, at.boundary - 1} : edges_[at.edge].parent();
  }
}

// Writes down one use of a block, if it is monitored. What lies below it was used so often, with this use, so it was
// at least as often. How often it was, as far as that is known.
std::uint64_t LearnedPolicy::monitor(Position at, Stamp stamp, std::uint64_t uses_below) {
  const Edge& edge = edges_[at.edge];
  const std::size_t depth = std::size_t{edge.start} + at.boundary;
  if (!is_monitored(depth)) return uses_below;
  const std::uint64_t fingerprint = fingerprints_.of(edges_, at);
  ++events_;
  now_ = std::max(now_, stamp);
  MonitoredBlocks::Entry* entry = monitored_.find(fingerprint);
  const auto age_of = [&](Stamp last) { return stamp - std::min(stamp, last); };
  if (entry != nullptr) {
    times_.saw(ReuseTimes::class_of(entry->uses), age_of(entry->last), true);
    entry->uses = std::max(entry->uses + 1, uses_below);
    entry->last = std::max(entry->last, stamp);
    return entry->uses;
  }
  MonitoredBlocks::Entry& place = monitored_.make_way(fingerprint);
  if (place.uses > 0) times_.saw(ReuseTimes::class_of(place.uses), age_of(place.last), false);
  place = {.fingerprint = fingerprint, .last = stamp, .uses = std::max<std::uint64_t>(1, uses_below)};
  return place.uses;
}

// ---- Whose turn it is ----

void LearnedPolicy::push(const BlockEnd& end) noexcept {
  if (places_[end.edge] == kNowhere) {
    places_[end.edge] = static_cast<std::uint32_t>(ends_.size());
    ends_.push_back(end.edge);
  }
  if (end.edge == uncovered_ && end.stamp == gone_stamp_ && ReuseTimes::class_of(uses_of(end)) == gone_class_) {
    follower_ = end.edge;
  }
}

void LearnedPolicy::remove(EdgeId edge) noexcept {
  const std::uint32_t place = places_[edge];
  places_[ends_.back()] = place;
  ends_[place] = ends_.back();
  ends_.pop_back();
  places_[edge] = kNowhere;
}

EdgeId LearnedPolicy::pop(const EvictionMoment& moment) noexcept {
  now_ = moment.now;
  EdgeId chosen = std::exchange(follower_, kNoEdge);
  uncovered_ = kNoEdge;
  if (chosen == kNoEdge && !ends_.empty()) {
    const bool all = ends_.size() <= kDrawn;
    std::tuple<double, Stamp, EdgeId> least;
    for (std::size_t i = 0; i < std::min(kDrawn, ends_.size()); ++i) {
      const EdgeId edge = ends_[all ? i : static_cast<std::size_t>(draw() % ends_.size())];
      const BlockEnd end = end_of(edge);
      const std::tuple candidate(value_of(end), end.stamp, edge);
      if (i == 0 || candidate < least) least = candidate;
    }
    chosen = std::get<EdgeId>(least);
  }
  if (chosen != kNoEdge) remove(chosen);
  return chosen;
}

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
std::uint64_t LearnedPolicy::draw() noexcept {
  std::uint64_t z = random_ += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

BlockPolicy::Verdict LearnedPolicy::judge(const BlockEnd& end) noexcept {
  gone_stamp_ = end.stamp;
  gone_class_ = ReuseTimes::class_of(uses_of(end));
  return Verdict::kEvict;
}

bool LearnedPolicy::goes_too(const BlockEnd& end) noexcept {
  return end.stamp == gone_stamp_ && ReuseTimes::class_of(uses_of(end)) == gone_class_;
}

BlockEnd LearnedPolicy::end_of(EdgeId id) const {
  const Edge& edge = edges_[id];
  return {.edge = id,
          .boundary = edge.resident,
          .depth = edge.start + edge.resident,
          .hits = edges_.end_hits(id).load(std::memory_order_relaxed),
          .stamp = edge.end_stamp.load(std::memory_order_relaxed)};
}

std::uint64_t LearnedPolicy::uses_of(const BlockEnd& end) const {
  const Known& known = known_[end.edge];
  if (known.boundary != end.boundary || known.hits > end.hits) return 1 + std::uint64_t{end.hits};
  return known.uses + (end.hits - known.hits);
}

double LearnedPolicy::value_of(const BlockEnd& end) const {
  return times_.value(uses_of(end), now_ - std::min(now_, end.stamp));
}

// ---- What happens to blocks ----

void LearnedPolicy::inserted(const NewBlocks& blocks) noexcept {
  if (inserted_.size() < kInsertedMax) inserted_.push_back(blocks);
}

// The block before it was used as often at least; perhaps more is known of it.
void LearnedPolicy::evicted(const BlockEnd& end) noexcept {
  const Position next{end.edge, end.boundary - 1};
  std::uint64_t uses = uses_of(end);
  if (next.boundary > 0) uses = std::max(uses, monitored_uses(next));
  known_[end.edge] = {.boundary = next.boundary, .hits = end.hits, .uses = uses};
}

std::uint64_t LearnedPolicy::monitored_uses(Position at) {
  if (!is_monitored(std::size_t{edges_[at.edge].start} + at.boundary)) return 0;
  const MonitoredBlocks::Entry* const entry = monitored_.find(fingerprints_.of(edges_, at));
  return entry == nullptr ? 0 : entry->uses;
}

void LearnedPolicy::uncovered(EdgeId parent, EdgeId child) noexcept {
  if (parent == kTop) return;
  const BlockEnd end = end_of(parent);
  known_[parent] = {.boundary = end.boundary,
                    .hits = end.hits,
                    .uses = std::max({uses_of(end), known_[child].uses, monitored_uses(end.at())})};
  uncovered_ = parent;
}

void LearnedPolicy::forget_if(const std::function<bool(EdgeId)>& goes) noexcept {
  for (std::size_t i = ends_.size(); i-- > 0;) {
    if (goes(ends_[i])) remove(ends_[i]);
  }
  inserted_.clear();
}

void LearnedPolicy::free_memory() noexcept {
  std::vector<EdgeId>().swap(ends_);
  std::vector<std::uint32_t>().swap(places_);
  std::vector<Known>().swap(known_);
}

std::string LearnedPolicy::validate(const EdgeStore&) const {
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    if (places_[ends_[i]] != i) return "edge " + std::to_string(ends_[i]) + ": is not where it is queued";
  }
  return {};
}

}  // namespace cairn
