// Where a request's state is worth capturing.
#ifndef CAIRN_ENGINE_CAPTURE_PLAN_H_
#define CAIRN_ENGINE_CAPTURE_PLAN_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "cairn/lease.h"

namespace cairn {

struct CapturePlan {
  std::size_t block_size = 1;
  std::size_t prompt_tokens = 0;
  std::size_t have_tokens = 0;  // what state there is already: only points beyond are of use
  bool tails = false;
  bool siblings = false;
  bool last_token = false;
  bool session = false;                      // without one there are no tails, but what all see in the tail's place
  std::optional<std::size_t> branch_tokens;  // where other requests have parted from this one
  std::size_t checkpoint_every_tokens = 0;   // 0: none
};

// In ascending order, each token count once. The last block of a prompt is often not what the next turn has there (a
// template's opening of the answer), so the tail lies one block below the end, and its sibling one block below that.
// Whether anything of the prompt was cached makes no difference, but for what lies there already: every turn leaves
// what the next one needs.
[[nodiscard]] std::vector<CapturePoint> plan_captures(const CapturePlan& plan);

}  // namespace cairn

#endif  // CAIRN_ENGINE_CAPTURE_PLAN_H_
