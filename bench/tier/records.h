// Records with contents that can be checked, and the memory for them.
#ifndef CAIRN_BENCH_TIER_RECORDS_H_
#define CAIRN_BENCH_TIER_RECORDS_H_

#include <cairn/spill_store.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "bench/tier/rows.h"

namespace cairn::bench {

RecordKind kind_of(const Batches& batches);
// Room for `batches_at_once` of them.
std::shared_ptr<SpillBuffers> buffers_for(const Batches& batches, std::size_t batches_at_once);
RecordLineage lineage_of(RecordKind kind);

// Contents that no other record has, cheap to write and to check: one word in each page.
void stamp(std::span<std::byte> payload, std::uint64_t number);
[[nodiscard]] bool is_stamped(std::span<const std::byte> payload, std::uint64_t number);

// Throws WrongResult if there is none.
SpillBufferPtr stamped_buffer(SpillBuffers& buffers, RecordKind kind, std::uint64_t number);

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_TIER_RECORDS_H_
