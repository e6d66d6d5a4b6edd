#include "bench/core/snapshots.h"

#include <vector>

#include "bench/core/measure.h"

namespace cairn::bench {
namespace {

constexpr SessionHash kPlainSessions = 1'000;  // and 49 more
constexpr SessionHash kTailSessions = 100'000;
constexpr std::size_t kBranchTokensMax = 40;

// Where snapshot i of the plan lies.
std::vector<TokenId> place(std::span<const TokenId> prompt, const SnapshotPlan& plan, std::size_t i, bool on) {
  const std::size_t step = prompt.size() / plan.count;
  const std::size_t length = prompt.size() - i * step;  // from the end on
  std::vector<TokenId> tokens(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length));
  if (on) return tokens;
  tokens.resize(length - step / 2);
  // No token of a prompt is that large, and each branch differs in its first one.
  const std::size_t branch = 1 + i % kBranchTokensMax;
  for (std::size_t k = 0; k < branch; ++k) tokens.push_back(static_cast<TokenId>(1'000'000 + i));
  return tokens;
}

}  // namespace

void put_snapshots(RadixTree& tree, std::span<const TokenId> prompt, const SnapshotPlan& plan) {
  const std::size_t before = tree.snapshot_count();
  for (std::size_t i = 0; i < plan.count; ++i) {
    const bool on = plan.where == Where::kOn || (plan.where == Where::kOnAndAround && i % 2 == 0);
    const std::vector<TokenId> tokens = place(prompt, plan, i, on);
    const SnapshotId slot = plan.first_slot + i;
    // Kinds change every other time, so that both kinds lie both on and around.
    if (!plan.visible_to_all && i / 2 % 2 == 1) {
      expect(tree.insert_tail_snapshot(tokens, slot, kTailSessions + i, 0).empty(), "a tail displaced something");
      continue;
    }
    const SessionHash session = plan.visible_to_all ? 0 : kPlainSessions + i % 50;
    expect(!tree.insert_intermediate_snapshot(tokens, {}, {}, kBlockSize, slot, session, 0, 0).has_value(),
           "a snapshot displaced another");
  }
  expect(tree.snapshot_count() == before + plan.count, "snapshot_count after puts");
}

}  // namespace cairn::bench
