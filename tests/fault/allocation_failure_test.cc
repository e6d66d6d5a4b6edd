// Memory runs out at each allocation of each call: the call throws std::bad_alloc and the index is as it was before.
//
// Operator new is replaced in this program. The programs of the model test are run with the first allocation of a
// call failing, then the second, and so on until the call is done; the model says what it must answer then, and what
// every later call must.
#include <cairn/radix_tree.h>
#include <gtest/gtest.h>

#include <map>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "fault/failing_new.h"
#include "support/lockstep.h"
#include "support/operation_decoder.h"
#include "support/paired_caches.h"

namespace cairn::testing {
namespace {

class AllocationFaults final : public FaultInjector {
 public:
  // Either the nth allocation alone fails, or also all that follow it.
  explicit AllocationFaults(FailingNew which) : which_(which) {}
  ~AllocationFaults() override { disarm_new(); }

  void arm(std::size_t nth) override { arm_new(nth, which_); }
  void disarm() override { disarm_new(); }
  void note_failed(std::string_view name) override { ++failures_[std::string(name)]; }
  void note_done(std::string_view name) override {
    if ((name == "release" || name == "release_matched") && allocations_tried() > 0) {
      throw Violation(std::string(name) + " allocates");
    }
    ++done_[std::string(name)];
  }

  // Failed attempts, and calls done.
  [[nodiscard]] std::size_t failures(const std::string& name) { return failures_[name]; }
  [[nodiscard]] std::size_t done(const std::string& name) { return done_[name]; }

 private:
  FailingNew which_;
  std::map<std::string, std::size_t> failures_;
  std::map<std::string, std::size_t> done_;
};

class AllocationFailure : public ::testing::TestWithParam<FailingNew> {};

TEST_P(AllocationFailure, LeavesTheIndexAsItWasBeforeTheCall) {
  constexpr std::uint64_t kPrograms = 300;
  constexpr std::size_t kOperations = 150;
  AllocationFaults faults(GetParam());
  for (std::uint64_t seed = 0; seed < kPrograms; ++seed) {
    auto bytes = random_program_bytes(seed, kOperations);
    Program program = decode_program(bytes);
    program.settings.breaks_protocol = false;
    const RunReport report = run_in_lockstep(program, nullptr, &faults);
    ASSERT_EQ(report.failure, "") << "seed " << seed << ", operation " << report.operation;
  }
  for (const char* name :
       {"lookup", "acquire", "insert", "insert_with_snapshot", "extend", "evict", "insert_intermediate_snapshot",
        "insert_tail_snapshot", "insert_tail_sibling_snapshot", "evict_snapshot_to_tier", "promote_snapshot", "clear",
        "evict_blocks_to_tier", "save_blocks", "spilled_snapshot", "promote_and_pin", "register_stored_block",
        "register_spilled_snapshot"}) {
    EXPECT_GT(faults.failures(name), 0U) << name << " never failed: nothing was tested";
  }
  for (const char* name : {"truncate", "release", "release_matched", "find_snapshot", "take_orphaned_tier_keys",
                           "forget_snapshot_tier_key", "evict_snapshot_lru", "peek_matched_tokens", "unpin_snapshot",
                           "peek", "peek_snapshot", "forget_tier_key"}) {
    EXPECT_GT(faults.done(name), 0U) << name << " was never called";
  }
  EXPECT_EQ(faults.failures("unpin_snapshot"), 0U) << "whoever gives a pin back can't be told to try again";
}

INSTANTIATE_TEST_SUITE_P(Faults, AllocationFailure, ::testing::Values(FailingNew::kNth, FailingNew::kNthAndAllLater),
                         [](const auto& which) {
                           return which.param == FailingNew::kNthAndAllLater ? "OfTheNthAndAllLaterAllocations"
                                                                             : "OfTheNthAllocation";
                         });

// Truncating needs memory only where the table of ends has to grow: many handles on one chain make it grow.
TEST(FailureOfAllocation, InTruncateLeavesTheHandleAsItWas) {
  constexpr std::size_t kBlocks = 300;
  RadixTree tree({.block_size = 1, .hash_seed = 1});
  std::vector<TokenId> tokens(kBlocks);
  std::iota(tokens.begin(), tokens.end(), TokenId{0});
  tree.insert(tokens, tokens, {}, 1, kBlocks, 0);
  std::vector<PrefixHandle> handles;
  for (std::size_t i = 0; i < kBlocks; ++i) handles.push_back(tree.acquire(tokens, 0, 0).handle);

  std::size_t failures = 0;
  for (std::size_t kept = 0; kept < kBlocks; ++kept) {
    for (std::size_t nth = 1;; ++nth) {
      arm_new(nth, FailingNew::kNth);
      try {
        tree.truncate(handles[kept], kept);
        disarm_new();
        break;
      } catch (const std::bad_alloc&) {
        disarm_new();
      }
      ++failures;
      EXPECT_EQ(handles[kept].tokens(), kBlocks);
      EXPECT_EQ(tree.validate(), "");
    }
    EXPECT_EQ(handles[kept].tokens(), kept);
  }
  EXPECT_GT(failures, 0U) << "truncate never failed: nothing was tested";

  // Handle n holds n blocks: released one by one, each frees the one block that only it held.
  EXPECT_EQ(tree.evict(kBlocks).physical, std::vector<BlockId>{kBlocks - 1});
  for (std::size_t kept = kBlocks - 1; kept > 0; --kept) {
    tree.release(handles[kept]);
    EXPECT_EQ(tree.evict(kBlocks).physical, std::vector<BlockId>{static_cast<BlockId>(kept - 1)});
  }
  EXPECT_EQ(tree.validate(), "");
}

TEST(FailureOfAllocation, InTheConstructorThrowsAndLeaksNothing) {
  std::size_t failures = 0;
  for (std::size_t nth = 1;; ++nth) {
    arm_new(nth, FailingNew::kNth);
    try {
      std::optional<RadixTree> tree;
      tree.emplace(RadixTreeOptions{.hash_seed = 1});
      disarm_new();
      EXPECT_EQ(tree->validate(), "");
      break;
    } catch (const std::bad_alloc&) {
      disarm_new();
      ++failures;
    }
  }
  EXPECT_GT(failures, 0U);
}

}  // namespace
}  // namespace cairn::testing
