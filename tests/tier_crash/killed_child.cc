// The program that the kill test kills: puts, gets and erases records of one directory for ever, and tells what was
// acknowledged on standard output.
//
//     tier_killed_child DIRECTORY SEED BYTES_MAX RAM_BYTES_MAX LIVE_MAX uring|threads
#include <cairn/spill_store.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tier_crash/kill_log.h"
#include "tier_crash/known_records.h"

namespace cairn::testing {
namespace {

using What = KillLogEntry::What;

constexpr std::size_t kUnderWayMax = 16;
constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::chrono::seconds kFlushTimeout{30};

void tell(What what, TierKey key = 0) {
  const KillLogEntry entry{.what = what, .key = key};
  if (::write(STDOUT_FILENO, &entry, sizeof(entry)) != static_cast<ssize_t>(sizeof(entry))) std::_Exit(3);
}

class Load {
 public:
  Load(std::shared_ptr<SpillStore> store, std::uint64_t seed, std::size_t live_max)
      : store_(std::move(store)), random_(seed), next_key_(store_->first_key()), live_max_(live_max) {
    for (const SpillStore::Recovered& recovered : store_->take_recovered()) live_.push_back(recovered.key);
  }

  void run_for_ever() {
    for (std::uint64_t operation = 0;; ++operation) {
      step();
      while (live_.size() > live_max_) erase();
      if (operation % 4 == 0) tell_lost();
    }
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  std::size_t any_live() { return below(live_.size()); }

  void step() {
    const std::size_t dice = below(100);
    if (dice < 60 || live_.empty()) {
      put(next_key_++, /*is_new=*/true);
    } else if (dice < 72) {
      put(live_[any_live()], /*is_new=*/false);
    } else if (dice < 84) {
      get(live_[any_live()]);
    } else if (dice < 94) {
      erase();
    } else if (dice < 96) {
      if (store_->flush(kFlushTimeout)) tell(What::kFlushed);
    } else {
      (void)store_->touch(live_[any_live()]);
    }
  }

  void wait_below(std::size_t under_way) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return under_way_ < under_way; });
  }

  void ended(TierKey put_key) {
    {
      const std::lock_guard lock(mutex_);
      --under_way_;
      puts_.erase(put_key);
    }
    changed_.notify_one();
  }

  void put(TierKey key, bool is_new) {
    wait_below(kUnderWayMax);
    SpillBufferPtr buffer = known_buffer(*store_->buffers(), key);
    while (!buffer) {
      wait_below(1);  // a buffer is free when the last put is over, or the limits are wrong
      buffer = known_buffer(*store_->buffers(), key);
      if (!buffer) std::_Exit(4);
    }
    {
      const std::lock_guard lock(mutex_);
      if (!puts_.insert(key).second) return;
      ++under_way_;
    }
    tell(What::kPut, key);
    const PutResult result = store_->put(key, known_lineage(key), std::move(buffer), [this, key](bool stored) {
      tell(stored ? What::kAcknowledged : What::kDropped, key);
      ended(key);
    });
    if (result == PutResult::kAccepted) {
      if (is_new) live_.push_back(key);
      return;
    }
    tell(result == PutResult::kQueueFull ? What::kRefused : What::kUnexpected,
         result == PutResult::kQueueFull ? key : static_cast<TierKey>(result));
    ended(key);
  }

  void get(TierKey key) {
    wait_below(kUnderWayMax);
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
    }
    store_->get(key, [this, key](const GetResult& result) {
      if (!check_known_result(key, result).empty()) tell(What::kWrong, key);
      ended(0);
    });
  }

  void erase() {
    const std::size_t index = any_live();
    const TierKey key = std::exchange(live_[index], live_.back());
    live_.pop_back();
    tell(What::kErase, key);
    store_->erase(key);
  }

  void tell_lost() {
    std::size_t puts = 0;
    {
      const std::lock_guard lock(mutex_);
      puts = puts_.size();
    }
    const std::vector<TierKey> lost = store_->take_lost();
    const std::set<TierKey> lost_set(lost.begin(), lost.end());
    for (const TierKey key : lost) tell(What::kLost, key);
    tell(What::kLostTold, puts);
    std::erase_if(live_, [&](TierKey key) { return lost_set.contains(key); });
  }

  std::shared_ptr<SpillStore> store_;
  std::mt19937_64 random_;
  TierKey next_key_;
  std::size_t live_max_;
  std::vector<TierKey> live_;  // put or found here, not erased and not known to be lost

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::size_t under_way_ = 0;  // puts and gets
  std::set<TierKey> puts_;     // under way
};

int run(char** arguments) {
  const std::uint64_t ram_bytes_max = std::stoull(arguments[4]);
  const auto buffers = std::make_shared<SpillBuffers>(known_layout(), kBufferBytes + ram_bytes_max);
  tell(What::kOpening);
  OpenedStore opened = open_file_store(
      {.buffers = buffers,
       .directory = arguments[1],
       .bytes_max = std::stoull(arguments[3]),
       .io = arguments[6] == std::string("uring") ? FileStoreOptions::Io::kBest : FileStoreOptions::Io::kThreads});
  if (!opened.store) {
    std::fprintf(stderr, "tier_killed_child: %s\n", opened.error.message.c_str());
    return 1;
  }
  std::shared_ptr<SpillStore> store = std::move(opened.store);
  if (ram_bytes_max > 0) {
    store = make_tiered_store(make_ram_store({.buffers = buffers, .bytes_max = ram_bytes_max}), std::move(store));
  }
  tell(What::kOpened, store->first_key());
  Load(std::move(store), std::stoull(arguments[2]), std::stoull(arguments[5])).run_for_ever();
  return 0;
}

}  // namespace
}  // namespace cairn::testing

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: tier_killed_child DIRECTORY SEED BYTES_MAX RAM_BYTES_MAX LIVE_MAX uring|threads\n");
    return 2;
  }
  return cairn::testing::run(argv);
}
