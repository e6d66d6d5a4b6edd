// What a run in lockstep does with snapshots and pins.
#include <algorithm>
#include <ostream>
#include <utility>

#include "support/lockstep_run.h"

namespace cairn::testing::lockstep {

// ---- Snapshots ----

Place Lockstep::place_for(const Operation& operation) {
  Place place{operation.adapter_id(), operation.session(), {}};
  const unsigned way = operation.extra / 2 % 4;
  if (way == 0 && !places_.empty()) {
    const Place& earlier = places_[operation.source % places_.size()];
    place.adapter_id = earlier.adapter_id;
    place.tokens = earlier.tokens;
  } else if (way <= 2 && !callers_.empty()) {
    const Caller& caller = callers_[operation.source % callers_.size()];
    place.adapter_id = caller.adapter_id;
    place.tokens = caller.tokens;
    place.tokens.resize(scale_cut(operation.cut, place.tokens.size()));
    if (way == 2) place.tokens.resize(place.tokens.size() / block_size() * block_size());
  } else {
    place.tokens = book_.make(operation);
  }
  if (place.tokens.empty()) place.tokens = {0};
  if (places_.size() < kPlacesMax) {
    places_.push_back(place);
  } else {
    places_[next_place_++ % kPlacesMax] = place;
  }
  return place;
}

SnapshotId Lockstep::slot_to_fill(const Operation& operation) {
  while (true) {
    if (const auto slot = slots_.free_slot()) return *slot;
    if (operation.extra % 3 == 0 ? evict_snapshot_to_tier(operation) : evict_snapshot()) continue;
    if (pins_.empty()) throw Violation("no slot is free, none is pinned, and none can be evicted");
    unpin(operation.who % pins_.size());
  }
}

std::uint64_t Lockstep::epoch_for(AdapterId adapter_id, const Operation& operation) {
  const std::uint64_t current = caches_.model().epoch(adapter_id);
  return operation.table % 4 == 0 && current > 0 ? current - 1 : current;
}

void Lockstep::put_plain(const Operation& operation) {
  const SnapshotId slot = slot_to_fill(operation);
  const Place place = place_for(operation);
  const auto table = tables_.make(operation, place.tokens.size() / block_size(), {});
  const std::size_t matched = operation.cut * (place.tokens.size() + 1) / 256;
  slots_.hand_in(slot);
  std::optional<std::optional<SnapshotId>> displaced;
  const auto text = [&] {
    return call_text("insert_intermediate_snapshot", place.tokens, slot, place.session, place.adapter_id);
  };
  if (operation.extra % 2 == 1) {
    const std::uint64_t epoch = epoch_for(place.adapter_id, operation);
    displaced = caches_.both([&] { return text() + " in epoch " + describe(epoch); },
                             [&](auto& cache) {
                               return cache.insert_intermediate_snapshot(place.tokens, table.blocks, table.disk_blocks,
                                                                         block_size(), slot, place.session, matched,
                                                                         place.adapter_id, epoch);
                             });
  } else {
    displaced = caches_.both(text, [&](auto& cache) {
      return cache.insert_intermediate_snapshot(place.tokens, table.blocks, table.disk_blocks, block_size(), slot,
                                                place.session, matched, place.adapter_id);
    });
  }
  if (*displaced) slots_.give_back(**displaced);
}

void Lockstep::put_tail(const Operation& operation) {
  const SnapshotId slot = slot_to_fill(operation);
  Place place = place_for(operation);
  slots_.hand_in(slot);
  const auto text = [&] {
    return call_text("insert_tail_snapshot", place.tokens, slot, place.session, place.adapter_id);
  };
  std::optional<std::vector<SnapshotId>> freed;
  if (operation.extra % 2 == 1) {
    const std::uint64_t epoch = epoch_for(place.adapter_id, operation);
    freed =
        caches_.both([&] { return text() + " in epoch " + describe(epoch); },
                     [&](auto& cache) {
                       return cache.insert_tail_snapshot(place.tokens, slot, place.session, place.adapter_id, epoch);
                     });
  } else {
    freed = caches_.both(text, [&](auto& cache) {
      return cache.insert_tail_snapshot(place.tokens, slot, place.session, place.adapter_id);
    });
  }
  for (const SnapshotId given_back : *freed) slots_.give_back(given_back);
  if (operation.table % 3 != 0 || place.tokens.size() <= block_size()) return;
  place.tokens.resize(place.tokens.size() - block_size());
  put_sibling(place, operation);
}

void Lockstep::put_sibling(const Place& place, const Operation& operation) {
  const SnapshotId slot = slot_to_fill(operation);
  slots_.hand_in(slot);
  const auto text = [&] {
    return call_text("insert_tail_sibling_snapshot", place.tokens, slot, place.session, place.adapter_id);
  };
  std::optional<std::optional<SnapshotId>> displaced;
  if (operation.extra % 2 == 1) {
    const std::uint64_t epoch = epoch_for(place.adapter_id, operation);
    displaced = caches_.both([&] { return text() + " in epoch " + describe(epoch); },
                             [&](auto& cache) {
                               return cache.insert_tail_sibling_snapshot(place.tokens, slot, place.session,
                                                                         place.adapter_id, epoch);
                             });
  } else {
    displaced = caches_.both(text, [&](auto& cache) {
      return cache.insert_tail_sibling_snapshot(place.tokens, slot, place.session, place.adapter_id);
    });
  }
  if (*displaced) slots_.give_back(**displaced);
}

bool Lockstep::evict_snapshot() {
  const auto slot = caches_.both([] { return call_text("evict_snapshot_lru"); },
                                 [](auto& cache) { return cache.evict_snapshot_lru(); });
  if (*slot) slots_.give_back(**slot);
  return slot->has_value();
}

bool Lockstep::evict_snapshot_to_tier(const Operation& operation) {
  const std::size_t min_tokens = operation.cut % 2 == 0 ? 0 : operation.cut % (3 * block_size() + 2);
  const auto victim = caches_.both([&] { return call_text("evict_snapshot_to_tier", min_tokens); },
                                   [&](auto& cache) { return cache.evict_snapshot_to_tier(min_tokens); });
  if (!*victim) return false;
  slots_.give_back((*victim)->slot);
  if ((*victim)->action != TierEvict::Action::kSpill) return true;
  if (keys_.size() < kKeysMax) {
    keys_.push_back((*victim)->key);
  } else {
    keys_[next_key_++ % kKeysMax] = (*victim)->key;
  }
  return true;
}

TierKey Lockstep::key_for(const Operation& operation) const {
  if (keys_.empty() || operation.source >= 250) return operation.source;
  return keys_[operation.source % keys_.size()];
}

void Lockstep::promote(const Operation& operation) {
  const TierKey key = key_for(operation);
  const SnapshotId slot = slot_to_fill(operation);
  slots_.hand_in(slot);
  if (operation.extra % 2 == 1) {
    Pin pin;
    const auto pinned = caches_.both([&] { return call_text("promote_and_pin", key, slot); },
                                     [&](RadixTree& tree) {
                                       pin.of_tree = tree.promote_and_pin(key, slot);
                                       return pin.of_tree.valid();
                                     },
                                     [&](NaivePrefixCache& model) {
                                       pin.of_model = model.promote_and_pin(key, slot);
                                       return pin.of_model.valid;
                                     });
    if (!*pinned) slots_.give_back(slot);
    return note_pin(std::move(pin));
  }
  const auto promoted = caches_.both([&] { return call_text("promote_snapshot", key, slot); },
                                     [&](auto& cache) { return cache.promote_snapshot(key, slot); });
  if (!*promoted) slots_.give_back(slot);
}

void Lockstep::forget(const Operation& operation) {
  if (operation.extra % 4 != 0) {
    const TierKey key = operation.extra % 4 == 1 ? key_for(operation) : record_for(operation);
    caches_.both([&] { return call_text("forget_tier_key", key); },
                 [&](auto& cache) { return cache.forget_tier_key(key); });
    return;
  }
  const TierKey key = key_for(operation);
  caches_.both([&] { return call_text("forget_snapshot_tier_key", key); },
               [&](auto& cache) { return cache.forget_snapshot_tier_key(key); });
}

void Lockstep::find_snapshot(const Operation& operation) {
  Place place = place_for(operation);
  if (operation.table % 2 == 1) place.tokens = book_.continue_from(place.tokens, operation);
  std::size_t max_tokens = operation.cut * (place.tokens.size() + 2) / 256;
  if (operation.cut >= 230) max_tokens = std::numeric_limits<std::size_t>::max();
  if (operation.extra % 2 == 1) {
    return find_and_pin_snapshot(
        place, {place.session, place.adapter_id, max_tokens, operation.extra < 224, operation.extra / 2 % 4 == 0});
  }
  caches_.both(
      [&] { return call_text("find_snapshot", place.tokens, max_tokens, place.session, place.adapter_id); },
      [&](auto& cache) { return cache.find_snapshot(place.tokens, max_tokens, place.session, place.adapter_id); });
}

// ---- Pins ----

void Lockstep::find_and_pin_snapshot(const Place& place, const ReadOptions& options) {
  Pin pin;
  const auto take = [](auto& pin_of, auto&& found) {
    pin_of = std::move(found.pin);
    return found.snapshot;
  };
  caches_.both(
      [&] {
        return call_text("find_snapshot", place.tokens, options.max_snapshot_tokens, place.session, place.adapter_id,
                         options.pin_snapshot, options.resident_snapshots_only);
      },
      [&](RadixTree& tree) { return take(pin.of_tree, tree.find_snapshot(place.tokens, options)); },
      [&](NaivePrefixCache& model) { return take(pin.of_model, model.find_snapshot(place.tokens, options)); });
  note_pin(std::move(pin));
}

void Lockstep::note_pin(Pin pin) {
  if (pin.of_tree.valid() != pin.of_model.valid) throw Violation("the pin is valid, or not, unlike the model's");
  if (!pin.of_tree.valid()) return;
  if (pin.of_tree.slot() != pin.of_model.slot) throw Violation("the pin names another slot than the model's");
  pins_.push_back(std::move(pin));
  if (pins_.size() > kPinsMax) unpin(0);
}

void Lockstep::unpin(std::size_t index) {
  Pin& pin = pins_[index];
  const auto slot = caches_.both([&] { return call_text("unpin_snapshot", std::uint64_t{pin.of_model.slot}); },
                                 [&](RadixTree& tree) { return tree.unpin_snapshot(pin.of_tree); },
                                 [&](NaivePrefixCache& model) { return model.unpin_snapshot(pin.of_model); });
  if (pin.of_tree.valid()) throw Violation("a pin that was given back is still valid");
  pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(index));
  if (*slot) slots_.give_back(**slot);
}

}  // namespace cairn::testing::lockstep
