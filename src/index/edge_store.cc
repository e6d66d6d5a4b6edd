#include "index/edge_store.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/check.h"

namespace cairn {
namespace {

std::unique_ptr<DiskBlockId[]> make_disk_blocks(std::size_t count) {
  auto disk_blocks = std::make_unique_for_overwrite<DiskBlockId[]>(count);
  std::fill_n(disk_blocks.get(), count, kNoDiskBlock);
  return disk_blocks;
}

}  // namespace

void EdgeStore::prepare_create() {
  if (first_free_ != kNoEdge) return;
  if (edges_.size() >= kNoEdge) throw std::length_error("cairn: more than 2^32 - 1 edges");
  edges_.emplace_back();
  edges_.back().parent.edge = kNoEdge;
  first_free_ = static_cast<EdgeId>(edges_.size() - 1);
}

EdgeId EdgeStore::create() noexcept {
  CAIRN_CHECK(first_free_ != kNoEdge);
  const EdgeId id = first_free_;
  Edge& edge = edges_[id];
  first_free_ = edge.parent.edge;
  edge = Edge{};
  edge.live = true;
  ++live_count_;
  return id;
}

void EdgeStore::free(EdgeId id) noexcept {
  Edge& edge = edges_[id];
  CAIRN_CHECK(edge.live);
  edge = Edge{};
  edge.parent.edge = first_free_;
  first_free_ = id;
  --live_count_;
}

Run EdgeStore::make_run(std::size_t capacity, bool with_disk_blocks) const {
  Run run;
  run.words = std::make_unique_for_overwrite<std::uint32_t[]>(capacity * (block_size_ + 1));
  run.capacity = static_cast<std::uint32_t>(capacity);
  if (with_disk_blocks) run.disk_blocks = make_disk_blocks(capacity);
  return run;
}

void EdgeStore::add_disk_blocks(Edge& edge) const {
  if (!edge.run.disk_blocks) edge.run.disk_blocks = make_disk_blocks(edge.run.capacity);
}

void EdgeStore::adopt_run(Edge& edge, Run run) const noexcept {
  CAIRN_DCHECK(run.capacity >= edge.length);
  if (edge.length > 0) {
    std::copy_n(tokens(edge), edge.length * block_size_, run.words.get());
    std::copy_n(blocks(edge), edge.resident, run.words.get() + run.capacity * block_size_);
    if (edge.run.disk_blocks) {
      CAIRN_DCHECK(run.disk_blocks != nullptr);
      std::copy_n(edge.run.disk_blocks.get(), edge.resident, run.disk_blocks.get());
    }
  }
  edge.run = std::move(run);
}

void EdgeStore::trim_run(Edge& edge) const noexcept {
  if (edge.length == 0 || edge.length >= edge.run.capacity / 2) return;
  try {
    adopt_run(edge, make_run(edge.length, edge.run.disk_blocks != nullptr));
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace cairn
