#include "skrull/server/metrics.h"

#include <algorithm>
#include <map>
#include <string>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "skrull/server/version.h"

namespace skrull {
namespace {

using prometheus::Histogram;

constexpr const char* kMethodNames[kRpcMethods] = {
    "CreateJob",   "GetJob",      "ListJobs",   "DeleteJob", "PlanBatch",
    "StreamPlans", "GetRankPlan", "ReportStep", "Rendezvous"};
constexpr const char* kPhaseNames[kPlanningPhases] = {"decode", "plan", "check",
                                                      "encode", "commit"};
// The names of gRPC's own documentation.
constexpr const char* kCodeNames[] = {"OK",
                                      "CANCELLED",
                                      "UNKNOWN",
                                      "INVALID_ARGUMENT",
                                      "DEADLINE_EXCEEDED",
                                      "NOT_FOUND",
                                      "ALREADY_EXISTS",
                                      "PERMISSION_DENIED",
                                      "RESOURCE_EXHAUSTED",
                                      "FAILED_PRECONDITION",
                                      "ABORTED",
                                      "OUT_OF_RANGE",
                                      "UNIMPLEMENTED",
                                      "INTERNAL",
                                      "UNAVAILABLE",
                                      "DATA_LOSS",
                                      "UNAUTHENTICATED"};

Histogram::BucketBoundaries SecondsBuckets() {
  return {1e-6, 2.5e-6, 5e-6,   1e-5, 2.5e-5, 5e-5,  1e-4, 2.5e-4,
          5e-4, 1e-3,   2.5e-3, 5e-3, 0.01,   0.025, 0.05, 0.1,
          0.25, 0.5,    1,      2.5,  5,      10};
}

// Shares of a whole, and excesses over 0.
Histogram::BucketBoundaries RatioBuckets() {
  return {0,   0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2,
          0.3, 0.4,   0.5,   0.75, 1,    2,    5,   10};
}

prometheus::Counter* AddCounter(
    prometheus::Registry& registry, const char* name, const char* help,
    const std::map<std::string, std::string>& labels = {}) {
  return &prometheus::BuildCounter()
              .Name(name)
              .Help(help)
              .Register(registry)
              .Add(labels);
}

prometheus::Gauge* AddGauge(
    prometheus::Registry& registry, const char* name, const char* help,
    const std::map<std::string, std::string>& labels = {}) {
  return &prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(
      labels);
}

Histogram* AddHistogram(prometheus::Registry& registry, const char* name,
                        const char* help,
                        const Histogram::BucketBoundaries& buckets,
                        const std::map<std::string, std::string>& labels = {}) {
  return &prometheus::BuildHistogram()
              .Name(name)
              .Help(help)
              .Register(registry)
              .Add(labels, buckets);
}

}  // namespace

const char* RpcMethodName(RpcMethod method) {
  return kMethodNames[static_cast<size_t>(method)];
}

Metrics::Metrics() : registry_(std::make_shared<prometheus::Registry>()) {
  prometheus::Registry& registry = *registry_;
  for (size_t method = 0; method < kRpcMethods; ++method) {
    for (size_t code = 0; code < kCodes; ++code) {
      rpcs_[method][code] = AddCounter(
          registry, "skrull_rpcs_total",
          "RPCs answered; a StreamPlans call counts once, at its end.",
          {{"method", kMethodNames[method]}, {"code", kCodeNames[code]}});
    }
  }
  for (size_t phase = 0; phase < kPlanningPhases; ++phase) {
    phases_[phase] =
        AddHistogram(registry, "skrull_planning_seconds",
                     "Time the daemon spent on one batch, by phase.",
                     SecondsBuckets(), {{"phase", kPhaseNames[phase]}});
  }
  for (ErrorReason reason : AllErrorReasons()) {
    refusals_.push_back(AddCounter(registry, "skrull_refusals_total",
                                   "Requests refused, by reason.",
                                   {{"reason", ErrorReasonName(reason)}}));
  }
  for (Policy policy : AllPolicies()) {
    plans_.push_back(AddCounter(registry, "skrull_plans_total",
                                "Plans made, by policy.",
                                {{"policy", PolicyName(policy)}}));
  }
  for (int outcome = v1::StepOutcome_MIN; outcome <= v1::StepOutcome_MAX;
       ++outcome) {
    reports_.push_back(AddCounter(
        registry, "skrull_step_reports_total", "Step reports, by outcome.",
        {{"outcome",
          v1::StepOutcome_Name(static_cast<v1::StepOutcome>(outcome))}}));
  }
  planned_sequences_ = AddCounter(registry, "skrull_planned_sequences_total",
                                  "Sequences placed by the plans made.");
  planned_tokens_ = AddCounter(registry, "skrull_planned_tokens_total",
                               "Tokens placed by the plans made.");
  sharded_tokens_ =
      AddCounter(registry, "skrull_sharded_tokens_total",
                 "Tokens of those in sequences sharded over several ranks.");
  roll_backs_ = AddCounter(registry, "skrull_roll_backs_total",
                           "Roll-backs of the heuristic in the plans made.");
  coalesced_ = AddCounter(
      registry, "skrull_coalesced_requests_total",
      "Requests answered by the planning of an identical, concurrent one.");
  dropped_ = AddCounter(
      registry, "skrull_dropped_requests_total",
      "Requests dropped unplanned: expired, cancelled or cut off by a stop.");
  checker_rejections_ =
      AddCounter(registry, "skrull_checker_rejections_total",
                 "Plans of ours that the checker refused: bugs.");
  sharded_ratio_ =
      AddHistogram(registry, "skrull_plan_sharded_ratio",
                   "Share of a plan's tokens that are in sharded sequences.",
                   RatioBuckets());
  gap_ratio_ =
      AddHistogram(registry, "skrull_plan_gap_ratio",
                   "Predicted time of a plan over its lower bound, minus 1.",
                   RatioBuckets());
  imbalance_ratio_ =
      AddHistogram(registry, "skrull_plan_imbalance_ratio",
                   "Busiest rank's compute time over the mean of all, minus 1.",
                   RatioBuckets());
  queue_depth_ = AddGauge(registry, "skrull_planning_queue_depth",
                          "Batches that wait for a planning thread.");
  jobs_ = AddGauge(registry, "skrull_jobs", "Registered jobs.");
  rank_waits_ = AddGauge(registry, "skrull_rank_waits",
                         "GetRankPlan calls that wait for a commit.");
  rendezvous_waits_ = AddGauge(registry, "skrull_rendezvous_waits",
                               "Rendezvous calls that wait for other ranks.");
  AddGauge(registry, "skrull_build_info", "Always 1; what is running.",
           {{"version", kSkrullVersion}})
      ->Set(1);
}

Metrics::~Metrics() = default;

void Metrics::CountRpc(RpcMethod method, const absl::Status& status) {
  const int code = std::clamp(status.raw_code(), 0, kCodes - 1);
  rpcs_[static_cast<size_t>(method)][static_cast<size_t>(code)]->Increment();
  if (!status.ok()) CountRefusal(status);
}

void Metrics::CountRefusal(const absl::Status& status) {
  const ErrorReason reason =
      GetErrorDetail(status).value_or(ErrorDetail{}).reason;
  refusals_[static_cast<size_t>(reason)]->Increment();
}

void Metrics::ObservePhase(PlanningPhase phase, double seconds) {
  phases_[static_cast<size_t>(phase)]->Observe(seconds);
}

void Metrics::CountPlan(const Plan& plan) {
  int64_t sequences = 0;
  int64_t tokens = 0;
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    sequences += static_cast<int64_t>(micro_batch.placements.size());
    tokens += micro_batch.token_count;
  }
  if (plan.chunk_plan) {
    for (const Chunk& chunk : plan.chunk_plan->chunks) {
      // A split sequence counts once, by its first chunk.
      if (chunk.group_index == 0) sequences += std::ssize(chunk.pieces);
      tokens += chunk.token_count;
    }
  }
  const PlanSummary& summary = plan.summary;
  const auto sharded = static_cast<double>(summary.sharded_token_count);
  plans_[static_cast<size_t>(plan.policy)]->Increment();
  planned_sequences_->Increment(static_cast<double>(sequences));
  planned_tokens_->Increment(static_cast<double>(tokens));
  sharded_tokens_->Increment(sharded);
  roll_backs_->Increment(static_cast<double>(summary.roll_back_count));
  if (tokens > 0) {
    sharded_ratio_->Observe(sharded / static_cast<double>(tokens));
  }
  if (summary.lower_bound_seconds > 0) {
    gap_ratio_->Observe(
        summary.predicted_seconds / summary.lower_bound_seconds - 1);
  }
  imbalance_ratio_->Observe(summary.rank_imbalance);
}

void Metrics::CountCoalesced() { coalesced_->Increment(); }
void Metrics::CountDropped() { dropped_->Increment(); }
void Metrics::CountCheckerRejection() { checker_rejections_->Increment(); }

void Metrics::CountStepReport(v1::StepOutcome outcome) {
  reports_[static_cast<size_t>(outcome - v1::StepOutcome_MIN)]->Increment();
}

void Metrics::AddQueueDepth(int64_t tasks) {
  queue_depth_->Increment(static_cast<double>(tasks));
}
void Metrics::SetJobs(int64_t jobs) { jobs_->Set(static_cast<double>(jobs)); }
void Metrics::SetRankWaits(int64_t waits) {
  rank_waits_->Set(static_cast<double>(waits));
}
void Metrics::SetRendezvousWaits(int64_t waits) {
  rendezvous_waits_->Set(static_cast<double>(waits));
}

}  // namespace skrull
