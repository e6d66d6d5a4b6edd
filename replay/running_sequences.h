// Which sequences run at once in a replay, and when each of them ends.
#ifndef CAIRN_REPLAY_RUNNING_SEQUENCES_H_
#define CAIRN_REPLAY_RUNNING_SEQUENCES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "replay/workload.h"

namespace cairn::replay {

struct Overlap {
  // Throws std::invalid_argument: concurrency zero; service_rate not above zero, or no time stamps in the workload.
  Overlap(const Workload& workload, std::size_t running_max, std::optional<double> tokens_per_s);

  std::size_t concurrency;
  std::optional<double> service_rate;
};

// Running sequences in the order in which they end, as ReplayOptions says. `Sequence` is whatever the replay keeps of
// one.
template <typename Sequence>
class RunningSequences {
 public:
  // The workload must outlive this. Throws as Overlap.
  RunningSequences(const Workload& workload, std::size_t concurrency, std::optional<double> service_rate)
      : workload_(workload), overlap_(workload, concurrency, service_rate) {}

  [[nodiscard]] bool empty() const { return running_.empty(); }
  [[nodiscard]] std::size_t peak() const { return peak_; }

  // Has `finish` end what has to end before the request at `index` may be admitted.
  template <typename Finish>
  void make_room_for(std::size_t index, Finish&& finish) {
    if (!overlap_.service_rate) {
      while (running_.size() >= overlap_.concurrency) finish(take_first());
      return;
    }
    // The one before may have waited beyond this one's arrival.
    clock_ms_ = std::max(clock_ms_, workload_[index].timestamp_ms);
    while (!running_.empty() && running_.begin()->first.first <= clock_ms_) finish(take_first());
  }

  // The request at `index` is admitted now.
  void add(std::size_t index, Sequence sequence) {
    const double end_ms =
        overlap_.service_rate ? clock_ms_ + workload_[index].output_length / *overlap_.service_rate * 1e3 : 0.0;
    running_.emplace(Order{end_ms, admitted_++}, std::move(sequence));
    peak_ = std::max(peak_, running_.size());
  }

  // The next to end. There must be one.
  [[nodiscard]] Sequence take_first() {
    auto first = running_.extract(running_.begin());
    if (overlap_.service_rate) clock_ms_ = std::max(clock_ms_, first.key().first);
    return std::move(first.mapped());
  }

 private:
  // End in virtual time (0 without a service rate), then order of admission.
  using Order = std::pair<double, std::uint64_t>;

  const Workload& workload_;
  const Overlap overlap_;
  std::map<Order, Sequence> running_;
  double clock_ms_ = 0;
  std::uint64_t admitted_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_RUNNING_SEQUENCES_H_
