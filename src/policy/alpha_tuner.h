// Chooses the weight of efficiency against recency by replaying what happened lately with several of them.
//
// What happens to snapshots is logged: puts, uses, and what went without being evicted. When a window of it is full,
// it is replayed, a piece at each put, through a cache of as many slots for each weight; the first half of the window
// fills it, in the second half the FLOPs that it saves are counted. The weight that saved most is taken, if it beats
// the present one by 1 %; 0, which is LRU, until the first window is over. (Marconi, section 4.2, replays a window
// too, once and on all cores.)
//
// What an eviction cost is seen when its place is put again: the request computed what it could have reused. A tail is
// known by its session, any other snapshot by its place.
//
// Memory is bounded: of many snapshots a sample by the hash of their names is followed, in a cache smaller by as much
// (after SHARDS: Waldspurger et al., FAST 2015).
//
// Threads: as SnapshotPolicy, but for replay_some, which a writer calls with the gate open.
#ifndef CAIRN_POLICY_ALPHA_TUNER_H_
#define CAIRN_POLICY_ALPHA_TUNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/containers.h"
#include "policy/flop_order.h"

namespace cairn {

class AlphaTuner {
 public:
  static constexpr std::array kAlphas = {0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0};
  static constexpr std::size_t kSlotsMax = 1024;  // of a replay's cache
  static constexpr std::size_t kWindowSlots = 8;  // a window has so many events for each slot
  static constexpr std::size_t kWindowMin = 512;
  static constexpr std::size_t kEventsAtOnce = 32;

  AlphaTuner();
  AlphaTuner(const AlphaTuner&) = delete;
  AlphaTuner& operator=(const AlphaTuner&) = delete;
  ~AlphaTuner() = default;

  [[nodiscard]] double alpha() const { return kAlphas[best_]; }
  [[nodiscard]] std::uint64_t windows() const { return windows_; }  // that were replayed with all weights

  struct Snapshot {
    std::uint64_t name = 0;  // of its place, or of its session's tail
    double saved_flops = 0;  // by a use
    double efficiency = 0;   // those for each byte
  };
  void put(const Snapshot& snapshot) noexcept;
  void used(const Snapshot& snapshot) noexcept;
  void evicted(std::uint64_t name) noexcept;
  void gone(std::uint64_t name) noexcept;  // otherwise

  // Takes over the log, if it is full and the last one is through. `slots`: how many snapshots there are. Allocates.
  void take_window(std::size_t slots);
  void replay_some() noexcept;

 private:
  enum class What : std::uint8_t { kPut, kPutAgain, kUse, kGone };
  struct Event {
    std::uint64_t name = 0;
    double saved_flops = 0;
    FlopOrder::Class efficiency = 0;
    What what = What::kPut;
  };
  struct Slot : FlopOrder::Node {
    std::uint64_t name = 0;
  };

  void log(const Snapshot& snapshot, What what) noexcept;
  void replay(const Event& event) noexcept;
  void begin_replay() noexcept;
  void put_into_slot(const Event& event) noexcept;
  void free_slot(std::uint64_t name) noexcept;

  std::size_t best_ = 0;
  std::uint64_t windows_ = 0;
  std::vector<Event> log_;  // up to its capacity
  std::size_t log_max_ = kWindowMin;
  std::uint64_t sampled_ = 1;  // of so many names one is followed
  // Names that were evicted not long ago, in a ring.
  IdSet evicted_;
  std::vector<std::uint64_t> evicted_ring_;
  std::size_t evicted_next_ = 0;

  // The window under replay.
  std::vector<Event> window_;
  std::size_t slots_max_ = 0;
  std::size_t alpha_ = kAlphas.size();  // whose replay is under way; past the end: none
  std::size_t next_ = 0;                // event
  std::array<double, kAlphas.size()> saved_{};
  std::deque<Slot> slots_;
  FlopOrder order_;  // goes before the slots that are in it
  std::vector<Slot*> free_;
  IdMap<Slot*> by_name_;
};

}  // namespace cairn

#endif  // CAIRN_POLICY_ALPHA_TUNER_H_
