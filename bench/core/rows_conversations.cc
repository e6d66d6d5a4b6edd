// Row 11: traffic as a server has it.
#include <algorithm>
#include <utility>

#include "bench/core/cached.h"
#include "bench/core/rows.h"

namespace cairn::bench {
namespace {

constexpr std::size_t kConversation = 8'192;
constexpr std::size_t kShared = 2'048;
constexpr std::size_t kBlocksPerEvict = 64;

struct Sizes {
  std::size_t live;        // conversations that are looked up
  std::size_t cached;      // conversations that the cache has room for
  std::size_t all;         // live ones, and those that are over or yet to come
  std::size_t operations;  // in a batch
};

// Of 100 operations, 95 look up a random live conversation, and 5 replace a live conversation by a new one: lookup,
// insert of what is missing, release, and evictions down to the capacity. Conversations that are over come back as
// new ones when the cache has forgotten them.
class Conversations {
 public:
  Conversations(const Sizes& sizes, bool by_handle)
      : sizes_(sizes), by_handle_(by_handle), prompts_(sizes.all, kConversation, kShared, 110) {
    copy_ = TokenMemory(kShared + sizes.all * kPrivate);
    std::ranges::copy(prompts_[0].first(kShared), copy_.tokens().begin());
    for (std::size_t i = 0; i < sizes.all; ++i) {
      std::ranges::copy(prompts_[i].subspan(kShared), private_copy(i).begin());
      (i < sizes.live ? live_ : waiting_).push_back(i);
    }
    capacity_ = kShared / kBlockSize + sizes.cached * kPrivate / kBlockSize;
    for (const std::size_t i : live_) insert(i);
  }

  // Nanoseconds for one operation.
  double run() {
    before_last_ = std::exchange(last_, {});
    last_.reserve(sizes_.operations);
    return cpu_ns_per_call(sizes_.operations, [&](std::size_t) {
      if (random_.below(100) < 5) {
        replace_one();
      } else {
        const std::size_t i = live_[random_.below(live_.size())];
        last_.push_back({i, by_handle_ ? look_up_by_handle(i) : look_up(i)});
      }
    });
  }

  // memcmp of the bytes that the batch before the last compared or inserted, in the same order. Not those of the
  // last: they would still be in the caches.
  double compare() const {
    const std::vector<Done>& done = before_last_.empty() ? last_ : before_last_;
    return cpu_ns_per_call(done.size(), [&](std::size_t k) {
      const auto [i, tokens] = done[k];
      const std::span<const TokenId> prompt = prompts_[i].first(tokens);
      const std::size_t shared = std::min(kShared, tokens);
      const bool start = same_bytes(prompt.first(shared), copy_.tokens().first(shared));
      const bool rest = same_bytes(prompt.subspan(shared), private_copy(i).first(tokens - shared));
      expect(start && rest, "the copies differ");
    });
  }

  // Every block id of every live conversation.
  void verify() {
    for (const std::size_t i : live_) {
      const PrefixMatch match = tree_.lookup(prompts_[i], kBlockSize, 0, 0);
      tree_.release_matched(prompts_[i], kBlockSize, match.matched_tokens, 0);
      const std::vector<BlockId>& all = prompts_.blocks(i);
      expect(std::equal(match.matched_blocks.begin(), match.matched_blocks.end(), all.begin()),
             "lookup: matched blocks");
    }
    expect(tree_.stats().cached_blocks == cached_, "stats: cached blocks");
    expect(tree_.counters().protocol_errors == 0, "counters: protocol errors");
  }

  [[nodiscard]] double hit_share() const {
    const RadixTreeCounters counters = tree_.counters();
    return static_cast<double>(counters.hit_tokens) /
           static_cast<double>(counters.hit_tokens + counters.missed_tokens);
  }

 private:
  static constexpr std::size_t kPrivate = kConversation - kShared;

  struct Done {
    std::size_t conversation;
    std::size_t tokens;
  };

  [[nodiscard]] std::span<TokenId> private_copy(std::size_t i) const {
    return copy_.tokens().subspan(kShared + i * kPrivate, kPrivate);
  }

  std::size_t look_up(std::size_t i) {
    const PrefixMatch match = tree_.lookup(prompts_[i], kBlockSize, 0, 0);
    check(match, i);
    tree_.release_matched(prompts_[i], kBlockSize, match.matched_tokens, 0);
    return match.matched_tokens;
  }

  std::size_t look_up_by_handle(std::size_t i) {
    RadixTree::Acquired acquired = tree_.acquire(prompts_[i], 0, 0);
    check(acquired.match, i);
    tree_.release(acquired.handle);
    return acquired.match.matched_tokens;
  }

  // Any length may match, since the cache may have evicted an end. verify() looks at all ids.
  void check(const PrefixMatch& match, std::size_t i) const {
    expect(match.matched_tokens >= kShared, "lookup: matched less than what all share");
    expect(match.matched_blocks.back() == prompts_.blocks(i)[match.matched_blocks.size() - 1],
           "lookup: the last matched block");
  }

  void insert(std::size_t i) {
    if (by_handle_) {
      RadixTree::Acquired acquired = tree_.acquire(prompts_[i], 0, 0);
      const std::size_t matched = acquired.match.matched_tokens;
      const auto inserted = tree_.extend(acquired.handle, prompts_[i].subspan(matched),
                                         std::span(prompts_.blocks(i)).subspan(matched / kBlockSize), {});
      tree_.release(acquired.handle);
      inserted_blocks(matched, inserted.blocks.size());
    } else {
      const PrefixMatch match = tree_.lookup(prompts_[i], kBlockSize, 0, 0);
      const InsertAcquired inserted =
          tree_.insert(prompts_[i], prompts_.blocks(i), {}, kBlockSize, match.matched_tokens, 0);
      tree_.release(prompts_[i], kBlockSize, 0);
      inserted_blocks(match.matched_tokens, inserted.blocks.size());
    }
    last_.push_back({i, kConversation});
  }

  void inserted_blocks(std::size_t matched, std::size_t blocks) {
    expect(blocks == (kConversation - matched) / kBlockSize, "insert: the number of blocks acquired");
    cached_ += blocks;
    while (cached_ > capacity_) {
      const std::size_t evicted = tree_.evict(std::min(kBlocksPerEvict, cached_ - capacity_)).size();
      expect(evicted > 0, "evict: nothing left to evict");
      cached_ -= evicted;
    }
  }

  void replace_one() {
    const std::size_t place = random_.below(live_.size());
    std::swap(live_[place], waiting_[next_waiting_]);
    next_waiting_ = (next_waiting_ + 1) % waiting_.size();
    insert(live_[place]);
  }

  const Sizes sizes_;
  const bool by_handle_;
  Prompts prompts_;
  TokenMemory copy_{0};
  RadixTree tree_;
  std::size_t capacity_ = 0;
  std::size_t cached_ = 0;
  Random random_{111};
  std::vector<std::size_t> live_;
  std::vector<std::size_t> waiting_;  // in a ring, those over for longest first
  std::size_t next_waiting_ = 0;
  std::vector<Done> last_;
  std::vector<Done> before_last_;
};

}  // namespace

Measured conversations(const Settings& settings, const MemcmpYardstick& /*memcmp_128k*/) {
  const Sizes sizes = settings.smoke() ? Sizes{.live = 10, .cached = 13, .all = 40, .operations = 100}
                                       : Sizes{.live = 1'000, .cached = 1'250, .all = 2'500, .operations = 1'000};
  Measured lines;
  for (const bool by_handle : {false, true}) {
    Conversations traffic(sizes, by_handle);
    // Until the cache is full and has forgotten what it started with.
    for (std::size_t i = 0; i < settings.sized(10, 3); ++i) traffic.run();
    const auto repetitions = alternate(settings, [&] { return traffic.run(); }, [&] { return traffic.compare(); });
    traffic.verify();
    lines.push_back(
        Measurement{.name = by_handle ? "11b" : "11a",
                    .what = by_handle ? "the same by handle" : "1,000 conversations of 8k over 2k, an operation",
                    .yardstick_name = "same bytes",
                    .ratio_unit = "x",
                    .target = 1.5,
                    .details = {{"hit_share", traffic.hit_share()}}}
            .of(repetitions));
  }
  return lines;
}

}  // namespace cairn::bench
