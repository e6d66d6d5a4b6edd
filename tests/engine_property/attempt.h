// The members of EngineDriver that are templates.
#ifndef CAIRN_TESTS_ENGINE_PROPERTY_ATTEMPT_H_
#define CAIRN_TESTS_ENGINE_PROPERTY_ATTEMPT_H_

#include <new>

#include "engine_property/engine_driver.h"
#include "fault/failing_new.h"

namespace cairn::testing {

template <class Call>
bool EngineDriver::attempt(const Call& call) {
  if (fault_ == 0) {
    call();
    return true;
  }
  // The first of them matter most: an admission makes a dozen.
  arm_new((fault_ + 1u) / 2, fault_ % 2 == 0 ? FailingNew::kNth : FailingNew::kNthAndAllLater);
  try {
    call();
  } catch (const std::bad_alloc&) {
    disarm_new();
    ++tally_.failed_allocations;
    note("an allocation failed");
    return false;
  } catch (...) {
    disarm_new();
    throw;
  }
  disarm_new();
  return true;
}

template <class... Args>
void EngineDriver::note(const Args&... args) {
  if (trace_ != nullptr) ((*trace_ << ' ' << args), ...);
}

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_ENGINE_PROPERTY_ATTEMPT_H_
