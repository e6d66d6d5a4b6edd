// CacheManager in a tiny engine with continuous batching: admit what fits, run one step for all, publish, repeat.
// The "model" has attention and one recurrent layer; its KV and its state are running sums of the tokens.
#include <cairn/cache_manager.h>

#include <algorithm>
#include <cstdio>
#include <list>
#include <vector>

using namespace cairn;
constexpr std::size_t kBlockSize = 4, kChunk = 8;      // tokens
constexpr std::size_t kBytes = sizeof(std::uint64_t);  // of a token's KV, and of the state
constexpr auto kCopied = [](std::error_code) {};       // host memory: the copy is done when the call returns
struct Sequence {
  std::vector<TokenId> tokens{};  // the prompt, then what is decoded
  std::size_t tokens_wanted = 0, done = 0, reused = 0;
  SessionHash session = 0;
  bool resumed = false;
  std::uint64_t state = 0;  // of the recurrent layer, after `done` tokens
  Lease lease{};
};

struct Engine {
  std::shared_ptr<BlockPool> blocks = std::make_shared<BlockPool>(BlockPoolOptions{24, kBlockSize* kBytes});
  std::shared_ptr<SnapshotPool> states = std::make_shared<SnapshotPool>(SnapshotPoolOptions{8, kBytes});
  CacheManager manager{{.block_size = kBlockSize, .blocks = blocks, .snapshots = states}};
  std::list<Sequence> queue{};  // those with a lease are in the batch
  std::uint64_t* kv(BlockId block) { return reinterpret_cast<std::uint64_t*>(blocks->data(block)); }

  // [readme]
  // Into the batch: what is cached is not computed again.
  bool admit(Sequence& s) {
    Admission admission =
        manager.admit({.tokens = s.tokens, .session = s.session, .reserve_tokens = kChunk, .resumed = s.resumed});
    if (!admission.lease) return false;  // nothing is held; try again when a sequence has ended
    s.lease = std::move(*admission.lease);
    s.state = 0;
    if (auto point = s.lease.restore_point()) {
      states->read(point->slot, 0, std::as_writable_bytes(std::span(&s.state, 1)), kCopied);
    }
    for (const BlockCopy& copy : s.lease.copies()) std::copy_n(kv(copy.from), copy.tokens, kv(copy.to));
    s.lease.restored();
    s.done = s.reused = s.lease.first_token_to_compute();
    publish(s);  // the state that was restored may be worth keeping for this session
    return true;
  }

  // Its part of a step: a chunk of its prompt, or one decoded token. False if it has to make room.
  bool compute(Sequence& s, StepId step) {
    std::size_t to = std::min(s.tokens.size(), s.done + kChunk);
    const auto next = std::ranges::upper_bound(s.lease.capture_points(), s.done, {}, &CapturePoint::tokens);
    if (next != s.lease.capture_points().end()) to = std::min(to, next->tokens);  // stop where state is worth keeping
    if (s.lease.reserve(to) > 0) return false;
    s.lease.writes(step, s.done, to);
    for (; s.done < to; ++s.done) {
      s.state = s.state * 31 + s.tokens[s.done];
      kv(s.lease.block_table()[s.done / kBlockSize])[s.done % kBlockSize] = s.state;
    }
    return true;
  }

  // After its step: others may share what it wrote; the next token is known.
  void publish(Sequence& s) {
    const bool worth_keeping = std::ranges::count(s.lease.capture_points(), s.done, &CapturePoint::tokens) > 0;
    if (auto slot = worth_keeping ? s.lease.capture(s.done) : std::nullopt) {  // none: go on without
      states->write(*slot, 0, std::as_bytes(std::span(&s.state, 1)), kCopied);
      s.lease.captured(*slot);
    }
    s.lease.publish();
    if (s.done < s.tokens.size()) return;
    s.tokens.push_back(static_cast<TokenId>(s.state % 1000));
    s.lease.append({&s.tokens.back(), 1});
    if (s.tokens.size() >= s.tokens_wanted) s.lease.finish();
  }

  // [readme end]
  // Until nothing is left to do; the sequences in the order in which they ended.
  std::list<Sequence> run() {
    std::list<Sequence> ended;
    for (StepId step = 1; !queue.empty(); ++step) {
      bool room = true;
      for (Sequence& s : queue) {
        if (!s.lease.valid() && !(room = room && admit(s))) continue;
        if (compute(s, step)) continue;
        s.lease.preempt();  // it comes back, and finds what it has published
        s.resumed = true;
        room = false;
      }
      manager.step_done(step);
      for (auto s = queue.begin(), next = s; s != queue.end(); s = next) {
        next = std::next(s);
        if (s->lease.valid()) publish(*s);
        if (s->tokens.size() >= s->tokens_wanted) ended.splice(ended.end(), queue, s);
      }
    }
    return ended;
  }
};

int main() {
  Engine engine;
  for (SessionHash session = 1; session <= 4; ++session) {
    std::vector<TokenId> prompt(20, 500);  // a system prompt, and what the user says
    prompt.insert(prompt.end(), 12, static_cast<TokenId>(session));
    engine.queue.push_back({.tokens = prompt, .tokens_wanted = 40, .session = session});
  }
  for (Sequence& s : engine.run()) {  // the users answer
    s.tokens.insert(s.tokens.end(), {7, 8, 9});
    engine.queue.push_back({.tokens = s.tokens, .tokens_wanted = s.tokens.size() + 4, .session = s.session});
  }
  bool right = true;
  for (const Sequence& s : engine.run()) {
    std::uint64_t state = 0;  // as if nothing had been reused
    for (std::size_t i = 0; i < s.done; ++i) state = state * 31 + s.tokens[i];
    right = right && s.state == state;
    std::printf("session %zu reused %zu tokens of its %zu\n", std::size_t{s.session}, s.reused, s.tokens.size());
  }
  return right && engine.manager.stats().reused_tokens > 0 ? 0 : 1;
}
