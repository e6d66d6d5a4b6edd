// From the log of a process that was killed: which records must be there, which must not, and which may.
#ifndef CAIRN_TESTS_TIER_CRASH_SURVIVORS_H_
#define CAIRN_TESTS_TIER_CRASH_SURVIVORS_H_

#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tier_crash/kill_log.h"

namespace cairn::testing {

class Survivors {
 public:
  // What makes a put durable.
  enum class Durable : std::uint8_t { kWhenAcknowledged, kWhenFlushed };
  explicit Survivors(Durable durable) : durable_(durable) {}

  // In the order of the log. Empty, or what is wrong with it.
  [[nodiscard]] std::string note(const KillLogEntry& entry);

  enum class Fate : std::uint8_t { kMustBeThere, kMayBeThere, kMustBeGone, kNeverPut };
  [[nodiscard]] Fate fate(TierKey key) const;
  [[nodiscard]] std::vector<TierKey> must_be_there() const;
  [[nodiscard]] std::vector<TierKey> must_be_gone() const;
  // Not to be found by any get, now.
  [[nodiscard]] bool is_erased(TierKey key) const;
  // Puts that may have evicted records which nobody told of.
  [[nodiscard]] std::size_t untold_puts() const { return untold_puts_; }
  [[nodiscard]] std::size_t acknowledged() const { return acknowledged_; }  // in all
  [[nodiscard]] TierKey last_key() const { return keys_.empty() ? 0 : keys_.rbegin()->first; }

  // After the process was killed, what was found: the next process starts from here.
  void restart(const std::map<TierKey, bool>& found);

 private:
  struct State {
    bool acknowledged = false;  // and not erased, lost or dropped since
    bool durable = false;
    bool erased = false;  // since it was last put
    bool gone = false;    // erased, and flushed after that
  };
  Durable durable_;
  std::map<TierKey, State> keys_;
  std::size_t untold_puts_ = 0;
  std::size_t acknowledged_ = 0;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TIER_CRASH_SURVIVORS_H_
