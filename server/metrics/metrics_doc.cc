#include "skrull/server/metrics/metrics_doc.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "prometheus/registry.h"
#include "skrull/server/metrics.h"
#include "skrull/server/metrics/job_series.h"
#include "skrull/server/metrics/process_metrics.h"
#include "skrull/server/metrics/store_size.h"

namespace skrull {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr char kHeader[] =
    R"(<!-- Made by `skrulld --print-metrics-markdown`; do not edit. -->

# Metrics

What a daemon serves at `http://METRICS_ADDRESS/metrics`. docs/runbook.md says what
to look at when.

Times are in seconds, sizes in bytes, ratios are shares of 1. A histogram NAME has
the series `NAME_bucket`, `NAME_sum` and `NAME_count`. Counters are since the start
of the daemon. No label holds what a client sent, but for `job`, which only the
series of `job_metrics` have.
)";

const char* TypeName(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Histogram:
      return "histogram";
    case MetricType::Summary:
    case MetricType::Untyped:
      break;
  }
  return "?";
}

// The values of each label.
using Labels = std::map<std::string, std::set<std::string>>;

Labels LabelsOf(const MetricFamily& family) {
  Labels labels;
  for (const prometheus::ClientMetric& metric : family.metric) {
    for (const auto& label : metric.label) {
      labels[label.name].insert(label.value);
    }
  }
  return labels;
}

void AppendTable(const std::string& heading, std::vector<MetricFamily> families,
                 std::string* text) {
  std::sort(families.begin(), families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  absl::StrAppend(text, "\n## ", heading,
                  "\n\n| metric | type | labels | meaning |\n"
                  "|---|---|---|---|\n");
  for (const MetricFamily& family : families) {
    std::vector<std::string> names;
    for (const auto& [name, values] : LabelsOf(family)) {
      names.push_back(absl::StrCat("`", name, "`"));
    }
    absl::StrAppend(text, "| `", family.name, "` | ", TypeName(family.type),
                    " | ", absl::StrJoin(names, ", "), " | ",
                    absl::StrReplaceAll(family.help, {{"|", "\\|"}}), " |\n");
  }
}

// A label may take other values in another metric: one line for each set.
void AppendLabels(const std::vector<MetricFamily>& families,
                  std::string* text) {
  std::map<std::pair<std::string, std::string>, std::set<std::string>> users;
  for (const MetricFamily& family : families) {
    for (const auto& [name, values] : LabelsOf(family)) {
      if (family.name == "skrull_build_info") continue;
      const std::string list = absl::StrJoin(
          values, ", ", [](std::string* out, const std::string& value) {
            absl::StrAppend(out, "`", value, "`");
          });
      users[{name, list}].insert(absl::StrCat("`", family.name, "`"));
    }
  }
  absl::StrAppend(text,
                  "\n## Values of labels\n\n| label | of | values |\n"
                  "|---|---|---|\n");
  for (const auto& [label, names] : users) {
    absl::StrAppend(text, "| `", label.first, "` | ",
                    absl::StrJoin(names, ", "), " | ", label.second, " |\n");
  }
}

}  // namespace

std::string MetricsMarkdown() {
  Metrics metrics;
  std::vector<MetricFamily> families = metrics.registry()->Collect();
  families.push_back(StoreSize("memory").Collect().front());
  const JobSeries series([] {
    const auto plan = std::make_shared<v1::PlanStatus>();
    plan->set_lower_bound_seconds(1);
    return std::vector<StatusBoard::JobActivity>{{.last_plan = plan}};
  });

  std::string text = kHeader;
  AppendTable("The daemon", families, &text);
  AppendTable("The process", ProcessMetrics().Collect(), &text);
  AppendTable("Of each job, with `job_metrics`", series.Collect(), &text);
  AppendLabels(families, &text);
  return text;
}

}  // namespace skrull
