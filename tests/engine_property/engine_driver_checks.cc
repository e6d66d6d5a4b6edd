// What the driver knows about its manager after every operation.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "engine_property/attempt.h"
#include "engine_property/engine_driver.h"

namespace cairn::testing {
namespace {

void expect_equal(std::string_view what, std::uint64_t found, std::uint64_t expected) {
  if (found != expected) throw Broken(fmt::format("{}: {}, but it should be {}", what, found, expected));
}

std::uint64_t references(const BlockPool& pool) {
  std::uint64_t sum = 0;
  for (std::size_t block = 0; block < pool.total_blocks(); ++block) {
    sum += pool.references(static_cast<BlockId>(block));
  }
  return sum;
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  requests += other.requests;
  resumed += other.resumed;
  prompt_tokens += other.prompt_tokens;
  reused_tokens += other.reused_tokens;
  memory_tokens += other.memory_tokens;
  refused_admissions += other.refused_admissions;
  refused_reserves += other.refused_reserves;
  finished += other.finished;
  preempted += other.preempted;
  abandoned += other.abandoned;
  forks += other.forks;
  failed_steps += other.failed_steps;
  waits += other.waits;
  failed_allocations += other.failed_allocations;
  return *this;
}

std::string compare(const Tally& tally, const ManagerStats& stats) {
  struct Row {
    std::string_view name;
    std::uint64_t counted;
    std::uint64_t expected;
  };
  const std::array rows = {
      Row{"requests", stats.requests, tally.requests},
      Row{"resumed", stats.resumed, tally.resumed},
      Row{"prompt_tokens", stats.prompt_tokens, tally.prompt_tokens},
      Row{"reused_tokens", stats.reused_tokens, tally.reused_tokens},
      Row{"computed_tokens", stats.computed_tokens, tally.prompt_tokens - tally.reused_tokens},
      Row{"refused_admissions", stats.refused_admissions, tally.refused_admissions},
      Row{"refused_reserves", stats.refused_reserves, tally.refused_reserves},
      Row{"finished", stats.finished, tally.finished},
      Row{"preempted", stats.preempted, tally.preempted},
      Row{"abandoned", stats.abandoned, tally.abandoned},
      Row{"forks", stats.forks, tally.forks},
      Row{"failed_steps", stats.failed_steps, tally.failed_steps},
      Row{"waits", stats.waits, tally.waits},
  };
  for (const Row& row : rows) {
    if (row.counted != row.expected) {
      return fmt::format("stats().{} is {}, but it should be {}", row.name, row.counted, row.expected);
    }
  }
  return {};
}

void EngineDriver::cleared(const ClearReport& report) {
  cleared_blocks_ += report.blocks;
  note(report.blocks, "blocks,", report.blocks_held, "of them held");
}

void EngineDriver::check() {
  if (const std::string wrong = shared_.manager().validate(); !wrong.empty()) throw Broken(wrong);
  const ManagerStats stats = shared_.manager().stats();
  if (const std::string wrong = compare(tally_, stats); !wrong.empty()) throw Broken(wrong);
  check_what_is_now(stats);
  check_stores(stats);
  // Not always: it lets leases take note of their steps.
  constexpr std::size_t kEvery = 6;
  if (++since_references_ >= kEvery && steps_.empty() && !any_loading() && !strays_ && !shared_.tiers().holds()) {
    since_references_ = 0;
    check_references(stats);
  }
}

void EngineDriver::check_what_is_now(const ManagerStats& stats) const {
  expect_equal("stats().live_leases", stats.live_leases, sequences_.size());
  expect_equal("stats().waiting_for_steps", stats.waiting_for_steps, waiting_.size());
  const auto declared = std::ranges::count_if(steps_, [](const auto& step) { return step->declared; });
  expect_equal("stats().steps_in_flight", stats.steps_in_flight, static_cast<std::size_t>(declared));
  std::set<SnapshotId> pinned;
  for (const Sequence& sequence : sequences_) {
    if (sequence.loading) continue;
    if (const auto restore = sequence.verified.lease().restore_point()) pinned.insert(restore->slot);
  }
  if (!any_loading()) expect_equal("stats().pinned_snapshots", stats.pinned_snapshots, pinned.size());
  if (sequences_.empty() && waiting_.empty()) {
    expect_equal("blocks held by clears with no lease left", stats.blocks_held_by_clears, 0);
  }
  if (stats.stateless_tokens > stats.matched_tokens) throw Broken("more tokens without state than matched");
  if (shared_.slots() != nullptr) {
    std::size_t filling = 0;
    for (std::size_t slot = 0; slot < shared_.slots()->total_slots(); ++slot) {
      const SlotState state = shared_.slots()->state(slot);
      if (state == SlotState::kFilling) ++filling;
      if (state == SlotState::kDoomed && !shared_.tiers().holds())
        throw Broken(fmt::format("slot {} is doomed, but nobody copies", slot));
    }
    if (sequences_.empty() && waiting_.empty() && !strays_) {
      expect_equal("slots that are being filled with no lease left", filling, held_slots_.size());
    }
  }
}

// No step is in flight: then every reference on a block has one of four owners.
void EngineDriver::check_references(const ManagerStats& stats) {
  if (shared_.blocks() == nullptr || !cleared_blocks_known_) return;
  const std::size_t block_size = shared_.settings().block_size;
  std::uint64_t leases = 0;
  for (const Sequence& sequence : sequences_) {
    const Lease& lease = sequence.verified.lease();
    static_cast<void>(lease.written_tokens());  // lets go of what the last steps may have used
    leases += lease.block_table().size() - lease.published_tokens() / block_size + lease.copies().size();
  }
  const std::uint64_t cached = stats.published_blocks - stats.evicted_blocks - cleared_blocks_;
  expect_equal("references on blocks", references(*shared_.blocks()),
               cached + stats.blocks_held_by_clears + leases + held_blocks_.size());
}

// Nobody holds anything: then the whole pool is to be had for a request, whatever is cached.
void EngineDriver::check_idle() {
  check_references(shared_.manager().stats());
  if (shared_.blocks() == nullptr) return;
  const std::vector<TokenId> tokens(shared_.settings().blocks * shared_.settings().block_size, 3);
  const Request request{.tokens = tokens, .no_read = true, .no_publish = true};
  Admission admission = shared_.manager().admit(request);
  if (!admission.lease && admission.leaving_blocks > 0) {
    ++tally_.refused_admissions;
    shared_.tiers().pump();
    admission = shared_.manager().admit(request);
  }
  if (!admission.lease) {
    throw Broken(fmt::format("nothing runs, but {} of {} blocks are not to be had", admission.missing_blocks,
                             shared_.settings().blocks));
  }
  ++tally_.requests;
  ++tally_.abandoned;
  tally_.prompt_tokens += tokens.size();
}

}  // namespace cairn::testing
