#include "policy/snapshot_session_policy.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cairn {

SnapshotSessionPolicy::~SnapshotSessionPolicy() {
  // Hooks must be out of their containers when they go.
  leases_.clear();
  order_.clear();
  for (Entry& entry : entries_) {
    if (entry.group != nullptr) entry.group->evictable.clear();
  }
}

void SnapshotSessionPolicy::reserve(std::size_t ids) {
  while (entries_.size() < ids) entries_.emplace_back();
  while (alone_.size() < ids) alone_.emplace_back();
  make_room(sessions_, 1);
  // All groups may become spare ones.
  make_room(spare_, sessions_.size() + 1);
  if (spare_.empty()) spare_.push_back(std::make_unique<Group>());
}

SnapshotSessionPolicy::Group& SnapshotSessionPolicy::group_for(const Facts& facts) noexcept {
  if (facts.session == 0) return alone_[facts.id];
  const auto found = sessions_.find(facts.session);
  if (found != sessions_.end()) return *found->second;
  CAIRN_CHECK(!spare_.empty());
  std::unique_ptr<Group> group = std::move(spare_.back());
  spare_.pop_back();
  group->session = facts.session;
  group->active = 0;
  return *sessions_.emplace(facts.session, std::move(group)).first->second;
}

void SnapshotSessionPolicy::place(Entry& entry) noexcept {
  Group& group = *entry.group;
  group.evictable.insert(entry);
  if (group.evictable.size() == 1) order_.insert(group);
}

void SnapshotSessionPolicy::take_out(Entry& entry) noexcept {
  if (!entry.is_linked()) return;
  Group& group = *entry.group;
  group.evictable.erase(Entries::s_iterator_to(entry));
  if (group.evictable.empty()) order_.erase(Groups::s_iterator_to(group));
}

void SnapshotSessionPolicy::be_active(Group& group, std::uint64_t stamp) noexcept {
  if (stamp <= group.active) return;
  const bool in_order = !group.evictable.empty();
  if (in_order) order_.erase(Groups::s_iterator_to(group));
  group.active = stamp;
  if (in_order) order_.insert(group);
}

void SnapshotSessionPolicy::renew_lease(Group& group) noexcept {
  if (leases_max_ == 0 || group.tail == nullptr) return;
  if (group.leased) {
    leases_.erase(boost::intrusive::list<Group>::s_iterator_to(group));
  } else {
    take_out(*group.tail);
    group.leased = true;
  }
  group.renewed_at = evictions_;
  leases_.push_back(group);
  if (leases_.size() > leases_max_) end_lease(leases_.front());
}

void SnapshotSessionPolicy::end_lease(Group& group) noexcept {
  leases_.erase(boost::intrusive::list<Group>::s_iterator_to(group));
  group.leased = false;
  if (group.tail != nullptr && !group.tail->pinned) place(*group.tail);
}

void SnapshotSessionPolicy::add(const Facts& facts) noexcept {
  Group& group = group_for(facts);
  Entry& entry = entries_[facts.id];
  entry.id = facts.id;
  entry.stamp = facts.last_use.stamp;
  entry.known = true;
  entry.pinned = false;
  entry.group = &group;
  ++known_;
  ++group.known;
  if (facts.session == 0) group.active = 0;
  be_active(group, entry.stamp);
  place(entry);
  if (facts.is_tail && facts.session != 0) {
    group.tail = &entry;
    renew_lease(group);
  }
}

void SnapshotSessionPolicy::remove(Id id) noexcept {
  Entry& entry = entries_[id];
  Group& group = *entry.group;
  take_out(entry);
  if (group.tail == &entry) {
    group.tail = nullptr;
    if (group.leased) end_lease(group);
  }
  entry.known = false;
  entry.group = nullptr;
  --known_;
  if (--group.known > 0 || group.session == 0) return;
  const auto found = sessions_.find(group.session);
  spare_.push_back(std::move(found->second));
  sessions_.erase(found);
}

void SnapshotSessionPolicy::use(Id id, const Use& use) noexcept {
  Entry& entry = entries_[id];
  if (entry.known) {
    if (entry.is_linked()) {
      Entries& order = entry.group->evictable;
      order.erase(Entries::s_iterator_to(entry));
      entry.stamp = use.stamp;
      order.insert(order.end(), entry);
    } else {
      entry.stamp = use.stamp;
    }
    be_active(*entry.group, use.stamp);
  }
  if (use.by == 0) return;
  const auto session = sessions_.find(use.by);
  if (session == sessions_.end()) return;
  be_active(*session->second, use.stamp);
  renew_lease(*session->second);
}

void SnapshotSessionPolicy::pin(Id id) noexcept {
  entries_[id].pinned = true;
  take_out(entries_[id]);
}

void SnapshotSessionPolicy::unpin(Id id) noexcept {
  Entry& entry = entries_[id];
  entry.pinned = false;
  if (!is_leased(entry)) place(entry);
}

SnapshotPolicy::Id SnapshotSessionPolicy::choose(std::uint64_t /*uses*/) noexcept {
  while (!leases_.empty() && evictions_ - leases_.front().renewed_at >= lease_evictions_) end_lease(leases_.front());
  if (order_.empty()) {
    const auto broken = std::ranges::find_if(leases_, [](const Group& group) { return !group.tail->pinned; });
    if (broken == leases_.end()) return kNone;
    end_lease(*broken);
  }
  ++evictions_;
  return order_.begin()->evictable.begin()->id;
}

std::string SnapshotSessionPolicy::validate(std::size_t resident) const {
  if (known_ != resident) return "the policy knows another number of snapshots";
  if (leases_.size() > leases_max_) return "more sessions have a lease than may";
  std::size_t known = 0;
  std::size_t evictable = 0;
  for (const Entry& entry : entries_) {
    if (!entry.known) continue;
    ++known;
    const bool can_go = !entry.pinned && !is_leased(entry);
    evictable += can_go ? 1 : 0;
    if (can_go != entry.is_linked()) return "snapshot " + std::to_string(entry.id) + " is in the order, or is not";
    if (entry.stamp > entry.group->active)
      return "snapshot " + std::to_string(entry.id) + " was used later than its session";
  }
  if (known != known_) return "wrong count of snapshots that the policy knows";
  for (const Group& group : order_) evictable -= group.evictable.size();
  if (evictable != 0) return "the order has other snapshots than can go";
  std::uint64_t renewed_at = 0;
  for (const Group& group : leases_) {
    if (!group.leased || group.tail == nullptr) return "a lease without a tail";
    if (group.renewed_at < renewed_at) return "leases are out of order";
    renewed_at = group.renewed_at;
  }
  for (const auto& [session, group] : sessions_) {
    if (group->known == 0) return "a session without snapshots";
  }
  return "";
}

}  // namespace cairn
