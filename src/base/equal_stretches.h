// Finds where tokens stand that were seen before at another place.
#ifndef CAIRN_BASE_EQUAL_STRETCHES_H_
#define CAIRN_BASE_EQUAL_STRETCHES_H_

#include <cairn/prefix_cache.h>

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cairn {

// Remembers, of each 16 tokens in a row whose hash says so (one in 16, or all), where they last stood. With one in 16
// a stretch of n equal tokens is met with a probability of 1 - (15/16)^(n - 15). Equal hashes need not mean equal
// tokens: the caller compares.
class SeenWindows {
 public:
  static constexpr std::size_t kWindowTokens = 16;
  static constexpr std::size_t kWindowsMax = std::size_t{1} << 23;  // none is added beyond

  enum class Sample { kOneIn16, kAll };
  explicit SeenWindows(Sample sample = Sample::kOneIn16) : sample_mask_(sample == Sample::kAll ? 0 : 15) {}

  struct Place {
    std::uint32_t sequence = 0;
    std::uint32_t position = 0;
  };
  struct Match {
    Place seen;
    std::uint32_t position = 0;  // where the same stands now
  };

  struct Sequence {
    std::uint32_t sequence = 0;
    AdapterId adapter = 0;
  };

  // Windows that begin at `from` or later; adapters share none. O(tokens.size() - from).
  void add(const Sequence& sequence, std::span<const TokenId> tokens, std::size_t from);
  [[nodiscard]] std::vector<Match> find(AdapterId adapter, std::span<const TokenId> tokens, std::size_t from) const;

 private:
  std::uint64_t sample_mask_;
  boost::unordered_flat_map<std::uint64_t, Place> places_;  // by hash
};

// How a sequence differs from an older one, and where it is equal again.
struct SequenceDifference {
  std::uint32_t common = 0;  // tokens that are equal from the start
  std::uint32_t old_at = 0;  // where the first equal stretch begins, in the old sequence and in the new one
  std::uint32_t new_at = 0;
  std::uint32_t runs = 0;  // equal stretches, each after a run that differs; 0: none
  std::vector<std::pair<std::uint32_t, std::uint32_t>> stretches;  // of the new one: begin and end
};

// `matches` are of these two, by growing position in `now`. Stretches keep their order in both, and begin at `from` in
// `now` or later. Greedy: the first match that is a stretch counts. O(now.size()) and the matches.
[[nodiscard]] SequenceDifference compare_sequences(std::span<const TokenId> old, std::span<const TokenId> now,
                                                   std::span<const SeenWindows::Match> matches, std::size_t from);

}  // namespace cairn

#endif  // CAIRN_BASE_EQUAL_STRETCHES_H_
