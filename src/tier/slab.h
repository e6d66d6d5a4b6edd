// The slots of one slab file: which have a record, which have space, which have none.
#ifndef CAIRN_TIER_SLAB_H_
#define CAIRN_TIER_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

// Book-keeping alone: does no I/O. A slot's space counts from before it is allocated until its hole has been punched.
// Not thread-safe.
class Slab {
 public:
  enum class State : std::uint8_t {
    kHole,   // no space; reads as zeros
    kSpare,  // space; reads as zeros
    kTaken,  // a record, or one being written
    kWiped,  // no record any more, or none that counts; space until the hole is punched
  };
  struct Range {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };

  Slab() = default;  // of a layout without such records
  Slab(int file, std::size_t record_bytes) : file_(file), record_bytes_(record_bytes) {}

  [[nodiscard]] int file() const noexcept { return file_; }
  [[nodiscard]] bool is_used() const noexcept { return record_bytes_ > 0; }
  [[nodiscard]] std::size_t record_bytes() const noexcept { return record_bytes_; }
  [[nodiscard]] std::uint64_t offset(std::uint32_t slot) const noexcept { return std::uint64_t{slot} * record_bytes_; }
  [[nodiscard]] std::size_t slots() const noexcept { return slots_.size(); }
  [[nodiscard]] State state(std::uint32_t slot) const noexcept { return slots_[slot].state; }
  // Of slots that are no holes.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return std::uint64_t{held_} * record_bytes_; }

  // For the start. Slots up to there exist; those that nobody takes are holes, after open_holes().
  void open_slots(std::size_t count);
  void take_at_start(std::uint32_t slot);
  void wipe_at_start(std::uint32_t slot);
  void open_holes();

  // The slot is taken then. None if there is no spare one.
  [[nodiscard]] std::optional<std::uint32_t> take_spare();
  // Holes beside each other to allocate space for: at most `slots_max`, at least one. They count from now on. Throws
  // std::bad_alloc.
  [[nodiscard]] Range grow(std::uint32_t slots_max);
  void grown(Range range, bool is_allocated);
  void wipe(std::uint32_t slot);     // taken
  void punched(std::uint32_t slot);  // wiped

  // While somebody reads a slot it must not be written or punched.
  void begin_read(std::uint32_t slot) noexcept { ++slots_[slot].readers; }
  // Whether that was the last one.
  bool end_read(std::uint32_t slot) noexcept { return --slots_[slot].readers == 0; }
  [[nodiscard]] bool is_read(std::uint32_t slot) const noexcept { return slots_[slot].readers > 0; }

  [[nodiscard]] std::string validate() const;

 private:
  struct Slot {
    State state = State::kHole;
    std::uint32_t readers = 0;
  };

  int file_ = -1;
  std::size_t record_bytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> holes_;
  std::vector<std::uint32_t> spares_;
  std::size_t held_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_TIER_SLAB_H_
