// What a report shows, as data: client/cli/report.html draws it.
#ifndef SKRULL_CLIENT_CLI_REPORT_DATA_H_
#define SKRULL_CLIENT_CLI_REPORT_DATA_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull::cli {

// Everything about one plan. Times of the timeline are integers, in units of
// "tick_seconds", ten million of which are the step. REQUIRES: the plan is
// legal for `job`, of a batch of `lengths`, and has micro-batches. Plans the
// batch again by the policies it is compared with.
// O(ranks * micro-batches + planning).
nlohmann::ordered_json ReportData(const Job& job,
                                  std::span<const int64_t> lengths,
                                  const Plan& plan);

// The page with the data in it: one self-contained HTML file. No string of the
// data can end the element it is in.
std::string ReportPage(const nlohmann::ordered_json& data);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_REPORT_DATA_H_
