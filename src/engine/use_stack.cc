#include "engine/use_stack.h"

#include <new>
#include <numeric>

namespace cairn {

UseStack::UseStack(const Lengths& lengths) : lengths_(lengths), index_(0, Hash{this}, Equal{this}) {
  // One more, before the lowest falls out.
  const std::size_t count = std::accumulate(lengths.begin(), lengths.end(), std::size_t{1});
  entries_.resize(count);
  segments_of_.resize(count);
  free_.resize(count);
  std::iota(free_.rbegin(), free_.rend(), Id{0});
  index_.reserve(count + count / 8);  // erasing lowers what the table takes before it rehashes
}

UseStack::Id UseStack::find(Value hash) const noexcept {
  const auto found = index_.find(Wanted{hash});
  return found == index_.end() ? kNoId : *found;
}

void UseStack::raise(Id id) noexcept {
  if (segments_[0].top == id) return;
  take_out(id);
  put_on_top(id, 0);
  settle();
}

void UseStack::add(Value hash) noexcept {
  const Id id = free_.back();
  free_.pop_back();
  entries_[id].hash = hash;
  try {
    index_.insert(id);  // a table that has been erased from a lot may rehash in spite of its room
  } catch (const std::bad_alloc&) {
    free_.push_back(id);
    return;
  }
  put_on_top(id, 0);
  settle();
}

void UseStack::take_out(Id id) noexcept {
  const Entry& entry = entries_[id];
  Segment& segment = segments_[segments_of_[id]];
  (entry.above == kNoId ? segment.top : entries_[entry.above].below) = entry.below;
  (entry.below == kNoId ? segment.bottom : entries_[entry.below].above) = entry.above;
  --segment.size;
}

void UseStack::put_on_top(Id id, std::size_t number) noexcept {
  Segment& segment = segments_[number];
  entries_[id].above = kNoId;
  entries_[id].below = segment.top;
  (segment.top == kNoId ? segment.bottom : entries_[segment.top].above) = id;
  segment.top = id;
  segments_of_[id] = static_cast<std::uint8_t>(number);
  ++segment.size;
}

// What a segment has too many of sinks into the next, and out of the last.
void UseStack::settle() noexcept {
  for (std::size_t number = 0; number < kSegments; ++number) {
    if (segments_[number].size <= lengths_[number]) return;
    const Id lowest = segments_[number].bottom;
    take_out(lowest);
    if (number + 1 < kSegments) {
      put_on_top(lowest, number + 1);
    } else {
      index_.erase(lowest);
      free_.push_back(lowest);
    }
  }
}

std::size_t UseStack::memory_bytes() const noexcept {
  return entries_.capacity() * sizeof(Entry) + segments_of_.capacity() + free_.capacity() * sizeof(Id) +
         index_.bucket_count() * (sizeof(Id) + 1);
}

std::string UseStack::validate() const {
  std::size_t size = 0;
  for (std::size_t number = 0; number < kSegments; ++number) {
    const Segment& segment = segments_[number];
    std::size_t found = 0;
    for (Id id = segment.top; id != kNoId; id = entries_[id].below, ++found) {
      if (segments_of_[id] != number) return "a hash is not in its segment";
      if (!index_.contains(Wanted{entries_[id].hash})) return "a hash in the stack is not found";
    }
    if (found != segment.size) return "a segment does not have as many hashes as it says";
    if (found > lengths_[number]) return "a segment is too long";
    size += found;
  }
  if (size != index_.size() || size + free_.size() != entries_.size()) return "hashes are lost";
  return {};
}

}  // namespace cairn
