#include "output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace cairn::tool {
namespace {

[[noreturn]] void fail(const std::string& path, int cause) {
  throw std::runtime_error(fmt::format("{}: cannot be written: {}", path, std::strerror(cause)));
}

void write_file(const std::string& path, std::string_view content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) fail(path, errno);
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  int cause = written ? 0 : errno;
  if (std::fclose(file) != 0 && cause == 0) cause = errno;
  if (cause != 0) fail(path, cause);
}

}  // namespace

void write_file_atomically(const std::string& path, std::string_view content) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    write_file(path, content);
    return;
  }
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  try {
    write_file(temporary, content);
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail(path, errno);
  } catch (...) {
    std::remove(temporary.c_str());
    throw;
  }
}

void write_to_stdout(std::string_view content) {
  if (std::fwrite(content.data(), 1, content.size(), stdout) != content.size() || std::fflush(stdout) != 0) {
    fail("standard output", errno);
  }
}

}  // namespace cairn::tool
