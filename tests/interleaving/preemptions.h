// How far interleavings are searched.
//
// Environment:
//   CAIRN_INTERLEAVING_PREEMPTIONS=n  at most so many preemptions of two threads, one less of three (2, or 1 with the
//                                     address sanitizer; with 3 it takes an hour)
#ifndef CAIRN_TESTS_INTERLEAVING_PREEMPTIONS_H_
#define CAIRN_TESTS_INTERLEAVING_PREEMPTIONS_H_

#include <cstddef>

#include "support/environment.h"
#include "support/sanitizers.h"

namespace cairn::testing {

// Memory that is freed while a reader looks at it takes one preemption: the reader's.
inline constexpr std::size_t kDefaultPreemptions = kAddressSanitizer ? 1 : 2;

inline std::size_t preemptions_max() {
  return environment_number("CAIRN_INTERLEAVING_PREEMPTIONS", kDefaultPreemptions);
}

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_INTERLEAVING_PREEMPTIONS_H_
