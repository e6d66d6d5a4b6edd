#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace cairn {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "cairn: invariant broken: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace cairn
