#include "index/block_keys.h"

#include "base/check.h"

namespace cairn {

TierKey BlockKeys::at(Position at) const {
  const auto found = by_place_.find(at.key());
  return found == by_place_.end() ? 0 : found->second;
}

TierKey BlockKeys::recorded_at(Position at) const {
  if (recorded() == 0) return 0;
  const TierKey key = this->at(at);
  return key != 0 && by_key_.find(key)->second.recorded ? key : 0;
}

std::optional<Position> BlockKeys::find_record(TierKey key) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || !found->second.recorded) return std::nullopt;
  return found->second.at;
}

void BlockKeys::reserve(std::size_t keys) {
  make_room(by_place_, keys);
  make_room(by_key_, keys);
}

TierKey BlockKeys::name(Position at) noexcept {
  if (const TierKey key = this->at(at); key != 0) return key;
  const TierKey key = take_next();
  assign(at, key);
  return key;
}

void BlockKeys::assign(Position at, TierKey key) noexcept {
  const bool new_place = by_place_.emplace(at.key(), key).second;
  const bool new_key = by_key_.emplace(key, Place{at, false}).second;
  CAIRN_CHECK(new_place);
  CAIRN_CHECK(new_key);
}

void BlockKeys::set_recorded(TierKey key, bool is_recorded) noexcept {
  const auto found = by_key_.find(key);
  CAIRN_CHECK(found != by_key_.end());
  if (found->second.recorded == is_recorded) return;
  found->second.recorded = is_recorded;
  add_recorded(is_recorded ? 1 : -1);
}

void BlockKeys::erase(Position at) noexcept {
  const auto found = by_place_.find(at.key());
  if (found == by_place_.end()) return;
  const auto key = by_key_.find(found->second);
  CAIRN_CHECK(!key->second.recorded);
  by_key_.erase(key);
  by_place_.erase(found);
}

void BlockKeys::free_memory() noexcept {
  if (!by_key_.empty()) return;
  IdMap<TierKey>().swap(by_place_);
  IdMap<Place>().swap(by_key_);
}

}  // namespace cairn
