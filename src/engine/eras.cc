#include "engine/eras.h"

#include <utility>

#include "base/check.h"

namespace cairn {

Eras::Era* Eras::enter() noexcept {
  const MutexLock lock(mutex_);
  ++eras_.back().leases;
  return &eras_.back();
}

void Eras::enter_again(Era* era) noexcept {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(era->leases > 0);
  ++era->leases;
}

void Eras::leave(Era* era) noexcept {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(era->leases > 0);
  --era->leases;
}

void Eras::prepare_close() {
  const MutexLock lock(mutex_);
  spare_.emplace_back();
}

void Eras::close(std::vector<BlockId> blocks) noexcept {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(!spare_.empty());
  eras_.back().blocks = std::move(blocks);
  eras_.splice(eras_.end(), spare_, spare_.begin());
}

std::vector<BlockId> Eras::take_unused() noexcept {
  const MutexLock lock(mutex_);
  while (eras_.size() > 1 && eras_.front().leases == 0) {
    std::vector<BlockId> blocks = std::move(eras_.front().blocks);
    eras_.pop_front();
    if (!blocks.empty()) return blocks;
  }
  return {};
}

std::size_t Eras::held_blocks() const {
  const MutexLock lock(mutex_);
  std::size_t held = 0;
  for (const Era& era : eras_) held += era.blocks.size();
  return held;
}

}  // namespace cairn
