// The reader of block-id traces must take any bytes: it yields a workload or throws TraceError. The first byte chooses
// the options. What it read must add up.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "replay/errors.h"
#include "replay/line_source.h"
#include "replay/trace_reader.h"

namespace {

constexpr std::uint64_t kExpandedTokensMax = 1 << 16;

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cairn::replay;
  if (size == 0) return 0;
  const std::uint8_t choice = data[0];
  TraceOptions options{.format = (choice & 1) != 0 ? TraceFormat::kAuto : TraceFormat::kBlockIds,
                       .trace_block_tokens = std::size_t{1} << (choice >> 4),
                       .ids = (choice & 2) != 0 ? BlockIdKind::kPlain : BlockIdKind::kChained,
                       .skip_bad_lines = (choice & 4) != 0};
  std::istringstream in(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  try {
    LineSource source(in, "input");
    const Trace trace = read_trace(source, options);
    check(trace.workload.size() > 0);
    check(options.skip_bad_lines || trace.bad_lines == 0);
    std::vector<cairn::TokenId> tokens;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < trace.workload.size(); ++i) {
      total += trace.workload[i].prompt_tokens;
      check(trace.workload[i].prompt_tokens > 0);
      if (trace.workload[i].prompt_tokens > kExpandedTokensMax) continue;
      trace.workload.prompt(i, tokens);
      check(tokens.size() == trace.workload[i].prompt_tokens);
    }
    check(total == trace.workload.prompt_tokens());
  } catch (const TraceError&) {
  }
  return 0;
}
