// Threads that do rounds of work, each round started by all at the same moment.
#ifndef CAIRN_TESTS_HISTORY_CREW_H_
#define CAIRN_TESTS_HISTORY_CREW_H_

#include <cstddef>
#include <functional>

namespace cairn::testing {

// work(round, thread) for each round below `rounds`, on `threads` threads at once, of which the caller's is the first.
// They wait for each other before each round, spinning: on a busy machine they rarely run side by side, but when they
// do, they get through many rounds.
void run_together(std::size_t threads, std::size_t rounds,
                  const std::function<void(std::size_t round, std::size_t thread)>& work);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_HISTORY_CREW_H_
