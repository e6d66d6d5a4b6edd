// What a test of the engine throws.
#ifndef CAIRN_TESTS_ENGINE_PROPERTY_BROKEN_H_
#define CAIRN_TESTS_ENGINE_PROPERTY_BROKEN_H_

#include <stdexcept>

namespace cairn::testing {

// A promise was broken.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_ENGINE_PROPERTY_BROKEN_H_
