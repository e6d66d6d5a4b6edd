#include "tier_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace cairn::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kKinds = {RecordKind::kBlock, RecordKind::kPlainSnapshot, RecordKind::kTail,
                               RecordKind::kTailSibling};
constexpr int kSchemaVersion = 1;

const char* name_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::kBlock:
      return "block";
    case RecordKind::kPlainSnapshot:
      return "snapshot";
    case RecordKind::kTail:
      return "tail";
    case RecordKind::kTailSibling:
      return "tail sibling";
  }
  return "?";
}

const char* name_of(SlabId slab) {
  return slab == SlabId::kBlocks ? "blocks" : "snapshots";
}

// Names come from requests: what a terminal or JSON can't take is shown as \xHH.
std::string printable(const std::string& name) {
  std::string shown;
  for (const char character : name) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte > 0x7E || byte == '\\') {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", byte);
    } else {
      shown += character;
    }
  }
  return shown;
}

std::string adapter_of(const RecordLineage& lineage) {
  if (lineage.adapter.empty()) return "(base model)";
  return fmt::format("{}, generation {}", printable(lineage.adapter), lineage.adapter_generation);
}

struct Count {
  std::size_t records = 0;
  std::uint64_t payload_bytes = 0;

  void add(const RecordHeader& record) {
    ++records;
    payload_bytes += record.payload_bytes;
  }
};

struct Counts {
  std::map<RecordKind, Count> kinds;
  std::map<std::pair<std::string, std::uint64_t>, Count> adapters;  // with generation
  std::uint64_t oldest_generation = 0;
  std::uint64_t newest_generation = 0;

  explicit Counts(std::span<const RecordHeader> records) {
    for (const RecordHeader& record : records) {
      kinds[record.lineage.kind].add(record);
      adapters[{record.lineage.adapter, record.lineage.adapter_generation}].add(record);
      oldest_generation = oldest_generation == 0 ? record.generation : std::min(oldest_generation, record.generation);
      newest_generation = std::max(newest_generation, record.generation);
    }
  }
};

void add_verification(const TierReport& report, std::string& out) {
  const auto into = std::back_inserter(out);
  const TierReport::Verification& verification = *report.verification;
  fmt::format_to(into, "\nverified     {} whole, {} damaged", verification.whole, report.damaged());
  if (verification.gone > 0) fmt::format_to(into, ", {} gone meanwhile", verification.gone);
  out += "\n";
  for (const RecordHeader& record : verification.damaged) {
    fmt::format_to(into, "damaged      key {}, {}, {} slot {}\n", record.key, name_of(record.lineage.kind),
                   name_of(record.slab), record.slot);
  }
  for (const InspectedDamage& damage : report.inspector->damaged_headers()) {
    fmt::format_to(into, "damaged      header of {} slot {}\n", name_of(damage.slab), damage.slot);
  }
}

void add_records(std::span<const RecordHeader> records, std::string& out) {
  const auto into = std::back_inserter(out);
  fmt::format_to(into, "\n{:>20} {:>20} {:<12} {:>10} {:>7} {:>11}  {}\n", "key", "parent", "kind", "from token",
                 "tokens", "generation", "adapter");
  for (const RecordHeader& record : records) {
    const RecordLineage& lineage = record.lineage;
    fmt::format_to(into, "{:>20} {:>20} {:<12} {:>10} {:>7} {:>11}  {}\n", record.key,
                   lineage.parent == 0 ? "-" : std::to_string(lineage.parent), name_of(lineage.kind),
                   lineage.first_token, lineage.tokens.size(), record.generation, adapter_of(lineage));
  }
}

Json json_of(const RecordHeader& record) {
  const RecordLineage& lineage = record.lineage;
  Json media = Json::array();
  for (const RecordMedium& medium : lineage.media) {
    media.push_back({{"offset", medium.offset},
                     {"length", medium.length},
                     {"content_id", {medium.content_id[0], medium.content_id[1]}}});
  }
  return {{"key", record.key},
          {"kind", name_of(lineage.kind)},
          {"generation", record.generation},
          {"slab", name_of(record.slab)},
          {"slot", record.slot},
          {"payload_bytes", record.payload_bytes},
          {"adapter", printable(lineage.adapter)},
          {"adapter_generation", lineage.adapter_generation},
          {"tenant_salted", !lineage.tenant_salt.empty()},
          {"parent", lineage.parent},
          {"first_token", lineage.first_token},
          {"tokens", lineage.tokens},
          {"media", std::move(media)},
          {"session", lineage.session}};
}

Json json_of(const TierReport::Verification& verification, std::span<const InspectedDamage> headers) {
  Json damaged = Json::array();
  for (const RecordHeader& record : verification.damaged) {
    damaged.push_back({{"key", record.key}, {"slab", name_of(record.slab)}, {"slot", record.slot}});
  }
  for (const InspectedDamage& damage : headers) {
    damaged.push_back({{"key", nullptr}, {"slab", name_of(damage.slab)}, {"slot", damage.slot}});
  }
  return {{"whole", verification.whole}, {"gone", verification.gone}, {"damaged", std::move(damaged)}};
}

}  // namespace

std::size_t TierReport::damaged() const {
  return inspector->damaged_headers().size() + (verification ? verification->damaged.size() : 0);
}

std::string text(const TierReport& report) {
  const DirectoryInspector& inspector = *report.inspector;
  const SpillLayout& layout = inspector.layout();
  const Counts counts(inspector.records());
  std::string out;
  const auto into = std::back_inserter(out);
  fmt::format_to(into, "directory    {}\n", report.directory);
  if (inspector.in_use()) out += "in use       by another process: this is a moment's picture\n";
  fmt::format_to(into, "fingerprint  {}\n", printable(to_string(layout.fingerprint)));
  fmt::format_to(into, "layout       blocks of {} tokens, {} bytes each; snapshots of {} bytes\n", layout.block_size,
                 layout.block_bytes, layout.snapshot_bytes);
  if (layout.record_tokens > 0)
    fmt::format_to(into, "             records with room for {} tokens\n", layout.record_tokens);
  fmt::format_to(into, "incarnation  {}\n", inspector.incarnation());
  fmt::format_to(into, "on disk      {} bytes\n", inspector.disk_bytes());
  fmt::format_to(into, "generations  {} to {}\n", counts.oldest_generation, counts.newest_generation);
  fmt::format_to(into, "damaged      {} headers\n", inspector.damaged_headers().size());
  fmt::format_to(into, "replaced     {} records\n", inspector.replaced_records());

  constexpr const char* kRow = "{:<44} {:>12} {:>20}\n";
  fmt::format_to(into, "\n");
  fmt::format_to(into, kRow, "kind", "records", "payload bytes");
  for (const RecordKind kind : kKinds) {
    const auto count = counts.kinds.find(kind);
    if (count == counts.kinds.end()) continue;
    fmt::format_to(into, kRow, name_of(kind), count->second.records, count->second.payload_bytes);
  }
  out += "\n";
  fmt::format_to(into, kRow, "adapter", "records", "payload bytes");
  for (const auto& [adapter, count] : counts.adapters) {
    const RecordLineage lineage{.adapter = adapter.first, .adapter_generation = adapter.second};
    fmt::format_to(into, kRow, adapter_of(lineage), count.records, count.payload_bytes);
  }
  if (report.list_records) add_records(inspector.records(), out);
  if (report.verification) add_verification(report, out);
  return out;
}

std::string json(const TierReport& report) {
  const DirectoryInspector& inspector = *report.inspector;
  const SpillLayout& layout = inspector.layout();
  const Counts counts(inspector.records());
  Json document = {{"schema_version", kSchemaVersion},
                   {"directory", report.directory},
                   {"in_use", inspector.in_use()},
                   {"fingerprint",
                    {{"weights", printable(layout.fingerprint.weights)},
                     {"kv_type", printable(layout.fingerprint.kv_type)},
                     {"layout", printable(layout.fingerprint.layout)},
                     {"ranks", layout.fingerprint.ranks}}},
                   {"block_size", layout.block_size},
                   {"block_bytes", layout.block_bytes},
                   {"snapshot_bytes", layout.snapshot_bytes},
                   {"record_tokens", layout.record_tokens},
                   {"incarnation", inspector.incarnation()},
                   {"disk_bytes", inspector.disk_bytes()},
                   {"oldest_generation", counts.oldest_generation},
                   {"newest_generation", counts.newest_generation},
                   {"damaged_headers", inspector.damaged_headers().size()},
                   {"replaced_records", inspector.replaced_records()}};
  Json kinds = Json::array();
  for (const auto& [kind, count] : counts.kinds) {
    kinds.push_back({{"kind", name_of(kind)}, {"records", count.records}, {"payload_bytes", count.payload_bytes}});
  }
  document["kinds"] = std::move(kinds);
  Json adapters = Json::array();
  for (const auto& [adapter, count] : counts.adapters) {
    adapters.push_back({{"adapter", printable(adapter.first)},
                        {"generation", adapter.second},
                        {"records", count.records},
                        {"payload_bytes", count.payload_bytes}});
  }
  document["adapters"] = std::move(adapters);
  if (report.list_records) {
    Json records = Json::array();
    for (const RecordHeader& record : inspector.records()) records.push_back(json_of(record));
    document["records"] = std::move(records);
  }
  if (report.verification) {
    document["verification"] = json_of(*report.verification, inspector.damaged_headers());
  }
  return document.dump(2) + "\n";
}

}  // namespace cairn::tool
