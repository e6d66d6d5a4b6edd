// Blocks that a clear took out of the index while leases may still use them.
//
// A lease holds matched blocks by its handle alone, without a reference for each. A clear ends what handles hold, so
// the references that it gives back must not be dropped before the leases admitted until then have ended. Each lease
// belongs to the era in which it was admitted; a clear closes the era and leaves its blocks there. They go back when
// this era and all before it have no lease left: a lease of an older era may use them as well, one of a later era
// cannot.
#ifndef CAIRN_ENGINE_ERAS_H_
#define CAIRN_ENGINE_ERAS_H_

#include <cstddef>
#include <list>
#include <vector>

#include "base/mutex.h"
#include "cairn/prefix_cache.h"

namespace cairn {

// Thread-safe; its lock is a leaf.
class Eras {
 public:
  struct Era {
    std::size_t leases = 0;
    std::vector<BlockId> blocks;  // that its closing left
  };

  Eras() { eras_.emplace_back(); }

  // To be called before the lookup of a lease. The era lives until leave().
  [[nodiscard]] Era* enter() noexcept;
  // For a lease that uses what one of that era uses, which has not left yet.
  void enter_again(Era* era) noexcept;
  void leave(Era* era) noexcept;

  // Room for one close(). Throws std::bad_alloc.
  void prepare_close();
  // `blocks` have been cleared; every lookup that may have found them had entered before.
  void close(std::vector<BlockId> blocks) noexcept;

  // The blocks of eras that nobody uses any more, era by era; empty if there are none left. To be called after leave
  // and close until it is.
  [[nodiscard]] std::vector<BlockId> take_unused() noexcept;
  [[nodiscard]] std::size_t held_blocks() const;

 private:
  mutable Mutex mutex_;
  std::list<Era> eras_ CAIRN_GUARDED_BY(mutex_);  // the last one is open
  std::list<Era> spare_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_ERAS_H_
