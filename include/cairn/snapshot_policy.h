// In which order snapshots of recurrent state are evicted: names and parameters. docs/policies.md compares them.
//
// "lru"      the one used least recently goes first.
// "session"  the session idle longest loses first, and of its own the oldest. A snapshot of no session is idle by
//            itself. The tail of a live session is leased: it stays, until `session_lease_evictions` evictions have
//            passed without the session coming back (a put of its tail, or a lookup of it that returns a snapshot).
//            Each session has one lease, at most `session_leases_max` sessions have one: one more ends the one that
//            was renewed longest ago. When all that could go is leased, that one is broken: eviction makes progress.
// "flop"     after Marconi (arXiv 2411.19379, section 4.2): the lowest
//                recency + alpha * efficiency
//            goes first. Recency is 1 / (uses of any snapshot since its own last one), efficiency the FLOPs that it
//            saves for each byte that its eviction frees; both are normalised to 0 .. 1 by the least and the greatest
//            of the snapshots that could go (all 1 if they are equal), as the paper's artifact does.
//            It saves what lies between it and the deepest other snapshot above it that all who see it see as well
//            (`model`). Blocks stay when a snapshot goes, so what is freed is a slot, whatever hangs below it: a place
//            with one child, or with many, gives up its state as any other. Efficiencies are rounded down to three
//            binary digits after the first, so that a choice takes O(log n) and not a look at all of them; a snapshot
//            that does not end at a block boundary counts as above another if its full blocks are.
#ifndef CAIRN_SNAPSHOT_POLICY_H_
#define CAIRN_SNAPSHOT_POLICY_H_

#include <cairn/model_shape.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

struct SnapshotPolicyOptions {
  // ---- "session" ----
  std::size_t session_leases_max = 1024;       // 0: none are leased
  std::size_t session_lease_evictions = 4096;  // 0: the same

  // ---- "flop" ----
  ModelShape model = model_presets().front().shape;
  // How much efficiency weighs against recency; none: tuned while running, by replaying a recent window with others.
  std::optional<double> flop_alpha = 1.0;

  // That the eviction of one frees; 0: those of `model`. CacheManager takes those of a slot.
  std::size_t snapshot_bytes = 0;
};

// The default first.
[[nodiscard]] std::vector<std::string> snapshot_policy_names();

}  // namespace cairn

#endif  // CAIRN_SNAPSHOT_POLICY_H_
