#include "support/shrink.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "support/lockstep.h"

namespace cairn::testing {

std::vector<std::uint8_t> shrink_program(std::vector<std::uint8_t> bytes, const ProgramFails& fails,
                                         std::size_t attempts_max) {
  std::size_t attempts = 0;
  for (std::size_t chunk = bytes.size() / kRecordBytes / 2; chunk >= 1;) {
    bool any = false;
    for (std::size_t at = kRecordBytes; at < bytes.size() && attempts < attempts_max;) {
      const std::size_t end = std::min(bytes.size(), at + chunk * kRecordBytes);
      std::vector<std::uint8_t> fewer(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
      fewer.insert(fewer.end(), bytes.begin() + static_cast<std::ptrdiff_t>(end), bytes.end());
      ++attempts;
      if (fails(fewer)) {
        bytes = std::move(fewer);
        any = true;
      } else {
        at = end;
      }
    }
    if (attempts >= attempts_max) break;
    if (!any || chunk > 1) chunk /= 2;
  }
  return bytes;
}

bool fails_in_child(std::span<const std::uint8_t> bytes) {
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    _exit(run_program(decode_program(bytes)).failure.empty() ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace cairn::testing
