// Where the published traces are, and their ids, read without the reader under test.
#ifndef CAIRN_TESTS_GOLDEN_TRACE_FILES_H_
#define CAIRN_TESTS_GOLDEN_TRACE_FILES_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "replay/line_source.h"

namespace cairn::replay {

inline std::string traces_folder() {
  const char* folder = std::getenv("CAIRN_TRACES_DIR");
  return folder != nullptr ? folder : CAIRN_DEFAULT_TRACES_DIR;
}

inline bool traces_required() {
  const char* required = std::getenv("CAIRN_REQUIRE_TRACES");
  return required != nullptr && std::string(required) == "1";
}

// Nothing if the file is missing.
inline std::optional<std::string> trace_path(const std::string& file) {
  const std::string path = traces_folder() + "/" + file;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

#define CAIRN_NEED_TRACE(path, file)                                                                        \
  const std::optional<std::string> found_##path = trace_path(file);                                         \
  if (!found_##path && traces_required()) FAIL() << (file) << " is missing in " << traces_folder();         \
  if (!found_##path) GTEST_SKIP() << (file) << " is missing in " << traces_folder() << ": nothing checked"; \
  const std::string& path = *found_##path

struct IdRequest {
  std::size_t input_length = 0;
  std::size_t output_length = 0;
  std::vector<std::size_t> ids;
};

inline std::size_t number_after(const std::string& line, const std::string& key) {
  const std::size_t at = line.find("\"" + key + "\": ");
  if (at == std::string::npos) throw std::runtime_error("no " + key + " in: " + line.substr(0, 80));
  return std::strtoull(line.c_str() + at + key.size() + 4, nullptr, 10);
}

inline std::vector<IdRequest> read_ids(const std::string& path) {
  LineSource source = LineSource::open(path);
  std::vector<IdRequest> requests;
  for (std::string line; source.next(line);) {
    IdRequest request;
    request.input_length = number_after(line, "input_length");
    request.output_length = number_after(line, "output_length");
    const char* at = line.c_str() + line.find('[') + 1;
    while (*at != ']') {
      char* end = nullptr;
      request.ids.push_back(std::strtoull(at, &end, 10));
      at = end + (*end == ',' ? 1 : 0);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace cairn::replay

#endif  // CAIRN_TESTS_GOLDEN_TRACE_FILES_H_
