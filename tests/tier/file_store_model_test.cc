// Random puts, gets, erases, touches, flushes and restarts on a small file store, and on a map. What is found is what
// was put; what is not found was reported lost or was erased; the limit holds on disk after every step.
#include <cairn/spill_store.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/environment.h"
#include "tier/records.h"
#include "tier/store_fixture.h"

namespace cairn::testing {
namespace {

using Status = GetResult::Status;

class RandomUse : public FileStoreFixture, public ::testing::WithParamInterface<FileStoreOptions::Io> {
 protected:
  struct Known {
    RecordKind kind = RecordKind::kBlock;
    std::uint64_t version = 0;
  };
  struct Pending {
    TierKey key = 0;
    std::future<bool> end;
  };

  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }
  TierKey some_key() {
    return known_.empty() || below(4) == 0 ? next_key_ - below(std::min<TierKey>(next_key_, 40)) : pick();
  }
  TierKey pick() {
    auto at = known_.begin();
    std::advance(at, below(known_.size()));
    return at->first;
  }

  void put() {
    const bool is_new = known_.empty() || below(4) > 0;
    const TierKey key = is_new ? next_key_++ : pick();
    const auto kind = is_new ? static_cast<RecordKind>(1 + below(2)) : known_[key].kind;
    const std::uint64_t version = ++versions_;
    SpillBufferPtr buffer = filled_buffer(*buffers_, kind, key, version);
    if (buffer == nullptr) return;  // too much is under way
    const auto end = std::make_shared<std::promise<bool>>();
    const PutResult result =
        store_->put(key, lineage_of(kind), std::move(buffer), [end](bool stored) { end->set_value(stored); });
    if (result != PutResult::kAccepted) {
      ASSERT_EQ(result, PutResult::kQueueFull);
      return;
    }
    gone_.erase(key);
    known_[key] = {.kind = kind, .version = version};
    pending_.push_back({.key = key, .end = end->get_future()});
    if (below(3) == 0) settle();
  }

  void settle() {
    for (Pending& pending : pending_) static_cast<void>(pending.end.get());
    pending_.clear();
  }

  void forget_lost() {
    for (const TierKey key : store_->take_lost()) {
      ASSERT_TRUE(known_.contains(key)) << key << " was lost, but was not there";
      known_.erase(key);
      gone_.insert(key);
    }
  }

  void get(TierKey key) {
    const GetResult result = get_and_wait(*store_, key);
    if (result.status == Status::kFound) {
      ASSERT_TRUE(known_.contains(key)) << key;
      ASSERT_TRUE(has_payload(result.buffer->payload(), key, known_[key].version)) << key;
      ++found_;
      return;
    }
    ASSERT_EQ(result.status, Status::kMissing) << key;
    ASSERT_NO_FATAL_FAILURE(forget_lost());
    ASSERT_FALSE(known_.contains(key)) << key << " is missing, and nobody said so";
  }

  void restart() {
    settle();
    ASSERT_NO_FATAL_FAILURE(forget_lost());
    store_.reset();
    reopen();
    std::set<TierKey> recovered;
    for (const SpillStore::Recovered& record : store_->take_recovered()) {
      ASSERT_TRUE(recovered.insert(record.key).second);
      ASSERT_EQ(record.lineage, lineage_of(record.lineage.kind));
    }
    for (const auto& [key, known] : known_) ASSERT_TRUE(recovered.contains(key)) << key << " has not survived";
    ASSERT_EQ(recovered.size(), known_.size());
    next_key_ = store_->first_key();
  }

  void step() {
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
        return put();
      case 7:
      case 8: {
        const TierKey key = some_key();
        store_->erase(key);
        known_.erase(key);
        return;
      }
      case 9: {
        const TierKey key = some_key();
        if (!store_->touch(key)) {
          ASSERT_NO_FATAL_FAILURE(forget_lost());
          ASSERT_FALSE(known_.contains(key));
        }
        return;
      }
      case 10:
        EXPECT_TRUE(store_->flush(kLong));
        return;
      case 11:
        return below(8) == 0 ? restart() : forget_lost();
      default:
        return get(some_key());
    }
  }

  std::mt19937_64 random_;
  std::map<TierKey, Known> known_;
  std::set<TierKey> gone_;
  std::vector<Pending> pending_;
  TierKey next_key_ = 0;
  std::uint64_t versions_ = 0;
  std::size_t found_ = 0;
};

TEST_P(RandomUse, FindsWhatWasPutOrSaysThatItIsLost) {
  const std::uint64_t first_seed = environment_number("CAIRN_STORE_MODEL_SEED", 1);
  const std::uint64_t seeds = environment_number("CAIRN_STORE_MODEL_SEEDS", 4);
  const std::uint64_t steps = environment_number("CAIRN_STORE_MODEL_STEPS", 1500);
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    SCOPED_TRACE("CAIRN_STORE_MODEL_SEED=" + std::to_string(seed) + " CAIRN_STORE_MODEL_SEEDS=1");
    random_.seed(seed);
    options_.io = GetParam();
    options_.directory = directory_.path() + "/" + std::to_string(seed);
    options_.bytes_max = 320'000 + below(200'000);
    options_.queue_depth = 1 + below(16);
    known_.clear();
    ASSERT_NO_FATAL_FAILURE(open());
    next_key_ = store_->first_key();
    for (std::uint64_t i = 0; i < steps; ++i) {
      ASSERT_NO_FATAL_FAILURE(step()) << "step " << i;
      ASSERT_LE(disk_bytes(), options_.bytes_max) << "step " << i;
      ASSERT_EQ(store_->validate(), "") << "step " << i;
    }
    settle();
    EXPECT_GT(store_->stats().puts, 0U);
  }
  EXPECT_GT(found_, 100U);
}

INSTANTIATE_TEST_SUITE_P(Io, RandomUse, ::testing::Values(FileStoreOptions::Io::kThreads, FileStoreOptions::Io::kBest),
                         [](const auto& param) {
                           return param.param == FileStoreOptions::Io::kThreads ? "Threads" : "Best";
                         });

}  // namespace
}  // namespace cairn::testing
