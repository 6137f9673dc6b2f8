#include "skrull/server/metrics/job_series.h"

#include <cstdint>
#include <optional>

namespace skrull {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Activity = StatusBoard::JobActivity;

struct Series {
  const char* name;
  const char* help;
  MetricType type;
  std::optional<double> (*value)(const Activity& job);
};

// A value of the job's latest plan.
template <auto member>
std::optional<double> OfPlan(const Activity& job) {
  if (job.last_plan == nullptr) return std::nullopt;
  return static_cast<double>((job.last_plan.get()->*member)());
}

std::optional<double> Gap(const Activity& job) {
  if (job.last_plan == nullptr || job.last_plan->lower_bound_seconds() <= 0) {
    return std::nullopt;
  }
  return job.last_plan->predicted_seconds() /
             job.last_plan->lower_bound_seconds() -
         1;
}

std::optional<double> IfPlanned(const Activity& job, int64_t value) {
  if (job.last_plan == nullptr) return std::nullopt;
  return static_cast<double>(value);
}

constexpr Series kSeries[] = {
    {"skrull_job_plans_total", "Plans committed for the job.",
     MetricType::Counter,
     [](const Activity& job) -> std::optional<double> {
       return static_cast<double>(job.plan_count);
     }},
    {"skrull_job_step_reports_total", "Step reports of the job.",
     MetricType::Counter,
     [](const Activity& job) -> std::optional<double> {
       return static_cast<double>(job.report_count);
     }},
    {"skrull_job_out_of_memory_reports_total",
     "Step reports of the job that say that a rank ran out of memory.",
     MetricType::Counter,
     [](const Activity& job) -> std::optional<double> {
       return static_cast<double>(job.out_of_memory_count);
     }},
    {"skrull_job_predicted_seconds", "Predicted time of the job's latest plan.",
     MetricType::Gauge, OfPlan<&v1::PlanStatus::predicted_seconds>},
    {"skrull_job_gap_ratio",
     "Predicted time of the job's latest plan over its lower bound, minus 1.",
     MetricType::Gauge, Gap},
    {"skrull_job_calibration_epoch",
     "Calibration epoch of the job's latest plan.", MetricType::Gauge,
     [](const Activity& job) { return IfPlanned(job, job.calibration_epoch); }},
    {"skrull_job_bucket_tokens", "Bucket of the job's latest plan, tokens.",
     MetricType::Gauge,
     [](const Activity& job) {
       return IfPlanned(job, job.bucket_size_tokens);
     }},
};

}  // namespace

std::vector<MetricFamily> JobSeries::Collect() const {
  const std::vector<Activity> jobs = source_();
  std::vector<MetricFamily> families;
  for (const Series& series : kSeries) {
    MetricFamily family;
    family.name = series.name;
    family.help = series.help;
    family.type = series.type;
    for (const Activity& job : jobs) {
      const std::optional<double> value = series.value(job);
      if (!value) continue;
      prometheus::ClientMetric metric;
      metric.label = {{"job", job.name}};
      metric.counter.value = *value;
      metric.gauge.value = *value;
      family.metric.push_back(std::move(metric));
    }
    families.push_back(std::move(family));
  }
  return families;
}

}  // namespace skrull
