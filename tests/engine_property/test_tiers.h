// The store below a cache manager under test, whichever the settings want: opened, opened again, and looked after.
#ifndef CAIRN_TESTS_ENGINE_PROPERTY_TEST_TIERS_H_
#define CAIRN_TESTS_ENGINE_PROPERTY_TEST_TIERS_H_

#include <cairn/cache_manager.h>
#include <cairn/spill_store.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine_property/engine_program.h"
#include "engine_property/late_device.h"
#include "support/faulty_io.h"
#include "support/held_store.h"

namespace cairn::testing {

// Thread-safe but for open_again() and what is said to be for one thread.
class TestTiers {
 public:
  // With a plan, files are read and written through a FaultyIo that follows it.
  TestTiers(const EngineSettings& settings, std::shared_ptr<FaultPlan> faults);
  TestTiers(const TestTiers&) = delete;
  TestTiers& operator=(const TestTiers&) = delete;
  ~TestTiers();

  [[nodiscard]] bool any() const { return settings_.store != StoreKind::kNone; }
  [[nodiscard]] bool has_files() const {
    return settings_.store == StoreKind::kFile || settings_.store == StoreKind::kRamBeforeFile;
  }
  [[nodiscard]] const std::shared_ptr<SpillStore>& store() const { return store_; }
  // Null unless the settings want it. For one thread.
  [[nodiscard]] HeldStore* held() const { return held_.get(); }
  [[nodiscard]] const std::shared_ptr<LateDevice>& device() const { return device_; }
  [[nodiscard]] SpillOptions spill() const;
  // Nothing of the disk's or the store's making can go wrong.
  [[nodiscard]] bool is_reliable() const { return faults_ == nullptr; }
  // Some faults can keep a flush from saying that it has done.
  [[nodiscard]] std::chrono::milliseconds flush_timeout() const;

  // Does what waits for somebody: answers gets, completes copies. Whether there was anything.
  bool pump();
  // Gets or copies are held back.
  [[nodiscard]] bool holds() const;
  // Until nothing is under way. Throws Broken if that takes very long. For one thread.
  void quiesce();
  // The store goes, and another one has what it had at rest. Nobody uses it. `empty`: it has nothing.
  void open_again(bool empty);

  // Limits and counts, as they are at any time. Empty, or what is wrong.
  [[nodiscard]] std::string validate() const;
  // The same for files, whose blocks are counted on disk.
  [[nodiscard]] std::string validate_files() const;
  // When nobody uses the store any more and it has gone: what is left in its buffers. Once, at the end.
  [[nodiscard]] std::string what_is_left();
  // Since the first store was opened.
  [[nodiscard]] SpillStats stats() const;

 private:
  void open();
  [[nodiscard]] std::shared_ptr<SpillStore> open_files();
  [[nodiscard]] std::shared_ptr<SpillStore> make_ram() const;
  [[nodiscard]] std::size_t record_bytes() const;

  const EngineSettings settings_;
  const std::shared_ptr<FaultPlan> faults_;
  std::string directory_;  // empty: none
  std::shared_ptr<SpillBuffers> buffers_;
  std::shared_ptr<LateDevice> device_;
  std::shared_ptr<SpillStore> store_;
  std::shared_ptr<HeldStore> held_;
  SpillStats past_;  // of stores before this one
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_ENGINE_PROPERTY_TEST_TIERS_H_
