// The most that any choice of what to keep can give: the ceiling beside every policy.
#ifndef CAIRN_REPLAY_OPTIMUM_H_
#define CAIRN_REPLAY_OPTIMUM_H_

#include <cstddef>
#include <optional>

#include "replay/block_trace.h"
#include "replay/replayer.h"
#include "replay/workload.h"

namespace cairn::replay {

// What is the highest number of matched blocks that a replay (replayer.h) of this workload through a pool of this size
// can have, if whoever chooses what to evict knows the future?
//
// What is given, whoever chooses. Requests are admitted in order. Those that can never fit are rejected; a sequence
// holds its prompt's full blocks, shared with all others that hold the same, and for itself alone the prompt's last
// block, if it is not full, and the blocks reserved for its output. None of these can be evicted while it runs, so
// whether a request has to wait, and which others run beside it, depends on no choice. As it is admitted, what all
// running ones hold and what is kept beside them must fit into the pool. What it was admitted with may be kept or
// dropped when it ends (the right not to keep); so may the full blocks of an output whose tokens are known, which come
// into being at its end.
//
// What is chosen. A block that is asked for again gives a hit if it was kept since it was last held, or last came into
// being. That takes one block of the pool at each admission in between, so blocks compete for what the running ones
// leave free. The answer is Belady's: whenever more is kept than fits, drop the block whose next use is furthest away;
// of those with the same next use, the deepest. No more hits are possible: whatever one drops in its place, this one
// would have been in the way for longer. (Hits weigh the same, all intervals have one block's height; then this greedy
// choice is optimal also where the free space changes from step to step.) The next use of a parent is never later than
// its child's, so what is kept of a prompt is a prefix of it, without a rule to that end.
//
// Never beaten: RunResult::matched_blocks and matched_tokens of a cache that answers from what it holds, whatever it
// chooses to evict. It can't always be reached:
//   - A request that has to wait costs it nothing. The replayer, before it finds out, has everything evicted.
//   - Known outputs may offer a parent anew while its child is kept; it then keeps the child alone until then. A tree
//     can't. Without known outputs it can be reached, evicting leaves first: there its kept blocks are closed
//     under prefix at all times.
// reused_tokens follows from what is matched, and isn't optimised: a prompt matched to its very end computes one
// token.
//
// `result.ideal` is set: counts of what a real cache did (created, evicted and peak blocks, times) are 0. All others
// are as in a run with that pool. `pool_blocks` without a value means no end: all that was ever seen is kept.
//
// O(n log n) for n = blocks.size(), O(n + blocks.distinct()) of memory. `blocks` is of the same workload. Throws
// std::invalid_argument: blocks.block_size() is not options.block_size; what Overlap throws.
[[nodiscard]] RunResult find_optimum(const Workload& workload, const BlockTrace& blocks,
                                     std::optional<std::size_t> pool_blocks, const ReplayOptions& options);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_OPTIMUM_H_
