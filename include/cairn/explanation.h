// Why a request's cached prefix is no longer than it is: what Lease::explain answers.
#ifndef CAIRN_EXPLANATION_H_
#define CAIRN_EXPLANATION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

// Why the first token that could have been reused, and is not, had to be computed. If several apply, the first one of
// this order counts, but for the last four, of which at most one does.
enum class MissReason : std::uint8_t {
  kNone,          // nothing is missing: all full blocks below the last token were reused
  kCleared,       // the cache was cleared since the admission: nothing can be said of before
  kTooShort,      // the prompt has no full block below its last token, which is always computed
  kStateMissing,  // the KV was there, but no state of the recurrent layers that deep: see `state`
  kForbidden,  // the request or a medium set a limit (LeaseExplanation::limit), and all full blocks below were there
  kStored,     // the next block or state is in the store, and was not fetched
  kEvicted,    // the next block was cached once, and pushed out
  kOtherAdapter,      // the same is cached for another adapter, or another generation of this one
  kOtherTenant,       // the same is cached for another tenant (CacheManagerOptions::explain_across_tenants)
  kDiffersThenEqual,  // differs from the nearest cached prompt in a run of tokens, and is equal again behind it
  kDiffers,           // begins like something cached, and goes on in another way
  kNeverSeen,         // begins like nothing cached, or goes on where all that is cached ends
};
inline constexpr std::size_t kMissReasons = 12;
[[nodiscard]] std::string_view name_of(MissReason reason);  // "state_missing" and so on

// Why no state lies where the KV ends.
enum class StateLoss : std::uint8_t {
  kNone,        // it does
  kNeverTaken,  // none is known to have been kept there
  kEvicted,     // one was, and its slot was needed
  kReplaced,    // one was, and its session has put a later one
  kStored,      // one is in the store, and was not fetched
};

// What ends the part of a prompt that may be reused.
enum class ReuseLimit : std::uint8_t {
  kLastToken,    // is computed for its logits
  kNoRead,       // Request::no_read
  kReuseMax,     // Request::reuse_tokens_max
  kMedium,       // one that could not be remembered
  kNoCopyBlock,  // the block to copy the last shared one into could not be had otherwise
};

// Positions and counts, never tokens. What is of which moment:
//   - as of the admission, or the end of its loading: admission, all token counts up to `limit`
//   - as of the call: all else, from what the cache knows by then. What left it by the admission and is remembered
//     counts as evicted; what came since is told by published_since.
struct LeaseExplanation {
  MissReason reason = MissReason::kNone;
  std::uint64_t admission = 0;     // the request's number among the manager's admissions, from 1
  std::size_t prompt_tokens = 0;   // without those that Lease::truncate has removed
  std::size_t allowed_tokens = 0;  // that could have been reused at most
  std::size_t matched_tokens = 0;  // whose KV was there. 0 for purely recurrent models
  std::size_t reused_tokens = 0;   // that need not be computed
  ReuseLimit limit = ReuseLimit::kLastToken;

  // kStateMissing: there was a state at state_tokens, deeper than reused_tokens; not if it was kNeverTaken.
  StateLoss state = StateLoss::kNone;
  std::size_t state_tokens = 0;

  // kStored: after what was reused. kEvicted: as far as each block is remembered as evicted.
  std::size_t stored_tokens = 0;
  std::size_t evicted_tokens = 0;
  // kEvicted, and of a state kEvicted and kReplaced: the last time before this admission.
  std::uint64_t evicted_for_admission = 0;   // the one that needed the room; equal to `admission` if it was this one
  std::uint64_t evicted_admissions_ago = 0;  // before this one
  std::chrono::milliseconds evicted_ago{0};  // before the call
  // Some that left before the admission are not remembered, or not any more (evictions_remembered_max of
  // CacheManagerOptions): what is said to be different or never seen may have been evicted.
  bool evictions_forgotten = false;

  // kOtherAdapter, kOtherTenant: so many tokens from the prompt's start on. The names stay empty for kOtherTenant.
  std::size_t other_tokens = 0;
  std::string other_adapter;  // empty: the base model
  std::uint64_t other_generation = 0;

  // kDiffers, kDiffersThenEqual: the first token that is not as in the nearest prompt that is cached. Then so many of
  // its tokens stand there no longer, so many others do, and the prompt goes on as it does: for so many tokens, in so
  // many stretches. Of the nearest one up to kComparedTokensMax tokens are looked at.
  static constexpr std::size_t kComparedTokensMax = 8192;
  std::size_t differs_at = 0;
  std::size_t removed_tokens = 0;
  std::size_t added_tokens = 0;
  std::size_t equal_again_tokens = 0;
  std::size_t equal_stretches = 0;
  // kNeverSeen: all before is cached, and longer than whatever begins like it.
  bool goes_on = false;

  // What was missing is there now: this request or another one has published it since.
  bool published_since = false;

  // In words, one sentence or two: "96 of 500 tokens reused: the next 128 tokens were evicted 3 seconds ago ...".
  [[nodiscard]] std::string describe() const;
};

}  // namespace cairn

#endif  // CAIRN_EXPLANATION_H_
