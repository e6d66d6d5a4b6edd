// One cache manager with its pools and the verifying engine on top, which one driver or several share.
#ifndef CAIRN_TESTS_ENGINE_PROPERTY_SHARED_ENGINE_H_
#define CAIRN_TESTS_ENGINE_PROPERTY_SHARED_ENGINE_H_

#include <cairn/block_pool.h>
#include <cairn/cache_manager.h>
#include <cairn/snapshot_pool.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine_property/engine_program.h"
#include "engine_property/test_tiers.h"
#include "replay/verifying_engine.h"

namespace cairn::testing {

inline constexpr std::array<std::string_view, 3> kAdapterNames = {"", "a", "b"};

// Thread-safe but for destroy_manager() and restart().
class SharedEngine {
 public:
  explicit SharedEngine(const EngineSettings& settings, std::shared_ptr<FaultPlan> faults = nullptr);

  [[nodiscard]] const EngineSettings& settings() const { return settings_; }
  [[nodiscard]] CacheManager& manager() { return *manager_; }
  [[nodiscard]] replay::VerifyingEngine& engine() { return *engine_; }
  [[nodiscard]] BlockPool* blocks() { return blocks_.get(); }
  [[nodiscard]] SnapshotPool* slots() { return slots_.get(); }

  // A clear comes with new weights: whoever is handed something from before it sees other bytes than it expects.
  // One thread at a time may clear.
  [[nodiscard]] std::uint64_t weights(std::size_t adapter) const { return weights_[adapter].load(); }
  ClearReport clear();
  ClearReport clear(std::size_t adapter);
  // Even: no clear is going on. Compared before and after, it tells whether weights() is what an admission between the
  // two has to go by.
  [[nodiscard]] std::uint64_t clears() const { return clears_.load(); }

  [[nodiscard]] TestTiers& tiers() { return tiers_; }
  // What the manager has counted, and those before it.
  [[nodiscard]] ManagerStats stats_in_all() const;

  // Sequences may live on.
  void destroy_manager() { manager_.reset(); }
  // The manager and the store go, then come again. There are no sequences. `empty`: the store has nothing.
  void restart(bool empty);
  // What is wrong with the pools when all leases and the manager are gone; empty if they are whole.
  [[nodiscard]] std::string what_is_left() const;

 private:
  void start_manager();
  template <class Clear>
  ClearReport clear_with_new_weights(std::size_t first, std::size_t last, Clear clear);

  const EngineSettings settings_;
  TestTiers tiers_;
  std::shared_ptr<BlockPool> blocks_;
  std::shared_ptr<SnapshotPool> slots_;
  std::optional<CacheManager> manager_;
  ManagerStats past_;
  std::optional<replay::VerifyingEngine> engine_;
  std::array<std::atomic<std::uint64_t>, kAdapterNames.size()> weights_{};
  std::atomic<std::uint64_t> clears_{0};
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_ENGINE_PROPERTY_SHARED_ENGINE_H_
