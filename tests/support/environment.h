// What the environment asks of a test.
#ifndef CAIRN_TESTS_SUPPORT_ENVIRONMENT_H_
#define CAIRN_TESTS_SUPPORT_ENVIRONMENT_H_

#include <cstdint>
#include <cstdlib>
#include <string>

namespace cairn::testing {

// Null if it is not set, or empty.
inline const char* environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr && *value != '\0' ? value : nullptr;
}

inline std::uint64_t environment_number(const std::string& name, std::uint64_t otherwise) {
  const char* value = environment(name);
  return value != nullptr ? std::stoull(value) : otherwise;
}

// Whether it begins with `to`.
inline bool is_set(const std::string& name, char to) {
  const char* value = environment(name);
  return value != nullptr && *value == to;
}

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_ENVIRONMENT_H_
