// The reader of token traces must take any bytes: it yields a workload or throws TraceError. The first byte chooses
// the options. A small workload is then replayed through a pool of a few blocks: the replay's own checks must hold.
#include <cairn/radix_tree.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "replay/block_pool.h"
#include "replay/errors.h"
#include "replay/line_source.h"
#include "replay/replayer.h"
#include "replay/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cairn::replay;
  if (size == 0) return 0;
  const std::uint8_t choice = data[0];
  std::istringstream in(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  Trace trace;
  try {
    LineSource source(in, "input");
    trace = read_trace(source, {.format = (choice & 1) != 0 ? TraceFormat::kAuto : TraceFormat::kTokens,
                                .skip_bad_lines = (choice & 2) != 0});
  } catch (const TraceError&) {
    return 0;
  }
  if (trace.workload.prompt_tokens() + trace.workload.output_tokens() > 4096) return 0;
  ReplayOptions options{.block_size = 1 + std::size_t{choice} % 4, .concurrency = 1 + std::size_t{choice} / 64};
  if ((choice & 8) != 0 && trace.workload.has_timestamps()) options.service_rate = 10;
  cairn::RadixTree tree({.block_size = options.block_size});
  SimulatedBlockPool pool(std::size_t{8});
  const RunResult result = Replayer(tree, pool, trace.workload, options).run();  // a ReplayError is a finding
  if (!tree.validate().empty() || result.matched_tokens > result.prompt_tokens) std::abort();
  return 0;
}
