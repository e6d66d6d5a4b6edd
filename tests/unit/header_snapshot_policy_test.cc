// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/snapshot_policy.h>

#include <gtest/gtest.h>

#include <cairn/model_shape.h>
#include <cairn/snapshot_policy.h>

#include <type_traits>

namespace cairn {
namespace {

static_assert(std::is_aggregate_v<SnapshotPolicyOptions>);
static_assert(std::is_aggregate_v<ModelShape>);
static_assert(std::is_same_v<decltype(SnapshotPolicyOptions::flop_alpha), std::optional<double>>);

TEST(SnapshotPolicyHeader, StandsAloneAndHasDefaults) {
  const SnapshotPolicyOptions options;
  EXPECT_GT(options.session_leases_max, 0U);
  EXPECT_GT(options.session_lease_evictions, 0U);
  EXPECT_TRUE(options.flop_alpha.has_value());
  EXPECT_EQ(options.snapshot_bytes, 0U) << "those of the model";
  EXPECT_EQ(options.model, model_presets().front().shape);
  EXPECT_EQ(snapshot_policy_names().front(), "lru");
}

}  // namespace
}  // namespace cairn
