// Small records that tests of stores put and recognise.
#ifndef CAIRN_TESTS_TIER_RECORDS_H_
#define CAIRN_TESTS_TIER_RECORDS_H_

#include <cairn/spill_store.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cairn::testing {

// A block's record has two pages, a snapshot's four.
inline SpillLayout small_layout() {
  return {.fingerprint = {.weights = "tiny@7", .kv_type = "fp16", .layout = "hnd", .ranks = 1},
          .block_size = 4,
          .block_bytes = 3000,
          .snapshot_bytes = 9000};
}

// Different for each key and version.
inline void fill_payload(std::span<std::byte> payload, TierKey key, std::uint64_t version = 0) {
  std::uint64_t state = key * 0x9E3779B97F4A7C15U + version * 0xD1B54A32D192ED03U + 1;
  for (std::byte& byte : payload) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::byte>(state >> 32 & 0xFF);
  }
}

inline bool has_payload(std::span<const std::byte> payload, TierKey key, std::uint64_t version = 0) {
  std::vector<std::byte> expected(payload.size());
  fill_payload(expected, key, version);
  return std::ranges::equal(payload, expected);
}

// Null if the buffers are all taken.
inline SpillBufferPtr filled_buffer(SpillBuffers& buffers, RecordKind kind, TierKey key, std::uint64_t version = 0) {
  SpillBufferPtr buffer = buffers.allocate(kind);
  if (buffer != nullptr) fill_payload(buffer->payload(), key, version);
  return buffer;
}

inline RecordLineage block_lineage(TierKey parent = 0) {
  return {.kind = RecordKind::kBlock,
          .adapter = "lora",
          .adapter_generation = 3,
          .tenant_salt = "tenant",
          .parent = parent,
          .first_token = 8,
          .tokens = {1, 2, 3, 4},
          .media = {{.offset = 1, .length = 3, .content_id = {5, 6}}}};
}

inline RecordLineage snapshot_lineage(TierKey parent = 0) {
  return {.kind = RecordKind::kPlainSnapshot, .parent = parent, .first_token = 8, .tokens = {1, 2}, .session = 9};
}

inline RecordLineage lineage_of(RecordKind kind) {
  return kind == RecordKind::kBlock ? block_lineage() : snapshot_lineage();
}

// None if it was not accepted; else what `done` said, once it has.
inline std::optional<bool> put_and_wait(SpillStore& store, TierKey key, RecordKind kind = RecordKind::kBlock,
                                        std::uint64_t version = 0) {
  const auto stored = std::make_shared<std::promise<bool>>();
  SpillBufferPtr buffer = filled_buffer(*store.buffers(), kind, key, version);
  if (buffer == nullptr) return std::nullopt;
  const PutResult result =
      store.put(key, lineage_of(kind), std::move(buffer), [stored](bool yes) { stored->set_value(yes); });
  if (result != PutResult::kAccepted) return std::nullopt;
  return stored->get_future().get();
}

inline GetResult get_and_wait(SpillStore& store, TierKey key) {
  const auto result = std::make_shared<std::promise<GetResult>>();
  store.get(key, [result](GetResult found) { result->set_value(std::move(found)); });
  return result->get_future().get();
}

inline bool is_found(SpillStore& store, TierKey key, std::uint64_t version = 0) {
  const GetResult result = get_and_wait(store, key);
  return result.status == GetResult::Status::kFound && has_payload(result.buffer->payload(), key, version);
}

inline std::vector<TierKey> sorted(std::vector<TierKey> keys) {
  std::ranges::sort(keys);
  return keys;
}

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TIER_RECORDS_H_
