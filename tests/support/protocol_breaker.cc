// Callers that release what they do not hold.
#include <algorithm>
#include <limits>
#include <ostream>
#include <vector>

#include "support/describe.h"
#include "support/lockstep.h"
#include "support/tables.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kHandlesMax = 6;

// Any will do, and the same at every run.
std::string policy_for(const ProgramSettings& settings) {
  const std::vector<std::string> names = block_policy_names();
  return names[(settings.tokens_max + settings.slots) % names.size()];
}

class ProtocolBreaker {
 public:
  ProtocolBreaker(const ProgramSettings& settings, std::ostream* trace)
      : settings_(settings),
        tree_({.block_size = settings.block_size, .hash_seed = 1, .block_policy = policy_for(settings)}),
        tables_(settings),
        book_(settings),
        trace_(trace) {}

  void step(const Operation& operation);
  void check();
  void finish();
  [[nodiscard]] std::size_t calls() const { return calls_; }

 private:
  [[nodiscard]] std::size_t block_size() const { return settings_.block_size; }
  void insert(const Operation& operation, std::size_t matched_tokens);
  void acquire(const Operation& operation);
  void extend(const Operation& operation);
  void release(const Operation& operation);
  void release_handle(const Operation& operation);
  void give_back(const EvictedBlocks& evicted);
  void clear();
  template <class... Arguments>
  void note(const Arguments&... arguments) {
    ++calls_;
    if (trace_ == nullptr) return;
    *trace_ << "   ";
    ((*trace_ << arguments), ...);
    *trace_ << '\n';
  }

  ProgramSettings settings_;
  RadixTree tree_;
  Tables tables_;
  PromptBook book_;
  std::vector<PrefixHandle> handles_;
  bool anything_held_ = false;  // somebody may hold a use
  std::ostream* trace_;
  std::size_t calls_ = 0;
};

void ProtocolBreaker::insert(const Operation& operation, std::size_t matched_tokens) {
  const auto tokens = book_.make(operation);
  matched_tokens = std::min(matched_tokens, tokens.size());
  const auto table = tables_.make(operation, tokens.size() / block_size(), {});
  note(" insert ", describe(tokens), " matched ", matched_tokens, " adapter ", operation.adapter_id());
  const auto acquired =
      tree_.insert(tokens, table.blocks, table.disk_blocks, block_size(), matched_tokens, operation.adapter_id());
  tables_.blocks().acquire(acquired.blocks);
  tables_.disk_blocks().acquire(acquired.disk_block_ids);
  const std::size_t walked = std::min(tokens.size() / block_size(), table.blocks.size());
  if (matched_tokens / block_size() < walked) anything_held_ = true;
}

void ProtocolBreaker::acquire(const Operation& operation) {
  const auto tokens = book_.make(operation);
  note(" acquire ", describe(tokens), " adapter ", operation.adapter_id());
  auto acquired = tree_.acquire(tokens, operation.session(), operation.adapter_id());
  if (!acquired.match.empty()) anything_held_ = true;
  if (handles_.size() >= kHandlesMax) release_handle(operation);
  handles_.push_back(std::move(acquired.handle));
}

void ProtocolBreaker::extend(const Operation& operation) {
  if (handles_.empty()) acquire(operation);
  PrefixHandle& handle = handles_[operation.who % handles_.size()];
  const auto tokens = book_.make(operation);
  if (operation.kind == OperationKind::kTruncate) {
    const std::size_t kept = operation.cut * (handle.tokens() + 1) / 256;
    note(" truncate ", handle.tokens(), " to ", kept);
    return tree_.truncate(handle, kept);
  }
  if (handle.tokens() + tokens.size() > 4 * settings_.tokens_max) return release_handle(operation);
  const auto table = tables_.make(operation, tokens.size() / block_size(), {});
  note(" extend ", handle.tokens(), " by ", describe(tokens));
  const auto result = tree_.extend(handle, tokens, table.blocks, table.disk_blocks);
  tables_.blocks().acquire(result.blocks);
  tables_.disk_blocks().acquire(result.disk_block_ids);
  if (handle.tokens() > 0 && !result.epoch_passed) anything_held_ = true;
}

// By tokens, of anything. Where nobody can hold what is released, that is counted as one error.
void ProtocolBreaker::release(const Operation& operation) {
  const auto tokens = book_.make(operation);
  const std::size_t matched = operation.extra % 2 == 0 ? tokens.size() : operation.extra % (tokens.size() + 1);
  const std::uint64_t errors_before = tree_.counters().protocol_errors;
  note(" release_matched ", describe(tokens), ' ', matched, " adapter ", operation.adapter_id());
  if (operation.extra % 2 == 0) {
    tree_.release(tokens, block_size(), operation.adapter_id());
  } else {
    tree_.release_matched(tokens, block_size(), matched, operation.adapter_id());
  }
  const std::uint64_t errors = tree_.counters().protocol_errors - errors_before;
  if (errors > 1) throw Violation("one release was counted as several protocol errors");
  if (matched < block_size() && errors != 0) throw Violation("a release of nothing was counted as an error");
  if (matched >= block_size() && !anything_held_ && errors != 1) {
    throw Violation("a release while nothing was held was not counted as an error");
  }
}

void ProtocolBreaker::release_handle(const Operation& operation) {
  if (handles_.empty()) return;
  const std::size_t index = operation.who % handles_.size();
  note(" release handle of ", handles_[index].tokens());
  tree_.release(handles_[index]);
  handles_.erase(handles_.begin() + static_cast<std::ptrdiff_t>(index));
}

void ProtocolBreaker::give_back(const EvictedBlocks& evicted) {
  tables_.blocks().give_back(evicted.physical);
  tables_.disk_blocks().give_back(evicted.disk_block_ids);
}

void ProtocolBreaker::clear() {
  note(" clear");
  give_back(tree_.clear().blocks);
  anything_held_ = false;
  if (!tables_.blocks().references().empty()) throw Violation("a clear left blocks behind");
}

void ProtocolBreaker::step(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kLookup: {
      const auto tokens = book_.make(operation);
      note(" lookup ", describe(tokens), " adapter ", operation.adapter_id());
      const auto match = tree_.lookup(tokens, block_size(), operation.session(), operation.adapter_id());
      if (!match.empty()) anything_held_ = true;
      return;
    }
    case OperationKind::kAcquire:
      return acquire(operation);
    case OperationKind::kInsert:
    case OperationKind::kInsertWithSnapshot:
      return insert(operation, operation.extra);
    case OperationKind::kGrow:
      return insert(operation, 0);
    case OperationKind::kExtend:
    case OperationKind::kTruncate:
      return extend(operation);
    case OperationKind::kRelease:
    case OperationKind::kPutPlain:
    case OperationKind::kPutTail:
      return release(operation);
    case OperationKind::kForget:
    case OperationKind::kFindSnapshot:
      return release_handle(operation);
    case OperationKind::kEvict:
    case OperationKind::kEvictSnapshot:
      note(" evict ", operation.extra % 8);
      return give_back(tree_.evict(operation.extra % 8));
    case OperationKind::kClearAdapter:
      note(" clear ", operation.adapter_id());
      return give_back(tree_.clear(operation.adapter_id()).blocks);
    case OperationKind::kClearAll:
      return clear();
    default:
      return insert(operation, std::numeric_limits<std::size_t>::max());
  }
}

void ProtocolBreaker::check() {
  const std::string problem = tree_.validate();
  if (!problem.empty()) throw Violation("validate(): " + problem);
  std::size_t references = 0;
  for (const auto& [block, count] : tables_.blocks().references()) references += count;
  if (tree_.stats().cached_blocks != references) {
    throw Violation("stats().cached_blocks is " + std::to_string(tree_.stats().cached_blocks) + ", but " +
                    std::to_string(references) + " blocks are referenced");
  }
}

void ProtocolBreaker::finish() {
  const Operation plain;
  while (!handles_.empty()) release_handle(plain);
  check();
  give_back(tree_.evict(std::numeric_limits<std::size_t>::max()));
  check();
  clear();
  check();
}

}  // namespace

RunReport run_breaking_protocol(const Program& program, std::ostream* trace) {
  RunReport report;
  try {
    ProtocolBreaker breaker(program.settings, trace);
    try {
      for (const Operation& operation : program.operations) {
        if (trace != nullptr) *trace << report.operation << ' ' << name_of(operation.kind) << std::endl;
        breaker.step(operation);
        ++report.operation;
        if (report.operation % 8 == 0) breaker.check();
      }
      breaker.finish();
    } catch (const Violation& violation) {
      report.failure = violation.what();
    }
    report.calls = breaker.calls();
  } catch (const std::exception& error) {
    report.failure = std::string("unexpected exception: ") + error.what();
  }
  return report;
}

}  // namespace cairn::testing
