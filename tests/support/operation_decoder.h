// The one decoder from bytes to operations on a prefix cache, shared by the model test, the stress test and the
// fuzzer.
//
// A program is a header and then one record of kRecordBytes for each operation, so that a failing one can be made
// smaller by leaving records out. Every byte string is a program: what is missing at the end reads as zero, values
// out of range wrap.
#ifndef CAIRN_TESTS_SUPPORT_OPERATION_DECODER_H_
#define CAIRN_TESTS_SUPPORT_OPERATION_DECODER_H_

#include <cairn/prefix_cache.h>
#include <cairn/snapshot_policy.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::testing {

inline constexpr std::size_t kRecordBytes = 8;

// "Caller" is a running sequence: its tokens, and what it holds in the cache by tokens or by a handle.
enum class OperationKind : std::uint8_t {
  kLookup,              // a new caller, by tokens
  kAcquire,             // a new caller, by handle
  kInsert,              // a caller inserts its sequence, or a part longer than what it holds
  kInsertWithSnapshot,  // the same with a plain snapshot at its end
  kPublish,             // a chunk of a caller's sequence, with no use taken
  kGrow,                // a caller's sequence goes on past what it holds, maybe differently, and is inserted
  kExtend,              // what follows a handle
  kTruncate,            // a handle gives up its end
  kRelease,
  kPeek,
  kEvict,
  kPutPlain,
  kPutTail,  // sometimes with its sibling right after it
  kPutSibling,
  kEvictSnapshot,
  kEvictSnapshotToTier,
  kPromote,
  kForget,  // of a snapshot, or of whatever has the key
  kTakeOrphans,
  kFindSnapshot,
  kUnpin,
  kEvictBlocksToTier,
  kSaveBlocks,  // a handle's, or all
  kSpilledSnapshot,
  kRegister,  // a block or a snapshot that a store has
  kClearAdapter,
  kClearAll,
  kInvalid,  // a call that must throw or must do nothing
  kCount,
};

std::string_view name_of(OperationKind kind);

// The other fields mean what the operation makes of them; each is one byte of the record.
struct Operation {
  OperationKind kind = OperationKind::kLookup;
  std::uint8_t who = 0;     // adapter, session, and which caller
  std::uint8_t source = 0;  // which known sequence a prompt starts like
  std::uint8_t cut = 0;     // how much of it
  std::uint8_t run_a = 0;   // two runs of equal tokens that follow
  std::uint8_t run_b = 0;
  std::uint8_t table = 0;  // how the block table and the disk ids are made
  std::uint8_t extra = 0;

  [[nodiscard]] AdapterId adapter_id() const;
  [[nodiscard]] SessionHash session() const;
};

enum class DiskIds : std::uint8_t { kNone, kAll, kSome, kMixed };

struct ProgramSettings {
  std::size_t block_size = 1;
  std::size_t tokens_max = 24;  // prompts are cut off here
  bool wide_tokens = false;     // some from 2^24 on, which the tree keeps in another way
  bool share_snapshots_across_sessions = false;
  DiskIds disk_ids = DiskIds::kNone;
  TierKey first_tier_key = 1;
  std::size_t slots = 8;
  bool breaks_protocol = false;  // callers release what they do not hold
  std::string snapshot_policy = "lru";
  SnapshotPolicyOptions snapshot_policy_options{};
};

struct Program {
  ProgramSettings settings;
  std::vector<Operation> operations;
};

Program decode_program(std::span<const std::uint8_t> bytes);

// The bytes of a random program, the same for the same seed on every machine.
std::vector<std::uint8_t> random_program_bytes(std::uint64_t seed, std::size_t operations);

std::string to_hex(std::span<const std::uint8_t> bytes);
std::vector<std::uint8_t> from_hex(const std::string& hex);

// Makes prompts that share prefixes: each starts like one made before, cut at any token, and goes on with few
// distinct token values, so that collisions, branches and divergence inside a block are frequent.
class PromptBook {
 public:
  explicit PromptBook(const ProgramSettings& settings) : settings_(settings) {}

  std::vector<TokenId> make(const Operation& operation);
  // `start` and then the runs of the operation; remembered like a prompt.
  std::vector<TokenId> continue_from(std::vector<TokenId> start, const Operation& operation);

 private:
  void remember(const std::vector<TokenId>& tokens);
  void append_runs(std::vector<TokenId>& tokens, const Operation& operation) const;

  ProgramSettings settings_;
  std::vector<std::vector<TokenId>> known_;
  std::size_t next_ = 0;
};

// A number in [0, size] from a byte: `size` itself for a third of them.
std::size_t scale_cut(std::uint8_t cut, std::size_t size);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_OPERATION_DECODER_H_
