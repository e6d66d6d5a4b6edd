// CacheManager and Lease when memory runs out: each allocation of each call fails once. The call throws
// std::bad_alloc and all is as before, or it goes on without (a snapshot less never fails a request).
#include <functional>
#include <new>
#include <sstream>

#include "engine/engine_fixture.h"
#include "fault/failing_new.h"

namespace cairn {
namespace {

using testing::arm_new;
using testing::disarm_new;
using testing::FailingNew;

// All that can be seen of a lease, in words.
std::string seen(const Lease& lease) {
  std::ostringstream out;
  out << lease.valid();
  if (!lease.valid()) return out.str();
  out << " table";
  for (const BlockId block : lease.block_table()) out << ' ' << block;
  out << " copies";
  for (const BlockCopy& copy : lease.copies()) out << ' ' << copy.from << "->" << copy.to << 'x' << copy.tokens;
  out << " points";
  for (const CapturePoint& point : lease.capture_points()) out << ' ' << point.tokens;
  out << " restore " << lease.restore_point().has_value() << " tokens " << lease.tokens() << ' '
      << lease.accepted_tokens() << ' ' << lease.prompt_tokens() << ' ' << lease.written_tokens() << ' '
      << lease.published_tokens() << ' ' << lease.cached_tokens() << ' ' << lease.first_token_to_compute();
  return out.str();
}

class EngineAllocationFailureTest : public EngineTest, public ::testing::WithParamInterface<FailingNew> {
 protected:
  EngineAllocationFailureTest() : EngineTest({.blocks = 12, .slots = 6}) {}

  void TearDown() override {
    disarm_new();
    EngineTest::TearDown();
  }

  void begin_again(const Pools& pools = {.blocks = 12, .slots = 6}) { start(pools, {.hash_seed = 1}); }

  // What the manager and the pools show, but for evictions on the way.
  [[nodiscard]] std::string seen_of_manager() const {
    std::ostringstream out;
    const ManagerStats s = stats();
    out << "requests " << s.requests << ' ' << s.resumed << ' ' << s.prompt_tokens << ' ' << s.reused_tokens << ' '
        << s.matched_tokens << ' ' << s.stateless_tokens << " refused " << s.refused_admissions << ' '
        << s.refused_reserves << " ended " << s.finished << ' ' << s.preempted << ' ' << s.abandoned << " forks "
        << s.forks << " live " << s.live_leases << ' ' << s.waiting_for_steps << ' ' << s.pinned_snapshots << ' '
        << s.steps_in_flight << ' ' << s.blocks_held_by_clears << " blocks " << used_blocks() + s.evicted_blocks
        << " slots " << used_slots() + s.evicted_snapshots;
    return out.str();
  }

  // Lets allocation after allocation of `call` fail until it succeeds. After each failure nothing may have changed:
  // neither the manager nor `leases`. How many failures there were.
  std::size_t fail_until_it_works(const std::function<void()>& call, const std::vector<const Lease*>& leases = {}) {
    const auto all_seen = [&] {
      std::string all = seen_of_manager();
      for (const Lease* lease : leases) all += '\n' + seen(*lease);
      return all;
    };
    const std::string before = all_seen();
    for (std::size_t nth = 1;; ++nth) {
      arm_new(nth, GetParam());
      try {
        call();
        disarm_new();
        EXPECT_EQ(manager().validate(), "");
        return nth - 1;
      } catch (const std::bad_alloc&) {
        disarm_new();
      }
      EXPECT_EQ(all_seen(), before) << "allocation " << nth << " failed";
      EXPECT_EQ(manager().validate(), "") << "allocation " << nth << " failed";
    }
  }
};

TEST_P(EngineAllocationFailureTest, InTheConstructorKeepsNothing) {
  std::size_t failures = 0;
  for (std::size_t nth = 1;; ++nth) {
    const long owners = blocks_.use_count();
    arm_new(nth, GetParam());
    try {
      std::optional<CacheManager> other;
      other.emplace(
          CacheManagerOptions{.block_size = kBlockSize, .blocks = blocks_, .snapshots = slots_, .hash_seed = 1});
      disarm_new();
      break;
    } catch (const std::bad_alloc&) {
      disarm_new();
      ++failures;
      EXPECT_EQ(blocks_.use_count(), owners);
    }
  }
  EXPECT_GT(failures, 1U);
}

TEST_P(EngineAllocationFailureTest, InAdmitHoldsNothing) {
  const MediaSpan cat[] = {{.position = 1, .length = 2, .content_id = {1, 2}}};
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  const Request requests[] = {
      {.tokens = prompt, .session = 1},
      {.tokens = prompt, .session = 1, .adapter = "a name that is too long to be kept in place", .media = cat},
      {.tokens = prompt, .session = 1, .tenant_salt = "a salt that is too long to be kept in place as well"}};
  for (const Request& request : requests) {
    begin_again();
    for (int round = 0; round < 3; ++round) {  // nothing cached; blocks and state; a block to copy
      Lease lease;
      EXPECT_GT(fail_until_it_works([&] { lease = admit(request); }), 2U);
      compute(lease);
      if (round == 0) capture(lease, 8);
      if (round == 1) capture(lease, 10);
      lease.finish();
    }
    const Lease lease = admit(request);
    EXPECT_EQ(lease.copies().size(), 1U);
  }
}

TEST_P(EngineAllocationFailureTest, InAnAdmitThatHasToEvictHoldsNothing) {
  begin_again({.blocks = 4, .slots = 2});
  cache({.tokens = tokens("aaaa bbbb cccc d")});
  Lease lease;
  EXPECT_GT(fail_until_it_works([&] { lease = admit({.tokens = tokens("xxxx xxxx xxxx")}); }), 3U);
  EXPECT_EQ(lease.block_table().size(), 3U);
}

TEST_P(EngineAllocationFailureTest, InPeekHasNoEffect) {
  const MediaSpan cat[] = {{.position = 1, .length = 2, .content_id = {1, 2}}};
  const Tokens prompt = tokens("aaaa bbbb c");
  cache_with_states({.tokens = prompt, .media = cat}, {8});
  Peeked peeked;
  EXPECT_GT(fail_until_it_works([&] { peeked = manager().peek({.tokens = prompt, .media = cat}); }), 0U);
  EXPECT_EQ(peeked.reusable_tokens, 8U);
}

TEST_P(EngineAllocationFailureTest, InWritesDeclaresNothing) {
  begin_again();
  Lease lease = admit({.tokens = Tokens(40, 'a')});
  std::size_t failures = 0;
  for (StepId step = 1; step <= 40; ++step) {
    failures += fail_until_it_works([&] { lease.writes(step, step - 1, step); }, {&lease});
  }
  EXPECT_GT(failures, 40U);
  for (StepId step = 1; step <= 40; ++step) manager().step_done(step);
  EXPECT_EQ(lease.written_tokens(), 40U);
}

TEST_P(EngineAllocationFailureTest, InReserveTakesNothing) {
  begin_again({.blocks = 6, .slots = 1});
  cache({.tokens = tokens("xxxx yyyy z")});
  Lease lease = admit({.tokens = tokens("aaaa b")});
  EXPECT_GT(fail_until_it_works([&] { EXPECT_EQ(lease.reserve(24), 0U); }, {&lease}), 1U) << "some of it by evicting";
  EXPECT_EQ(lease.block_table().size(), 6U);
}

TEST_P(EngineAllocationFailureTest, InAppendDraftAcceptAndTruncateChangesNoToken) {
  begin_again();
  Lease lease = admit({.tokens = tokens("aaaa b"), .reserve_tokens = 48});
  std::size_t failures = 0;
  for (TokenId i = 0; i < 20; ++i) {
    const Tokens some = {i, i + 1};
    failures += fail_until_it_works([&] { lease.append(some); }, {&lease});
    failures += fail_until_it_works([&] { lease.draft(some); }, {&lease});
    EXPECT_EQ(fail_until_it_works([&] { lease.accept(lease.tokens() - 1); }, {&lease}), 0U);
    EXPECT_EQ(fail_until_it_works([&] { lease.truncate(lease.accepted_tokens()); }, {&lease}), 0U);
  }
  EXPECT_GT(failures, 2U);
  EXPECT_EQ(lease.tokens(), 5U + 20U * 3U);
}

TEST_P(EngineAllocationFailureTest, InPublishPublishesNothing) {
  begin_again();
  const Tokens prompt = tokens("aaaa bbbb cccc d");
  Lease first = admit({.tokens = prompt});
  Lease second = admit({.tokens = prompt});
  for (Lease* lease : {&first, &second}) {
    compute(*lease);
    lease->writes(next_step_, 12, 13);  // the second's blocks have to wait for it
    EXPECT_GT(fail_until_it_works([&] { EXPECT_EQ(lease->publish(), 12U); }, {&first, &second}), 2U);
    manager().step_done(next_step_++);
  }
  EXPECT_EQ(matched({.tokens = prompt}), 12U);
  EXPECT_EQ(stats().deduplicated_blocks, 3U);
}

TEST_P(EngineAllocationFailureTest, InCaptureTakesNoSlot) {
  begin_again({.blocks = 12, .slots = 1});
  cache_with_states({.tokens = tokens("xxxx y")}, {4});
  Lease lease = admit({.tokens = tokens("aaaa bbbb c"), .session = 1});
  compute(lease);
  std::optional<SnapshotId> slot;
  EXPECT_GT(fail_until_it_works([&] { slot = lease.capture(4); }, {&lease}), 0U);
  ASSERT_TRUE(slot);
  EXPECT_EQ(used_slots(), 1U);
  EXPECT_TRUE(lease.captured(*slot));
}

// A snapshot that can't be put is given up; the lease goes on.
TEST_P(EngineAllocationFailureTest, InCapturedGivesTheSnapshotUpAndNothingElse) {
  const Tokens prompt = tokens("aaaa bbbb cccc dddd e");
  std::size_t given_up = 0;
  for (std::size_t nth = 1;; ++nth) {
    begin_again();
    Lease lease = admit({.tokens = prompt, .session = 1});
    std::vector<SnapshotId> slots;
    for (const std::size_t at : {6U, 8U, 12U}) {  // a checkpoint, the sibling, the tail
      compute(lease, at);
      const auto slot = lease.capture(at);
      ASSERT_TRUE(slot);
      slots.push_back(*slot);
    }
    arm_new(nth, GetParam());
    for (const SnapshotId slot : slots) EXPECT_TRUE(lease.captured(slot));
    const bool failed = testing::allocations_tried() >= nth;
    disarm_new();
    EXPECT_EQ(manager().validate(), "");
    compute(lease);
    lease.finish();
    const ManagerStats s = stats();
    EXPECT_EQ(s.captures_published + s.captures_abandoned, 3U);
    EXPECT_EQ(used_slots(), s.captures_published);
    EXPECT_EQ(matched({.tokens = prompt}), 16U);
    if (!failed) {
      EXPECT_EQ(s.captures_published, 3U);
      break;
    }
    given_up += s.captures_abandoned;
  }
  EXPECT_GT(given_up, 0U) << "nothing failed: nothing was tested";
}

TEST_P(EngineAllocationFailureTest, InForkLeavesOneSequence) {
  for (const bool publishes : {true, false}) {
    begin_again();
    const MediaSpan cat[] = {{.position = 1, .length = 2, .content_id = {1, 2}}};
    Lease parent =
        admit({.tokens = tokens("aaaa bbbb cc"), .adapter = "lora", .media = cat, .no_publish = !publishes});
    compute(parent);
    parent.publish();
    Lease child;
    const auto fork = [&] {
      Lease::Forked forked = parent.fork();
      child = std::move(*forked.lease);
    };
    EXPECT_GT(fail_until_it_works(fork, {&parent}), 3U);
    EXPECT_EQ(child.copies().size(), 1U);
  }
}

TEST_P(EngineAllocationFailureTest, InFinishAndPreemptTheLeaseGoesOn) {
  for (const bool finishes : {true, false}) {
    begin_again();
    const Tokens prompt = tokens("aaaa bbbb cccc d");
    Lease lease = admit({.tokens = prompt, .session = 1});
    compute(lease);
    EXPECT_GT(fail_until_it_works([&] { finishes ? lease.finish() : lease.preempt(); }, {&lease}), 1U);
    EXPECT_FALSE(lease.valid());
    EXPECT_EQ(matched({.tokens = prompt}), 12U);
  }
}

TEST_P(EngineAllocationFailureTest, InClearClearsAllOrNothing) {
  const Tokens prompt = tokens("aaaa bbbb c");
  for (const bool everything : {true, false}) {
    begin_again();
    cache_with_states({.tokens = prompt, .adapter = "lora"}, {4, 8});
    const Lease lease = admit({.tokens = prompt, .adapter = "lora"});
    ClearReport report;
    const auto clear = [&] { report = everything ? manager().clear() : manager().clear("lora"); };
    EXPECT_GT(fail_until_it_works(clear, {&lease}), 1U);
    EXPECT_EQ(report.blocks, 2U);
    EXPECT_EQ(report.blocks_held, 2U);
    EXPECT_EQ(matched({.tokens = prompt, .adapter = "lora"}), 0U);
  }
}

TEST_P(EngineAllocationFailureTest, InClearOfAnAdapterLeavesWhatIsToBeClearedByAnotherCall) {
  begin_again();
  const Tokens prompt = tokens("aaaa bbbb c");
  for (const std::uint64_t generation : {0U, 1U, 2U}) {
    cache_with_states({.tokens = prompt, .adapter = "lora", .adapter_generation = generation}, {4});
  }
  const Lease lease = admit({.tokens = prompt, .adapter = "lora", .adapter_generation = 1});
  std::size_t failures = 0;
  for (std::size_t nth = 1;; ++nth) {
    arm_new(nth, GetParam());
    try {
      (void)manager().clear("lora");
      disarm_new();
      break;
    } catch (const std::bad_alloc&) {
      disarm_new();
      ++failures;
      EXPECT_EQ(manager().validate(), "");
    }
  }
  EXPECT_GT(failures, 3U);
  for (const std::uint64_t generation : {0U, 1U, 2U}) {
    EXPECT_EQ(matched({.tokens = prompt, .adapter = "lora", .adapter_generation = generation}), 0U);
  }
  EXPECT_EQ(stats().blocks_held_by_clears + 2U, used_blocks()) << "only what the lease may use, and its own";
}

// What ends a lease or a step, or lets go of something, needs no memory.
TEST_P(EngineAllocationFailureTest, DoesNotConcernWhatLetsGo) {
  begin_again();
  const Tokens prompt = tokens("aaaa bbbb c");
  cache_with_states({.tokens = prompt}, {6});
  std::vector<Lease> leases;
  leases.reserve(4);
  for (int i = 0; i < 4; ++i) leases.push_back(admit({.tokens = prompt, .reserve_tokens = 6}));
  leases[0].writes(1, 6, 8);
  leases[1].writes(1, 6, 8);
  leases[2].restored();
  leases[2].writes(2, 6, 8);
  manager().step_done(2);
  const auto slot = leases[2].capture(7);
  ASSERT_TRUE(slot);
  const auto allocations = [&](const auto& call) {
    arm_new(1, GetParam());
    call();
    disarm_new();
    return testing::allocations_tried();
  };
  EXPECT_EQ(allocations([&] { leases[3].restored(); }), 0U);
  EXPECT_EQ(allocations([&] { leases[2].cancel_capture(*slot); }), 0U);
  EXPECT_EQ(allocations([&] { leases[0].abandon(); }), 0U) << "parked with its step";
  EXPECT_EQ(allocations([&] { leases[3].abandon(); }), 0U);
  EXPECT_EQ(allocations([&] { manager().step_done(1); }), 0U);
  EXPECT_EQ(allocations([&] { EXPECT_EQ(leases[1].written_tokens(), 8U); }), 0U);
  EXPECT_EQ(allocations([&] { leases.clear(); }), 0U);
  EXPECT_EQ(stats().abandoned, 4U);
}

INSTANTIATE_TEST_SUITE_P(Faults, EngineAllocationFailureTest,
                         ::testing::Values(FailingNew::kNth, FailingNew::kNthAndAllLater), [](const auto& which) {
                           return which.param == FailingNew::kNthAndAllLater ? "OfTheNthAndAllLaterAllocations"
                                                                             : "OfTheNthAllocation";
                         });

}  // namespace
}  // namespace cairn
