#include "memory/refusals.h"

#include <string>

namespace cairn {

PoolErrors Refusals::report(const char* unit) const {
  PoolErrors errors{.unknown_ids = unknown_ids_,
                    .not_in_use = not_in_use_,
                    .count_limits = count_limits_,
                    .wrong_states = wrong_states_,
                    .last = {}};
  if (last_.call == nullptr) return errors;
  const std::string thing = std::string(unit) + " " + std::to_string(last_.id);
  errors.last = std::string(last_.call) + ": ";
  errors.last += last_.found == nullptr ? "there is no " + thing : thing + " " + last_.found;
  return errors;
}

}  // namespace cairn
