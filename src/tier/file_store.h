// The store in files.
#ifndef CAIRN_TIER_FILE_STORE_H_
#define CAIRN_TIER_FILE_STORE_H_

#include <cairn/spill_store.h>

#include <array>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/containers.h"
#include "base/mutex.h"
#include "tier/async_io.h"
#include "tier/record.h"
#include "tier/recovery.h"
#include "tier/slab.h"
#include "tier/store_directory.h"

namespace cairn {

// With any AsyncIo: tests put faults in between. options.io is not looked at.
[[nodiscard]] OpenedStore open_file_store(FileStoreOptions options, std::unique_ptr<AsyncIo> io);

// Protocol. One mutex guards what the store knows: keys, their order of use, slots, queues, counts. One thread, the
// store's, owns the AsyncIo and the jobs that are under way in it; it takes requests from the queues, and the mutex
// for each step, never while it does I/O, computes checksums or calls back. Callers take the mutex, look, enqueue, and
// wake the thread. The lock of the SpillBuffers may be taken under the mutex; nothing else is.
//
// A key leads to an entry as long as something is known under it: a slot where its record rests, a put that waits, a
// put that is being written. There is at most one of each; a put that comes while one waits takes its place. A slot is
// written only if nobody reads it, and read only while it is an entry's; the slot of an entry that is erased, evicted
// or replaced is wiped: its hole is punched, once nobody reads it. Only a put of the same record size may take an
// evicted slot over as it is. So a slot that has no record reads as zeros, but for those whose wiping has failed:
// those are tried again, and until then flush() says false.
//
// Every job and every request has a deadline. A job that passes it counts as failed; its slot and its memory stay
// taken until its result comes.
class FileStore final : public SpillStore {
 public:
  FileStore(FileStoreOptions options, std::unique_ptr<StoreDirectory> directory, std::unique_ptr<AsyncIo> io);
  ~FileStore() override;
  [[nodiscard]] bool is_on_its_thread() const noexcept { return std::this_thread::get_id() == thread_.get_id(); }

  // Reads what is there and starts the thread. Once, before anything else.
  [[nodiscard]] std::optional<SpillOpenError> start();

  [[nodiscard]] const std::shared_ptr<SpillBuffers>& buffers() const noexcept override { return options_.buffers; }
  [[nodiscard]] TierKey first_key() const noexcept override;
  [[nodiscard]] PutResult put(TierKey key, const RecordLineage& lineage, SpillBufferPtr buffer, PutDone done) override;
  void get(TierKey key, GetDone done) override;
  void erase(TierKey key) noexcept override;
  [[nodiscard]] std::vector<TierKey> records_of(std::string_view adapter) const override;
  [[nodiscard]] std::optional<Tier> touch(TierKey key) noexcept override;
  [[nodiscard]] std::vector<TierKey> take_lost() override;
  [[nodiscard]] bool flush(std::chrono::milliseconds timeout) override;
  [[nodiscard]] std::vector<Recovered> take_recovered() override;
  [[nodiscard]] SpillStats stats() const override;
  [[nodiscard]] std::string validate() const override;

 private:
  using Clock = std::chrono::steady_clock;

  // What flush waits for, in the order in which it came.
  struct Ticket : boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
    std::uint64_t number = 0;
  };
  using Tickets = boost::intrusive::list<Ticket, boost::intrusive::constant_time_size<false>>;

  // A slot to be wiped. Made with the record, so that losing it needs no memory.
  struct Wipe {
    SlabId slab = SlabId::kBlocks;
    std::uint32_t slot = 0;
    Ticket ticket{};
  };

  struct Put {
    TierKey key = 0;
    RecordLineage lineage{};
    SpillBufferPtr buffer{};
    std::optional<PayloadChecksum> checksum{};  // none: the thread computes it
    std::vector<PutDone> done{};
    Clock::time_point accepted{};
    bool is_erased = false;
    bool is_probe = false;  // finds out whether writes work again
    bool is_over = false;
    std::unique_ptr<Wipe> wipe{};  // for its slot
    std::uint64_t generation = 0;
    Ticket ticket{};
  };

  struct Read {
    TierKey key = 0;
    SlabId slab = SlabId::kBlocks;
    std::uint32_t slot = 0;
    std::uint64_t generation = 0;
    RecordKind kind = RecordKind::kBlock;
    std::vector<GetDone> getters{};
    Clock::time_point deadline{};
    bool is_started = false;
    bool is_over = false;        // answered
    bool is_gone = false;        // the record was erased or lost meanwhile
    SpillBufferPtr served_by{};  // the record was replaced before the read began
  };

  struct Entry : boost::intrusive::list_base_hook<> {
    TierKey key = 0;
    std::uint64_t adapter_hash = 0;
    bool has_slot = false;
    RecordKind kind = RecordKind::kBlock;  // this and the next ones: of the record at rest
    std::uint32_t slot = 0;
    std::uint64_t generation = 0;
    std::uint32_t failed_reads = 0;  // one after the other
    std::unique_ptr<Wipe> wipe{};
    std::shared_ptr<Put> queued{};
    std::shared_ptr<Put> writing{};
    std::shared_ptr<Put> parked{};  // came while another one was being written; `queued`, or erased
    std::shared_ptr<Read> read{};   // that further gets may share
  };
  using Lru = boost::intrusive::list<Entry>;  // least recently used first

  struct Flush {
    std::uint64_t ticket = 0;
    std::uint64_t failed_writes = 0;  // when it began
    std::size_t syncs_begun = 0;
    std::size_t syncs_done = 0;
    bool is_failed = false;
    std::promise<bool> end{};
  };

  struct Job {
    IoRequest::Kind kind = IoRequest::Kind::kRead;
    SlabId slab = SlabId::kBlocks;
    std::uint32_t slot = 0;
    std::size_t done_bytes = 0;
    Clock::time_point deadline{};
    bool is_expired = false;
    SpillBufferPtr buffer{};
    std::shared_ptr<Read> read{};
    std::shared_ptr<Put> put{};
    std::unique_ptr<Wipe> wipe{};
    std::shared_ptr<Flush> flush{};
  };

  struct Call {
    PutDone put_done{};
    bool stored = false;
    GetDone get_done{};
    GetResult result{};
  };

  // ---- Callers and the thread (file_store.cc) ----

  [[nodiscard]] std::optional<PutResult> refusal(std::size_t record_bytes, bool fits) CAIRN_REQUIRES(mutex_);
  Entry& entry_for(TierKey key, std::string_view adapter) CAIRN_REQUIRES(mutex_);
  void enqueue(Entry& entry, std::shared_ptr<Put> put) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Entry* find(TierKey key) noexcept CAIRN_REQUIRES(mutex_);
  [[nodiscard]] static bool is_visible(const Entry& entry) noexcept;
  [[nodiscard]] static SpillBufferPtr buffer_under_way(const Entry& entry) noexcept;
  void use(Entry& entry) noexcept CAIRN_REQUIRES(mutex_);
  void begin_ticket(Ticket& ticket) noexcept CAIRN_REQUIRES(mutex_);
  // The record is no more, whatever of it there was. The entry may be gone afterwards.
  void drop(Entry& entry, bool is_lost) noexcept CAIRN_REQUIRES(mutex_);
  void give_slot_up(Entry& entry) noexcept CAIRN_REQUIRES(mutex_);
  void doom(std::unique_ptr<Wipe> wipe) noexcept CAIRN_REQUIRES(mutex_);
  void forget_if_empty(Entry& entry) noexcept CAIRN_REQUIRES(mutex_);
  void wake();
  [[nodiscard]] Slab& slab(SlabId id) noexcept CAIRN_REQUIRES(mutex_) { return slabs_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const Slab& slab(SlabId id) const noexcept CAIRN_REQUIRES(mutex_) {
    return slabs_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::uint64_t held_bytes() const noexcept CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::string validate_entries() const CAIRN_REQUIRES(mutex_);

  // ---- The start (file_store_start.cc) ----

  void take_over(Recovery recovery) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool punch_free_slots();

  // ---- The thread: what begins (file_store_run.cc) ----

  void run();
  [[nodiscard]] bool begin_something();
  [[nodiscard]] bool begin_read();
  [[nodiscard]] bool begin_wipe();
  [[nodiscard]] bool begin_put();
  [[nodiscard]] bool begin_sync();
  void submit(std::unique_ptr<Job> job);
  void submit_rest(std::size_t token);  // of what is not done
  [[nodiscard]] std::chrono::milliseconds wait_at_most() const;
  [[nodiscard]] bool is_over() const;
  void give_up_everything();
  void make_calls();

  [[nodiscard]] std::shared_ptr<Put> next_put() CAIRN_REQUIRES(mutex_);
  enum class Space { kFound, kGrow, kWait, kNone };
  [[nodiscard]] Space find_slot(SlabId id, std::uint32_t& slot) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t coming_bytes() const noexcept CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Entry* victim() noexcept CAIRN_REQUIRES(mutex_);
  void evict(Entry& entry) noexcept CAIRN_REQUIRES(mutex_);
  void grow(SlabId id);
  [[nodiscard]] bool is_anything_under_way() const;

  // ---- The thread: what ends (file_store_end.cc) ----

  void complete(const IoResult& result);
  void complete_read(Job& job, int error);
  void complete_write(Job& job, int error);
  void complete_wipe(Job& job, int error);
  void complete_sync(Job& job, int error);
  void expire();
  void expire_job(Job& job);
  [[nodiscard]] bool is_the_record(const Job& job) const;
  void end_write(Job& job, int error) CAIRN_REQUIRES(mutex_);
  void end_put(const std::shared_ptr<Put>& put, bool stored) CAIRN_REQUIRES(mutex_);
  void fail_put(const std::shared_ptr<Put>& put) CAIRN_REQUIRES(mutex_);
  void end_read(Read& read, GetResult result) CAIRN_REQUIRES(mutex_);
  void lose_slot(Entry& entry) noexcept CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool end_flush_if_done(const std::shared_ptr<Flush>& flush) CAIRN_REQUIRES(mutex_);
  void degrade(SlabId id, const std::string& what, int error) CAIRN_REQUIRES(mutex_);
  void fail_queued_puts() CAIRN_REQUIRES(mutex_);

  const FileStoreOptions options_;
  const std::unique_ptr<StoreDirectory> directory_;
  const std::uint64_t slab_bytes_max_;
  std::unique_ptr<AsyncIo> io_;  // the thread's, but for wake(); taken away with mutex_ locked

  mutable Mutex mutex_;
  IdMap<std::unique_ptr<Entry>> entries_ CAIRN_GUARDED_BY(mutex_);
  Lru lru_ CAIRN_GUARDED_BY(mutex_);                  // all entries
  std::size_t resting_ CAIRN_GUARDED_BY(mutex_) = 0;  // entries with a slot
  std::array<Slab, kSlabs> slabs_ CAIRN_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Put>> puts_ CAIRN_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Read>> reads_ CAIRN_GUARDED_BY(mutex_);        // to begin
  std::deque<std::shared_ptr<Read>> timed_reads_ CAIRN_GUARDED_BY(mutex_);  // by deadline
  std::deque<std::shared_ptr<Flush>> flushes_ CAIRN_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Wipe>> doomed_ CAIRN_GUARDED_BY(mutex_);        // room for every entry's
  std::vector<std::unique_ptr<Wipe>> failed_wipes_ CAIRN_GUARDED_BY(mutex_);  // to be tried again
  std::uint64_t doomed_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t growing_slots_ CAIRN_GUARDED_BY(mutex_) = 0;  // between grow() and grown()
  std::size_t wipes_under_way_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t wiping_bytes_ CAIRN_GUARDED_BY(mutex_) = 0;  // of those that have not expired
  std::size_t writes_under_way_ CAIRN_GUARDED_BY(mutex_) = 0;
  Tickets tickets_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t last_ticket_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_writes_ CAIRN_GUARDED_BY(mutex_) = 0;
  IdSet lost_ CAIRN_GUARDED_BY(mutex_);  // room for every entry's key
  std::vector<Recovered> recovered_ CAIRN_GUARDED_BY(mutex_);
  SpillStats counted_ CAIRN_GUARDED_BY(mutex_);  // what is "now" stays as it is, but for these two and `degraded`
  std::size_t pending_puts_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::size_t pending_gets_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool is_probing_ CAIRN_GUARDED_BY(mutex_) = false;
  Clock::time_point retry_at_ CAIRN_GUARDED_BY(mutex_){};         // while degraded, and for failed wipes
  bool is_disk_full_ CAIRN_GUARDED_BY(mutex_) = false;            // no more space until something was punched, or
  Clock::time_point disk_full_until_ CAIRN_GUARDED_BY(mutex_){};  // until then
  bool is_asleep_ CAIRN_GUARDED_BY(mutex_) = false;               // or about to be
  bool is_stopping_ CAIRN_GUARDED_BY(mutex_) = false;
  Clock::time_point stop_at_ CAIRN_GUARDED_BY(mutex_){};
  std::vector<Call> calls_ CAIRN_GUARDED_BY(mutex_);

  // The thread's.
  std::vector<std::unique_ptr<Job>> jobs_;  // by token
  std::vector<std::size_t> free_tokens_;
  std::uint64_t last_generation_ = 0;
  std::size_t turn_ = 0;
  Clock::time_point last_progress_{};  // of writes and wipes

  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_TIER_FILE_STORE_H_
