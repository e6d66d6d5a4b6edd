// The metrics that there are, and which field of which statistics each sample comes from.
//
// Every field of ManagerStats, CapturesByKind, RadixTreeCounters, SpillStats and PoolErrors has an entry here: one
// that is added there does not compile here until it has one.
#ifndef CAIRN_METRICS_CATALOGUE_H_
#define CAIRN_METRICS_CATALOGUE_H_

#include <array>
#include <boost/pfr/tuple_size.hpp>
#include <cstddef>
#include <limits>
#include <string_view>

#include "cairn/metrics.h"

namespace cairn {

inline constexpr auto kCounter = prometheus::MetricType::Counter;
inline constexpr auto kGauge = prometheus::MetricType::Gauge;
inline constexpr auto kHistogram = prometheus::MetricType::Histogram;

// In the order in which they are shown.
inline constexpr auto kCatalogue = std::to_array<MetricDescription>({
    // ---- Requests ----
    {"cairn_requests_total", kCounter, "Requests admitted, each once.", ""},
    {"cairn_resumed_requests_total", kCounter, "Admissions of requests that had been preempted.", ""},
    {"cairn_refusals_total", kCounter, "Calls that could not have the blocks that they asked for.", "call"},
    {"cairn_prompt_tokens_total", kCounter, "Prompt tokens of the requests, by where their KV and state came from.",
     "source"},
    {"cairn_stateless_tokens_total", kCounter,
     "Prompt tokens whose KV was cached, but which were computed again for lack of a snapshot.", ""},
    {"cairn_uncacheable_media_requests_total", kCounter,
     "Requests cached only up to a medium that could not be remembered.", ""},
    {"cairn_matched_tokens", kHistogram, "Prompt tokens of a request whose KV was cached.", ""},
    {"cairn_admit_seconds", kHistogram, "Time that an admission took that gave a lease.", ""},
    {"cairn_load_seconds", kHistogram, "Time from admission until all that a lease fetched had come.", ""},
    {"cairn_estimated_hit_ratio", kGauge,
     "Part of the full blocks that LRU would have found in a pool of so many times the present size.", "size"},
    {"cairn_estimate_sampled_blocks_total", kCounter, "Uses of blocks that those estimates were made from.", ""},
    // ---- Leases ----
    {"cairn_ended_leases_total", kCounter, "Leases that ended, by how.", "how"},
    {"cairn_forks_total", kCounter, "Leases made by forking another one.", ""},
    {"cairn_step_waits_total", kCounter, "Leases that ended while a step of theirs was in flight.", ""},
    {"cairn_failed_steps_total", kCounter, "Steps reported as failed.", ""},
    {"cairn_live_leases", kGauge, "Leases that have not ended, forks included.", ""},
    {"cairn_loading_leases", kGauge, "Of the live leases, those that wait for a store.", ""},
    {"cairn_waiting_leases", kGauge, "Leases that have ended, but whose last step is not done.", ""},
    {"cairn_steps_in_flight", kGauge, "Steps declared and not yet done.", ""},
    // ---- Blocks ----
    {"cairn_published_blocks_total", kCounter, "Blocks that leases gave to the cache.", ""},
    {"cairn_deduplicated_blocks_total", kCounter,
     "Blocks given back because another lease had published the same tokens.", ""},
    {"cairn_evicted_blocks_total", kCounter, "Blocks that left memory to make room.", ""},
    {"cairn_blocks", kGauge, "Blocks of the pool, by state.", "state"},
    {"cairn_block_memory_bytes", kGauge, "Memory of the pool's blocks, by state.", "state"},
    {"cairn_cached_blocks", kGauge, "Blocks that the cache holds.", ""},
    {"cairn_cleared_blocks_held", kGauge, "Blocks that were cleared, but that leases of before may still use.", ""},
    {"cairn_block_size_tokens", kGauge, "Tokens in a block.", ""},
    {"cairn_block_pool_errors_total", kCounter, "Calls that the block pool refused: bugs of the engine.", "reason"},
    // ---- Snapshots ----
    {"cairn_captures_total", kCounter, "Captures of state, by what became of them.", "outcome"},
    {"cairn_published_captures_total", kCounter, "Captures published, by what they were taken for.", "kind"},
    {"cairn_captured_bytes_total", kCounter, "Bytes of those captures.", "kind"},
    {"cairn_snapshot_uses_total", kCounter, "Requests that went on from a snapshot, by what it was taken for.",
     "kind"},
    {"cairn_snapshot_reused_tokens_total", kCounter, "Prompt tokens that those requests did not compute.", "kind"},
    {"cairn_evicted_snapshots_total", kCounter, "Snapshots that left memory to make room.", ""},
    {"cairn_snapshots", kGauge, "Snapshots that the cache knows, in memory or in a store.", ""},
    {"cairn_pinned_snapshots", kGauge, "Snapshots that somebody is reading.", ""},
    {"cairn_snapshot_slots", kGauge, "Slots of the snapshot pool, by state.", "state"},
    {"cairn_snapshot_memory_bytes", kGauge, "Memory of the snapshot pool's slots, by state.", "state"},
    {"cairn_snapshot_pool_errors_total", kCounter, "Calls that the snapshot pool refused: bugs of the engine.",
     "reason"},
    // ---- Spilling and fetching ----
    {"cairn_spilled_records_total", kCounter, "Records handed to the store, and taken, by kind.", "kind"},
    {"cairn_spilled_bytes_total", kCounter, "Payload of those records.", ""},
    {"cairn_declined_spills_total", kCounter, "Records that the store did not take: lost.", ""},
    {"cairn_fetches_total", kCounter, "Leases that were loading.", ""},
    {"cairn_failed_fetches_total", kCounter, "Of those, the ones for which something did not come.", ""},
    {"cairn_unprofitable_fetches_total", kCounter, "Admissions that computed what could have been fetched.", ""},
    {"cairn_fetched_records_total", kCounter, "Records that came, by kind.", "kind"},
    {"cairn_fetched_bytes_total", kCounter, "Payload of those records.", ""},
    {"cairn_recovered_records_total", kCounter, "Records found in the store at the start, by what they are.", "kind"},
    {"cairn_recorded_blocks", kGauge, "Blocks that have a record in the store, in memory or not.", ""},
    {"cairn_fetch_bytes_per_second", kGauge, "How fast fetches are, measured or given; 0: not measured yet.", "tier"},
    {"cairn_prefill_tokens_per_second", kGauge, "How fast prefill is, measured or given; 0: not measured yet.", ""},
    // ---- The store ----
    {"cairn_store_puts_total", kCounter, "Puts that the store accepted.", ""},
    {"cairn_store_dropped_puts_total", kCounter, "Puts not accepted, or accepted and then not stored.", ""},
    {"cairn_store_gets_total", kCounter, "Gets answered, by what was found where.", "result"},
    {"cairn_store_shared_reads_total", kCounter, "Gets found in a file that the read of another get served.", ""},
    {"cairn_store_removed_records_total", kCounter, "Records that are no more, by reason.", "reason"},
    {"cairn_store_io_errors_total", kCounter, "Errors of the device, timeouts included.", ""},
    {"cairn_store_written_bytes_total", kCounter, "Bytes written to files.", ""},
    {"cairn_store_read_bytes_total", kCounter, "Bytes read from files.", ""},
    {"cairn_store_recovered_records_total", kCounter, "Records that the store found when it was opened.", ""},
    {"cairn_store_records", kGauge, "Records in the store, by tier.", "tier"},
    {"cairn_store_bytes", kGauge, "What those records take, by tier.", "tier"},
    {"cairn_store_pending_operations", kGauge, "Puts and gets under way.", ""},
    {"cairn_store_degraded", kGauge, "1: writes fail and are given up at once. /stats has the reason.", ""},
    {"cairn_store_info", kGauge, "Always 1; how the store reads and writes files is in the label.", "io"},
    {"cairn_store_buffer_bytes", kGauge, "Memory for records in RAM and on their way, by state.", "state"},
    // ---- The index ----
    {"cairn_index_lookups_total", kCounter, "Lookups of the index.", ""},
    {"cairn_index_lookup_tokens_total", kCounter, "Tokens of those lookups, by whether they matched.", "result"},
    {"cairn_index_created_blocks_total", kCounter, "Blocks that came into the index.", ""},
    {"cairn_index_removed_blocks_total", kCounter, "Blocks that left the index, by reason.", "reason"},
    {"cairn_index_pieces", kGauge, "Stored pieces that the blocks are kept in.", ""},
    {"cairn_index_snapshot_hits_total", kCounter, "Snapshots that lookups returned, by kind.", "kind"},
    {"cairn_index_spilled_snapshot_hits_total", kCounter, "Of those, the ones that were spilled.", ""},
    {"cairn_index_snapshot_gap_tokens_total", kCounter,
     "Tokens that matched beyond the snapshot that their lookup returned.", ""},
    {"cairn_index_put_snapshots_total", kCounter, "Snapshots put into the index.", ""},
    {"cairn_index_replaced_snapshots_total", kCounter, "Of those, the ones whose place was taken.", ""},
    {"cairn_index_replaced_tails_total", kCounter, "Of those, tails that replaced another session's tail.", ""},
    {"cairn_index_evicted_snapshots_total", kCounter, "Snapshots evicted and not spilled.", ""},
    {"cairn_index_spilled_snapshots_total", kCounter, "Snapshots evicted to the store.", ""},
    {"cairn_index_promoted_snapshots_total", kCounter, "Spilled snapshots that came back.", ""},
    {"cairn_index_forgotten_records_total", kCounter,
     "Records that the index gave up because they were lost, by kind.", "kind"},
    {"cairn_index_orphaned_keys_total", kCounter, "Keys of spilled snapshots that something newer replaced.", ""},
    {"cairn_index_spilled_blocks_total", kCounter, "Blocks evicted to the store.", ""},
    {"cairn_index_saved_blocks_total", kCounter, "Blocks stored while they stayed in memory.", ""},
    {"cairn_index_protocol_errors_total", kCounter, "Releases of what no caller can have held: bugs of the engine.",
     ""},
});

// Where `name` stands in the catalogue. Does not compile if it does not.
consteval std::size_t family(std::string_view name) {
  for (std::size_t i = 0; i < kCatalogue.size(); ++i) {
    if (kCatalogue[i].name == name) return i;
  }
  throw "no such metric in the catalogue";
}

// A field of `Stats`, and the sample that it makes.
template <class Stats>
struct Field {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::size_t family = kNone;  // kNone: what it says is in the samples of others
  std::string_view label_value{};
  double (*read)(const Stats&) = nullptr;
};

template <class Stats, class Value>
Stats stats_of(Value Stats::*);

// A sample of that metric.
template <auto kMember>
consteval auto field(std::string_view name, std::string_view label_value = {}) {
  using Stats = decltype(stats_of(kMember));
  const std::size_t at = family(name);
  if (kCatalogue[at].label.empty() != label_value.empty()) throw "a label without a value, or a value without a label";
  return Field<Stats>{at, label_value, [](const Stats& stats) { return static_cast<double>(stats.*kMember); }};
}

// No number, or what others add up to.
template <auto kMember>
consteval auto no_sample() {
  return Field<decltype(stats_of(kMember))>{};
}

template <class Stats, std::size_t kCount>
consteval std::array<Field<Stats>, kCount> fields_of(const Field<Stats> (&fields)[kCount]) {
  static_assert(kCount == boost::pfr::tuple_size_v<Stats>,
                "each field needs an entry: a metric in kCatalogue and docs/metrics.md, or no_sample with the reason");
  return std::to_array(fields);
}

inline constexpr auto kManagerFields = fields_of<ManagerStats>({
    field<&ManagerStats::requests>("cairn_requests_total"),
    field<&ManagerStats::resumed>("cairn_resumed_requests_total"),
    no_sample<&ManagerStats::prompt_tokens>(),  // the sum of all sources
    no_sample<&ManagerStats::reused_tokens>(),  // the sum of the next three
    field<&ManagerStats::reused_from_memory_tokens>("cairn_prompt_tokens_total", "memory"),
    field<&ManagerStats::reused_from_ram_tier_tokens>("cairn_prompt_tokens_total", "ram_tier"),
    field<&ManagerStats::reused_from_file_tier_tokens>("cairn_prompt_tokens_total", "file_tier"),
    field<&ManagerStats::computed_tokens>("cairn_prompt_tokens_total", "computed"),
    no_sample<&ManagerStats::matched_tokens>(),  // the sum of cairn_matched_tokens
    field<&ManagerStats::stateless_tokens>("cairn_stateless_tokens_total"),
    field<&ManagerStats::uncacheable_media>("cairn_uncacheable_media_requests_total"),
    field<&ManagerStats::refused_admissions>("cairn_refusals_total", "admit"),
    field<&ManagerStats::refused_reserves>("cairn_refusals_total", "reserve"),
    field<&ManagerStats::published_blocks>("cairn_published_blocks_total"),
    field<&ManagerStats::deduplicated_blocks>("cairn_deduplicated_blocks_total"),
    field<&ManagerStats::evicted_blocks>("cairn_evicted_blocks_total"),
    field<&ManagerStats::captures_published>("cairn_captures_total", "published"),
    field<&ManagerStats::captures_declined>("cairn_captures_total", "declined"),
    field<&ManagerStats::captures_abandoned>("cairn_captures_total", "abandoned"),
    field<&ManagerStats::evicted_snapshots>("cairn_evicted_snapshots_total"),
    no_sample<&ManagerStats::captures>(),  // kCaptureFields
    field<&ManagerStats::finished>("cairn_ended_leases_total", "finished"),
    field<&ManagerStats::preempted>("cairn_ended_leases_total", "preempted"),
    field<&ManagerStats::abandoned>("cairn_ended_leases_total", "abandoned"),
    field<&ManagerStats::waits>("cairn_step_waits_total"),
    field<&ManagerStats::forks>("cairn_forks_total"),
    field<&ManagerStats::failed_steps>("cairn_failed_steps_total"),
    field<&ManagerStats::spilled_blocks>("cairn_spilled_records_total", "block"),
    field<&ManagerStats::spilled_snapshots>("cairn_spilled_records_total", "snapshot"),
    field<&ManagerStats::spilled_bytes>("cairn_spilled_bytes_total"),
    field<&ManagerStats::declined_spills>("cairn_declined_spills_total"),
    field<&ManagerStats::fetches>("cairn_fetches_total"),
    field<&ManagerStats::failed_fetches>("cairn_failed_fetches_total"),
    field<&ManagerStats::unprofitable_fetches>("cairn_unprofitable_fetches_total"),
    field<&ManagerStats::fetched_blocks>("cairn_fetched_records_total", "block"),
    field<&ManagerStats::fetched_snapshots>("cairn_fetched_records_total", "snapshot"),
    field<&ManagerStats::fetched_bytes>("cairn_fetched_bytes_total"),
    field<&ManagerStats::recovered_blocks>("cairn_recovered_records_total", "block"),
    field<&ManagerStats::recovered_snapshots>("cairn_recovered_records_total", "snapshot"),
    field<&ManagerStats::useless_records>("cairn_recovered_records_total", "useless"),
    field<&ManagerStats::ram_fetch_bytes_per_s>("cairn_fetch_bytes_per_second", "ram"),
    field<&ManagerStats::file_fetch_bytes_per_s>("cairn_fetch_bytes_per_second", "file"),
    field<&ManagerStats::prefill_tokens_per_s>("cairn_prefill_tokens_per_second"),
    field<&ManagerStats::loading_leases>("cairn_loading_leases"),
    field<&ManagerStats::recorded_blocks>("cairn_recorded_blocks"),
    field<&ManagerStats::live_leases>("cairn_live_leases"),
    field<&ManagerStats::waiting_for_steps>("cairn_waiting_leases"),
    no_sample<&ManagerStats::pinned_snapshots>(),         // as RadixTreeCounters has it
    no_sample<&ManagerStats::resident_snapshot_bytes>(),  // the same
    field<&ManagerStats::steps_in_flight>("cairn_steps_in_flight"),
    field<&ManagerStats::blocks_held_by_clears>("cairn_cleared_blocks_held"),
});

template <auto kKind, auto kMember>
consteval Field<CapturesByKind> capture_field(std::string_view name, std::string_view kind) {
  return {family(name), kind,
          [](const CapturesByKind& captures) { return static_cast<double>((captures.*kKind).*kMember); }};
}

template <auto kKind>
consteval auto capture_fields(std::string_view kind) {
  const auto fields = std::to_array<Field<CapturesByKind>>({
      capture_field<kKind, &CaptureStats::captures>("cairn_published_captures_total", kind),
      capture_field<kKind, &CaptureStats::bytes>("cairn_captured_bytes_total", kind),
      capture_field<kKind, &CaptureStats::uses>("cairn_snapshot_uses_total", kind),
      capture_field<kKind, &CaptureStats::reused_tokens>("cairn_snapshot_reused_tokens_total", kind),
  });
  static_assert(fields.size() == boost::pfr::tuple_size_v<CaptureStats>, "as in fields_of");
  return fields;
}

inline constexpr auto kCaptureFields = std::to_array({
    capture_fields<&CapturesByKind::tails>("tail"),
    capture_fields<&CapturesByKind::siblings>("sibling"),
    capture_fields<&CapturesByKind::branch_points>("branch_point"),
    capture_fields<&CapturesByKind::shared_tails>("shared_tail"),
    capture_fields<&CapturesByKind::checkpoints>("checkpoint"),
    capture_fields<&CapturesByKind::last_tokens>("last_token"),
    capture_fields<&CapturesByKind::from_store>("from_store"),
});
static_assert(kCaptureFields.size() == boost::pfr::tuple_size_v<CapturesByKind>, "as in fields_of");

inline constexpr auto kIndexFields = fields_of<RadixTreeCounters>({
    field<&RadixTreeCounters::lookups>("cairn_index_lookups_total"),
    field<&RadixTreeCounters::hit_tokens>("cairn_index_lookup_tokens_total", "hit"),
    field<&RadixTreeCounters::missed_tokens>("cairn_index_lookup_tokens_total", "miss"),
    field<&RadixTreeCounters::nodes_created>("cairn_index_created_blocks_total"),
    field<&RadixTreeCounters::nodes_evicted>("cairn_index_removed_blocks_total", "evicted"),
    field<&RadixTreeCounters::nodes_cleared>("cairn_index_removed_blocks_total", "cleared"),
    field<&RadixTreeCounters::plain_snapshot_hits>("cairn_index_snapshot_hits_total", "plain"),
    field<&RadixTreeCounters::tail_snapshot_hits>("cairn_index_snapshot_hits_total", "tail"),
    field<&RadixTreeCounters::sibling_snapshot_hits>("cairn_index_snapshot_hits_total", "sibling"),
    field<&RadixTreeCounters::spilled_snapshot_hits>("cairn_index_spilled_snapshot_hits_total"),
    field<&RadixTreeCounters::snapshot_gap_tokens>("cairn_index_snapshot_gap_tokens_total"),
    field<&RadixTreeCounters::snapshots_put>("cairn_index_put_snapshots_total"),
    field<&RadixTreeCounters::snapshots_replaced>("cairn_index_replaced_snapshots_total"),
    field<&RadixTreeCounters::tails_replaced>("cairn_index_replaced_tails_total"),
    field<&RadixTreeCounters::snapshots_evicted>("cairn_index_evicted_snapshots_total"),
    field<&RadixTreeCounters::spills>("cairn_index_spilled_snapshots_total"),
    field<&RadixTreeCounters::promotions>("cairn_index_promoted_snapshots_total"),
    field<&RadixTreeCounters::forgotten_keys>("cairn_index_forgotten_records_total", "snapshot"),
    field<&RadixTreeCounters::orphaned_keys>("cairn_index_orphaned_keys_total"),
    field<&RadixTreeCounters::blocks_spilled>("cairn_index_spilled_blocks_total"),
    field<&RadixTreeCounters::blocks_saved>("cairn_index_saved_blocks_total"),
    field<&RadixTreeCounters::forgotten_blocks>("cairn_index_forgotten_records_total", "block"),
    field<&RadixTreeCounters::protocol_errors>("cairn_index_protocol_errors_total"),
    field<&RadixTreeCounters::pinned_snapshots>("cairn_pinned_snapshots"),
    no_sample<&RadixTreeCounters::resident_snapshot_bytes>(),  // cairn_snapshot_memory_bytes, without those being
                                                               // filled
});

inline constexpr auto kStoreFields = fields_of<SpillStats>({
    field<&SpillStats::puts>("cairn_store_puts_total"),
    field<&SpillStats::puts_dropped>("cairn_store_dropped_puts_total"),
    no_sample<&SpillStats::gets>(),  // the sum of the results, and those under way
    field<&SpillStats::found_in_ram>("cairn_store_gets_total", "ram"),
    field<&SpillStats::found_in_file>("cairn_store_gets_total", "file"),
    field<&SpillStats::shared_reads>("cairn_store_shared_reads_total"),
    field<&SpillStats::misses>("cairn_store_gets_total", "missing"),
    field<&SpillStats::failed_gets>("cairn_store_gets_total", "failed"),
    field<&SpillStats::evicted_records>("cairn_store_removed_records_total", "evicted"),
    field<&SpillStats::erased_records>("cairn_store_removed_records_total", "erased"),
    field<&SpillStats::damaged_records>("cairn_store_removed_records_total", "damaged"),
    field<&SpillStats::io_errors>("cairn_store_io_errors_total"),
    field<&SpillStats::written_bytes>("cairn_store_written_bytes_total"),
    field<&SpillStats::read_bytes>("cairn_store_read_bytes_total"),
    field<&SpillStats::recovered_records>("cairn_store_recovered_records_total"),
    field<&SpillStats::ram_records>("cairn_store_records", "ram"),
    field<&SpillStats::ram_bytes>("cairn_store_bytes", "ram"),
    field<&SpillStats::file_records>("cairn_store_records", "file"),
    field<&SpillStats::file_bytes>("cairn_store_bytes", "file"),
    field<&SpillStats::pending>("cairn_store_pending_operations"),
    field<&SpillStats::degraded>("cairn_store_degraded"),
    no_sample<&SpillStats::degraded_reason>(),  // in /stats
    no_sample<&SpillStats::io>(),               // the label of cairn_store_info
});

// Of either pool.
template <std::size_t kFamily>
consteval auto pool_fields() {
  constexpr std::string_view kName = kCatalogue[kFamily].name;
  return fields_of<PoolErrors>({
      field<&PoolErrors::unknown_ids>(kName, "unknown_id"), field<&PoolErrors::not_in_use>(kName, "not_in_use"),
      field<&PoolErrors::count_limits>(kName, "count_limit"), field<&PoolErrors::wrong_states>(kName, "wrong_state"),
      no_sample<&PoolErrors::last>(),  // in /stats
  });
}
inline constexpr auto kBlockPoolFields = pool_fields<family("cairn_block_pool_errors_total")>();
inline constexpr auto kSnapshotPoolFields = pool_fields<family("cairn_snapshot_pool_errors_total")>();

}  // namespace cairn

#endif  // CAIRN_METRICS_CATALOGUE_H_
