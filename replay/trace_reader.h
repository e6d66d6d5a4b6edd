// Reads a trace into a workload. The formats are described in docs/trace-formats.md.
#ifndef CAIRN_REPLAY_TRACE_READER_H_
#define CAIRN_REPLAY_TRACE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "replay/block_id_expander.h"
#include "replay/line_source.h"
#include "replay/workload.h"

namespace cairn::replay {

enum class TraceFormat {
  kAuto,      // told by the fields of the first line
  kBlockIds,  // "hash_ids" and "input_length"
  kTokens,    // "tokens"
};

struct TraceOptions {
  TraceFormat format = TraceFormat::kAuto;
  std::size_t trace_block_tokens = 512;  // what an id stands for
  BlockIdKind ids = BlockIdKind::kChained;
  bool skip_bad_lines = false;
};

struct Trace {
  static constexpr std::size_t kReasonsMax = 5;

  Workload workload;
  TraceFormat format = TraceFormat::kAuto;  // never kAuto after reading
  std::uint64_t bad_lines = 0;
  std::vector<std::string> bad_line_reasons;  // of the first kReasonsMax, with file and line
};

// Throws TraceError: the input cannot be read or holds no request; a malformed line, unless they are skipped; more
// distinct tokens than there are token ids. Throws std::invalid_argument for options out of range.
[[nodiscard]] Trace read_trace(LineSource& source, const TraceOptions& options);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_TRACE_READER_H_
