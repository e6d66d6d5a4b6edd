#include "replay/workload.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace cairn::replay {
namespace {

constexpr std::uint64_t kTokenIds = std::uint64_t{1} << 32;

std::uint32_t total(std::span<const TokenRun> runs) {
  return std::accumulate(runs.begin(), runs.end(), std::uint32_t{0},
                         [](std::uint32_t sum, const TokenRun& run) { return sum + run.count; });
}

}  // namespace

TokenRun TokenIdAllocator::take(std::uint64_t count) {
  if (count > kTokenIds - next_) {
    throw std::length_error("the 2^32 token ids are used up: the workload has more distinct tokens than that");
  }
  const TokenRun run{.first = next_, .count = static_cast<std::uint32_t>(count), .literal = false};
  next_ += count;
  return run;
}

void Workload::add(Request request, std::span<const TokenRun> prompt, std::span<const TokenRun> output) {
  request.prompt_tokens = total(prompt);
  if (!output.empty()) {
    request.output_length = total(output);
    request.has_output_tokens = true;
  }
  Extent extent;
  extent.prompt = runs_.size();
  add_runs(prompt);
  extent.output = runs_.size();
  add_runs(output);
  extent.end = runs_.size();
  extents_.push_back(extent);
  requests_.push_back(request);
  prompt_tokens_ += request.prompt_tokens;
  output_tokens_ += request.output_length;
}

TokenRun Workload::store(std::span<const TokenId> tokens) {
  const TokenRun run{.first = literals_.size(), .count = static_cast<std::uint32_t>(tokens.size()), .literal = true};
  literals_.insert(literals_.end(), tokens.begin(), tokens.end());
  return run;
}

void Workload::prompt(std::size_t index, std::vector<TokenId>& tokens) const {
  tokens.clear();
  tokens.reserve(requests_[index].prompt_tokens);
  append(extents_[index].prompt, extents_[index].output, tokens);
}

void Workload::append_output(std::size_t index, std::vector<TokenId>& tokens) const {
  append(extents_[index].output, extents_[index].end, tokens);
}

// Runs that continue each other become one: a prompt of blocks never seen before is a single run.
void Workload::add_runs(std::span<const TokenRun> runs) {
  const std::size_t begin = runs_.size();
  for (const TokenRun& run : runs) {
    if (run.count == 0) continue;
    if (runs_.size() > begin) {
      TokenRun& last = runs_.back();
      if (last.literal == run.literal && last.first + last.count == run.first) {
        last.count += run.count;
        continue;
      }
    }
    runs_.push_back(run);
  }
}

void Workload::sequence(std::size_t index, std::size_t first, std::size_t count, std::vector<TokenId>& tokens) const {
  tokens.clear();
  for (std::size_t i = extents_[index].prompt; i < extents_[index].end && count > 0; ++i) {
    TokenRun run = runs_[i];
    if (first >= run.count) {
      first -= run.count;
      continue;
    }
    run.first += first;
    run.count = static_cast<std::uint32_t>(std::min<std::size_t>(run.count - first, count));
    first = 0;
    count -= run.count;
    append(run, tokens);
  }
}

void Workload::append(std::size_t begin, std::size_t end, std::vector<TokenId>& tokens) const {
  for (std::size_t i = begin; i < end; ++i) append(runs_[i], tokens);
}

void Workload::append(const TokenRun& run, std::vector<TokenId>& tokens) const {
  if (run.literal) {
    const auto first = literals_.begin() + static_cast<std::ptrdiff_t>(run.first);
    tokens.insert(tokens.end(), first, first + run.count);
    return;
  }
  const std::size_t old_size = tokens.size();
  tokens.resize(old_size + run.count);
  std::iota(tokens.begin() + static_cast<std::ptrdiff_t>(old_size), tokens.end(), static_cast<TokenId>(run.first));
}

}  // namespace cairn::replay
