// Uses the installed component: its header first, with nothing included before it.
#include <cairn/metrics.h>

#include <cstdio>
#include <memory>

int main() {
  cairn::CacheManager manager({.blocks = std::make_shared<cairn::BlockPool>(cairn::BlockPoolOptions{.blocks = 3})});
  cairn::CacheMetrics metrics;
  metrics.add("installed", manager);
  const auto opened = cairn::open_metrics_endpoint({}, metrics);
  const bool shows = metrics.text().find("cairn_blocks{cache=\"installed\",state=\"free\"} 3\n") != std::string::npos;
  if (!opened.endpoint || !shows) std::fprintf(stderr, "consumer_metrics: %s\n", opened.error.c_str());
  return opened.endpoint && shows ? 0 : 1;
}
