// The most that any choice of snapshots can give a hybrid model, and what a choice that knows the future gives.
#ifndef CAIRN_REPLAY_SNAPSHOT_CEILING_H_
#define CAIRN_REPLAY_SNAPSHOT_CEILING_H_

#include <cairn/model_shape.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "replay/block_trace.h"
#include "replay/verified_replayer.h"
#include "replay/workload.h"

namespace cairn::replay {

// Given: requests in order, each of which may go on from one snapshot on its prompt, and leaves some; the places where
// one may be left are those where a lease of `options` asks for it if nothing at all could be reused, so those of any
// policy. Blocks without end: none is evicted, and KV is there for all that was ever seen. What is chosen is which
// snapshots are kept in `slots` slots.
//
// Choosing best is hard: a request goes on from the deepest one that is kept, so what each is worth depends on which
// others are. Hence two answers.
//
// The ceiling, `tokens` and `flops`, is an upper bound that no choice beats. What is left out of the problem makes it
// easier only: whoever could have left a snapshot when it last came by its place, did; each place has as many slots as
// it has kinds of readers. What stays is that a snapshot which is used takes a slot for as long as nobody comes by its
// place: since the last request whose prompt passes it. So requests choose among intervals, each at most one, and no
// more than `slots` intervals may overlap. The bound is the Lagrangian dual of that: a price for a slot at each
// moment, at which every request takes what pays best (weak duality: any prices give a bound; these are found by a
// subgradient method, `iterations` steps of it). It is not exact: how far below it the best choice lies is not known,
// but `relaxed_tokens` is what the same easier problem can be shown to have, so the bound is at most that far off as a
// bound of the easier problem.
//
// `clairvoyant_tokens` is what the same cache reuses, step by step as a replay does, by a choice that knows the
// future: from the prices follows a plan, which request is to go on from which place; the snapshot whose next planned
// use is furthest away is evicted, and a new one is not kept if its own is further than that of all others. (The next
// request that merely comes by a place says little: it comes by all snapshots on its path, and goes on from one.) It
// can be had by a cache that knows the trace, so it shows how much of the ceiling is real; it is no bound itself.
struct SnapshotCeiling {
  std::uint64_t tokens = 0;  // rounded down: they are whole
  double flops = 0;
  std::uint64_t relaxed_tokens = 0;
  std::uint64_t clairvoyant_tokens = 0;
  double clairvoyant_flops = 0;
};

struct SnapshotCeilingOptions {
  std::size_t slots = 0;
  ReplayOptions replay{};
  SnapshotOptions snapshots{};  // whose slots and policy do not count
  std::size_t iterations = 300;
};

// O(blocks.size() + iterations * n) for n pairs of a request and a place. Throws std::invalid_argument: no slots; the
// blocks are of another block size; snapshots.last_token (its places are no blocks); what Overlap throws.
[[nodiscard]] SnapshotCeiling find_snapshot_ceiling(const Workload& workload, const BlockTrace& blocks,
                                                    const SnapshotCeilingOptions& options);

// The same cache, step by step, evicting the one used least recently: has to agree with replay_verified, and so shows
// that the places and rules are the same.
struct SnapshotReplay {
  std::vector<std::size_t> reused_blocks;  // by request
  std::uint64_t reused_tokens = 0;
  std::uint64_t evicted = 0;
  std::uint64_t captures = 0;  // published
};
[[nodiscard]] SnapshotReplay replay_snapshots(const Workload& workload, const BlockTrace& blocks,
                                              const SnapshotCeilingOptions& options);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_SNAPSHOT_CEILING_H_
