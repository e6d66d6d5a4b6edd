#include "replay_tier_options.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "given_options.h"
#include "replay/workload.h"

namespace cairn::tool {
namespace {

constexpr const char* kGroup = "Tiers (of the verifying engine)";
constexpr std::size_t kRequestsMax = std::size_t{1} << 40;

// What is of no use without a tier.
constexpr const char* kOfTiers[] = {"--spill-min-tokens", "--spill-min-uses",       "--write-through",
                                    "--fetch-min-tokens", "--prefill-tokens-per-s", "--fetch-bytes-per-s"};

constexpr const char* kAddVerify = "only the verifying engine has it; add --engine verify";

std::string no_tier(const SweepArguments& sweep) {
  return fmt::format("not with {}, which has no tier; take --sweep-tiers", sweep.name());
}

CLI::Option* add_rate(CLI::App& command, const char* name, double& rate, const char* text) {
  return command.add_option(name, rate, text)
      ->check(CLI::Validator(
          [](std::string& given) {
            double number = 0;
            const bool right = CLI::detail::lexical_cast(given, number) && std::isfinite(number) && number >= 0;
            return right ? std::string() : fmt::format("{} is not a number from 0 on", given);
          },
          ""))
      ->type_name("RATE")
      ->capture_default_str()
      ->group(kGroup);
}

void add_stores(CLI::App& command, replay::TierOptions& tiers) {
  command
      .add_option("--ram-tier-bytes", tiers.ram_bytes,
                  "Keep so many bytes of what leaves memory in RAM (k, M, G: 10^3, 10^6, 10^9; Ki, Mi, Gi: 2^10, ..)")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES")
      ->group(kGroup);
  auto* directory = command
                        .add_option("--spill-dir", tiers.directory,
                                    "Keep what leaves memory in files of this directory, behind the RAM tier if there "
                                    "is one; a later replay goes on with what is there")
                        ->type_name("DIR")
                        ->group(kGroup);
  auto* bytes = command.add_option("--spill-bytes", tiers.file_bytes, "Never take more of the disk")
                    ->transform(CLI::AsSizeValue(true))
                    ->check(CLI::PositiveNumber)
                    ->type_name("BYTES")
                    ->needs(directory)
                    ->group(kGroup);
  directory->needs(bytes);
  command
      .add_flag("--reinitialize", tiers.reinitialize,
                "Empty a directory whose records are of another block size or state size")
      ->needs(directory)
      ->group(kGroup);
}

void add_policy(CLI::App& command, SpillOptions& spill) {
  command.add_option("--spill-min-tokens", spill.block_tokens_min, "Drop blocks of chains that end before this token")
      ->check(CLI::Range(std::uint64_t{0}, replay::kSequenceTokensMax))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--spill-min-uses", spill.block_uses_min, "Drop blocks that fewer requests have used")
      ->check(CLI::Range(std::uint32_t{1}, std::numeric_limits<std::uint32_t>::max()))
      ->type_name("N")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_flag("--write-through", spill.write_through, "Store blocks when they are published, not when they leave")
      ->group(kGroup);
  command.add_option("--fetch-min-tokens", spill.fetch_tokens_min, "Compute what saves fewer tokens")
      ->check(CLI::Range(std::uint64_t{0}, replay::kSequenceTokensMax))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(kGroup);
  add_rate(command, "--prefill-tokens-per-s", spill.prefill_tokens_per_s,
           "What fetching has to beat. The verifying engine computes in no time, so this is given, not measured; 0 "
           "measures it all the same");
  add_rate(command, "--fetch-bytes-per-s", spill.fetch_bytes_per_s, "How fast fetching is; 0: as measured");
}

}  // namespace

void add_tier_options(CLI::App& command, TierArguments& arguments) {
  add_stores(command, arguments.tiers);
  add_policy(command, arguments.tiers.spill);
  command.add_option("--skip", arguments.skip, "Leave out the first requests")
      ->check(CLI::Range(std::size_t{0}, kRequestsMax))
      ->type_name("N")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--stop-after", arguments.stop_after, "End after so many requests; later, --skip goes on")
      ->check(CLI::Range(std::size_t{0}, kRequestsMax))
      ->type_name("N")
      ->group(kGroup);
}

void check_tier_combinations(const CLI::App& command, const TierArguments& arguments, bool verify,
                             const SweepArguments& sweep) {
  const GivenOptions given(command);
  for (const char* name : {"--skip", "--stop-after"}) {
    if (!given.has(name) || verify) continue;
    given.refuse(name,
                 sweep.any() ? fmt::format("not with {}, which replays all requests", sweep.name()) : kAddVerify);
  }
  for (const char* name : {"--ram-tier-bytes", "--spill-dir"}) {
    if (!given.has(name) || verify) continue;
    if (sweep.tiers) given.refuse(name, "not with --sweep-tiers, which sets the tier's size; take --tier-sizes");
    given.refuse(name, sweep.any() ? no_tier(sweep) : kAddVerify);
  }
  for (const char* name : kOfTiers) {
    if (!given.has(name) || arguments.given() || sweep.tiers) continue;
    given.refuse(name, sweep.any() ? no_tier(sweep)
                                   : "without a tier nothing is stored; add --ram-tier-bytes, or --spill-dir and "
                                     "--spill-bytes, or --sweep-tiers");
  }
}

}  // namespace cairn::tool
