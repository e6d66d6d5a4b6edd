#include "tier_crash/survivors.h"

namespace cairn::testing {

std::string Survivors::note(const KillLogEntry& entry) {
  using What = KillLogEntry::What;
  const auto forget = [](State& state) { state.acknowledged = state.durable = false; };
  switch (entry.what) {
    case What::kOpening:
      return "";
    case What::kOpened:
      if (entry.key > last_key()) return "";
      return "first_key " + std::to_string(entry.key) + " is not above " + std::to_string(last_key()) +
             ", which was put before";
    case What::kPut: {
      State& state = keys_[entry.key];
      state.erased = state.gone = false;
      // The file may evict what RAM holds once more, and nobody is told.
      if (durable_ == Durable::kWhenFlushed) state.durable = false;
      ++untold_puts_;
      return "";
    }
    case What::kRefused:
      return "";
    case What::kAcknowledged: {
      ++acknowledged_;
      State& state = keys_.at(entry.key);
      if (state.erased) return "";
      state.acknowledged = true;
      if (durable_ == Durable::kWhenAcknowledged) state.durable = true;
      return "";
    }
    case What::kErase: {
      State& state = keys_[entry.key];
      forget(state);
      state.erased = true;
      return "";
    }
    case What::kDropped:
    case What::kLost:
      if (!keys_.contains(entry.key)) return "key " + std::to_string(entry.key) + " is lost, and was never put";
      forget(keys_.at(entry.key));
      return "";
    case What::kFlushed:
      for (auto& [key, state] : keys_) {
        if (state.acknowledged) state.durable = true;
        if (state.erased) state.gone = true;
      }
      return "";
    case What::kLostTold:
      untold_puts_ = entry.key;
      return "";
    case What::kWrong:
      return "key " + std::to_string(entry.key) + ": a get found wrong bytes";
    case What::kUnexpected:
      return "a put was refused with PutResult " + std::to_string(entry.key);
  }
  return "an entry of no known kind";
}

Survivors::Fate Survivors::fate(TierKey key) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return Fate::kNeverPut;
  if (found->second.durable) return Fate::kMustBeThere;
  return found->second.gone ? Fate::kMustBeGone : Fate::kMayBeThere;
}

bool Survivors::is_erased(TierKey key) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && found->second.erased;
}

std::vector<TierKey> Survivors::must_be_there() const {
  std::vector<TierKey> keys;
  for (const auto& [key, state] : keys_) {
    if (state.durable) keys.push_back(key);
  }
  return keys;
}

std::vector<TierKey> Survivors::must_be_gone() const {
  std::vector<TierKey> keys;
  for (const auto& [key, state] : keys_) {
    if (state.gone) keys.push_back(key);
  }
  return keys;
}

void Survivors::restart(const std::map<TierKey, bool>& found) {
  for (auto& [key, state] : keys_) {
    const auto entry = found.find(key);
    const bool there = entry != found.end() && entry->second;
    state.acknowledged = state.durable = there;
    if (there) state.erased = false;  // an erase that was not flushed, and has come to nothing
  }
  untold_puts_ = 0;
}

}  // namespace cairn::testing
