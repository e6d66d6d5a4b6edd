// Threads that run one at a time, on one real thread, in an order that a chooser decides at each access of shared
// memory.
#ifndef CAIRN_TESTS_INTERLEAVING_VIRTUAL_THREADS_H_
#define CAIRN_TESTS_INTERLEAVING_VIRTUAL_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace cairn::testing {

class Chooser {
 public:
  Chooser() = default;
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;
  virtual ~Chooser() = default;

  // Index of the thread that goes on, of those that can. If `preempts`, the first is the one that just ran, and any
  // other preempts it; else that one waits or is done, and switching is free.
  virtual std::size_t choose(std::span<const std::size_t> threads, bool preempts) = 0;
};

struct Outcome {
  bool stuck = false;        // every thread waited for the others
  std::size_t accesses = 0;  // of shared memory, by all threads
  std::string schedule;      // "0:12 1:30 0:7": which thread went on for how many accesses
};

// Runs them as virtual threads until all are done. A body must not throw. If it got stuck, what the bodies own is
// left as it is.
Outcome run_virtual_threads(std::span<const std::function<void()>> bodies, Chooser& chooser);

// Every schedule with at most `preemptions_max` preemptions, one after the other.
class BoundedSearch final : public Chooser {
 public:
  explicit BoundedSearch(std::size_t preemptions_max) : preemptions_max_(preemptions_max) {}

  std::size_t choose(std::span<const std::size_t> threads, bool preempts) override;
  // After a run: false if that was the last schedule.
  bool next();

 private:
  struct Choice {
    std::size_t taken = 0;
    std::size_t options = 0;
  };
  std::size_t preemptions_max_;
  std::vector<Choice> path_;  // choices of this run, those after position_ being what was taken last time
  std::size_t position_ = 0;
  std::size_t preemptions_ = 0;
};

// Preempts at one in so many accesses, at random.
class RandomChooser final : public Chooser {
 public:
  RandomChooser(std::uint64_t seed, std::size_t one_in) : engine_(seed), one_in_(one_in) {}
  std::size_t choose(std::span<const std::size_t> threads, bool preempts) override;

 private:
  std::mt19937_64 engine_;
  std::size_t one_in_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_INTERLEAVING_VIRTUAL_THREADS_H_
