#include "index/edge_store.h"

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "base/containers.h"

namespace cairn {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CAIRN_MALLOC_ONLY
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CAIRN_MALLOC_ONLY
#endif

// From here on a run lies in the arena.
#ifdef CAIRN_MALLOC_ONLY
constexpr std::size_t kLongRunBytes = std::numeric_limits<std::size_t>::max();  // the sanitizer then knows each run
#else
constexpr std::size_t kLongRunBytes = 4096;
#endif

std::unique_ptr<DiskBlockId[]> make_disk_blocks(std::size_t count) {
  auto disk_blocks = std::make_unique_for_overwrite<DiskBlockId[]>(count);
  std::fill_n(disk_blocks.get(), count, kNoDiskBlock);
  return disk_blocks;
}

}  // namespace

EdgeStore::EdgeStore(std::size_t block_size, Gate& gate, bool counts_hits)
    : block_size_(block_size), counts_hits_(counts_hits), gate_(gate), arena_(kLongRunBytes) {
  prepare_create();
  CAIRN_CHECK(create() == kTop);
}

void EdgeStore::prepare_create() {
  if (first_free_ != kNoEdge || id_limit_ < chunks_.size() * kChunk) return;
  constexpr EdgeId kMostEdges = kNoEdge - static_cast<EdgeId>(kChunk);
  if (id_limit_ >= kMostEdges) throw std::length_error("cairn: too many edges (2^32)");
  make_room(chunks_, 1);
  auto chunk = std::make_unique<Edge[]>(kChunk);
  std::unique_ptr<Hits[]> hits;
  if (counts_hits_) {
    make_room(hits_chunks_, 1);
    hits = std::make_unique<Hits[]>(kChunk);
  }
  if (chunks_.size() == directory_size_) grow_directories();
  // No reader knows an id in there yet.
  if (counts_hits_) {
    hits_directory_[chunks_.size()] = hits.get();
    hits_chunks_.push_back(std::move(hits));
  }
  directory_[chunks_.size()] = chunk.get();
  chunks_.push_back(std::move(chunk));
}

void EdgeStore::grow_directories() {
  gate_.prepare_retire();
  const std::size_t size = std::max<std::size_t>(16, 2 * directory_size_);
  auto directory = std::make_unique<Edge*[]>(size);
  auto hits_directory = counts_hits_ ? std::make_unique<Hits*[]>(size) : nullptr;
  std::copy_n(directory_.get(), directory_size_, directory.get());
  if (counts_hits_) {
    std::copy_n(hits_directory_.get(), directory_size_, hits_directory.get());
    hits_seen_.store(hits_directory.get(), std::memory_order_release);  // pairs with end_hits
    gate_.retire(std::exchange(hits_directory_, std::move(hits_directory)));
  }
  chunks_seen_.store(directory.get(), std::memory_order_release);  // pairs with operator[]
  gate_.retire(std::exchange(directory_, std::move(directory)));
  directory_size_ = size;
}

EdgeId EdgeStore::create() noexcept {
  EdgeId id = first_free_;
  if (id == kNoEdge) {
    CAIRN_CHECK(id_limit_ < chunks_.size() * kChunk);
    id = id_limit_++;
  } else {
    first_free_ = std::exchange((*this)[id].next, kNoEdge);
  }
  (*this)[id].live = true;
  ++live_count_;
  return id;
}

void EdgeStore::free(EdgeId id) noexcept {
  Edge& edge = (*this)[id];
  CAIRN_CHECK(edge.live);
  CAIRN_CHECK(!edge.stops);
  edge.live = false;
  edge.parent_key = kNoPositionKey;
  edge.contents_changed();
  edge.end_stamp.store(gate_.epoch(), std::memory_order_relaxed);
  edge.next = kNoEdge;
  (first_waiting_ == kNoEdge ? first_waiting_ : (*this)[last_waiting_].next) = id;
  last_waiting_ = id;
  --live_count_;
}

void EdgeStore::reclaim(std::uint64_t epoch) noexcept {
  const auto first_kept =
      std::ranges::find_if(retired_, [epoch](const Retired& retired) { return retired.epoch >= epoch; });
  retired_.erase(retired_.begin(), first_kept);
  while (first_waiting_ != kNoEdge) {
    const EdgeId id = first_waiting_;
    Edge& edge = (*this)[id];
    if (edge.end_stamp.load(std::memory_order_relaxed) >= epoch) return;
    first_waiting_ = edge.next;
    edge.tokens = StoredTokens();
    edge.run = Run{};
    edge.length = 0;
    edge.resident = 0;
    edge.hanging = 0;
    edge.end_stamp.store(0, std::memory_order_relaxed);
    edge.end_uses.store(0, std::memory_order_relaxed);
    edge.end_handles.store(0, std::memory_order_relaxed);
    edge.turn.store(Turn::kNone, std::memory_order_relaxed);
    edge.end_children = 0;
    edge.snapshots = 0;
    edge.recorded = 0;
    edge.next = first_free_;
    first_free_ = id;
  }
  last_waiting_ = kNoEdge;
  if (live_count_ > 1 || chunks_.size() == 1) return;
  // Only kTop is left, and no reader knows of any other edge: the memory of all those there were can go.
  chunks_.resize(1);
  if (counts_hits_) hits_chunks_.resize(1);
  id_limit_ = kTop + 1;
  first_free_ = kNoEdge;
}

Run EdgeStore::make_run(std::size_t capacity, TokenForm form, bool with_disk_blocks) {
  make_room(retired_, 1);
  Run run;
  run.words = arena_.make(StoredTokens::num_words(capacity * block_size_, form) + capacity);
  run.capacity = static_cast<std::uint32_t>(capacity);
  if (with_disk_blocks) run.disk_blocks = make_disk_blocks(capacity);
  return run;
}

void EdgeStore::add_disk_blocks(Edge& edge) const {
  if (!edge.run.disk_blocks) edge.run.disk_blocks = make_disk_blocks(edge.run.capacity);
}

void EdgeStore::copy_to(Run& run, TokenForm form, const Edge& edge) const noexcept {
  CAIRN_DCHECK(run.capacity >= edge.length);
  run.tokens(form).copy_from(edge.tokens, edge.length * block_size_);
  std::copy_n(blocks(edge), edge.resident.get(), blocks(run, form));
  if (edge.run.disk_blocks) std::copy_n(edge.run.disk_blocks.get(), edge.resident.get(), run.disk_blocks.get());
  run.written = edge.length;
}

void EdgeStore::adopt_run(Edge& edge, Run run, TokenForm form) noexcept {
  edge.tokens = run.tokens(form);
  CAIRN_CHECK(retired_.size() < retired_.capacity());
  retired_.push_back({gate_.epoch(), std::move(edge.run.words)});
  edge.run = std::move(run);  // disk ids are read in commits only: no need to retire them
}

void EdgeStore::trim_run(Edge& edge) noexcept {
  if (edge.length == 0 || edge.length >= edge.run.capacity / 2) return;
  try {
    const TokenForm form = edge.tokens.get().form();
    Run run = make_run(edge.length, form, edge.run.disk_blocks != nullptr);
    copy_to(run, form, edge);
    adopt_run(edge, std::move(run), form);
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace cairn
