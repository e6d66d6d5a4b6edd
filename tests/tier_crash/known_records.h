// Records of which every byte follows from the key: whoever finds one knows what it must hold, also after a restart.
#ifndef CAIRN_TESTS_TIER_CRASH_KNOWN_RECORDS_H_
#define CAIRN_TESTS_TIER_CRASH_KNOWN_RECORDS_H_

#include <cairn/spill_store.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace cairn::testing {

// Of payloads that fill no whole number of pages.
[[nodiscard]] SpillLayout known_layout();

// Keys of all kinds of records, with and without adapter, salt, media and session.
[[nodiscard]] RecordLineage known_lineage(TierKey key);
[[nodiscard]] std::size_t known_payload_bytes(TierKey key);

void fill_known_payload(TierKey key, std::span<std::byte> payload);
// Empty, or what is wrong: size, and the first byte that differs.
[[nodiscard]] std::string check_known_payload(TierKey key, std::span<const std::byte> payload);

// Filled for the key. Null if the buffers are all taken.
[[nodiscard]] SpillBufferPtr known_buffer(SpillBuffers& buffers, TierKey key);

// A get's answer as it must be for the key: other bytes are wrong in any case. Empty, or what is wrong.
[[nodiscard]] std::string check_known_result(TierKey key, const GetResult& result);

// ---- Waiting. A call whose `done` does not come within a minute ends the program: it hangs ----

// False if it was not accepted, or not stored. Waits for a buffer as well: one comes back when a put is done.
[[nodiscard]] bool put_known(SpillStore& store, TierKey key);
[[nodiscard]] GetResult get_now(SpillStore& store, TierKey key);
// Says that `what` hangs, and aborts.
[[noreturn]] void abort_hanging(std::string_view what);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TIER_CRASH_KNOWN_RECORDS_H_
