// Whether the library that this program is linked with was built with CAIRN_CONSTANT_HASH. A function, so that a test
// is compiled once for both builds.
#ifndef CAIRN_TESTS_SUPPORT_EVERY_HASH_H_
#define CAIRN_TESTS_SUPPORT_EVERY_HASH_H_

#include "support/sanitizers.h"

namespace cairn::testing {

bool every_hash_is_equal() noexcept;

// Whether tests that take their time keep their sizes small.
inline bool is_slow_build() noexcept {
  return kSanitized || every_hash_is_equal();
}

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_EVERY_HASH_H_
