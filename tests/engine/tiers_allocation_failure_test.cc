// The engine with a store when memory runs out: each allocation fails once, of what admits, fetches, stores, saves and
// clears. Whatever becomes of the call, no byte is wrong, nothing is leaked, and the next request is served.
#include <functional>
#include <new>

#include "engine/tiers_fixture.h"
#include "fault/failing_new.h"

namespace cairn {
namespace {

using testing::allocations_tried;
using testing::arm_new;
using testing::disarm_new;
using testing::FailingNew;

class TiersAllocationFailureTest : public TiersTest, public ::testing::WithParamInterface<FailingNew> {
 protected:
  const Tokens prompt_ = tokens("aaaa bbbb cccc d");
  const Tokens other_ = tokens("xxxx yyyy zzzz q");
  const Request request_{.tokens = prompt_};
  const Sizes sizes_{.blocks = 8, .slots = 3};

  // Two requests with a state at 8 and at 12; everything in the store alone.
  void start_stored() {
    start(sizes_, {.capture_tails = false, .hash_seed = 1});
    cache(request_, {8});
    cache({.tokens = other_}, {12});
    push_out_states();
    push_out_blocks();
  }

  // `call` from the same beginning, once for each of its allocations; it may throw std::bad_alloc, no more.
  void fail_each_allocation(const std::function<void()>& prepare, const std::function<void()>& call) {
    std::size_t failures = 0;
    for (std::size_t nth = 1;; ++nth) {
      prepare();
      arm_new(nth, GetParam());
      bool worked = true;
      try {
        call();
      } catch (const std::bad_alloc&) {
        worked = false;
      }
      const bool failed = allocations_tried() >= nth;
      disarm_new();
      SCOPED_TRACE("allocation " + std::to_string(nth));
      EXPECT_EQ(manager().validate(), "");
      serve_both();
      if (!failed) {
        EXPECT_TRUE(worked);
        break;
      }
      ++failures;
    }
    EXPECT_GT(failures, 2U);
  }

  void serve_both() {
    for (const Request& request : {request_, Request{.tokens = other_}}) {
      Lease lease = admit(request);
      compute(lease, request, request.tokens.size());
      lease.finish();
    }
  }
};

TEST_P(TiersAllocationFailureTest, OfARequestThatIsFetched) {
  fail_each_allocation([&] { start_stored(); },
                       [&] {
                         Lease lease = admit(request_);
                         compute(lease, request_, prompt_.size());
                         lease.finish();
                       });
}

TEST_P(TiersAllocationFailureTest, OfALeaseWhoseFetchIsOver) {
  std::optional<Lease> lease;
  fail_each_allocation(
      [&] {
        lease.reset();
        start_stored();
        store_->hold_gets(true);
        lease = admit(request_);
        store_->answer_gets();
        store_->hold_gets(false);
      },
      [&] {
        static_cast<void>(lease->state());
        compute(*lease, request_, prompt_.size());
        lease->finish();
        lease.reset();
      });
}

TEST_P(TiersAllocationFailureTest, OfALeaseThatGoesBackToMemory) {
  std::optional<Lease> lease;
  fail_each_allocation(
      [&] {
        lease.reset();
        start(sizes_, {.capture_tails = false, .hash_seed = 1});
        cache(request_, {8});
        push_out_states();
        cache({.tokens = prompt_, .no_fetch = true}, {3});
        store_->hold_gets(true);
        lease = admit(request_);
        store_->answer_with(GetResult::Status::kFailed);
        store_->answer_gets();
        store_->answer_with(std::nullopt);
        store_->hold_gets(false);
      },
      [&] {
        if (lease->state() == LeaseState::kReady) {
          compute(*lease, request_, prompt_.size());
          lease->finish();
        }
        lease.reset();
      });
}

TEST_P(TiersAllocationFailureTest, OfWhatLeavesMemory) {
  fail_each_allocation(
      [&] {
        start(sizes_, {.capture_tails = false, .hash_seed = 1});
        cache(request_, {8});
        cache({.tokens = other_}, {12});
      },
      [&] {
        push_out_blocks();
        Lease lease = admit({.tokens = prompt_, .no_read = true});
        compute(lease, request_, 3);
        for (std::size_t at = 1; at <= 3; ++at) static_cast<void>(lease.capture(at));
        lease.abandon();
      });
}

TEST_P(TiersAllocationFailureTest, OfSave) {
  fail_each_allocation(
      [&] {
        start(sizes_, {.capture_tails = false, .hash_seed = 1});
        cache(request_, {8});
        cache({.tokens = other_}, {12});
      },
      [&] { static_cast<void>(manager().save(std::chrono::seconds(10))); });
}

TEST_P(TiersAllocationFailureTest, OfAClearThatIsCalledAgain) {
  fail_each_allocation([&] { start_stored(); },
                       [&] {
                         manager().clear("");
                         EXPECT_EQ(store_->keys().size(), 0U);
                       });
}

INSTANTIATE_TEST_SUITE_P(Faults, TiersAllocationFailureTest,
                         ::testing::Values(FailingNew::kNth, FailingNew::kNthAndAllLater),
                         [](const auto& which) { return which.param == FailingNew::kNth ? "One" : "AllLater"; });

}  // namespace
}  // namespace cairn
