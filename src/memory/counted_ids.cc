#include "memory/counted_ids.h"

#include "base/check.h"
#include "base/containers.h"
#include "base/refuse.h"

namespace cairn {
namespace {

std::size_t checked_count(std::size_t count) {
  constexpr std::size_t kCountMax = std::numeric_limits<std::uint32_t>::max();
  if (count == 0 || count > kCountMax) {
    refuse("blocks", std::to_string(count) + " is not between 1 and " + std::to_string(kCountMax));
  }
  return count;
}

}  // namespace

CountedIds::CountedIds(CountedIdsOptions options)
    : total_(checked_count(options.count)),
      let_pass_(options.let_pass),
      references_max_(options.references_max),
      references_(total_, 0) {
  free_.reserve(total_);
  for (std::size_t id = total_; id > 0; --id) free_.push_back(static_cast<std::uint32_t>(id - 1));
}

bool CountedIds::allocate(std::size_t count, std::vector<std::uint32_t>& out) {
  if (count > total_) return false;  // before a size that nobody could reserve
  make_room(out, count);             // the only thing that can fail; not under the lock
  const MutexLock lock(mutex_);
  if (count > free_.size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t id = free_.back();
    free_.pop_back();
    CAIRN_DCHECK(references_[id] == 0);
    references_[id] = 1;
    out.push_back(id);
  }
  return true;
}

void CountedIds::add_references(std::span<const std::uint32_t> ids) noexcept {
  constexpr const char* kCall = "add_references";
  const MutexLock lock(mutex_);
  for (const std::uint32_t id : ids) {
    if (id == let_pass_ || !in_use(kCall, id)) continue;
    if (references_[id] == references_max_) {
      refusals_.note_count_limit(kCall, id, "has as many references as can be counted");
      continue;
    }
    ++references_[id];
  }
}

void CountedIds::drop_references(std::span<const std::uint32_t> ids) noexcept {
  const MutexLock lock(mutex_);
  for (const std::uint32_t id : ids) {
    if (id == let_pass_ || !in_use("drop_references", id)) continue;
    if (--references_[id] == 0) free_.push_back(id);
  }
}

bool CountedIds::in_use(const char* call, std::uint32_t id) noexcept {
  if (id >= references_.size()) {
    refusals_.note_unknown_id(call, id);
    return false;
  }
  if (references_[id] == 0) {
    refusals_.note_not_in_use(call, id, "is free");
    return false;
  }
  return true;
}

std::uint32_t CountedIds::references(std::uint32_t id) const noexcept {
  const MutexLock lock(mutex_);
  return id < references_.size() ? references_[id] : 0;
}

std::size_t CountedIds::num_free() const noexcept {
  const MutexLock lock(mutex_);
  return free_.size();
}

PoolErrors CountedIds::errors() const {
  Refusals refusals;
  {
    const MutexLock lock(mutex_);
    refusals = refusals_;
  }
  return refusals.report("block");
}

std::string CountedIds::validate() const {
  std::vector<bool> listed(total_, false);
  const MutexLock lock(mutex_);
  if (references_.size() != total_) return std::to_string(references_.size()) + " counts of references";
  if (free_.capacity() < total_) return "giving all blocks back would allocate";
  for (const std::uint32_t id : free_) {
    if (id >= total_) return "unknown block " + std::to_string(id) + " is listed as free";
    if (listed[id]) return "block " + std::to_string(id) + " is listed as free twice";
    if (references_[id] != 0) return "block " + std::to_string(id) + " is listed as free and has references";
    listed[id] = true;
  }
  for (std::size_t id = 0; id < total_; ++id) {
    if (references_[id] > references_max_) return "block " + std::to_string(id) + " has too many references";
    if (references_[id] == 0 && !listed[id]) return "block " + std::to_string(id) + " is lost";
  }
  return {};
}

}  // namespace cairn
