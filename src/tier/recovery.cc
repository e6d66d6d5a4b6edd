#include "tier/recovery.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "base/containers.h"

namespace cairn {
namespace {

// Up to this size it is quicker to read whole records in large pieces than their headers one by one.
constexpr std::size_t kSmallRecordBytes = std::size_t{16} << 10;
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

struct FreeMemory {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }  // NOLINT: of aligned_alloc
};
using AlignedMemory = std::unique_ptr<std::byte, FreeMemory>;

AlignedMemory allocate_aligned(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(SpillBuffer::kAlignment, bytes));  // NOLINT: aligned
  if (memory == nullptr) throw std::bad_alloc();
  return AlignedMemory(memory);
}

// Reads one slab. A piece is what is read at once: a header, or several small records.
class SlabScan {
 public:
  SlabScan(SlabId slab, const StoreDirectory& directory, const SpillBuffers& buffers, Recovery& recovery)
      : slab_(slab), directory_(directory), buffers_(buffers), recovery_(recovery) {
    const RecordKind kind = slab == SlabId::kBlocks ? RecordKind::kBlock : RecordKind::kPlainSnapshot;
    record_bytes_ = buffers.record_bytes(kind);
    struct stat status{};
    if (::fstat(directory.slab_file(slab), &status) == 0) file_bytes_ = static_cast<std::uint64_t>(status.st_size);
    const std::uint64_t slots = (file_bytes_ + record_bytes_ - 1) / record_bytes_;
    slots_ = static_cast<std::size_t>(
        std::min<std::uint64_t>(slots, std::numeric_limits<std::uint32_t>::max() / std::uint64_t{2}));
    slots_in_piece_ = record_bytes_ <= kSmallRecordBytes ? kPieceBytes / record_bytes_ : 1;
    piece_bytes_ = slots_in_piece_ == 1 ? buffers.header_bytes() : slots_in_piece_ * record_bytes_;
  }

  // False if the device does not answer.
  bool run(AsyncIo& io, std::chrono::milliseconds timeout) {
    recovery_.slots[static_cast<std::size_t>(slab_)] = slots_;
    const std::size_t pieces = (slots_ + slots_in_piece_ - 1) / slots_in_piece_;
    AlignedMemory memory = allocate_aligned(piece_bytes_ * io.depth());
    memory_ = memory.get();
    std::vector<std::size_t> again;
    const auto read = [&](std::size_t count, const std::function<std::size_t(std::size_t)>& piece_of, bool is_last) {
      return IoBatch(io, timeout)
          .run(
              count, io.depth(), [&](std::size_t i, std::size_t slot) { return request(piece_of(i), slot); },
              [&](std::size_t i, std::size_t slot, const IoResult& result) {
                if (result.error != 0) ++recovery_.io_errors;
                if (result.error != 0 && !is_last) again.push_back(piece_of(i));
                if (result.error != 0 && is_last) recovery_.damaged += 1;
                if (result.error == 0) look_at(piece_of(i), slot, result.bytes);
              });
    };
    bool is_answered = read(pieces, [](std::size_t i) { return i; }, false);
    const std::vector<std::size_t> failed = std::move(again);
    is_answered = is_answered && read(failed.size(), [&](std::size_t i) { return failed[i]; }, true);
    if (!is_answered) static_cast<void>(memory.release());  // the device may still write to it
    return is_answered;
  }

 private:
  [[nodiscard]] std::byte* memory_of(std::size_t memory_slot) const { return memory_ + memory_slot * piece_bytes_; }

  [[nodiscard]] IoRequest request(std::size_t piece, std::size_t memory_slot) const {
    return {.kind = IoRequest::Kind::kRead,
            .file = directory_.slab_file(slab_),
            .offset = std::uint64_t{piece} * slots_in_piece_ * record_bytes_,
            .memory = memory_of(memory_slot),
            .length = piece_bytes_};
  }

  // What was not read counts as zeros: so it is behind the file's end. A short read of what is there does as well: its
  // records are lost.
  void look_at(std::size_t piece, std::size_t memory_slot, std::size_t bytes_read) {
    std::byte* const memory = memory_of(memory_slot);
    recovery_.read_bytes += bytes_read;
    std::memset(memory + bytes_read, 0, piece_bytes_ - bytes_read);
    const std::size_t first = piece * slots_in_piece_;
    const std::size_t end = std::min(first + slots_in_piece_, slots_);
    for (std::size_t slot = first; slot < end; ++slot) {
      look_at_header(slot, std::span(memory + (slot - first) * record_bytes_, buffers_.header_bytes()));
    }
  }

  void look_at_header(std::size_t slot, std::span<const std::byte> header) {
    if (is_wiped(header)) return;
    std::optional<RecordHeader> record = decode_header(buffers_.layout(), header);
    const bool is_good = record && record->slab == slab_ && record->slot == slot &&
                         (slot + 1) * record_bytes_ <= file_bytes_ &&
                         incarnation_of(record->key) < directory_.incarnation() &&
                         incarnation_of(record->generation) < directory_.incarnation();
    if (!is_good) {
      ++recovery_.damaged;
      return;
    }
    recovery_.records.push_back(std::move(*record));
  }

  const SlabId slab_;
  const StoreDirectory& directory_;
  const SpillBuffers& buffers_;
  Recovery& recovery_;
  std::size_t record_bytes_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::size_t slots_ = 0;
  std::size_t slots_in_piece_ = 1;
  std::size_t piece_bytes_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace

bool IoBatch::run(std::size_t requests, std::size_t memory_slots, const Request& request, const Answer& answer) {
  struct UnderWay {
    std::size_t index = 0;
    bool is_taken = false;
  };
  std::vector<UnderWay> under_way(std::min(memory_slots, io_.depth()));
  std::vector<std::size_t> free;
  for (std::size_t slot = under_way.size(); slot > 0; --slot) free.push_back(slot - 1);
  std::size_t next = 0;
  auto last_answer = std::chrono::steady_clock::now();
  while (next < requests || free.size() < under_way.size()) {
    while (next < requests && !free.empty()) {
      const std::size_t slot = free.back();
      free.pop_back();
      under_way[slot] = {.index = next, .is_taken = true};
      IoRequest made = request(next++, slot);
      made.token = slot;
      io_.submit(made);
    }
    std::array<IoResult, 64> results;
    const std::size_t count = io_.wait(results, std::min(timeout_, std::chrono::milliseconds{100}));
    const auto now = std::chrono::steady_clock::now();
    if (count > 0) last_answer = now;
    if (now - last_answer > timeout_) return false;
    for (const IoResult& result : std::span(results).first(count)) {
      if (result.token >= under_way.size() || !under_way[result.token].is_taken) continue;
      under_way[result.token].is_taken = false;
      answer(under_way[result.token].index, result.token, result);
      free.push_back(result.token);
    }
  }
  return true;
}

Recovery recover_records(AsyncIo& io, const StoreDirectory& directory, const SpillBuffers& buffers,
                         std::chrono::milliseconds timeout) {
  Recovery recovery;
  for (const SlabId slab : {SlabId::kBlocks, SlabId::kSnapshots}) {
    if (directory.slab_file(slab) < 0) continue;
    if (SlabScan(slab, directory, buffers, recovery).run(io, timeout)) continue;
    recovery.is_timed_out = true;
    return recovery;
  }
  std::vector<RecordHeader>& records = recovery.records;
  std::ranges::sort(records, std::greater{}, &RecordHeader::generation);
  IdSet keys;
  keys.reserve(records.size());
  std::erase_if(records, [&](const RecordHeader& record) { return !keys.insert(record.key).second; });
  std::ranges::reverse(records);
  return recovery;
}

}  // namespace cairn
