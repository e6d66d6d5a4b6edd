// Names -> ids, by exact comparison: nothing is ever hashed into an id.
//
// Ids count up and are never used again. A name is remembered while it has a user, and for a while after; the names
// idle longest are forgotten first. One that was forgotten and comes back gets a new id and finds nothing of before:
// what was cached under the old id is evicted in its turn.
#ifndef CAIRN_ENGINE_INTERN_TABLE_H_
#define CAIRN_ENGINE_INTERN_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/containers.h"
#include "base/mutex.h"

namespace cairn {

// Name has a type View, a constructor from it, and view() const; View is compared by == and hashed by View::Hash.
// Thread-safe; its lock is a leaf.
template <class Name, class Id>
class InternTable {
 public:
  using View = typename Name::View;

  struct Limits {
    Id first_id{};
    Id last_id{};
    std::size_t idle_max = 0;  // names without a user that are remembered, besides those in use
  };
  InternTable(const Limits& limits, std::uint64_t hash_seed)
      : last_(limits.last_id),
        idle_max_(limits.idle_max),
        next_(limits.first_id),
        by_name_(0, typename View::Hash{hash_seed}) {}

  // The id of that name, with one more user, for whom drop() has to be called. None if all ids have been given out and
  // the name has none. Strong guarantee on std::bad_alloc. O(1).
  [[nodiscard]] std::optional<Id> use(const View& name) {
    const MutexLock lock(mutex_);
    const auto known = by_name_.find(name);
    if (known != by_name_.end()) {
      add_user(known->second);
      return known->second->id;
    }
    if (used_up_) return std::nullopt;
    make_room(by_name_, 1);
    make_room(by_id_, 1);
    const auto entry = in_use_.insert(in_use_.end(), Entry{Name(name), next_, 1});
    by_name_.emplace(entry->name.view(), entry);
    by_id_.emplace(entry->id, entry);
    if (next_ == last_) used_up_ = true;
    if (!used_up_) ++next_;
    return entry->id;
  }

  // One more user of an id that has one.
  void use_again(Id id) noexcept {
    const MutexLock lock(mutex_);
    add_user(by_id_.find(id)->second);
  }

  void drop(Id id) noexcept {
    const MutexLock lock(mutex_);
    const auto entry = by_id_.find(id)->second;
    CAIRN_CHECK(entry->users > 0);
    if (--entry->users > 0) return;
    idle_.splice(idle_.end(), in_use_, entry);
    if (idle_.size() <= idle_max_) return;
    by_name_.erase(idle_.front().name.view());
    by_id_.erase(idle_.front().id);
    idle_.pop_front();
  }

  // None if the name is not known. Changes nothing.
  [[nodiscard]] std::optional<Id> find(const View& name) const {
    const MutexLock lock(mutex_);
    const auto known = by_name_.find(name);
    if (known == by_name_.end()) return std::nullopt;
    return known->second->id;
  }

  // None if it is forgotten. Throws std::bad_alloc.
  [[nodiscard]] std::optional<Name> name_of(Id id) const {
    const MutexLock lock(mutex_);
    const auto known = by_id_.find(id);
    if (known == by_id_.end()) return std::nullopt;
    return known->second->name;
  }

  [[nodiscard]] std::size_t size() const {
    const MutexLock lock(mutex_);
    return by_id_.size();
  }

  // visit(view, id) for each name. Under the lock: keep it short, and call nothing of Cairn's.
  template <class Visit>
  void for_each(Visit visit) const {
    const MutexLock lock(mutex_);
    for (const Entry& entry : in_use_) visit(entry.name.view(), entry.id);
    for (const Entry& entry : idle_) visit(entry.name.view(), entry.id);
  }

 private:
  struct Entry {
    Name name;
    Id id{};
    std::size_t users = 0;
  };
  using Entries = std::list<Entry>;
  using Place = typename Entries::iterator;

  void add_user(Place entry) noexcept CAIRN_REQUIRES(mutex_) {
    if (entry->users++ == 0) in_use_.splice(in_use_.end(), idle_, entry);
  }

  const Id last_;
  const std::size_t idle_max_;
  mutable Mutex mutex_;
  Entries in_use_ CAIRN_GUARDED_BY(mutex_);
  Entries idle_ CAIRN_GUARDED_BY(mutex_);  // idle longest first
  Id next_ CAIRN_GUARDED_BY(mutex_);
  bool used_up_ CAIRN_GUARDED_BY(mutex_) = false;
  boost::unordered_flat_map<View, Place, typename View::Hash> by_name_ CAIRN_GUARDED_BY(mutex_);  // views of entries
  IdMap<Place> by_id_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_INTERN_TABLE_H_
