#include "bench/core/rows.h"

namespace cairn::bench {
namespace {

constexpr Row kRows[] = {
    {1, "cached 32,768-token prompt, alone in the tree", cached_prompt_alone},
    {2, "the same by handle", cached_prompt_by_handle},
    {3, "the same prompt cached as 32 turns of 1,024 tokens", prompt_cached_in_turns},
    {4, "cycling through 64 such prompts that share 2,048 tokens", cycling_through_prompts},
    {5, "cached 2,048-token prompt in a tree of 200,000 blocks", prompts_in_a_large_tree},
    {6, "lookup of row 1 with 8,192 snapshots on and around the prompt", lookup_among_snapshots},
    {7, "insert of an uncached 32,768-token prompt", insert_of_a_prompt},
    {8, "evict in calls of 64 blocks from 200,000 one-block leaves", evict_by_64},
    {9, "evict(1) repeatedly, the same tree", evict_one_by_one},
    {10, "evict_snapshot_lru with 8,192 snapshots", evict_snapshots},
    {11, "1,000 conversations, 95% lookups, 5% inserts, evicting", conversations},
    {12, "two threads / one, 32k prompts", two_threads_long_prompts},
    {13, "two threads / one, 2k prompts", two_threads_short_prompts},
    {14, "p99 of a lookup beside a writer", lookup_beside_a_writer},
    {15, "memory per cached block at a million blocks", memory_per_block},
    {16, "memory after evicting everything", memory_after_evicting},
    {17, "admit + finish of a resident 32,768-token prompt", admit_and_finish},
    {18, "a decode step behind a long prompt", decode_steps},
    {19, "what size estimates and histograms add to admit + finish", watched_admissions},
};

}  // namespace

std::span<const Row> rows() {
  return kRows;
}

}  // namespace cairn::bench
