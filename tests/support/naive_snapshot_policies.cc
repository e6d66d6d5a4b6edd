// In which order the naive model evicts snapshots: <cairn/snapshot_policy.h>, word for word, by looking at all of
// them.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "support/naive_prefix_cache.h"

namespace cairn::testing {
namespace {

double flops(const ModelShape& model, std::size_t tokens) {
  const auto l = static_cast<double>(tokens);
  const auto d = static_cast<double>(model.width);
  const auto n = static_cast<double>(model.state_size);
  return static_cast<double>(model.attention_layers) * (8 * l * d * d + 4 * l * l * d) +
         static_cast<double>(model.mlp_layers) * 16 * l * d * d +
         static_cast<double>(model.mamba_layers) * (12 * l * d * d + 16 * l * d * n + 10 * l * d);
}

// Down to three binary digits after the first.
double rounded(double value) {
  if (!(value >= 1)) return 1;
  int exponent = 0;
  const double digits = std::floor(std::frexp(value, &exponent) * 16) / 16;
  return std::ldexp(digits, exponent);
}

double normalised(const std::vector<double>& all, double value) {
  const auto [least, greatest] = std::minmax_element(all.begin(), all.end());
  return *least == *greatest ? 1.0 : (value - *least) / (*greatest - *least);
}

}  // namespace

std::size_t NaivePrefixCache::snapshot_bytes() const {
  const SnapshotPolicyOptions& options = options_.snapshot_policy_options;
  const ModelShape& model = options.model;
  if (options.snapshot_bytes > 0) return options.snapshot_bytes;
  return model.mamba_layers * (2 * model.width * model.state_size + 8 * (2 * model.width + 2 * model.state_size));
}

// ---- Sessions ----

// What a session had of activity and lease ends with its last resident snapshot, or with its tail.
void NaivePrefixCache::forget_idle_sessions() {
  const auto has = [this](SessionHash session, bool tail) {
    return std::any_of(snapshots_.begin(), snapshots_.end(), [&](const auto& entry) {
      const Snapshot& snapshot = entry.second;
      return snapshot.slot && snapshot.session == session && (!tail || snapshot.kind == Kind::kTail);
    });
  };
  std::erase_if(active_, [&](const auto& entry) { return !has(entry.first, false); });
  std::erase_if(leases_, [&](const Lease& lease) { return !has(lease.session, true); });
}

void NaivePrefixCache::renew_lease(SessionHash session) {
  const SnapshotPolicyOptions& options = options_.snapshot_policy_options;
  if (options.session_lease_evictions == 0) return;
  std::erase_if(leases_, [session](const Lease& lease) { return lease.session == session; });
  leases_.push_back({session, evictions_});
  forget_idle_sessions();  // it may have no tail
  if (leases_.size() > options.session_leases_max) leases_.erase(leases_.begin());
}

void NaivePrefixCache::note_resident(const Snapshot& snapshot) {
  if (snapshot.session == 0) return;
  std::uint64_t& active = active_[snapshot.session];
  active = std::max(active, snapshot.stamp);
  if (snapshot.kind == Kind::kTail) renew_lease(snapshot.session);
}

void NaivePrefixCache::use(Snapshot& snapshot, SessionHash by) {
  snapshot.stamp = clock_;
  snapshot.use_number = ++uses_;
  forget_idle_sessions();
  if (snapshot.slot && snapshot.session != 0) active_[snapshot.session] = clock_;
  if (by == 0 || !active_.contains(by)) return;
  active_[by] = clock_;
  renew_lease(by);
}

NaivePrefixCache::Snapshots::iterator NaivePrefixCache::session_choice(
    const std::vector<Snapshots::iterator>& candidates) {
  const SnapshotPolicyOptions& options = options_.snapshot_policy_options;
  forget_idle_sessions();
  std::erase_if(leases_,
                [&](const Lease& lease) { return evictions_ - lease.renewed_at >= options.session_lease_evictions; });
  const auto lease_of = [this](Snapshots::iterator candidate) {
    if (candidate->second.kind != Kind::kTail) return leases_.end();
    return std::find_if(leases_.begin(), leases_.end(),
                        [&](const Lease& lease) { return lease.session == candidate->second.session; });
  };
  const auto idle_since = [this](Snapshots::iterator candidate) {
    const Snapshot& snapshot = candidate->second;
    const std::uint64_t active = snapshot.session == 0 ? snapshot.stamp : active_.at(snapshot.session);
    return std::tuple(active, snapshot.session, snapshot.stamp);
  };
  auto chosen = snapshots_.end();
  for (const auto candidate : candidates) {
    if (lease_of(candidate) != leases_.end()) continue;
    if (chosen == snapshots_.end() || idle_since(candidate) < idle_since(chosen)) chosen = candidate;
  }
  if (chosen == snapshots_.end()) {
    for (const auto candidate : candidates) {
      if (chosen == snapshots_.end() || lease_of(candidate) < lease_of(chosen)) chosen = candidate;
    }
    if (chosen != snapshots_.end()) leases_.erase(lease_of(chosen));
  }
  if (chosen != snapshots_.end()) ++evictions_;
  return chosen;
}

// ---- FLOPs ----

std::size_t NaivePrefixCache::deepest_above(Snapshots::const_iterator found) const {
  const auto& [place, snapshot] = *found;
  std::size_t deepest = 0;
  for (const auto& [other, above] : snapshots_) {
    if (other.adapter_id != place.adapter_id || other.tokens.size() >= place.tokens.size()) continue;
    if (above.kind == Kind::kTail) continue;
    const bool seen_by_all_who_see_it =
        options_.share_snapshots_across_sessions || above.session == 0 || above.session == snapshot.session;
    const std::size_t full = other.tokens.size() / options_.block_size * options_.block_size;
    const bool is_above = std::equal(other.tokens.begin(), other.tokens.begin() + static_cast<std::ptrdiff_t>(full),
                                     place.tokens.begin());
    if (seen_by_all_who_see_it && is_above) deepest = std::max(deepest, other.tokens.size());
  }
  return deepest;
}

NaivePrefixCache::Snapshots::iterator NaivePrefixCache::flop_choice(
    const std::vector<Snapshots::iterator>& candidates) {
  const SnapshotPolicyOptions& options = options_.snapshot_policy_options;
  std::vector<double> recency;
  std::vector<double> efficiency;
  for (const auto candidate : candidates) {
    recency.push_back(1.0 / static_cast<double>(uses_ + 1 - candidate->second.use_number));
    const double saved =
        flops(options.model, candidate->first.tokens.size()) - flops(options.model, deepest_above(candidate));
    efficiency.push_back(rounded(saved / static_cast<double>(snapshot_bytes())));
  }
  auto chosen = snapshots_.end();
  double lowest = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double score =
        normalised(recency, recency[i]) + options.flop_alpha.value() * normalised(efficiency, efficiency[i]);
    const bool older =
        chosen != snapshots_.end() && score == lowest && candidates[i]->second.use_number < chosen->second.use_number;
    if (chosen != snapshots_.end() && !(score < lowest) && !older) continue;
    chosen = candidates[i];
    lowest = score;
  }
  return chosen;
}

// ---- Any ----

NaivePrefixCache::Snapshots::iterator NaivePrefixCache::next_snapshot_to_evict() {
  std::vector<Snapshots::iterator> candidates;
  for (auto entry = snapshots_.begin(); entry != snapshots_.end(); ++entry) {
    if (entry->second.slot && !pins_.contains(*entry->second.slot)) candidates.push_back(entry);
  }
  if (options_.snapshot_policy == "session") return session_choice(candidates);
  if (options_.snapshot_policy == "flop") return flop_choice(candidates);
  const auto oldest = std::min_element(candidates.begin(), candidates.end(),
                                       [](const auto& a, const auto& b) { return a->second.stamp < b->second.stamp; });
  return oldest == candidates.end() ? snapshots_.end() : *oldest;
}

RadixTreeCounters NaivePrefixCache::counters() const {
  RadixTreeCounters counters = counters_;
  for (const auto& [place, snapshot] : snapshots_) {
    counters.resident_snapshot_bytes += snapshot.slot ? snapshot_bytes() : 0;
  }
  return counters;
}

}  // namespace cairn::testing
