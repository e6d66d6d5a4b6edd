// Where the bytes of KV blocks and snapshots go that fast memory has no room for: stores, in RAM or in files, and what
// is common to them.
//
// A store maps keys to records. A record is the payload (the bytes of one block, or of one snapshot with all its
// shards) and its lineage: what it is, so that the trie can be built again after a restart. A key names one place of a
// trie and is never used for another one; what is stored under it is immutable, so a second put of a key replaces the
// record by its equal.
//
// Records may be lost at any time: a store evicts, disks fail. What a store promises: it never answers with other
// bytes than those that were put under that key, with that fingerprint; and it says what it has lost (take_lost).
#ifndef CAIRN_SPILL_STORE_H_
#define CAIRN_SPILL_STORE_H_

#include <cairn/prefix_cache.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// Everything that changes the bytes of all records alike. Compared field by field, exactly.
struct ModelFingerprint {
  std::string weights{};    // which weights: a digest or a name with its revision
  std::string kv_type{};    // "fp16", "fp8_e4m3", ...
  std::string layout{};     // how a block's and a snapshot's bytes are laid out
  std::uint32_t ranks = 1;  // tensor-parallel ranks

  friend bool operator==(const ModelFingerprint&, const ModelFingerprint&) = default;
};
// "weights=..., kv_type=..., layout=..., ranks=N", for messages.
[[nodiscard]] std::string to_string(const ModelFingerprint& fingerprint);

// What all records of a store have in common.
struct SpillLayout {
  ModelFingerprint fingerprint;    // each text at most 128 bytes
  std::size_t block_size = 16;     // tokens in a KV block
  std::size_t block_bytes = 0;     // payload of a block; 0: no attention layers
  std::size_t snapshot_bytes = 0;  // payload of a snapshot; 0: no recurrent layers
  // Tokens that a record has room for, if more than block_size. For purely recurrent models: a snapshot of more tokens
  // is not found after a restart. 4 bytes each, in every record.
  std::size_t record_tokens = 0;
};

enum class RecordKind : std::uint8_t { kBlock = 1, kPlainSnapshot = 2, kTail = 3, kTailSibling = 4 };

// A placeholder token that begins a medium (see MediaSpan), at `offset` of the record's own tokens.
struct RecordMedium {
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
  std::array<std::uint64_t, 2> content_id{};

  friend bool operator==(const RecordMedium&, const RecordMedium&) = default;
};

// What a record is. Its own tokens follow those of its parent: block_size of them for a block, fewer for a snapshot,
// which hangs at the last full block before it; where there are no blocks, all that come before it. `media` tells what
// those of `tokens` stand for that begin a medium; their ids mean nothing outside of the process.
struct RecordLineage {
  RecordKind kind = RecordKind::kBlock;
  std::string adapter{};  // empty: the base model. At most kNameBytesMax
  std::uint64_t adapter_generation = 0;
  std::string tenant_salt{};      // at most kNameBytesMax
  TierKey parent = 0;             // the block before its own tokens; 0: there is none
  std::uint64_t first_token = 0;  // how many tokens come before its own: a multiple of block_size
  std::vector<TokenId> tokens{};
  std::vector<RecordMedium> media{};  // ascending
  SessionHash session = 0;            // snapshots

  static constexpr std::size_t kNameBytesMax = 255;

  friend bool operator==(const RecordLineage&, const RecordLineage&) = default;
};

// Memory for one record, aligned to 4 KiB: room for what a store adds, then the payload. Made by SpillBuffers. Whoever
// puts it must not write the payload any more.
class SpillBuffer {
 public:
  static constexpr std::size_t kAlignment = 4096;  // bytes

  SpillBuffer(const SpillBuffer&) = delete;
  SpillBuffer& operator=(const SpillBuffer&) = delete;

  [[nodiscard]] std::span<std::byte> payload() noexcept { return record_.subspan(header_bytes_); }
  [[nodiscard]] std::span<const std::byte> payload() const noexcept { return record_.subspan(header_bytes_); }
  // The whole record as it lies on disk, header first; what is behind the payload, up to a multiple of kAlignment, is
  // not part of payload() and zero. For stores.
  [[nodiscard]] std::span<std::byte> record() noexcept { return {record_.data(), record_bytes_}; }

 private:
  friend class SpillBuffers;
  SpillBuffer(std::span<std::byte> header_and_payload, std::size_t header_bytes, std::size_t record_bytes) noexcept
      : record_(header_and_payload), header_bytes_(header_bytes), record_bytes_(record_bytes) {}

  std::span<std::byte> record_;
  std::size_t header_bytes_;
  std::size_t record_bytes_;
};
using SpillBufferPtr = std::shared_ptr<SpillBuffer>;  // goes back to its SpillBuffers, also after that is gone

// The memory that stores work with, bounded. One for all stores in front of each other, so that a record moves between
// them without a copy. Thread-safe: one short lock.
class SpillBuffers {
 public:
  // Buffers are allocated when they are first needed, kept, and never take more than `bytes_max` together. Throws
  // std::invalid_argument: a layout without payload; a text that is too long; fewer bytes than two of the largest
  // record.
  SpillBuffers(SpillLayout layout, std::size_t bytes_max);
  ~SpillBuffers();
  SpillBuffers(const SpillBuffers&) = delete;
  SpillBuffers& operator=(const SpillBuffers&) = delete;

  // Null if all are taken, or memory has run out. Its contents are undefined, but for the padding.
  [[nodiscard]] SpillBufferPtr allocate(RecordKind kind) noexcept;

  [[nodiscard]] const SpillLayout& layout() const noexcept;
  // Whether a record has room for it.
  [[nodiscard]] bool fits(const RecordLineage& lineage) const noexcept;
  [[nodiscard]] std::size_t header_bytes() const noexcept;                 // a multiple of SpillBuffer::kAlignment
  [[nodiscard]] std::size_t record_bytes(RecordKind kind) const noexcept;  // the same; header and payload
  [[nodiscard]] std::size_t bytes_max() const noexcept;
  [[nodiscard]] std::size_t used_bytes() const noexcept;  // by buffers that somebody has

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // with the buffers
};

enum class Tier : std::uint8_t { kRam, kFile };

enum class PutResult : std::uint8_t {
  kAccepted,   // `done` will be called
  kQueueFull,  // too much is under way
  kDegraded,   // the store writes nothing for now: see SpillStats::degraded
  kTooLarge,   // the lineage does not fit into the header, or no record of this size fits into the store
};

struct GetResult {
  enum class Status : std::uint8_t {
    kFound,
    kMissing,    // there is no such record, or it was damaged and is no more
    kFailed,     // the device failed or took too long; the record may still be there
    kQueueFull,  // too much is under way
  };
  Status status = Status::kMissing;
  Tier tier = Tier::kRam;                       // where it was found
  std::shared_ptr<const SpillBuffer> buffer{};  // if it was found
};

// Called exactly once, from the store's thread or before the call returns, with no lock held. Must not throw, and
// should be short. They may call the store, but neither flush it nor drop its last reference.
using PutDone = std::function<void(bool stored)>;
using GetDone = std::function<void(GetResult)>;

// All since the store was opened, but for what says "now".
struct SpillStats {
  std::uint64_t puts = 0;          // accepted
  std::uint64_t puts_dropped = 0;  // not accepted, or accepted and then not stored
  std::uint64_t gets = 0;          // == found_in_ram + found_in_file + misses + failed_gets + those under way
  std::uint64_t found_in_ram = 0;  // or in the buffer of a put under way
  std::uint64_t found_in_file = 0;
  std::uint64_t shared_reads = 0;  // of those found in the file: another get's read served them
  std::uint64_t misses = 0;
  std::uint64_t failed_gets = 0;      // kFailed and kQueueFull
  std::uint64_t evicted_records = 0;  // to make room; not those that went on to a store behind
  std::uint64_t erased_records = 0;   // by erase
  std::uint64_t damaged_records = 0;  // torn, truncated, flipped, misplaced: erased when they were met
  std::uint64_t io_errors = 0;        // of the device, timeouts included
  std::uint64_t written_bytes = 0;    // to files
  std::uint64_t read_bytes = 0;       // from files
  std::uint64_t recovered_records = 0;
  std::size_t ram_records = 0;    // now
  std::size_t ram_bytes = 0;      // now
  std::size_t file_records = 0;   // now
  std::size_t file_bytes = 0;     // now: taken on disk
  std::size_t pending = 0;        // now: puts and gets under way
  bool degraded = false;          // now: writes fail and are given up at once; it tries again by itself
  std::string degraded_reason{};  // the last error, with path and errno's text
  std::string io{};               // "io_uring", "pread/pwrite", or empty: no files
};

// Thread-safe. No member blocks on I/O but where it says so.
class SpillStore {
 public:
  virtual ~SpillStore();

  // For whoever gives out its keys, a CacheManager: true once. Keys of two of them would mean different places.
  [[nodiscard]] bool claim() noexcept { return !claimed_.exchange(true, std::memory_order_relaxed); }

  [[nodiscard]] virtual const std::shared_ptr<SpillBuffers>& buffers() const noexcept = 0;
  // Keys of this run of the store count up from here: it has never handed out them or later ones. Not 0.
  [[nodiscard]] virtual TierKey first_key() const noexcept = 0;

  // Stores the buffer's payload under `key`. Once accepted, gets are served, from the buffer at first; `done(true)`
  // says that it has come to rest: in RAM, or in the file, where it survives the process. Replaces what was stored
  // under the key. The record may be lost afterwards as any other. A buffer belongs to one key. Throws
  // std::invalid_argument: a key that is 0, or of a later run than this one; no buffer, or not one for this kind.
  [[nodiscard]] virtual PutResult put(TierKey key, const RecordLineage& lineage, SpillBufferPtr buffer,
                                      PutDone done) = 0;
  // Counts as a use. Gets of one record at the same time share one read.
  virtual void get(TierKey key, GetDone done) = 0;
  // No get finds it from now on. Not reported by take_lost.
  virtual void erase(TierKey key) noexcept = 0;
  // For clearing an adapter: the keys of all its records, whatever their generation and salt; a few of others may be
  // among them. O(records). Throws std::bad_alloc.
  [[nodiscard]] virtual std::vector<TierKey> records_of(std::string_view adapter) const = 0;
  // Whether there is such a record, and where; counts as a use.
  [[nodiscard]] virtual std::optional<Tier> touch(TierKey key) noexcept = 0;
  // Each once: the keys of records that were accepted and are no more, but for those that were erased: evicted,
  // damaged, or not written after all.
  [[nodiscard]] virtual std::vector<TierKey> take_lost() = 0;

  // Waits until everything that was accepted and erased until now has come to rest where it is to survive: a store in
  // RAM before a file writes what it has. False if that took longer than `timeout` or could not be written. Blocks.
  [[nodiscard]] virtual bool flush(std::chrono::milliseconds timeout) = 0;

  // What was found when the store was opened, each once, in no order; no longer known to the store afterwards. Blocks
  // on nothing.
  struct Recovered {
    TierKey key = 0;
    RecordLineage lineage;
  };
  [[nodiscard]] virtual std::vector<Recovered> take_recovered() = 0;

  [[nodiscard]] virtual SpillStats stats() const = 0;
  // Checks every invariant. Empty, or what is wrong. O(records).
  [[nodiscard]] virtual std::string validate() const = 0;

 private:
  std::atomic<bool> claimed_{false};
};

// In RAM; least recently used first. `done` is called before put returns.
struct RamStoreOptions {
  std::shared_ptr<SpillBuffers> buffers{};
  std::size_t bytes_max = 0;  // of records, header included
};
// Throws std::invalid_argument, naming option, value and rule.
[[nodiscard]] std::shared_ptr<SpillStore> make_ram_store(RamStoreOptions options);

// In files of one directory. See docs/spill-format.md for what lies in them.
struct FileStoreOptions {
  std::shared_ptr<SpillBuffers> buffers{};
  std::string directory{};      // made if it is not there
  std::uint64_t bytes_max = 0;  // on disk, all files of the directory together: never exceeded
  bool reinitialize = false;    // empties a directory that holds records of another fingerprint or layout
  enum class Io : std::uint8_t { kBest, kUring, kThreads };
  Io io = Io::kBest;               // kBest: io_uring where the kernel allows it, pread and pwrite in threads elsewhere
  std::size_t queue_depth = 64;    // reads and writes at the device
  std::size_t pending_max = 4096;  // puts and gets under way
  std::chrono::milliseconds io_timeout{10'000};  // a get that takes longer fails
  std::chrono::milliseconds retry_after{1'000};  // while degraded: how long until it tries again
};
// Why a store could not be opened. An expected failure: the text names path, what was found and what to do.
struct SpillOpenError {
  enum class Reason : std::uint8_t { kLocked, kOtherFingerprint, kOtherLayout, kDamaged, kIo };
  Reason reason = Reason::kIo;
  std::string message;
};
struct OpenedStore {
  std::shared_ptr<SpillStore> store{};  // null if it could not be opened
  SpillOpenError error{};
};
// Blocks: reads the headers of all records. Throws std::invalid_argument, naming option, value and rule.
[[nodiscard]] OpenedStore open_file_store(FileStoreOptions options);

// `front` before `back`, with the same buffers: puts go to the front, what that evicts goes to the back, gets look in
// both. `front` is a store made by make_ram_store that nobody else uses.
[[nodiscard]] std::shared_ptr<SpillStore> make_tiered_store(std::shared_ptr<SpillStore> front,
                                                            std::shared_ptr<SpillStore> back);

}  // namespace cairn

#endif  // CAIRN_SPILL_STORE_H_
