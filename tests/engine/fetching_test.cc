// A lease whose prefix goes on in the store: loading, and what becomes of it.
#include <poll.h>

#include "engine/tiers_fixture.h"

namespace cairn {
namespace {

bool readable(int fd) {
  pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&polled, 1, 0) == 1;
}

class FetchingTest : public TiersTest {
 protected:
  const Tokens prompt_ = tokens("aaaa bbbb cccc d");
  const Request request_{.tokens = prompt_};

  // The three blocks of the prompt in the store alone; gets are held.
  void start_stored(CacheManagerOptions options = {}) {
    start({}, std::move(options));
    cache(request_);
    push_out_blocks();
    store_->hold_gets(true);
  }
};

TEST_F(FetchingTest, AStoredPrefixIsFetched) {
  start_stored();
  store_->hold_gets(false);
  EXPECT_EQ(peek(request_).matched_tokens, 0U);
  EXPECT_EQ(peek(request_).stored_tokens, 12U);
  const Lease lease = admit(request_);
  EXPECT_EQ(lease.state(), LeaseState::kReady) << "a store in RAM answers at once";
  EXPECT_EQ(lease.first_token_to_compute(), 12U);
  EXPECT_EQ(lease.published_tokens(), 12U) << "others find it in memory";
  check(lease, request_);
  EXPECT_EQ(stats().reused_from_ram_tier_tokens, 12U);
  EXPECT_EQ(stats().fetched_bytes, 3 * kBlockBytes);
}

TEST_F(FetchingTest, WhileItIsLoadingALeaseShowsWhatMemoryHasAndRefusesToBeUsed) {
  start_stored();
  const std::uint64_t requests = stats().requests;
  Lease lease = admit(request_);
  EXPECT_EQ(lease.state(), LeaseState::kLoading);
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  EXPECT_EQ(stats().loading_leases, 1U);
  EXPECT_EQ(stats().requests, requests) << "what it reuses is not known";
  const int fd = lease.event_fd();
  EXPECT_FALSE(readable(fd));
  expect_refusal([&] { lease.writes(1, 0, 4); }, {"writes", "loading"});
  expect_refusal([&] { lease.restored(); }, {"restored", "loading"});
  expect_refusal([&] { lease.publish(); }, {"publish", "loading"});
  expect_refusal([&] { static_cast<void>(lease.fork()); }, {"fork", "loading"});
  EXPECT_EQ(store_->answer_gets(), 3U);
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(lease.state(), LeaseState::kReady);
  EXPECT_EQ(lease.first_token_to_compute(), 12U);
  EXPECT_EQ(stats().requests, requests + 1);
  EXPECT_EQ(count_of(manager().histograms().load_seconds), 1U);
  compute(lease, request_, prompt_.size());
  lease.finish();
}

TEST_F(FetchingTest, TokensAreCountedByTheTierTheyComeFrom) {
  start({});
  cache(request_);
  push_out_blocks();
  store_->found_in(Tier::kFile);
  cache({.tokens = tokens("aaaa x"), .no_fetch = true});  // "aaaa" is in memory again
  cache(request_);
  EXPECT_EQ(stats().reused_from_memory_tokens, 4U);
  EXPECT_EQ(stats().reused_from_file_tier_tokens, 8U);
}

TEST_F(FetchingTest, WhatDoesNotComeIsComputed) {
  for (const auto status : {GetResult::Status::kMissing, GetResult::Status::kFailed, GetResult::Status::kQueueFull}) {
    start_stored();
    Lease lease = admit(request_);
    store_->answer_with(status);
    EXPECT_GT(store_->answer_gets(), 0U);
    EXPECT_EQ(lease.state(), LeaseState::kReady);
    EXPECT_EQ(lease.first_token_to_compute(), 0U);
    EXPECT_EQ(stats().failed_fetches, 1U);
    compute(lease, request_, prompt_.size());
    lease.finish();
    EXPECT_EQ(peek(request_).matched_tokens, 12U);
    store_->answer_with(std::nullopt);
  }
}

// Some stores can't say what they have lost: they show it by a miss.
TEST_F(FetchingTest, ARecordThatIsMissingIsForgotten) {
  start_stored();
  const Lease lease = admit(request_);
  for (const TierKey key : store_->keys()) store_->erase(key);
  store_->answer_gets();
  EXPECT_EQ(lease.state(), LeaseState::kReady);
  EXPECT_EQ(peek(request_).stored_tokens, 0U);
}

TEST_F(FetchingTest, WhatComesBeforeAGapIsUsed) {
  start_stored();
  Lease lease = admit(request_);
  for (const TierKey key : store_->keys()) {
    if (store_->lineage(key)->first_token == 8) store_->lose(key);
  }
  store_->answer_gets();
  EXPECT_EQ(lease.first_token_to_compute(), 8U);
  check(lease, request_);
  compute(lease, request_, prompt_.size());
  lease.finish();
}

TEST_F(FetchingTest, ALeaseThatEndsWhileItIsLoadingGivesItsBlocksBackWhenTheyAreFilled) {
  start_stored();
  const std::uint64_t computed = stats().computed_tokens;
  Lease lease = admit(request_);
  EXPECT_EQ(blocks_->used_blocks(), 4U);
  lease.abandon();
  EXPECT_GE(blocks_->used_blocks(), 3U) << "they are being filled";
  EXPECT_EQ(store_->answer_gets(), 3U);
  EXPECT_EQ(blocks_->used_blocks(), 0U);
  EXPECT_EQ(stats().computed_tokens - computed, prompt_.size()) << "it reused nothing";
}

TEST_F(FetchingTest, TwoLeasesMayFetchTheSame) {
  start_stored();
  Lease first = admit(request_);
  Lease second = admit(request_);
  store_->answer_gets();
  EXPECT_EQ(first.first_token_to_compute(), 12U);
  EXPECT_EQ(second.first_token_to_compute(), 12U);
  EXPECT_EQ(table_of(second)[0], table_of(first)[0]) << "the second gives its own back";
  check(first, request_);
  check(second, request_);
}

TEST_F(FetchingTest, AManagerThatGoesWhileALeaseIsLoadingDoesNoHarm) {
  start_stored();
  Lease lease = admit(request_);
  manager_.reset();
  store_->answer_gets();
  EXPECT_EQ(lease.first_token_to_compute(), 12U);
  lease.abandon();
  EXPECT_EQ(blocks_->used_blocks(), 0U);
}

TEST_F(FetchingTest, AClearWhileItIsLoadingPublishesNothing) {
  start_stored();
  Lease lease = admit(request_);
  EXPECT_EQ(manager().clear().records, 3U);
  store_->answer_gets();
  EXPECT_EQ(lease.state(), LeaseState::kReady);
  EXPECT_EQ(peek(request_).matched_tokens, 0U);
  lease.abandon();
}

TEST_F(FetchingTest, FetchingHasToPay) {
  start_stored({.spill = {.fetch_tokens_min = 1, .fetch_bytes_per_s = 1, .prefill_tokens_per_s = 1e6}});
  const Lease slow_store = admit(request_);
  EXPECT_EQ(slow_store.state(), LeaseState::kReady);
  EXPECT_EQ(slow_store.first_token_to_compute(), 0U);
  EXPECT_EQ(stats().unprofitable_fetches, 1U);
}

TEST_F(FetchingTest, FewTokensAreComputedWhateverItWouldTake) {
  start_stored({.spill = {.fetch_tokens_min = 13}});
  const Lease lease = admit(request_);
  EXPECT_EQ(lease.state(), LeaseState::kReady);
  EXPECT_EQ(stats().fetches, 0U);
}

TEST_F(FetchingTest, ARequestMayWantNoFetch) {
  start_stored();
  const Lease lease = admit({.tokens = prompt_, .no_fetch = true});
  EXPECT_EQ(lease.state(), LeaseState::kReady);
  EXPECT_EQ(store_->held_gets(), 0U);
}

TEST_F(FetchingTest, AFetchThatFindsNoRoomIsRefusedAsAnyOther) {
  start_stored();
  Lease all = admit({.tokens = Tokens(8 * kBlockSize, 7), .no_read = true});
  const Admission refused = manager().admit(request_);
  EXPECT_FALSE(refused.lease);
  EXPECT_EQ(refused.missing_blocks, 4U);
  EXPECT_EQ(store_->held_gets(), 0U);
  EXPECT_EQ(stats().loading_leases, 0U);
  all.abandon();
}

TEST_F(FetchingTest, AnEngineThatReservesLessGetsWhatTheFetchNeeds) {
  start_stored();
  Lease lease = admit({.tokens = prompt_, .reserve_tokens = 1});
  store_->answer_gets();
  EXPECT_EQ(lease.first_token_to_compute(), 12U);
  EXPECT_EQ(lease.block_table().size(), 3U);
  EXPECT_EQ(lease.reserve(prompt_.size()), 0U);
  compute(lease, request_, prompt_.size());
}

// ---- Adapters, tenants, media; after a restart too ----

TEST_F(FetchingTest, AfterARestartEverythingIsFoundUnderItsOwnNames) {
  start({});
  const Tokens of_adapter = tokens("aaaa bbbb x");
  const Tokens of_tenant = tokens("aaaa bbbb y");
  const Request base{.tokens = prompt_};
  const Request adapted{.tokens = of_adapter, .adapter = "lora", .adapter_generation = 2};
  const Request tenant{.tokens = of_tenant, .tenant_salt = "t"};
  cache(base);
  cache(adapted);
  cache(tenant);
  manager().save(std::chrono::seconds(10));
  restart({});
  EXPECT_EQ(stats().recovered_blocks, 7U);
  EXPECT_EQ(peek(base).stored_tokens, 12U);
  EXPECT_EQ(peek(adapted).stored_tokens, 8U);
  EXPECT_EQ(peek(tenant).stored_tokens, 8U);
  EXPECT_EQ(peek({.tokens = prompt_, .adapter = "lora", .adapter_generation = 3}).stored_tokens, 0U);
  EXPECT_EQ(peek({.tokens = prompt_, .adapter = "lora"}).stored_tokens, 0U);
  EXPECT_EQ(peek({.tokens = prompt_, .tenant_salt = "u"}).stored_tokens, 0U);
  for (const Request& request : {base, adapted, tenant}) {
    const Lease lease = admit(request);
    EXPECT_GE(lease.first_token_to_compute(), 8U);
    check(lease, request);
  }
}

TEST_F(FetchingTest, AfterARestartAMediumIsStillItsOwn) {
  start({});
  const Tokens prompt = tokens("aaXX bbbb c");
  const std::vector<MediaSpan> cat{{.position = 2, .length = 2, .content_id = {1, 2}}};
  const std::vector<MediaSpan> dog{{.position = 2, .length = 2, .content_id = {1, 3}}};
  cache({.tokens = prompt, .media = cat});
  manager().save(std::chrono::seconds(10));
  restart({});
  EXPECT_EQ(peek({.tokens = prompt, .media = cat}).stored_tokens, 8U);
  EXPECT_EQ(peek({.tokens = prompt, .media = dog}).stored_tokens, 0U);
  EXPECT_EQ(peek({.tokens = prompt}).stored_tokens, 0U);
}

TEST_F(FetchingTest, ARecordWhoseParentIsLostIsOfNoUseAfterARestart) {
  start({});
  cache(request_);
  manager().save(std::chrono::seconds(10));
  for (const TierKey key : store_->keys()) {
    if (store_->lineage(key)->first_token == 4) store_->lose(key);
  }
  restart({});
  EXPECT_EQ(stats().recovered_blocks, 1U);
  EXPECT_EQ(stats().useless_records, 1U);
  EXPECT_EQ(store_->keys().size(), 1U) << "it is erased";
  EXPECT_EQ(peek(request_).stored_tokens, 4U);
}

TEST_F(FetchingTest, ClearingAnAdapterReachesRecordsUnderNamesThatAreForgotten) {
  start({}, {.adapters_max = 1});
  const Tokens prompt = tokens("aaaa bbbb x");
  cache({.tokens = prompt, .adapter = "lora"});
  push_out_blocks();
  cache({.tokens = prompt, .adapter = "other"});
  cache({.tokens = prompt, .adapter = "third"});  // "lora" is forgotten
  EXPECT_EQ(store_->records_of("lora").size(), 2U);
  manager().clear("lora");
  EXPECT_EQ(store_->records_of("lora").size(), 0U);
  restart({});
  EXPECT_EQ(peek({.tokens = prompt, .adapter = "lora"}).stored_tokens, 0U);
}

TEST_F(FetchingTest, AStoreHasOneManager) {
  start({});
  const auto blocks =
      std::make_shared<BlockPool>(BlockPoolOptions{.blocks = 4, .block_bytes = kBlockBytes, .device = nullptr});
  CacheManagerOptions options{.block_size = kBlockSize, .blocks = blocks, .store = store_};
  expect_refusal([&] { const CacheManager second(options); }, {"store", "has a manager"});
  options.block_size = 8;
  expect_refusal([&] { const CacheManager other(options); }, {"store", "block_size", "4", "8"});
}

TEST_F(FetchingTest, AFetchThatWouldNotPayIsTriedNowAndThen) {
  start_stored({.spill = {.prefill_tokens_per_s = 1e12}});
  store_->hold_gets(false);
  {
    const Lease measured = admit(request_);
  }  // as no rate is known
  push_out_blocks();
  int fetched = 0;
  for (int i = 0; i < 32; ++i) {
    const Lease lease = admit({.tokens = prompt_, .no_publish = true});
    if (lease.first_token_to_compute() > 0) ++fetched;
  }
  EXPECT_EQ(fetched, 2);
  EXPECT_EQ(stats().unprofitable_fetches, 30U);
}

// ---- With state ----

class HybridFetchingTest : public TiersTest {
 protected:
  const Tokens prompt_ = tokens("aaaa bbbb cccc d");
  const Request request_{.tokens = prompt_};
  const Sizes sizes_{.blocks = 8, .slots = 3};

  void start_cached(std::initializer_list<std::size_t> states) {
    start(sizes_, {.capture_tails = false});
    cache(request_, states);
  }
};

TEST_F(HybridFetchingTest, SnapshotAndBlocksAreFetchedTogether) {
  start_cached({8});
  push_out_states();
  push_out_blocks();
  store_->hold_gets(true);
  Lease lease = admit(request_);
  EXPECT_EQ(lease.state(), LeaseState::kLoading);
  EXPECT_FALSE(lease.restore_point());
  EXPECT_EQ(lease.capture_points().size(), 0U);
  EXPECT_EQ(store_->held_gets(), 3U) << "two blocks: what comes after the state has to be computed again";
  store_->answer_gets();
  EXPECT_EQ(lease.first_token_to_compute(), 8U);
  ASSERT_TRUE(lease.restore_point());
  EXPECT_EQ(lease.restore_point()->tokens, 8U);
  compute(lease, request_, prompt_.size());
  lease.finish();
  EXPECT_EQ(stats().fetched_snapshots, 1U);
  EXPECT_EQ(stats().reused_from_ram_tier_tokens, 8U);
  EXPECT_EQ(store_->count(RecordKind::kPlainSnapshot), 0U) << "its key is dead";
}

TEST_F(HybridFetchingTest, AStateInMemoryWithItsBlocksInTheStore) {
  start_cached({8});
  push_out_blocks();
  const Lease lease = admit(request_);
  EXPECT_EQ(lease.first_token_to_compute(), 8U);
  check(lease, request_);
  EXPECT_EQ(stats().fetched_snapshots, 0U);
  EXPECT_EQ(stats().fetched_blocks, 2U);
}

TEST_F(HybridFetchingTest, AStateInTheStoreWithItsBlocksInMemory) {
  start_cached({8});
  push_out_states();
  store_->found_in(Tier::kFile);
  const Lease lease = admit(request_);
  EXPECT_EQ(lease.first_token_to_compute(), 8U);
  check(lease, request_);
  EXPECT_EQ(stats().fetched_snapshots, 1U);
  EXPECT_EQ(stats().fetched_blocks, 0U);
  EXPECT_EQ(stats().reused_from_file_tier_tokens, 8U);
}

TEST_F(HybridFetchingTest, AStateWithinABlock) {
  start_cached({6});
  push_out_states();
  {
    Lease lease = admit(request_);
    EXPECT_EQ(lease.first_token_to_compute(), 6U);
    EXPECT_EQ(lease.copies().size(), 1U) << "the block is in memory";
    compute(lease, request_, prompt_.size());
  }
  push_out_states();
  push_out_blocks();
  Lease lease = admit(request_);
  EXPECT_EQ(lease.first_token_to_compute(), 6U);
  EXPECT_EQ(lease.copies().size(), 0U) << "the block was fetched for this lease alone";
  EXPECT_EQ(lease.published_tokens(), 4U);
  compute(lease, request_, prompt_.size());
  lease.finish();
}

TEST_F(HybridFetchingTest, WithoutItsStateALeaseGoesBackToTheOneInMemory) {
  for (const std::size_t shallow : {3U, 4U, 5U, 7U}) {
    start(sizes_, {.capture_tails = false});
    cache(request_, {8});
    push_out_states();
    cache({.tokens = prompt_, .no_fetch = true}, {shallow});
    store_->hold_gets(true);
    Lease lease = admit(request_);
    EXPECT_EQ(lease.state(), LeaseState::kLoading);
    store_->answer_with(GetResult::Status::kFailed);
    store_->answer_gets();
    EXPECT_EQ(lease.state(), LeaseState::kReady);
    EXPECT_EQ(lease.first_token_to_compute(), shallow);
    compute(lease, request_, prompt_.size());
    lease.finish();
    EXPECT_EQ(stats().failed_fetches, 1U);
    store_->answer_with(std::nullopt);
  }
}

TEST_F(HybridFetchingTest, WithoutABlockALeaseGoesBackToTheStateInMemory) {
  for (const std::size_t shallow : {4U, 6U}) {
    start(sizes_, {.capture_tails = false});
    cache(request_, {shallow, 12});
    push_out_states();
    push_out_blocks();
    cache({.tokens = tokens("aaaa bbbb x"), .no_fetch = true}, {shallow});
    store_->hold_gets(true);
    Lease lease = admit(request_);
    ASSERT_EQ(lease.state(), LeaseState::kLoading);
    for (const TierKey key : store_->keys()) {
      const auto lineage = store_->lineage(key);
      if (lineage->kind == RecordKind::kBlock && lineage->first_token == 8) store_->lose(key);
    }
    store_->answer_gets();
    EXPECT_EQ(lease.first_token_to_compute(), shallow);
    compute(lease, request_, prompt_.size());
    lease.finish();
  }
}

TEST_F(HybridFetchingTest, WithoutBlocksToComputeInItsPlaceALeaseFails) {
  start(sizes_, {.capture_tails = false});
  cache(request_, {12});
  push_out_states();
  store_->hold_gets(true);
  Lease lease = admit(request_);
  ASSERT_EQ(lease.state(), LeaseState::kLoading);
  Lease all = admit({.tokens = Tokens(4 * kBlockSize, 7), .no_read = true});
  store_->answer_with(GetResult::Status::kFailed);
  store_->answer_gets();
  EXPECT_EQ(lease.state(), LeaseState::kFailed);
  expect_refusal([&] { lease.writes(1, 0, 4); }, {"writes", "abandon"});
  lease.abandon();
  all.abandon();
}

TEST_F(HybridFetchingTest, ADeeperStateThatIsGoneIsPassedOver) {
  start_cached({4, 8});
  push_out_states();
  push_out_blocks();
  for (const TierKey key : store_->keys()) {
    const auto lineage = store_->lineage(key);
    if (lineage->kind == RecordKind::kPlainSnapshot && lineage->first_token == 8) store_->lose(key);
  }
  const Lease lease = admit(request_);
  EXPECT_EQ(lease.first_token_to_compute(), 4U);
  check(lease, request_);
}

TEST_F(HybridFetchingTest, AStateThatWasPutAfterAClearDoesNotGoWithBlocksOfBefore) {
  start_cached({8});
  push_out_states();
  push_out_blocks();
  store_->hold_gets(true);
  Lease lease = admit({.tokens = prompt_, .reserve_tokens = 1});
  ASSERT_EQ(lease.state(), LeaseState::kLoading);
  manager().clear();
  cache({.tokens = prompt_, .no_fetch = true}, {8});
  store_->answer_gets();
  EXPECT_EQ(lease.state(), LeaseState::kReady);
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  EXPECT_FALSE(lease.restore_point());
}

// Those of before are there, all of them: it is the state that would not go with them.
TEST_F(HybridFetchingTest, AStateThatWasPutAfterAClearDoesNotGoWithBlocksInMemoryEither) {
  start({.blocks = 12, .slots = 3}, {.capture_tails = false});
  cache(request_, {8});
  push_out_states();
  store_->hold_gets(true);
  Lease lease = admit(request_);
  ASSERT_EQ(lease.state(), LeaseState::kLoading);
  manager().clear();
  cache({.tokens = prompt_, .no_fetch = true}, {8});
  store_->answer_gets();
  EXPECT_EQ(lease.state(), LeaseState::kReady);
  EXPECT_EQ(lease.first_token_to_compute(), 0U);
  EXPECT_FALSE(lease.restore_point());
}

TEST_F(HybridFetchingTest, TwoLeasesMayFetchTheSameState) {
  start_cached({8});
  push_out_states();
  push_out_blocks();
  store_->hold_gets(true);
  Lease first = admit({.tokens = prompt_, .reserve_tokens = 1});
  Lease second = admit({.tokens = prompt_, .reserve_tokens = 1});
  store_->answer_gets();
  EXPECT_EQ(first.first_token_to_compute(), 8U);
  EXPECT_EQ(second.first_token_to_compute(), 8U);
  EXPECT_EQ(first.restore_point()->slot, second.restore_point()->slot);
  check(first, request_);
  check(second, request_);
}

TEST_F(HybridFetchingTest, AfterARestartASessionGoesOnFromItsTail) {
  start(sizes_, {});
  const Request turn{.tokens = prompt_, .session = 5};
  cache(turn, {4, 8});
  manager().save(std::chrono::seconds(10));
  restart(sizes_);
  EXPECT_EQ(stats().recovered_blocks, 3U);
  EXPECT_EQ(stats().recovered_snapshots, 2U);
  {
    const Lease stranger = admit({.tokens = prompt_, .session = 6});
    EXPECT_EQ(stranger.first_token_to_compute(), 0U);
  }
  const Lease lease = admit(turn);
  EXPECT_EQ(lease.first_token_to_compute(), 8U);
  check(lease, turn);
}

TEST_F(HybridFetchingTest, APurelyRecurrentModelFetchesItsState) {
  start({.blocks = 0, .slots = 2}, {.capture_tails = false});
  cache(request_, {8});
  push_out_states();
  store_->hold_gets(true);
  Lease lease = admit(request_);
  EXPECT_EQ(lease.state(), LeaseState::kLoading);
  store_->answer_gets();
  EXPECT_EQ(lease.first_token_to_compute(), 8U);
  check(lease, request_);
  lease.abandon();
}

TEST_F(HybridFetchingTest, APurelyRecurrentModelGoesOnFromItsStatesAfterARestart) {
  const Sizes sizes{.blocks = 0, .slots = 3, .record_tokens = 10};
  start(sizes);
  const Request turn{.tokens = prompt_, .session = 5, .adapter = "a", .adapter_generation = 2};
  cache(turn, {4, 8});
  manager().save(std::chrono::seconds(10));
  restart(sizes);
  EXPECT_EQ(stats().recovered_snapshots, 2U);
  {
    const Lease stranger = admit({.tokens = prompt_, .session = 6});
    EXPECT_EQ(stranger.first_token_to_compute(), 0U) << "of the base model";
  }
  const Lease lease = admit(turn);
  EXPECT_EQ(lease.first_token_to_compute(), 8U);
  check(lease, turn);
}

TEST_F(HybridFetchingTest, AStateOfMoreTokensThanARecordHasRoomForIsFoundUntilTheEnd) {
  const Sizes sizes{.blocks = 0, .slots = 2, .record_tokens = 7};
  start(sizes, {.capture_tails = false});
  cache(request_, {4, 8});
  manager().save(std::chrono::seconds(10));
  push_out_states();
  {
    const Lease lease = admit(request_);
    EXPECT_EQ(lease.first_token_to_compute(), 8U);
    check(lease, request_);
  }
  manager().save(std::chrono::seconds(10));
  restart(sizes, {.capture_tails = false});
  EXPECT_GE(stats().useless_records, 1U);
  const Lease lease = admit(request_);
  EXPECT_EQ(lease.first_token_to_compute(), 4U);
  check(lease, request_);
}

}  // namespace
}  // namespace cairn
