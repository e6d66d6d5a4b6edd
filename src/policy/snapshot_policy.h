// The order in which snapshots leave their slots: what every policy does, and how the table of snapshots talks to it.
//
// A policy knows the snapshots that are resident, by their index in the table: those added and not removed. Pinned
// ones can't go. What is chosen is evicted by the caller, who removes it.
//
// Threads: as the table. use, pin and unpin are called in commits, one at a time; all else by writers with the gate
// closed. What isn't noexcept throws std::bad_alloc before it changes anything that can be seen.
#ifndef CAIRN_POLICY_SNAPSHOT_POLICY_H_
#define CAIRN_POLICY_SNAPSHOT_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cairn/prefix_cache.h"
#include "cairn/snapshot_policy.h"

namespace cairn {

class SnapshotPolicy {
 public:
  using Id = std::uint32_t;
  static constexpr Id kNone = 0xFFFFFFFF;

  // A put, or a lookup that returned it.
  struct Use {
    std::uint64_t stamp = 0;   // the moment, of the index's one clock
    std::uint64_t number = 0;  // it is the n-th use of any snapshot
    SessionHash by = 0;
  };
  struct Facts {
    Id id = kNone;
    bool is_tail = false;
    SessionHash session = 0;
    std::uint64_t place = 0;  // a hash of where it lies
    std::size_t tokens = 0;
    std::size_t above_tokens = 0;  // if the policy wants savings: where the deepest snapshot above it lies; 0: none
    Use last_use;
  };

  SnapshotPolicy() = default;
  SnapshotPolicy(const SnapshotPolicy&) = delete;
  SnapshotPolicy& operator=(const SnapshotPolicy&) = delete;
  virtual ~SnapshotPolicy() = default;

  // Room for one to be added, and for all that are known, with ids below `ids`. Allocates.
  virtual void reserve(std::size_t ids) = 0;
  virtual void add(const Facts& facts) noexcept = 0;  // not pinned yet
  virtual void remove(Id id) noexcept = 0;            // pinned or not; it is known
  // Of one that may be spilled, and so is not known.
  virtual void use(Id id, const Use& use) noexcept = 0;
  virtual void pin(Id id) noexcept = 0;    // it is known; once until unpin
  virtual void unpin(Id id) noexcept = 0;  // the same
  // Whose turn it is, after so many uses of any snapshot; kNone if none can go. To be called for an eviction, which it
  // counts.
  [[nodiscard]] virtual Id choose(std::uint64_t uses) noexcept = 0;

  // Whether above_tokens is to be known, and kept up to date.
  [[nodiscard]] virtual bool wants_savings() const { return false; }
  virtual void above_changed(Id id, std::size_t above_tokens) noexcept {
    static_cast<void>(id), static_cast<void>(above_tokens);
  }

  // Work that is not part of any choice, before a put; with the gate open, by a writer.
  virtual void work() noexcept {}

  // Empty, or what is wrong; `resident` of them are known. Allocates.
  [[nodiscard]] virtual std::string validate(std::size_t resident) const = 0;
};

// Throws std::invalid_argument, naming those that there are, or the option and the rule that it breaks.
[[nodiscard]] std::unique_ptr<SnapshotPolicy> make_snapshot_policy(std::string_view name,
                                                                   const SnapshotPolicyOptions& options);

}  // namespace cairn

#endif  // CAIRN_POLICY_SNAPSHOT_POLICY_H_
