// A small cache, watched: serves http://127.0.0.1:PORT/metrics and /stats while it works.
//
//     metrics          asks itself once, prints some of the answer, and ends
//     metrics SECONDS  serves for so long, for curl or a Prometheus to look at
#include <cairn/metrics.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using cairn::Admission;
using cairn::BlockPool;
using cairn::BlockPoolOptions;
using cairn::CacheManager;
using cairn::CacheMetrics;
using cairn::OpenedMetricsEndpoint;
using cairn::StepId;
using cairn::TokenId;

// One request from its admission to its end, with an engine that computes at once.
void serve(CacheManager& manager, const std::vector<TokenId>& prompt, StepId step) {
  Admission admission = manager.admit({.tokens = prompt});
  if (!admission.lease) return;
  admission.lease->writes(step, admission.lease->first_token_to_compute(), prompt.size());
  manager.step_done(step);
  admission.lease->finish();
}

// What a scraper does.
std::string get(std::uint16_t port, const std::string& path) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::string answer;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = ::recv(fd, piece.data(), piece.size(), 0)) > 0;) {
      answer.append(piece.data(), static_cast<std::size_t>(got));
    }
  }
  ::close(fd);
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  const std::chrono::seconds serve_for(argc > 1 ? std::atoi(argv[1]) : 0);
  CacheManager manager({.block_size = 4, .blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = 64})});
  CacheMetrics metrics;
  metrics.add("example", manager);
  const OpenedMetricsEndpoint opened = cairn::open_metrics_endpoint({.port = 0}, metrics);  // any port that is free
  if (!opened.endpoint) {
    std::fprintf(stderr, "%s\n", opened.error.c_str());
    return 1;
  }
  std::printf("serving %s/metrics and /stats\n", opened.endpoint->url().c_str());
  std::fflush(stdout);

  std::vector<TokenId> prompt(20, 500);  // a system prompt, and what each user says
  const auto until = std::chrono::steady_clock::now() + serve_for;
  StepId step = 0;
  do {
    for (TokenId user = 1; user <= 8; ++user) {
      prompt.resize(20);
      prompt.resize(32, user);
      serve(manager, prompt, ++step);
    }
    if (serve_for.count() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  } while (std::chrono::steady_clock::now() < until);

  const std::string answer = get(opened.endpoint->port(), "/metrics");
  const std::size_t tokens = answer.find("cairn_prompt_tokens_total{");
  std::printf("%s\n", answer.substr(std::min(tokens, answer.size()), 240).c_str());
  return tokens != std::string::npos && answer.find("source=\"memory\"} 0\n") == std::string::npos ? 0 : 1;
}
