// From bytes to what an engine does with a CacheManager: settings and a list of operations.
//
// The same scheme as support/operation_decoder.h: two records for the settings (the second for the store) and
// then one record of kRecordBytes for each operation, so
// that a failing program can be made smaller by leaving records out. Every byte string is a program.
#ifndef CAIRN_TESTS_ENGINE_PROPERTY_ENGINE_PROGRAM_H_
#define CAIRN_TESTS_ENGINE_PROPERTY_ENGINE_PROGRAM_H_

#include <cairn/cache_manager.h>
#include <cairn/spill_store.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::testing {

// "A sequence" is a running one, "a step" one that is not settled; the record says which.
enum class EngineOperationKind : std::uint8_t {
  kAdmit,     // a new request
  kResume,    // one that was preempted
  kServe,     // a new request from its beginning to its end
  kRunOn,     // all that a sequence has left to compute, and publishes it
  kCompute,   // a sequence joins the step that is being put together
  kSubmit,    // no more sequences join that step
  kDone,      // a step is done
  kFail,      // a step is lost
  kCapture,   // beside the capture points: wherever a sequence has got to
  kRestore,   // early
  kAppend,    // decoded tokens
  kDraft,     // speculated ones
  kVerify,    // accepts some of them
  kTruncate,  // forgets tokens
  kPublish,   // as much as can be, or up to a token
  kSettle,    // a sequence takes note of its steps
  kCheck,     // every byte of a sequence
  kFork,
  kFinish,
  kPreempt,
  kAbandon,
  kReplace,  // a sequence is moved over another one, which is dropped by that
  kClear,    // everything
  kClearAdapter,
  kPeek,
  kHoldBlocks,  // somebody else takes blocks out of the pool
  kHoldSlots,   // or slots
  kLetGo,       // and gives them back
  kAnswer,      // the store or the device does some of what it holds back, well or not
  kStore,       // the store is told how to go on: gets held back or failed, puts refused, a record lost
  kFlush,
  kSave,
  kRestart,  // of the manager and the store
  kCount,
};

[[nodiscard]] std::string_view name_of(EngineOperationKind kind);

// The other fields mean what the operation makes of them; each is one byte of the record.
struct EngineOperation {
  EngineOperationKind kind = EngineOperationKind::kAdmit;
  std::uint8_t who = 0;
  std::uint8_t source = 0;  // prompts: as in support/operation_decoder.h
  std::uint8_t cut = 0;
  std::uint8_t run_a = 0;
  std::uint8_t run_b = 0;
  std::uint8_t extra = 0;
  std::uint8_t fault = 0;  // n: the n-th allocation of the call fails, if the settings want failures; 0: none
};

enum class ModelKind : std::uint8_t { kAttention, kHybrid, kRecurrent };

// What becomes of the sequences that are left at the end of a program.
enum class Ending : std::uint8_t { kFinish, kAbandon, kOutliveManager };

enum class StoreKind : std::uint8_t { kNone, kRam, kFile, kRamBeforeFile, kHeld };

inline constexpr std::size_t kShardBytes = 16;  // of a snapshot's shard

struct EngineSettings {
  ModelKind model = ModelKind::kAttention;
  std::size_t block_size = 4;
  std::size_t blocks = 0;  // 0: none
  std::size_t slots = 0;   // 0: none
  std::size_t shards = 1;
  std::size_t tokens_max = 0;  // of a sequence
  std::size_t checkpoint_every_tokens = 0;
  bool capture_tails = true;
  bool capture_branch_points = true;
  bool share_snapshots_across_sessions = false;
  std::size_t adapters_max = 4;
  std::size_t media_max = 4;
  bool allocations_fail = false;
  StoreKind store = StoreKind::kNone;
  std::size_t ram_records = 0;
  std::uint64_t file_bytes = 0;  // on disk
  bool uring = false;            // else pread and pwrite in threads
  Tier held_tier = Tier::kRam;   // that a held store says it is
  bool copies_are_late = false;
  SpillOptions spill{};
  Ending ending = Ending::kFinish;
};

struct EngineProgram {
  EngineSettings settings;
  std::vector<EngineOperation> operations;
};

[[nodiscard]] EngineProgram decode_engine_program(std::span<const std::uint8_t> bytes);

[[nodiscard]] std::string describe(const EngineSettings& settings);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_ENGINE_PROPERTY_ENGINE_PROGRAM_H_
