// An engine for tests and replays: it computes with a VerifyingModel, and checks every byte that a cache hands it.
//
//     VerifyingEngine engine({.manager = manager, .block_size = 16, .blocks = blocks, .snapshots = snapshots});
//     auto start = VerifiedSequence::start(engine, {.name = "request 1", .tokens = prompt});    // verified_sequence.h
//     VerifiedStep step(engine);
//     start.sequence->compute(step, 512);   // notes what the step is to write: KV, and states to be kept
//     step.done();                          // writes it, and tells the manager
//
// Bytes go through the pools' Device, as those of a real engine do. Every mismatch is a ReplayError that names the
// request, the block or slot, the token, and both values.
#ifndef CAIRN_REPLAY_VERIFYING_ENGINE_H_
#define CAIRN_REPLAY_VERIFYING_ENGINE_H_

#include <cairn/block_pool.h>
#include <cairn/cache_manager.h>
#include <cairn/lease.h>
#include <cairn/snapshot_pool.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replay/verifying_model.h"

namespace cairn::replay {

struct VerifyingEngineOptions {
  CacheManager& manager;  // must outlive the engine
  std::size_t block_size = 16;
  // Those of the manager. Blocks have to have kKvBytesPerToken for each token.
  std::shared_ptr<BlockPool> blocks{};
  std::shared_ptr<SnapshotPool> snapshots{};
  // For tests. Blocks that a sequence gets for itself are filled with garbage at once, and a step checks, when it is
  // done, all the KV that it reads: so blocks that change hands too early show. O(sequence) for each step.
  bool strict = false;
};

struct VerifyingEngineCounts {
  std::uint64_t blocks_checked = 0;  // each time that one is looked at
  std::uint64_t block_bytes_checked = 0;
  std::uint64_t states_checked = 0;
  std::uint64_t state_bytes_checked = 0;
  std::uint64_t block_bytes_written = 0;
  std::uint64_t states_written = 0;
  std::uint64_t steps = 0;
};

// The KV of some tokens of one sequence within one block.
struct BlockPart {
  BlockId block = 0;
  std::size_t first_token = 0;
  std::size_t offset_tokens = 0;  // of first_token in the block
  std::size_t tokens = 0;
};

enum class StepState { kInFlight, kDone, kFailed };
// Shared with the sequences that take part: stored with release once the manager has been told, loaded with acquire.
using StepOutcome = std::atomic<StepState>;

// What sequences and steps have in common: the pools, their bytes, step numbers and counts. Thread-safe: the counts
// are plain numbers (relaxed), all else is const or made so.
class VerifyingEngine {
 public:
  // Throws std::invalid_argument: block_size zero, neither pool, blocks of another size.
  explicit VerifyingEngine(VerifyingEngineOptions options);
  VerifyingEngine(const VerifyingEngine&) = delete;
  VerifyingEngine& operator=(const VerifyingEngine&) = delete;

  [[nodiscard]] CacheManager& manager() const { return options_.manager; }
  [[nodiscard]] std::size_t block_size() const { return options_.block_size; }
  [[nodiscard]] BlockPool* blocks() const { return options_.blocks.get(); }
  [[nodiscard]] SnapshotPool* snapshots() const { return options_.snapshots.get(); }
  [[nodiscard]] bool strict() const { return options_.strict; }
  [[nodiscard]] VerifyingEngineCounts counts() const;

  // ---- For sequences and steps ----

  [[nodiscard]] StepId next_step() { return next_step_.fetch_add(1, std::memory_order_relaxed); }
  void write(const BlockPart& part, std::span<const std::byte> kv);
  void write_state(SnapshotId slot, std::span<const std::byte> all_shards);
  void copy(const BlockCopy& copy) const;
  void fill_with_garbage(BlockId block);
  // Throw ReplayError: the bytes are not those expected. `who` names the sequence.
  void check(const std::string& who, const BlockPart& part, std::span<const std::byte> kv);
  void check_state(const std::string& who, const RestorePoint& restore, const ModelSequence& model);

 private:
  struct AtomicCounts {
    std::atomic<std::uint64_t> blocks_checked{0};
    std::atomic<std::uint64_t> block_bytes_checked{0};
    std::atomic<std::uint64_t> states_checked{0};
    std::atomic<std::uint64_t> state_bytes_checked{0};
    std::atomic<std::uint64_t> block_bytes_written{0};
    std::atomic<std::uint64_t> states_written{0};
  };

  VerifyingEngineOptions options_;
  std::atomic<StepId> next_step_{0};
  AtomicCounts counts_;
};

// One submission to the device for a batch of sequences. What it writes is noted when a sequence joins it, and written
// when it is done, also if the sequence has ended meanwhile: as a device would. Steps that a sequence has a part in
// are to be settled in the order in which it joined them, as a device queue would. One that comes after a step that
// failed computes garbage, and writes it.
//
// Belongs to one thread at a time.
class VerifiedStep {
 public:
  explicit VerifiedStep(VerifyingEngine& engine);
  VerifiedStep(VerifiedStep&&) noexcept = default;
  VerifiedStep& operator=(VerifiedStep&&) = delete;
  VerifiedStep(const VerifiedStep&) = delete;
  VerifiedStep& operator=(const VerifiedStep&) = delete;
  ~VerifiedStep();  // fails it if it is not settled

  [[nodiscard]] StepId id() const { return id_; }
  [[nodiscard]] bool settled() const { return outcome_ == nullptr; }

  // Writes, then tells the manager. Throws std::logic_error, with nothing changed: settled already; an earlier step of
  // a sequence is not. Throws ReplayError, and the step has failed: what it reads is not what it has to be (strict); a
  // slot that it was to fill was taken away.
  void done();
  // Leaves garbage where it was to write, then tells the manager. Throws std::logic_error: settled already.
  void fail();

 private:
  friend class VerifiedSequence;
  using Earlier = std::vector<std::shared_ptr<const StepOutcome>>;
  // A sequence takes part. What it adds after that is its own.
  struct Member {
    std::shared_ptr<const std::string> name;
    Earlier earlier;  // steps that were in flight when it joined
  };
  struct Bytes {
    std::size_t from = 0;  // in bytes_
    std::size_t size = 0;
  };
  struct Part {
    std::size_t member = 0;
    BlockPart where;
    Bytes kv;
  };
  struct State {
    std::size_t member = 0;
    SnapshotId slot = 0;
    Bytes shards;
  };
  struct Mark {
    std::size_t bytes = 0;
    std::size_t members = 0;
    std::size_t reads = 0;
    std::size_t writes = 0;
    std::size_t states = 0;
  };

  // ---- For sequences, which take back what they have added if something throws ----
  [[nodiscard]] Mark mark() const;
  void roll_back(const Mark& mark);
  void join(std::shared_ptr<const std::string> name, Earlier earlier);
  void add_writes(std::span<const BlockPart> parts, std::span<const std::byte> kv) { add_parts(writes_, parts, kv); }
  void add_reads(std::span<const BlockPart> parts, std::span<const std::byte> kv) { add_parts(reads_, parts, kv); }
  void add_state(SnapshotId slot, const ModelSequence& model, std::size_t tokens);

  void add_parts(std::vector<Part>& to, std::span<const BlockPart> parts, std::span<const std::byte> kv);
  [[nodiscard]] bool in_order() const;
  [[nodiscard]] bool on_top_of_a_failed_one(std::size_t member) const;
  [[nodiscard]] std::span<std::byte> bytes_of(Bytes bytes) {
    return std::span(bytes_).subspan(bytes.from, bytes.size);
  }
  void check_reads();
  void write_all(bool all_garbage);
  void settle(StepState state);

  VerifyingEngine* engine_;
  StepId id_;
  std::shared_ptr<StepOutcome> outcome_;  // null: settled
  std::vector<std::byte> bytes_;
  std::vector<Member> members_;
  std::vector<Part> reads_;
  std::vector<Part> writes_;
  std::vector<State> states_;
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_VERIFYING_ENGINE_H_
