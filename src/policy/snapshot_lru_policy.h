// The least recently used snapshot goes first.
#ifndef CAIRN_POLICY_SNAPSHOT_LRU_POLICY_H_
#define CAIRN_POLICY_SNAPSHOT_LRU_POLICY_H_

#include <string>
#include <vector>

#include "base/containers.h"
#include "index/stamp_queue.h"
#include "policy/snapshot_policy.h"

namespace cairn {

// A heap that hears nothing of uses: who takes the oldest entry looks at the snapshot, and puts it back if it was used
// meanwhile. One that is pinned when its turn comes is parked without an entry; the last unpin puts it back.
class SnapshotLruPolicy final : public SnapshotPolicy {
 public:
  void reserve(std::size_t ids) override {
    if (ids > entries_.size()) {
      make_room(entries_, ids - entries_.size());
      entries_.resize(ids);
    }
    // Void entries are thrown out before they outnumber the others.
    constexpr std::size_t kFew = 64;
    if (queue_.entries().size() > 2 * known_ + kFew) {
      queue_.remove_if([&](const StampQueue::Entry& entry) { return entries_[entry.id].queued != entry.stamp; });
    }
    queue_.reserve(queue_.entries().size() + parked_ + 1);
  }

  void add(const Facts& facts) noexcept override {
    entries_[facts.id] = {.stamp = facts.last_use.stamp, .queued = 0, .known = true, .pinned = false};
    ++known_;
    enqueue(facts.id);
  }

  void remove(Id id) noexcept override {
    if (is_parked(id)) --parked_;
    --known_;
    // What was chosen may come back with the stamp that it has: its entry must not count then.
    if (!queue_.empty() && queue_.oldest().id == id) queue_.pop();
    entries_[id] = {};
  }

  void use(Id id, const Use& use) noexcept override {
    if (entries_[id].known) entries_[id].stamp = use.stamp;
  }

  void pin(Id id) noexcept override { entries_[id].pinned = true; }

  void unpin(Id id) noexcept override {
    entries_[id].pinned = false;
    if (!is_parked(id)) return;
    --parked_;
    enqueue(id);
  }

  [[nodiscard]] Id choose(std::uint64_t /*uses*/) noexcept override {
    while (!queue_.empty()) {
      const auto [stamp, id] = queue_.oldest();
      Entry& entry = entries_[id];
      const bool valid = entry.queued == stamp;
      if (valid && !entry.pinned && entry.stamp == stamp) return id;
      queue_.pop();
      if (!valid) continue;
      if (entry.pinned) {
        entry.queued = 0;
        ++parked_;
      } else {
        enqueue(id);
      }
    }
    return kNone;
  }

  [[nodiscard]] std::string validate(std::size_t resident) const override {
    if (known_ != resident) return "the policy knows another number of snapshots";
    std::vector<std::uint32_t> valid(entries_.size());
    for (const auto& [stamp, id] : queue_.entries()) valid[id] += entries_[id].queued == stamp ? 1 : 0;
    std::size_t parked = 0;
    for (Id id = 0; id < entries_.size(); ++id) {
      const Entry& entry = entries_[id];
      if (!entry.known) continue;
      if (is_parked(id)) {
        ++parked;
        if (!entry.pinned) return "snapshot " + std::to_string(id) + " is not pinned and yet not in the order";
      } else if (entry.queued > entry.stamp || valid[id] != 1) {
        return "snapshot " + std::to_string(id) + " is not in the order of eviction";
      }
    }
    return parked == parked_ ? "" : "wrong count of snapshots that eviction passed over";
  }

 private:
  struct Entry {
    Stamp stamp = 0;   // of its last use
    Stamp queued = 0;  // the stamp of its entry in the queue; an entry with another one is void; 0: none
    bool known = false;
    bool pinned = false;
  };

  [[nodiscard]] bool is_parked(Id id) const { return entries_[id].known && entries_[id].queued == 0; }
  void enqueue(Id id) noexcept {
    entries_[id].queued = entries_[id].stamp;
    queue_.push({entries_[id].stamp, id});
  }

  std::vector<Entry> entries_;
  StampQueue queue_;
  std::size_t known_ = 0;
  std::size_t parked_ = 0;  // known ones without an entry; the queue has room for them
};

}  // namespace cairn

#endif  // CAIRN_POLICY_SNAPSHOT_LRU_POLICY_H_
