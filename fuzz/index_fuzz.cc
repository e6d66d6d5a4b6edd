// Any bytes are a program of operations on the index, which must answer as the naive model does (see
// tests/support/lockstep.h). A finding is replayed, explained and made smaller by
//   CAIRN_MODEL_INPUT=FILE CAIRN_MODEL_SHRINK=1 CAIRN_MODEL_TRACE=1 index_model_test
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <span>

#include "support/lockstep.h"

namespace {

// More operations find nothing that fewer do not, and the model takes its time.
constexpr std::size_t kBytesMax = 400 * cairn::testing::kRecordBytes;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cairn::testing;
  if (size > kBytesMax) return -1;  // not for the corpus
  const Program program = decode_program(std::span(data, size));
  const RunReport report = run_program(program);
  if (report.failure.empty()) return 0;
  run_program(program, &std::cerr);
  std::cerr << "operation " << report.operation << ": " << report.failure << std::endl;
  std::abort();
}
