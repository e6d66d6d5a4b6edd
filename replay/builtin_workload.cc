#include "replay/builtin_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace cairn::replay {
namespace {

constexpr std::size_t kTenants = 6;
constexpr std::size_t kDocumentsPerTenant = 24;
constexpr double kSessionStartMeanMs = 2'000;
constexpr double kAgentShare = 0.3;
constexpr double kDocumentShare = 0.4;  // of chats
constexpr double kRetryShare = 0.06;    // of turns: the same prompt once more
constexpr double kBranchShare = 0.05;   // of agent turns: some steps back, then another way
constexpr double kSubAgentShare = 0.04;
constexpr std::uint32_t kContextTokensMax = 65'536;

// What differs between the two kinds of session.
struct Kind {
  double turns_mean;
  double pause_mean_ms;
  double message_tokens_mean;  // of a user, or of a tool
  double output_tokens_mean;
};
constexpr Kind kChat{.turns_mean = 5, .pause_mean_ms = 40'000, .message_tokens_mean = 120, .output_tokens_mean = 300};
constexpr Kind kAgent{.turns_mean = 14, .pause_mean_ms = 9'000, .message_tokens_mean = 900, .output_tokens_mean = 150};

// The standard fixes the numbers of mt19937_64, but not those of its distributions.
class Sampler {
 public:
  explicit Sampler(std::uint64_t seed) : generator_(seed) {}

  // From 0 up to, but not including, 1.
  double uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }
  bool chance(double probability) { return uniform() < probability; }

  // Von Neumann's method (1951): needs comparisons only, so no rounding of a logarithm can change what comes out. A
  // falling run of uniforms that starts with x has an odd length with probability exp(-x).
  double exponential(double mean) {
    for (double whole = 0;; whole += 1) {
      const double first = uniform();
      double last = first;
      bool odd = true;
      for (double next = uniform(); next < last; next = uniform()) {
        last = next;
        odd = !odd;
      }
      if (odd) return (whole + first) * mean;
    }
  }

  std::uint32_t tokens(double mean) { return 1 + static_cast<std::uint32_t>(exponential(mean)); }

  // An index below `count`; the k-th is chosen in proportion to 1 / k.
  std::size_t zipf(std::size_t count) {
    double total = 0;
    for (std::size_t i = 1; i <= count; ++i) total += 1.0 / static_cast<double>(i);
    double left = uniform() * total;
    for (std::size_t i = 1; i < count; ++i) {
      left -= 1.0 / static_cast<double>(i);
      if (left < 0) return i - 1;
    }
    return count - 1;
  }

 private:
  std::mt19937_64 generator_;
};

struct Tenant {
  std::uint32_t number = 0;
  std::uint32_t adapter = 0;
  TokenRun chat_prompt;
  TokenRun agent_prompt;  // with the descriptions of the tools
  std::vector<TokenRun> documents;
};

struct Session {
  const Tenant* tenant = nullptr;
  const Kind* kind = nullptr;
  std::vector<TokenRun> history;
  std::size_t first_turn_runs = 0;   // of history, that going back does not remove
  std::size_t last_prompt_runs = 0;  // of history, that the last prompt consisted of; 0 before the first
  std::uint32_t turns_left = 0;
};

std::uint32_t tokens_in(std::span<const TokenRun> runs) {
  std::uint32_t tokens = 0;
  for (const TokenRun& run : runs) tokens += run.count;
  return tokens;
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {
    for (std::size_t i = 0; i < kTenants; ++i) {
      Tenant tenant;
      tenant.number = static_cast<std::uint32_t>(i + 1);
      tenant.adapter = i % 2 == 0 ? 0 : static_cast<std::uint32_t>(i / 2 + 1);  // every second tenant has its own
      tenant.chat_prompt = fresh(200 + random_.tokens(800));
      tenant.agent_prompt = fresh(2'000 + random_.tokens(3'000));
      for (std::size_t k = 0; k < kDocumentsPerTenant; ++k) {
        tenant.documents.push_back(fresh(500 + random_.tokens(3'000)));
      }
      tenants_.push_back(std::move(tenant));
    }
    next_start_ms_ = random_.exponential(kSessionStartMeanMs);
  }

  Workload generate(std::size_t requests) {
    workload_.set_has_timestamps();
    while (workload_.size() < requests) {
      if (turns_.empty() || next_start_ms_ <= turns_.top().time_ms) {
        start_session();
      } else {
        const Turn turn = turns_.top();
        turns_.pop();
        take_turn(turn.session, turn.time_ms);
      }
    }
    return std::move(workload_);
  }

 private:
  struct Turn {
    double time_ms = 0;
    std::size_t session = 0;
    // The latest is the least, for a queue that yields the greatest.
    bool operator<(const Turn& other) const {
      return std::pair(time_ms, session) > std::pair(other.time_ms, other.session);
    }
  };

  TokenRun fresh(std::uint32_t count) { return token_ids_.take(count); }
  TokenRun message(const Kind& kind) {
    // A tenth of the messages are long: a pasted text, a whole file.
    const double scale = random_.chance(0.1) ? 5.0 : 1.0;
    return fresh(random_.tokens(kind.message_tokens_mean * scale));
  }

  void start_session() {
    Session session;
    session.tenant = &tenants_[random_.zipf(kTenants)];
    session.kind = random_.chance(kAgentShare) ? &kAgent : &kChat;
    const bool chat = session.kind == &kChat;
    session.history.push_back(chat ? session.tenant->chat_prompt : session.tenant->agent_prompt);
    if (chat && random_.chance(kDocumentShare)) {
      session.history.push_back(session.tenant->documents[random_.zipf(kDocumentsPerTenant)]);
    }
    session.turns_left = random_.tokens(session.kind->turns_mean);
    add_session(std::move(session), next_start_ms_);
    next_start_ms_ += random_.exponential(kSessionStartMeanMs);
  }

  void add_session(Session session, double time_ms) {
    session.history.push_back(message(*session.kind));
    session.first_turn_runs = session.history.size();
    turns_.push({.time_ms = time_ms, .session = sessions_.size()});
    sessions_.push_back(std::move(session));
  }

  void take_turn(std::size_t index, double time_ms) {
    if (sessions_[index].last_prompt_runs != 0) extend_history(sessions_[index]);
    Session& session = sessions_[index];
    const TokenRun output = fresh(random_.tokens(session.kind->output_tokens_mean));
    if (tokens_in(session.history) + output.count > kContextTokensMax) {
      session.history = {};
      return;
    }
    Request request;
    request.timestamp_ms = static_cast<double>(static_cast<std::uint64_t>(time_ms));
    request.session = index + 1;
    request.adapter = session.tenant->adapter;
    request.tenant = session.tenant->number;
    request.line = workload_.size() + 1;
    workload_.add(request, session.history, {&output, 1});
    session.last_prompt_runs = session.history.size();
    session.history.push_back(output);

    const bool last_turn = --session.turns_left == 0;
    if (session.kind == &kAgent && random_.chance(kSubAgentShare)) start_sub_agent(index, time_ms);
    if (last_turn) {
      sessions_[index].history = {};
    } else {
      const double pause_ms = random_.exponential(sessions_[index].kind->pause_mean_ms);
      turns_.push({.time_ms = time_ms + pause_ms, .session = index});
    }
  }

  // The next prompt: the one before plus its output and a message; or the same again; or a branch further up.
  void extend_history(Session& session) {
    if (random_.chance(kRetryShare)) {
      session.history.resize(session.last_prompt_runs);
      return;
    }
    if (session.kind == &kAgent && random_.chance(kBranchShare)) {
      const std::size_t runs_back = 2 * (1 + random_.zipf(3));
      const std::size_t kept = session.history.size() - std::min(session.history.size(), runs_back);
      session.history.resize(std::max(session.first_turn_runs, kept));
    }
    session.history.push_back(message(*session.kind));
  }

  void start_sub_agent(std::size_t parent, double time_ms) {
    Session session;
    session.tenant = sessions_[parent].tenant;
    session.kind = &kAgent;
    session.history = sessions_[parent].history;
    session.turns_left = random_.tokens(kAgent.turns_mean / 2);
    add_session(std::move(session), time_ms + random_.exponential(kAgent.pause_mean_ms));
  }

  Sampler random_;
  TokenIdAllocator token_ids_;
  std::vector<Tenant> tenants_;
  std::vector<Session> sessions_;
  std::priority_queue<Turn> turns_;
  double next_start_ms_ = 0;
  Workload workload_;
};

}  // namespace

Workload builtin_workload(const BuiltinWorkloadOptions& options) {
  if (options.requests == 0 || options.requests > BuiltinWorkloadOptions::kRequestsMax) {
    throw std::invalid_argument(
        fmt::format("requests {}: must be from 1 to {}", options.requests, BuiltinWorkloadOptions::kRequestsMax));
  }
  return Generator(options.seed).generate(options.requests);
}

}  // namespace cairn::replay
