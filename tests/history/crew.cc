#include "history/crew.h"

#include <atomic>
#include <thread>
#include <vector>

namespace cairn::testing {

void run_together(std::size_t threads, std::size_t rounds,
                  const std::function<void(std::size_t round, std::size_t thread)>& work) {
  constexpr int kSpins = 20'000;
  std::atomic<std::size_t> arrived{0};
  const auto run = [&](std::size_t thread) {
    for (std::size_t round = 0; round < rounds; ++round) {
      ++arrived;
      for (int spins = 0; arrived.load() < (round + 1) * threads;) {
        if (++spins > kSpins) std::this_thread::yield();
      }
      work(round, thread);
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& other : others) other.join();
}

}  // namespace cairn::testing
