#include "support/lockstep.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <ostream>

#include "support/invalid_calls.h"
#include "support/lockstep_run.h"
#include "support/paired_caches.h"
#include "support/tables.h"

namespace cairn::testing {
namespace lockstep {

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
  options.resident_snapshots_only = operation.extra / 8 % 4 == 0;
  options.stored_blocks = operation.extra / 32 % 4 != 0;
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
  return acquire_with(caller, options_for(operation, caller.tokens.size()));
}

PrefixMatch Lockstep::acquire_with(Caller& caller, const ReadOptions& options) {
  Pin pin;
  const auto take = [](auto& handle, auto& pin_of, auto&& acquired) {
    handle = std::move(acquired.handle);
    pin_of = std::move(acquired.pin);
    return StoredMatch{std::move(acquired.match), std::move(acquired.stored_blocks)};
  };
  auto match = caches_.both(
      [&] {
        return call_text("acquire", caller.tokens, caller.session, caller.adapter_id, options.max_snapshot_tokens,
                         options.pin_snapshot, options.resident_snapshots_only, options.stored_blocks);
      },
      [&](RadixTree& tree) { return take(caller.handle, pin.of_tree, tree.acquire(caller.tokens, options)); },
      [&](NaivePrefixCache& model) {
        return take(caller.holding, pin.of_model, model.acquire(caller.tokens, options));
      });
  note_pin(std::move(pin));
  return match->first;
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
    return call_text(name, tokens, options.session_hash, adapter_id, options.max_snapshot_tokens,
                     options.resident_snapshots_only, options.stored_blocks);
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
    case OperationKind::kEvictBlocksToTier:
      return evict_blocks_to_tier(operation);
    case OperationKind::kSaveBlocks:
      return save_blocks(operation);
    case OperationKind::kSpilledSnapshot:
      return spilled_snapshot(operation);
    case OperationKind::kRegister:
      return operation.extra % 3 == 0 ? register_snapshot(operation) : register_block(operation);
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
  if (caches_.tree().recorded_blocks() != caches_.model().recorded_blocks()) {
    throw Violation("recorded_blocks() is " + std::to_string(caches_.tree().recorded_blocks()) + ", the model has " +
                    std::to_string(caches_.model().recorded_blocks()));
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
  if (caches_.tree().recorded_blocks() != 0) throw Violation("records survive a clear");
  if (caches_.tree().snapshot_count() != 0) throw Violation("snapshots survive a clear");
  check_after_each();
  check_thoroughly();
}

}  // namespace lockstep

RunReport run_in_lockstep(const Program& program, std::ostream* trace, FaultInjector* faults) {
  RunReport report;
  try {
    lockstep::Lockstep lockstep(program.settings, trace, faults);
    try {
      for (const Operation& operation : program.operations) {
        if (trace != nullptr) *trace << report.operation << ' ' << name_of(operation.kind) << std::endl;
        lockstep.step(operation);
        lockstep.check_after_each();
        ++report.operation;
        if (report.operation % lockstep::kOperationsBetweenValidations == 0) lockstep.check_thoroughly();
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
