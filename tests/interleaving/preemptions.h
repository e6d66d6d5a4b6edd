// How far interleavings are searched.
//
// Environment:
//   CAIRN_INTERLEAVING_PREEMPTIONS=n  at most so many preemptions of two threads, one less of three (2, or 1 with the
//                                     address sanitizer; with 3 it takes an hour)
#ifndef CAIRN_TESTS_INTERLEAVING_PREEMPTIONS_H_
#define CAIRN_TESTS_INTERLEAVING_PREEMPTIONS_H_

#include <cstddef>
#include <cstdlib>
#include <string>

namespace cairn::testing {

// Memory that is freed while a reader looks at it takes one preemption: the reader's.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::size_t kDefaultPreemptions = 1;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr std::size_t kDefaultPreemptions = 1;
#else
inline constexpr std::size_t kDefaultPreemptions = 2;
#endif
#else
inline constexpr std::size_t kDefaultPreemptions = 2;
#endif

inline std::size_t preemptions_max() {
  const char* wanted = std::getenv("CAIRN_INTERLEAVING_PREEMPTIONS");
  return wanted != nullptr && *wanted != '\0' ? std::stoul(wanted) : kDefaultPreemptions;
}

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_INTERLEAVING_PREEMPTIONS_H_
