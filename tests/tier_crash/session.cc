#include "tier_crash/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "tier_crash/known_records.h"

namespace cairn::testing {
namespace {

using What = KillLogEntry::What;

constexpr std::chrono::seconds kHangs{60};

// Answers of calls that were made at once, by their number; outlives the caller who gave up.
template <class Answer>
class Answers {
 public:
  explicit Answers(std::size_t calls) : answers_(calls) {}

  void set(std::size_t call, Answer answer) {
    {
      const std::lock_guard lock(mutex_);
      if (answers_[call].has_value())
        abort_hanging("nothing: a call has ended twice, and the first time long ago: it");
      answers_[call] = std::move(answer);
      ++ended_;
    }
    changed_.notify_all();
  }
  void wait(std::size_t begun) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kHangs, [&] { return ended_ >= begun; })) abort_hanging("a put or a get");
  }
  // None: the call was not made, or has not ended.
  std::optional<Answer> operator[](std::size_t call) {
    const std::lock_guard lock(mutex_);
    return answers_[call];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Answer>> answers_;
  std::size_t ended_ = 0;
};

}  // namespace

void Session::note(What what, TierKey key) {
  EXPECT_EQ(survivors_.note({.what = what, .key = key}), "");
}

void Session::put(std::span<const TierKey> keys) {
  const auto answers = std::make_shared<Answers<bool>>(keys.size());
  std::vector<PutResult> results;
  std::size_t accepted = 0;
  for (std::size_t call = 0; call < keys.size(); ++call) {
    const TierKey key = keys[call];
    SpillBufferPtr buffer = known_buffer(*store_->buffers(), key);
    if (!buffer) {
      // All taken, by puts under way: they come back. If not, what was lost on the way to the device keeps them.
      answers->wait(accepted);
      buffer = known_buffer(*store_->buffers(), key);
    }
    if (!buffer) {
      results.push_back(PutResult::kTooLarge);  // never made
      continue;
    }
    note(What::kPut, key);
    results.push_back(store_->put(key, known_lineage(key), std::move(buffer),
                                  [answers, call](bool stored) { answers->set(call, stored); }));
    if (results.back() == PutResult::kAccepted) {
      ++accepted;
    } else {
      EXPECT_NE(results.back(), PutResult::kTooLarge);
      ++not_stored_;
    }
  }
  accepted_ += accepted;
  answers->wait(accepted);
  for (std::size_t call = 0; call < keys.size(); ++call) {
    const std::optional<bool> stored = (*answers)[call];
    EXPECT_EQ(stored.has_value(), results[call] == PutResult::kAccepted) << "done, and not accepted";
    if (!stored) {
      note(What::kRefused, keys[call]);
      continue;
    }
    note(*stored ? What::kAcknowledged : What::kDropped, keys[call]);
    if (!*stored) ++not_stored_;
  }
}

void Session::get(std::span<const TierKey> keys) {
  const auto answers = std::make_shared<Answers<GetResult>>(keys.size());
  for (std::size_t call = 0; call < keys.size(); ++call) {
    store_->get(keys[call], [answers, call](GetResult result) { answers->set(call, std::move(result)); });
  }
  answers->wait(keys.size());
  gets_ += keys.size();
  for (std::size_t call = 0; call < keys.size(); ++call) {
    const GetResult result = *(*answers)[call];
    EXPECT_EQ(check_known_result(keys[call], result), "");
    switch (result.status) {
      case GetResult::Status::kFound:
        EXPECT_FALSE(survivors_.is_erased(keys[call])) << "erased, and found: key " << keys[call];
        ++found_;
        break;
      case GetResult::Status::kMissing:
        ++missing_;
        break;
      case GetResult::Status::kFailed:
      case GetResult::Status::kQueueFull:
        ++failed_;
        break;
    }
  }
}

void Session::erase(TierKey key) {
  note(What::kErase, key);
  store_->erase(key);
}

bool Session::flush(std::chrono::milliseconds timeout) {
  if (!store_->flush(timeout)) return false;
  note(What::kFlushed);
  return true;
}

void Session::note_lost() {
  for (const TierKey key : store_->take_lost()) note(What::kLost, key);
  note(What::kLostTold, 0);
}

void Session::run_small_workload(std::chrono::milliseconds flush_timeout) {
  constexpr std::size_t kKeys = 20;
  constexpr std::size_t kAtOnce = 4;
  std::vector<TierKey> keys;
  for (std::size_t key = 0; key < kKeys; ++key) keys.push_back(first_key_ + key);
  const std::span all(keys);
  const auto put_some = [&](std::size_t begin, std::size_t end) {
    for (std::size_t key = begin; key < end; key += kAtOnce) put(all.subspan(key, kAtOnce));
  };
  put_some(0, 8);
  get(all.first(8));
  put_some(0, kAtOnce);  // replaced
  (void)flush(flush_timeout);
  erase(keys[4]);
  erase(keys[1]);
  get(all.first(8));
  put_some(8, kKeys);
  note_lost();
  put(all.subspan(4, 1));  // it may come back
  (void)flush(flush_timeout);
  get(all);
  erase(keys[kKeys - 1]);
  (void)flush(flush_timeout);
  note_lost();
}

void Session::run_random_workload(std::mt19937_64& random, std::size_t operations,
                                  std::chrono::milliseconds flush_timeout) {
  TierKey end_key = std::max(first_key_, survivors_.last_key() + 1);
  std::vector<TierKey> keys;
  const auto any_key = [&] {
    constexpr std::size_t kRecent = 24;
    return end_key - 1 - random() % std::min<std::uint64_t>(kRecent, end_key - first_key_);
  };
  for (std::size_t operation = 0; operation < operations; ++operation) {
    keys.clear();
    const std::uint64_t dice = random() % 16;
    if (dice < 8 || end_key == first_key_) {
      for (std::uint64_t count = 1 + random() % 4; count > 0; --count) keys.push_back(end_key++);
      put(keys);
    } else if (dice < 10) {
      keys.push_back(any_key());
      put(keys);
    } else if (dice < 12) {
      for (std::uint64_t count = 1 + random() % 4; count > 0; --count) keys.push_back(any_key());
      get(keys);
    } else if (dice < 14) {
      erase(any_key());
    } else if (dice < 15) {
      (void)flush(flush_timeout);
    } else {
      note_lost();
    }
  }
}

void Session::check_stats() const {
  const SpillStats stats = store_->stats();
  EXPECT_EQ(stats.pending, 0U);
  EXPECT_EQ(stats.puts, accepted_);
  EXPECT_GE(stats.puts_dropped, not_stored_);  // more if RAM has a store behind it that drops
  EXPECT_EQ(stats.gets, gets_);
  EXPECT_EQ(stats.found_in_ram + stats.found_in_file, found_);
  EXPECT_EQ(stats.misses, missing_);
  EXPECT_EQ(stats.failed_gets, failed_);
}

Recovery check_recovered(SpillStore& store, Survivors& survivors) {
  EXPECT_GT(store.first_key(), survivors.last_key());
  std::map<TierKey, bool> found;
  for (const SpillStore::Recovered& recovered : store.take_recovered()) {
    EXPECT_TRUE(found.emplace(recovered.key, false).second) << "key " << recovered.key << " is recovered twice";
    EXPECT_NE(survivors.fate(recovered.key), Survivors::Fate::kNeverPut) << "key " << recovered.key;
    EXPECT_NE(survivors.fate(recovered.key), Survivors::Fate::kMustBeGone) << "key " << recovered.key;
    EXPECT_EQ(recovered.lineage, known_lineage(recovered.key)) << "key " << recovered.key;
  }
  const std::uint64_t damaged_before = store.stats().damaged_records;
  std::uint64_t torn = 0;
  for (auto& [key, there] : found) {
    const GetResult result = get_now(store, key);
    EXPECT_EQ(check_known_result(key, result), "");
    there = result.status == GetResult::Status::kFound;
    if (there) continue;
    EXPECT_EQ(result.status, GetResult::Status::kMissing) << "key " << key;
    ++torn;
  }
  EXPECT_EQ(store.stats().damaged_records - damaged_before, torn);
  for (const TierKey key : survivors.must_be_gone()) {
    EXPECT_EQ(get_now(store, key).status, GetResult::Status::kMissing) << "erased and flushed: key " << key;
  }
  Recovery recovery{.compared = found.size(), .missing = {}};
  for (const TierKey key : survivors.must_be_there()) {
    const auto entry = found.find(key);
    if (entry == found.end() || !entry->second) recovery.missing.push_back(key);
  }
  EXPECT_EQ(store.validate(), "");
  survivors.restart(found);
  return recovery;
}

}  // namespace cairn::testing
