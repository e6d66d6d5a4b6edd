// How pools answer callers that break a rule where a call must not throw: by a count.
#ifndef CAIRN_MEMORY_REFUSALS_H_
#define CAIRN_MEMORY_REFUSALS_H_

#include <cairn/block_pool.h>

#include <cstdint>

namespace cairn {

// What a pool has refused. A plain value: noting one allocates nothing, so calls that must not fail can do it; it
// becomes words when somebody asks. Guarded by its pool's lock.
class Refusals {
 public:
  // `call` and, below, `found` are string literals.
  void note_unknown_id(const char* call, std::uint64_t id) noexcept {
    ++unknown_ids_;
    last_ = {.call = call, .found = nullptr, .id = id};
  }
  void note_not_in_use(const char* call, std::uint64_t id, const char* found) noexcept {
    ++not_in_use_;
    last_ = {.call = call, .found = found, .id = id};
  }
  void note_count_limit(const char* call, std::uint64_t id, const char* found) noexcept {
    ++count_limits_;
    last_ = {.call = call, .found = found, .id = id};
  }
  void note_wrong_state(const char* call, std::uint64_t id, const char* found) noexcept {
    ++wrong_states_;
    last_ = {.call = call, .found = found, .id = id};
  }

  // `unit` is what the pool has: "block", "slot".
  [[nodiscard]] PoolErrors report(const char* unit) const;

 private:
  struct Last {
    const char* call = nullptr;   // null: nothing was refused
    const char* found = nullptr;  // null: there is nothing of that id
    std::uint64_t id = 0;
  };

  std::uint64_t unknown_ids_ = 0;
  std::uint64_t not_in_use_ = 0;
  std::uint64_t count_limits_ = 0;
  std::uint64_t wrong_states_ = 0;
  Last last_;
};

}  // namespace cairn

#endif  // CAIRN_MEMORY_REFUSALS_H_
