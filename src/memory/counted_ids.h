// Ids 0 .. count - 1 with reference counts: what BlockPool and SwapBlockPool have in common.
//
// Invariants, under the lock: an id is in `free_` exactly once if it has no reference, else not at all. `free_` has
// room for all ids from the start, so giving ids back never allocates. Each call is one step.
#ifndef CAIRN_MEMORY_COUNTED_IDS_H_
#define CAIRN_MEMORY_COUNTED_IDS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "memory/refusals.h"

namespace cairn {

struct CountedIdsOptions {
  std::size_t count = 0;
  std::optional<std::uint32_t> let_pass{};  // stands for no id, and is skipped wherever ids are given
  std::uint32_t references_max = std::numeric_limits<std::uint32_t>::max();  // on one id
};

class CountedIds {
 public:
  // Throws std::invalid_argument, naming the argument `blocks`: no ids, or more than 2^32 - 1; std::bad_alloc.
  explicit CountedIds(CountedIdsOptions options);

  // The calls of the pools.
  [[nodiscard]] bool allocate(std::size_t count, std::vector<std::uint32_t>& out);
  void add_references(std::span<const std::uint32_t> ids) noexcept;
  void drop_references(std::span<const std::uint32_t> ids) noexcept;
  [[nodiscard]] std::uint32_t references(std::uint32_t id) const noexcept;
  [[nodiscard]] std::size_t num_free() const noexcept;
  [[nodiscard]] std::size_t num_total() const noexcept { return total_; }
  [[nodiscard]] std::size_t num_used() const noexcept { return total_ - num_free(); }
  [[nodiscard]] PoolErrors errors() const;
  [[nodiscard]] std::string validate() const;

 private:
  // False, and counted, if there is no such id or nobody holds it.
  [[nodiscard]] bool in_use(const char* call, std::uint32_t id) noexcept CAIRN_REQUIRES(mutex_);

  const std::size_t total_;
  const std::optional<std::uint32_t> let_pass_;
  const std::uint32_t references_max_;

  mutable Mutex mutex_;
  std::vector<std::uint32_t> references_ CAIRN_GUARDED_BY(mutex_);  // by id; 0: free
  std::vector<std::uint32_t> free_ CAIRN_GUARDED_BY(mutex_);        // handed out from the back
  Refusals refusals_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_MEMORY_COUNTED_IDS_H_
