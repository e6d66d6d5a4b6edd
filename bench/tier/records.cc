#include "bench/tier/records.h"

#include <cstring>

namespace cairn::bench {
namespace {

constexpr std::size_t kPageBytes = 4096;

// In each page at another place, so that a page in another's stead is noticed.
std::size_t place_in_page(std::size_t page) {
  return page * 40 % (kPageBytes - sizeof(std::uint64_t));
}
std::uint64_t word_of(std::uint64_t number, std::size_t page) {
  return (number << 24) + page + 1;
}

}  // namespace

RecordKind kind_of(const Batches& batches) {
  return batches.snapshots ? RecordKind::kPlainSnapshot : RecordKind::kBlock;
}

std::shared_ptr<SpillBuffers> buffers_for(const Batches& batches, std::size_t batches_at_once) {
  const SpillLayout layout{.fingerprint = {.weights = "bench", .kv_type = "none", .layout = "words"},
                           .block_bytes = batches.snapshots ? 0 : batches.payload_bytes,
                           .snapshot_bytes = batches.snapshots ? batches.payload_bytes : 0};
  const std::size_t record =
      SpillBuffers(layout, 4 * (batches.payload_bytes + (std::size_t{1} << 20))).record_bytes(kind_of(batches));
  return std::make_shared<SpillBuffers>(layout, (batches_at_once * batches.count + 2) * record);
}

RecordLineage lineage_of(RecordKind kind) {
  RecordLineage lineage{.kind = kind, .tokens = {1, 2, 3}};
  if (kind == RecordKind::kBlock) lineage.tokens = std::vector<TokenId>(SpillLayout{}.block_size, 1);
  return lineage;
}

void stamp(std::span<std::byte> payload, std::uint64_t number) {
  for (std::size_t page = 0; page * kPageBytes < payload.size(); ++page) {
    const std::uint64_t word = word_of(number, page);
    std::memcpy(payload.data() + page * kPageBytes + place_in_page(page), &word, sizeof word);
  }
}

bool is_stamped(std::span<const std::byte> payload, std::uint64_t number) {
  for (std::size_t page = 0; page * kPageBytes < payload.size(); ++page) {
    const std::uint64_t word = word_of(number, page);
    if (std::memcmp(payload.data() + page * kPageBytes + place_in_page(page), &word, sizeof word) != 0) return false;
  }
  return !payload.empty();
}

SpillBufferPtr stamped_buffer(SpillBuffers& buffers, RecordKind kind, std::uint64_t number) {
  SpillBufferPtr buffer = buffers.allocate(kind);
  if (buffer == nullptr) throw WrongResult("SpillBuffers: none left");
  stamp(buffer->payload(), number);
  return buffer;
}

}  // namespace cairn::bench
