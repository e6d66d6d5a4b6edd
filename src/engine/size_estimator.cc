#include "engine/size_estimator.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <new>
#include <ranges>
#include <string>
#include <utility>

#include "base/hash.h"

namespace cairn {
namespace {

constexpr std::array<double, 4> kFactors = {0.5, 1, 2, 4};
// From mark to mark: a match is known to half of it, and a long one has few to look at.
constexpr std::size_t kStrideTokens = 512;
// At the present size. More make a sample no better that can be told; fewer save time.
constexpr double kEntries = 2048;
constexpr double kEntriesLeast = 512;  // about 64 KB; with fewer an estimate says little
// What the index has for a block, about (docs/benchmarks.md, row 15).
constexpr double kIndexBlockBytes = 4;
constexpr double kIndexTokenBytes = 3;
// How much of that may be spent: on hashes that are kept, and in all. Tables grow by steps, so it is less than one
// percent.
constexpr double kShareOfKept = 0.003;
constexpr double kShareOfAll = 0.008;
constexpr double kKeptHashBytes = 20;  // with its place in the table
constexpr double kBitBytes = 1.0 / 8;

double index_bytes(std::size_t block_size) {
  return kIndexBlockBytes + kIndexTokenBytes * static_cast<double>(block_size);
}

// Marks from one whose hash is kept to the next.
std::size_t marks_per_kept(std::size_t block_size, std::size_t stride) {
  const double marks = kKeptHashBytes / (static_cast<double>(stride) * index_bytes(block_size) * kShareOfKept);
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(marks)));
}

double sample_rate(std::size_t pool_blocks, std::size_t block_size, std::size_t stride) {
  if (pool_blocks == 0) return 1;
  const double marks = static_cast<double>(pool_blocks) / static_cast<double>(stride);
  const double bytes = index_bytes(block_size) * (kShareOfAll - kShareOfKept) - kBitBytes;
  // One in the sample has an entry for each size up to the largest, and keeps its hash as well.
  const double affordable =
      static_cast<double>(pool_blocks) * bytes / (UseStack::kBytesEach * kFactors.back() + kKeptHashBytes);
  return std::min(1.0, std::clamp(affordable, kEntriesLeast, kEntries) / marks);
}

UseStack::Value threshold_of(double rate) {
  return static_cast<UseStack::Value>(rate * std::numeric_limits<UseStack::Value>::max());
}

UseStack::Lengths lengths_of(double sampled_blocks) {
  UseStack::Lengths lengths{};
  std::size_t below = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto up_to = static_cast<std::size_t>(std::lround(sampled_blocks * kFactors[i]));
    lengths[i] = up_to - below;
    below = up_to;
  }
  return lengths;
}

}  // namespace

SizeEstimator::SizeEstimator(std::size_t pool_blocks, std::size_t block_size, std::uint64_t hash_seed)
    : block_size_(block_size),
      stride_(std::max<std::size_t>(1, kStrideTokens / std::max<std::size_t>(1, block_size))),
      kept_stride_(marks_per_kept(block_size, stride_) * stride_),
      seed_(hash_seed),
      pool_blocks_(pool_blocks),
      rate_(sample_rate(pool_blocks, block_size, stride_)),
      threshold_(threshold_of(rate_)),
      sampled_(pool_blocks),
      stack_(lengths_of(static_cast<double>(pool_blocks) * rate_ / static_cast<double>(stride_))) {}

std::size_t SizeEstimator::marks_among(std::size_t first_depth, std::size_t blocks) const noexcept {
  const auto up_to = [&](std::size_t depth) { return (depth + stride_ - 1 - stride_ / 2) / stride_; };
  return up_to(first_depth + blocks) - up_to(first_depth);
}

SizeEstimator::Sampled SizeEstimator::find_sampled(std::span<const BlockId> matched) const noexcept {
  Sampled found;
  if (!is_on()) return found;
  try {
    for (std::size_t depth = stride_ / 2; depth < matched.size(); depth += stride_) {
      if (sampled_.get(matched[depth])) found.push_back(matched[depth]);
    }
  } catch (const std::exception&) {  // small_vector has a length_error of its own
    found.clear();
  }
  return found;
}

void SizeEstimator::use(std::span<const BlockId> sampled, std::size_t matched_blocks) noexcept {
  if (!is_on()) return;
  asked_.add(marks_among(0, matched_blocks));
  if (sampled.empty()) return;
  const MutexLock lock(mutex_);
  if (std::ranges::equal(sampled, on_top_)) {
    sampled_uses_ += sampled.size();
    hits_[0] += sampled.size();
    return;
  }
  find_path(sampled);
  for (const Place& place : path_) count(place);
  raise_path();
  note_on_top(sampled);
}

std::size_t SizeEstimator::resume_at(std::size_t blocks) const noexcept {
  const std::size_t first = stride_ / 2 + 1;
  return blocks < first ? 0 : (blocks - first) / kept_stride_ * kept_stride_ + first;
}

SizeEstimator::Chain SizeEstimator::resume(const Identity& identity, std::span<const BlockId> blocks) const noexcept {
  if (blocks.empty()) {
    const std::array<std::uint64_t, 2> start = {identity.adapter_id, identity.epoch};
    return {.hash = hash_bytes(std::as_bytes(std::span(start)), seed_), .blocks = 0, .is_known = true};
  }
  const MutexLock lock(mutex_);
  const auto found = hashes_.find(blocks.back());
  if (found == hashes_.end()) return {};
  return {.hash = found->second, .blocks = blocks.size(), .is_known = true};
}

void SizeEstimator::publish(Chain& chain, const Published& what, Sampled& sampled) noexcept {
  if (!is_on() || !chain.is_known) return;
  std::vector<Mark> marks;
  try {
    marks.reserve(marks_among(chain.blocks, what.blocks.size()));
    if (sampled.capacity() - sampled.size() < marks.capacity()) {
      sampled.reserve(std::max(sampled.size() + marks.capacity(), 2 * sampled.capacity()));
    }
  } catch (const std::exception&) {
    chain.is_known = false;
    return;
  }
  for (std::size_t i = 0; i < what.blocks.size(); ++i, ++chain.blocks) {
    chain.hash = hash_tokens(what.tokens.subspan(i * block_size_, block_size_), chain.hash);
    if (!is_mark(chain.blocks)) continue;
    // What follows goes on from what is kept of it.
    const auto hash = static_cast<UseStack::Value>(chain.hash);
    chain.hash = hash;
    const bool is_asked = chain.blocks >= what.asked.from && chain.blocks < what.asked.to;
    marks.push_back(
        {.hash = hash, .block = what.blocks[i], .is_asked = is_asked, .is_kept = keeps_hash(chain.blocks)});
  }
  if (marks.empty()) return;
  asked_.add(static_cast<std::uint64_t>(std::ranges::count_if(marks, &Mark::is_asked)));
  const MutexLock lock(mutex_);
  on_top_.clear();
  for (const Mark& mark : marks) {
    if (mark.is_asked && is_sampled(mark.hash)) count(find(mark.hash));
  }
  for (const Mark& mark : marks | std::views::reverse) {
    const bool is_in = is_sampled(mark.hash);
    try {
      if (is_in || mark.is_kept) {
        hashes_[mark.block] = mark.hash;
      } else {
        hashes_.erase(mark.block);  // of a block that a clear took while it was published
      }
    } catch (const std::bad_alloc&) {
      continue;
    }
    sampled_.set(mark.block, is_in);
    if (is_in) raise(find(mark.hash));
  }
  find_path(sampled);
  raise_path();  // what is above has been used no less recently
  for (const Mark& mark : marks) {
    if (is_sampled(mark.hash)) sampled.push_back(mark.block);
  }
}

void SizeEstimator::find_path(std::span<const BlockId> sampled) noexcept {
  path_.clear();
  try {
    path_.reserve(sampled.size());
  } catch (const std::bad_alloc&) {
    return;
  }
  for (const BlockId block : sampled) {
    if (const auto found = hashes_.find(block); found != hashes_.end()) path_.push_back(find(found->second));
  }
}

void SizeEstimator::count(const Place& place) noexcept {
  ++sampled_uses_;
  if (place.id != UseStack::kNoId) ++hits_[stack_.segment_of(place.id)];
}

void SizeEstimator::raise(const Place& place) noexcept {
  place.id == UseStack::kNoId ? stack_.add(place.hash) : stack_.raise(place.id);
}

// The deeper ones first: they are to be below those nearer to the start.
void SizeEstimator::raise_path() noexcept {
  bool are_places_true = true;
  for (const Place& place : path_ | std::views::reverse) {
    raise(are_places_true ? place : find(place.hash));
    are_places_true = are_places_true && place.id != UseStack::kNoId;
  }
}

void SizeEstimator::note_on_top(std::span<const BlockId> sampled) noexcept {
  constexpr std::size_t kMost = 256;
  on_top_.clear();
  if (path_.size() != sampled.size() || path_.empty() || path_.size() > kMost) return;
  const UseStack::Id lowest = stack_.find(path_.back().hash);
  if (lowest == UseStack::kNoId || stack_.segment_of(lowest) != 0) return;
  try {
    on_top_.assign(sampled.begin(), sampled.end());
  } catch (const std::exception&) {
    on_top_.clear();
  }
}

void SizeEstimator::forget(std::span<const BlockId> blocks) noexcept {
  if (!is_on() || blocks.empty()) return;
  const MutexLock lock(mutex_);
  on_top_.clear();
  for (const BlockId block : blocks) {
    if (hashes_.erase(block) > 0) sampled_.set(block, false);
  }
}

SizeEstimates SizeEstimator::estimate() const {
  SizeEstimates estimates;
  if (!is_on()) return estimates;
  const double expected = static_cast<double>(asked_.get()) * rate_;
  const MutexLock lock(mutex_);
  estimates.sampled_blocks = sampled_uses_;
  double hits = expected - static_cast<double>(sampled_uses_);
  for (std::size_t i = 0; i < kSizes; ++i) {
    hits += static_cast<double>(hits_[i]);
    estimates.sizes[i] = {.factor = kFactors[i],
                          .blocks = static_cast<std::size_t>(static_cast<double>(pool_blocks_) * kFactors[i]),
                          .hit_rate = expected > 0 ? std::clamp(hits / expected, 0.0, 1.0) : 0.0};
  }
  return estimates;
}

std::size_t SizeEstimator::memory_bytes() const {
  const MutexLock lock(mutex_);
  constexpr std::size_t kEach = sizeof(Hashes::value_type) + 1;
  return sampled_.bytes() + hashes_.bucket_count() * kEach + stack_.memory_bytes() + path_.capacity() * sizeof(Place) +
         on_top_.capacity() * sizeof(BlockId);
}

std::string SizeEstimator::validate() const {
  const MutexLock lock(mutex_);
  if (std::string wrong = stack_.validate(); !wrong.empty()) return wrong;
  for (const auto& [block, hash] : hashes_) {
    if (sampled_.get(static_cast<BlockId>(block)) != is_sampled(hash)) return "a mark's bit is wrong";
  }
  return {};
}

}  // namespace cairn
