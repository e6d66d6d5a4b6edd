// The counts of ManagerStats that only grow, by name.
#ifndef CAIRN_TESTS_ENGINE_PROPERTY_MANAGER_COUNTS_H_
#define CAIRN_TESTS_ENGINE_PROPERTY_MANAGER_COUNTS_H_

#include <cairn/cache_manager.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace cairn::testing {

struct CountOfManager {
  std::string_view name;
  std::uint64_t ManagerStats::* field;
};
inline constexpr std::array kCountsOfManager = {
    CountOfManager{"requests", &ManagerStats::requests},
    CountOfManager{"resumed", &ManagerStats::resumed},
    CountOfManager{"prompt tokens", &ManagerStats::prompt_tokens},
    CountOfManager{"reused tokens", &ManagerStats::reused_tokens},
    CountOfManager{"computed tokens", &ManagerStats::computed_tokens},
    CountOfManager{"matched tokens", &ManagerStats::matched_tokens},
    CountOfManager{"tokens without state", &ManagerStats::stateless_tokens},
    CountOfManager{"refused admissions", &ManagerStats::refused_admissions},
    CountOfManager{"refused reserves", &ManagerStats::refused_reserves},
    CountOfManager{"published blocks", &ManagerStats::published_blocks},
    CountOfManager{"deduplicated blocks", &ManagerStats::deduplicated_blocks},
    CountOfManager{"evicted blocks", &ManagerStats::evicted_blocks},
    CountOfManager{"captures published", &ManagerStats::captures_published},
    CountOfManager{"captures declined", &ManagerStats::captures_declined},
    CountOfManager{"captures abandoned", &ManagerStats::captures_abandoned},
    CountOfManager{"evicted snapshots", &ManagerStats::evicted_snapshots},
    CountOfManager{"finished", &ManagerStats::finished},
    CountOfManager{"preempted", &ManagerStats::preempted},
    CountOfManager{"abandoned", &ManagerStats::abandoned},
    CountOfManager{"forks", &ManagerStats::forks},
    CountOfManager{"failed steps", &ManagerStats::failed_steps},
    CountOfManager{"waits", &ManagerStats::waits},
    CountOfManager{"tokens from memory", &ManagerStats::reused_from_memory_tokens},
    CountOfManager{"tokens from RAM tier", &ManagerStats::reused_from_ram_tier_tokens},
    CountOfManager{"tokens from file tier", &ManagerStats::reused_from_file_tier_tokens},
    CountOfManager{"spilled blocks", &ManagerStats::spilled_blocks},
    CountOfManager{"spilled snapshots", &ManagerStats::spilled_snapshots},
    CountOfManager{"declined spills", &ManagerStats::declined_spills},
    CountOfManager{"fetches", &ManagerStats::fetches},
    CountOfManager{"failed fetches", &ManagerStats::failed_fetches},
    CountOfManager{"unprofitable fetches", &ManagerStats::unprofitable_fetches},
    CountOfManager{"fetched blocks", &ManagerStats::fetched_blocks},
    CountOfManager{"fetched snapshots", &ManagerStats::fetched_snapshots},
    CountOfManager{"recovered blocks", &ManagerStats::recovered_blocks},
    CountOfManager{"recovered snapshots", &ManagerStats::recovered_snapshots},
    CountOfManager{"useless records", &ManagerStats::useless_records},
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_ENGINE_PROPERTY_MANAGER_COUNTS_H_
