// How threads share the index. docs/concurrency.md tells the whole protocol; in short:
//
//   A reader (lookup, release, find_snapshot) walks the trie without any lock, reading what writers may be changing,
//   then *commits*: within a few nanoseconds, in which no writer changes anything, it checks that its walk still
//   stands and leaves its use and stamp. If the walk does not stand, it walks again.
//
//   A writer (insert, evict, puts, clears; one at a time, under Index's mutex) prepares beside the readers, then
//   closes the gate: it waits until no commit is under way, links or unlinks, and opens the gate again. A reader
//   that wants to commit meanwhile waits for that.
//
//   Memory that a walk may still be reading is retired, and freed when the readers of that time have left.
#ifndef CAIRN_INDEX_GATE_H_
#define CAIRN_INDEX_GATE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/containers.h"
#include "base/mutex.h"
#include "base/spin.h"

namespace cairn {

// Invariants:
//   - A slot belongs to at most one reader; its word is 0 when free, else epoch << 1 | committing.
//   - While the gate is closed, no slot is committing (but for a moment, in a reader that backs out).
//   - Memory retired in epoch e is freed only when no slot holds an epoch <= e.
// Orders: a reader publishes its word and then looks at the gate; a writer closes the gate and then looks at the
// words. Both with sequentially consistent operations, so one of the two sees the other.
class CAIRN_CAPABILITY("gate") Gate {
 public:
  // Counts that a reader keeps in its slot, so that readers don't share a cache line. Written in commits only.
  struct ReaderCounters {
    std::uint64_t lookups = 0;
    std::uint64_t hit_tokens = 0;
    std::uint64_t missed_tokens = 0;
    std::uint64_t protocol_errors = 0;
  };

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> word{0};
    ReaderCounters counters;
  };

 public:
  // A reader's presence: what it reaches from the trie is not freed while this lives. One for each call.
  class Reader {
   public:
    explicit Reader(Gate& gate);
    ~Reader() { slot_.word.store(0, std::memory_order_release); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

   private:
    friend class Gate;
    Slot& slot_;
    std::uint64_t epoch_;
  };

  // Shared: writers are out as long as it lives. For nanoseconds: writers wait for it.
  class CAIRN_SCOPED_CAPABILITY Commit {
   public:
    Commit(Gate& gate, Reader& reader) CAIRN_ACQUIRE_SHARED(gate);
    ~Commit() CAIRN_RELEASE() { reader_.slot_.word.store(reader_.epoch_ << 1, std::memory_order_release); }
    Commit(const Commit&) = delete;
    Commit& operator=(const Commit&) = delete;

    [[nodiscard]] ReaderCounters& counters() { return reader_.slot_.counters; }

   private:
    Reader& reader_;
  };

  // Exclusive: no commit runs as long as it lives. One writer at a time (Index's mutex).
  class CAIRN_SCOPED_CAPABILITY Closed {
   public:
    explicit Closed(Gate& gate) CAIRN_ACQUIRE(gate);
    ~Closed() CAIRN_RELEASE() { gate_.closed_.store(false, std::memory_order_release); }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    Gate& gate_;
  };

  // ---- Memory that readers may still be reading; by writers ----

  // Makes sure that the retires of one step don't allocate. Throws std::bad_alloc.
  void prepare_retire() { make_room(retired_, kRetiresOfAStep); }
  // Frees `memory` once no reader can be reading it any more.
  template <class T>
  void retire(std::unique_ptr<T[]> memory) noexcept {
    if (!memory) return;
    CAIRN_CHECK(retired_.size() < retired_.capacity());
    retired_.push_back(
        {epoch(), {static_cast<void*>(memory.release()), [](void* p) { delete[] static_cast<T*>(p); }}});
  }
  // What is unlinked now can be reused when reclaim() answers more than this.
  [[nodiscard]] std::uint64_t epoch() const noexcept {
    return epoch_.load(std::memory_order_relaxed);  // only writers change it
  }
  [[nodiscard]] bool has_retired() const noexcept { return !retired_.empty(); }
  // With the gate open: frees what can be freed and returns the epoch before which nobody reads.
  std::uint64_t reclaim() noexcept;

  // The sum over all readers, with the gate closed.
  [[nodiscard]] ReaderCounters counters() const CAIRN_REQUIRES(*this);

 private:
  using Memory = std::unique_ptr<void, void (*)(void*)>;
  struct Retired {
    std::uint64_t epoch;
    Memory memory;
  };

  Slot& claim_slot() noexcept;

  static constexpr std::size_t kNumSlots = 128;
  static constexpr std::size_t kRetiresOfAStep = 8;
  std::array<Slot, kNumSlots> slots_;
  alignas(64) std::atomic<std::size_t> slots_used_{0};  // slots from here on were never claimed
  std::atomic<std::uint64_t> epoch_{1};
  std::atomic<bool> closed_{false};
  alignas(64) std::vector<Retired> retired_;  // writers only; in order of epoch
};

}  // namespace cairn

#endif  // CAIRN_INDEX_GATE_H_
