// A history from its preparation to the verdict: random calls of a few threads on a tiny index. What each thread
// calls comes from a seed (and from what it was answered); the caller lets the threads run.
#ifndef CAIRN_TESTS_HISTORY_PLAY_H_
#define CAIRN_TESTS_HISTORY_PLAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "history/caller.h"

namespace cairn::testing {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(engine_() % limit); }
  bool one_in(std::size_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

enum class Deed : std::uint8_t {
  // on blocks
  kLookup,
  kInsert,
  kInsertMore,
  kPublish,
  kRelease,
  kAcquire,
  kExtend,
  kTruncate,
  // on snapshots
  kPutPlain,
  kPutTail,
  kPutSibling,
  kInsertWithSnapshot,
  kFindSnapshot,
  kAcquirePinned,
  kFindPinned,
  kUnpin,
  kEvictSnapshot,
  kSpill,
  kPromote,
  kForget,
  kTakeOrphans,
  // others
  kPeek,
  kWatch,  // stats, counters and the like
  kEvict,
  kEvictToStore,
  kForgetKey,
  kClearAdapter,
  kClearAll,
};

// What the threads of a history do, by weight.
struct Mix {
  std::string name;
  std::vector<std::pair<Deed, std::size_t>> weights;
  bool sessions = false;
  bool clears = false;  // then callers use epochs
};
std::span<const Mix> all_mixes();

// One thread's random deeds. Most prompts share their beginnings.
class Actor {
 public:
  Actor(Stage& stage, std::size_t thread, std::uint64_t seed, const Mix& mix);

  void act(std::size_t deeds);
  Caller& caller() { return caller_; }

 private:
  std::string word();
  std::string snapshot_word() { return random_.one_in(3) ? word() + '1' : word(); }
  std::string more() { return random_.one_in(4) ? "" : word().substr(0, 2); }
  AdapterId adapter() { return random_.below(mix_.clears ? 2 : 1); }
  SessionHash session() { return mix_.sessions ? random_.below(3) : 0; }
  TierKey key() { return 1 + random_.below(4); }
  Deed choose();
  void use_blocks(Deed deed);
  void use_snapshots(Deed deed);
  void manage(Deed deed);

  Random random_;
  const Mix& mix_;
  Caller caller_;
};

struct Tally {
  std::size_t histories = 0;
  std::size_t calls = 0;
  std::size_t overlapping = 0;
  std::size_t steps = 0;
};
std::string text_of(const Tally& tally);

class Play {
 public:
  static constexpr std::size_t kThreadsMax = 3;

  // `threads` is 2 or 3. What comes before the threads start is done here.
  Play(std::uint64_t seed, std::size_t threads, const Mix& mix);

  [[nodiscard]] std::size_t threads() const { return actors_.size() - 1; }
  // On any thread, once for each.
  void act(std::size_t thread) { actors_[thread]->act(deeds_); }
  Caller& caller(std::size_t thread) { return actors_[thread]->caller(); }

  // When all have acted: empty, or what is wrong.
  std::string check(Tally& tally);

 private:
  Stage stage_;
  std::size_t deeds_ = 0;
  std::vector<std::unique_ptr<Actor>> actors_;  // the last one acts before the others and after them
};

// The history of these callers, finished and checked: empty, or what is wrong.
std::string check_history(Stage& stage, std::span<Caller* const> callers, Tally& tally);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_HISTORY_PLAY_H_
