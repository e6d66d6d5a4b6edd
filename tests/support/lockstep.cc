#include "support/lockstep.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <ostream>

#include "support/invalid_calls.h"
#include "support/paired_caches.h"
#include "support/tables.h"

namespace cairn::testing {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::uint64_t kHashSeed = 1;  // fixed: a run can be repeated exactly
constexpr std::size_t kCallersMax = 8;
constexpr std::size_t kPlacesMax = 8;
constexpr std::size_t kKeysMax = 12;
constexpr std::size_t kPinsMax = 5;
constexpr std::size_t kOperationsBetweenValidations = 24;

// A running sequence.
struct Caller {
  AdapterId adapter_id = 0;
  SessionHash session = 0;
  std::uint64_t epoch = 0;
  Tokens tokens;
  std::vector<BlockId> matched_blocks;
  bool by_handle = false;
  std::size_t held_blocks = 0;  // by tokens
  PrefixHandle handle;          // by handle, and the model's
  NaivePrefixCache::Holding holding;
};

struct Place {
  AdapterId adapter_id = 0;
  SessionHash session = 0;
  Tokens tokens;
};

struct Pin {
  SnapshotPin of_tree;
  NaivePrefixCache::Pin of_model;
};

class Lockstep {
 public:
  Lockstep(const ProgramSettings& settings, std::ostream* trace, FaultInjector* faults)
      : settings_(settings),
        caches_({.block_size = settings.block_size,
                 .share_snapshots_across_sessions = settings.share_snapshots_across_sessions,
                 .first_tier_key = settings.first_tier_key,
                 .hash_seed = kHashSeed},
                trace, faults),
        tables_(settings),
        slots_(settings.slots),
        book_(settings) {}

  void step(const Operation& operation);
  void check_after_each();
  void check_thoroughly();
  void finish();
  [[nodiscard]] std::size_t calls() const { return caches_.calls(); }

 private:
  [[nodiscard]] std::size_t block_size() const { return settings_.block_size; }
  [[nodiscard]] bool is_stale(const Caller& caller) {
    return caller.epoch != caches_.model().epoch(caller.adapter_id);
  }
  // The caller of that way of holding which the operation means, made if there is none.
  Caller& caller_for(const Operation& operation, bool by_handle);
  void make_room(const Operation& operation);

  void start_by_lookup(const Operation& operation);
  void start_by_handle(const Operation& operation);
  PrefixMatch acquire(Caller& caller, const Operation& operation);
  [[nodiscard]] static ReadOptions options_for(const Operation& operation, std::size_t tokens);
  void insert(Caller& caller, std::size_t end, const Operation& operation);
  void insert_with_snapshot(Caller& caller, std::size_t end, const Operation& operation);
  void publish(const Operation& operation);
  void grow(const Operation& operation);
  void extend(const Operation& operation);
  void truncate(const Operation& operation);
  void release(Caller& caller, const Operation& operation);
  void release_at(std::size_t index, const Operation& operation);
  void peek(const Operation& operation);
  void evict(const Operation& operation);

  Place place_for(const Operation& operation);
  SnapshotId slot_to_fill(const Operation& operation);
  void put_plain(const Operation& operation);
  void put_tail(const Operation& operation);
  void put_sibling(const Place& place, const Operation& operation);
  bool evict_snapshot();
  bool evict_snapshot_to_tier(const Operation& operation);
  [[nodiscard]] TierKey key_for(const Operation& operation) const;
  void promote(const Operation& operation);
  void forget(const Operation& operation);
  void find_snapshot(const Operation& operation);
  void find_and_pin_snapshot(const Place& place, const ReadOptions& options);
  void note_pin(Pin pin);
  void unpin(std::size_t index);
  void clear(AdapterId adapter_id);
  void clear_all();
  void give_back(const Cleared& cleared);
  void note_acquired(const InsertAcquired& acquired) {
    tables_.blocks().acquire(acquired.blocks);
    tables_.disk_blocks().acquire(acquired.disk_block_ids);
  }
  void note_given_back(const EvictedBlocks& evicted) {
    tables_.blocks().give_back(evicted.physical);
    tables_.disk_blocks().give_back(evicted.disk_block_ids);
  }
  void check_handle(const Caller& caller);
  // An epoch for the overloads: the current one, or for some operations one that has passed.
  std::uint64_t epoch_for(AdapterId adapter_id, const Operation& operation);

  ProgramSettings settings_;
  PairedCaches caches_;
  Tables tables_;
  SlotLedger slots_;
  PromptBook book_;
  std::vector<Caller> callers_;
  std::vector<Place> places_;  // where snapshots were put lately
  std::size_t next_place_ = 0;
  std::vector<Pin> pins_;
  std::vector<TierKey> keys_;  // handed out lately, dead or alive
  std::size_t next_key_ = 0;
};

// ---- Callers ----

void Lockstep::make_room(const Operation& operation) {
  if (callers_.size() >= kCallersMax) release_at(operation.who % callers_.size(), operation);
}

Caller& Lockstep::caller_for(const Operation& operation, bool by_handle) {
  for (std::size_t i = 0; i < callers_.size(); ++i) {
    Caller& caller = callers_[(operation.who + i) % callers_.size()];
    if (caller.by_handle == by_handle) return caller;
  }
  if (by_handle) {
    start_by_handle(operation);
  } else {
    start_by_lookup(operation);
  }
  return callers_.back();
}

void Lockstep::start_by_lookup(const Operation& operation) {
  make_room(operation);
  Caller caller;
  caller.adapter_id = operation.adapter_id();
  caller.session = operation.session();
  caller.epoch = caches_.model().epoch(caller.adapter_id);
  caller.tokens = book_.make(operation);
  const auto match = caches_.both(
      [&] { return call_text("lookup", caller.tokens, block_size(), caller.session, caller.adapter_id); },
      [&](auto& cache) { return cache.lookup(caller.tokens, block_size(), caller.session, caller.adapter_id); });
  caller.matched_blocks = match->matched_blocks;
  caller.held_blocks = match->matched_blocks.size();
  callers_.push_back(std::move(caller));
}

void Lockstep::start_by_handle(const Operation& operation) {
  make_room(operation);
  Caller caller;
  caller.by_handle = true;
  caller.adapter_id = operation.adapter_id();
  caller.session = operation.session();
  caller.epoch = caches_.model().epoch(caller.adapter_id);
  caller.tokens = book_.make(operation);
  caller.matched_blocks = acquire(caller, operation).matched_blocks;
  check_handle(caller);
  callers_.push_back(std::move(caller));
}

ReadOptions Lockstep::options_for(const Operation& operation, std::size_t tokens) {
  ReadOptions options{.session_hash = operation.session(), .adapter_id = operation.adapter_id()};
  if (operation.table >= 96) options.max_snapshot_tokens = (operation.table - std::size_t{96}) * (tokens + 2) / 160;
  options.pin_snapshot = operation.extra / 2 % 4 != 0;
  return options;
}

PrefixMatch Lockstep::acquire(Caller& caller, const Operation& operation) {
  const auto take = [](auto& handle, auto&& acquired) {
    handle = std::move(acquired.handle);
    return std::move(acquired.match);
  };
  if (operation.extra % 2 == 0) {
    return *caches_.both([&] { return call_text("acquire", caller.tokens, caller.session, caller.adapter_id); },
                         [&](RadixTree& tree) {
                           return take(caller.handle, tree.acquire(caller.tokens, caller.session, caller.adapter_id));
                         },
                         [&](NaivePrefixCache& model) {
                           return take(caller.holding,
                                       model.acquire(caller.tokens, caller.session, caller.adapter_id));
                         });
  }
  const ReadOptions options = options_for(operation, caller.tokens.size());
  Pin pin;
  auto match = caches_.both(
      [&] {
        return call_text("acquire", caller.tokens, caller.session, caller.adapter_id, options.max_snapshot_tokens,
                         options.pin_snapshot);
      },
      [&](RadixTree& tree) {
        auto acquired = tree.acquire(caller.tokens, options);
        pin.of_tree = std::move(acquired.pin);
        return take(caller.handle, acquired);
      },
      [&](NaivePrefixCache& model) {
        auto acquired = model.acquire(caller.tokens, options);
        pin.of_model = acquired.pin;
        return take(caller.holding, acquired);
      });
  note_pin(std::move(pin));
  return *match;
}

void Lockstep::check_handle(const Caller& caller) {
  if (!caller.handle.valid()) throw Violation("the handle is not valid");
  if (caller.handle.adapter_id() != caller.adapter_id) throw Violation("the handle's adapter changed");
  if (caller.handle.epoch() != caller.epoch) throw Violation("the handle's epoch changed");
  if (!is_stale(caller) && caller.handle.tokens() != caller.holding.tokens.size()) {
    throw Violation("the handle says " + std::to_string(caller.handle.tokens()) + " tokens, the model " +
                    std::to_string(caller.holding.tokens.size()));
  }
}

void Lockstep::insert(Caller& caller, std::size_t end, const Operation& operation) {
  const auto tokens = std::span(caller.tokens).first(end);
  const auto table = tables_.make(operation, end / block_size(), caller.matched_blocks);
  const std::size_t held = caller.held_blocks * block_size();
  const std::size_t matched = std::min(held + operation.extra / 2 % block_size(), end);
  std::optional<RadixTree::EpochInsert> result;
  if (is_stale(caller) || operation.extra % 2 == 1) {
    result = caches_.both(
        [&] {
          return call_text("insert", tokens, table.blocks, table.disk_blocks, matched, caller.adapter_id,
                           caller.epoch);
        },
        [&](auto& cache) {
          return cache.insert(tokens, table.blocks, table.disk_blocks, block_size(), matched, caller.adapter_id,
                              caller.epoch);
        });
  } else {
    const auto acquired = caches_.both(
        [&] { return call_text("insert", tokens, table.blocks, table.disk_blocks, matched, caller.adapter_id); },
        [&](auto& cache) {
          return cache.insert(tokens, table.blocks, table.disk_blocks, block_size(), matched, caller.adapter_id);
        });
    result = RadixTree::EpochInsert{*acquired, false};
  }
  note_acquired(*result);
  if (result->epoch_passed) return;
  caller.held_blocks = std::max(caller.held_blocks, std::min(end / block_size(), table.blocks.size()));
}

void Lockstep::insert_with_snapshot(Caller& caller, std::size_t end, const Operation& operation) {
  if (end == 0) return;
  const auto tokens = std::span(caller.tokens).first(end);
  const SnapshotId slot = slot_to_fill(operation);
  const auto table = tables_.make(operation, end / block_size(), caller.matched_blocks);
  const std::size_t matched = std::min(caller.held_blocks * block_size(), end);
  std::optional<RadixTree::EpochSnapshotInsert> result;
  slots_.hand_in(slot);
  if (is_stale(caller) || operation.extra % 2 == 1) {
    result = caches_.both(
        [&] {
          return call_text("insert_with_snapshot", tokens, table.blocks, table.disk_blocks, slot, caller.session,
                           matched, caller.adapter_id, caller.epoch);
        },
        [&](auto& cache) {
          return cache.insert_with_snapshot(tokens, table.blocks, table.disk_blocks, block_size(), slot,
                                            caller.session, matched, caller.adapter_id, caller.epoch);
        });
  } else {
    const auto inserted = caches_.both(
        [&] {
          return call_text("insert_with_snapshot", tokens, table.blocks, table.disk_blocks, slot, caller.session,
                           matched, caller.adapter_id);
        },
        [&](auto& cache) {
          return cache.insert_with_snapshot(tokens, table.blocks, table.disk_blocks, block_size(), slot,
                                            caller.session, matched, caller.adapter_id);
        });
    result = RadixTree::EpochSnapshotInsert{*inserted, false};
  }
  if (result->displaced) slots_.give_back(*result->displaced);
  note_acquired(result->acquired);
  if (result->epoch_passed) return;
  caller.held_blocks = std::max(caller.held_blocks, std::min(end / block_size(), table.blocks.size()));
}

void Lockstep::publish(const Operation& operation) {
  Caller& caller = caller_for(operation, operation.extra % 4 == 3);
  if (is_stale(caller)) return release_at(static_cast<std::size_t>(&caller - callers_.data()), operation);
  const std::size_t end = scale_cut(operation.cut, caller.tokens.size());
  const auto tokens = std::span(caller.tokens).first(end);
  const auto table = tables_.make(operation, end / block_size(), caller.matched_blocks);
  const auto acquired = caches_.both(
      [&] { return call_text("insert", tokens, table.blocks, table.disk_blocks, end, caller.adapter_id); },
      [&](auto& cache) {
        return cache.insert(tokens, table.blocks, table.disk_blocks, block_size(), end, caller.adapter_id);
      });
  note_acquired(*acquired);
}

void Lockstep::grow(const Operation& operation) {
  Caller& caller = caller_for(operation, false);
  const std::size_t kept = std::max(caller.held_blocks * block_size(), scale_cut(operation.cut, caller.tokens.size()));
  caller.tokens.resize(kept);
  caller.tokens = book_.continue_from(std::move(caller.tokens), operation);
  caller.matched_blocks.resize(std::min(caller.matched_blocks.size(), caller.held_blocks));
  insert(caller, caller.tokens.size(), operation);
}

void Lockstep::extend(const Operation& operation) {
  Caller& caller = caller_for(operation, true);
  const std::size_t held = caller.holding.tokens.size();
  caller.tokens.resize(std::max(held, caller.tokens.size()));
  if (caller.tokens.size() - held < block_size() || operation.extra % 4 == 0) {
    if (operation.extra % 8 == 0) caller.tokens.resize(held);
    caller.tokens = book_.continue_from(std::move(caller.tokens), operation);
  }
  const std::size_t count = scale_cut(operation.cut, caller.tokens.size() - held);
  const auto tokens = std::span(caller.tokens).subspan(held, count);
  const auto table = tables_.make(operation, count / block_size(), {});
  const auto result = caches_.both(
      [&] { return call_text("extend", held, tokens, table.blocks, table.disk_blocks); },
      [&](RadixTree& tree) { return tree.extend(caller.handle, tokens, table.blocks, table.disk_blocks); },
      [&](NaivePrefixCache& model) { return model.extend(caller.holding, tokens, table.blocks, table.disk_blocks); });
  note_acquired(*result);
  check_handle(caller);
}

void Lockstep::truncate(const Operation& operation) {
  Caller& caller = caller_for(operation, true);
  const std::size_t held = std::min(caller.handle.tokens(), caller.holding.tokens.size());
  const std::size_t kept = operation.cut * (held + 1) / 256;
  caches_.both([&] { return call_text("truncate", held, kept); },
               [&](RadixTree& tree) { tree.truncate(caller.handle, kept); },
               [&](NaivePrefixCache& model) { model.truncate(caller.holding, kept); });
  check_handle(caller);
}

void Lockstep::release(Caller& caller, const Operation& operation) {
  if (caller.by_handle) {
    caches_.both([&] { return call_text("release", caller.holding.tokens); },
                 [&](RadixTree& tree) { tree.release(caller.handle); },
                 [&](NaivePrefixCache& model) { model.release(caller.holding); });
    if (caller.handle.valid()) throw Violation("a released handle is still valid");
    return;
  }
  const std::size_t held = caller.held_blocks * block_size();
  const bool by_epoch = is_stale(caller) || operation.extra % 2 == 1;
  if (operation.extra % 4 < 2 && caller.tokens.size() / block_size() == caller.held_blocks) {
    caches_.both([&] { return call_text("release", caller.tokens, caller.adapter_id, caller.epoch); },
                 [&](auto& cache) {
                   if (by_epoch) return cache.release(caller.tokens, block_size(), caller.adapter_id, caller.epoch);
                   return cache.release(caller.tokens, block_size(), caller.adapter_id);
                 });
    return;
  }
  const std::size_t matched = std::min(held + operation.extra / 4 % block_size(), caller.tokens.size());
  caches_.both([&] { return call_text("release_matched", caller.tokens, matched, caller.adapter_id, caller.epoch); },
               [&](auto& cache) {
                 if (by_epoch) {
                   return cache.release_matched(caller.tokens, block_size(), matched, caller.adapter_id, caller.epoch);
                 }
                 return cache.release_matched(caller.tokens, block_size(), matched, caller.adapter_id);
               });
}

void Lockstep::release_at(std::size_t index, const Operation& operation) {
  release(callers_[index], operation);
  callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Lockstep::peek(const Operation& operation) {
  const Tokens tokens = book_.make(operation);
  const AdapterId adapter_id = operation.adapter_id();
  if (operation.extra % 4 == 0) {
    caches_.both(
        [&] { return call_text("peek_matched_tokens", tokens, adapter_id); },
        [&](auto& cache) { return std::uint64_t{cache.peek_matched_tokens(tokens, block_size(), adapter_id)}; });
    return;
  }
  const ReadOptions options = options_for(operation, tokens.size());
  const auto text = [&](const char* name) {
    return call_text(name, tokens, options.session_hash, adapter_id, options.max_snapshot_tokens);
  };
  if (operation.extra % 4 == 1) {
    caches_.both([&] { return text("peek_snapshot"); },
                 [&](auto& cache) { return cache.peek_snapshot(tokens, options); });
  } else {
    caches_.both([&] { return text("peek"); }, [&](auto& cache) { return cache.peek(tokens, options); });
  }
}

void Lockstep::evict(const Operation& operation) {
  std::size_t count = operation.extra % 4 + std::size_t{1};
  if (operation.extra >= 200) count = operation.extra % 24;
  if (operation.extra >= 248) count = operation.extra % 2 == 0 ? 1000 : std::numeric_limits<std::size_t>::max();
  const auto evicted =
      caches_.both([&] { return call_text("evict", count); }, [&](auto& cache) { return cache.evict(count); });
  note_given_back(*evicted);
}

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
  const auto promoted = caches_.both([&] { return call_text("promote_snapshot", key, slot); },
                                     [&](auto& cache) { return cache.promote_snapshot(key, slot); });
  if (!*promoted) slots_.give_back(slot);
}

void Lockstep::forget(const Operation& operation) {
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
    return find_and_pin_snapshot(place, {place.session, place.adapter_id, max_tokens, operation.extra < 224});
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
                         options.pin_snapshot);
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

// ---- Clearing ----

void Lockstep::give_back(const Cleared& cleared) {
  note_given_back(cleared.blocks);
  for (const SnapshotId slot : cleared.slots) slots_.give_back(slot);
}

void Lockstep::clear(AdapterId adapter_id) {
  give_back(*caches_.both([&] { return call_text("clear", adapter_id); },
                          [&](auto& cache) { return cache.clear(adapter_id); }));
}

void Lockstep::clear_all() {
  give_back(*caches_.both([] { return call_text("clear"); }, [](auto& cache) { return cache.clear(); }));
}

// ---- Steps and checks ----

void Lockstep::step(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kLookup:
      return start_by_lookup(operation);
    case OperationKind::kAcquire:
      return start_by_handle(operation);
    case OperationKind::kInsert:
    case OperationKind::kInsertWithSnapshot: {
      Caller& caller = caller_for(operation, false);
      const std::size_t held = caller.held_blocks * block_size();
      const std::size_t end = held + scale_cut(operation.cut, caller.tokens.size() - held);
      if (operation.kind == OperationKind::kInsert) return insert(caller, end, operation);
      return insert_with_snapshot(caller, end, operation);
    }
    case OperationKind::kPublish:
      return publish(operation);
    case OperationKind::kGrow:
      return grow(operation);
    case OperationKind::kExtend:
      return extend(operation);
    case OperationKind::kTruncate:
      return truncate(operation);
    case OperationKind::kRelease:
      if (!callers_.empty()) release_at(operation.who % callers_.size(), operation);
      return;
    case OperationKind::kPeek:
      return peek(operation);
    case OperationKind::kEvict:
      return evict(operation);
    case OperationKind::kPutPlain:
      return put_plain(operation);
    case OperationKind::kPutTail:
      return put_tail(operation);
    case OperationKind::kPutSibling:
      return put_sibling(place_for(operation), operation);
    case OperationKind::kEvictSnapshot:
      evict_snapshot();
      return;
    case OperationKind::kEvictSnapshotToTier:
      evict_snapshot_to_tier(operation);
      return;
    case OperationKind::kPromote:
      return promote(operation);
    case OperationKind::kForget:
      return forget(operation);
    case OperationKind::kTakeOrphans:
      caches_.both([] { return call_text("take_orphaned_tier_keys"); },
                   [](auto& cache) { return cache.take_orphaned_tier_keys(); });
      return;
    case OperationKind::kFindSnapshot:
      return find_snapshot(operation);
    case OperationKind::kUnpin:
      if (!pins_.empty()) unpin(operation.who % pins_.size());
      return;
    case OperationKind::kClearAdapter:
      return clear(operation.adapter_id());
    case OperationKind::kClearAll:
      return clear_all();
    case OperationKind::kInvalid:
      return call_invalidly(caches_, operation, book_.make(operation), settings_, keys_);
    case OperationKind::kCount:
      return;
  }
}

void Lockstep::check_after_each() {
  const CacheStats stats = caches_.tree().stats();
  const std::size_t nodes = caches_.model().stats().cached_blocks;
  if (stats.cached_blocks != nodes) {
    throw Violation("stats().cached_blocks is " + std::to_string(stats.cached_blocks) + ", the model has " +
                    std::to_string(nodes));
  }
  if (stats.entries > nodes || (stats.entries == 0) != (nodes == 0)) {
    throw Violation("stats().entries is " + std::to_string(stats.entries) + " for " + std::to_string(nodes) +
                    " blocks");
  }
  const std::size_t snapshots = caches_.tree().snapshot_count();
  if (snapshots != caches_.model().snapshot_count()) {
    throw Violation("snapshot_count() is " + std::to_string(snapshots) + ", the model has " +
                    std::to_string(caches_.model().snapshot_count()));
  }
  const RadixTreeCounters counters = caches_.tree().counters();
  const RadixTreeCounters& expected = caches_.model().counters();
  if (std::memcmp(&counters, &expected, sizeof counters) != 0) {
    throw Violation("counters differ\n  of the tree:  " + describe(counters) +
                    "\n  of the model: " + describe(expected));
  }
}

void Lockstep::check_thoroughly() {
  const std::string problem = caches_.tree().validate();
  if (!problem.empty()) throw Violation("validate(): " + problem);
  if (tables_.blocks().references() != caches_.model().block_holders()) {
    throw Violation("blocks acquired minus given back is not what the nodes hold");
  }
  if (tables_.disk_blocks().references() != caches_.model().disk_block_holders()) {
    throw Violation("disk blocks acquired minus given back is not what the nodes hold");
  }
  const auto taken = caches_.model().taken_slots();
  if (!std::equal(taken.begin(), taken.end(), slots_.in_cache().begin(), slots_.in_cache().end())) {
    throw Violation("the slots handed in minus given back are not those of resident or pinned snapshots");
  }
  for (const AdapterId adapter_id : {AdapterId{0}, AdapterId{1}, std::numeric_limits<AdapterId>::max()}) {
    if (caches_.tree().epoch(adapter_id) != caches_.model().epoch(adapter_id)) {
      throw Violation("epoch(" + std::to_string(adapter_id) + ") differs");
    }
  }
}

void Lockstep::finish() {
  check_thoroughly();
  const Operation plain;
  while (!callers_.empty()) release_at(callers_.size() - 1, plain);
  const std::size_t all = std::numeric_limits<std::size_t>::max();
  note_given_back(
      *caches_.both([] { return call_text("evict everything"); }, [&](auto& cache) { return cache.evict(all); }));
  check_after_each();
  check_thoroughly();
  if (caches_.tree().stats().cached_blocks != 0 || caches_.tree().stats().entries != 0) {
    throw Violation("all is released and evicted, but the tree is not empty");
  }
  if (!tables_.blocks().references().empty()) throw Violation("blocks are still referenced by an empty tree");
  while (evict_snapshot()) continue;
  while (!pins_.empty()) unpin(pins_.size() - 1);
  while (evict_snapshot()) continue;
  if (!slots_.in_cache().empty()) throw Violation("slots were never given back");
  check_thoroughly();
  clear_all();
  if (caches_.tree().snapshot_count() != 0) throw Violation("snapshots survive a clear");
  check_after_each();
  check_thoroughly();
}

}  // namespace

RunReport run_in_lockstep(const Program& program, std::ostream* trace, FaultInjector* faults) {
  RunReport report;
  try {
    Lockstep lockstep(program.settings, trace, faults);
    try {
      for (const Operation& operation : program.operations) {
        if (trace != nullptr) *trace << report.operation << ' ' << name_of(operation.kind) << std::endl;
        lockstep.step(operation);
        lockstep.check_after_each();
        ++report.operation;
        if (report.operation % kOperationsBetweenValidations == 0) lockstep.check_thoroughly();
      }
      if (trace != nullptr) *trace << "end" << std::endl;
      lockstep.finish();
    } catch (const Violation& violation) {
      report.failure = violation.what();
    }
    report.calls = lockstep.calls();
  } catch (const std::exception& error) {
    report.failure = std::string("unexpected exception: ") + error.what();
  }
  return report;
}

RunReport run_program(const Program& program, std::ostream* trace) {
  return program.settings.breaks_protocol ? run_breaking_protocol(program, trace) : run_in_lockstep(program, trace);
}

}  // namespace cairn::testing
