// Small workloads, written down in a test.
#ifndef CAIRN_TESTS_REPLAY_LINES_H_
#define CAIRN_TESTS_REPLAY_LINES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "replay/workload.h"

namespace cairn::replay {

// A prompt is written as a string: each letter is one token.
struct Line {
  std::string prompt;
  std::string output{};  // tokens; if empty, output_length counts
  std::uint32_t output_length = 0;
  double timestamp_ms = 0;
  SessionHash session = 0;
  std::uint32_t adapter = 0;
  std::uint32_t tenant = 0;
};

inline Workload workload_of(const std::vector<Line>& lines) {
  Workload workload;
  workload.set_has_timestamps();
  for (const Line& line : lines) {
    const TokenRun prompt = workload.store(std::vector<TokenId>(line.prompt.begin(), line.prompt.end()));
    const TokenRun output = workload.store(std::vector<TokenId>(line.output.begin(), line.output.end()));
    workload.add({.timestamp_ms = line.timestamp_ms,
                  .session = line.session,
                  .adapter = line.adapter,
                  .tenant = line.tenant,
                  .line = workload.size() + 1,
                  .output_length = line.output_length},
                 {&prompt, 1}, {&output, line.output.empty() ? 0U : 1U});
  }
  return workload;
}

}  // namespace cairn::replay

#endif  // CAIRN_TESTS_REPLAY_LINES_H_
