// This header comes first and alone: it has to stand on its own, and to be harmless when included again.
#include <cairn/spill_store.h>

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

namespace cairn {
namespace {

static_assert(std::is_aggregate_v<SpillLayout> && std::is_aggregate_v<RecordLineage>);
static_assert(std::is_aggregate_v<RamStoreOptions> && std::is_aggregate_v<FileStoreOptions>);
static_assert(std::is_abstract_v<SpillStore> && std::has_virtual_destructor_v<SpillStore>);
static_assert(!std::is_copy_constructible_v<SpillBuffer> && !std::is_copy_constructible_v<SpillBuffers>);
static_assert(noexcept(std::declval<SpillBuffers&>().allocate(RecordKind::kBlock)));
static_assert(noexcept(std::declval<SpillStore&>().erase(1)) && noexcept(std::declval<SpillStore&>().touch(1)));

TEST(SpillStoreHeaderTest, AFileStoreHasALimitOnlyIfOneIsNamed) {
  const FileStoreOptions options;
  EXPECT_EQ(options.bytes_max, 0U);
  EXPECT_FALSE(options.reinitialize);
  EXPECT_EQ(options.io, FileStoreOptions::Io::kBest);
}

TEST(SpillStoreHeaderTest, FingerprintsDifferIfAnyFieldDoes) {
  const ModelFingerprint one{.weights = "w", .kv_type = "fp16", .layout = "nhd", .ranks = 2};
  EXPECT_EQ(one, ModelFingerprint(one));
  EXPECT_NE(one, (ModelFingerprint{.weights = "v", .kv_type = "fp16", .layout = "nhd", .ranks = 2}));
  EXPECT_NE(one, (ModelFingerprint{.weights = "w", .kv_type = "fp8", .layout = "nhd", .ranks = 2}));
  EXPECT_NE(one, (ModelFingerprint{.weights = "w", .kv_type = "fp16", .layout = "hnd", .ranks = 2}));
  EXPECT_NE(one, (ModelFingerprint{.weights = "w", .kv_type = "fp16", .layout = "nhd", .ranks = 1}));
  EXPECT_EQ(to_string(one), "weights=w, kv_type=fp16, layout=nhd, ranks=2");
}

}  // namespace
}  // namespace cairn
