// A store that does as a test says: holds gets back, fails them, refuses puts, and starts again with what it had.
#ifndef CAIRN_TESTS_SUPPORT_HELD_STORE_H_
#define CAIRN_TESTS_SUPPORT_HELD_STORE_H_

#include <cairn/spill_store.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::testing {

// Thread-safe. Keeps everything until it is told otherwise.
class HeldStore final : public SpillStore {
 public:
  explicit HeldStore(SpillLayout layout, std::size_t buffer_bytes = std::size_t{1} << 20, TierKey first_key = 1)
      : buffers_(std::make_shared<SpillBuffers>(std::move(layout), buffer_bytes)), first_key_(first_key) {}

  // ---- What the test says ----

  // Gets wait for answer_gets().
  void hold_gets(bool hold) { hold_ = hold; }
  // How the next gets are answered, if not as usual.
  void answer_with(std::optional<GetResult::Status> status) { status_ = status; }
  // How puts are answered.
  void answer_puts_with(PutResult result) { put_result_ = result; }
  // Where gets say that they have found it.
  void found_in(Tier tier) { tier_ = tier; }
  std::size_t held_gets() {
    const std::scoped_lock lock(mutex_);
    return held_.size();
  }
  // The oldest first, so many at most. How many.
  std::size_t answer_gets(std::size_t most = std::numeric_limits<std::size_t>::max()) {
    std::size_t count = 0;
    for (;; ++count) {
      if (count == most) return count;
      std::pair<TierKey, GetDone> next;
      {
        const std::scoped_lock lock(mutex_);
        if (held_.empty()) return count;
        next = std::move(held_.front());
        held_.pop_front();
      }
      answer(next.first, next.second);
    }
  }
  // As if it had evicted the record.
  void lose(TierKey key) {
    const std::scoped_lock lock(mutex_);
    if (records_.erase(key) > 0) lost_.push_back(key);
  }
  [[nodiscard]] std::vector<TierKey> keys() {
    const std::scoped_lock lock(mutex_);
    std::vector<TierKey> keys;
    for (const auto& [key, record] : records_) keys.push_back(key);
    return keys;
  }
  [[nodiscard]] std::optional<RecordLineage> lineage(TierKey key) {
    const std::scoped_lock lock(mutex_);
    const auto found = records_.find(key);
    return found == records_.end() ? std::nullopt : std::optional(found->second.lineage);
  }
  // Those of that kind.
  [[nodiscard]] std::size_t count(RecordKind kind) {
    const std::scoped_lock lock(mutex_);
    return static_cast<std::size_t>(
        std::ranges::count_if(records_, [kind](const auto& entry) { return entry.second.lineage.kind == kind; }));
  }
  // Another run of the same store.
  [[nodiscard]] std::shared_ptr<HeldStore> started_again() {
    auto next =
        std::make_shared<HeldStore>(buffers_->layout(), buffers_->bytes_max(), first_key_ + (TierKey{1} << 40));
    const std::scoped_lock lock(mutex_);
    next->records_ = records_;
    for (const auto& [key, record] : records_) next->recovered_.push_back({key, record.lineage});
    return next;
  }

  // ---- SpillStore ----

  [[nodiscard]] const std::shared_ptr<SpillBuffers>& buffers() const noexcept override { return buffers_; }
  [[nodiscard]] TierKey first_key() const noexcept override { return first_key_; }

  [[nodiscard]] PutResult put(TierKey key, const RecordLineage& lineage, SpillBufferPtr buffer,
                              PutDone done) override {
    if (put_result_ != PutResult::kAccepted) return put_result_;
    {
      const std::scoped_lock lock(mutex_);
      const auto payload = buffer->payload();
      records_[key] = {lineage, {payload.begin(), payload.end()}};
      ++stats_.puts;
    }
    done(true);
    return PutResult::kAccepted;
  }
  void get(TierKey key, GetDone done) override {
    {
      const std::scoped_lock lock(mutex_);
      ++stats_.gets;
      if (hold_) {
        held_.emplace_back(key, std::move(done));
        return;
      }
    }
    answer(key, done);
  }
  void erase(TierKey key) noexcept override {
    const std::scoped_lock lock(mutex_);
    stats_.erased_records += records_.erase(key);
  }
  [[nodiscard]] std::vector<TierKey> records_of(std::string_view adapter) const override {
    const std::scoped_lock lock(mutex_);
    std::vector<TierKey> keys;
    for (const auto& [key, record] : records_) {
      if (record.lineage.adapter == adapter) keys.push_back(key);
    }
    return keys;
  }
  [[nodiscard]] std::optional<Tier> touch(TierKey key) noexcept override {
    const std::scoped_lock lock(mutex_);
    return records_.contains(key) ? std::optional(tier_) : std::nullopt;
  }
  [[nodiscard]] std::vector<TierKey> take_lost() override {
    const std::scoped_lock lock(mutex_);
    return std::exchange(lost_, {});
  }
  [[nodiscard]] bool flush(std::chrono::milliseconds /*timeout*/) override { return true; }
  [[nodiscard]] std::vector<Recovered> take_recovered() override { return std::exchange(recovered_, {}); }
  [[nodiscard]] SpillStats stats() const override {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }
  [[nodiscard]] std::string validate() const override { return {}; }

 private:
  struct Record {
    RecordLineage lineage;
    std::vector<std::byte> payload;
  };

  void answer(TierKey key, const GetDone& done) {
    if (status_) return done({.status = *status_});
    SpillBufferPtr buffer;
    {
      const std::scoped_lock lock(mutex_);
      const auto found = records_.find(key);
      if (found != records_.end()) {
        buffer = buffers_->allocate(found->second.lineage.kind);
        if (buffer) std::ranges::copy(found->second.payload, buffer->payload().begin());
      }
    }
    if (!buffer) return done({.status = GetResult::Status::kMissing});
    done({.status = GetResult::Status::kFound, .tier = tier_, .buffer = std::move(buffer)});
  }

  const std::shared_ptr<SpillBuffers> buffers_;
  const TierKey first_key_;
  bool hold_ = false;
  std::optional<GetResult::Status> status_;
  PutResult put_result_ = PutResult::kAccepted;
  Tier tier_ = Tier::kRam;
  mutable std::mutex mutex_;  // guards the rest
  std::map<TierKey, Record> records_;
  std::deque<std::pair<TierKey, GetDone>> held_;
  std::vector<TierKey> lost_;
  std::vector<Recovered> recovered_;
  SpillStats stats_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_HELD_STORE_H_
