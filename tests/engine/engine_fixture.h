// What the tests of CacheManager and Lease share: an engine that does as it is told, and its books at the end.
#ifndef CAIRN_ENGINE_ENGINE_FIXTURE_H_
#define CAIRN_ENGINE_ENGINE_FIXTURE_H_

#include <cairn/cache_manager.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

using Tokens = std::vector<TokenId>;
using Blocks = std::vector<BlockId>;

inline constexpr std::size_t kBlockSize = 4;

// One token for each character; spaces are there for the reader and mean nothing. tokens("aaaa bbbb") are two blocks.
inline Tokens tokens(std::string_view text) {
  Tokens result;
  for (const char c : text) {
    if (c != ' ') result.push_back(static_cast<TokenId>(static_cast<unsigned char>(c)));
  }
  return result;
}

inline Blocks table_of(const Lease& lease) {
  return {lease.block_table().begin(), lease.block_table().end()};
}

inline std::vector<CapturePoint> points_of(const Lease& lease) {
  return {lease.capture_points().begin(), lease.capture_points().end()};
}

inline std::uint64_t count_of(const Histogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), std::uint64_t{0});
}

// They go with the counts.
inline void check_histograms(const CacheManager& manager) {
  const ManagerStats s = manager.stats();
  const ManagerHistograms histograms = manager.histograms();
  if (!manager.options().histograms) return;
  EXPECT_EQ(count_of(histograms.matched_tokens), s.requests);
  EXPECT_EQ(histograms.matched_tokens.sum, static_cast<double>(s.matched_tokens));
  EXPECT_EQ(count_of(histograms.admit_seconds), s.requests + s.resumed + s.loading_leases);
  EXPECT_LE(count_of(histograms.load_seconds), s.fetches - s.loading_leases);
}

// Runs `call`, which has to throw std::invalid_argument with all of `parts` in its message.
inline void expect_refusal(const auto& call, std::initializer_list<std::string_view> parts) {
  try {
    call();
    ADD_FAILURE() << "was not refused; expected: " << ::testing::PrintToString(std::vector(parts));
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("cairn: "));
    for (const std::string_view part : parts) EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(part)));
  }
}

// blocks 0: no attention layers; slots 0: no recurrent layers.
struct Pools {
  std::size_t blocks = 0;
  std::size_t slots = 0;
  std::size_t shards = 1;
};

// At the end of each test the manager is whole and its counts add up; then it goes, and each pool is whole as well.
class EngineTest : public ::testing::Test {
 protected:
  explicit EngineTest(const Pools& pools) { start(pools); }

  // From the beginning, with other pools or options.
  void start(const Pools& pools, CacheManagerOptions options = {}) {
    stop();
    blocks_ = pools.blocks > 0 ? std::make_shared<BlockPool>(BlockPoolOptions{.blocks = pools.blocks}) : nullptr;
    slots_ = pools.slots > 0 ? std::make_shared<SnapshotPool>(SnapshotPoolOptions{
                                   .slots = pools.slots, .slot_bytes = 8 * pools.shards, .shards = pools.shards})
                             : nullptr;
    options.block_size = kBlockSize;
    options.blocks = blocks_;
    options.snapshots = slots_;
    manager_.emplace(std::move(options));
  }

  void TearDown() override { stop(); }

  CacheManager& manager() { return *manager_; }
  [[nodiscard]] ManagerStats stats() const { return manager_->stats(); }
  [[nodiscard]] std::size_t used_blocks() const { return blocks_->used_blocks(); }
  [[nodiscard]] std::size_t used_slots() const { return slots_->used_slots(); }
  // The manager goes; leases and pools stay.
  void destroy_manager() {
    check_manager();
    manager_.reset();
  }

  // ---- What an engine does ----

  Lease admit(const Request& request) {
    Admission admission = manager_->admit(request);
    if (!admission.lease) throw std::runtime_error("the request was not admitted");
    return std::move(*admission.lease);
  }
  // Restores, and computes up to token `to` in one step.
  void compute(Lease& lease, std::size_t to) {
    lease.restored();
    const std::size_t from = lease.written_tokens();
    if (from >= to) return;
    const StepId step = next_step_++;
    lease.writes(step, from, to);
    manager_->step_done(step);
  }
  void compute(Lease& lease) { compute(lease, lease.tokens()); }
  // A request from its admission to its end.
  void cache(const Request& request) {
    Lease lease = admit(request);
    compute(lease);
    lease.finish();
  }

  // The stand-in for state: how many tokens it has consumed.
  void fill(SnapshotId slot, std::size_t shard, std::size_t state) {
    std::memcpy(slots_->data(slot, shard), &state, sizeof state);
  }
  [[nodiscard]] std::size_t state_in(SnapshotId slot, std::size_t shard = 0) const {
    std::size_t state = 0;
    std::memcpy(&state, slots_->data(slot, shard), sizeof state);
    return state;
  }
  // Captures the state at `tokens`, all shards of it. False if there was no slot.
  bool capture(Lease& lease, std::size_t tokens) {
    const auto slot = lease.capture(tokens);
    if (!slot) return false;
    for (std::size_t shard = 0; shard < slots_->shards(); ++shard) {
      fill(*slot, shard, tokens);
      EXPECT_EQ(lease.captured(*slot, shard), shard + 1 == slots_->shards());
    }
    return true;
  }
  // Computes all of it, and captures at each of `at`.
  void compute_and_capture(Lease& lease, const std::vector<std::size_t>& at) {
    for (const std::size_t tokens : at) {
      compute(lease, tokens);
      EXPECT_TRUE(capture(lease, tokens));
    }
    compute(lease);
  }
  // The same at the points that the lease asks for.
  void compute_as_planned(Lease& lease) {
    std::vector<std::size_t> at;
    for (const CapturePoint& point : lease.capture_points()) at.push_back(point.tokens);
    compute_and_capture(lease, at);
  }
  void cache_with_states(const Request& request, const std::vector<std::size_t>& at) {
    Lease lease = admit(request);
    compute_and_capture(lease, at);
    lease.finish();
  }

  // ---- What is cached ----

  [[nodiscard]] std::size_t matched(const Request& request) const { return manager_->peek(request).matched_tokens; }
  [[nodiscard]] std::size_t reusable(const Request& request) const { return manager_->peek(request).reusable_tokens; }

  std::shared_ptr<BlockPool> blocks_;
  std::shared_ptr<SnapshotPool> slots_;
  std::optional<CacheManager> manager_;
  StepId next_step_ = 1000;  // tests name steps below by themselves

 private:
  void check_manager() {
    EXPECT_EQ(manager_->validate(), "");
    const ManagerStats s = manager_->stats();
    EXPECT_EQ(s.prompt_tokens, s.reused_tokens + s.computed_tokens);
    EXPECT_EQ(s.requests + s.resumed + s.forks, s.finished + s.preempted + s.abandoned + s.live_leases);
    EXPECT_LE(s.stateless_tokens, s.matched_tokens);
    EXPECT_LE(s.evicted_blocks, s.published_blocks);
    EXPECT_LE(s.evicted_snapshots, s.captures_published);
    check_histograms(*manager_);
    check_captures(s);
  }

  void check_captures(const ManagerStats& s) const {
    const CapturesByKind& c = s.captures;
    CaptureStats all;
    for (const CaptureStats* of :
         {&c.tails, &c.siblings, &c.branch_points, &c.shared_tails, &c.checkpoints, &c.last_tokens, &c.from_store}) {
      EXPECT_EQ(of->bytes, of->captures * (slots_ ? slots_->slot_bytes() : 0));
      all.captures += of->captures;
      all.reused_tokens += of->reused_tokens;
    }
    EXPECT_EQ(all.captures, s.captures_published);
    EXPECT_EQ(all.reused_tokens, slots_ ? s.reused_tokens : 0);
  }

  void stop() {
    if (manager_) destroy_manager();
    if (blocks_) {
      EXPECT_EQ(blocks_->used_blocks(), 0U);
      EXPECT_EQ(blocks_->errors().last, "");
      EXPECT_EQ(blocks_->validate(), "");
    }
    if (slots_) {
      EXPECT_EQ(slots_->used_slots(), 0U);
      EXPECT_EQ(slots_->errors().last, "");
      EXPECT_EQ(slots_->validate(), "");
    }
  }
};

class AttentionTest : public EngineTest {
 protected:
  AttentionTest() : EngineTest({.blocks = 16}) {}
};

class HybridTest : public EngineTest {
 protected:
  HybridTest() : EngineTest({.blocks = 32, .slots = 8}) {}
};

class RecurrentTest : public EngineTest {
 protected:
  RecurrentTest() : EngineTest({.slots = 8}) {}
};

// ---- What a test can compare ----

inline bool operator==(const CapturePoint& a, const CapturePoint& b) {
  return a.tokens == b.tokens && a.kind == b.kind;
}

inline void PrintTo(const CapturePoint& point, std::ostream* out) {
  constexpr const char* kKinds[] = {"tail", "sibling", "branch point", "shared tail", "checkpoint", "last token"};
  *out << kKinds[static_cast<std::size_t>(point.kind)] << " at " << point.tokens;
}

inline constexpr CapturePoint tail(std::size_t at) {
  return {at, CaptureKind::kTail};
}
inline constexpr CapturePoint sibling(std::size_t at) {
  return {at, CaptureKind::kTailSibling};
}
inline constexpr CapturePoint branch_point(std::size_t at) {
  return {at, CaptureKind::kBranchPoint};
}
inline constexpr CapturePoint shared_tail(std::size_t at) {
  return {at, CaptureKind::kSharedTail};
}
inline constexpr CapturePoint last_token(std::size_t at) {
  return {at, CaptureKind::kLastToken};
}
inline constexpr CapturePoint checkpoint(std::size_t at) {
  return {at, CaptureKind::kCheckpoint};
}

}  // namespace cairn

#endif  // CAIRN_ENGINE_ENGINE_FIXTURE_H_
