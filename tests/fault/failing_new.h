// Replaces operator new in a program, so that tests can let allocations fail.
#ifndef CAIRN_TESTS_FAULT_FAILING_NEW_H_
#define CAIRN_TESTS_FAULT_FAILING_NEW_H_

#include <cstddef>

namespace cairn::testing {

enum class FailingNew {
  kNth,            // one allocation fails
  kNthAndAllLater  // and all that follow it
};

// From now on the nth allocation fails, counted from 1: plain new throws, nothrow new returns null. Only one thread
// may allocate until disarm_new().
void arm_new(std::size_t nth, FailingNew which) noexcept;
void disarm_new() noexcept;
// Allocations tried since arm_new().
std::size_t allocations_tried() noexcept;

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_FAULT_FAILING_NEW_H_
