// What has been seen of when blocks are used again, and what a block is worth keeping by that.
//
// Blocks are told apart by how often they were used (Class) and by how long ago the last time was (age). Of each
// class, reuse is counted by age, in octaves; blocks that were given up as not coming back, and those still waited
// for, count as seen without reuse up to their age (Kaplan and Meier, 1958). The value of a block is the best ratio,
// over all times T to keep it for, of the probability that it is used within T to the time that it then takes room for
// on average: the index of Gittins (1979) for the problem of keeping or not. Hit density as a measure is from
// Beckmann, Chen and Cidon, "LHD: improving cache hit rate by maximizing hit density" (NSDI 2018); it estimates the
// ratio otherwise.
//
// Where reuse comes soon or never, the value falls with age, and the order is that of LRU; where it comes late, the
// value rises until then, so the newest go first and some of the old ones live to see it.
#ifndef CAIRN_POLICY_REUSE_TIMES_H_
#define CAIRN_POLICY_REUSE_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace cairn {

class ReuseTimes {
 public:
  static constexpr std::size_t kClasses = 8;
  static constexpr std::size_t kAges = 32;  // octaves: 0, 1, 2 to 3, 4 to 7, ...

  using Table = std::array<std::array<double, kAges>, kClasses>;

  ReuseTimes() { learn({}); }

  static std::size_t class_of(std::uint64_t uses);
  static std::size_t octave(std::uint64_t age);

  // A block of that class was used again at that age, or was not seen again up to it.
  void saw(std::size_t use_class, std::uint64_t age, bool reused);
  // Computes the values anew. `waiting`: how many blocks there are of each class and age that may be used again.
  void learn(const Table& waiting);
  // Halves the weight of what was seen when there are more than so many.
  void forget_beyond(double most);

  [[nodiscard]] double value(std::uint64_t uses, std::uint64_t age) const;

 private:
  using Ages = std::array<double, kAges>;
  static Ages hazards(const Ages& reused, const Ages& all, const Ages& prior);
  static Ages indices(const Ages& hazards);

  Table reused_{};
  Table gone_{};  // all that were seen, reused_ among them
  double total_ = 0;
  Table value_{};
};

}  // namespace cairn

#endif  // CAIRN_POLICY_REUSE_TIMES_H_
