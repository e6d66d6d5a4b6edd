#include "support/operation_decoder.h"

#include <algorithm>
#include <array>
#include <limits>

namespace cairn::testing {
namespace {

constexpr std::size_t kKinds = static_cast<std::size_t>(OperationKind::kCount);
constexpr std::size_t kProfiles = 4;

struct KindInfo {
  std::string_view name;
  // How often, in programs of each profile: balanced, mostly snapshots, deep trees, evictions at every step.
  std::array<std::uint8_t, kProfiles> weight;
};

constexpr std::array<KindInfo, kKinds> kKindInfo = {{
    {"lookup", {30, 16, 30, 30}},     {"acquire", {18, 6, 24, 24}},
    {"insert", {36, 20, 40, 44}},     {"insert_with_snapshot", {12, 16, 6, 4}},
    {"publish", {14, 4, 20, 20}},     {"grow", {16, 6, 40, 16}},
    {"extend", {20, 6, 40, 20}},      {"truncate", {8, 2, 8, 8}},
    {"release", {28, 16, 28, 36}},    {"peek", {3, 2, 3, 3}},
    {"evict", {24, 4, 6, 64}},        {"put_plain", {10, 30, 6, 2}},
    {"put_tail", {10, 32, 6, 2}},     {"put_sibling", {5, 16, 2, 1}},
    {"evict_snapshot", {4, 8, 1, 1}}, {"evict_snapshot_to_tier", {9, 26, 3, 1}},
    {"promote", {6, 16, 2, 1}},       {"forget", {3, 6, 1, 1}},
    {"take_orphans", {2, 4, 1, 1}},   {"find_snapshot", {6, 18, 3, 2}},
    {"unpin", {6, 14, 2, 2}},         {"evict_blocks_to_tier", {16, 8, 6, 40}},
    {"save_blocks", {6, 4, 4, 4}},    {"spilled_snapshot", {3, 6, 2, 2}},
    {"register", {5, 8, 4, 2}},       {"clear_adapter", {2, 2, 0, 2}},
    {"clear_all", {1, 1, 0, 1}},      {"invalid", {6, 6, 3, 2}},
}};

constexpr std::array<std::size_t, 8> kBlockSizes = {1, 2, 3, 4, 16, 1, 2, 4};
constexpr std::array<TokenId, 4> kTokens = {0, 1, 2, 0xFFFFFFFF};
constexpr std::array<TokenId, 4> kWideTokens = {0, 1, 0x00800000, 0x80000000};
constexpr std::array<AdapterId, 8> kAdapters = {0, 0, 0, 0, 1, 1, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF};
constexpr std::array<SessionHash, 4> kSessions = {0, 1, 2, 0xFFFFFFFFFFFFFFFF};
constexpr std::size_t kKnownSequencesMax = 16;

OperationKind kind_from(std::uint8_t byte, std::size_t profile) {
  std::size_t total = 0;
  for (const KindInfo& info : kKindInfo) total += info.weight[profile];
  std::size_t rest = byte * total / 256;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    if (rest < kKindInfo[kind].weight[profile]) return static_cast<OperationKind>(kind);
    rest -= kKindInfo[kind].weight[profile];
  }
  return OperationKind::kLookup;
}

std::uint64_t split_mix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

std::string_view name_of(OperationKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < kKinds ? kKindInfo[index].name : "?";
}

AdapterId Operation::adapter_id() const {
  return kAdapters[who % kAdapters.size()];
}

SessionHash Operation::session() const {
  return kSessions[who / kAdapters.size() % kSessions.size()];
}

Program decode_program(std::span<const std::uint8_t> bytes) {
  std::array<std::uint8_t, kRecordBytes> header = {};
  const auto header_bytes = bytes.first(std::min(bytes.size(), kRecordBytes));
  std::copy(header_bytes.begin(), header_bytes.end(), header.begin());

  Program program;
  ProgramSettings& settings = program.settings;
  settings.block_size = kBlockSizes[header[0] % kBlockSizes.size()];
  if (settings.block_size == 16) {
    settings.wide_tokens = header[6] % 4 != 0;
    if (header[6] % 4 == 3) settings.block_size = 32;
  }
  settings.tokens_max = std::max<std::size_t>(24, settings.block_size * (settings.block_size > 4 ? 8 : 14));
  settings.share_snapshots_across_sessions = (header[1] & 1) != 0;
  settings.disk_ids = static_cast<DiskIds>(header[1] / 2 % 4);
  settings.first_tier_key = 1;
  if (header[2] >= 96) settings.first_tier_key = 100;  // records from before can be registered
  if (header[2] >= 192) settings.first_tier_key = std::numeric_limits<TierKey>::max() / 2 + header[2];
  settings.slots = 2 + header[3] % 14;
  settings.breaks_protocol = header[5] % 8 == 7;
  const std::size_t profile = header[4] % kProfiles;
  // 0 is what programs have that are older than the policies.
  constexpr std::array<std::string_view, 4> kPolicies = {"lru", "session", "flop", "flop"};
  settings.snapshot_policy = kPolicies[header[7] % kPolicies.size()];
  SnapshotPolicyOptions& policy = settings.snapshot_policy_options;
  policy.session_leases_max = header[7] / 4 % 4;
  policy.session_lease_evictions = header[7] / 16 % 8;
  policy.flop_alpha = static_cast<double>(header[7] / 4 % 8) / 2;

  for (std::size_t at = kRecordBytes; at < bytes.size(); at += kRecordBytes) {
    std::array<std::uint8_t, kRecordBytes> record = {};
    const auto source = bytes.subspan(at, std::min(bytes.size() - at, kRecordBytes));
    std::copy(source.begin(), source.end(), record.begin());
    program.operations.push_back(
        {kind_from(record[0], profile), record[1], record[2], record[3], record[4], record[5], record[6], record[7]});
  }
  return program;
}

std::vector<std::uint8_t> random_program_bytes(std::uint64_t seed, std::size_t operations) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve((operations + 1) * kRecordBytes);
  std::uint64_t state = seed;
  for (std::size_t record = 0; record <= operations; ++record) {
    const std::uint64_t word = split_mix(state);
    for (unsigned shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
  }
  return bytes;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

std::vector<std::uint8_t> from_hex(const std::string& hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::size_t scale_cut(std::uint8_t cut, std::size_t size) {
  if (cut < 86) return size;
  return (cut - std::size_t{86}) * (size + 1) / 170;
}

std::vector<TokenId> PromptBook::make(const Operation& operation) {
  std::vector<TokenId> tokens;
  if (!known_.empty()) {
    const auto& known = known_[operation.source % known_.size()];
    const auto end = known.begin() + static_cast<std::ptrdiff_t>(scale_cut(operation.cut, known.size()));
    tokens.assign(known.begin(), end);
  }
  return continue_from(std::move(tokens), operation);
}

std::vector<TokenId> PromptBook::continue_from(std::vector<TokenId> start, const Operation& operation) {
  append_runs(start, operation);
  remember(start);
  return start;
}

void PromptBook::append_runs(std::vector<TokenId>& tokens, const Operation& operation) const {
  const auto& values = settings_.wide_tokens ? kWideTokens : kTokens;
  for (const std::uint8_t run : {operation.run_a, operation.run_b}) {
    std::size_t length = (run / values.size()) % (2 * settings_.block_size + 3);
    length = std::min(length, settings_.tokens_max - std::min(settings_.tokens_max, tokens.size()));
    // Often half a group of tokens as they are kept packed: what a token has too much can hide behind the one 8
    // further.
    if (settings_.wide_tokens && length % 2 == 1) length = std::min<std::size_t>(length, 8);
    tokens.insert(tokens.end(), length, values[run % values.size()]);
  }
}

void PromptBook::remember(const std::vector<TokenId>& tokens) {
  if (tokens.empty()) return;
  if (known_.size() < kKnownSequencesMax) {
    known_.push_back(tokens);
    return;
  }
  known_[next_] = tokens;
  next_ = (next_ + 1) % kKnownSequencesMax;
}

}  // namespace cairn::testing
