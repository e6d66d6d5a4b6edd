// For each request of a replay: where its cached prefix ended, and why.
#ifndef CAIRN_REPLAY_EXPLAINER_H_
#define CAIRN_REPLAY_EXPLAINER_H_

#include <cairn/explanation.h>
#include <cairn/prefix_cache.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replay/block_trace.h"
#include "replay/replayer.h"
#include "replay/verified_replayer.h"
#include "replay/workload.h"

namespace cairn::replay {

// Why a prompt's cached prefix is no longer than it is. "Seen" is what a request before it asked for or, if its tokens
// are known, had as output by then: what a cache would hold that evicts nothing.
enum class MissCause : std::uint8_t {
  kNone,              // all its full blocks were cached
  kTooShort,          // the prompt has no full block
  kStateMissing,      // the KV was there, but no state of the recurrent layers that deep
  kEvicted,           // the next block was cached once, and pushed out
  kOtherTenant,       // the next block was seen for the same adapter, but for another tenant
  kOtherAdapter,      // the next block was seen, but for another adapter
  kDiffersThenEqual,  // differs from what was seen in a run of tokens, and then is equal again
  kDiffers,           // begins like something seen, goes on in another way, and nothing of the rest was seen
  kNeverSeen,         // begins like nothing seen, or goes on where all that was seen ends
};
inline constexpr std::size_t kMissCauses = 9;

// "evicted" and so on, as in JSON.
[[nodiscard]] std::string_view name_of(MissCause cause);

// A prompt's tokens are matched, or are told apart by why they are not:
//   prompt = matched + stateless + evicted + other_tenant + other_adapter + equal_again + unseen + short.
struct TokenCauses {
  std::uint64_t prompt = 0;
  std::uint64_t matched = 0;        // of hybrid models: reused
  std::uint64_t stateless = 0;      // their KV matched, and no state was there
  std::uint64_t evicted = 0;        // seen and pushed out since
  std::uint64_t other_tenant = 0;   // seen for other tenants only
  std::uint64_t other_adapter = 0;  // seen for another adapter only
  std::uint64_t equal_again = 0;    // seen, but behind other tokens: equal after a run that differs
  std::uint64_t unseen = 0;         // of full blocks, the rest
  // Behind the last full block: never cached. Of hybrid models, behind the last one that is full without the last
  // token, which is always computed.
  std::uint64_t too_short = 0;

  bool operator==(const TokenCauses&) const = default;
  TokenCauses& operator+=(const TokenCauses& other);
};

struct Explanation {
  std::size_t index = 0;  // of the request
  MissCause cause = MissCause::kNone;
  TokenCauses tokens;

  // kStateMissing, as Lease::explain says it: what became of the state, where it was, and for whom it had to go.
  StateLoss state = StateLoss::kNone;
  std::size_t state_tokens = 0;
  std::size_t state_evicted_by = 0;  // kEvicted and kReplaced alone
  // kEvicted: the request that pushed the next block out, and the last one before it that had used it.
  std::size_t evicted_by = 0;
  std::size_t last_used_by = 0;
  // kOtherTenant, kOtherAdapter: who asked for the same as another tenant, or with another adapter. kDiffers,
  // kDiffersThenEqual: the nearest one seen; kNeverSeen with goes_on: the last one that had all that was there.
  std::size_t nearest = 0;
  // kDiffers, kDiffersThenEqual: the first token that is not as in the nearest one.
  std::uint32_t differs_at = 0;
  // kDiffersThenEqual: from there on so many tokens of the nearest one stand no longer there, and so many others do,
  // and then it is equal again for some length; and how many such runs there are. With `moved`, the nearest one begins
  // in another way already before; then `removed` means nothing.
  std::uint32_t removed = 0;
  std::uint32_t added = 0;
  std::uint32_t runs = 0;
  bool moved = false;
  bool goes_on = false;  // kNeverSeen: it is longer than what it begins like
  // What its cached or evicted prefix ends with, as BlockTrace numbers it: those with the same begin alike.
  std::optional<BlockTrace::Number> parent;
};

struct ExplainOptions {
  std::size_t pool_blocks = 0;
  std::string block_policy = "lru";  // one of policy_names()
  ReplayOptions replay{};
  // Whether to look for kDiffersThenEqual. In a trace of chained block ids there is none to be found: an id names its
  // whole prefix, so nothing is ever equal behind what differs.
  bool find_equal_again = true;
  // A hybrid model, with a CacheManager and the verifying engine in the place of RadixTree and Replayer.
  std::optional<SnapshotOptions> snapshots{};
};

struct ExplainResult {
  RunResult run;                                    // as in a replay
  std::vector<Explanation> requests;                // admitted ones, in order
  TokenCauses tokens;                               // their sum
  std::array<std::size_t, kMissCauses> by_cause{};  // requests
};

// Replays the workload through a RadixTree and notes beside it all that was ever seen. Of a hybrid model, what
// became of its states is what the lease of each request says (Lease::explain).
//
// What is equal again is found by hashes of 16 tokens in a row, of which one in 16 is noted when it is first seen and
// the newest counts; a candidate is then compared token by token. So a stretch of 200 tokens is found with a
// probability of 99.999 %, and what is reported is true. It counts from max(block size, 32) tokens on in all.
//
// O(tokens of the workload), beside the replay and what the nearest ones take, O(block size * log children) each.
// About 40 bytes for each distinct block, and 24 for each 16 tokens that were new, of at most 2^23 of those.
//
// Throws as run_policy or replay_verified; std::invalid_argument if `blocks` is for another block size.
[[nodiscard]] ExplainResult explain(const Workload& workload, const BlockTrace& blocks, const ExplainOptions& options);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_EXPLAINER_H_
