// A program that crashes has no time to say more than how it is run again.
#ifndef CAIRN_TESTS_SUPPORT_SEED_ON_CRASH_H_
#define CAIRN_TESTS_SUPPORT_SEED_ON_CRASH_H_

#include <cstdint>
#include <string>

namespace cairn::testing {

// As long as it lives, an abort or a segmentation fault prints the seed, as `variables` ("CAIRN_MODEL") has it. One at
// a time.
class SeedOnCrash {
 public:
  SeedOnCrash(const std::string& variables, std::uint64_t seed);
  SeedOnCrash(const SeedOnCrash&) = delete;
  SeedOnCrash& operator=(const SeedOnCrash&) = delete;
  ~SeedOnCrash();
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_SEED_ON_CRASH_H_
