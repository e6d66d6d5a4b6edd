// The stores behind a verified replay: in RAM, in files, or one before the other.
#ifndef CAIRN_REPLAY_REPLAY_TIERS_H_
#define CAIRN_REPLAY_REPLAY_TIERS_H_

#include <cairn/cache_manager.h>
#include <cairn/spill_store.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace cairn::replay {

// The verifying engine computes in no time, so its prefill rate means nothing: what fetching is weighed against is
// given instead.
inline constexpr double kPrefillTokensPerS = 10'000;

struct TierOptions {
  std::size_t ram_bytes = 0;     // of records, header included; 0: no RAM tier
  std::string directory{};       // of the file tier; empty: there is none
  std::uint64_t file_bytes = 0;  // on disk
  bool reinitialize = false;     // empties a directory that holds records of another model or layout
  SpillOptions spill{.prefill_tokens_per_s = kPrefillTokensPerS};
  // The verifying engine evicts as fast as it can, where a real one has to compute in between. So before each request
  // the file tier may catch up, if more puts than this are under way. Of what it can't take, records are lost.
  std::size_t pending_max = 256;
  std::chrono::milliseconds load_timeout{60'000};  // a lease that is loading for longer is an error
  std::chrono::milliseconds catch_up_timeout{10'000};
  std::chrono::milliseconds save_timeout{60'000};
  // For tests: makes the file tier. `directory` and what belongs to it are not looked at then.
  std::function<std::shared_ptr<SpillStore>(std::shared_ptr<SpillBuffers>)> make_file_store{};

  [[nodiscard]] bool has_file_tier() const { return make_file_store || !directory.empty(); }
};

// What the records of a replay have in common, for a model with blocks and snapshots of so many bytes (0: without).
[[nodiscard]] SpillLayout replay_layout(std::size_t block_size, std::size_t block_bytes, std::size_t snapshot_bytes);

// What a block takes in a tier, header included.
[[nodiscard]] std::size_t block_record_bytes(const SpillLayout& layout);

struct Tiers {
  std::shared_ptr<SpillStore> store{};  // for the manager
  std::shared_ptr<SpillStore> files{};  // the file tier in it; null: there is none
};
// Throws std::invalid_argument: neither tier; a directory without bytes, or bytes without a directory; what the stores
// refuse. Throws std::runtime_error: the directory can't be opened.
[[nodiscard]] Tiers open_tiers(const TierOptions& options, const SpillLayout& layout);

// What the tiers did in one replay. Of what ManagerStats counts: as of the last request's end, before the save.
struct TierResult {
  std::uint64_t reused_from_memory_tokens = 0;  // the three and computed_tokens add up to prompt_tokens
  std::uint64_t reused_from_ram_tier_tokens = 0;
  std::uint64_t reused_from_file_tier_tokens = 0;
  std::uint64_t spilled_blocks = 0;
  std::uint64_t spilled_snapshots = 0;
  std::uint64_t spilled_bytes = 0;    // payload of both
  std::uint64_t declined_spills = 0;  // by the store: lost
  std::uint64_t fetches = 0;          // requests that were loading
  std::uint64_t failed_fetches = 0;
  std::uint64_t failed_leases = 0;         // of those: admitted again, without the store
  std::uint64_t unprofitable_fetches = 0;  // requests that computed what could have been fetched
  std::uint64_t fetched_blocks = 0;
  std::uint64_t fetched_snapshots = 0;
  std::uint64_t fetched_bytes = 0;  // payload of both
  double fetch_time_s = 0;          // from admission to the end of loading, of all requests that were loading
  double catch_up_time_s = 0;       // that the file tier was waited for, between requests
  std::uint64_t recovered_blocks = 0;
  std::uint64_t recovered_snapshots = 0;
  std::uint64_t useless_records = 0;  // recovered, but what they hang on was lost
  SpillStats store;                   // at the end, after the save
  double open_time_s = 0;             // the stores, and the index of what they had
  std::optional<SaveReport> save;     // with a file tier
  double save_time_s = 0;             // flush included

  [[nodiscard]] double fetch_bytes_per_s() const;  // fetched_bytes / fetch_time_s; 0 if there was none
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_REPLAY_TIERS_H_
