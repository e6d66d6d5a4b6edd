#include "policy/snapshot_flop_policy.h"

namespace cairn {

SnapshotFlopPolicy::SnapshotFlopPolicy(const SnapshotPolicyOptions& options)
    : model_(options.model),
      bytes_freed_(static_cast<double>(options.snapshot_bytes)),
      fixed_alpha_(options.flop_alpha.value_or(0)),
      tuner_(options.flop_alpha ? nullptr : std::make_unique<AlphaTuner>()) {}

void SnapshotFlopPolicy::reserve(std::size_t ids) {
  while (entries_.size() < ids) entries_.emplace_back();
  if (tuner_) tuner_->take_window(known_);
}

void SnapshotFlopPolicy::work() noexcept {
  if (tuner_) tuner_->replay_some();
}

void SnapshotFlopPolicy::add(const Facts& facts) noexcept {
  Entry& entry = entries_[facts.id];
  entry.id = facts.id;
  entry.name = facts.is_tail ? facts.session : facts.place;
  entry.tokens = facts.tokens;
  entry.above_tokens = facts.above_tokens;
  entry.last_use = facts.last_use.number;
  entry.known = true;
  entry.pinned = false;
  ++known_;
  rate(entry);
  order_.insert(entry);
  if (tuner_) tuner_->put(for_tuner(entry));
}

void SnapshotFlopPolicy::remove(Id id) noexcept {
  Entry& entry = entries_[id];
  if (!entry.pinned) order_.erase(entry);
  entry.known = false;
  --known_;
  if (tuner_) id == chosen_ ? tuner_->evicted(entry.name) : tuner_->gone(entry.name);
  chosen_ = kNone;
}

void SnapshotFlopPolicy::use(Id id, const Use& use) noexcept {
  Entry& entry = entries_[id];
  if (!entry.known) return;
  if (!entry.pinned) order_.erase(entry);
  entry.last_use = use.number;
  if (!entry.pinned) order_.insert(entry);
  if (tuner_) tuner_->used(for_tuner(entry));
}

void SnapshotFlopPolicy::pin(Id id) noexcept {
  entries_[id].pinned = true;
  order_.erase(entries_[id]);
}

void SnapshotFlopPolicy::unpin(Id id) noexcept {
  entries_[id].pinned = false;
  order_.insert(entries_[id]);
}

void SnapshotFlopPolicy::above_changed(Id id, std::size_t above_tokens) noexcept {
  Entry& entry = entries_[id];
  entry.above_tokens = above_tokens;
  if (!entry.pinned) order_.erase(entry);
  rate(entry);
  if (!entry.pinned) order_.insert(entry);
}

SnapshotPolicy::Id SnapshotFlopPolicy::choose(std::uint64_t uses) noexcept {
  const FlopOrder::Node* const first = order_.first(tuner_ ? tuner_->alpha() : fixed_alpha_, uses + 1);
  chosen_ = first == nullptr ? kNone : static_cast<const Entry*>(first)->id;
  return chosen_;
}

std::string SnapshotFlopPolicy::validate(std::size_t resident) const {
  if (known_ != resident) return "the policy knows another number of snapshots";
  std::size_t known = 0;
  for (const Entry& entry : entries_) {
    if (!entry.known) continue;
    ++known;
    const std::string name = "snapshot " + std::to_string(entry.id);
    if (entry.is_linked() == entry.pinned) return name + " is pinned and in the order, or neither";
    if (entry.above_tokens >= entry.tokens) return name + " saves nothing beyond the one above it";
    if (entry.efficiency != FlopOrder::class_of(saved_flops(entry) / bytes_freed_)) {
      return name + " is not in the class of its efficiency";
    }
  }
  return known == known_ ? "" : "wrong count of snapshots that the policy knows";
}

}  // namespace cairn
