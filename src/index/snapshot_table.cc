#include "index/snapshot_table.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace cairn {
namespace {

// A snapshot that is no tail is in the lane of its session and in the one for any session.
constexpr std::array<bool, 2> kBothLanes = {false, true};

}  // namespace

SnapshotTable::SnapshotTable(BlockTrie& trie, Gate& gate, std::uint64_t hash_seed, const RadixTreeOptions& options)
    : trie_(trie),
      gate_(gate),
      hash_seed_(hash_seed),
      shared_(options.share_snapshots_across_sessions),
      places_(0, PlaceHash{&snapshots_}, PlaceEqual{&snapshots_}),
      lanes_(0, LaneHash{hash_seed}),
      policy_(make_snapshot_policy(options.snapshot_policy, options.snapshot_policy_options)),
      edges_(policy_->wants_savings() ? std::make_unique<SnapshotEdges>(trie.edges()) : nullptr),
      bytes_each_(options.snapshot_policy_options.snapshot_bytes != 0
                      ? options.snapshot_policy_options.snapshot_bytes
                      : options.snapshot_policy_options.model.snapshot_bytes()) {}

// ---- Finding ----

std::size_t SnapshotTable::LaneHash::operator()(const LaneKey& key) const noexcept {
  return hash_tokens(std::bit_cast<std::array<TokenId, sizeof(LaneKey) / sizeof(TokenId)>>(key), seed);
}

bool SnapshotTable::PlaceEqual::operator()(Index index, const PlaceKey& key) const {
  const Snapshot& snapshot = (*snapshots)[index];
  return snapshot.at == key.at && snapshot.adapter_id == key.adapter_id &&
         std::ranges::equal(snapshot.residual, key.residual);
}

SnapshotTable::PlaceKey SnapshotTable::place_key(Position at, AdapterId adapter_id,
                                                 std::span<const TokenId> residual) const {
  return {at, adapter_id, residual, hash_tokens(residual, at.key() ^ hash_seed_)};
}

SnapshotTable::Index SnapshotTable::find_place(Position at, AdapterId adapter_id,
                                               std::span<const TokenId> residual) const {
  const auto found = places_.find(place_key(at, adapter_id, residual));
  return found == places_.end() ? kNone : *found;
}

SnapshotTable::Index SnapshotTable::deeper(Index a, Index b) const {
  if (a == kNone || b == kNone) return a == kNone ? b : a;
  return snapshots_[a].tokens > snapshots_[b].tokens ? a : b;
}

SnapshotTable::Index SnapshotTable::find_deepest(Position at, const Query& query) const {
  if (size_ == 0) return kNone;
  while (true) {
    const Edge& edge = trie_.edges()[at.edge];
    if (edge.snapshots > 0) {
      const bool any_session = shared_ || query.session == 0;
      LaneKey lane{.edge = at.edge, .any_session = any_session, .adapter_id = query.adapter_id};
      Index best = deepest_in_lane(at, lane, query);
      if (!any_session) {
        lane.session = query.session;
        best = deeper(best, deepest_in_lane(at, lane, query));
      }
      best = deeper(best, tail_on(at, query));
      if (best != kNone) return best;  // an edge further up has none as deep
    }
    if (at.edge == kTop) return kNone;
    at = edge.parent();
  }
}

// The deepest of at most `max_tokens` tokens. Most lookups end beyond all snapshots of a lane.
const SnapshotTable::LaneNode* SnapshotTable::last_in_lane(const Lane& lane, std::size_t max_tokens) {
  if (lane.rbegin()->tokens <= max_tokens) return &*lane.rbegin();
  auto node = lane.upper_bound(max_tokens);
  return node == lane.begin() ? nullptr : &*--node;
}

// Of one edge's lane, above or at `at` and on the tokens of the query.
SnapshotTable::Index SnapshotTable::deepest_in_lane(Position at, const LaneKey& key, const Query& query) const {
  const auto lane = lanes_.find(key);
  if (lane == lanes_.end()) return kNone;
  std::size_t max_tokens = std::min(query.max_tokens, boundary_tokens(at) + block_size() - 1);
  while (true) {
    const LaneNode* const node = last_in_lane(lane->second, max_tokens);
    if (node == nullptr) return kNone;
    const Snapshot& candidate = snapshots_[node->index];
    if (candidate.residual.empty()) {
      if (!query.resident_only || candidate.resident) return node->index;
      max_tokens = candidate.tokens - 1;
      continue;
    }

    // This boundary has snapshots with a residual, none longer than the candidate's. Which one agrees?
    const std::span<const TokenId> rest = query.tokens.subspan(boundary_tokens(candidate.at));
    for (std::size_t count = candidate.residual.size(); count > 0; --count) {
      const Index found = find_place(candidate.at, query.adapter_id, rest.first(count));
      if (found == kNone || snapshots_[found].kind == SnapshotKind::kTail) continue;
      if (query.resident_only && !snapshots_[found].resident) continue;
      if (key.any_session != 0 || snapshots_[found].session == key.session) return found;
    }
    max_tokens = boundary_tokens(candidate.at);
  }
}

SnapshotTable::Index SnapshotTable::tail_on(Position at, const Query& query) const {
  if (query.session == 0) return kNone;
  const auto session = sessions_.find(query.session);
  if (session == sessions_.end() || session->second.tail == kNone) return kNone;
  const Snapshot& tail = snapshots_[session->second.tail];
  if (tail.adapter_id != query.adapter_id || tail.tokens > query.max_tokens) return kNone;
  if (query.resident_only && !tail.resident) return kNone;
  if (tail.at.edge != at.edge || tail.at.boundary > at.boundary) return kNone;
  const auto rest = query.tokens.subspan(boundary_tokens(tail.at), tail.residual.size());
  return std::ranges::equal(rest, tail.residual) ? session->second.tail : kNone;
}

// Commits that overlap may come in another order than their stamps.
void SnapshotTable::use(Index index, Stamp now, SessionHash by) noexcept {
  Snapshot& snapshot = snapshots_[index];
  snapshot.stamp = std::max(snapshot.stamp, now);
  snapshot.use_number = ++uses_;
  policy_->use(index, {.stamp = snapshot.stamp, .number = snapshot.use_number, .by = by});
}

// ---- Pinning ----

void SnapshotTable::pin(Index index) noexcept {
  Snapshot& snapshot = snapshots_[index];
  CAIRN_CHECK(snapshot.live);
  CAIRN_CHECK(snapshot.resident);
  if (snapshot.pins++ > 0) return;
  ++pinned_;
  policy_->pin(index);
}

void SnapshotTable::drop_pin(Snapshot& snapshot) noexcept {
  CAIRN_CHECK(snapshot.pins > 0);
  if (--snapshot.pins == 0) --pinned_;
}

bool SnapshotTable::unpin(Index index) noexcept {
  Snapshot& snapshot = snapshots_[index];
  if (!snapshot.live) return false;
  drop_pin(snapshot);
  if (snapshot.pins == 0) policy_->unpin(index);
  return true;
}

std::optional<SnapshotId> SnapshotTable::unpin_gone(const Gate::Closed&, Index index) noexcept {
  Snapshot& snapshot = snapshots_[index];
  CAIRN_CHECK(!snapshot.live);
  drop_pin(snapshot);
  if (snapshot.pins > 0) return std::nullopt;
  by_slot_.erase(snapshot.slot);
  free_record(index);
  return snapshot.slot;
}

// ---- Putting ----

SnapshotTable::Index SnapshotTable::Snapshots::add() {
  if (size_ == chunks_.size() * kChunk) chunks_.push_back(std::make_unique<Snapshot[]>(kChunk));
  return size_++;
}

SnapshotTable::Pending SnapshotTable::prepare(const Put& put) {
  policy_->work();
  Pending pending;
  Snapshot& snapshot = pending.snapshot_;
  const auto residual = put.tokens.last(put.tokens.size() % block_size());
  snapshot.residual.assign(residual.begin(), residual.end());
  snapshot.adapter_id = put.adapter_id;
  snapshot.tokens = put.tokens.size();
  snapshot.kind = put.kind;
  snapshot.session = put.session;
  snapshot.slot = put.slot;
  snapshot.resident = true;
  snapshot.live = true;
  {
    const Gate::Closed closed(gate_);  // commits read these tables
    make_room_for_one();
    constexpr std::size_t kMostDisplaced = 3;  // an earlier tail, its sibling, and what lies at this place
    make_room(orphaned_, kMostDisplaced);
  }

  snapshot.at = trie_.add_anchor(put.adapter_id, put.tokens);
  hold_edge(snapshot.at);
  snapshot.place_hash = place_key(snapshot.at, put.adapter_id, residual).hash;
  return pending;
}

void SnapshotTable::make_room_for_one() {
  if (first_free_ == kNone) first_free_ = snapshots_.add();
  policy_->reserve(snapshots_.size());
  make_room(places_, 1);
  make_room(lanes_, kBothLanes.size());
  make_room(by_slot_, 1);
  make_room(sessions_, 1);
}

// Of a position with an anchor, which is dropped if this throws.
void SnapshotTable::hold_edge(Position at) {
  if (!edges_) return;
  try {
    edges_->hold(at.edge);
  } catch (...) {
    trie_.drop_anchor(Gate::Closed(gate_), at);
    throw;
  }
}

void SnapshotTable::give_up(const Gate::Closed& closed, Pending pending) noexcept {
  if (edges_) edges_->release(pending.snapshot_.at.edge);
  trie_.drop_anchor(closed, pending.snapshot_.at);
}

std::optional<SnapshotId> SnapshotTable::put(const Gate::Closed& closed, Pending pending, Stamp now,
                                             RadixTreeCounters& counters) noexcept {
  const Snapshot& next = pending.snapshot_;
  std::optional<SnapshotId> displaced;
  ++counters.snapshots_put;
  if (const Index taken = find_place(next.at, next.adapter_id, next.residual); taken != kNone) {
    const Snapshot& old = snapshots_[taken];
    ++counters.snapshots_replaced;
    if (old.kind == SnapshotKind::kTail && next.kind == SnapshotKind::kTail && old.session != next.session) {
      ++counters.tails_replaced;
    }
    displaced = displace(closed, taken, counters);
  }
  pending.snapshot_.stamp = now;
  pending.snapshot_.use_number = ++uses_;

  const Index index = first_free_;
  first_free_ = snapshots_[index].next_free;
  snapshots_[index] = std::move(pending.snapshot_);
  enter(index);
  return displaced;
}

SnapshotTable::LaneKey SnapshotTable::lane_of(const Snapshot& snapshot, bool any_session) {
  return {snapshot.at.edge, any_session, snapshot.adapter_id, any_session ? 0 : snapshot.session};
}

void SnapshotTable::enter_lanes(Index index) noexcept {
  Snapshot& snapshot = snapshots_[index];
  for (const bool any : kBothLanes) {
    LaneNode& node = snapshot.lane_nodes[any ? 1 : 0];
    node.tokens = snapshot.tokens;
    node.index = index;
    lanes_[lane_of(snapshot, any)].insert(node);
  }
}

void SnapshotTable::leave_lanes(Snapshot& snapshot) noexcept {
  for (const bool any : kBothLanes) {
    const auto lane = lanes_.find(lane_of(snapshot, any));
    CAIRN_CHECK(lane != lanes_.end());
    lane->second.erase(Lane::s_iterator_to(snapshot.lane_nodes[any ? 1 : 0]));
    if (lane->second.empty()) lanes_.erase(lane);
  }
}

void SnapshotTable::enter(Index index) noexcept {
  const Snapshot& snapshot = snapshots_[index];
  if (snapshot.kind != SnapshotKind::kTail) enter_lanes(index);
  if (snapshot.resident) {
    by_slot_.emplace(snapshot.slot, index);
  } else {
    by_key_.emplace(snapshot.key, index);
  }
  places_.insert(index);
  ++trie_.edges()[snapshot.at.edge].snapshots;
  ++size_;
  if (snapshot.kind == SnapshotKind::kTail) sessions_[snapshot.session].tail = index;
  if (snapshot.kind == SnapshotKind::kTailSibling) sessions_[snapshot.session].sibling = index;
  join_those_above(index);
  if (snapshot.resident) become_resident(index);
}

std::optional<SnapshotId> SnapshotTable::remove(const Gate::Closed& closed, Index index) noexcept {
  Snapshot& snapshot = snapshots_[index];
  CAIRN_CHECK(snapshot.live);
  if (snapshot.resident) cease_to_be_resident(index);
  if (snapshot.kind != SnapshotKind::kTail) leave_lanes(snapshot);
  leave_those_below(index);
  std::optional<SnapshotId> slot;
  if (!snapshot.resident) {
    by_key_.erase(snapshot.key);
  } else if (snapshot.pins == 0) {
    by_slot_.erase(snapshot.slot);
    slot = snapshot.slot;
  }
  leave_session(index);
  places_.erase(index);
  --size_;
  const Position at = snapshot.at;
  --trie_.edges()[at.edge].snapshots;
  std::vector<TokenId>().swap(snapshot.residual);
  snapshot.live = false;
  snapshot.resident = false;
  if (snapshot.pins == 0) free_record(index);
  trie_.drop_anchor(closed, at);
  return slot;
}

void SnapshotTable::free_record(Index index) noexcept {
  snapshots_[index].next_free = first_free_;
  first_free_ = index;
}

std::optional<SnapshotId> SnapshotTable::displace(const Gate::Closed& closed, Index index,
                                                  RadixTreeCounters& counters) noexcept {
  const Snapshot& snapshot = snapshots_[index];
  if (!snapshot.resident) {
    orphaned_.push_back(snapshot.key);
    ++counters.orphaned_keys;
  }
  return remove(closed, index);
}

// ---- Sessions ----

void SnapshotTable::leave_session(Index index) noexcept {
  const Snapshot& snapshot = snapshots_[index];
  if (snapshot.kind == SnapshotKind::kPlain) return;
  const auto session = sessions_.find(snapshot.session);
  CAIRN_CHECK(session != sessions_.end());
  Index& holder = snapshot.kind == SnapshotKind::kTail ? session->second.tail : session->second.sibling;
  CAIRN_CHECK(holder == index);
  holder = kNone;
  if (session->second.tail == kNone && session->second.sibling == kNone) sessions_.erase(session);
}

bool SnapshotTable::has_tail(SessionHash session) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && found->second.tail != kNone;
}

bool SnapshotTable::has_sibling(SessionHash session) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && found->second.sibling != kNone;
}

void SnapshotTable::sweep_session(const Gate::Closed& closed, SessionHash session, std::vector<SnapshotId>& slots,
                                  RadixTreeCounters& counters) noexcept {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const Session swept = found->second;  // removing its snapshots removes the entry
  for (const Index index : {swept.tail, swept.sibling}) {
    if (index == kNone) continue;
    if (const auto slot = displace(closed, index, counters)) slots.push_back(*slot);
  }
}

// ---- Eviction, spilling ----

SnapshotTable::Index SnapshotTable::victim(const Gate::Closed&) noexcept {
  return policy_->choose(uses_);
}

void SnapshotTable::become_resident(Index index) noexcept {
  const Snapshot& snapshot = snapshots_[index];
  resident_bytes_ += bytes_each_;
  policy_->add({.id = index,
                .is_tail = snapshot.kind == SnapshotKind::kTail,
                .session = snapshot.session,
                .place = snapshot.place_hash,
                .tokens = snapshot.tokens,
                .above_tokens = snapshot.above_tokens,
                .last_use = {.stamp = snapshot.stamp, .number = snapshot.use_number, .by = snapshot.session}});
}

// What it frees is what was accounted for it.
void SnapshotTable::cease_to_be_resident(Index index) noexcept {
  CAIRN_CHECK(resident_bytes_ >= bytes_each_);
  resident_bytes_ -= bytes_each_;
  policy_->remove(index);
}

TierKey SnapshotTable::spill(const Gate::Closed&, Index index) noexcept {
  Snapshot& snapshot = snapshots_[index];
  CAIRN_CHECK(snapshot.resident);
  CAIRN_CHECK(snapshot.pins == 0);
  cease_to_be_resident(index);
  by_slot_.erase(snapshot.slot);
  snapshot.resident = false;
  snapshot.slot = 0;
  snapshot.key = trie_.keys().take_next();
  by_key_.emplace(snapshot.key, index);
  return snapshot.key;
}

SnapshotTable::Index SnapshotTable::find_key(TierKey key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? kNone : found->second;
}

void SnapshotTable::promote(const Gate::Closed&, Index index, SnapshotId slot) {
  make_room(by_slot_, 1);
  policy_->reserve(snapshots_.size());
  Snapshot& snapshot = snapshots_[index];
  CAIRN_CHECK(!snapshot.resident);
  by_key_.erase(snapshot.key);
  snapshot.key = 0;
  snapshot.slot = slot;
  snapshot.resident = true;
  become_resident(index);  // with the stamp that it has
  by_slot_.emplace(slot, index);
}

bool SnapshotTable::add_spilled(Position parent, const StoredSnapshot& stored, Stamp now) {
  if (stored.kind == SnapshotKind::kTail && has_tail(stored.session_hash)) return false;
  if (stored.kind == SnapshotKind::kTailSibling && has_sibling(stored.session_hash)) return false;
  const auto residual = stored.tokens.last(stored.tokens.size() % block_size());
  Snapshot snapshot;
  snapshot.residual.assign(residual.begin(), residual.end());
  snapshot.adapter_id = stored.adapter_id;
  snapshot.tokens = boundary_tokens(parent) + stored.tokens.size();
  snapshot.session = stored.session_hash;
  snapshot.stamp = now;
  snapshot.kind = stored.kind;
  snapshot.live = true;
  snapshot.key = stored.key;
  {
    const Gate::Closed closed(gate_);
    make_room_for_one();
    make_room(by_key_, 1);
  }
  const bool has_path = stored.tokens.size() < block_size();
  if (has_path) trie_.add_anchor_at(parent);
  const Position at = has_path ? parent : trie_.add_anchor(stored.adapter_id, stored.tokens);
  if (find_place(at, stored.adapter_id, residual) != kNone) {
    trie_.drop_anchor(Gate::Closed(gate_), at);
    return false;
  }
  hold_edge(at);
  snapshot.at = at;
  snapshot.place_hash = place_key(at, stored.adapter_id, residual).hash;
  const Gate::Closed closed(gate_);
  snapshot.use_number = ++uses_;  // readers count, too
  const Index index = first_free_;
  first_free_ = snapshots_[index].next_free;
  snapshots_[index] = std::move(snapshot);
  enter(index);
  return true;
}

// ---- What a snapshot saves ----

// A snapshot counts as above another if its full blocks are: what is left of it, if anything, is not compared.
std::size_t SnapshotTable::deepest_above_in_lane(Position at, const LaneKey& key, std::size_t tokens) const {
  const auto lane = lanes_.find(key);
  if (lane == lanes_.end()) return 0;
  auto node = lane->second.lower_bound(std::min(tokens, boundary_tokens(at) + block_size()));
  return node == lane->second.begin() ? 0 : (--node)->tokens;
}

// Tails are above none: nobody else sees them, and a session's other ones lie higher.
std::size_t SnapshotTable::deepest_above(const Snapshot& snapshot) const {
  for (Position at = snapshot.at;; at = trie_.edges()[at.edge].parent()) {
    if (trie_.edges()[at.edge].snapshots > 0) {
      LaneKey lane{.edge = at.edge, .any_session = shared_, .adapter_id = snapshot.adapter_id};
      std::size_t deepest = deepest_above_in_lane(at, lane, snapshot.tokens);
      if (!shared_ && snapshot.session != 0) {
        lane.session = snapshot.session;
        deepest = std::max(deepest, deepest_above_in_lane(at, lane, snapshot.tokens));
      }
      if (deepest > 0) return deepest;  // an edge further up has none as deep
    }
    if (at.edge == kTop) return 0;
  }
}

void SnapshotTable::join_those_above(Index index) noexcept {
  if (!edges_) return;
  Snapshot& snapshot = snapshots_[index];
  snapshot.on_edge.tokens = snapshot.tokens;
  snapshot.on_edge.boundary = snapshot.at.boundary;
  snapshot.on_edge.index = index;
  edges_->insert(snapshot.at.edge, snapshot.on_edge);
  snapshot.above_tokens = deepest_above(snapshot);
  reckon_below(snapshot);
}

void SnapshotTable::leave_those_below(Index index) noexcept {
  if (!edges_) return;
  Snapshot& snapshot = snapshots_[index];
  edges_->erase(snapshot.at.edge, snapshot.on_edge);
  reckon_below(snapshot);
  edges_->release(snapshot.at.edge);
}

// It has come or gone. Those below one that all see are none of its business.
void SnapshotTable::reckon_below(const Snapshot& snapshot) noexcept {
  if (snapshot.kind == SnapshotKind::kTail) return;
  edges_->for_each_below(snapshot.at, snapshot.tokens, [&](Index index) {
    Snapshot& below = snapshots_[index];
    if (below.adapter_id != snapshot.adapter_id) return false;
    const std::size_t above = deepest_above(below);
    if (above != below.above_tokens) {
      below.above_tokens = above;
      if (below.resident) policy_->above_changed(index, above);
    }
    return seen_by_all(below);
  });
}

// ---- Clearing ----

void SnapshotTable::reserve_cleared(std::optional<AdapterId> adapter_id, Cleared& out) const {
  std::size_t slots = 0;
  std::size_t keys = 0;
  for (Index index = 0; index < snapshots_.size(); ++index) {
    const Snapshot& snapshot = snapshots_[index];
    if (!snapshot.live || (adapter_id && snapshot.adapter_id != *adapter_id)) continue;
    ++(snapshot.resident ? slots : keys);
  }
  out.slots.reserve(slots);
  out.tier_keys.reserve(keys);
}

void SnapshotTable::clear(const Gate::Closed& closed, std::optional<AdapterId> adapter_id, Cleared& out) noexcept {
  for (Index index = 0; index < snapshots_.size(); ++index) {
    const Snapshot& snapshot = snapshots_[index];
    if (!snapshot.live || (adapter_id && snapshot.adapter_id != *adapter_id)) continue;
    if (!snapshot.resident) out.tier_keys.push_back(snapshot.key);
    if (const auto slot = remove(closed, index)) out.slots.push_back(*slot);
  }
}

}  // namespace cairn
