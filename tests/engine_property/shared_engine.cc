#include "engine_property/shared_engine.h"

#include <fmt/format.h>

#include "engine_property/broken.h"
#include "engine_property/manager_counts.h"
#include "replay/verifying_model.h"

namespace cairn::testing {

SharedEngine::SharedEngine(const EngineSettings& settings, std::shared_ptr<FaultPlan> faults)
    : settings_(settings), tiers_(settings, std::move(faults)) {
  if (settings.blocks > 0) {
    blocks_ =
        std::make_shared<BlockPool>(BlockPoolOptions{.blocks = settings.blocks,
                                                     .block_bytes = settings.block_size * replay::kKvBytesPerToken,
                                                     .device = tiers_.device()});
  }
  if (settings.slots > 0) {
    slots_ = std::make_shared<SnapshotPool>(SnapshotPoolOptions{.slots = settings.slots,
                                                                .slot_bytes = settings.shards * kShardBytes,
                                                                .shards = settings.shards,
                                                                .device = tiers_.device()});
  }
  start_manager();
  engine_.emplace(replay::VerifyingEngineOptions{.manager = *manager_,
                                                 .block_size = settings.block_size,
                                                 .blocks = blocks_,
                                                 .snapshots = slots_,
                                                 .strict = true});
}

void SharedEngine::start_manager() {
  manager_.emplace(CacheManagerOptions{.block_size = settings_.block_size,
                                       .blocks = blocks_,
                                       .snapshots = slots_,
                                       .store = tiers_.store(),
                                       .spill = tiers_.spill(),
                                       .share_snapshots_across_sessions = settings_.share_snapshots_across_sessions,
                                       .capture_tails = settings_.capture_tails,
                                       .capture_branch_points = settings_.capture_branch_points,
                                       .checkpoint_every_tokens = settings_.checkpoint_every_tokens,
                                       .adapters_max = settings_.adapters_max,
                                       .media_max = settings_.media_max,
                                       .hash_seed = 1});
}

// The engine knows where the manager is: the next one is at the same place.
void SharedEngine::restart(bool empty) {
  past_ = stats_in_all();
  manager_.reset();
  tiers_.quiesce();
  if (const std::string left = what_is_left(); !left.empty()) throw Broken("at a restart " + left);
  tiers_.open_again(empty);
  start_manager();
}

ManagerStats SharedEngine::stats_in_all() const {
  ManagerStats sum = manager_->stats();
  for (const CountOfManager& count : kCountsOfManager) sum.*count.field += past_.*count.field;
  return sum;
}

// Old weights are right until the manager has said that it has cleared: if it throws, they stay.
template <class Clear>
ClearReport SharedEngine::clear_with_new_weights(std::size_t first, std::size_t last, Clear clear) {
  struct Going {
    std::atomic<std::uint64_t>& clears;
    explicit Going(std::atomic<std::uint64_t>& count) : clears(count) { ++clears; }
    Going(const Going&) = delete;
    Going& operator=(const Going&) = delete;
    ~Going() { ++clears; }
  };
  const Going going(clears_);
  const ClearReport report = clear();
  for (std::size_t adapter = first; adapter < last; ++adapter) ++weights_[adapter];
  return report;
}

ClearReport SharedEngine::clear() {
  return clear_with_new_weights(0, weights_.size(), [this] { return manager_->clear(); });
}

ClearReport SharedEngine::clear(std::size_t adapter) {
  return clear_with_new_weights(adapter, adapter + 1, [&] { return manager_->clear(kAdapterNames[adapter]); });
}

std::string SharedEngine::what_is_left() const {
  if (blocks_) {
    if (const std::string wrong = blocks_->validate(); !wrong.empty()) return "block pool: " + wrong;
    if (const PoolErrors errors = blocks_->errors(); !errors.last.empty()) return "block pool: " + errors.last;
    if (blocks_->used_blocks() > 0) return fmt::format("{} blocks are still in use", blocks_->used_blocks());
  }
  if (slots_) {
    if (const std::string wrong = slots_->validate(); !wrong.empty()) return "snapshot pool: " + wrong;
    if (const PoolErrors errors = slots_->errors(); !errors.last.empty()) return "snapshot pool: " + errors.last;
    if (slots_->used_slots() > 0) return fmt::format("{} slots are still in use", slots_->used_slots());
  }
  return {};
}

}  // namespace cairn::testing
