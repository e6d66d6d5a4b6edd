#include "tier/record.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/hash.h"
#include "tier/bytes.h"

namespace cairn {
namespace {

constexpr std::array<char, 8> kMagic = {'C', 'A', 'I', 'R', 'N', 'R', 'E', 'C'};

// Where the fixed fields are; docs/spill-format.md has the same table.
namespace at {
constexpr std::size_t kMagic = 0;
constexpr std::size_t kVersion = 8;
constexpr std::size_t kHeaderBytes = 12;
constexpr std::size_t kKind = 16;
constexpr std::size_t kSlab = 17;
constexpr std::size_t kSlot = 20;
constexpr std::size_t kKey = 24;
constexpr std::size_t kGeneration = 32;
constexpr std::size_t kParent = 40;
constexpr std::size_t kFirstToken = 48;
constexpr std::size_t kSession = 56;
constexpr std::size_t kAdapterGeneration = 64;
constexpr std::size_t kPayloadBytes = 72;
constexpr std::size_t kPayloadChecksum = 80;
constexpr std::size_t kHeaderChecksum = 96;
constexpr std::size_t kRanks = 112;
constexpr std::size_t kWeightsBytes = 116;
constexpr std::size_t kKvTypeBytes = 118;
constexpr std::size_t kLayoutBytes = 120;
constexpr std::size_t kAdapterBytes = 122;
constexpr std::size_t kSaltBytes = 124;
constexpr std::size_t kMedia = 126;
constexpr std::size_t kTokens = 128;
constexpr std::size_t kBlockSize = 132;
constexpr std::size_t kTexts = 136;
}  // namespace at

constexpr std::size_t kMediumBytes = 24;

std::size_t tokens_max(const SpillLayout& layout) noexcept {
  return std::max(layout.block_size, layout.record_tokens);
}

std::size_t fingerprint_bytes(const ModelFingerprint& fingerprint) noexcept {
  return fingerprint.weights.size() + fingerprint.kv_type.size() + fingerprint.layout.size();
}

// Of the header without its own checksum.
XXH128_hash_t header_checksum(std::span<const std::byte> header) noexcept {
  constexpr std::array<std::byte, sizeof(XXH128_hash_t)> kZeros{};
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, header.data(), at::kHeaderChecksum);
  XXH3_128bits_update(&state, kZeros.data(), kZeros.size());
  const auto rest = header.subspan(at::kHeaderChecksum + kZeros.size());
  XXH3_128bits_update(&state, rest.data(), rest.size());
  return XXH3_128bits_digest(&state);
}

bool is_kind(std::uint8_t kind) noexcept {
  return kind >= static_cast<std::uint8_t>(RecordKind::kBlock) &&
         kind <= static_cast<std::uint8_t>(RecordKind::kTailSibling);
}

// Reads what follows the fixed fields, in order; never beyond the end.
class TextReader {
 public:
  explicit TextReader(std::span<const std::byte> left) : left_(left) {}

  std::optional<std::string> text(std::size_t bytes) {
    if (bytes > left_.size()) return std::nullopt;
    std::string text(bytes, '\0');
    std::memcpy(text.data(), left_.data(), bytes);
    left_ = left_.subspan(bytes);
    return text;
  }
  bool tokens(std::size_t count, std::vector<TokenId>& tokens) {
    if (count > left_.size() / sizeof(TokenId)) return false;
    tokens.resize(count);
    for (TokenId& token : tokens) token = take<TokenId>();
    return true;
  }
  bool media(std::size_t count, std::vector<RecordMedium>& media) {
    if (count > left_.size() / kMediumBytes) return false;
    media.resize(count);
    for (RecordMedium& medium : media) {
      medium.offset = take<std::uint32_t>();
      medium.length = take<std::uint32_t>();
      medium.content_id[0] = take<std::uint64_t>();
      medium.content_id[1] = take<std::uint64_t>();
    }
    return true;
  }

 private:
  template <class T>
  T take() {
    const T value = load_little_endian<T>(left_.data());
    left_ = left_.subspan(sizeof(T));
    return value;
  }

  std::span<const std::byte> left_;
};

class TextWriter {
 public:
  explicit TextWriter(std::span<std::byte> left) : left_(left) {}

  void text(const std::string& text) {
    CAIRN_CHECK(text.size() <= left_.size());
    if (!text.empty()) std::memcpy(left_.data(), text.data(), text.size());
    left_ = left_.subspan(text.size());
  }
  template <class T>
  void number(T value) {
    CAIRN_CHECK(sizeof(T) <= left_.size());
    store_little_endian(left_.data(), value);
    left_ = left_.subspan(sizeof(T));
  }

 private:
  std::span<std::byte> left_;
};

void store_checksum(std::byte* to, XXH128_hash_t checksum) noexcept {
  store_little_endian<std::uint64_t>(to, checksum.low64);
  store_little_endian<std::uint64_t>(to + sizeof(std::uint64_t), checksum.high64);
}

bool equals_checksum(const std::byte* found, XXH128_hash_t checksum) noexcept {
  return load_little_endian<std::uint64_t>(found) == checksum.low64 &&
         load_little_endian<std::uint64_t>(found + sizeof(std::uint64_t)) == checksum.high64;
}

// What is as long as its fields say, or none.
std::optional<RecordLineage> decode_lineage(const SpillLayout& layout, std::span<const std::byte> header) {
  const std::byte* const bytes = header.data();
  TextReader reader(header.subspan(at::kTexts));
  const auto text = [&](std::size_t field) { return reader.text(load_little_endian<std::uint16_t>(bytes + field)); };
  ModelFingerprint fingerprint;
  for (auto [to, field] : {std::pair{&fingerprint.weights, at::kWeightsBytes},
                           {&fingerprint.kv_type, at::kKvTypeBytes},
                           {&fingerprint.layout, at::kLayoutBytes}}) {
    std::optional<std::string> found = text(field);
    if (!found) return std::nullopt;
    *to = std::move(*found);
  }
  fingerprint.ranks = load_little_endian<std::uint32_t>(bytes + at::kRanks);
  if (fingerprint != layout.fingerprint) return std::nullopt;

  RecordLineage lineage;
  lineage.kind = static_cast<RecordKind>(bytes[at::kKind]);
  lineage.adapter_generation = load_little_endian<std::uint64_t>(bytes + at::kAdapterGeneration);
  lineage.parent = load_little_endian<std::uint64_t>(bytes + at::kParent);
  lineage.first_token = load_little_endian<std::uint64_t>(bytes + at::kFirstToken);
  lineage.session = load_little_endian<std::uint64_t>(bytes + at::kSession);
  std::optional<std::string> adapter = text(at::kAdapterBytes);
  if (!adapter) return std::nullopt;
  lineage.adapter = std::move(*adapter);
  std::optional<std::string> salt = text(at::kSaltBytes);
  if (!salt) return std::nullopt;
  lineage.tenant_salt = std::move(*salt);
  const bool is_read = reader.tokens(load_little_endian<std::uint32_t>(bytes + at::kTokens), lineage.tokens) &&
                       reader.media(load_little_endian<std::uint16_t>(bytes + at::kMedia), lineage.media);
  if (!is_read) return std::nullopt;
  return lineage;
}

}  // namespace

std::size_t record_header_bytes(const SpillLayout& layout) noexcept {
  return round_up_to_alignment(at::kTexts + fingerprint_bytes(layout.fingerprint) + 2 * RecordLineage::kNameBytesMax +
                               tokens_max(layout) * sizeof(TokenId) + kMediaMin * kMediumBytes);
}

std::size_t record_payload_bytes(const SpillLayout& layout, RecordKind kind) noexcept {
  return kind == RecordKind::kBlock ? layout.block_bytes : layout.snapshot_bytes;
}

bool fits_header(const SpillLayout& layout, const RecordLineage& lineage) noexcept {
  if (lineage.adapter.size() > RecordLineage::kNameBytesMax) return false;
  if (lineage.tenant_salt.size() > RecordLineage::kNameBytesMax) return false;
  if (lineage.tokens.size() > tokens_max(layout)) return false;
  if (lineage.media.size() > std::numeric_limits<std::uint16_t>::max()) return false;
  const std::size_t bytes = at::kTexts + fingerprint_bytes(layout.fingerprint) + lineage.adapter.size() +
                            lineage.tenant_salt.size() + lineage.tokens.size() * sizeof(TokenId) +
                            lineage.media.size() * kMediumBytes;
  return bytes <= record_header_bytes(layout);
}

PayloadChecksum checksum_payload(const SpillLayout& layout, std::span<const std::byte> record) noexcept {
  const auto rest = record.subspan(record_header_bytes(layout));
  const XXH128_hash_t checksum = XXH3_128bits(rest.data(), rest.size());
  return {.low = checksum.low64, .high = checksum.high64};
}

void encode_header(const SpillLayout& layout, const RecordHeader& header, const PayloadChecksum& payload,
                   std::span<std::byte> record) noexcept {
  const RecordLineage& lineage = header.lineage;
  CAIRN_CHECK(fits_header(layout, lineage));
  const std::size_t header_bytes = record_header_bytes(layout);
  CAIRN_CHECK(record.size() > header_bytes);
  std::byte* const bytes = record.data();
  std::memset(bytes, 0, header_bytes);
  std::memcpy(bytes + at::kMagic, kMagic.data(), kMagic.size());
  store_little_endian<std::uint32_t>(bytes + at::kVersion, kRecordFormatVersion);
  store_little_endian(bytes + at::kHeaderBytes, static_cast<std::uint32_t>(header_bytes));
  bytes[at::kKind] = static_cast<std::byte>(lineage.kind);
  bytes[at::kSlab] = static_cast<std::byte>(header.slab);
  store_little_endian(bytes + at::kSlot, header.slot);
  store_little_endian(bytes + at::kKey, header.key);
  store_little_endian(bytes + at::kGeneration, header.generation);
  store_little_endian(bytes + at::kParent, lineage.parent);
  store_little_endian(bytes + at::kFirstToken, lineage.first_token);
  store_little_endian(bytes + at::kSession, lineage.session);
  store_little_endian(bytes + at::kAdapterGeneration, lineage.adapter_generation);
  store_little_endian(bytes + at::kPayloadBytes, header.payload_bytes);
  store_little_endian(bytes + at::kRanks, layout.fingerprint.ranks);
  const auto store_count = [&](std::size_t field, std::size_t count) {
    store_little_endian(bytes + field, static_cast<std::uint16_t>(count));
  };
  store_count(at::kWeightsBytes, layout.fingerprint.weights.size());
  store_count(at::kKvTypeBytes, layout.fingerprint.kv_type.size());
  store_count(at::kLayoutBytes, layout.fingerprint.layout.size());
  store_count(at::kAdapterBytes, lineage.adapter.size());
  store_count(at::kSaltBytes, lineage.tenant_salt.size());
  store_count(at::kMedia, lineage.media.size());
  store_little_endian(bytes + at::kTokens, static_cast<std::uint32_t>(lineage.tokens.size()));
  store_little_endian(bytes + at::kBlockSize, static_cast<std::uint32_t>(layout.block_size));

  TextWriter writer(record.first(header_bytes).subspan(at::kTexts));
  writer.text(layout.fingerprint.weights);
  writer.text(layout.fingerprint.kv_type);
  writer.text(layout.fingerprint.layout);
  writer.text(lineage.adapter);
  writer.text(lineage.tenant_salt);
  for (const TokenId token : lineage.tokens) writer.number(token);
  for (const RecordMedium& medium : lineage.media) {
    writer.number(medium.offset);
    writer.number(medium.length);
    writer.number(medium.content_id[0]);
    writer.number(medium.content_id[1]);
  }
  store_checksum(bytes + at::kPayloadChecksum, {.low64 = payload.low, .high64 = payload.high});
  store_checksum(bytes + at::kHeaderChecksum, header_checksum(record.first(header_bytes)));
}

bool is_wiped(std::span<const std::byte> header) noexcept {
  return std::all_of(header.begin(), header.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

std::optional<RecordHeader> decode_header(const SpillLayout& layout, std::span<const std::byte> header) {
  const std::size_t header_bytes = record_header_bytes(layout);
  if (header.size() != header_bytes) return std::nullopt;
  const std::byte* const bytes = header.data();
  if (std::memcmp(bytes + at::kMagic, kMagic.data(), kMagic.size()) != 0) return std::nullopt;
  if (!equals_checksum(bytes + at::kHeaderChecksum, header_checksum(header))) return std::nullopt;
  if (load_little_endian<std::uint32_t>(bytes + at::kVersion) != kRecordFormatVersion) return std::nullopt;
  if (load_little_endian<std::uint32_t>(bytes + at::kHeaderBytes) != header_bytes) return std::nullopt;
  if (load_little_endian<std::uint32_t>(bytes + at::kBlockSize) != layout.block_size) return std::nullopt;
  if (!is_kind(static_cast<std::uint8_t>(bytes[at::kKind]))) return std::nullopt;
  std::optional<RecordLineage> lineage = decode_lineage(layout, header);
  if (!lineage) return std::nullopt;
  RecordHeader decoded{.key = load_little_endian<std::uint64_t>(bytes + at::kKey),
                       .generation = load_little_endian<std::uint64_t>(bytes + at::kGeneration),
                       .slab = static_cast<SlabId>(bytes[at::kSlab]),
                       .slot = load_little_endian<std::uint32_t>(bytes + at::kSlot),
                       .payload_bytes = load_little_endian<std::uint64_t>(bytes + at::kPayloadBytes),
                       .lineage = std::move(*lineage)};
  if (decoded.key == 0) return std::nullopt;
  if (decoded.slab != slab_of(decoded.lineage.kind)) return std::nullopt;
  if (decoded.payload_bytes != record_payload_bytes(layout, decoded.lineage.kind)) return std::nullopt;
  return decoded;
}

bool is_payload_whole(const SpillLayout& layout, std::span<const std::byte> record) noexcept {
  const PayloadChecksum checksum = checksum_payload(layout, record);
  return equals_checksum(record.data() + at::kPayloadChecksum, {.low64 = checksum.low, .high64 = checksum.high});
}

}  // namespace cairn
