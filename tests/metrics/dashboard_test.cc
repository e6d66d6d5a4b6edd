// docs/grafana/cairn.json asks for metrics that are exported, with labels that they have.
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "metrics_fixture.h"

namespace cairn {
namespace {

using Json = nlohmann::json;
using Labels = std::set<std::string>;

// By the names that queries may use.
std::map<std::string, Labels> exported() {
  std::map<std::string, Labels> names;
  for (const MetricDescription& metric : metric_descriptions()) {
    Labels labels{"cache"};
    if (!metric.label.empty()) labels.emplace(metric.label);
    const std::string name(metric.name);
    if (metric.type != prometheus::MetricType::Histogram) {
      names[name] = labels;
      continue;
    }
    names[name + "_sum"] = names[name + "_count"] = labels;
    labels.insert("le");
    names[name + "_bucket"] = labels;
  }
  return names;
}

const std::set<std::string> kPromQl = {
    "sum",       "max", "min",      "avg", "by", "without", "rate",      "increase", "histogram_quantile",
    "clamp_min", "on",  "ignoring", "and", "or", "unless",  "group_left"};
// What Prometheus itself adds to each sample.
const Labels kOfTargets = {"instance", "job"};

// What is wrong with a query, or empty. `legend` is how its results are named.
std::string wrong_with(const std::string& query, const std::string& legend = {}) {
  static const auto kNames = exported();
  std::string rest = std::regex_replace(query, std::regex(R"("[^"]*")"), "\"\"");      // values
  rest = std::regex_replace(rest, std::regex(R"(\[(\$__\w+|\d+\w(:\d+\w)?)\])"), "");  // ranges
  rest = std::regex_replace(rest, std::regex(R"(\b\d+(\.\d+)?(e-?\d+)?\b)"), "");      // numbers
  Labels labels = kOfTargets;

  // Selectors: each label of one has to be the metric's.
  std::size_t metrics = 0;
  const std::regex selector(R"((\w+)\s*\{([^}]*)\}|\b(cairn_\w+)\b)");
  std::string without_selectors;
  std::sregex_iterator at(rest.begin(), rest.end(), selector);
  std::size_t from = 0;
  for (; at != std::sregex_iterator(); ++at) {
    const std::string name = (*at)[1].matched ? (*at)[1].str() : (*at)[3].str();
    const auto found = kNames.find(name);
    if (found == kNames.end()) return "no metric " + name;
    ++metrics;
    labels.insert(found->second.begin(), found->second.end());
    const std::string inside = (*at)[2];
    const std::regex matcher(R"((\w+)\s*(=~|!~|!=|=))");
    for (std::sregex_iterator label(inside.begin(), inside.end(), matcher); label != std::sregex_iterator(); ++label) {
      const std::string asked_for = (*label)[1];
      if (!found->second.contains(asked_for) && !kOfTargets.contains(asked_for)) {
        return name + " has no label " + asked_for;
      }
    }
    without_selectors += rest.substr(from, static_cast<std::size_t>(at->position()) - from) + " ";
    from = static_cast<std::size_t>(at->position() + at->length());
  }
  without_selectors += rest.substr(from);
  if (metrics == 0) return "it asks for no metric";

  // Groupings: labels of any metric of the query. Legends: labels that the results still have.
  Labels kept = labels;
  if (std::regex_search(without_selectors, std::regex(R"(\b(sum|min|max|avg)\b)"))) kept.clear();
  const std::regex grouping(R"(\b(by|without|on|ignoring|group_left)\s*\(([^)]*)\))");
  const std::regex word(R"([A-Za-z_]\w*)");
  for (std::sregex_iterator group(without_selectors.begin(), without_selectors.end(), grouping), end; group != end;
       ++group) {
    const std::string inside = (*group)[2];
    for (std::sregex_iterator label(inside.begin(), inside.end(), word); label != end; ++label) {
      if (!labels.contains(label->str())) return "no metric here has a label " + label->str();
      if ((*group)[1] == "by") kept.insert(label->str());
    }
  }
  const std::regex placeholder(R"(\{\{\s*(\w+)\s*\}\})");
  for (std::sregex_iterator label(legend.begin(), legend.end(), placeholder), end; label != end; ++label) {
    if (!kept.contains((*label)[1])) return "the results have no label " + (*label)[1].str();
  }

  // What is left are functions and operators: else it is a name that is misspelt.
  const std::string functions = std::regex_replace(without_selectors, grouping, " $1 ");
  for (std::sregex_iterator left(functions.begin(), functions.end(), word), end; left != end; ++left) {
    if (!kPromQl.contains(left->str())) return "'" + left->str() + "' is neither a metric nor a function known here";
  }
  return {};
}

TEST(DashboardTest, TheCheckFindsWhatIsWrong) {
  EXPECT_EQ(wrong_with("sum by (source) (rate(cairn_prompt_tokens_total{cache=~\"$cache\"}[$__rate_interval]))",
                       "{{source}}"),
            "");
  EXPECT_EQ(wrong_with("histogram_quantile(0.99, sum by (le) (rate(cairn_admit_seconds_bucket[5m])))"), "");
  EXPECT_EQ(wrong_with("cairn_blocks"), "");
  EXPECT_EQ(wrong_with("cairn_prompt_token_total"), "no metric cairn_prompt_token_total");
  EXPECT_EQ(wrong_with("carin_blocks{cache=\"x\"}"), "no metric carin_blocks");
  EXPECT_EQ(wrong_with("rate(cairn_blocks) + carin_blocks"),
            "'carin_blocks' is neither a metric nor a function known here");
  EXPECT_EQ(wrong_with("cairn_admit_seconds"), "no metric cairn_admit_seconds");
  EXPECT_EQ(wrong_with("cairn_blocks_sum"), "no metric cairn_blocks_sum");
  EXPECT_EQ(wrong_with("cairn_blocks{source=\"free\"}"), "cairn_blocks has no label source");
  EXPECT_EQ(wrong_with("sum by (source) (cairn_blocks)"), "no metric here has a label source");
  EXPECT_EQ(wrong_with("cairn_blocks", "{{tier}}"), "the results have no label tier");
  EXPECT_EQ(wrong_with("sum by (state) (cairn_blocks)", "{{cache}}"), "the results have no label cache");
  EXPECT_EQ(wrong_with("sum(1)"), "it asks for no metric");
}

// Calls `each(panel)` for all panels, those inside of rows as well.
void for_each_panel(const Json& panels, const auto& each) {
  for (const Json& panel : panels) {
    each(panel);
    if (panel.contains("panels")) for_each_panel(panel["panels"], each);
  }
}

TEST(DashboardTest, EachQueryAsksForWhatIsExported) {
  const Json dashboard = Json::parse(contents_of(CAIRN_METRICS_DASHBOARD));
  std::size_t queries = 0;
  std::set<int> ids;
  for_each_panel(dashboard.at("panels"), [&](const Json& panel) {
    const std::string title = panel.at("title");
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second) << title << ": its id is taken";
    if (panel.at("type") == "row") return;
    EXPECT_FALSE(panel.at("targets").empty()) << title;
    for (const Json& target : panel.at("targets")) {
      ++queries;
      EXPECT_EQ(wrong_with(target.at("expr"), target.value("legendFormat", "")), "")
          << title << ": " << target["expr"];
      EXPECT_NE(target.at("expr").get<std::string>().find("$cache"), std::string::npos)
          << title << " does not heed the choice of caches";
    }
  });
  EXPECT_GT(queries, 20U);
  for (const Json& variable : dashboard.at("templating").at("list")) {
    if (variable.at("type") != "query") continue;
    const std::string query = variable.at("definition");
    EXPECT_EQ(variable.at("query").at("query"), query);
    std::smatch parts;
    ASSERT_TRUE(std::regex_match(query, parts, std::regex(R"(label_values\((\w+), (\w+)\))"))) << query;
    EXPECT_EQ(wrong_with(parts[1], "{{" + parts[2].str() + "}}"), "") << query;
  }
}

}  // namespace
}  // namespace cairn
