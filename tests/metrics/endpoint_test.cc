// The endpoint, asked as a client would ask it: through a socket.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "metrics_fixture.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Everything that the server answers until it closes the connection.
std::string ask(std::uint16_t port, const std::string& request) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ADD_FAILURE() << "can't connect to port " << port;
  } else if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    ADD_FAILURE() << "can't send";
  } else {
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = ::recv(fd, piece.data(), piece.size(), 0)) > 0;) {
      answer.append(piece.data(), static_cast<std::size_t>(got));
    }
  }
  ::close(fd);
  return answer;
}

std::string get(std::uint16_t port, const std::string& path, const std::string& method = "GET") {
  return ask(port, method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

// One test, since an endpoint takes two seconds to stop.
TEST(EndpointTest, ItServesMetricsAndStatsOnLoopbackAndNothingElse) {
  CacheManager manager({.blocks = std::make_shared<BlockPool>(BlockPoolOptions{.blocks = 5})});
  CacheMetrics metrics;
  metrics.add("c", manager);
  const OpenedMetricsEndpoint opened = open_metrics_endpoint({}, metrics);
  ASSERT_TRUE(opened.endpoint) << opened.error;
  EXPECT_EQ(opened.error, "");
  const std::uint16_t port = opened.endpoint->port();
  ASSERT_NE(port, 0);
  EXPECT_EQ(opened.endpoint->url(), "http://127.0.0.1:" + std::to_string(port));

  const std::string text = get(port, "/metrics");
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(text, HasSubstr("\r\nContent-Length: " + std::to_string(body_of(text).size()) + "\r\n"));
  EXPECT_EQ(body_of(text), metrics.text());
  EXPECT_EQ(samples_of(body_of(text)).at(R"(cairn_blocks{cache="c",state="free"})"), 5);

  const std::string stats = get(port, "/stats");
  EXPECT_THAT(stats, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_EQ(nlohmann::json::parse(body_of(stats))["caches"]["c"]["cairn_blocks"]["free"], 5);

  const std::string head = get(port, "/metrics", "HEAD");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(body_of(head), "");
  EXPECT_THAT(get(port, "/metrics", "POST"), StartsWith("HTTP/1.1 405 "));
  for (const char* path : {"/", "/metrics/x", "/metricsx", "/etc/passwd", "/../../../../etc/passwd", "/%2e%2e/etc"}) {
    EXPECT_THAT(get(port, path), ::testing::AnyOf(StartsWith("HTTP/1.1 404 "), StartsWith("HTTP/1.1 400 "))) << path;
  }
  (void)ask(port, "nonsense\r\n\r\n");
  EXPECT_THAT(get(port, "/metrics?x=1"), StartsWith("HTTP/1.1 200 OK\r\n")) << "still there";

  // Its port is taken.
  const OpenedMetricsEndpoint second = open_metrics_endpoint({.port = port}, metrics);
  EXPECT_FALSE(second.endpoint);
  EXPECT_THAT(second.error, StartsWith("metrics endpoint at 127.0.0.1, port " + std::to_string(port) + ": "));
  EXPECT_THAT(second.error, HasSubstr("Address already in use"));
}

TEST(EndpointTest, AddressesThatCannotBeAreNamed) {
  const CacheMetrics metrics;
  const auto error_of = [&](const MetricsEndpointOptions& options) {
    const OpenedMetricsEndpoint opened = open_metrics_endpoint(options, metrics);
    EXPECT_FALSE(opened.endpoint);
    return opened.error;
  };
  EXPECT_THAT(error_of({.address = "localhost"}), HasSubstr("localhost, port 0: this is no IPv4 or IPv6 address"));
  EXPECT_THAT(error_of({.address = "127.0.0.1:80,0.0.0.0"}), HasSubstr("this is no IPv4 or IPv6 address"));
  EXPECT_THAT(error_of({.address = "192.0.2.1", .port = 9}), HasSubstr("Cannot assign requested address"));
  EXPECT_THAT(error_of({.threads = 0}), HasSubstr("no threads"));
}

}  // namespace
}  // namespace cairn
