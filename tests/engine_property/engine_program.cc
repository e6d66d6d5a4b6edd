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
    {"admit", 24},  {"resume", 7},      {"serve", 20},     {"run on", 14}, {"compute", 48}, {"submit", 8},
    {"done", 32},   {"fail", 3},        {"capture", 8},    {"restore", 2}, {"append", 11},  {"draft", 5},
    {"verify", 6},  {"truncate", 7},    {"publish", 10},   {"settle", 4},  {"check", 3},    {"fork", 6},
    {"finish", 12}, {"preempt", 6},     {"abandon", 5},    {"replace", 1}, {"clear", 1},    {"clear adapter", 1},
    {"peek", 2},    {"hold blocks", 2}, {"hold slots", 2}, {"let go", 6},
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

  for (std::size_t at = kRecordBytes; at < bytes.size(); at += kRecordBytes) {
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
  return fmt::format(
      "{} model, {} blocks of {} tokens, {} slots of {} shards, up to {} tokens; tails {}, branch points {}, "
      "checkpoints every {}, snapshots shared {}; {} idle adapters, {} idle media; allocations fail {}; at the end "
      "sequences {}",
      kModels[static_cast<std::size_t>(s.model)], s.blocks, s.block_size, s.slots, s.shards, s.tokens_max,
      s.capture_tails, s.capture_branch_points, s.checkpoint_every_tokens, s.share_snapshots_across_sessions,
      s.adapters_max, s.media_max, s.allocations_fail, kEndings[static_cast<std::size_t>(s.ending)]);
}

}  // namespace cairn::testing
