#include "engine/size_estimator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <string>

#include "base/hash.h"

namespace cairn {
namespace {

constexpr std::array<double, 4> kFactors = {0.5, 1, 2, 4};
// From mark to mark: a match is known to half of it, and a long one has few to look at.
constexpr std::size_t kStrideTokens = 512;
// Marks from one whose hash is kept to the next: what they take is nothing beside the index.
constexpr std::size_t kKeptStride = 6;
// At the present size. More make a sample no better that can be told; fewer save time.
constexpr double kEntries = 2048;
constexpr double kEntriesLeast = 64;  // with fewer an estimate says nothing
// About: an entry with its place in the table; what the index has for a block (docs/benchmarks.md, row 15).
constexpr double kEntryBytes = 80;
constexpr double kIndexBlockBytes = 4;
constexpr double kIndexTokenBytes = 3;
constexpr double kShareOfIndex = 0.003;

double sample_rate(std::size_t pool_blocks, std::size_t block_size, std::size_t stride) {
  const auto blocks = static_cast<double>(pool_blocks);
  const double index_bytes = blocks * (kIndexBlockBytes + kIndexTokenBytes * static_cast<double>(block_size));
  const double affordable = index_bytes * kShareOfIndex / (kEntryBytes * kFactors.back());
  const double entries = std::max(kEntriesLeast, std::min(kEntries, affordable));
  return std::min(1.0, entries * static_cast<double>(stride) / blocks);
}

}  // namespace

SizeEstimator::SizeEstimator(std::size_t pool_blocks, std::size_t block_size, std::uint64_t hash_seed)
    : block_size_(block_size),
      stride_(std::max<std::size_t>(1, kStrideTokens / std::max<std::size_t>(1, block_size))),
      kept_stride_(kKeptStride * stride_),
      seed_(hash_seed),
      sampled_(pool_blocks) {
  if (pool_blocks == 0) return;
  rate_ = sample_rate(pool_blocks, block_size, stride_);
  threshold_ = rate_ >= 1 ? std::numeric_limits<std::uint64_t>::max()
                          : static_cast<std::uint64_t>(std::ldexp(rate_, 64));
  std::size_t below = 0;
  for (std::size_t i = 0; i < kSizes; ++i) {
    const double blocks = static_cast<double>(pool_blocks) * kFactors[i];
    sizes_[i] = std::max<std::size_t>(1, static_cast<std::size_t>(blocks));
    const auto entries = static_cast<std::size_t>(std::lround(blocks * rate_ / static_cast<double>(stride_)));
    segments_max_[i] = std::max(entries, below) - below;
    below += segments_max_[i];
  }
}

SizeEstimator::~SizeEstimator() {
  for (Segment& segment : segments_) segment.clear();
}

std::size_t SizeEstimator::marks_among(std::size_t first_depth, std::size_t blocks) const noexcept {
  const auto up_to = [&](std::size_t depth) { return (depth + stride_ - 1 - stride_ / 2) / stride_; };
  return up_to(first_depth + blocks) - up_to(first_depth);
}

std::vector<BlockId> SizeEstimator::find_sampled(std::span<const BlockId> matched) const noexcept {
  std::vector<BlockId> found;
  if (!is_on()) return found;
  try {
    for (std::size_t depth = stride_ / 2; depth < matched.size(); depth += stride_) {
      if (sampled_.get(matched[depth])) found.push_back(matched[depth]);
    }
  } catch (const std::bad_alloc&) {
    found.clear();
  }
  return found;
}

void SizeEstimator::use(std::span<const BlockId> sampled, std::size_t matched_blocks) noexcept {
  if (!is_on()) return;
  asked_.add(marks_among(0, matched_blocks));
  if (sampled.empty()) return;
  const MutexLock lock(mutex_);
  raise(sampled, true);
  settle_segments();
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

void SizeEstimator::publish(Chain& chain, const Published& what, std::vector<BlockId>& sampled) noexcept {
  if (!is_on() || !chain.is_known) return;
  std::vector<Mark> marks;
  try {
    marks.reserve(marks_among(chain.blocks, what.blocks.size()));
    make_room(sampled, marks.capacity());
  } catch (const std::bad_alloc&) {
    chain.is_known = false;
    return;
  }
  for (std::size_t i = 0; i < what.blocks.size(); ++i, ++chain.blocks) {
    chain.hash = hash_tokens(what.tokens.subspan(i * block_size_, block_size_), chain.hash);
    if (!is_mark(chain.blocks)) continue;
    const bool is_asked = chain.blocks >= what.asked.from && chain.blocks < what.asked.to;
    marks.push_back({.hash = chain.hash,
                     .block = what.blocks[i],
                     .is_asked = is_asked,
                     .is_kept = keeps_hash(chain.blocks)});
  }
  if (marks.empty()) return;
  asked_.add(static_cast<std::uint64_t>(std::ranges::count_if(marks, &Mark::is_asked)));
  const MutexLock lock(mutex_);
  for (auto mark = marks.rbegin(); mark != marks.rend(); ++mark) {
    const bool is_in = is_sampled(mark->hash);
    try {
      if (is_in || mark->is_kept) hashes_[mark->block] = mark->hash;
    } catch (const std::bad_alloc&) {
      continue;
    }
    sampled_.set(mark->block, is_in);
    if (is_in) raise(mark->hash, mark->is_asked);
  }
  raise(sampled, false);  // what is above has been used no less recently
  settle_segments();
  for (const Mark& mark : marks) {
    if (is_sampled(mark.hash)) sampled.push_back(mark.block);
  }
}

// The deeper ones first: they are to be below those nearer to the start.
void SizeEstimator::raise(std::span<const BlockId> sampled, bool is_asked) {
  for (auto block = sampled.rbegin(); block != sampled.rend(); ++block) {
    if (const auto found = hashes_.find(*block); found != hashes_.end()) raise(found->second, is_asked);
  }
}

// To the top, counting where it was; settle_segments() has to follow.
void SizeEstimator::raise(std::uint64_t hash, bool is_asked) {
  if (is_asked) ++sampled_uses_;
  const auto found = entries_.find(hash);
  if (found != entries_.end()) {
    Entry& entry = *found->second;
    if (is_asked) ++hits_[entry.segment];
    segments_[entry.segment].erase(Segment::s_iterator_to(entry));
    entry.segment = 0;
    segments_[0].push_front(entry);
    return;
  }
  try {
    auto entry = std::make_unique<Entry>();
    entry->hash = hash;
    Entry& added = *entries_.emplace(hash, std::move(entry)).first->second;
    segments_[0].push_front(added);
  } catch (const std::bad_alloc&) {  // as if it had not been used
  }
}

void SizeEstimator::settle_segments() noexcept {
  for (std::uint32_t i = 0; i < kSizes; ++i) {
    while (segments_[i].size() > segments_max_[i]) {
      Entry& last = segments_[i].back();
      segments_[i].pop_back();
      if (i + 1 == kSizes) {
        entries_.erase(last.hash);
      } else {
        last.segment = i + 1;
        segments_[i + 1].push_front(last);
      }
    }
  }
}

void SizeEstimator::forget(std::span<const BlockId> blocks) noexcept {
  if (!is_on() || blocks.empty()) return;
  const MutexLock lock(mutex_);
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
                          .blocks = sizes_[i],
                          .hit_rate = expected > 0 ? std::clamp(hits / expected, 0.0, 1.0) : 0.0};
  }
  return estimates;
}

std::size_t SizeEstimator::memory_bytes() const {
  const MutexLock lock(mutex_);
  const auto table = [](const auto& map) { return map.bucket_count() * (sizeof(*map.begin()) + 1); };
  return sampled_.bytes() + table(hashes_) + table(entries_) + entries_.size() * sizeof(Entry);
}

std::string SizeEstimator::validate() const {
  const MutexLock lock(mutex_);
  std::size_t entries = 0;
  for (std::size_t i = 0; i < kSizes; ++i) {
    if (segments_[i].size() > segments_max_[i]) return "segment " + std::to_string(i) + " is too long";
    entries += segments_[i].size();
    for (const Entry& entry : segments_[i]) {
      if (entry.segment != i) return "an entry is not in its segment";
      if (!entries_.contains(entry.hash)) return "an entry is in no table";
    }
  }
  if (entries != entries_.size()) return "entries are in no segment";
  for (const auto& [block, hash] : hashes_) {
    if (sampled_.get(static_cast<BlockId>(block)) != is_sampled(hash)) return "a mark's bit is wrong";
  }
  return {};
}

}  // namespace cairn
