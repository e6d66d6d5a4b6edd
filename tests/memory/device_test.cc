// HostDevice, and the device of the tests that the others trust.
#include <cairn/device.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "support/manual_device.h"

namespace cairn::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Counts its calls and keeps the last error.
struct Outcome {
  int calls = 0;
  std::error_code error;

  CopyDone done() {
    return [this](std::error_code e) {
      ++calls;
      error = e;
    };
  }
};

TEST(HostDeviceTest, HandsOutAlignedMemoryThatIsAllZero) {
  HostDevice device;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{10'001}}) {
    std::byte* const memory = device.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % Device::kAlignment, 0U);
    EXPECT_THAT(std::vector<std::byte>(memory, memory + bytes), Each(std::byte{0}));
    std::fill_n(memory, bytes, std::byte{0xFF});  // what the next one may be given
    device.deallocate(memory, bytes);
  }
}

TEST(HostDeviceTest, HasCopiedWhenTheCallReturnsAndSaysSoOnce) {
  HostDevice device;
  std::byte* const memory = device.allocate(8);
  const std::vector<std::byte> given = {std::byte{1}, std::byte{2}, std::byte{3}};
  std::vector<std::byte> got(3);
  Outcome in;
  device.copy_in(memory, given, in.done());
  Outcome within;
  device.copy_within(memory + 5, memory, 3, within.done());
  Outcome out;
  device.copy_out(got, memory + 5, out.done());
  for (const Outcome* outcome : {&in, &within, &out}) {
    EXPECT_EQ(outcome->calls, 1);
    EXPECT_FALSE(outcome->error);
  }
  EXPECT_EQ(got, given);
  device.deallocate(memory, 8);
}

TEST(HostDeviceTest, CopiesNoBytesFromNowhere) {
  HostDevice device;
  Outcome outcome;
  device.copy_in(nullptr, {}, outcome.done());
  EXPECT_EQ(outcome.calls, 1);
}

TEST(HostDeviceTest, RefusesACopyThatNobodyWaitsForAndCopiesNothing) {
  HostDevice device;
  std::byte* const memory = device.allocate(1);
  const std::vector<std::byte> given = {std::byte{7}};
  EXPECT_THROW(device.copy_in(memory, given, {}), std::invalid_argument);
  EXPECT_EQ(*memory, std::byte{0});
  device.deallocate(memory, 1);
}

TEST(ManualDeviceTest, MovesBytesWhenItIsToldToAndInTheOrderItIsTold) {
  ManualDevice device;
  std::byte* const memory = device.allocate(2);
  EXPECT_EQ(device.allocated_bytes(), 2U);
  const std::vector<std::byte> first = {std::byte{1}};
  const std::vector<std::byte> second = {std::byte{2}};
  Outcome first_outcome;
  Outcome second_outcome;
  device.copy_in(memory, first, first_outcome.done());
  device.copy_in(memory + 1, second, second_outcome.done());
  EXPECT_EQ(device.pending(), 2U);
  EXPECT_FALSE(device.complete(2));

  EXPECT_TRUE(device.complete(1));
  EXPECT_THAT(std::vector<std::byte>(memory, memory + 2), ElementsAre(std::byte{0}, std::byte{2}));
  EXPECT_EQ(first_outcome.calls, 0);
  EXPECT_EQ(second_outcome.calls, 1);

  EXPECT_TRUE(device.fail());
  EXPECT_EQ(*memory, ManualDevice::kSpoilt);
  EXPECT_EQ(first_outcome.error, std::errc::io_error);
  EXPECT_EQ(device.pending(), 0U);

  device.deallocate(memory, 2);
  EXPECT_EQ(device.allocated_bytes(), 0U);
}

TEST(ManualDeviceTest, RefusesOneCopyAndNotTheNext) {
  ManualDevice device;
  std::byte byte{};
  Outcome outcome;
  device.refuse_next_copy();
  EXPECT_THROW(device.copy_within(&byte, &byte, 0, outcome.done()), std::system_error);
  device.copy_within(&byte, &byte, 0, outcome.done());
  device.complete_all();
  EXPECT_EQ(outcome.calls, 1);
}

}  // namespace
}  // namespace cairn::testing
