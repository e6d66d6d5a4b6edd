#include "support/every_hash.h"

namespace cairn::testing {

bool every_hash_is_equal() noexcept {
#if defined(CAIRN_CONSTANT_HASH)
  return true;
#else
  return false;
#endif
}

}  // namespace cairn::testing
