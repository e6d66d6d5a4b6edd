// The tables behind the metrics: whole, and after Prometheus' conventions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/check_names.h>

#include <algorithm>
#include <boost/pfr/core.hpp>
#include <set>
#include <string>

#include "metrics/catalogue.h"

namespace cairn {
namespace {

// Sets one field after the other, and looks which entries read it: as many as there are samples have one each.
template <class Stats, std::size_t kCount>
void expect_each_field_once(const std::array<Field<Stats>, kCount>& fields, std::size_t without_sample) {
  std::size_t unread = 0;
  std::set<const Field<Stats>*> readers;
  const auto set_and_look = [&]<std::size_t kIndex>() {
    Stats stats;
    using Value = boost::pfr::tuple_element_t<kIndex, Stats>;
    if constexpr (std::is_arithmetic_v<Value>) boost::pfr::get<kIndex>(stats) = Value{1};
    std::size_t reading = 0;
    for (const Field<Stats>& field : fields) {
      if (field.read == nullptr || field.read(stats) == 0) continue;
      ++reading;
      readers.insert(&field);
    }
    EXPECT_LE(reading, 1U) << "field " << kIndex << " is read by more than one entry";
    if (reading == 0) ++unread;
  };
  [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    (set_and_look.template operator()<kIndex>(), ...);
  }(std::make_index_sequence<kCount>());
  EXPECT_EQ(unread, without_sample);
  EXPECT_EQ(readers.size(), kCount - without_sample);

  std::set<std::pair<std::size_t, std::string_view>> samples;
  for (const Field<Stats>& field : fields) {
    if (field.read == nullptr) continue;
    EXPECT_TRUE(samples.emplace(field.family, field.label_value).second)
        << kCatalogue[field.family].name << " has two samples '" << field.label_value << "'";
  }
}

TEST(CatalogueTest, EachFieldOfTheStatisticsMakesOneSampleOrIsInOthers) {
  // Three sums, pinned snapshots and bytes of resident ones, which the index counts, and captures, below.
  expect_each_field_once(kManagerFields, 6);
  expect_each_field_once(kIndexFields, 1);      // the memory of slots, which the pool counts
  expect_each_field_once(kStoreFields, 3);      // a sum and two texts
  expect_each_field_once(kBlockPoolFields, 1);  // a text
  expect_each_field_once(kSnapshotPoolFields, 1);
}

TEST(CatalogueTest, EachFieldOfEachKindOfCaptureMakesOneSample) {
  std::size_t set = 0;
  CapturesByKind captures;
  const auto readers = [&] {
    std::size_t count = 0;
    for (const auto& fields : kCaptureFields) {
      count += static_cast<std::size_t>(std::ranges::count_if(
          fields, [&](const Field<CapturesByKind>& field) { return field.read(captures) != 0; }));
    }
    return count;
  };
  boost::pfr::for_each_field(captures, [&](CaptureStats& kind) {
    boost::pfr::for_each_field(kind, [&](std::uint64_t& value) {
      value = 1;
      EXPECT_EQ(readers(), ++set);
    });
  });
  EXPECT_EQ(set, 28U);
}

TEST(CatalogueTest, NamesFollowThePrometheusConventions) {
  std::set<std::string_view> names;
  for (const MetricDescription& metric : metric_descriptions()) {
    const std::string name(metric.name);
    EXPECT_TRUE(names.insert(metric.name).second) << name << " is there twice";
    EXPECT_TRUE(prometheus::CheckMetricName(name)) << name;
    EXPECT_TRUE(name.starts_with("cairn_")) << name;
    EXPECT_EQ(name.ends_with("_total"), metric.type == prometheus::MetricType::Counter)
        << name << ": counters end in _total, nothing else does";
    for (const std::string_view suffix : {"_bucket", "_sum", "_count"}) EXPECT_FALSE(name.ends_with(suffix)) << name;
    for (const std::string_view unit : {"_ms_", "_us_", "_ns_", "_kb_", "_mb_", "_mib_", "_percent_"}) {
      EXPECT_EQ((name + "_").find(unit), std::string::npos) << name << ": base units are seconds, bytes and ratios";
    }
    EXPECT_THAT(std::string(metric.help), ::testing::EndsWith(".")) << name;
    EXPECT_EQ(metric.help.find_first_of("\\\n"), std::string_view::npos) << name << ": would have to be escaped";
    if (metric.label.empty()) continue;
    EXPECT_TRUE(prometheus::CheckLabelName(std::string(metric.label))) << name;
    EXPECT_NE(metric.label, "cache") << name;
    EXPECT_NE(metric.label, "le") << name;
  }
}

}  // namespace
}  // namespace cairn
