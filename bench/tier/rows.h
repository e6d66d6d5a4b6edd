// What stores of spilled records promise in bytes per second, each against a yardstick of the same run.
#ifndef CAIRN_BENCH_TIER_ROWS_H_
#define CAIRN_BENCH_TIER_ROWS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "bench/core/measure.h"

namespace cairn::bench {

// What is moved at a time: records of one size, so many of them in one batch, and of those so many at the device.
struct Batches {
  bool snapshots = false;  // of which kind the records are: blocks, or snapshots
  std::size_t payload_bytes = 0;
  std::size_t count = 0;
  std::size_t depth = 0;
  std::size_t kept = 0;  // batches that the store, or the file, has room for

  [[nodiscard]] std::size_t bytes() const { return payload_bytes * count; }
};
Batches large_values(const Settings& settings);  // 64 MiB
Batches small_blocks(const Settings& settings);  // 64 KiB

// Two lines each: put, and get. All throw WrongResult, and std::runtime_error for what the disk refuses.
std::vector<Measurement> file_store(const Settings& settings, const std::string& directory, const Batches& batches);
// One line: the payload copied to a buffer, put, got and copied out.
Measurement ram_store(const Settings& settings, const Batches& batches);

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_TIER_ROWS_H_
