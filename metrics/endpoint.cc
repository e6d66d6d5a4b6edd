#include <arpa/inet.h>
#include <civetweb.h>

#include <array>
#include <cerrno>
#include <exception>
#include <utility>

#include "base/mutex.h"
#include "cairn/metrics.h"

namespace cairn {
namespace {

constexpr int kOk = 200;
constexpr int kNotFound = 404;
constexpr int kMethodNotAllowed = 405;
constexpr int kInternalError = 500;

struct Answer {
  int status = kOk;
  const char* reason = "OK";
  const char* content_type = "text/plain; charset=utf-8";
  std::string body{};
};

Answer answer_to(std::string_view method, std::string_view path, const CacheMetrics& metrics) {
  if (path != "/metrics" && path != "/stats") {
    return {.status = kNotFound, .reason = "Not Found", .body = "There are /metrics and /stats.\n"};
  }
  if (method != "GET" && method != "HEAD") {
    return {.status = kMethodNotAllowed, .reason = "Method Not Allowed", .body = "There are GET and HEAD.\n"};
  }
  if (path == "/stats") return {.content_type = "application/json", .body = metrics.json()};
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics.text()};
}

// An address as civetweb wants it before the port. Empty: it is none.
std::string bound_to(const std::string& address) {
  std::array<unsigned char, sizeof(in6_addr)> unused{};
  if (::inet_pton(AF_INET, address.c_str(), unused.data()) == 1) return address;
  if (::inet_pton(AF_INET6, address.c_str(), unused.data()) == 1) return "[" + address + "]";
  return {};
}

}  // namespace

class MetricsEndpoint::Impl {
 public:
  Impl(const CacheMetrics& metrics, std::string address) : metrics_(metrics), address_(std::move(address)) {}
  ~Impl() {
    if (server_ != nullptr) ::mg_stop(server_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Why not, or empty.
  [[nodiscard]] std::string start(std::uint16_t port, std::size_t threads) {
    const std::string listening = address_ + ":" + std::to_string(port);
    const std::string num_threads = std::to_string(threads);
    // No document_root: it serves no files. No access_log_file, no error_log_file.
    std::array<const char*, 5> options{"listening_ports", listening.c_str(), "num_threads", num_threads.c_str(),
                                       nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = &Impl::answer;
    callbacks.log_message = &Impl::log;
    std::array<char, 256> text{};
    unsigned code = 0;
    mg_init_data init{.callbacks = &callbacks, .user_data = this, .configuration_options = options.data()};
    mg_error_data error{.code = &code, .text = text.data(), .text_buffer_size = text.size()};
    server_ = ::mg_start2(&init, &error);
    if (server_ == nullptr) {
      const std::string logged = first_message();
      return logged.empty() ? std::string(text.data()) : logged;
    }
    mg_server_port bound{};
    if (::mg_get_server_ports(server_, 1, &bound) < 1) return "civetweb does not say which port it is bound to";
    port_ = static_cast<std::uint16_t>(bound.port);
    return {};
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

 private:
  // Called by C: nothing may be thrown through it.
  static int answer(mg_connection* connection) noexcept {
    const mg_request_info* const request = ::mg_get_request_info(connection);
    const std::string_view method = request->request_method;
    try {
      const auto* const self = static_cast<const Impl*>(::mg_get_user_data(::mg_get_context(connection)));
      const Answer answer = answer_to(method, request->local_uri, self->metrics_);
      ::mg_printf(connection,
                  "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                  "Connection: close\r\n\r\n",
                  answer.status, answer.reason, answer.content_type, answer.body.size());
      if (method != "HEAD") ::mg_write(connection, answer.body.data(), answer.body.size());
      return answer.status;
    } catch (const std::exception&) {  // memory has run out
      ::mg_send_http_error(connection, kInternalError, "%s", "The metrics could not be read.");
      return kInternalError;
    }
  }

  // The first message says why a start fails; later ones are of connections that broke, which is the client's matter.
  static int log(const mg_connection* connection, const char* message) noexcept {
    auto* const self = static_cast<Impl*>(::mg_get_user_data(::mg_get_context(connection)));
    try {
      const MutexLock lock(self->mutex_);
      if (self->first_message_.empty()) self->first_message_ = message;
    } catch (const std::exception&) {
      return 1;  // then without
    }
    return 1;
  }

  [[nodiscard]] std::string first_message() const {
    const MutexLock lock(mutex_);
    return first_message_;
  }

  const CacheMetrics& metrics_;
  const std::string address_;
  mg_context* server_ = nullptr;
  std::uint16_t port_ = 0;
  mutable Mutex mutex_;
  std::string first_message_ CAIRN_GUARDED_BY(mutex_);
};

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
MetricsEndpoint::~MetricsEndpoint() = default;

std::uint16_t MetricsEndpoint::port() const noexcept {
  return impl_->port();
}

std::string MetricsEndpoint::url() const {
  return "http://" + impl_->address() + ":" + std::to_string(impl_->port());
}

OpenedMetricsEndpoint open_metrics_endpoint(const MetricsEndpointOptions& options, const CacheMetrics& metrics) {
  const auto failed = [&options](const std::string& reason) {
    return OpenedMetricsEndpoint{
        .endpoint = nullptr,
        .error = "metrics endpoint at " + options.address + ", port " + std::to_string(options.port) + ": " + reason};
  };
  const std::string address = bound_to(options.address);
  if (address.empty()) return failed("this is no IPv4 or IPv6 address");
  if (options.threads == 0) return failed("no threads that could answer");
  auto impl = std::make_unique<MetricsEndpoint::Impl>(metrics, address);
  if (const std::string reason = impl->start(options.port, options.threads); !reason.empty()) return failed(reason);
  return {.endpoint = std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(std::move(impl))), .error = {}};
}

}  // namespace cairn
