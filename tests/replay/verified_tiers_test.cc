// Replays with tiers: what leaves memory comes back, byte by byte, also after a restart; and faults cost reuse alone.
#include <cairn/spill_store.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replay/builtin_workload.h"
#include "replay/comparison.h"
#include "replay/content_digest.h"
#include "replay/errors.h"
#include "replay/lines.h"
#include "replay/verified_replayer.h"
#include "support/faulty_io.h"
#include "support/sanitizers.h"
#include "tier/file_store.h"

namespace cairn::replay {
namespace {

using cairn::testing::FaultPlan;
using cairn::testing::FaultyIo;
using cairn::testing::IoFault;
using ::testing::HasSubstr;

constexpr std::size_t kBlockSize = 4;      // of what is written down by hand
constexpr std::size_t kLongBlock = 128;    // of what is generated: fewer records
constexpr std::size_t kRecord = 8192;      // bytes: a header and a small payload, in pages of 4 KiB
constexpr std::size_t kPlenty = 1U << 30;  // bytes

// Fetching always pays, whatever the clock says.
constexpr SpillOptions kFetchAll{.fetch_tokens_min = 1, .fetch_bytes_per_s = 1e12, .prefill_tokens_per_s = 1};

// What every run has to keep, whatever the tiers lose. The replayer itself has checked the manager's counts.
void expect_adds_up(const VerifiedResult& result) {
  ASSERT_TRUE(result.tiers.has_value());
  const TierResult& tiers = *result.tiers;
  EXPECT_EQ(tiers.reused_from_memory_tokens + tiers.reused_from_ram_tier_tokens + tiers.reused_from_file_tier_tokens +
                result.computed_tokens,
            result.prompt_tokens);
  EXPECT_LE(tiers.failed_fetches, tiers.fetches);
  EXPECT_EQ(tiers.store.gets,
            tiers.store.found_in_ram + tiers.store.found_in_file + tiers.store.misses + tiers.store.failed_gets)
      << "none is under way";
}

VerifiedResult replay(const Workload& workload, std::size_t blocks, const VerifiedReplayOptions& options) {
  VerifiedResult result = replay_verified(workload, blocks, options);
  expect_adds_up(result);
  return result;
}

class VerifiedTiers : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] TierOptions ram(std::size_t bytes) const { return {.ram_bytes = bytes, .spill = kFetchAll}; }
  [[nodiscard]] TierOptions files(std::uint64_t bytes, std::size_t ram_bytes = 0) const {
    return {.ram_bytes = ram_bytes, .directory = directory_, .file_bytes = bytes, .spill = kFetchAll};
  }

  const std::string directory_ =
      ::testing::TempDir() + "cairn_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

// A pool with room for one of these prompts at a time.
const std::vector<Line> kInTurn = {
    {.prompt = "aaaabbbbccccd"}, {.prompt = "xxxxyyyyzzzzw"}, {.prompt = "aaaabbbbccccd"}};
constexpr std::size_t kRoomForOne = 4;

// ---- By hand ----

TEST_F(VerifiedTiers, WhatLeavesMemoryComesBackFromRam) {
  const VerifiedResult result =
      replay(workload_of(kInTurn), kRoomForOne, {.replay = {.block_size = kBlockSize}, .tiers = ram(kPlenty)});
  EXPECT_EQ(result.tiers->reused_from_ram_tier_tokens, 12U);
  EXPECT_EQ(result.tiers->reused_from_memory_tokens, 0U);
  EXPECT_EQ(result.reused_tokens, 12U);
  EXPECT_EQ(result.tiers->fetches, 1U);
  EXPECT_EQ(result.tiers->fetched_blocks, 3U);
  EXPECT_EQ(result.tiers->fetched_bytes, 12 * kKvBytesPerToken);
  EXPECT_GT(result.tiers->fetch_time_s, 0.0);
  EXPECT_EQ(result.tiers->spilled_blocks, 6U);
  EXPECT_EQ(result.tiers->store.ram_records, 6U);
  EXPECT_EQ(result.tiers->store.ram_bytes, 6 * kRecord);
  EXPECT_FALSE(result.tiers->save.has_value()) << "RAM ends with the process";
}

TEST_F(VerifiedTiers, WhatIsNotWorthFetchingIsComputed) {
  TierOptions tiers = ram(kPlenty);
  tiers.spill.fetch_tokens_min = 13;
  const VerifiedReplayOptions options{.replay = {.block_size = kBlockSize}, .tiers = tiers};
  const VerifiedResult result = replay(workload_of(kInTurn), kRoomForOne, options);
  EXPECT_EQ(result.reused_tokens, 0U);
  EXPECT_EQ(result.tiers->fetches, 0U);
  EXPECT_EQ(result.tiers->unprofitable_fetches, 1U);
  EXPECT_EQ(result.tiers->fetch_time_s, 0.0);
}

TEST_F(VerifiedTiers, FilesKeepWhatTheNextReplayGoesOnWith) {
  VerifiedReplayOptions options{.replay = {.block_size = kBlockSize}, .tiers = files(kPlenty), .stop_after = 2};
  const Workload workload = workload_of(kInTurn);
  const VerifiedResult first = replay(workload, kRoomForOne, options);
  EXPECT_EQ(first.requests, 2U);
  ASSERT_TRUE(first.tiers->save.has_value());
  EXPECT_EQ(first.tiers->save->blocks, 3U) << "those of the second prompt were in memory still";
  EXPECT_TRUE(first.tiers->save->flushed);
  EXPECT_EQ(first.tiers->store.file_records, 6U);
  EXPECT_FALSE(first.tiers->store.io.empty());

  options.skip = 2;
  const VerifiedResult second = replay(workload, kRoomForOne, options);
  EXPECT_EQ(second.requests, 1U);
  EXPECT_EQ(second.tiers->recovered_blocks, 6U);
  EXPECT_EQ(second.tiers->useless_records, 0U);
  EXPECT_EQ(second.tiers->reused_from_file_tier_tokens, 12U);
}

TEST_F(VerifiedTiers, AStateComesBackWithTheBlocksBelowIt) {
  const VerifiedResult result = replay(workload_of(kInTurn), kRoomForOne,
                                       {.replay = {.block_size = kBlockSize},
                                        .snapshots = SnapshotOptions{.slots = 1, .slot_bytes = 24},
                                        .tiers = files(kPlenty, 3 * kRecord)});
  EXPECT_EQ(result.reused_tokens, 8U) << "the tail of the first prompt";
  EXPECT_EQ(result.tiers->fetched_snapshots, 1U);
  EXPECT_EQ(result.tiers->fetched_blocks, 2U);
  EXPECT_EQ(result.engine.states_checked, 1U);
}

TEST_F(VerifiedTiers, RefusesTiersThatMakeNoSense) {
  const auto refusal = [](TierOptions tiers) {
    try {
      (void)replay_verified(workload_of(kInTurn), kRoomForOne, {.replay = {.block_size = kBlockSize}, .tiers = tiers});
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({}), HasSubstr("neither a RAM tier nor a directory"));
  EXPECT_THAT(refusal({.directory = directory_}), HasSubstr("belong together"));
  EXPECT_THAT(refusal({.ram_bytes = 1, .file_bytes = kPlenty}), HasSubstr("belong together"));
}

TEST_F(VerifiedTiers, ADirectoryOfAnotherLayoutIsRefusedUnlessItMayBeEmptied) {
  const Workload workload = workload_of(kInTurn);
  VerifiedReplayOptions options{.replay = {.block_size = kBlockSize}, .tiers = files(kPlenty)};
  (void)replay(workload, kRoomForOne, options);
  options.replay.block_size = 2;
  EXPECT_THROW((void)replay_verified(workload, 10, options), std::runtime_error);
  options.tiers->reinitialize = true;
  EXPECT_EQ(replay(workload, 10, options).tiers->recovered_blocks, 0U);
}

// ---- Generated ----

// What a lease reuses if nothing is ever lost, by the digests of the blocks alone.
std::uint64_t reusable_by_digests(const Workload& workload, std::size_t from) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> cached;
  std::uint64_t reused = 0;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    std::vector<TokenId> tokens;
    workload.prompt(i, tokens);
    const std::size_t prompt = tokens.size();
    workload.append_output(i, tokens);
    std::vector<ContentDigest> digests;
    append_digests(tokens, kLongBlock, workload[i].adapter, digests);
    std::size_t match = 0;
    while (match < (prompt - 1) / kLongBlock && cached.contains({digests[match].low, digests[match].high})) ++match;
    if (i >= from) reused += match * kLongBlock;
    for (const ContentDigest& digest : digests) cached.insert({digest.low, digest.high});
  }
  return reused;
}

Workload generated(std::size_t requests) {
  return builtin_workload({.requests = requests, .seed = 4});
}

// For the largest request, and a little more.
std::size_t tight_pool(const Workload& workload) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    most = std::max<std::size_t>(most, (workload[i].prompt_tokens + workload[i].output_length) / kLongBlock + 2);
  }
  return most + most / 4;
}

const SnapshotOptions kFewSlots{.slots = 6, .slot_bytes = 200, .checkpoint_every_tokens = 4 * kLongBlock};

TEST_F(VerifiedTiers, TiersThatHoldEverythingReuseWhatAnUnlimitedPoolWould) {
  const Workload workload = generated(80);
  for (const TierOptions& tiers : {ram(kPlenty), files(kPlenty), files(kPlenty, 100 * kRecord)}) {
    SCOPED_TRACE(::testing::Message() << tiers.ram_bytes << " bytes of RAM, directory '" << tiers.directory << "'");
    std::filesystem::remove_all(directory_);
    const VerifiedResult result =
        replay(workload, tight_pool(workload), {.replay = {.block_size = kLongBlock}, .tiers = tiers});
    EXPECT_GT(result.evicted_blocks, 1000U);
    EXPECT_EQ(result.tiers->declined_spills, 0U);
    EXPECT_EQ(result.reused_tokens, reusable_by_digests(workload, 0));
    EXPECT_EQ(result.tiers->failed_fetches, 0U);
    // What is on its way to a file counts as RAM.
    if (tiers.ram_bytes > 0) {
      EXPECT_GT(result.tiers->reused_from_ram_tier_tokens, 0U);
    }
    EXPECT_EQ(result.tiers->reused_from_file_tier_tokens > 0, !tiers.directory.empty());
  }
}

TEST_F(VerifiedTiers, SmallTiersLoseReuseAndNothingElse) {
  const Workload workload = generated(60);
  for (const auto& snapshots : {std::optional<SnapshotOptions>(), std::optional(kFewSlots)}) {
    std::uint64_t last = 0;
    for (const std::size_t records : {2U, 20U, 200U, 20'000U}) {
      SCOPED_TRACE(::testing::Message() << records << " records, " << (snapshots ? "hybrid" : "attention alone"));
      const VerifiedResult result =
          replay(workload, tight_pool(workload),
                 {.replay = {.block_size = kLongBlock}, .snapshots = snapshots, .tiers = ram(records * kRecord)});
      EXPECT_LE(result.tiers->store.ram_bytes, records * kRecord);
      EXPECT_EQ(result.tiers->store.evicted_records > 0, records < 20'000);
      EXPECT_GE(result.reused_tokens, last) << "more room, less reuse";
      last = result.reused_tokens;
    }
  }
}

TEST_F(VerifiedTiers, SmallTiersInFrontOfEachOtherWithOverlap) {
  const Workload workload = generated(60);
  const VerifiedReplayOptions options{.replay = {.block_size = kLongBlock, .service_rate = 50.0},
                                      .snapshots = kFewSlots,
                                      .tiers = files(std::uint64_t{2} << 20, 20 * kRecord)};
  const VerifiedResult result = replay(workload, 3 * tight_pool(workload), options);
  EXPECT_GT(result.peak_running, 1U);
  EXPECT_LE(result.tiers->store.file_bytes, std::uint64_t{2} << 20);
  EXPECT_LE(result.tiers->store.ram_bytes, 20 * kRecord);
  EXPECT_GT(result.tiers->fetches, 0U);
}

TEST_F(VerifiedTiers, WritingThroughChangesNoReuse) {
  const Workload workload = generated(60);
  VerifiedReplayOptions options{.replay = {.block_size = kLongBlock}, .tiers = ram(kPlenty)};
  const std::uint64_t behind = replay(workload, tight_pool(workload), options).reused_tokens;
  options.tiers->spill.write_through = true;
  EXPECT_EQ(replay(workload, tight_pool(workload), options).reused_tokens, behind);
}

// ---- A restart ----

struct Restarted {
  VerifiedResult whole;
  VerifiedResult first;
  VerifiedResult second;
};

Restarted restart(const Workload& workload, VerifiedReplayOptions options) {
  const std::size_t half = workload.size() / 2;
  const std::size_t blocks = tight_pool(workload);
  const std::string directory = options.tiers->directory;
  options.tiers->directory = directory + "/whole";
  Restarted runs{.whole = replay(workload, blocks, options), .first = {}, .second = {}};
  options.tiers->directory = directory + "/halves";
  options.stop_after = half;
  runs.first = replay(workload, blocks, options);
  options.stop_after = workload.size();
  options.skip = half;
  runs.second = replay(workload, blocks, options);
  for (const VerifiedResult* run : {&runs.whole, &runs.first}) {
    EXPECT_TRUE(run->tiers->save->flushed);
    EXPECT_EQ(run->tiers->save->blocks_lost + run->tiers->save->snapshots_lost, 0U);
    EXPECT_EQ(run->tiers->declined_spills, 0U);
  }
  EXPECT_EQ(runs.first.requests + runs.second.requests, runs.whole.requests);
  EXPECT_EQ(runs.first.prompt_tokens + runs.second.prompt_tokens, runs.whole.prompt_tokens);
  EXPECT_EQ(runs.second.tiers->useless_records, 0U);
  return runs;
}

TEST_F(VerifiedTiers, ARestartReusesWhatGoingOnWould) {
  const Workload workload = generated(80);
  const Restarted runs =
      restart(workload, {.replay = {.block_size = kLongBlock}, .tiers = files(kPlenty, 50 * kRecord)});
  EXPECT_EQ(runs.first.reused_tokens + runs.second.reused_tokens, runs.whole.reused_tokens);
  EXPECT_EQ(runs.second.reused_tokens, reusable_by_digests(workload, workload.size() / 2));
  EXPECT_GT(runs.second.tiers->reused_from_file_tier_tokens, 0U);
}

// What was seen of branch points is forgotten: their second sight begins anew. All else comes back.
TEST_F(VerifiedTiers, ARestartOfAHybridModelReusesWhatGoingOnWould) {
  const Workload workload = generated(80);
  const Restarted runs = restart(
      workload, {.replay = {.block_size = kLongBlock}, .snapshots = kFewSlots, .tiers = files(kPlenty, 50 * kRecord)});
  EXPECT_GT(runs.second.tiers->recovered_snapshots, 0U);
  EXPECT_GT(runs.second.tiers->fetched_snapshots, 0U);
  EXPECT_EQ(runs.first.reused_tokens + runs.second.reused_tokens, runs.whole.reused_tokens);
}

// ---- Faults ----

// Passes everything on.
class PassingStore : public SpillStore {
 public:
  explicit PassingStore(std::shared_ptr<SpillStore> store) : store_(std::move(store)) {}
  [[nodiscard]] const std::shared_ptr<SpillBuffers>& buffers() const noexcept override { return store_->buffers(); }
  [[nodiscard]] TierKey first_key() const noexcept override { return store_->first_key(); }
  [[nodiscard]] PutResult put(TierKey key, const RecordLineage& lineage, SpillBufferPtr buffer,
                              PutDone done) override {
    (lineage.kind == RecordKind::kBlock ? blocks_ : snapshots_).insert(key);
    return store_->put(key, lineage, std::move(buffer), std::move(done));
  }
  void get(TierKey key, GetDone done) override { store_->get(key, std::move(done)); }
  void erase(TierKey key) noexcept override { store_->erase(key); }
  [[nodiscard]] std::optional<Tier> touch(TierKey key) noexcept override { return store_->touch(key); }
  [[nodiscard]] std::vector<TierKey> take_lost() override { return store_->take_lost(); }
  [[nodiscard]] bool flush(std::chrono::milliseconds timeout) override { return store_->flush(timeout); }
  [[nodiscard]] std::vector<Recovered> take_recovered() override { return store_->take_recovered(); }
  [[nodiscard]] std::vector<TierKey> records_of(std::string_view adapter) const override {
    return store_->records_of(adapter);
  }
  [[nodiscard]] SpillStats stats() const override { return store_->stats(); }
  [[nodiscard]] std::string validate() const override { return store_->validate(); }

 protected:
  std::shared_ptr<SpillStore> store_;
  std::set<TierKey> blocks_;
  std::set<TierKey> snapshots_;
};

template <class Store>
TierOptions with_store() {
  TierOptions tiers;
  tiers.spill = kFetchAll;
  tiers.make_file_store = [](std::shared_ptr<SpillBuffers> buffers) -> std::shared_ptr<SpillStore> {
    return std::make_shared<Store>(make_ram_store({.buffers = std::move(buffers), .bytes_max = kPlenty}));
  };
  return tiers;
}

// Answers with another block than the one that is asked for, or with another snapshot.
template <bool of_blocks>
class ConfusingStore final : public PassingStore {
 public:
  using PassingStore::PassingStore;
  void get(TierKey key, GetDone done) override {
    const std::set<TierKey>& keys = of_blocks ? blocks_ : snapshots_;
    if (keys.contains(key)) key = key == *keys.begin() ? *keys.rbegin() : *keys.begin();
    store_->get(key, std::move(done));
  }
};

TEST_F(VerifiedTiers, AWrongByteFromAStoreEndsTheReplay) {
  const VerifiedReplayOptions options{.replay = {.block_size = kBlockSize},
                                      .snapshots = SnapshotOptions{.slots = 1, .slot_bytes = 24},
                                      .tiers = with_store<ConfusingStore<true>>()};
  EXPECT_THROW((void)replay_verified(workload_of(kInTurn), kRoomForOne, options), ReplayError);
  VerifiedReplayOptions states = options;
  states.tiers = with_store<ConfusingStore<false>>();
  EXPECT_THROW((void)replay_verified(workload_of(kInTurn), kRoomForOne, states), ReplayError);
}

// Gets of snapshots fail.
class NoSnapshots final : public PassingStore {
 public:
  using PassingStore::PassingStore;
  void get(TierKey key, GetDone done) override {
    if (!snapshots_.contains(key)) return store_->get(key, std::move(done));
    ++failed_;
    done({.status = GetResult::Status::kFailed});
  }
  [[nodiscard]] SpillStats stats() const override {
    SpillStats stats = store_->stats();
    stats.gets += failed_;
    stats.failed_gets += failed_;
    return stats;
  }

 private:
  std::uint64_t failed_ = 0;
};

// The first prompt's blocks are still in memory when it comes again, its state is not. The lease shares those blocks;
// without the state it needs others to compute them into, and too few are left.
TEST_F(VerifiedTiers, ALeaseThatCannotGoBackIsAdmittedAgain) {
  const std::vector<Line> lines = {{.prompt = "aaaabbbbccccd"}, {.prompt = "xxxxyyyyz"}, {.prompt = "aaaabbbbccccd"}};
  const VerifiedResult result = replay(workload_of(lines), 5,
                                       {.replay = {.block_size = kBlockSize},
                                        .snapshots = SnapshotOptions{.slots = 1, .slot_bytes = 24},
                                        .tiers = with_store<NoSnapshots>()});
  EXPECT_EQ(result.tiers->fetches, 1U);
  EXPECT_EQ(result.tiers->failed_fetches, 1U);
  EXPECT_EQ(result.tiers->failed_leases, 1U);
  EXPECT_EQ(result.reused_tokens, 0U);
}

// ---- A disk that fails ----

struct FaultCase {
  const char* name;
  IoFault fault;
};

class VerifiedTiersFaults : public ::testing::TestWithParam<FaultCase> {};

TEST_P(VerifiedTiersFaults, AtTheNthOperationCostReuseAlone) {
  constexpr std::size_t kDepth = 8;
  const Workload workload = generated(25);
  const std::string directory = ::testing::TempDir() + "cairn_tier_faults_" + GetParam().name;
  std::uint64_t struck = 0;
  std::uint64_t lost_reuse = 0;
  const std::uint64_t most = cairn::testing::kSanitized ? 8 : 24;
  for (std::uint64_t i = 0; i < most; ++i) {
    const std::uint64_t nth = 1 + i * i;
    SCOPED_TRACE(::testing::Message() << "operation " << nth);
    std::filesystem::remove_all(directory);
    const auto plan = std::make_shared<FaultPlan>();
    TierOptions tiers;
    tiers.spill = kFetchAll;
    if (i % 2 == 1) tiers.ram_bytes = 20 * kRecord;
    tiers.make_file_store = [&](std::shared_ptr<SpillBuffers> buffers) {
      OpenedStore opened = open_file_store({.buffers = std::move(buffers),
                                            .directory = directory,
                                            .bytes_max = std::uint64_t{16} << 20,
                                            .queue_depth = kDepth,
                                            .io_timeout = std::chrono::milliseconds(20),
                                            .retry_after = std::chrono::milliseconds(1)},
                                           std::make_unique<FaultyIo>(make_threaded_io(kDepth, 1), plan));
      if (!opened.store) throw std::runtime_error(opened.error.message);
      IoFault fault = GetParam().fault;
      fault.nth = nth;
      plan->add(fault);
      return opened.store;
    };
    const VerifiedResult result = replay(workload, tight_pool(workload),
                                         {.replay = {.block_size = kLongBlock},
                                          .snapshots = i % 3 == 0 ? std::nullopt : std::optional(kFewSlots),
                                          .tiers = tiers});
    struck += plan->faults();
    if (i % 3 == 0 && result.reused_tokens < reusable_by_digests(workload, 0)) ++lost_reuse;
  }
  std::filesystem::remove_all(directory);
  std::printf("%llu faults; %llu runs reused less for it\n", static_cast<unsigned long long>(struck),
              static_cast<unsigned long long>(lost_reuse));
  EXPECT_GT(struck, most / 2);
}

using Effect = IoFault::Effect;
INSTANTIATE_TEST_SUITE_P(
    All, VerifiedTiersFaults,
    ::testing::Values(FaultCase{"EIO", {.effect = Effect::kFail, .error = EIO}},
                      FaultCase{"ManyEIO", {.effect = Effect::kFail, .count = 40, .error = EIO}},
                      FaultCase{"ENOSPC", {.effect = Effect::kFail, .count = 3, .error = ENOSPC}},
                      FaultCase{"Short", {.effect = Effect::kShort, .bytes = 4096}},
                      FaultCase{"Slow", {.effect = Effect::kSlow, .operations_until_done = 3, .waits_until_done = 3}},
                      FaultCase{"Lost", {.effect = Effect::kLose}}),
    [](const ::testing::TestParamInfo<FaultCase>& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace cairn::replay
