// The session idle longest loses first; the tails of live sessions are leased. <cairn/snapshot_policy.h> has the
// rules.
#ifndef CAIRN_POLICY_SNAPSHOT_SESSION_POLICY_H_
#define CAIRN_POLICY_SNAPSHOT_SESSION_POLICY_H_

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/containers.h"
#include "policy/snapshot_policy.h"

namespace cairn {

class SnapshotSessionPolicy final : public SnapshotPolicy {
 public:
  explicit SnapshotSessionPolicy(const SnapshotPolicyOptions& options)
      : leases_max_(options.session_lease_evictions == 0 ? 0 : options.session_leases_max),
        lease_evictions_(options.session_lease_evictions) {}
  SnapshotSessionPolicy(const SnapshotSessionPolicy&) = delete;
  SnapshotSessionPolicy& operator=(const SnapshotSessionPolicy&) = delete;
  ~SnapshotSessionPolicy() override;

  void reserve(std::size_t ids) override;
  void add(const Facts& facts) noexcept override;
  void remove(Id id) noexcept override;
  void use(Id id, const Use& use) noexcept override;
  void pin(Id id) noexcept override;
  void unpin(Id id) noexcept override;
  [[nodiscard]] Id choose(std::uint64_t /*uses*/) noexcept override;
  [[nodiscard]] std::string validate(std::size_t resident) const override;

 private:
  struct Group;
  // A snapshot. While it can go it is in its group's order.
  struct Entry : boost::intrusive::set_base_hook<> {
    std::uint64_t stamp = 0;
    Id id = kNone;
    bool known = false;
    bool pinned = false;
    Group* group = nullptr;
  };
  struct ByStamp {
    using type = std::uint64_t;
    type operator()(const Entry& entry) const { return entry.stamp; }
  };
  using Entries = boost::intrusive::multiset<Entry, boost::intrusive::key_of_value<ByStamp>>;
  // What loses together: the snapshots of a session, or one of none. While it has some that can go, it is in order_.
  struct Group : boost::intrusive::set_base_hook<>, boost::intrusive::list_base_hook<> {
    SessionHash session = 0;
    std::uint64_t active = 0;  // the stamp of its last activity
    std::size_t known = 0;
    Entries evictable;
    Entry* tail = nullptr;
    bool leased = false;           // and in leases_: then there is a tail, which is in no order
    std::uint64_t renewed_at = 0;  // evictions that had passed
  };
  struct ByActivity {
    using type = std::pair<std::uint64_t, SessionHash>;
    type operator()(const Group& group) const { return {group.active, group.session}; }
  };
  using Groups = boost::intrusive::multiset<Group, boost::intrusive::key_of_value<ByActivity>>;

  [[nodiscard]] Group& group_for(const Facts& facts) noexcept;
  [[nodiscard]] static bool is_leased(const Entry& entry) {
    return entry.group->leased && entry.group->tail == &entry;
  }
  // Into its group's order and out of it, and the group with it.
  void place(Entry& entry) noexcept;
  void take_out(Entry& entry) noexcept;
  void be_active(Group& group, std::uint64_t stamp) noexcept;
  void renew_lease(Group& group) noexcept;
  void end_lease(Group& group) noexcept;

  const std::size_t leases_max_;
  const std::uint64_t lease_evictions_;
  std::deque<Entry> entries_;  // by id; they don't move
  IdMap<std::unique_ptr<Group>> sessions_;
  std::deque<Group> alone_;  // by id: the groups of those without a session
  std::vector<std::unique_ptr<Group>> spare_;
  Groups order_;
  boost::intrusive::list<Group> leases_;  // renewed longest ago first
  std::uint64_t evictions_ = 0;
  std::size_t known_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_POLICY_SNAPSHOT_SESSION_POLICY_H_
