#include "metrics/reading.h"

#include <algorithm>
#include <locale>
#include <sstream>
#include <utility>

#include "metrics/catalogue.h"

namespace cairn {
namespace {

void add(Reading& reading, std::size_t family, double value, std::string label_value = {}) {
  reading.samples.push_back({.family = family, .label_value = std::move(label_value), .value = value});
}

template <class Stats, std::size_t kCount>
void add(Reading& reading, const std::array<Field<Stats>, kCount>& fields, const Stats& stats) {
  for (const Field<Stats>& field : fields) {
    if (field.read) add(reading, field.family, field.read(stats), std::string(field.label_value));
  }
}

// What is switched off has no bounds.
void add(Reading& reading, std::size_t family, Histogram histogram) {
  if (histogram.bounds.empty()) return;
  reading.samples.push_back({.family = family, .histogram = std::move(histogram)});
}

// Free and used: of `total`, in units of `unit`.
void add_states(Reading& reading, std::size_t family, std::size_t free, std::size_t total, std::size_t unit = 1) {
  add(reading, family, static_cast<double>(free * unit), "free");
  add(reading, family, static_cast<double>((total - free) * unit), "used");
}

void add_index(Reading& reading, const RadixTree& index) {
  add(reading, kIndexFields, index.counters());
  const CacheStats stats = index.stats();
  add(reading, family("cairn_cached_blocks"), static_cast<double>(stats.cached_blocks));
  add(reading, family("cairn_index_pieces"), static_cast<double>(stats.entries));
  add(reading, family("cairn_snapshots"), static_cast<double>(index.snapshot_count()));
}

void add_blocks(Reading& reading, const BlockAllocator& blocks, std::size_t block_size) {
  const std::size_t free = blocks.free_blocks();
  add_states(reading, family("cairn_blocks"), free, blocks.total_blocks());
  if (const std::size_t bytes = blocks.block_bytes(); bytes > 0) {
    add_states(reading, family("cairn_block_memory_bytes"), free, blocks.total_blocks(), bytes);
  }
  add(reading, family("cairn_block_size_tokens"), static_cast<double>(block_size));
  if (const auto* pool = dynamic_cast<const BlockPool*>(&blocks)) {
    PoolErrors errors = pool->errors();
    add(reading, kBlockPoolFields, errors);
    reading.block_pool_error = std::move(errors.last);
  }
}

// "0.5", "2".
std::string shown(double factor) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << factor;
  return std::move(text).str();
}

void add_estimates(Reading& reading, const SizeEstimates& estimates) {
  for (const SizeEstimate& size : estimates.sizes) {
    add(reading, family("cairn_estimated_hit_ratio"), size.hit_rate, shown(size.factor));
  }
  add(reading, family("cairn_estimate_sampled_blocks_total"), static_cast<double>(estimates.sampled_blocks));
}

void add_snapshots(Reading& reading, const SnapshotPool& pool) {
  const std::size_t free = pool.free_slots();
  add_states(reading, family("cairn_snapshot_slots"), free, pool.total_slots());
  add_states(reading, family("cairn_snapshot_memory_bytes"), free, pool.total_slots(), pool.slot_bytes());
  PoolErrors errors = pool.errors();
  add(reading, kSnapshotPoolFields, errors);
  reading.snapshot_pool_error = std::move(errors.last);
}

void add_store(Reading& reading, const SpillStore& store) {
  SpillStats stats = store.stats();
  add(reading, kStoreFields, stats);
  if (!stats.io.empty()) add(reading, family("cairn_store_info"), 1, stats.io);
  const SpillBuffers& buffers = *store.buffers();
  const std::size_t used = std::min(buffers.used_bytes(), buffers.bytes_max());
  add_states(reading, family("cairn_store_buffer_bytes"), buffers.bytes_max() - used, buffers.bytes_max());
  reading.store = {.degraded_reason = std::move(stats.degraded_reason), .io = std::move(stats.io)};
}

}  // namespace

Reading read_cache(const CacheManager& manager) {
  Reading reading;
  const CacheManagerOptions& options = manager.options();
  const ManagerStats stats = manager.stats();
  add(reading, kManagerFields, stats);
  if (options.snapshots) {
    for (const auto& fields : kCaptureFields) add(reading, fields, stats.captures);
  }
  ManagerHistograms histograms = manager.histograms();
  add(reading, family("cairn_matched_tokens"), std::move(histograms.matched_tokens));
  add(reading, family("cairn_admit_seconds"), std::move(histograms.admit_seconds));
  add(reading, family("cairn_load_seconds"), std::move(histograms.load_seconds));
  if (options.blocks && options.estimate_sizes) add_estimates(reading, manager.size_estimates());
  add_index(reading, manager.index());
  if (options.blocks) add_blocks(reading, *options.blocks, options.block_size);
  if (options.snapshots) add_snapshots(reading, *options.snapshots);
  if (options.store) add_store(reading, *options.store);
  return reading;
}

Reading read_cache(const RadixTree& index) {
  Reading reading;
  add_index(reading, index);
  return reading;
}

}  // namespace cairn
