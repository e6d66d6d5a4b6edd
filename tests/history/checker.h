// Is there an order of the calls of a history that explains every answer?
//
// J. Wing and C. Gong, "Testing and verifying concurrent objects" (1993): an order explains a history if a call that
// responded before another was invoked comes first, and the sequential model, called in this order, gives every
// answer. All calls being atomic steps means that there is one.
#ifndef CAIRN_TESTS_HISTORY_CHECKER_H_
#define CAIRN_TESTS_HISTORY_CHECKER_H_

#include <cairn/radix_tree.h>

#include <cstddef>
#include <string>
#include <vector>

#include "history/call.h"

namespace cairn::testing {

struct History {
  RadixTreeOptions options;
  std::vector<Call> calls;  // those of one thread in their order
  std::size_t holds = 0;    // those are numbered below this
};

struct Verdict {
  bool explained = false;
  std::size_t steps = 0;  // calls made on the model on the way
  std::string complaint;  // if not explained: the history, and the order that explains most of it
};

Verdict explain(const History& history);

// Whether two of its calls ran at the same time.
bool any_overlap(const History& history);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_HISTORY_CHECKER_H_
