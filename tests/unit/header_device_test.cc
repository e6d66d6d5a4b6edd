// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/device.h>

#include <gtest/gtest.h>

#include <type_traits>

namespace cairn {
namespace {

static_assert(std::is_abstract_v<Device> && std::has_virtual_destructor_v<Device>);
static_assert(std::is_final_v<HostDevice> && std::is_convertible_v<HostDevice*, Device*>);
static_assert(std::is_same_v<CopyDone, std::function<void(std::error_code)>>);
static_assert(noexcept(std::declval<Device&>().deallocate(nullptr, 0)));

TEST(DeviceHeaderTest, HasOneHostDeviceForAll) {
  ASSERT_NE(HostDevice::shared(), nullptr);
  EXPECT_EQ(HostDevice::shared(), HostDevice::shared());
}

}  // namespace
}  // namespace cairn
