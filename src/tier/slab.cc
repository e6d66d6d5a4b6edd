#include "tier/slab.h"

#include <algorithm>

#include "base/check.h"
#include "base/containers.h"

namespace cairn {

void Slab::open_slots(std::size_t count) {
  slots_.resize(count);
  holes_.reserve(count);
  spares_.reserve(count);
}

void Slab::take_at_start(std::uint32_t slot) {
  CAIRN_CHECK(slots_[slot].state == State::kHole);
  slots_[slot].state = State::kTaken;
  ++held_;
}

void Slab::wipe_at_start(std::uint32_t slot) {
  CAIRN_CHECK(slots_[slot].state == State::kHole);
  slots_[slot].state = State::kWiped;
  ++held_;
}

void Slab::open_holes() {
  for (std::size_t slot = slots_.size(); slot > 0; --slot) {  // the first of them is used first
    if (slots_[slot - 1].state == State::kHole) holes_.push_back(static_cast<std::uint32_t>(slot - 1));
  }
}

std::optional<std::uint32_t> Slab::take_spare() {
  if (spares_.empty()) return std::nullopt;
  const std::uint32_t slot = spares_.back();
  spares_.pop_back();
  slots_[slot].state = State::kTaken;
  return slot;
}

Slab::Range Slab::grow(std::uint32_t slots_max) {
  Range range;
  if (!holes_.empty()) {
    range = {.first = holes_.back(), .count = 1};
    holes_.pop_back();
  } else {
    range = {.first = static_cast<std::uint32_t>(slots_.size()), .count = std::max<std::uint32_t>(slots_max, 1)};
    make_room(slots_, range.count);
    make_room(holes_, slots_.size() + range.count - holes_.size());  // so that no later step needs memory
    make_room(spares_, slots_.size() + range.count - spares_.size());
    slots_.resize(slots_.size() + range.count);
  }
  for (std::uint32_t i = 0; i < range.count; ++i) slots_[range.first + i].state = State::kWiped;
  held_ += range.count;
  return range;
}

void Slab::grown(Range range, bool is_allocated) {
  for (std::uint32_t i = range.count; i > 0; --i) {
    const std::uint32_t slot = range.first + i - 1;
    if (!is_allocated) {
      punched(slot);
      continue;
    }
    slots_[slot].state = State::kSpare;
    spares_.push_back(slot);
  }
}

void Slab::wipe(std::uint32_t slot) {
  CAIRN_CHECK(slots_[slot].state == State::kTaken);
  slots_[slot].state = State::kWiped;
}

void Slab::punched(std::uint32_t slot) {
  CAIRN_CHECK(slots_[slot].state == State::kWiped);
  CAIRN_CHECK(slots_[slot].readers == 0);
  slots_[slot].state = State::kHole;
  holes_.push_back(slot);
  --held_;
}

std::string Slab::validate() const {
  std::size_t held = 0;
  std::size_t spares = 0;
  for (const Slot& slot : slots_) {
    held += slot.state == State::kHole ? 0 : 1;
    spares += slot.state == State::kSpare ? 1 : 0;
  }
  if (held != held_) return "slots with space are miscounted";
  if (spares != spares_.size()) return "spare slots are miscounted";
  if (slots_.size() - held != holes_.size()) return "holes are miscounted";
  return {};
}

}  // namespace cairn
