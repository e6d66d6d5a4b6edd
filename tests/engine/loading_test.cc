// State that is copied to where the engine wants it while the lease can be polled.
#include <poll.h>

#include <array>
#include <system_error>

#include "engine/engine_fixture.h"
#include "support/manual_device.h"

namespace cairn {
namespace {

using State = std::array<std::byte, 8>;  // of one shard

bool can_be_read(int descriptor) {
  pollfd poll_descriptor{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&poll_descriptor, 1, 0) == 1;
}

// Slots of two shards on a device that copies when it is told to; a snapshot of "aaaa" is cached.
class LoadingTest : public ::testing::Test {
 protected:
  LoadingTest() {
    Lease lease = admit("aaaa bb");
    lease.writes(1, 0, 6);
    manager_->step_done(1);
    const SnapshotId slot = lease.capture(4).value();
    for (std::size_t shard = 0; shard < 2; ++shard) {
      const State bytes = state_of(shard);
      pool_->write(slot, shard, bytes, [](std::error_code) {});
      device_->complete_all();
      lease.captured(slot, shard);
    }
    lease.finish();
  }
  ~LoadingTest() override {
    EXPECT_EQ(manager_->validate(), "");
    manager_.reset();
    device_->complete_all();
    EXPECT_EQ(pool_->used_slots(), 0u);
    EXPECT_EQ(blocks_->used_blocks(), 0u);
    EXPECT_EQ(pool_->errors().last, "");
  }

  Lease admit(std::string_view prompt) {
    const Tokens text = tokens(prompt);
    return std::move(manager_->admit({.tokens = text}).lease.value());
  }
  static State state_of(std::size_t shard) {
    State state;
    state.fill(static_cast<std::byte>(0x10 + shard));
    return state;
  }

  std::shared_ptr<testing::ManualDevice> device_ = std::make_shared<testing::ManualDevice>();
  std::shared_ptr<BlockPool> blocks_ = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = 8});
  std::shared_ptr<SnapshotPool> pool_ = std::make_shared<SnapshotPool>(
      SnapshotPoolOptions{.slots = 1, .slot_bytes = 16, .shards = 2, .device = device_});
  std::optional<CacheManager> manager_{
      CacheManagerOptions{.block_size = kBlockSize, .blocks = blocks_, .snapshots = pool_}};
};

TEST_F(LoadingTest, ALeaseThatLoadsNothingIsReadyAndSaysSo) {
  Lease lease = admit("aaaa cc");
  EXPECT_EQ(lease.state(), LeaseState::kReady);
  EXPECT_TRUE(can_be_read(lease.event_fd()));
}

TEST_F(LoadingTest, ALeaseIsLoadingUntilTheLastShardIsThere) {
  Lease lease = admit("aaaa cc");
  ASSERT_TRUE(lease.restore_point().has_value());
  std::array<State, 2> states{};
  const int descriptor = lease.event_fd();
  lease.load_state(0, states[0]);
  lease.load_state(1, states[1]);
  EXPECT_EQ(lease.event_fd(), descriptor);
  EXPECT_EQ(lease.state(), LeaseState::kLoading);
  EXPECT_FALSE(can_be_read(descriptor));
  device_->complete(1);
  EXPECT_EQ(lease.state(), LeaseState::kLoading);
  EXPECT_FALSE(can_be_read(descriptor));
  device_->complete(0);
  EXPECT_EQ(lease.state(), LeaseState::kReady);
  EXPECT_TRUE(can_be_read(descriptor));
  EXPECT_EQ(states[0], state_of(0));
  EXPECT_EQ(states[1], state_of(1));
  lease.restored();
}

TEST_F(LoadingTest, ADescriptorAskedForWhileLoadingIsReadableAtTheEnd) {
  Lease lease = admit("aaaa cc");
  State state{};
  lease.load_state(1, state);
  const int descriptor = lease.event_fd();
  EXPECT_FALSE(can_be_read(descriptor));
  device_->complete_all();
  EXPECT_TRUE(can_be_read(descriptor));
}

TEST_F(LoadingTest, ACopyThatFailsIsTold) {
  Lease lease = admit("aaaa cc");
  State state{};
  lease.load_state(0, state);
  device_->fail(0);
  EXPECT_EQ(lease.state(), LeaseState::kFailed);
  EXPECT_TRUE(can_be_read(lease.event_fd()));
}

TEST_F(LoadingTest, ASlotIsNotUsedAgainWhileItIsBeingLoadedThoughTheLeaseIsGone) {
  State state{};
  {
    Lease lease = admit("aaaa cc");
    lease.load_state(0, state);
  }
  Lease other = admit("dddd ee");
  other.writes(2, 0, 6);
  manager_->step_done(2);
  EXPECT_EQ(other.capture(4), std::nullopt) << "the only slot is being read";
  device_->complete_all();
  EXPECT_EQ(state, state_of(0));
  EXPECT_NE(other.capture(4), std::nullopt);
}

TEST_F(LoadingTest, RestoredIsRefusedWhileACopyIsUnderWay) {
  Lease lease = admit("aaaa cc");
  State state{};
  lease.load_state(0, state);
  expect_refusal([&] { lease.restored(); }, {"restored", "under way"});
  device_->complete_all();
  lease.restored();
  expect_refusal([&] { lease.load_state(0, state); }, {"load_state", "no snapshot"});
}

TEST_F(LoadingTest, LoadingRefusesWhatIsNotThere) {
  State state{};
  Lease without = admit("ffff gg");
  expect_refusal([&] { without.load_state(0, state); }, {"load_state", "no snapshot"});
  Lease lease = admit("aaaa cc");
  EXPECT_THROW(lease.load_state(2, state), std::invalid_argument);
  EXPECT_THROW(lease.load_state(0, std::span(state).first(7)), std::invalid_argument);
  device_->refuse_next_copy();
  EXPECT_THROW(lease.load_state(0, state), std::system_error);
  EXPECT_EQ(lease.state(), LeaseState::kReady);
}

}  // namespace
}  // namespace cairn
