#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/containers.h"
#include "base/mutex.h"
#include "base/refuse.h"
#include "cairn/spill_store.h"
#include "tier/record.h"

namespace cairn {
namespace {

constexpr std::size_t kTextBytesMax = 128;

void check_text(const char* name, const std::string& text) {
  if (text.size() > kTextBytesMax) {
    refuse("SpillLayout::fingerprint." + std::string(name),
           std::to_string(text.size()) + " bytes are more than " + std::to_string(kTextBytesMax));
  }
}

void check_layout(const SpillLayout& layout) {
  check_text("weights", layout.fingerprint.weights);
  check_text("kv_type", layout.fingerprint.kv_type);
  check_text("layout", layout.fingerprint.layout);
  if (layout.block_size == 0) refuse("SpillLayout::block_size", "must not be 0");
  if (layout.block_size > 65'536) {
    refuse("SpillLayout::block_size", std::to_string(layout.block_size) + " is more than 65536");
  }
  constexpr std::size_t kRecordTokensMax = std::size_t{1} << 20;
  if (layout.record_tokens > kRecordTokensMax) {
    refuse("SpillLayout::record_tokens",
           std::to_string(layout.record_tokens) + " is more than " + std::to_string(kRecordTokensMax));
  }
  if (layout.block_bytes == 0 && layout.snapshot_bytes == 0) {
    refuse("SpillLayout::block_bytes and snapshot_bytes", "must not both be 0");
  }
}

// Layouts that mean the same are equal.
SpillLayout normalized(SpillLayout layout) {
  if (layout.record_tokens <= layout.block_size) layout.record_tokens = 0;
  return layout;
}

}  // namespace

// Shared by the SpillBuffers and by every buffer that somebody has, so the memory outlives them all.
class SpillBuffers::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(SpillLayout layout, std::size_t bytes_max)
      : layout_(normalized(std::move(layout))), bytes_max_(bytes_max), header_bytes_(record_header_bytes(layout_)) {
    const std::array<RecordKind, kSlabs> kinds = {RecordKind::kBlock, RecordKind::kPlainSnapshot};
    for (std::size_t size = 0; size < kSlabs; ++size) {
      payload_bytes_[size] = record_payload_bytes(layout_, kinds[size]);
      if (payload_bytes_[size] == 0) continue;
      record_bytes_[size] = header_bytes_ + round_up_to_alignment(payload_bytes_[size]);
      if (record_bytes_[size] > bytes_max_ / 2) {
        refuse("SpillBuffers: bytes_max", std::to_string(bytes_max_) + " is less than two records of " +
                                              std::to_string(record_bytes_[size]) + " bytes");
      }
    }
  }

  SpillBufferPtr allocate(RecordKind kind) {
    const auto size = static_cast<std::size_t>(slab_of(kind));
    if (record_bytes_[size] == 0) return nullptr;
    std::unique_ptr<SpillBuffer, Release> buffer = take(size);
    if (buffer == nullptr) return nullptr;
    const std::span<std::byte> record = buffer->record();
    const std::size_t end = header_bytes_ + payload_bytes_[size];
    std::memset(record.data() + end, 0, record.size() - end);
    return {buffer.release(), GiveBack{shared_from_this(), size}};  // which gives it back, should this throw
  }

  [[nodiscard]] const SpillLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::size_t header_bytes() const noexcept { return header_bytes_; }
  [[nodiscard]] std::size_t record_bytes(RecordKind kind) const noexcept {
    return record_bytes_[static_cast<std::size_t>(slab_of(kind))];
  }
  [[nodiscard]] std::size_t bytes_max() const noexcept { return bytes_max_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept {
    const MutexLock lock(mutex_);
    return used_bytes_;
  }

 private:
  struct Release {
    void operator()(SpillBuffer* buffer) const noexcept {
      std::free(buffer->record().data());  // NOLINT(cppcoreguidelines-no-malloc): of aligned_alloc
      delete buffer;
    }
  };
  using Owned = std::unique_ptr<SpillBuffer, Release>;

  struct GiveBack {
    std::shared_ptr<Impl> pool;
    std::size_t size;
    void operator()(SpillBuffer* buffer) const noexcept { pool->give_back(Owned(buffer), size); }
  };

  // A kept one, or a new one, if need be in the place of kept ones of the other size.
  Owned take(std::size_t size) {
    Owned buffer;
    std::vector<Owned> too_many;  // freed without the lock
    {
      const MutexLock lock(mutex_);
      if (!kept_[size].empty()) {
        buffer = std::move(kept_[size].back());
        kept_[size].pop_back();
        used_bytes_ += record_bytes_[size];
        return buffer;
      }
      std::vector<Owned>& others = kept_[1 - size];
      const std::size_t other_bytes = record_bytes_[1 - size];
      if (allocated_bytes_ - others.size() * other_bytes + record_bytes_[size] > bytes_max_) return nullptr;
      make_room(kept_[size], buffers_[size] + 1 - kept_[size].size());  // so that giving back needs no memory
      while (allocated_bytes_ + record_bytes_[size] > bytes_max_) {
        make_room(too_many, 1);
        too_many.push_back(std::move(others.back()));
        others.pop_back();
        allocated_bytes_ -= other_bytes;
        --buffers_[1 - size];
      }
      allocated_bytes_ += record_bytes_[size];
      used_bytes_ += record_bytes_[size];
      ++buffers_[size];
    }
    too_many.clear();
    buffer = make(size);
    if (buffer == nullptr) {
      const MutexLock lock(mutex_);
      allocated_bytes_ -= record_bytes_[size];
      used_bytes_ -= record_bytes_[size];
      --buffers_[size];
    }
    return buffer;
  }

  // Null if memory has run out.
  Owned make(std::size_t size) const noexcept {
    void* memory = std::aligned_alloc(SpillBuffer::kAlignment, record_bytes_[size]);  // NOLINT: aligned, uninitialized
    if (memory == nullptr) return nullptr;
    const std::span<std::byte> bytes(static_cast<std::byte*>(memory), header_bytes_ + payload_bytes_[size]);
    auto* buffer = new (std::nothrow) SpillBuffer(bytes, header_bytes_, record_bytes_[size]);
    if (buffer == nullptr) std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
    return Owned(buffer);
  }

  void give_back(Owned buffer, std::size_t size) noexcept {
    const MutexLock lock(mutex_);
    used_bytes_ -= record_bytes_[size];
    kept_[size].push_back(std::move(buffer));  // take has made the room
  }

  const SpillLayout layout_;
  const std::size_t bytes_max_;
  const std::size_t header_bytes_;
  std::array<std::size_t, kSlabs> payload_bytes_{};  // const once constructed
  std::array<std::size_t, kSlabs> record_bytes_{};   // 0: no such records. const once constructed

  mutable Mutex mutex_;
  std::array<std::vector<Owned>, kSlabs> kept_ CAIRN_GUARDED_BY(mutex_);
  std::array<std::size_t, kSlabs> buffers_ CAIRN_GUARDED_BY(mutex_){};  // kept and taken
  std::size_t allocated_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;            // kept and taken
  std::size_t used_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;                 // taken
};

SpillBuffers::SpillBuffers(SpillLayout layout, std::size_t bytes_max) {
  check_layout(layout);
  impl_ = std::make_shared<Impl>(std::move(layout), bytes_max);
}

SpillBuffers::~SpillBuffers() = default;

SpillBufferPtr SpillBuffers::allocate(RecordKind kind) noexcept {
  try {
    return impl_->allocate(kind);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

const SpillLayout& SpillBuffers::layout() const noexcept {
  return impl_->layout();
}
bool SpillBuffers::fits(const RecordLineage& lineage) const noexcept {
  return fits_header(impl_->layout(), lineage);
}
std::size_t SpillBuffers::header_bytes() const noexcept {
  return impl_->header_bytes();
}
std::size_t SpillBuffers::record_bytes(RecordKind kind) const noexcept {
  return impl_->record_bytes(kind);
}
std::size_t SpillBuffers::bytes_max() const noexcept {
  return impl_->bytes_max();
}
std::size_t SpillBuffers::used_bytes() const noexcept {
  return impl_->used_bytes();
}

}  // namespace cairn
