// How a call refuses what its caller could have known to be wrong.
#ifndef CAIRN_BASE_REFUSE_H_
#define CAIRN_BASE_REFUSE_H_

#include <stdexcept>
#include <string>

namespace cairn {

// Throws std::invalid_argument. `rule` names the value, and says what is allowed.
[[noreturn]] inline void refuse(const std::string& argument, const std::string& rule) {
  throw std::invalid_argument("cairn: " + argument + ": " + rule);
}

}  // namespace cairn

#endif  // CAIRN_BASE_REFUSE_H_
