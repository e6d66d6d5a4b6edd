// What there is to watch of caches, for Prometheus, and an endpoint to fetch it from. Part of the target
// cairn::metrics, which needs prometheus-cpp:
//
//     CacheMetrics metrics;
//     metrics.add("llama", manager);
//     auto opened = open_metrics_endpoint({.port = 9464}, metrics);
//     if (!opened.endpoint) log(opened.error);                       // http://127.0.0.1:9464/metrics
//
// A program that serves metrics of its own with a prometheus::Exposer registers the CacheMetrics there instead. Each
// metric's meaning: docs/metrics.md.
#ifndef CAIRN_METRICS_H_
#define CAIRN_METRICS_H_

#include <cairn/cache_manager.h>
#include <cairn/radix_tree.h>
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

struct MetricDescription {
  std::string_view name;
  prometheus::MetricType type;
  std::string_view help;
  std::string_view label;  // that it has beside "cache". Empty: none
};
// All that a CacheMetrics may answer, in this order.
[[nodiscard]] std::span<const MetricDescription> metric_descriptions() noexcept;

// Reads caches when it is asked to. Thread-safe; while it reads, add and remove wait. What a reading costs the
// requests meanwhile: docs/metrics.md.
class CacheMetrics final : public prometheus::Collectable {
 public:
  CacheMetrics();
  ~CacheMetrics() override;
  CacheMetrics(const CacheMetrics&) = delete;
  CacheMetrics& operator=(const CacheMetrics&) = delete;

  // Watches a cache, under the label cache="name". It has to live until it is removed, or as long as this. Throws
  // std::invalid_argument: a name that is empty, not UTF-8, or there already.
  void add(std::string name, const CacheManager& manager);
  // For engines that use the index alone: the metrics of the index.
  void add(std::string name, const RadixTree& index);
  // The cache is not read any more. A name that is not there is let pass.
  void remove(std::string_view name);

  // Families in the order of metric_descriptions, those without a sample left out; caches by name.
  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;
  // In Prometheus' text format, version 0.0.4.
  [[nodiscard]] std::string text() const;
  // The same, and what is no number, as JSON: docs/metrics.md.
  [[nodiscard]] std::string json() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct MetricsEndpointOptions {
  // As a number: IPv4, or IPv6 where civetweb was built with it (not in Debian). Whoever reaches it can read it all.
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;   // 0: any that is free
  std::size_t threads = 2;  // that answer
};

// Serves /metrics (text) and /stats (JSON) from threads of its own, by civetweb. civetweb makes the process ignore
// SIGPIPE.
class MetricsEndpoint {
 public:
  // Waits until what is being answered has been. Takes up to two seconds: civetweb looks that often.
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept;  // that it is bound to
  [[nodiscard]] std::string url() const;              // "http://127.0.0.1:9464"

 private:
  friend struct OpenedMetricsEndpoint open_metrics_endpoint(const MetricsEndpointOptions&, const CacheMetrics&);
  class Impl;
  explicit MetricsEndpoint(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

struct OpenedMetricsEndpoint {
  std::unique_ptr<MetricsEndpoint> endpoint;  // null if it could not be opened
  std::string error;                          // then: address, port and reason
};
// `metrics` has to live as long as the endpoint.
[[nodiscard]] OpenedMetricsEndpoint open_metrics_endpoint(const MetricsEndpointOptions& options,
                                                          const CacheMetrics& metrics);

}  // namespace cairn

#endif  // CAIRN_METRICS_H_
