// The engine of the other tests with bytes in its blocks, and a store that does as it is told.
#ifndef CAIRN_ENGINE_TIERS_FIXTURE_H_
#define CAIRN_ENGINE_TIERS_FIXTURE_H_

#include <cairn/spill_store.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/engine_fixture.h"
#include "support/held_store.h"

namespace cairn {

using testing::HeldStore;

// The KV of a token is a number that all tokens up to it, and the adapter, decide.
class TiersTest : public ::testing::Test {
 protected:
  struct Sizes {
    std::size_t blocks = 8;  // 0: no attention layers
    std::size_t slots = 0;   // 0: no recurrent layers
    std::shared_ptr<Device> device{};
    std::size_t record_tokens = 0;
  };

  static constexpr std::size_t kBlockBytes = kBlockSize * sizeof(std::uint64_t);
  static constexpr std::size_t kSlotBytes = 64;
  static constexpr std::size_t kShards = 2;

  void start(const Sizes& sizes, CacheManagerOptions options = {}, std::shared_ptr<HeldStore> store = nullptr) {
    stop();
    if (sizes.blocks > 0) {
      blocks_ = std::make_shared<BlockPool>(
          BlockPoolOptions{.blocks = sizes.blocks, .block_bytes = kBlockBytes, .device = sizes.device});
    }
    if (sizes.slots > 0) {
      slots_ = std::make_shared<SnapshotPool>(SnapshotPoolOptions{
          .slots = sizes.slots, .slot_bytes = kSlotBytes, .shards = kShards, .device = sizes.device});
    }
    store_ = store ? std::move(store)
                   : std::make_shared<HeldStore>(SpillLayout{.fingerprint = {.weights = "w"},
                                                             .block_size = kBlockSize,
                                                             .block_bytes = sizes.blocks > 0 ? kBlockBytes : 0,
                                                             .snapshot_bytes = sizes.slots > 0 ? kSlotBytes : 0,
                                                             .record_tokens = sizes.record_tokens});
    options.block_size = kBlockSize;
    options.blocks = blocks_;
    options.snapshots = slots_;
    options.store = store_;
    if (options.spill.fetch_tokens_min == SpillOptions{}.fetch_tokens_min) options.spill.fetch_tokens_min = 1;
    manager_.emplace(std::move(options));
  }
  void TearDown() override { stop(); }

  // The process ends and starts again: memory is empty, the store has what it had.
  void restart(const Sizes& sizes, CacheManagerOptions options = {}) {
    auto store = store_->started_again();
    start(sizes, std::move(options), std::move(store));
  }

  CacheManager& manager() { return *manager_; }
  [[nodiscard]] ManagerStats stats() const { return manager_->stats(); }
  [[nodiscard]] Peeked peek(const Request& request) const { return manager_->peek(request); }

  Lease admit(const Request& request) {
    Admission admission = manager_->admit(request);
    if (!admission.lease) throw std::runtime_error("the request was not admitted");
    return std::move(*admission.lease);
  }

  // ---- What an engine does ----

  [[nodiscard]] std::uint64_t kv(const Request& request, std::size_t token) const {
    std::uint64_t value = request.adapter.size() * 31 + request.tenant_salt.size() * 17 + request.adapter_generation;
    for (std::size_t i = 0; i <= token; ++i) value = value * 1'000'003 + request.tokens[i];
    return value;
  }
  // All that is cached holds what it should; then restores and computes up to token `to`.
  void compute(Lease& lease, const Request& request, std::size_t to) {
    check_blocks(lease, request);
    if (lease.restore_point() || lease.written_tokens() == lease.first_token_to_compute()) check_state(lease, request);
    for (const BlockCopy& copy : lease.copies()) {
      std::memcpy(blocks_->data(copy.to), blocks_->data(copy.from), copy.tokens * sizeof(std::uint64_t));
    }
    lease.restored();
    const std::size_t from = lease.written_tokens();
    if (from >= to) return;
    const StepId step = next_step_++;
    lease.writes(step, from, to);
    for (std::size_t token = from; blocks_ && token < to; ++token) {
      const std::uint64_t value = kv(request, token);
      std::memcpy(blocks_->data(lease.block_table()[token / kBlockSize]) + token % kBlockSize * sizeof value, &value,
                  sizeof value);
    }
    manager_->step_done(step);
  }
  void check(const Lease& lease, const Request& request) const {
    check_blocks(lease, request);
    check_state(lease, request);
  }
  void check_blocks(const Lease& lease, const Request& request) const {
    for (std::size_t token = 0; blocks_ && token < lease.first_token_to_compute(); ++token) {
      BlockId block = lease.block_table()[token / kBlockSize];
      for (const BlockCopy& copy : lease.copies()) {
        if (copy.to == block) block = copy.from;
      }
      std::uint64_t value = 0;
      std::memcpy(&value, blocks_->data(block) + token % kBlockSize * sizeof value, sizeof value);
      ASSERT_EQ(value, kv(request, token)) << "token " << token;
    }
  }
  void check_state(const Lease& lease, const Request& request) const {
    if (!slots_ || lease.first_token_to_compute() == 0) return;
    ASSERT_TRUE(lease.restore_point());
    EXPECT_EQ(lease.restore_point()->tokens, lease.first_token_to_compute());
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      std::uint64_t value = 0;
      std::memcpy(&value, slots_->data(lease.restore_point()->slot, shard), sizeof value);
      ASSERT_EQ(value, kv(request, lease.first_token_to_compute() - 1) + shard);
    }
  }
  void capture(Lease& lease, const Request& request, std::size_t tokens) {
    const auto slot = lease.capture(tokens);
    ASSERT_TRUE(slot);
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      const std::uint64_t value = kv(request, tokens - 1) + shard;
      std::memcpy(slots_->data(*slot, shard), &value, sizeof value);
      lease.captured(*slot, shard);
    }
  }
  // A request from its admission to its end, with states at those places.
  void cache(const Request& request, std::initializer_list<std::size_t> states = {}) {
    Lease lease = admit(request);
    for (const std::size_t at : states) {
      compute(lease, request, at);
      capture(lease, request, at);
    }
    compute(lease, request, request.tokens.size());
    lease.finish();
  }
  // Everything that can leaves the blocks for the store.
  void push_out_blocks() {
    Lease lease =
        admit({.tokens = Tokens(blocks_->total_blocks() * kBlockSize, 7), .no_read = true, .no_publish = true});
    lease.abandon();
  }
  // The same for the slots, by states that are not kept.
  void push_out_states() {
    Tokens prompt(slots_->total_slots() + 1, 9);
    Lease lease = admit({.tokens = prompt, .no_read = true});
    lease.restored();
    lease.writes(next_step_, 0, prompt.size());
    manager_->step_done(next_step_++);
    for (std::size_t at = 1; at <= slots_->total_slots(); ++at) EXPECT_TRUE(lease.capture(at));
    lease.abandon();
  }

  std::shared_ptr<BlockPool> blocks_;
  std::shared_ptr<SnapshotPool> slots_;
  std::shared_ptr<HeldStore> store_;
  std::optional<CacheManager> manager_;
  StepId next_step_ = 1000;

 private:
  void stop() {
    if (!manager_) return;
    EXPECT_EQ(manager_->validate(), "");
    const ManagerStats s = manager_->stats();
    EXPECT_EQ(s.prompt_tokens, s.reused_from_memory_tokens + s.reused_from_ram_tier_tokens +
                                   s.reused_from_file_tier_tokens + s.computed_tokens);
    EXPECT_EQ(s.loading_leases, 0U);
    check_histograms(*manager_);
    manager_.reset();
    if (blocks_) {
      EXPECT_EQ(blocks_->used_blocks(), 0U);
      EXPECT_EQ(blocks_->errors().last, "");
    }
    if (slots_) {
      EXPECT_EQ(slots_->used_slots(), 0U);
      EXPECT_EQ(slots_->errors().last, "");
    }
    EXPECT_EQ(store_->buffers()->used_bytes(), 0U);
    blocks_ = nullptr;
    slots_ = nullptr;
  }
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_TIERS_FIXTURE_H_
