// The header of a record as it lies in front of the payload: encoded, decoded, verified. docs/spill-format.md has it
// byte by byte.
#ifndef CAIRN_TIER_RECORD_H_
#define CAIRN_TIER_RECORD_H_

#include <cairn/spill_store.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cairn {

// Which slab file a record lies in: one for each record size.
enum class SlabId : std::uint8_t { kBlocks = 0, kSnapshots = 1 };
inline constexpr std::size_t kSlabs = 2;

inline SlabId slab_of(RecordKind kind) noexcept {
  return kind == RecordKind::kBlock ? SlabId::kBlocks : SlabId::kSnapshots;
}

struct RecordHeader {
  TierKey key = 0;
  std::uint64_t generation = 0;  // of two records with one key the greater one counts
  SlabId slab = SlabId::kBlocks;
  std::uint32_t slot = 0;
  std::uint64_t payload_bytes = 0;
  RecordLineage lineage{};

  friend bool operator==(const RecordHeader&, const RecordHeader&) = default;
};

inline constexpr std::uint32_t kRecordFormatVersion = 1;

constexpr std::size_t round_up_to_alignment(std::size_t bytes) noexcept {
  return (bytes + SpillBuffer::kAlignment - 1) / SpillBuffer::kAlignment * SpillBuffer::kAlignment;
}

// The same for all records of a layout: room for the longest names, all tokens and at least kMediaMin media.
inline constexpr std::size_t kMediaMin = 8;
[[nodiscard]] std::size_t record_header_bytes(const SpillLayout& layout) noexcept;
// 0 if the layout has no such records.
[[nodiscard]] std::size_t record_payload_bytes(const SpillLayout& layout, RecordKind kind) noexcept;
// Whether the lineage fits into that header.
[[nodiscard]] bool fits_header(const SpillLayout& layout, const RecordLineage& lineage) noexcept;

// XXH3-128 of what follows the header: the payload and the zeros behind it.
struct PayloadChecksum {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};
// Reads all of it: a millisecond for about 10 MB.
[[nodiscard]] PayloadChecksum checksum_payload(const SpillLayout& layout, std::span<const std::byte> record) noexcept;

// Writes the header in front of the payload, its own checksum included, which covers that of the payload. `record` is
// a multiple of kAlignment; the lineage fits.
void encode_header(const SpillLayout& layout, const RecordHeader& header, const PayloadChecksum& payload,
                   std::span<std::byte> record) noexcept;

// Whether nothing was ever written there, or what was is wiped.
[[nodiscard]] bool is_wiped(std::span<const std::byte> header) noexcept;
// Looks at the header alone, record_header_bytes(layout) long. None if anything is wrong with it, or it is of another
// fingerprint. Throws std::bad_alloc.
[[nodiscard]] std::optional<RecordHeader> decode_header(const SpillLayout& layout, std::span<const std::byte> header);
// Whether what follows the header, which was decoded, is what was encoded.
[[nodiscard]] bool is_payload_whole(const SpillLayout& layout, std::span<const std::byte> record) noexcept;

}  // namespace cairn

#endif  // CAIRN_TIER_RECORD_H_
