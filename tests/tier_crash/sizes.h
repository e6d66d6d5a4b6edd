// How much these tests do: all of it, or little under a sanitizer and for the mutants, which says so.
#ifndef CAIRN_TESTS_TIER_CRASH_SIZES_H_
#define CAIRN_TESTS_TIER_CRASH_SIZES_H_

#include <cstdint>

#include "support/environment.h"
#include "support/sanitizers.h"

namespace cairn::testing {

inline bool is_reduced() {
  return kSanitized || environment("CAIRN_CRASH_QUICK") != nullptr;
}
inline std::uint64_t all_or(std::uint64_t all, std::uint64_t reduced) {
  return is_reduced() ? reduced : all;
}
inline const char* reduced_note() {
  return is_reduced() ? " (reduced: a sanitizer is on, or CAIRN_CRASH_QUICK)" : "";
}
inline std::uint64_t crash_seed() {
  return environment_number("CAIRN_CRASH_SEED", 1);
}

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TIER_CRASH_SIZES_H_
