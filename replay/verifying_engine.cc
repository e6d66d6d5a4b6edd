#include "replay/verifying_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "replay/errors.h"

namespace cairn::replay {
namespace {

constexpr std::byte kGarbage{0xA5};

// Counts copies that are under way. Destroyed only when all have come back, since they refer to memory of the caller.
class PendingCopies {
 public:
  PendingCopies() = default;
  PendingCopies(const PendingCopies&) = delete;
  PendingCopies& operator=(const PendingCopies&) = delete;
  ~PendingCopies() { wait_for_all(); }

  // `copy` is called with what it has to pass on as CopyDone.
  template <typename Copy>
  void start(Copy&& copy) {
    {
      const std::lock_guard lock(mutex_);
      ++pending_;
    }
    try {
      copy(CopyDone([this](std::error_code error) { finish(error); }));
    } catch (...) {  // it has not begun
      finish({});
      throw;
    }
  }

  void wait(const char* what) {
    wait_for_all();
    if (error_) throw ReplayError(fmt::format("{} failed: {}", what, error_.message()));
  }

 private:
  void finish(std::error_code error) {
    const std::lock_guard lock(mutex_);
    if (error) error_ = error;
    if (--pending_ == 0) all_done_.notify_all();
  }
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [this] { return pending_ == 0; });
  }

  std::mutex mutex_;
  std::condition_variable all_done_;
  std::size_t pending_ = 0;  // this and the next: guarded by mutex_ while copies are under way
  std::error_code error_;
};

void add(std::atomic<std::uint64_t>& count, std::uint64_t amount) {
  count.fetch_add(amount, std::memory_order_relaxed);
}

// Up to eight bytes as a number, for messages.
std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, std::min(sizeof(word), bytes.size() - at));
  return word;
}

// The start of the first eight bytes that differ; the size if none do.
std::size_t first_difference(std::span<const std::byte> expected, std::span<const std::byte> found) {
  if (std::memcmp(expected.data(), found.data(), expected.size()) == 0) return expected.size();
  const auto at = std::mismatch(expected.begin(), expected.end(), found.begin()).first - expected.begin();
  return static_cast<std::size_t>(at) / sizeof(std::uint64_t) * sizeof(std::uint64_t);
}

}  // namespace

// ---- VerifyingEngine ----

VerifyingEngine::VerifyingEngine(VerifyingEngineOptions options) : options_(std::move(options)) {
  if (options_.block_size == 0) throw std::invalid_argument("block_size 0: must be at least 1");
  if (!options_.blocks && !options_.snapshots) {
    throw std::invalid_argument("blocks and snapshots: a model has attention layers, recurrent ones, or both");
  }
  if (options_.blocks && options_.blocks->block_bytes() != options_.block_size * kKvBytesPerToken) {
    throw std::invalid_argument(fmt::format("blocks: of {} bytes each, but {} tokens of {} bytes take {}",
                                            options_.blocks->block_bytes(), options_.block_size, kKvBytesPerToken,
                                            options_.block_size * kKvBytesPerToken));
  }
}

VerifyingEngineCounts VerifyingEngine::counts() const {
  return {.blocks_checked = counts_.blocks_checked.load(std::memory_order_relaxed),
          .block_bytes_checked = counts_.block_bytes_checked.load(std::memory_order_relaxed),
          .states_checked = counts_.states_checked.load(std::memory_order_relaxed),
          .state_bytes_checked = counts_.state_bytes_checked.load(std::memory_order_relaxed),
          .block_bytes_written = counts_.block_bytes_written.load(std::memory_order_relaxed),
          .states_written = counts_.states_written.load(std::memory_order_relaxed),
          .steps = next_step_.load(std::memory_order_relaxed)};
}

void VerifyingEngine::write(const BlockPart& part, std::span<const std::byte> kv) {
  std::byte* const to = blocks()->data(part.block) + part.offset_tokens * kKvBytesPerToken;
  PendingCopies copies;
  copies.start([&](CopyDone done) { blocks()->device().copy_in(to, kv, std::move(done)); });
  copies.wait("a copy into a block");
  add(counts_.block_bytes_written, kv.size());
}

void VerifyingEngine::write_state(SnapshotId slot, std::span<const std::byte> all_shards) {
  const std::size_t shard_bytes = snapshots()->slot_bytes() / snapshots()->shards();
  PendingCopies copies;
  for (std::size_t shard = 0; shard < snapshots()->shards(); ++shard) {
    copies.start([&](CopyDone done) {
      snapshots()->write(slot, shard, all_shards.subspan(shard * shard_bytes, shard_bytes), std::move(done));
    });
  }
  copies.wait("a copy into a slot");
  add(counts_.states_written, 1);
}

void VerifyingEngine::copy(const BlockCopy& copy) const {
  PendingCopies copies;
  copies.start([&](CopyDone done) {
    blocks()->device().copy_within(blocks()->data(copy.to), blocks()->data(copy.from), copy.tokens * kKvBytesPerToken,
                                   std::move(done));
  });
  copies.wait("a copy between blocks");
}

void VerifyingEngine::fill_with_garbage(BlockId block) {
  const std::vector<std::byte> garbage(blocks()->block_bytes(), kGarbage);
  write({.block = block, .tokens = block_size()}, garbage);
}

void VerifyingEngine::check(const std::string& who, const BlockPart& part, std::span<const std::byte> kv) {
  std::array<std::byte, 4096> found;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by the copy
  const std::byte* const from = blocks()->data(part.block) + part.offset_tokens * kKvBytesPerToken;
  for (std::size_t at = 0; at < kv.size(); at += found.size()) {
    const std::span<const std::byte> expected = kv.subspan(at, std::min(found.size(), kv.size() - at));
    const std::span<std::byte> piece = std::span(found).first(expected.size());
    PendingCopies copies;
    copies.start([&](CopyDone done) { blocks()->device().copy_out(piece, from + at, std::move(done)); });
    copies.wait("a copy out of a block");
    if (const std::size_t differs = first_difference(expected, piece); differs < expected.size()) {
      const std::size_t token = part.first_token + (at + differs) / kKvBytesPerToken;
      throw ReplayError(fmt::format(
          "{}: the KV of token {}, in physical block {} for block {} of the sequence: "
          "expected {:016x}, found {:016x}",
          who, token, part.block, token / block_size(), word_at(expected, differs), word_at(piece, differs)));
    }
  }
  add(counts_.blocks_checked, 1);
  add(counts_.block_bytes_checked, kv.size());
}

void VerifyingEngine::check_state(const std::string& who, const RestorePoint& restore, const ModelSequence& model) {
  const std::size_t shard_bytes = snapshots()->slot_bytes() / snapshots()->shards();
  std::vector<std::byte> found(snapshots()->slot_bytes());
  {
    PendingCopies copies;
    for (std::size_t shard = 0; shard < snapshots()->shards(); ++shard) {
      copies.start([&](CopyDone done) {
        snapshots()->read(restore.slot, shard, std::span(found).subspan(shard * shard_bytes, shard_bytes),
                          std::move(done));
      });
    }
    copies.wait("a copy out of a slot");
  }
  std::vector<std::byte> expected(shard_bytes);
  for (std::size_t shard = 0; shard < snapshots()->shards(); ++shard) {
    model.state(restore.tokens, shard, expected);
    const std::span<const std::byte> piece = std::span(found).subspan(shard * shard_bytes, shard_bytes);
    if (const std::size_t differs = first_difference(expected, piece); differs < expected.size()) {
      throw ReplayError(fmt::format(
          "{}: the state after {} tokens, in slot {}, shard {}, byte {}: expected {:016x}, "
          "found {:016x}",
          who, restore.tokens, restore.slot, shard, differs, word_at(expected, differs), word_at(piece, differs)));
    }
  }
  add(counts_.states_checked, 1);
  add(counts_.state_bytes_checked, found.size());
}

// ---- VerifiedStep ----

VerifiedStep::VerifiedStep(VerifyingEngine& engine)
    : engine_(&engine), id_(engine.next_step()), outcome_(std::make_shared<StepOutcome>(StepState::kInFlight)) {}

VerifiedStep::~VerifiedStep() {
  if (settled()) return;
  try {
    fail();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a destructor has nobody to tell
    // The manager keeps what the step holds.
  }
}

void VerifiedStep::done() {
  if (settled()) throw std::logic_error(fmt::format("step {}: settled already", id_));
  if (!in_order()) throw std::logic_error(fmt::format("step {}: an earlier step of a sequence is not settled", id_));
  try {
    check_reads();
    write_all(false);
  } catch (...) {
    settle(StepState::kFailed);
    throw;
  }
  settle(StepState::kDone);
}

void VerifiedStep::fail() {
  if (settled()) throw std::logic_error(fmt::format("step {}: settled already", id_));
  write_all(true);
  settle(StepState::kFailed);
}

bool VerifiedStep::in_order() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) {
    return std::all_of(member.earlier.begin(), member.earlier.end(), [](const auto& outcome) {
      return outcome->load(std::memory_order_acquire) != StepState::kInFlight;
    });
  });
}

bool VerifiedStep::on_top_of_a_failed_one(std::size_t member) const {
  const Earlier& earlier = members_[member].earlier;
  return std::any_of(earlier.begin(), earlier.end(), [](const auto& outcome) {
    return outcome->load(std::memory_order_acquire) == StepState::kFailed;
  });
}

void VerifiedStep::check_reads() {
  for (const Part& read : reads_) {
    if (on_top_of_a_failed_one(read.member)) continue;
    engine_->check(*members_[read.member].name, read.where, bytes_of(read.kv));
  }
}

void VerifiedStep::write_all(bool all_garbage) {
  const auto bytes_to_write = [&](std::size_t member, Bytes bytes) {
    const std::span<std::byte> all = bytes_of(bytes);
    if (all_garbage || on_top_of_a_failed_one(member)) std::fill(all.begin(), all.end(), kGarbage);
    return all;
  };
  for (const Part& write : writes_) engine_->write(write.where, bytes_to_write(write.member, write.kv));
  for (const State& state : states_) {
    try {
      engine_->write_state(state.slot, bytes_to_write(state.member, state.shards));
    } catch (const std::invalid_argument& error) {
      throw ReplayError(fmt::format("{}: slot {}, which step {} was to fill, was taken away: {}",
                                    *members_[state.member].name, state.slot, id_, error.what()));
    }
  }
}

void VerifiedStep::settle(StepState state) {
  if (state == StepState::kDone) {
    engine_->manager().step_done(id_);
  } else {
    engine_->manager().step_failed(id_);
  }
  outcome_->store(state, std::memory_order_release);
  outcome_.reset();
}

VerifiedStep::Mark VerifiedStep::mark() const {
  return {.bytes = bytes_.size(),
          .members = members_.size(),
          .reads = reads_.size(),
          .writes = writes_.size(),
          .states = states_.size()};
}

void VerifiedStep::roll_back(const Mark& mark) {
  bytes_.resize(mark.bytes);
  members_.resize(mark.members);
  reads_.resize(mark.reads);
  writes_.resize(mark.writes);
  states_.resize(mark.states);
}

void VerifiedStep::join(std::shared_ptr<const std::string> name, Earlier earlier) {
  std::erase(earlier, outcome_);  // it takes part already
  members_.push_back({.name = std::move(name), .earlier = std::move(earlier)});
}

void VerifiedStep::add_state(SnapshotId slot, const ModelSequence& model, std::size_t tokens) {
  const std::size_t shards = engine_->snapshots()->shards();
  const std::size_t shard_bytes = engine_->snapshots()->slot_bytes() / shards;
  const Bytes all{.from = bytes_.size(), .size = shards * shard_bytes};
  states_.push_back({.member = members_.size() - 1, .slot = slot, .shards = all});
  bytes_.resize(all.from + all.size);
  for (std::size_t shard = 0; shard < shards; ++shard) {
    model.state(tokens, shard, bytes_of({.from = all.from + shard * shard_bytes, .size = shard_bytes}));
  }
}

void VerifiedStep::add_parts(std::vector<Part>& to, std::span<const BlockPart> parts, std::span<const std::byte> kv) {
  std::size_t from = bytes_.size();
  bytes_.insert(bytes_.end(), kv.begin(), kv.end());
  for (const BlockPart& part : parts) {
    const std::size_t size = part.tokens * kKvBytesPerToken;
    to.push_back({.member = members_.size() - 1, .where = part, .kv = {.from = from, .size = size}});
    from += size;
  }
}

}  // namespace cairn::replay
