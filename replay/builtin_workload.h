// The workload that needs no file.
#ifndef CAIRN_REPLAY_BUILTIN_WORKLOAD_H_
#define CAIRN_REPLAY_BUILTIN_WORKLOAD_H_

#include <cstddef>
#include <cstdint>

#include "replay/workload.h"

namespace cairn::replay {

struct BuiltinWorkloadOptions {
  static constexpr std::size_t kRequestsMax = 1'000'000;

  std::size_t requests = 2000;
  std::uint64_t seed = 1;
};

// A mix of what inference servers see: six tenants of Zipf-like popularity, some with a LoRA adapter, each with
// system prompts of its own; multi-turn chats, many of them about one of the tenant's documents (again Zipf-like);
// coding agents whose prompts grow by long tool outputs, and which retry a step, go back and branch, or start
// sub-agents that share their history. Sessions start as a Poisson process, turns follow after exponential pauses;
// requests come in order of time and carry tokens, output tokens, sessions, adapters and time stamps.
//
// The same options give the same workload on every platform: no standard distribution and no libm is involved.
// A longer workload starts with the shorter one of the same seed.
// Throws std::invalid_argument: requests not from 1 to kRequestsMax.
[[nodiscard]] Workload builtin_workload(const BuiltinWorkloadOptions& options);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_BUILTIN_WORKLOAD_H_
