#include "history/caller.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cairn::testing {

std::vector<TokenId> tokens_of(std::string_view word, std::size_t block_size) {
  std::vector<TokenId> tokens;
  for (const char letter : word) {
    const bool is_rest = letter >= '0' && letter <= '9';
    const std::size_t count = is_rest ? static_cast<std::size_t>(letter - '0') : block_size;
    tokens.insert(tokens.end(), count, is_rest ? 1U : static_cast<TokenId>(letter - 'a' + 1));
  }
  return tokens;
}

// ---- Making calls ----

Call Caller::start(CallKind kind, std::vector<TokenId> tokens, AdapterId adapter_id) const {
  Call call;
  call.kind = kind;
  call.thread = thread_;
  call.tokens = std::move(tokens);
  call.adapter_id = adapter_id;
  return call;
}

const Answer& Caller::make(Call call) {
  recorded_.reserve(64);
  before_call();
  call.invoked = stage_.clock.fetch_add(1);
  const std::span<TreeHold> own(holds_);
  Answer answer = perform(call, block_size(), stage_.tree, own);
  call.responded = stage_.clock.fetch_add(1);
  call.hold += thread_ * kHoldsMax;  // from now on, as the history numbers them
  recorded_.push_back({std::move(call), std::move(answer)});
  return recorded_.back().answer;
}

std::optional<std::uint64_t> Caller::epoch_before(AdapterId adapter_id) {
  if (!habits_.epochs) return std::nullopt;
  return std::get<std::uint64_t>(simple(CallKind::kEpoch, adapter_id));
}

void Caller::give_blocks(Call& call) {
  constexpr std::uint32_t kBlocksOfCaller = 1000;
  constexpr std::uint32_t kFirstDiskBlock = 100'000;
  for (std::size_t i = 0; i < call.tokens.size() / block_size(); ++i) {
    const auto block = static_cast<std::uint32_t>(thread_ + 1) * kBlocksOfCaller + ++blocks_given_;
    call.blocks.push_back(block);
    if (habits_.disk_blocks) call.disk_blocks.push_back(block % 2 == 0 ? kFirstDiskBlock + block : kNoDiskBlock);
  }
}

std::vector<Call> Caller::take_calls() {
  std::vector<Call> calls;
  for (Recorded& recorded : recorded_) {
    calls.push_back(std::move(recorded.call));
    calls.back().answer = text_of(std::move(recorded.answer));
  }
  recorded_.clear();
  return calls;
}

// ---- Sequences by tokens ----

void Caller::lookup(std::string_view word, AdapterId adapter_id, SessionHash session) {
  Sequence sequence{tokens_of(word, block_size()), 0, adapter_id, epoch_before(adapter_id)};
  Call call = start(CallKind::kLookup, sequence.tokens, adapter_id);
  call.session = session;
  sequence.held_tokens = std::get<PrefixMatch>(make(std::move(call))).matched_tokens;
  sequences_.push_back(std::move(sequence));
}

void Caller::insert(std::string_view word, AdapterId adapter_id) {
  sequences_.push_back({{}, 0, adapter_id, epoch_before(adapter_id)});
  insert_more(sequences_.size() - 1, word);
}

Call Caller::start_insert(std::size_t index, std::string_view more, CallKind kind) {
  Sequence& sequence = sequences_[index];
  sequence.tokens.resize(sequence.tokens.size() / block_size() * block_size());
  const auto added = tokens_of(more, block_size());
  sequence.tokens.insert(sequence.tokens.end(), added.begin(), added.end());
  Call call = start(kind, sequence.tokens, sequence.adapter_id);
  call.count = sequence.held_tokens;
  call.epoch = sequence.epoch;
  give_blocks(call);
  return call;
}

void Caller::inserted(std::size_t index, std::size_t blocks, bool epoch_passed) {
  if (epoch_passed) {
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  } else {
    sequences_[index].held_tokens = blocks * block_size();
  }
}

void Caller::insert_more(std::size_t index, std::string_view more) {
  Call call = start_insert(index, more, CallKind::kInsert);
  const std::size_t blocks = call.blocks.size();
  inserted(index, blocks, std::get<RadixTree::EpochInsert>(make(std::move(call))).epoch_passed);
}

void Caller::insert_with_snapshot(std::size_t index, std::string_view more, SessionHash session) {
  Call call = start_insert(index, more, CallKind::kInsertWithSnapshot);
  call.session = session;
  call.slot = new_slot();
  const std::size_t blocks = call.blocks.size();
  inserted(index, blocks, std::get<RadixTree::EpochSnapshotInsert>(make(std::move(call))).epoch_passed);
}

void Caller::publish(std::string_view word, AdapterId adapter_id) {
  const auto epoch = epoch_before(adapter_id);
  Call call = start(CallKind::kInsert, tokens_of(word, block_size()), adapter_id);
  call.count = call.tokens.size();
  call.epoch = epoch;
  give_blocks(call);
  make(std::move(call));
}

void Caller::release(std::size_t index) {
  Call call = start(CallKind::kRelease, sequences_[index].tokens, sequences_[index].adapter_id);
  call.count = sequences_[index].held_tokens;
  call.epoch = sequences_[index].epoch;
  sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  make(std::move(call));
}

// ---- Sequences by handle ----

void Caller::acquire(std::string_view word, AdapterId adapter_id, SessionHash session) {
  Call call = start(CallKind::kAcquire, tokens_of(word, block_size()), adapter_id);
  call.session = session;
  call.hold = acquired_++;
  held_.push_back(call.hold);
  make(std::move(call));
}

void Caller::extend(std::size_t index, std::string_view more) {
  Call call = start(CallKind::kExtend, tokens_of(more, block_size()), holds_[held_[index]].handle.adapter_id());
  call.hold = held_[index];
  give_blocks(call);
  make(std::move(call));
}

void Caller::truncate(std::size_t index, std::size_t blocks) {
  Call call = start(CallKind::kTruncate, {}, holds_[held_[index]].handle.adapter_id());
  call.hold = held_[index];
  call.count = std::min(blocks * block_size(), holds_[call.hold].handle.tokens());
  make(std::move(call));
}

void Caller::release_handle(std::size_t index) {
  Call call = start(CallKind::kReleaseHandle, {}, holds_[held_[index]].handle.adapter_id());
  call.hold = held_[index];
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
  make(std::move(call));
}

void Caller::release_all() {
  while (sequences() > 0) release(sequences() - 1);
  while (handles() > 0) release_handle(handles() - 1);
  while (pins() > 0) unpin(pins() - 1);
}

// ---- Pinned snapshots ----

void Caller::acquire_pinned(std::string_view word, std::size_t tokens_max) {
  Call call = start(CallKind::kAcquirePinned, tokens_of(word, block_size()), 0);
  call.count = tokens_max;
  call.hold = acquired_++;
  held_.push_back(call.hold);
  pinned_.push_back(call.hold);
  make(std::move(call));
}

void Caller::find_pinned(std::string_view word, SessionHash session) {
  Call call = start(CallKind::kFindPinned, tokens_of(word, block_size()), 0);
  call.session = session;
  call.count = call.tokens.size();
  call.hold = acquired_++;
  pinned_.push_back(call.hold);
  make(std::move(call));
}

void Caller::unpin(std::size_t index) {
  Call call = start(CallKind::kUnpin, {}, 0);
  call.hold = pinned_[index];
  pinned_.erase(pinned_.begin() + static_cast<std::ptrdiff_t>(index));
  make(std::move(call));
}

// ---- The rest ----

void Caller::peek(std::string_view word, AdapterId adapter_id) {
  make(start(CallKind::kPeek, tokens_of(word, block_size()), adapter_id));
}

std::size_t Caller::evict(std::size_t blocks) {
  Call call = start(CallKind::kEvict, {}, 0);
  call.count = blocks;
  return std::get<EvictedBlocks>(make(std::move(call))).size();
}

void Caller::evict_blocks_to_tier(std::size_t blocks) {
  Call call = start(CallKind::kEvictBlocksToTier, {}, 0);
  call.count = blocks;
  make(std::move(call));
}

void Caller::forget_key(TierKey key) {
  Call call = start(CallKind::kForgetKey, {}, 0);
  call.key = key;
  make(std::move(call));
}

void Caller::put(CallKind kind, std::string_view word, SessionHash session, AdapterId adapter_id) {
  const auto epoch = epoch_before(adapter_id);
  Call call = start(kind, tokens_of(word, block_size()), adapter_id);
  call.session = session;
  call.slot = new_slot();
  call.epoch = epoch;
  make(std::move(call));
}

void Caller::find_snapshot(std::string_view word, SessionHash session, AdapterId adapter_id) {
  Call call = start(CallKind::kFindSnapshot, tokens_of(word, block_size()), adapter_id);
  call.session = session;
  call.count = call.tokens.size();
  make(std::move(call));
}

void Caller::evict_snapshot_to_tier(std::size_t tokens_min) {
  Call call = start(CallKind::kEvictSnapshotToTier, {}, 0);
  call.count = tokens_min;
  make(std::move(call));
}

void Caller::promote(TierKey key) {
  Call call = start(CallKind::kPromote, {}, 0);
  call.key = key;
  call.slot = new_slot();
  make(std::move(call));
}

void Caller::forget(TierKey key) {
  Call call = start(CallKind::kForget, {}, 0);
  call.key = key;
  make(std::move(call));
}

Answer Caller::simple(CallKind kind, AdapterId adapter_id) {
  return make(start(kind, {}, adapter_id));
}

// ---- The end of a history ----

History finish(Stage& stage, std::span<Caller* const> callers) {
  constexpr std::size_t kAll = 1000;
  Caller& last = *callers.back();
  last.simple(CallKind::kCounters);
  last.simple(CallKind::kCachedBlocks);
  last.simple(CallKind::kSnapshotCount);
  last.evict(kAll);  // what the threads left in use stays
  last.simple(CallKind::kEvictSnapshot);
  for (Caller* caller : callers) caller->release_all();
  last.evict(kAll);
  last.simple(CallKind::kCachedBlocks);
  while (std::get<std::optional<std::uint64_t>>(last.simple(CallKind::kEvictSnapshot))) {
  }
  last.simple(CallKind::kTakeOrphans);
  last.simple(CallKind::kCounters);

  History history{stage.options, {}, callers.size() * Caller::kHoldsMax};
  for (Caller* caller : callers) std::ranges::move(caller->take_calls(), std::back_inserter(history.calls));
  std::ranges::sort(history.calls, {}, &Call::invoked);
  return history;
}

}  // namespace cairn::testing
