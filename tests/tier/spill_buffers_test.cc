// SpillBuffers: memory for records, aligned, shared, bounded.
#include <cairn/spill_store.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tier/records.h"

namespace cairn::testing {
namespace {

TEST(SpillBuffers, MakeAlignedMemoryWithRoomForTheHeaderInFront) {
  SpillBuffers buffers(small_layout(), 1 << 20);
  const SpillBufferPtr block = buffers.allocate(RecordKind::kBlock);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(block->payload().size(), small_layout().block_bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->record().data()) % SpillBuffer::kAlignment, 0U);
  EXPECT_EQ(block->record().size() % SpillBuffer::kAlignment, 0U);
  EXPECT_EQ(block->record().size(), buffers.record_bytes(RecordKind::kBlock));
  EXPECT_EQ(block->payload().data(), block->record().data() + buffers.header_bytes());
  const SpillBufferPtr tail = buffers.allocate(RecordKind::kTail);
  EXPECT_EQ(tail->payload().size(), small_layout().snapshot_bytes);
  EXPECT_EQ(buffers.used_bytes(), block->record().size() + tail->record().size());
}

TEST(SpillBuffers, HandOutZerosBehindThePayloadAlsoTheSecondTime) {
  SpillBuffers buffers(small_layout(), 1 << 20);
  SpillBufferPtr block = buffers.allocate(RecordKind::kBlock);
  std::ranges::fill(block->record(), std::byte{0xFF});
  block.reset();
  block = buffers.allocate(RecordKind::kBlock);
  const auto padding = block->record().subspan(buffers.header_bytes() + block->payload().size());
  ASSERT_FALSE(padding.empty());
  EXPECT_TRUE(std::ranges::all_of(padding, [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(SpillBuffers, NeverTakeMoreThanTheirLimit) {
  const std::size_t block_bytes = SpillBuffers(small_layout(), 1 << 20).record_bytes(RecordKind::kBlock);
  const std::size_t snapshot_bytes = SpillBuffers(small_layout(), 1 << 20).record_bytes(RecordKind::kTail);
  SpillBuffers buffers(small_layout(), 2 * snapshot_bytes + block_bytes - 1);
  std::vector<SpillBufferPtr> taken;
  while (SpillBufferPtr buffer = buffers.allocate(RecordKind::kTail)) taken.push_back(std::move(buffer));
  EXPECT_EQ(taken.size(), 2U);
  EXPECT_EQ(buffers.allocate(RecordKind::kBlock), nullptr);
  taken.pop_back();
  EXPECT_EQ(buffers.used_bytes(), snapshot_bytes);
  EXPECT_NE(buffers.allocate(RecordKind::kTail), nullptr);
}

TEST(SpillBuffers, GiveUpFreeMemoryOfOneSizeForTheOther) {
  const std::size_t snapshot_bytes = SpillBuffers(small_layout(), 1 << 20).record_bytes(RecordKind::kTail);
  SpillBuffers buffers(small_layout(), 2 * snapshot_bytes);
  std::vector<SpillBufferPtr> blocks;
  while (SpillBufferPtr buffer = buffers.allocate(RecordKind::kBlock)) blocks.push_back(std::move(buffer));
  EXPECT_EQ(buffers.allocate(RecordKind::kTail), nullptr);
  blocks.clear();
  EXPECT_EQ(buffers.used_bytes(), 0U);
  const SpillBufferPtr first = buffers.allocate(RecordKind::kTail);
  const SpillBufferPtr second = buffers.allocate(RecordKind::kTail);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(buffers.allocate(RecordKind::kBlock), nullptr);
}

TEST(SpillBuffers, MayGoBeforeTheirBuffers) {
  auto buffers = std::make_unique<SpillBuffers>(small_layout(), 1 << 20);
  const SpillBufferPtr block = buffers->allocate(RecordKind::kBlock);
  buffers.reset();
  std::ranges::fill(block->payload(), std::byte{1});
  EXPECT_EQ(block->payload().front(), std::byte{1});
}

TEST(SpillBuffers, HaveNoneForAKindThatTheModelLacks) {
  SpillLayout layout = small_layout();
  layout.snapshot_bytes = 0;
  SpillBuffers buffers(layout, 1 << 20);
  EXPECT_EQ(buffers.allocate(RecordKind::kPlainSnapshot), nullptr);
  EXPECT_EQ(buffers.record_bytes(RecordKind::kPlainSnapshot), 0U);
  EXPECT_NE(buffers.allocate(RecordKind::kBlock), nullptr);
}

TEST(SpillBuffers, RefuseWhatCannotWork) {
  SpillLayout layout = small_layout();
  layout.fingerprint.weights = std::string(129, 'w');
  EXPECT_THROW(SpillBuffers(layout, 1 << 20), std::invalid_argument);
  layout = small_layout();
  layout.block_bytes = layout.snapshot_bytes = 0;
  EXPECT_THROW(SpillBuffers(layout, 1 << 20), std::invalid_argument);
  const std::size_t snapshot_bytes = SpillBuffers(small_layout(), 1 << 20).record_bytes(RecordKind::kTail);
  EXPECT_THROW(SpillBuffers(small_layout(), 2 * snapshot_bytes - 1), std::invalid_argument);
  EXPECT_NO_THROW(SpillBuffers(small_layout(), 2 * snapshot_bytes));
}

TEST(Fingerprint, NamesEveryFieldInMessages) {
  EXPECT_EQ(to_string(ModelFingerprint{.weights = "w@1", .kv_type = "fp16", .layout = "nhd", .ranks = 2}),
            "weights=w@1, kv_type=fp16, layout=nhd, ranks=2");
}

}  // namespace
}  // namespace cairn::testing
