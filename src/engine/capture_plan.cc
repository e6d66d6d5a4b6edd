#include "engine/capture_plan.h"

#include <algorithm>

namespace cairn {

std::vector<CapturePoint> plan_captures(const CapturePlan& plan) {
  std::vector<CapturePoint> points;
  const auto add = [&](std::size_t tokens, CaptureKind kind) {
    if (tokens > plan.have_tokens && tokens <= plan.prompt_tokens) points.push_back({tokens, kind});
  };
  const std::size_t blocks = plan.prompt_tokens / plan.block_size;
  if (plan.tails && blocks > 1) {
    const std::size_t tail = (blocks - 1) * plan.block_size;
    const std::size_t sibling = tail - plan.block_size;
    add(tail, plan.session ? CaptureKind::kTail : CaptureKind::kSharedTail);
    // The new tail sweeps the snapshot that was just restored, if that was the session's: so its place counts too.
    if (plan.siblings && plan.session && tail > plan.have_tokens && sibling > 0 && sibling >= plan.have_tokens) {
      points.push_back({sibling, CaptureKind::kTailSibling});
    }
  }
  if (plan.branch_tokens) add(*plan.branch_tokens, CaptureKind::kBranchPoint);
  if (plan.checkpoint_every_tokens > 0) {
    const std::size_t every = plan.checkpoint_every_tokens;
    for (std::size_t tokens = (plan.have_tokens / every + 1) * every; tokens < plan.prompt_tokens; tokens += every) {
      add(tokens, CaptureKind::kCheckpoint);
    }
  }
  if (plan.last_token) add(plan.prompt_tokens, CaptureKind::kLastToken);
  // Of those at one place, the kind that comes first in CaptureKind.
  std::ranges::sort(points, [](const CapturePoint& a, const CapturePoint& b) {
    return a.tokens != b.tokens ? a.tokens < b.tokens : a.kind < b.kind;
  });
  const auto repeated =
      std::ranges::unique(points, [](const CapturePoint& a, const CapturePoint& b) { return a.tokens == b.tokens; });
  points.erase(repeated.begin(), repeated.end());
  return points;
}

}  // namespace cairn
