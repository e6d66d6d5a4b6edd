// Many snapshots on and around one prompt, for rows 6 and 10.
#ifndef CAIRN_BENCH_CORE_SNAPSHOTS_H_
#define CAIRN_BENCH_CORE_SNAPSHOTS_H_

#include <cairn/radix_tree.h>

#include <cstddef>
#include <span>

namespace cairn::bench {

inline constexpr std::size_t kManySnapshots = 8'192;

enum class Where : unsigned char {
  kOn,           // on the prompt, evenly
  kAround,       // each a few tokens off the prompt, on a branch of its own
  kOnAndAround,  // in turns
};

struct SnapshotPlan {
  std::size_t count = kManySnapshots;
  bool visible_to_all = true;  // plain ones of session 0; else plain ones of 50 sessions and tails, in turns
  Where where = Where::kOnAndAround;
  std::size_t first_slot = 0;
};

// Puts snapshots in slots first_slot, first_slot + 1, ...; one lies at the end of the prompt unless all lie around.
// Sessions are 1,000 and more. Throws WrongResult if a put displaces anything.
void put_snapshots(RadixTree& tree, std::span<const TokenId> prompt, const SnapshotPlan& plan);

}  // namespace cairn::bench

#endif  // CAIRN_BENCH_CORE_SNAPSHOTS_H_
