#include "replay/replayer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

#include "replay/errors.h"

namespace cairn::replay {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Call>
auto timed(std::uint64_t& total_ns, Call&& call) {
  struct Stopwatch {
    std::uint64_t& total;
    Clock::time_point start = Clock::now();
    ~Stopwatch() {
      total += static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
    }
  };
  const Stopwatch stopwatch{total_ns};
  return call();
}

double rate(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Nearest rank.
double percentile_us(std::vector<std::uint64_t>& times_ns, double share) {
  if (times_ns.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(times_ns.size())));
  const auto nth = times_ns.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(times_ns.begin(), nth, times_ns.end());
  return static_cast<double>(*nth) / 1e3;
}

}  // namespace

double RunResult::token_hit_rate() const {
  return rate(matched_tokens, prompt_tokens);
}
double RunResult::block_hit_rate() const {
  return rate(matched_blocks, prompt_blocks);
}

Replayer::Replayer(PrefixCache& cache, SimulatedBlockPool& pool, const Workload& workload, ReplayOptions options)
    : cache_(cache),
      pool_(pool),
      workload_(workload),
      options_(std::move(options)),
      running_(workload, options_.concurrency, options_.service_rate) {
  if (options_.block_size == 0) throw std::invalid_argument("block_size 0: must be at least 1");
}

RunResult Replayer::run() {
  const auto start = Clock::now();
  result_.requests = workload_.size();
  result_.pool_blocks = pool_.capacity();
  for (std::size_t i = 0; i < workload_.size(); ++i) {
    const Request& request = workload_[i];
    const std::size_t needed = blocks_for(request.prompt_tokens) + blocks_for(request.output_length);
    if (pool_.capacity() && needed > *pool_.capacity()) {
      ++result_.rejected;
      if (result_.first_rejected.size() < RunResult::kRejectedNamedMax) {
        result_.first_rejected.push_back({.line = request.line, .blocks_needed = needed});
      }
    } else {
      admit(i, needed);
    }
    if (options_.on_request_done) options_.on_request_done();
  }
  while (!running_.empty()) finish(running_.take_first());
  sweep();
  result_.peak_running = running_.peak();
  result_.peak_blocks = pool_.peak_used();
  result_.cache_time_p50_us = percentile_us(cache_ns_, 0.50);
  result_.cache_time_p99_us = percentile_us(cache_ns_, 0.99);
  for (const std::uint64_t ns : cache_ns_) result_.cache_time_total_s += static_cast<double>(ns) / 1e9;
  result_.wall_time_s = std::chrono::duration<double>(Clock::now() - start).count();
  return std::move(result_);
}

void Replayer::admit(std::size_t index, std::size_t blocks_needed) {
  running_.make_room_for(index, [this](Running ended) { finish(std::move(ended)); });
  const Request& request = workload_[index];
  workload_.prompt(index, prompt_);
  digests_.clear();
  append_digests(prompt_, options_.block_size, request.context(), digests_);
  Running running;
  running.index = index;
  bool waited = false;
  while (!try_admit(running, blocks_needed)) {
    if (running_.empty()) {
      throw ReplayError(
          fmt::format("{} needs {} blocks, nothing else runs, and the cache does not give up enough of the pool's {}",
                      describe(index), blocks_needed, pool_.capacity().value_or(0)));
    }
    waited = true;
    finish(running_.take_first());
  }
  if (waited) ++result_.waited;
  running_.add(index, std::move(running));
}

// Looks up, allocates and inserts. If the pool is short even after evicting, nothing is held afterwards.
bool Replayer::try_admit(Running& running, std::size_t blocks_needed) {
  const Request& request = workload_[running.index];
  const std::size_t block_size = options_.block_size;
  const PrefixMatch match =
      timed(running.cache_ns, [&] { return cache_.lookup(prompt_, block_size, request.session, request.context()); });
  check_match(running.index, match);
  for (const BlockId block : match.matched_blocks) pool_.add_reference(block);

  const std::size_t rest = blocks_needed - match.matched_blocks.size();
  if (const std::size_t shortage = pool_.shortage(rest); shortage > 0) {
    const EvictedBlocks evicted = timed(running.cache_ns, [&] { return cache_.evict(shortage); });
    for (const BlockId block : evicted.physical) pool_.drop_reference(block);
    result_.evicted_blocks += evicted.size();
    if (options_.observer != nullptr) options_.observer->on_evicted(running.index, evicted.physical);
  }
  if (pool_.shortage(rest) > 0) {
    timed(running.cache_ns,
          [&] { cache_.release_matched(prompt_, block_size, match.matched_tokens, request.context()); });
    for (const BlockId block : match.matched_blocks) pool_.drop_reference(block);
    return false;
  }
  running.table = match.matched_blocks;
  pool_.allocate(rest, running.table);
  for (std::size_t i = match.matched_blocks.size(); i < digests_.size(); ++i) {
    pool_.fill(running.table[i], digests_[i]);
  }
  if (options_.observer != nullptr) options_.observer->on_admitted(running.index, match.matched_blocks.size());
  publish(running, prompt_, match.matched_tokens, running.cache_ns);
  count_admitted(running, match.matched_blocks.size());
  return true;
}

void Replayer::count_admitted(const Running& running, std::size_t matched_blocks) {
  const Request& request = workload_[running.index];
  const std::size_t matched_tokens = matched_blocks * options_.block_size;
  result_.prompt_tokens += request.prompt_tokens;
  result_.output_tokens += request.output_length;
  result_.matched_tokens += matched_tokens;
  result_.reused_tokens += std::min<std::size_t>(matched_tokens, request.prompt_tokens - 1);
  result_.matched_blocks += matched_blocks;
  result_.prompt_blocks += request.prompt_tokens / options_.block_size;
}

// Inserts the full blocks of `tokens`; the sequence holds a use on those of the first held_tokens already.
void Replayer::publish(const Running& running, std::span<const TokenId> tokens, std::size_t held_tokens,
                       std::uint64_t& cache_ns) {
  const std::span<const BlockId> table = std::span(running.table).first(tokens.size() / options_.block_size);
  const InsertAcquired acquired = timed(cache_ns, [&] {
    return cache_.insert(tokens, table, {}, options_.block_size, held_tokens, workload_[running.index].context());
  });
  for (const BlockId block : acquired.blocks) pool_.add_reference(block);
  result_.created_blocks += acquired.blocks.size();
  if (options_.observer != nullptr) options_.observer->on_published(running.index, table, acquired.blocks);
}

void Replayer::finish(Running running) {
  const Request& request = workload_[running.index];
  workload_.prompt(running.index, ended_tokens_);
  if (request.has_output_tokens) {
    workload_.append_output(running.index, ended_tokens_);
    std::vector<ContentDigest> digests;
    append_digests(ended_tokens_, options_.block_size, request.context(), digests);
    // The prompt's last block, if it was not full, and those after it were this sequence's own until now.
    for (std::size_t i = request.prompt_tokens / options_.block_size; i < digests.size(); ++i) {
      pool_.fill(running.table[i], digests[i]);
    }
    publish(running, ended_tokens_, request.prompt_tokens, running.cache_ns);
  }
  timed(running.cache_ns, [&] { cache_.release(ended_tokens_, options_.block_size, request.context()); });
  for (const BlockId block : running.table) pool_.drop_reference(block);
  cache_ns_.push_back(running.cache_ns);
}

// After the last request: all that the cache holds can be evicted, and all references come back.
void Replayer::sweep() {
  const std::uint64_t cached = result_.created_blocks - result_.evicted_blocks;
  if (cache_.stats().cached_blocks != cached) {
    throw ReplayError(fmt::format("at the end the cache holds {} blocks; it took {} and gave back {}",
                                  cache_.stats().cached_blocks, result_.created_blocks, result_.evicted_blocks));
  }
  const EvictedBlocks evicted = cache_.evict(std::numeric_limits<std::size_t>::max());
  for (const BlockId block : evicted.physical) pool_.drop_reference(block);
  const CacheStats stats = cache_.stats();
  if (stats.cached_blocks != 0 || stats.entries != 0 || pool_.used() != 0) {
    throw ReplayError(fmt::format(
        "after everything was released and evicted, the cache still holds {} blocks in {} entries, and {} blocks of "
        "the pool are in use",
        stats.cached_blocks, stats.entries, pool_.used()));
  }
}

void Replayer::check_match(std::size_t index, const PrefixMatch& match) const {
  if (match.matched_tokens != match.matched_blocks.size() * options_.block_size ||
      match.matched_blocks.size() > digests_.size()) {
    throw ReplayError(fmt::format("{}: the cache matched {} tokens with {} blocks of a prompt of {} tokens",
                                  describe(index), match.matched_tokens, match.matched_blocks.size(), prompt_.size()));
  }
  for (std::size_t i = 0; i < match.matched_blocks.size(); ++i) {
    const BlockId block = match.matched_blocks[i];
    if (pool_.content(block) != digests_[i]) {
      throw ReplayError(
          fmt::format("{}: for block {} of its prompt the cache handed out physical block {}, which "
                      "was filled with other tokens",
                      describe(index), i, block));
    }
  }
}

std::size_t Replayer::blocks_for(std::size_t tokens) const {
  return tokens / options_.block_size + (tokens % options_.block_size != 0 ? 1 : 0);
}

std::string Replayer::describe(std::size_t index) const {
  return fmt::format("request {} (line {})", index + 1, workload_[index].line);
}

}  // namespace cairn::replay
