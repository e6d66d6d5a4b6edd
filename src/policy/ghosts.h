// What was evicted lately, by fingerprint: enough to notice that it is asked for again.
#ifndef CAIRN_POLICY_GHOSTS_H_
#define CAIRN_POLICY_GHOSTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/containers.h"

namespace cairn {

// First in, first out. Fingerprints may collide: a policy then errs about one block.
class Ghosts {
 public:
  // So many can be added without allocating. Throws std::bad_alloc.
  void reserve(std::size_t extra) {
    if (first_ > order_.size() / 2) {
      order_.erase(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    make_room(order_, extra);
    make_room(added_, extra);
  }
  void free_memory() noexcept {
    std::vector<std::uint64_t>().swap(order_);
    IdMap<std::uint64_t>().swap(added_);
    first_ = 0;
  }

  // Remembers it, and no more than the `most` last ones.
  void add(std::uint64_t fingerprint, std::size_t most) noexcept {
    order_.push_back(fingerprint);
    added_[fingerprint] = ++count_;
    while (order_.size() - first_ > most) {
      const std::uint64_t number = count_ - (order_.size() - first_) + 1;
      const auto oldest = added_.find(order_[first_++]);
      if (oldest != added_.end() && oldest->second == number) added_.erase(oldest);
    }
  }
  // Whether it is there; then it is no more.
  bool take(std::uint64_t fingerprint) noexcept { return added_.erase(fingerprint) > 0; }

 private:
  std::vector<std::uint64_t> order_;  // oldest first, from first_ on
  std::size_t first_ = 0;
  IdMap<std::uint64_t> added_;  // when: the number of its add
  std::uint64_t count_ = 0;     // adds
};

}  // namespace cairn

#endif  // CAIRN_POLICY_GHOSTS_H_
