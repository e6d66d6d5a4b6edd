// The snapshots: where each lies on the trie, who may see it, in which order they are evicted.
//
// A snapshot of n tokens hangs at the block boundary floor(n / block_size) of the trie, by an anchor that keeps the
// tokens up to there, and holds the remaining tokens (fewer than a block: its residual) itself. Boundaries never
// move, so neither does a snapshot, whatever happens to the blocks.
//
// The deepest visible snapshot on a path is found from the path's end upwards, one edge at a time. For each edge the
// snapshots are ordered by depth in lanes, so that those of other sessions are never looked at:
//   lane "any session"  every snapshot but tails: for lookups without a session, or if snapshots are shared
//   lane of session s   those of session s but its tail; session 0 is the lane that all see
// A session's tail is unique, so the table of sessions says where it is. Several snapshots can share a boundary and
// differ in their residual; the one that agrees with the looked-up tokens is found by hash, one probe per length.
//
// Which one is evicted is the policy's choice (policy/snapshot_policy.h), which hears of each that comes, is used, is
// pinned and goes. Where the policy wants to know what a snapshot saves, each knows how deep the deepest one above it
// lies that all who see it see as well, and is told when that changes (snapshot_edges.h).
//
// A pinned snapshot is passed over by eviction. One that is removed while it is pinned is gone as far as anybody can
// see, but its record stays, and its slot stays taken, until the last unpin.
//
// Threads: read in commits and by writers; changed by writers with the gate closed (the first argument shows it), and
// by stamp(), pin() and unpin(), which readers call one at a time (Index's lock). What may allocate says so and gives
// the strong guarantee; all else never throws.
#ifndef CAIRN_INDEX_SNAPSHOT_TABLE_H_
#define CAIRN_INDEX_SNAPSHOT_TABLE_H_

#include <array>
#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/containers.h"
#include "cairn/prefix_cache.h"
#include "cairn/radix_tree.h"
#include "index/block_trie.h"
#include "index/snapshot_edges.h"
#include "policy/snapshot_policy.h"

namespace cairn {

using SnapshotKind = StoredSnapshot::Kind;

class SnapshotTable {
 public:
  using Index = std::uint32_t;  // of a snapshot in this table
  static constexpr Index kNone = 0xFFFFFFFF;

  // A snapshot's place in a lane. It lies in the snapshot, which does not move.
  struct LaneNode : boost::intrusive::set_base_hook<boost::intrusive::optimize_size<true>> {
    std::size_t tokens = 0;  // a lane is ordered by depth
    Index index = kNone;
  };
  struct Snapshot {
    Position at;
    std::vector<TokenId> residual;
    AdapterId adapter_id = 0;
    std::size_t tokens = 0;  // depth
    SessionHash session = 0;
    Stamp stamp = 0;
    std::uint64_t place_hash = 0;
    SnapshotKind kind = SnapshotKind::kPlain;
    bool live = false;
    bool resident = false;
    std::uint32_t pins = 0;
    SnapshotId slot = 0;                 // if resident
    TierKey key = 0;                     // if spilled
    std::array<LaneNode, 2> lane_nodes;  // in its session's lane and in that for any; not used by a tail
    std::uint64_t use_number = 0;        // its last use was the n-th of any snapshot
    // If the policy wants savings.
    SnapshotEdges::Node on_edge;
    std::size_t above_tokens = 0;
    Index next_free = kNone;
  };

  SnapshotTable(BlockTrie& trie, Gate& gate, std::uint64_t hash_seed, const RadixTreeOptions& options);
  SnapshotTable(const SnapshotTable&) = delete;
  SnapshotTable& operator=(const SnapshotTable&) = delete;

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const Snapshot& operator[](Index index) const { return snapshots_[index]; }
  // By a resident snapshot, or by one that is gone and still pinned.
  [[nodiscard]] bool is_taken(SnapshotId slot) const { return by_slot_.contains(slot); }
  // Of those that are resident, as the policy reckons them.
  [[nodiscard]] std::size_t resident_bytes() const { return resident_bytes_; }
  // With a pin, whether in the cache or gone.
  [[nodiscard]] std::size_t pinned_count() const { return pinned_; }

  // ---- Finding ----

  // The deepest snapshot on `tokens` above or at `at`, of at most `max_tokens` tokens, that `session` may see. `at`
  // is where a walk of `tokens` ended, also if that is deeper than max_tokens.
  struct Query {
    std::span<const TokenId> tokens;
    std::size_t max_tokens = 0;
    SessionHash session = 0;
    AdapterId adapter_id = 0;
    bool resident_only = false;
  };
  // O(log snapshots) for each edge, and for each spilled one that is passed over.
  [[nodiscard]] Index find_deepest(Position at, const Query& query) const;
  // A lookup of session `by` returns it.
  void use(Index index, Stamp now, SessionHash by) noexcept;

  // ---- Pinning ----

  void pin(Index index) noexcept;  // a resident one
  // False if the snapshot is gone: then a writer has to drop the pin.
  [[nodiscard]] bool unpin(Index index) noexcept;
  // The slot, if this was the last pin of a snapshot that is gone.
  std::optional<SnapshotId> unpin_gone(const Gate::Closed&, Index index) noexcept;

  // ---- Putting ----

  // A snapshot that is ready to be put but not yet seen. Making one allocates; putting it does not.
  class Pending {
   public:
    Pending() = default;
    Pending(Pending&&) = default;
    Pending& operator=(Pending&&) = default;

   private:
    friend class SnapshotTable;
    Snapshot snapshot_;
  };
  struct Put {
    std::span<const TokenId> tokens;
    SnapshotKind kind = SnapshotKind::kPlain;
    SessionHash session = 0;
    SnapshotId slot = 0;
    AdapterId adapter_id = 0;
  };
  // Keeps the tokens of the path in the trie; the caller then puts it, or gives it up. Closes the gate. Allocates.
  [[nodiscard]] Pending prepare(const Put& put);
  void give_up(const Gate::Closed&, Pending pending) noexcept;
  // Returns the slot of the snapshot that was at this place, if it was resident and not pinned.
  std::optional<SnapshotId> put(const Gate::Closed&, Pending pending, Stamp now, RadixTreeCounters& counters) noexcept;

  // ---- Sessions ----

  [[nodiscard]] bool has_tail(SessionHash session) const;
  [[nodiscard]] bool has_sibling(SessionHash session) const;
  // Removes the session's tail and sibling; `slots`, with room for two, gets their slots.
  void sweep_session(const Gate::Closed&, SessionHash session, std::vector<SnapshotId>& slots,
                     RadixTreeCounters& counters) noexcept;

  // ---- Eviction, spilling ----

  // The policy's choice among the resident ones without a pin, or kNone. To be evicted: removed or spilled.
  [[nodiscard]] Index victim(const Gate::Closed&) noexcept;
  // Returns its slot, if it was resident and has no pin.
  std::optional<SnapshotId> remove(const Gate::Closed&, Index index) noexcept;
  void reserve_spill() { make_room(by_key_, 1); }  // before the victim is chosen; allocates
  TierKey spill(const Gate::Closed&, Index index) noexcept;
  [[nodiscard]] Index find_key(TierKey key) const;
  void promote(const Gate::Closed&, Index index, SnapshotId slot);  // allocates
  // One that was spilled before the process started, under a key that no other snapshot has. Its tokens follow those
  // of `parent`, which is the top if they are as many as a block or more. False, and nothing changes, if there is one
  // at this place, or if the session has one of its kind. Closes the gate. Allocates.
  bool add_spilled(Position parent, const StoredSnapshot& stored, Stamp now);
  [[nodiscard]] std::vector<TierKey> take_orphaned(const Gate::Closed&) noexcept {
    return std::exchange(orphaned_, {});
  }

  // Everything of one adapter, or of all. `out` has to have room (reserve_cleared). Keys that die are no orphans.
  void reserve_cleared(std::optional<AdapterId> adapter_id, Cleared& out) const;
  void clear(const Gate::Closed&, std::optional<AdapterId> adapter_id, Cleared& out) noexcept;

  // Empty, or what is wrong; adds the anchors it holds to `anchors`. Allocates.
  [[nodiscard]] std::string validate(const Gate::Closed&, BlockTrie::AnchorCounts& anchors) const;

 private:
  struct Session {
    Index tail = kNone;
    Index sibling = kNone;
  };

  // Does not move what it holds, since lanes point into it, and never shrinks.
  class Snapshots {
   public:
    Snapshot& operator[](Index index) { return chunks_[index / kChunk][index % kChunk]; }
    const Snapshot& operator[](Index index) const { return chunks_[index / kChunk][index % kChunk]; }
    [[nodiscard]] Index size() const { return size_; }
    // Returns the index of one more. Throws std::bad_alloc.
    Index add();

   private:
    static constexpr std::size_t kChunk = 256;
    std::vector<std::unique_ptr<Snapshot[]>> chunks_;
    Index size_ = 0;
  };

  struct LaneKey {
    EdgeId edge = kTop;
    std::uint32_t any_session = 0;  // 1 if so; as wide as that, the key has no padding and its bytes can be hashed
    AdapterId adapter_id = 0;       // below the top, the edge says which
    SessionHash session = 0;        // 0 if any_session

    friend bool operator==(const LaneKey&, const LaneKey&) = default;
  };
  struct LaneHash {
    using is_avalanching = void;
    std::uint64_t seed = 0;
    std::size_t operator()(const LaneKey& key) const noexcept;
  };
  struct Depth {
    using type = std::size_t;
    const type& operator()(const LaneNode& node) const { return node.tokens; }
  };
  using Lane = boost::intrusive::multiset<LaneNode, boost::intrusive::key_of_value<Depth>,
                                          boost::intrusive::constant_time_size<false>>;

  // The table of places is a set of snapshots, found by position and residual.
  struct PlaceKey {
    Position at;
    AdapterId adapter_id = 0;
    std::span<const TokenId> residual;
    std::uint64_t hash = 0;
  };
  struct PlaceHash {
    using is_transparent = void;
    using is_avalanching = void;
    const Snapshots* snapshots = nullptr;
    std::size_t operator()(Index index) const { return (*snapshots)[index].place_hash; }
    std::size_t operator()(const PlaceKey& key) const { return key.hash; }
  };
  struct PlaceEqual {
    using is_transparent = void;
    const Snapshots* snapshots = nullptr;
    bool operator()(Index a, Index b) const { return a == b; }
    bool operator()(Index index, const PlaceKey& key) const;
    bool operator()(const PlaceKey& key, Index index) const { return (*this)(index, key); }
  };

  [[nodiscard]] PlaceKey place_key(Position at, AdapterId adapter_id, std::span<const TokenId> residual) const;
  [[nodiscard]] Index find_place(Position at, AdapterId adapter_id, std::span<const TokenId> residual) const;
  [[nodiscard]] Index deeper(Index a, Index b) const;
  [[nodiscard]] Index deepest_in_lane(Position at, const LaneKey& key, const Query& query) const;
  [[nodiscard]] static const LaneNode* last_in_lane(const Lane& lane, std::size_t max_tokens);
  [[nodiscard]] Index tail_on(Position at, const Query& query) const;
  [[nodiscard]] std::size_t block_size() const { return trie_.block_size(); }
  [[nodiscard]] std::size_t boundary_tokens(Position at) const { return trie_.depth(at) * block_size(); }
  [[nodiscard]] static LaneKey lane_of(const Snapshot& snapshot, bool any_session);

  void make_room_for_one();
  void enter(Index index) noexcept;
  void enter_lanes(Index index) noexcept;
  void leave_lanes(Snapshot& snapshot) noexcept;
  // Removes it as remove() does; the key of a spilled one becomes an orphan, for which there is room.
  std::optional<SnapshotId> displace(const Gate::Closed&, Index index, RadixTreeCounters& counters) noexcept;
  void leave_session(Index index) noexcept;
  void hold_edge(Position at);
  void become_resident(Index index) noexcept;
  void cease_to_be_resident(Index index) noexcept;
  // What savings depend on; nothing if the policy doesn't want them.
  void join_those_above(Index index) noexcept;
  void leave_those_below(Index index) noexcept;
  void reckon_below(const Snapshot& snapshot) noexcept;
  [[nodiscard]] std::size_t deepest_above(const Snapshot& snapshot) const;
  [[nodiscard]] std::size_t deepest_above_in_lane(Position at, const LaneKey& key, std::size_t tokens) const;
  [[nodiscard]] bool seen_by_all(const Snapshot& snapshot) const {
    return snapshot.kind != SnapshotKind::kTail && (shared_ || snapshot.session == 0);
  }
  void drop_pin(Snapshot& snapshot) noexcept;
  void free_record(Index index) noexcept;

  BlockTrie& trie_;
  Gate& gate_;
  const std::uint64_t hash_seed_;
  const bool shared_;
  Snapshots snapshots_;
  Index first_free_ = kNone;
  std::size_t size_ = 0;
  boost::unordered_flat_set<Index, PlaceHash, PlaceEqual> places_;
  boost::unordered_flat_map<LaneKey, Lane, LaneHash> lanes_;  // none is empty
  IdMap<Session> sessions_;
  IdMap<Index> by_slot_;  // resident ones, and those gone and pinned
  IdMap<Index> by_key_;
  std::unique_ptr<SnapshotPolicy> policy_;
  std::unique_ptr<SnapshotEdges> edges_;  // null unless the policy wants savings
  const std::size_t bytes_each_;
  std::size_t resident_bytes_ = 0;
  std::uint64_t uses_ = 0;  // puts, and lookups that returned one
  std::size_t pinned_ = 0;
  std::vector<TierKey> orphaned_;
};

}  // namespace cairn

#endif  // CAIRN_INDEX_SNAPSHOT_TABLE_H_
