// docs/metrics.md has each metric with its type and labels, and no other.
#include <algorithm>
#include <regex>
#include <set>

#include "metrics/catalogue.h"
#include "metrics_fixture.h"

namespace cairn {
namespace {

struct Row {
  std::string type;
  std::string label;
  std::set<std::string> values;
};

// The tables' rows: | `name` | type | `label` (`value`, ...) | ... |
std::map<std::string, Row> documented() {
  std::map<std::string, Row> rows;
  std::istringstream lines(contents_of(CAIRN_METRICS_DOCUMENT));
  const std::regex row_of(R"(\| `(cairn_\w+)` \| (\w+)[^|]*\| ?([^|]*)\|.*)");
  const std::regex code(R"(`([^`]+)`)");
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row_of)) continue;
    Row row{.type = match[2], .label = {}, .values = {}};
    const std::string labels = match[3];
    for (std::sregex_iterator at(labels.begin(), labels.end(), code), end; at != end; ++at) {
      if (row.label.empty()) {
        row.label = (*at)[1];
      } else {
        row.values.insert((*at)[1]);
      }
    }
    EXPECT_TRUE(rows.emplace(match[1], std::move(row)).second) << match[1] << " has two rows";
  }
  return rows;
}

std::string name_of(prometheus::MetricType type) {
  if (type == kCounter) return "counter";
  return type == kGauge ? "gauge" : "histogram";
}

template <class Stats, std::size_t kCount>
void add_values(const std::array<Field<Stats>, kCount>& fields, std::map<std::string, std::set<std::string>>& values) {
  for (const Field<Stats>& field : fields) {
    if (field.read && !field.label_value.empty()) {
      values[std::string(kCatalogue[field.family].name)].emplace(field.label_value);
    }
  }
}

TEST(DocumentTest, EachMetricIsDocumentedWithItsTypeAndLabelAndNoOther) {
  const auto rows = documented();
  std::set<std::string> exported;
  for (const MetricDescription& metric : metric_descriptions()) {
    const std::string name(metric.name);
    exported.insert(name);
    const auto row = rows.find(name);
    if (row == rows.end()) {
      ADD_FAILURE() << name << " has no row in docs/metrics.md";
      continue;
    }
    EXPECT_EQ(row->second.type, name_of(metric.type)) << name;
    EXPECT_EQ(row->second.label, metric.label) << name;
  }
  for (const auto& [name, row] : rows) EXPECT_TRUE(exported.contains(name)) << name << " is documented, not exported";
}

TEST(DocumentTest, EachValueOfALabelIsDocumented) {
  std::map<std::string, std::set<std::string>> values;
  add_values(kManagerFields, values);
  for (const auto& fields : kCaptureFields) add_values(fields, values);
  add_values(kIndexFields, values);
  add_values(kStoreFields, values);
  add_values(kBlockPoolFields, values);
  add_values(kSnapshotPoolFields, values);
  const auto rows = documented();
  for (const auto& [name, of_it] : values) EXPECT_EQ(rows.at(name).values, of_it) << name;
  EXPECT_GT(values.size(), 10U);
}

// In the text around the tables as well.
TEST(DocumentTest, EveryNameThatTheDocumentMentionsIsExported) {
  std::set<std::string> exported;
  for (const MetricDescription& metric : metric_descriptions()) {
    exported.emplace(metric.name);
    if (metric.type != kHistogram) continue;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) exported.insert(std::string(metric.name) + suffix);
  }
  const std::string text = contents_of(CAIRN_METRICS_DOCUMENT);
  const std::regex name(R"(\bcairn_\w+)");
  for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at) {
    EXPECT_TRUE(exported.contains(at->str())) << at->str();
  }
}

}  // namespace
}  // namespace cairn
