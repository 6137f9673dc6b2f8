#include "skrull/tests/bench/load/load_report.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "skrull/tests/support/process_usage.h"

namespace skrull::load {
namespace {

using nlohmann::ordered_json;

struct Column {
  const char* name;
  double share;
};
constexpr Column kColumns[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}};

std::string Line(const std::string& name, const Histogram& histogram,
                 double seconds) {
  std::string line =
      absl::StrFormat("%-34s %10d %10.1f", name, histogram.count(),
                      static_cast<double>(histogram.count()) / seconds);
  for (const Column& column : kColumns) {
    line += absl::StrFormat(
        " %9.2f", static_cast<double>(histogram.Quantile(column.share)) / 1000);
  }
  return line + absl::StrFormat(" %9.2f\n",
                                static_cast<double>(histogram.max()) / 1000);
}

ordered_json JsonOf(const Histogram& histogram, double seconds) {
  ordered_json json = {
      {"count", histogram.count()},
      {"per_second", static_cast<double>(histogram.count()) / seconds},
      {"mean_micros", histogram.mean()}};
  for (const Column& column : kColumns) {
    json[std::string(column.name) + "_micros"] =
        histogram.Quantile(column.share);
  }
  json["max_micros"] = histogram.max();
  return json;
}

}  // namespace

std::string TableOf(const LoadReport& report) {
  std::string text = absl::StrFormat("%-34s %10s %10s", "", "calls", "per s");
  for (const Column& column : kColumns) {
    text += absl::StrFormat(" %9s", column.name);
  }
  text += absl::StrFormat(" %9s  ms\n", "max");
  for (size_t i = 0; i < kMethods; ++i) {
    const Recorder::Row& row = report.totals.rows[i];
    if (row.answered.count() == 0 && row.refused.empty()) continue;
    text +=
        Line(MethodName(static_cast<Method>(i)), row.answered, report.seconds);
    for (const auto& [reason, histogram] : row.refused) {
      text += Line("  refused: " + reason, histogram, report.seconds);
    }
  }
  text += Line("sent after it was due", report.totals.lag, report.seconds);
  if (report.totals.held_back > 0) {
    text += absl::StrFormat(
        "%-34s %10d %10.1f\n", "held back", report.totals.held_back,
        static_cast<double>(report.totals.held_back) / report.seconds);
  }
  if (report.stuck_calls > 0) {
    text +=
        absl::StrFormat("STUCK: %d calls never ended\n", report.stuck_calls);
  }
  if (!report.resident_kib.empty()) {
    const auto [least, most] = std::minmax_element(
        report.resident_kib.begin(), report.resident_kib.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    text += absl::StrFormat(
        "daemon: %.0f KiB resident first, %.0f last, %.0f .. %.0f, slope "
        "%+.1f KiB/min\n",
        report.resident_kib.front().second, report.resident_kib.back().second,
        least->second, most->second,
        60 * testing::LeastSquaresSlope(report.resident_kib));
  }
  return text;
}

std::string JsonOf(const LoadReport& report) {
  const LoadOptions& options = report.options;
  ordered_json json = {{"options",
                        {{"mode", options.mode},
                         {"rate", options.rate},
                         {"in_flight", options.in_flight},
                         {"max_in_flight", options.max_in_flight},
                         {"jobs", options.jobs},
                         {"connections", options.connections},
                         {"batch_size", options.batch_size},
                         {"big_batch_size", options.big_batch_size},
                         {"big_share", options.big_share},
                         {"ranks", options.dp_size * options.cp_size},
                         {"policy", options.policy},
                         {"seed", options.seed}}},
                       {"seconds", report.seconds},
                       {"stuck_calls", report.stuck_calls},
                       {"held_back", report.totals.held_back},
                       {"lag", JsonOf(report.totals.lag, report.seconds)}};
  for (size_t i = 0; i < kMethods; ++i) {
    const Recorder::Row& row = report.totals.rows[i];
    ordered_json& method = json["methods"][MethodName(static_cast<Method>(i))];
    method["answered"] = JsonOf(row.answered, report.seconds);
    method["refused"] = ordered_json::object();
    for (const auto& [reason, histogram] : row.refused) {
      method["refused"][reason] = JsonOf(histogram, report.seconds);
    }
  }
  json["resident_kib"] = report.resident_kib;
  return json.dump(1) + "\n";
}

}  // namespace skrull::load
