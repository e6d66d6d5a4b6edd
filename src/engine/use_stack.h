// A stack of hashes ordered by their last use, cut into segments from the top: how deep one lies is known to the
// segment, at a constant cost for each use.
#ifndef CAIRN_ENGINE_USE_STACK_H_
#define CAIRN_ENGINE_USE_STACK_H_

#include <array>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

// Memory is taken at the construction, about 26 bytes for each hash that it can hold. Not thread-safe.
class UseStack {
 public:
  static constexpr std::size_t kSegments = 4;
  using Lengths = std::array<std::size_t, kSegments>;
  static constexpr std::size_t kBytesEach = 26;
  using Value = std::uint32_t;  // a hash

  explicit UseStack(const Lengths& lengths);
  UseStack(const UseStack&) = delete;
  UseStack& operator=(const UseStack&) = delete;

  // Of a hash that is there: until another one is added.
  using Id = std::uint32_t;
  static constexpr Id kNoId = 0xFFFFFFFF;

  // kNoId: it is not there.
  [[nodiscard]] Id find(Value hash) const noexcept;
  [[nodiscard]] std::size_t segment_of(Id id) const noexcept { return segments_of_[id]; }
  // To the top.
  void raise(Id id) noexcept;
  // One that is not there, on top; without memory for that it is left out.
  void add(Value hash) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return index_.size(); }
  [[nodiscard]] std::size_t memory_bytes() const noexcept;
  // Empty, or what is wrong.
  [[nodiscard]] std::string validate() const;

 private:
  struct Entry {
    Value hash = 0;
    Id above = kNoId;
    Id below = kNoId;
  };
  struct Segment {
    Id top = kNoId;
    Id bottom = kNoId;
    std::size_t size = 0;
  };
  // The table holds ids; what is looked for is a hash, which no id can be taken for.
  struct Wanted {
    Value hash;
  };
  struct Hash {
    using is_transparent = void;
    const UseStack* stack;
    std::size_t operator()(Id id) const noexcept { return stack->entries_[id].hash; }
    std::size_t operator()(Wanted wanted) const noexcept { return wanted.hash; }
  };
  struct Equal {
    using is_transparent = void;
    const UseStack* stack;
    bool operator()(Id a, Id b) const noexcept { return a == b; }
    bool operator()(Id a, Wanted b) const noexcept { return stack->entries_[a].hash == b.hash; }
    bool operator()(Wanted a, Id b) const noexcept { return stack->entries_[b].hash == a.hash; }
  };

  void take_out(Id id) noexcept;
  void put_on_top(Id id, std::size_t number) noexcept;
  void settle() noexcept;

  const Lengths lengths_;
  std::vector<Entry> entries_;
  std::vector<std::uint8_t> segments_of_;  // parallel to entries_
  std::vector<Id> free_;
  std::array<Segment, kSegments> segments_;
  boost::unordered_flat_set<Id, Hash, Equal> index_;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_USE_STACK_H_
