#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <variant>

#include "base/mutex.h"
#include "base/refuse.h"
#include "metrics/catalogue.h"
#include "metrics/reading.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

// ---- Prometheus ----

prometheus::ClientMetric::Histogram to_prometheus(const Histogram& histogram) {
  prometheus::ClientMetric::Histogram result;
  result.sample_sum = histogram.sum;
  for (std::size_t i = 0; i < histogram.bounds.size(); ++i) {
    result.sample_count += histogram.counts[i];
    result.bucket.push_back({.cumulative_count = result.sample_count, .upper_bound = histogram.bounds[i]});
  }
  result.sample_count += histogram.counts.back();
  return result;
}

prometheus::ClientMetric to_prometheus(const MetricDescription& family, const std::string& cache,
                                       const Sample& sample) {
  prometheus::ClientMetric metric;
  metric.label.push_back({"cache", cache});
  if (!family.label.empty()) metric.label.push_back({std::string(family.label), sample.label_value});
  if (sample.histogram) {
    metric.histogram = to_prometheus(*sample.histogram);
  } else if (family.type == kCounter) {
    metric.counter.value = sample.value;
  } else {
    metric.gauge.value = sample.value;
  }
  return metric;
}

// ---- JSON ----

Json number(double value) {
  constexpr double kExact = 9'007'199'254'740'992;  // 2^53: whole numbers below are shown as such
  const auto whole = static_cast<std::int64_t>(std::clamp(value, -kExact, kExact));
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

Json to_json(const Histogram& histogram) {
  Json buckets = Json::array();
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < histogram.bounds.size(); ++i) {
    count += histogram.counts[i];
    buckets.push_back({{"le", number(histogram.bounds[i])}, {"count", count}});
  }
  return {{"count", count + histogram.counts.back()}, {"sum", number(histogram.sum)}, {"buckets", std::move(buckets)}};
}

Json to_json(const Reading& reading) {
  Json cache = Json::object();
  for (const Sample& sample : reading.samples) {
    const MetricDescription& family = kCatalogue[sample.family];
    Json& place =
        family.label.empty() ? cache[std::string(family.name)] : cache[std::string(family.name)][sample.label_value];
    place = sample.histogram ? to_json(*sample.histogram) : number(sample.value);
  }
  if (reading.store) {
    cache["store"] = {{"degraded_reason", reading.store->degraded_reason}, {"io", reading.store->io}};
  }
  if (reading.block_pool_error) cache["block_pool"] = {{"last_error", *reading.block_pool_error}};
  if (reading.snapshot_pool_error) cache["snapshot_pool"] = {{"last_error", *reading.snapshot_pool_error}};
  return cache;
}

}  // namespace

std::span<const MetricDescription> metric_descriptions() noexcept {
  return kCatalogue;
}

class CacheMetrics::Impl {
 public:
  using Cache = std::variant<const CacheManager*, const RadixTree*>;

  void add(std::string name, Cache cache) {
    if (name.empty()) refuse("name", "empty: each cache has a name of its own");
    if (!is_utf8(name)) refuse("name", "not UTF-8");
    const MutexLock lock(mutex_);
    if (caches_.contains(name)) refuse("name", "'" + name + "' is watched already");
    caches_.emplace(std::move(name), cache);
  }

  void remove(std::string_view name) {
    const MutexLock lock(mutex_);
    if (const auto found = caches_.find(name); found != caches_.end()) caches_.erase(found);
  }

  // By name.
  [[nodiscard]] std::vector<std::pair<std::string, Reading>> read() const {
    const MutexLock lock(mutex_);  // so that no cache is removed meanwhile
    std::vector<std::pair<std::string, Reading>> readings;
    readings.reserve(caches_.size());
    for (const auto& [name, cache] : caches_) {
      readings.emplace_back(name, std::visit([](const auto* watched) { return read_cache(*watched); }, cache));
    }
    return readings;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, Cache, std::less<>> caches_ CAIRN_GUARDED_BY(mutex_);
};

CacheMetrics::CacheMetrics() : impl_(std::make_unique<Impl>()) {}
CacheMetrics::~CacheMetrics() = default;

void CacheMetrics::add(std::string name, const CacheManager& manager) {
  impl_->add(std::move(name), &manager);
}
void CacheMetrics::add(std::string name, const RadixTree& index) {
  impl_->add(std::move(name), &index);
}
void CacheMetrics::remove(std::string_view name) {
  impl_->remove(name);
}

std::vector<prometheus::MetricFamily> CacheMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> families(kCatalogue.size());
  for (std::size_t i = 0; i < families.size(); ++i) {
    families[i].name = kCatalogue[i].name;
    families[i].help = kCatalogue[i].help;
    families[i].type = kCatalogue[i].type;
  }
  for (const auto& [name, reading] : impl_->read()) {
    for (const Sample& sample : reading.samples) {
      families[sample.family].metric.push_back(to_prometheus(kCatalogue[sample.family], name, sample));
    }
  }
  std::erase_if(families, [](const prometheus::MetricFamily& family) { return family.metric.empty(); });
  return families;
}

std::string CacheMetrics::text() const {
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, Collect());
  return std::move(text).str();
}

std::string CacheMetrics::json() const {
  Json caches = Json::object();
  for (const auto& [name, reading] : impl_->read()) caches[name] = to_json(reading);
  const Json all = {{"schema_version", 1}, {"caches", std::move(caches)}};
  // Paths of files are bytes: what is not UTF-8 in them must not lose the rest.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cairn
