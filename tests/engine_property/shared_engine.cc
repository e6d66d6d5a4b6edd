#include "engine_property/shared_engine.h"

#include <fmt/format.h>

#include "replay/verifying_model.h"

namespace cairn::testing {

SharedEngine::SharedEngine(const EngineSettings& settings) : settings_(settings) {
  constexpr std::size_t kShardBytes = 16;
  if (settings.blocks > 0) {
    blocks_ = std::make_shared<BlockPool>(
        BlockPoolOptions{.blocks = settings.blocks, .block_bytes = settings.block_size * replay::kKvBytesPerToken});
  }
  if (settings.slots > 0) {
    slots_ = std::make_shared<SnapshotPool>(SnapshotPoolOptions{
        .slots = settings.slots, .slot_bytes = settings.shards * kShardBytes, .shards = settings.shards});
  }
  manager_.emplace(CacheManagerOptions{.block_size = settings.block_size,
                                       .blocks = blocks_,
                                       .snapshots = slots_,
                                       .share_snapshots_across_sessions = settings.share_snapshots_across_sessions,
                                       .capture_tails = settings.capture_tails,
                                       .capture_branch_points = settings.capture_branch_points,
                                       .checkpoint_every_tokens = settings.checkpoint_every_tokens,
                                       .adapters_max = settings.adapters_max,
                                       .media_max = settings.media_max,
                                       .hash_seed = 1});
  engine_.emplace(replay::VerifyingEngineOptions{.manager = *manager_,
                                                 .block_size = settings.block_size,
                                                 .blocks = blocks_,
                                                 .snapshots = slots_,
                                                 .strict = true});
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
