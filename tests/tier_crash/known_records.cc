#include "tier_crash/known_records.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <span>
#include <utility>

namespace cairn::testing {
namespace {

constexpr std::size_t kBlockSize = 16;
constexpr std::size_t kBlockBytes = 5'000;
constexpr std::size_t kSnapshotBytes = 19'000;
constexpr std::chrono::seconds kHangs{60};

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
std::uint64_t splitmix(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

RecordKind kind_of(TierKey key) {
  std::uint64_t state = key ^ 0x6B696E64;
  switch (splitmix(state) % 8) {
    case 0:
      return RecordKind::kPlainSnapshot;
    case 1:
      return RecordKind::kTail;
    case 2:
      return RecordKind::kTailSibling;
    default:
      return RecordKind::kBlock;
  }
}

std::string name_of(std::uint64_t random, std::size_t bytes_max) {
  std::string name(1 + random % bytes_max, 'a');
  for (char& letter : name) letter = static_cast<char>('a' + splitmix(random) % 26);
  return name;
}

// Calls `visit` with one piece of the payload after the other, and what it must be.
template <class Visit>
void visit_payload(TierKey key, std::size_t bytes, const Visit& visit) {
  std::uint64_t state = key ^ 0x7061796C6F6164;
  for (std::size_t offset = 0; offset < bytes; offset += sizeof(std::uint64_t)) {
    const std::uint64_t word = splitmix(state);
    const std::size_t length = std::min(sizeof(word), bytes - offset);
    if (!visit(offset, length, reinterpret_cast<const std::byte*>(&word))) return;
  }
}

}  // namespace

SpillLayout known_layout() {
  return {.fingerprint = {.weights = "known-weights@3", .kv_type = "fp16", .layout = "known/1", .ranks = 2},
          .block_size = kBlockSize,
          .block_bytes = kBlockBytes,
          .snapshot_bytes = kSnapshotBytes};
}

RecordLineage known_lineage(TierKey key) {
  std::uint64_t state = key;
  RecordLineage lineage;
  lineage.kind = kind_of(key);
  const bool is_block = lineage.kind == RecordKind::kBlock;
  if (splitmix(state) % 2 == 0) {
    lineage.adapter = name_of(splitmix(state), splitmix(state) % 8 == 0 ? RecordLineage::kNameBytesMax : 12);
    lineage.adapter_generation = splitmix(state) % 4;
  }
  if (splitmix(state) % 3 == 0) lineage.tenant_salt = name_of(splitmix(state), RecordLineage::kNameBytesMax);
  if (key > 1 && splitmix(state) % 4 != 0) {
    lineage.parent = key - 1;
    lineage.first_token = kBlockSize * (1 + splitmix(state) % 1000);
  }
  // A snapshot at the end of its parent has no token of its own.
  const std::size_t fewest = lineage.parent == 0 ? 1 : 0;
  lineage.tokens.resize(is_block ? kBlockSize : fewest + splitmix(state) % (kBlockSize - fewest));
  for (TokenId& token : lineage.tokens) token = static_cast<TokenId>(splitmix(state) % 200'000);
  if (splitmix(state) % 4 == 0 && !lineage.tokens.empty()) {
    lineage.media.push_back({.offset = static_cast<std::uint32_t>(splitmix(state) % lineage.tokens.size()),
                             .length = static_cast<std::uint32_t>(1 + splitmix(state) % 600),
                             .content_id = {splitmix(state), splitmix(state)}});
  }
  if (!is_block) lineage.session = splitmix(state);
  return lineage;
}

std::size_t known_payload_bytes(TierKey key) {
  return kind_of(key) == RecordKind::kBlock ? kBlockBytes : kSnapshotBytes;
}

void fill_known_payload(TierKey key, std::span<std::byte> payload) {
  visit_payload(key, payload.size(), [&](std::size_t offset, std::size_t length, const std::byte* bytes) {
    std::memcpy(payload.data() + offset, bytes, length);
    return true;
  });
}

std::string check_known_payload(TierKey key, std::span<const std::byte> payload) {
  const std::string name = "key " + std::to_string(key) + ": ";
  if (payload.size() != known_payload_bytes(key)) return name + std::to_string(payload.size()) + " bytes";
  std::string wrong;
  visit_payload(key, payload.size(), [&](std::size_t offset, std::size_t length, const std::byte* bytes) {
    if (std::memcmp(payload.data() + offset, bytes, length) == 0) return true;
    wrong = name + "wrong bytes from offset " + std::to_string(offset);
    return false;
  });
  return wrong;
}

SpillBufferPtr known_buffer(SpillBuffers& buffers, TierKey key) {
  SpillBufferPtr buffer = buffers.allocate(kind_of(key));
  if (buffer) fill_known_payload(key, buffer->payload());
  return buffer;
}

std::string check_known_result(TierKey key, const GetResult& result) {
  if (result.status != GetResult::Status::kFound) return result.buffer ? "a buffer with nothing found" : "";
  if (!result.buffer) return "found, and no buffer";
  return check_known_payload(key, result.buffer->payload());
}

bool put_known(SpillStore& store, TierKey key) {
  const auto deadline = std::chrono::steady_clock::now() + kHangs;
  SpillBufferPtr buffer = known_buffer(*store.buffers(), key);
  while (!buffer) {
    if (std::chrono::steady_clock::now() > deadline) abort_hanging("waiting for a buffer");
    std::this_thread::yield();
    buffer = known_buffer(*store.buffers(), key);
  }
  const auto stored = std::make_shared<std::promise<bool>>();
  std::future<bool> future = stored->get_future();
  const PutResult result =
      store.put(key, known_lineage(key), std::move(buffer), [stored](bool value) { stored->set_value(value); });
  if (result != PutResult::kAccepted) return false;
  if (future.wait_for(kHangs) != std::future_status::ready) abort_hanging("a put");
  return future.get();
}

GetResult get_now(SpillStore& store, TierKey key) {
  const auto answer = std::make_shared<std::promise<GetResult>>();
  std::future<GetResult> future = answer->get_future();
  store.get(key, [answer](GetResult result) { answer->set_value(std::move(result)); });
  if (future.wait_for(kHangs) != std::future_status::ready) abort_hanging("a get");
  return future.get();
}

void abort_hanging(std::string_view what) {
  std::fprintf(stderr, "%.*s has not ended for %lld s\n", static_cast<int>(what.size()), what.data(),
               static_cast<long long>(kHangs.count()));
  std::abort();
}

}  // namespace cairn::testing
