#include "replay/replay_tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace cairn::replay {
namespace {

// Room for what is on its way, beside what rests in RAM: bytes, and at least so many of the largest record.
constexpr std::size_t kWorkingBytes = std::size_t{64} << 20;
constexpr std::size_t kWorkingRecords = 8;
constexpr std::size_t kHeaderBytesMax = 16 * SpillBuffer::kAlignment;

void check(const TierOptions& options) {
  if (options.ram_bytes == 0 && !options.has_file_tier()) {
    throw std::invalid_argument("tiers: neither a RAM tier nor a directory is given");
  }
  if (options.make_file_store) return;
  if (options.directory.empty() != (options.file_bytes == 0)) {
    throw std::invalid_argument(fmt::format("tiers: a directory ('{}') and its bytes ({}) belong together",
                                            options.directory, options.file_bytes));
  }
}

std::shared_ptr<SpillStore> file_store(const TierOptions& options, std::shared_ptr<SpillBuffers> buffers) {
  if (options.make_file_store) return options.make_file_store(std::move(buffers));
  OpenedStore opened = open_file_store({.buffers = std::move(buffers),
                                        .directory = options.directory,
                                        .bytes_max = options.file_bytes,
                                        .reinitialize = options.reinitialize});
  if (!opened.store) throw std::runtime_error(opened.error.message);
  return std::move(opened.store);
}

}  // namespace

SpillLayout replay_layout(std::size_t block_size, std::size_t block_bytes, std::size_t snapshot_bytes) {
  // The model's bytes follow from tokens and adapter alone, so records of one replay serve any other.
  return {.fingerprint = {.weights = "verifying model", .kv_type = "digest64", .layout = "replay 1", .ranks = 1},
          .block_size = block_size,
          .block_bytes = block_bytes,
          .snapshot_bytes = snapshot_bytes};
}

std::size_t block_record_bytes(const SpillLayout& layout) {
  return SpillBuffers(layout, kWorkingBytes + kWorkingRecords * (layout.block_bytes + layout.snapshot_bytes))
      .record_bytes(RecordKind::kBlock);
}

Tiers open_tiers(const TierOptions& options, const SpillLayout& layout) {
  check(options);
  const std::size_t largest = kHeaderBytesMax + std::max(layout.block_bytes, layout.snapshot_bytes);
  const std::size_t working = std::max(kWorkingBytes, kWorkingRecords * largest);
  const auto buffers = std::make_shared<SpillBuffers>(layout, options.ram_bytes + working);
  std::shared_ptr<SpillStore> ram;
  std::shared_ptr<SpillStore> files;
  if (options.ram_bytes > 0) ram = make_ram_store({.buffers = buffers, .bytes_max = options.ram_bytes});
  if (options.has_file_tier()) files = file_store(options, buffers);
  if (!files) return {.store = std::move(ram)};
  if (!ram) return {.store = files, .files = files};
  return {.store = make_tiered_store(std::move(ram), files), .files = files};
}

double TierResult::fetch_bytes_per_s() const {
  return fetch_time_s > 0 ? static_cast<double>(fetched_bytes) / fetch_time_s : 0.0;
}

}  // namespace cairn::replay
