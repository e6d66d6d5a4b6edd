// A device that is late with what a store reads or is to get, and does at once what the engine copies.
#ifndef CAIRN_TESTS_ENGINE_PROPERTY_LATE_DEVICE_H_
#define CAIRN_TESTS_ENGINE_PROPERTY_LATE_DEVICE_H_

#include <cairn/device.h>
#include <cairn/spill_store.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "support/manual_device.h"

namespace cairn::testing {

// Thread-safe once it knows the buffers. Late copies wait in `copies()`.
class LateDevice final : public Device {
 public:
  // Copies into and out of these buffers are late, and no others: all that there can ever be, so it has each made
  // once.
  void know(SpillBuffers& buffers) {
    ranges_.clear();
    std::vector<SpillBufferPtr> all;
    const SpillLayout& layout = buffers.layout();
    for (const RecordKind kind : {RecordKind::kBlock, RecordKind::kPlainSnapshot}) {
      if ((kind == RecordKind::kBlock ? layout.block_bytes : layout.snapshot_bytes) == 0) continue;
      while (all.size() * buffers.record_bytes(kind) < buffers.bytes_max() / 2) {
        SpillBufferPtr buffer = buffers.allocate(kind);
        if (!buffer) break;
        ranges_.emplace_back(buffer->record().data(), buffer->record().data() + buffer->record().size());
        all.push_back(std::move(buffer));
      }
    }
    std::ranges::sort(ranges_, std::less<>());
  }
  void be_late(bool late) { late_.store(late, std::memory_order_relaxed); }
  [[nodiscard]] ManualDevice& copies() { return manual_; }

  [[nodiscard]] std::byte* allocate(std::size_t bytes) override { return host_.allocate(bytes); }
  void deallocate(std::byte* memory, std::size_t bytes) noexcept override { host_.deallocate(memory, bytes); }
  void copy_in(std::byte* to_device, std::span<const std::byte> from_host, CopyDone done) override {
    device_for(from_host.data()).copy_in(to_device, from_host, std::move(done));
  }
  void copy_out(std::span<std::byte> to_host, const std::byte* from_device, CopyDone done) override {
    device_for(to_host.data()).copy_out(to_host, from_device, std::move(done));
  }
  void copy_within(std::byte* to_device, const std::byte* from_device, std::size_t bytes, CopyDone done) override {
    host_.copy_within(to_device, from_device, bytes, std::move(done));
  }

 private:
  using Range = std::pair<const std::byte*, const std::byte*>;

  Device& device_for(const std::byte* host) {
    if (!late_.load(std::memory_order_relaxed)) return host_;
    const auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), host,
        [](const std::byte* memory, const Range& range) { return std::less<>()(memory, range.first); });
    if (after == ranges_.begin() || !std::less<>()(host, std::prev(after)->second)) return host_;
    return manual_;
  }

  HostDevice host_;
  ManualDevice manual_;
  std::vector<Range> ranges_;  // ascending
  std::atomic<bool> late_{true};
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_ENGINE_PROPERTY_LATE_DEVICE_H_
