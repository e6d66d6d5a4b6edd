#include "history/play.h"

#include <array>

#include "history/checker.h"

namespace cairn::testing {
namespace {

RadixTreeOptions options_of(std::uint64_t seed) {
  constexpr std::array<std::size_t, 3> kBlockSizes = {1, 2, 16};
  Random random(seed);
  RadixTreeOptions options;
  options.block_size = kBlockSizes[random.below(kBlockSizes.size())];
  options.share_snapshots_across_sessions = random.one_in(4);
  return options;
}

}  // namespace

std::span<const Mix> all_mixes() {
  using enum Deed;
  static const std::vector<Mix> mixes = {
      {"Blocks",
       {{kLookup, 6}, {kInsert, 3}, {kInsertMore, 4}, {kPublish, 2}, {kRelease, 5}, {kPeek, 1}, {kEvict, 5}}},
      {"ReadersAndEvictions", {{kLookup, 8}, {kPublish, 3}, {kRelease, 3}, {kPeek, 3}, {kEvict, 6}, {kWatch, 2}}},
      {"Handles",
       {{kAcquire, 6}, {kExtend, 5}, {kTruncate, 3}, {kRelease, 4}, {kLookup, 2}, {kPublish, 1}, {kEvict, 4}}},
      {"Snapshots",
       {{kPutPlain, 5},
        {kPutTail, 2},
        {kPutSibling, 1},
        {kInsertWithSnapshot, 3},
        {kFindSnapshot, 5},
        {kLookup, 5},
        {kAcquire, 2},
        {kPublish, 2},
        {kEvict, 2},
        {kEvictSnapshot, 2},
        {kWatch, 1}},
       true},
      {"Pins",
       {{kPutPlain, 6},
        {kPutTail, 2},
        {kPutSibling, 1},
        {kAcquirePinned, 4},
        {kFindPinned, 5},
        {kUnpin, 6},
        {kPublish, 2},
        {kEvictSnapshot, 4},
        {kSpill, 1},
        {kClearAll, 1},
        {kWatch, 1}},
       true},
      {"Tiers",
       {{kPutPlain, 4},
        {kPutTail, 2},
        {kPutSibling, 2},
        {kFindSnapshot, 3},
        {kLookup, 3},
        {kPublish, 2},
        {kSpill, 5},
        {kPromote, 3},
        {kForget, 2},
        {kTakeOrphans, 2},
        {kEvictSnapshot, 1}},
       true},
      {"StoredBlocks",
       {{kAcquirePinned, 7},
        {kExtend, 4},
        {kPublish, 4},
        {kRelease, 4},
        {kEvictToStore, 6},
        {kEvict, 2},
        {kForgetKey, 3},
        {kPutPlain, 1},
        {kSpill, 1},
        {kClearAll, 1}},
       false,
       true},
      {"Clears",
       {{kLookup, 5},
        {kInsert, 2},
        {kInsertMore, 2},
        {kPublish, 3},
        {kRelease, 3},
        {kAcquire, 2},
        {kExtend, 2},
        {kEvict, 1},
        {kPutPlain, 2},
        {kFindSnapshot, 1},
        {kWatch, 2},
        {kClearAdapter, 2},
        {kClearAll, 1}},
       true,
       true},
  };
  return mixes;
}

// ---- Actor ----

Actor::Actor(Stage& stage, std::size_t thread, std::uint64_t seed, const Mix& mix)
    : random_(seed), mix_(mix), caller_(stage, thread, {.epochs = mix.clears, .disk_blocks = random_.one_in(3)}) {}

std::string Actor::word() {
  std::string word = "a";
  while (word.size() < 4 && !random_.one_in(3)) word += random_.one_in(4) ? 'b' : 'a';
  if (random_.one_in(8)) word[0] = 'b';
  return word;
}

Deed Actor::choose() {
  std::size_t weight_of_all = 0;
  for (const auto& [deed, weight] : mix_.weights) weight_of_all += weight;
  std::size_t at = random_.below(weight_of_all);
  for (const auto& [deed, weight] : mix_.weights) {
    if (at < weight) return deed;
    at -= weight;
  }
  return Deed::kPeek;
}

void Actor::act(std::size_t deeds) {
  while (deeds-- > 0) {
    const Deed deed = choose();
    if (deed <= Deed::kTruncate) {
      use_blocks(deed);
    } else if (deed <= Deed::kTakeOrphans) {
      use_snapshots(deed);
    } else {
      manage(deed);
    }
  }
}

void Actor::use_blocks(Deed deed) {
  const std::size_t sequences = caller_.sequences();
  const std::size_t handles = caller_.handles();
  if (deed == Deed::kInsertMore && sequences > 0) return caller_.insert_more(random_.below(sequences), more());
  if (deed == Deed::kRelease && sequences + handles > 0) {
    const std::size_t which = random_.below(sequences + handles);
    return which < sequences ? caller_.release(which) : caller_.release_handle(which - sequences);
  }
  if (deed == Deed::kExtend && handles > 0) return caller_.extend(random_.below(handles), more());
  if (deed == Deed::kTruncate && handles > 0) return caller_.truncate(random_.below(handles), random_.below(4));
  if (deed == Deed::kPublish) return caller_.publish(word(), adapter());
  if (deed == Deed::kInsert) return caller_.insert(word(), adapter());
  if (deed >= Deed::kAcquire && caller_.can_acquire()) return caller_.acquire(word(), adapter(), session());
  caller_.lookup(word(), adapter(), session());
}

void Actor::use_snapshots(Deed deed) {
  switch (deed) {
    case Deed::kPutPlain:
      return caller_.put(CallKind::kPutPlain, snapshot_word(), session(), adapter());
    case Deed::kPutTail:
      return caller_.put(CallKind::kPutTail, snapshot_word(), session(), adapter());
    case Deed::kPutSibling:
      return caller_.put(CallKind::kPutSibling, snapshot_word(), session(), adapter());
    case Deed::kInsertWithSnapshot:
      if (caller_.sequences() == 0) caller_.insert(word(), adapter());
      if (caller_.sequences() == 0) return;  // the epoch had passed
      return caller_.insert_with_snapshot(random_.below(caller_.sequences()), "a" + more(), session());
    case Deed::kFindSnapshot:
      return caller_.find_snapshot(snapshot_word(), session(), adapter());
    case Deed::kAcquirePinned:
    case Deed::kFindPinned:
      if (!caller_.can_acquire()) return;
      if (deed == Deed::kFindPinned) return caller_.find_pinned(snapshot_word(), session());
      return caller_.acquire_pinned(word(), random_.below(100));
    case Deed::kUnpin:
      if (caller_.pins() > 0) caller_.unpin(random_.below(caller_.pins()));
      return;
    case Deed::kEvictSnapshot:
      caller_.simple(CallKind::kEvictSnapshot);
      return;
    case Deed::kSpill:
      return caller_.evict_snapshot_to_tier(random_.below(6));
    case Deed::kPromote:
      return caller_.promote(key());
    case Deed::kForget:
      return caller_.forget(key());
    default:
      caller_.simple(CallKind::kTakeOrphans);
  }
}

void Actor::manage(Deed deed) {
  constexpr std::array kWatched = {CallKind::kCachedBlocks, CallKind::kSnapshotCount, CallKind::kEpoch,
                                   CallKind::kCounters};
  constexpr std::array<std::size_t, 5> kBlocks = {1, 1, 2, 3, 100};
  switch (deed) {
    case Deed::kPeek:
      return caller_.peek(word(), adapter());
    case Deed::kEvict:
      caller_.evict(kBlocks[random_.below(kBlocks.size())]);
      return;
    case Deed::kEvictToStore:
      return caller_.evict_blocks_to_tier(kBlocks[random_.below(kBlocks.size())]);
    case Deed::kForgetKey:
      return caller_.forget_key(key());
    case Deed::kClearAdapter:
      caller_.simple(CallKind::kClearAdapter, adapter());
      return;
    case Deed::kClearAll:
      caller_.simple(CallKind::kClearAll);
      return;
    default:
      caller_.simple(kWatched[random_.below(kWatched.size())]);
  }
}

// ---- Play ----

std::string text_of(const Tally& tally) {
  return std::to_string(tally.histories) + " histories, " + std::to_string(tally.calls) + " calls, " +
         std::to_string(tally.overlapping) + " histories with calls that overlap, " + std::to_string(tally.steps) +
         " calls of the model";
}

Play::Play(std::uint64_t seed, std::size_t threads, const Mix& mix) : stage_(options_of(seed)) {
  constexpr std::size_t kDeedsBefore = 4;
  Random random(seed + 1);
  deeds_ = 2 + random.below(threads == 2 ? 4 : 2);
  for (std::size_t i = 0; i <= threads; ++i) {
    actors_.push_back(std::make_unique<Actor>(stage_, i, seed * (kThreadsMax + 1) + i, mix));
  }
  actors_.back()->act(random.below(kDeedsBefore + 1));
}

std::string Play::check(Tally& tally) {
  std::vector<Caller*> callers;
  callers.reserve(actors_.size());
  for (const auto& actor : actors_) callers.push_back(&actor->caller());
  return check_history(stage_, callers, tally);
}

std::string check_history(Stage& stage, std::span<Caller* const> callers, Tally& tally) {
  const std::string wrong = stage.tree.validate();
  const History history = finish(stage, callers);
  const std::string wrong_at_end = stage.tree.validate();
  const Verdict verdict = explain(history);
  ++tally.histories;
  tally.calls += history.calls.size();
  tally.steps += verdict.steps;
  tally.overlapping += any_overlap(history) ? 1 : 0;
  std::string complaint = verdict.complaint;
  if (!wrong.empty()) complaint += "validate() after the threads: " + wrong + '\n';
  if (!wrong_at_end.empty()) complaint += "validate() at the end: " + wrong_at_end + '\n';
  return complaint;
}

}  // namespace cairn::testing
