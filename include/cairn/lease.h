// Lease: everything that one sequence holds in the cache, from admit to its end.
//
//     auto admission = manager.admit({.tokens = prompt, .session = session});
//     if (!admission.lease) wait_for(admission.missing_blocks);            // nothing is held, nothing was counted
//     Lease& lease = *admission.lease;
//     if (lease.state() == LeaseState::kLoading) poll(lease.event_fd());   // with a store: or go on with others
//     if (auto state = lease.restore_point()) read_slot(state->slot);      // models with recurrent layers
//     for (const BlockCopy& copy : lease.copies()) copy_block(copy);
//     lease.restored();
//     lease.writes(step, lease.first_token_to_compute(), prompt.size());   // submit the step with lease.block_table()
//     manager.step_done(step);                                             // for every lease that took part in it
//     lease.append(sampled);                                               // decode: one token, its step, and so on
//     lease.finish();                                                      // publishes what is written; the rest goes
//     back
//
// Whatever else happens, dropping the lease abandons it: what was not published never is, and all it holds goes back.
//
// What a step does is declared by writes(). Until CacheManager::step_done or step_failed is called for it, no block
// that it may read or write and no slot that it may fill is reused, also if the lease has ended meanwhile. What the
// engine does outside of declared steps (reading the slot, copying blocks, filling a slot on another queue) must be
// over before the lease ends.
//
// While a lease that admit has answered is loading, memory is being filled from a store. It can be looked at,
// reserve() more, and end; other calls throw std::invalid_argument. What it shows is what it had without the store:
// when the loading is over, what came has been added, and capture_points() are there. What did not come is computed.
//
// Threads: a lease belongs to one thread at a time; different leases to any. A lease may outlive its manager: its
// calls do no harm, but nobody reports steps any more, so they count as done when they are declared, and nothing is
// published.
#ifndef CAIRN_LEASE_H_
#define CAIRN_LEASE_H_

#include <cairn/explanation.h>
#include <cairn/prefix_cache.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>

namespace cairn {

// Names a step of the engine: one submission to its device, for a batch of sequences. Any number that no other step
// in flight has.
using StepId = std::uint64_t;

// Where the state that the sequence goes on from lies.
struct RestorePoint {
  SnapshotId slot = 0;     // pinned until restored()
  std::size_t tokens = 0;  // that the state has consumed
};

// Whether what the sequence goes on from has come where the engine wants it.
enum class LeaseState {
  kReady,    // nothing is under way
  kLoading,  // it is being fetched from a store, or a copy of load_state is under way
  // A copy of load_state has failed; or a fetch has, and the blocks to compute in its place could not be had. Abandon
  // the lease and admit the request again, without reuse or with less.
  kFailed,
};

// To be done before the first step: the first `tokens` tokens of block `from` into block `to`.
struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
  std::size_t tokens = 0;
};

enum class CaptureKind {
  kTail,         // where this session's next turn goes on
  kTailSibling,  // one block below, should the next turn differ in the last block
  kBranchPoint,  // where other requests have parted from this prompt
  kSharedTail,   // where a tail would be, of a request without a session: for everybody
  kCheckpoint,   // every so many tokens, or wherever the engine likes
  kLastToken,    // the end of the prompt; or wherever the engine likes beyond it
};

// Where a state is worth keeping. The engine may decline any.
struct CapturePoint {
  std::size_t tokens = 0;  // that the state has to have consumed
  CaptureKind kind = CaptureKind::kCheckpoint;
};

class Lease {
 public:
  Lease() noexcept;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;  // abandons what it held
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();  // abandons; never waits for a step or for I/O

  // False if default-constructed, moved from, or ended by finish, preempt or abandon. All but the moves, valid(),
  // finish, preempt and abandon throw std::invalid_argument then. Calls that allocate may throw std::bad_alloc; they
  // change nothing then, and the lease goes on.
  [[nodiscard]] bool valid() const noexcept { return body_ != nullptr; }

  // ---- What is there ----

  // The blocks of the sequence in order, for tokens 0 .. block_table().size() * block_size. May change with every call
  // that is not const, and so may the ids in it: publish puts blocks that others computed first in the place of the
  // lease's own. Steps in flight may go on with the old ids. Empty for purely recurrent models.
  [[nodiscard]] std::span<const BlockId> block_table() const;
  // Tokens whose KV was there at admission, in shared blocks and in copies(). 0 for purely recurrent models.
  [[nodiscard]] std::size_t cached_tokens() const;
  // The snapshot to restore, if the model has recurrent layers and one was found.
  [[nodiscard]] std::optional<RestorePoint> restore_point() const;
  [[nodiscard]] std::span<const BlockCopy> copies() const;
  // Begins to copy one shard of the snapshot at restore_point() to `to`, through the snapshot pool's device; returns
  // at once. `to` stays valid until the copy is over, also if the lease ends. The engine may as well read the slot by
  // itself. Throws std::invalid_argument: nothing to restore, or restored() was called; no such shard; the wrong size.
  void load_state(std::size_t shard, std::span<std::byte> to);
  // A lease that has begun no copy and waits for no store is ready.
  [[nodiscard]] LeaseState state() const;
  // For poll and its kin: an eventfd that can be read while state() is not kLoading. The lease owns it; each call
  // answers the same one. Throws std::system_error if the process has no descriptor left.
  [[nodiscard]] int event_fd();
  // What the engine has to compute: everything from this token on. Below the end of the prompt.
  [[nodiscard]] std::size_t first_token_to_compute() const;
  // In ascending order. One may be first_token_to_compute(), where the state is that was just restored. Empty for
  // attention-only models and for requests that publish nothing. A point disappears once its snapshot is published, or
  // can't be any more, if others depend on that: the tail.
  [[nodiscard]] std::span<const CapturePoint> capture_points() const;

  // Where the cached prefix of this request ended, and why. Costs the admission nothing but a few noted numbers: the
  // answer is found when it is asked for, so it speaks of the cache as of this call, and of the admission as of then
  // (LeaseExplanation says which part is which). Best asked before the first publish(): what this lease publishes is
  // not told from what another one does (published_since). A fork answers for the request that it comes from.
  //
  // O(prompt tokens), for each of up to 64 other adapters as far as it has the same tokens, and O(pieces in the
  // cache). Keeps those that publish and evict out for O(prompt tokens), and then for 4096 pieces at a time (some 10
  // microseconds); lookups go on beside it. Changes nothing: no use, no stamp, no count. Throws
  // std::invalid_argument: the lease is loading.
  [[nodiscard]] LeaseExplanation explain() const;

  [[nodiscard]] std::size_t prompt_tokens() const;
  [[nodiscard]] std::size_t tokens() const;            // prompt, decoded and drafted
  [[nodiscard]] std::size_t accepted_tokens() const;   // the same without those drafted and not accepted
  [[nodiscard]] std::size_t written_tokens() const;    // by steps that are done, without a gap; looks at the steps
  [[nodiscard]] std::size_t published_tokens() const;  // in blocks that the cache holds: a multiple of block_size

  // ---- Computing ----

  // The snapshot has been read and the copies are made: lets go of the slot and of the blocks that are copied from.
  // Throws std::invalid_argument while a copy of load_state is under way. Implied by the end of the first step that is
  // done: an engine that puts them before that step on the same device
  // queue need not call it. Later calls are let pass.
  void restored();

  // Step `step` writes the KV (or consumes, for recurrent layers) of tokens [from, to). To be called before the step
  // is submitted. Throws std::invalid_argument: an empty range; a gap (from beyond what earlier steps write); from
  // below published_tokens(), first_token_to_compute() or what was written at the last fork(): what is published or
  // shared is never written again; to beyond tokens(), or beyond the block table (reserve first).
  void writes(StepId step, std::size_t from, std::size_t to);

  // Room for the first `tokens` tokens of the sequence, with what it has: for prefill chunks, decode and lookahead
  // alike. Evicts if it must. Returns how many blocks are missing; then nothing has changed. O(new blocks).
  [[nodiscard]] std::size_t reserve(std::size_t tokens);

  // Decoded tokens. Throws std::invalid_argument: drafted tokens are waiting for accept or truncate; a token of 2^31
  // or more (reserved for media). O(new tokens), amortised.
  void append(std::span<const TokenId> tokens);
  // Speculated tokens: may be written by steps, but are not published until accepted. O(new tokens), amortised.
  void draft(std::span<const TokenId> tokens);
  // The first `tokens` tokens of the sequence are accepted from now on. Throws std::invalid_argument: fewer than are
  // accepted already, or more than there are.
  void accept(std::size_t tokens);
  // Forgets what comes after the first `tokens` tokens: rejected drafts, or decoded ones to be done again. Blocks stay
  // reserved, capture points beyond disappear. Throws std::invalid_argument: below what writes() refuses, or more than
  // there are.
  void truncate(std::size_t tokens);

  // ---- Publishing ----

  // Lets others find what is written and accepted, up to token `tokens` (rounded down to a block). Blocks of the same
  // tokens that somebody else published first take the place of the lease's own, which go back. Returns
  // published_tokens(). O(new blocks).
  std::size_t publish(std::size_t tokens = std::numeric_limits<std::size_t>::max());

  // A slot for the state after exactly `tokens` tokens, to be filled shard by shard (SnapshotPool::write, or by the
  // engine itself at SnapshotPool::data), each shard then reported by captured(). Evicts a snapshot if it must. None:
  // attention-only model, a request that publishes nothing, a place that is being captured already, no slot to be had;
  // go on without. Throws std::invalid_argument: 0 tokens; below first_token_to_compute(); beyond what steps have been
  // declared for, or beyond accepted_tokens().
  [[nodiscard]] std::optional<SnapshotId> capture(std::size_t tokens);
  // Shard `shard` of the slot is complete: its bytes are in the slot, and belong to that token count. True if all
  // shards are in. Then the snapshot is published as soon as the step that produced it is done, a sibling together
  // with its tail: now, or by a later captured(), publish() or finish(). Throws std::invalid_argument: no capture of
  // this lease is in that slot; no such shard, or one reported before; a write into the slot that is not done.
  bool captured(SnapshotId slot, std::size_t shard = 0);
  // Gives up a capture that was begun, after its last write is done. Throws as captured.
  void cancel_capture(SnapshotId slot);

  // ---- Other sequences, and the end ----

  struct Forked;
  // A second sequence with the same tokens: full written blocks are shared, of a partly filled one the copy is named
  // in the child's copies(). The child computes from written_tokens() on, has no capture points, and is not counted as
  // a request. Live recurrent state is the engine's to copy, at that token count. Throws std::invalid_argument:
  // drafted tokens are waiting; restored() is due.
  [[nodiscard]] Forked fork();

  // Publishes all that is written and accepted, and ends the lease.
  void finish();
  // The same, to make room: the request comes back later through admit with all its tokens so far and
  // Request::resumed set, so that it is counted once.
  void preempt();
  // Ends the lease and publishes nothing more.
  void abandon() noexcept;

 private:
  friend class CacheManager;
  class Body;
  friend class ManagerCore;
  explicit Lease(std::unique_ptr<Body> body) noexcept;
  [[nodiscard]] Body& body() const;
  [[nodiscard]] Body& loaded_body(const char* call) const;

  std::unique_ptr<Body> body_;
};

struct Lease::Forked {
  std::optional<Lease> lease;
  std::size_t missing_blocks = 0;  // if there is none: so many blocks could not be had
};

}  // namespace cairn

#endif  // CAIRN_LEASE_H_
