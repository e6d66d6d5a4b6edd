#include "engine_property/engine_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "support/operation_decoder.h"

namespace cairn::testing {
namespace {

using Kind = EngineOperationKind;
constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::kCount);

struct KindInfo {
  std::string_view name;
  std::size_t weight;  // how often, of 256
};
constexpr std::array<KindInfo, kKinds> kKindInfo = {{
    {"admit", 24},  {"resume", 7},      {"serve", 20},     {"run on", 12}, {"compute", 44}, {"submit", 8},
    {"done", 30},   {"fail", 3},        {"capture", 8},    {"restore", 2}, {"append", 9},   {"draft", 5},
    {"verify", 5},  {"truncate", 6},    {"publish", 10},   {"settle", 4},  {"check", 3},    {"fork", 6},
    {"finish", 12}, {"preempt", 6},     {"abandon", 5},    {"replace", 1}, {"clear", 1},    {"clear adapter", 1},
    {"peek", 2},    {"hold blocks", 2}, {"hold slots", 2}, {"let go", 6},  {"answer", 6},   {"store", 3},
    {"flush", 1},   {"save", 1},        {"restart", 1},
}};

constexpr auto kKindOfByte = [] {
  std::array<Kind, 256> kinds = {};
  std::size_t at = 0;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    for (std::size_t i = 0; i < kKindInfo[kind].weight; ++i) kinds[at++] = static_cast<Kind>(kind);
  }
  if (at != kinds.size()) throw "the weights must add up to 256";  // fails to compile
  return kinds;
}();

constexpr std::array<std::size_t, 4> kBlockSizes = {1, 2, 4, 8};
constexpr std::array<std::size_t, 8> kBlocks = {3, 4, 6, 9, 14, 24, 40, 64};
constexpr std::array<std::size_t, 8> kSlots = {1, 1, 2, 2, 3, 4, 8, 16};
constexpr std::array<std::size_t, 4> kNameLimits = {0, 1, 4, 4096};

// How often which store, of 32. Those with files are slow.
StoreKind store_of(std::size_t number) {
  if (number < 12) return StoreKind::kNone;
  if (number < 21) return StoreKind::kRam;
  if (number < 30) return StoreKind::kHeld;
  return number < 31 ? StoreKind::kFile : StoreKind::kRamBeforeFile;
}

void decode_store(const std::array<std::uint8_t, kRecordBytes>& record, EngineSettings& settings) {
  constexpr std::array<std::size_t, 8> kRecords = {1, 2, 3, 5, 8, 13, 30, 100};
  constexpr std::uint64_t kMarginBytes = std::uint64_t{264} << 10;  // of a file store, for all but records
  constexpr std::uint64_t kRecordOnDisk = 8192;
  constexpr std::array<std::pair<double, double>, 4> kRates = {{{0, 0}, {1e12, 1}, {0, 1}, {1, 1e12}}};
  settings.store = store_of(record[0] % 32);
  if (settings.store == StoreKind::kNone) return;
  settings.ram_records = kRecords[record[1] % kRecords.size()];
  settings.file_bytes = kMarginBytes + kRecords[record[1] / 8 % kRecords.size()] * kRecordOnDisk;
  settings.uring = record[1] >= 128;
  settings.held_tier = record[2] % 2 == 0 ? Tier::kRam : Tier::kFile;
  settings.copies_are_late = record[2] / 2 % 2 == 0;
  settings.spill.write_through = record[2] / 4 % 4 == 0;
  settings.spill.block_uses_min = record[2] / 16 % 4 == 0 ? 2 : 1;
  settings.spill.block_tokens_min = record[3] % 4 == 0 ? 2 * settings.block_size : 0;
  settings.spill.snapshot_tokens_min = record[3] / 4 % 4 == 0 ? 3 : 0;
  settings.spill.fetch_tokens_min = record[3] / 16 % 4 == 0 ? 6 : 1;
  settings.spill.fetch_depth = record[4] % 4 == 0 ? 64 : record[4] % 4;
  const auto [fetch, prefill] = kRates[record[4] / 4 % 8 < 7 ? record[4] / 4 % 3 : 3];
  settings.spill.fetch_bytes_per_s = fetch;
  settings.spill.prefill_tokens_per_s = prefill;
  // Failing allocations are for programs of one thread.
  if (settings.store == StoreKind::kFile || settings.store == StoreKind::kRamBeforeFile) {
    settings.allocations_fail = false;
  }
}

}  // namespace

std::string_view name_of(EngineOperationKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < kKinds ? kKindInfo[index].name : "?";
}

EngineProgram decode_engine_program(std::span<const std::uint8_t> bytes) {
  std::array<std::uint8_t, kRecordBytes> record = {};
  const auto read_record = [&](std::size_t at) {
    record = {};
    const auto source = bytes.subspan(std::min(at, bytes.size()));
    std::copy_n(source.begin(), std::min(source.size(), kRecordBytes), record.begin());
  };
  read_record(0);
  EngineProgram program;
  EngineSettings& settings = program.settings;
  settings.model = static_cast<ModelKind>(record[0] % 8 < 3 ? 0 : record[0] % 8 < 7 ? 1 : 2);
  settings.block_size = kBlockSizes[record[1] % kBlockSizes.size()];
  const std::size_t pool = kBlocks[record[2] % kBlocks.size()];
  if (settings.model != ModelKind::kRecurrent) settings.blocks = pool;
  if (settings.model != ModelKind::kAttention) settings.slots = kSlots[record[3] % kSlots.size()];
  settings.shards = 1 + record[3] / 8 % 3;
  settings.tokens_max = std::clamp(pool / 2 + 1, std::size_t{5}, std::size_t{9}) * settings.block_size;
  settings.checkpoint_every_tokens = record[4] % 4 * settings.block_size;
  settings.capture_tails = record[4] / 4 % 4 != 0;
  settings.capture_branch_points = record[4] / 16 % 4 != 0;
  settings.share_snapshots_across_sessions = record[4] / 64 % 2 == 0;
  settings.adapters_max = kNameLimits[record[5] % kNameLimits.size()];
  settings.media_max = kNameLimits[record[5] / 4 % kNameLimits.size()];
  settings.allocations_fail = record[6] % 2 == 0;
  settings.ending = static_cast<Ending>(record[7] % 3);

  read_record(kRecordBytes);
  decode_store(record, settings);
  for (std::size_t at = 2 * kRecordBytes; at < bytes.size(); at += kRecordBytes) {
    read_record(at);
    const auto fault = static_cast<std::uint8_t>(record[7] < 32 ? record[7] : 0);
    program.operations.push_back({.kind = kKindOfByte[record[0]],
                                  .who = record[1],
                                  .source = record[2],
                                  .cut = record[3],
                                  .run_a = record[4],
                                  .run_b = record[5],
                                  .extra = record[6],
                                  .fault = settings.allocations_fail ? fault : std::uint8_t{0}});
  }
  return program;
}

std::string describe(const EngineSettings& s) {
  constexpr std::array<std::string_view, 3> kModels = {"attention-only", "hybrid", "recurrent"};
  constexpr std::array<std::string_view, 3> kEndings = {"finish", "abandon", "outlive the manager"};
  constexpr std::array<std::string_view, 5> kStores = {"no store", "RAM", "files", "RAM before files", "a held store"};
  const std::string store = fmt::format(
      "{} ({} records in RAM, {} bytes in files, {}), copies late {}; write through {}, uses min {}, tokens min {} "
      "and {}, "
      "fetches from {} tokens, {} at once, at {} bytes/s against {} tokens/s",
      kStores[static_cast<std::size_t>(s.store)], s.ram_records, s.file_bytes,
      s.held_tier == Tier::kRam ? "RAM" : "file", s.copies_are_late, s.spill.write_through, s.spill.block_uses_min,
      s.spill.block_tokens_min, s.spill.snapshot_tokens_min, s.spill.fetch_tokens_min, s.spill.fetch_depth,
      s.spill.fetch_bytes_per_s, s.spill.prefill_tokens_per_s);
  return fmt::format(
      "{} model, {} blocks of {} tokens, {} slots of {} shards, up to {} tokens; tails {}, branch points {}, "
      "checkpoints every {}, snapshots shared {}; {} idle adapters, {} idle media; allocations fail {}; at the end "
      "sequences {}; {}",
      kModels[static_cast<std::size_t>(s.model)], s.blocks, s.block_size, s.slots, s.shards, s.tokens_max,
      s.capture_tails, s.capture_branch_points, s.checkpoint_every_tokens, s.share_snapshots_across_sessions,
      s.adapters_max, s.media_max, s.allocations_fail, kEndings[static_cast<std::size_t>(s.ending)],
      s.store == StoreKind::kNone ? "no store" : store);
}

}  // namespace cairn::testing
