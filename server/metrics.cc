#include "skrull/server/metrics.h"

#include <algorithm>

#include "absl/status/status.h"
#include "skrull/server/metrics/builders.h"
#include "skrull/server/version.h"

namespace skrull {
namespace {

constexpr const char* kMethodNames[kRpcMethods] = {
    "CreateJob",        "GetJob",      "ListJobs",    "DeleteJob",
    "PlanBatch",        "StreamPlans", "GetRankPlan", "ReportStep",
    "ListCalibrations", "Rendezvous",  "GetStatus"};
constexpr const char* kPhaseNames[kPlanningPhases] = {"decode", "plan", "check",
                                                      "encode", "commit"};

#if defined(__clang__)
constexpr char kCompiler[] = "clang " __clang_version__;
#else
constexpr char kCompiler[] = "gcc " __VERSION__;
#endif

}  // namespace

const char* RpcMethodName(RpcMethod method) {
  return kMethodNames[static_cast<size_t>(method)];
}

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      store_(*registry_),
      calibration_(*registry_) {
  AddCallMetrics();
  AddPlanMetrics();
  AddLoadMetrics();
}

void Metrics::AddCallMetrics() {
  prometheus::Registry& registry = *registry_;
  for (size_t method = 0; method < kRpcMethods; ++method) {
    in_flight_[method] = AddGauge(registry, "skrull_rpcs_in_flight",
                                  "RPCs that are not answered yet.",
                                  {{"method", kMethodNames[method]}});
    rpc_seconds_[method] =
        AddHistogram(registry, "skrull_rpc_seconds",
                     "Time from a call to its answer, waiting included; of "
                     "StreamPlans, from each batch to its answer.",
                     WaitBuckets(), {{"method", kMethodNames[method]}});
    for (size_t code = 0; code < kCodes; ++code) {
      rpcs_[method][code] = AddCounter(
          registry, "skrull_rpcs_total",
          "RPCs answered; a StreamPlans call counts once, at its end.",
          {{"method", kMethodNames[method]},
           {"code",
            absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}});
    }
  }
  for (ErrorReason reason : AllErrorReasons()) {
    refusals_.push_back(AddCounter(registry, "skrull_refusals_total",
                                   "Requests refused, by reason.",
                                   {{"reason", ErrorReasonName(reason)}}));
  }
  for (int outcome = v1::StepOutcome_MIN; outcome <= v1::StepOutcome_MAX;
       ++outcome) {
    reports_.push_back(AddCounter(
        registry, "skrull_step_reports_total", "Step reports, by outcome.",
        {{"outcome",
          v1::StepOutcome_Name(static_cast<v1::StepOutcome>(outcome))}}));
  }
  jobs_ = AddGauge(registry, "skrull_jobs", "Registered jobs.");
  rank_waits_ = AddGauge(registry, "skrull_rank_waits",
                         "GetRankPlan calls that wait for a commit.");
  rendezvous_waits_ = AddGauge(registry, "skrull_rendezvous_waits",
                               "Rendezvous calls that wait for other ranks.");
  waits_limit_ = AddGauge(registry, "skrull_waits_limit",
                          "Most GetRankPlan calls that may wait, and most "
                          "Rendezvous calls.");
}

void Metrics::AddPlanMetrics() {
  prometheus::Registry& registry = *registry_;
  for (size_t phase = 0; phase < kPlanningPhases; ++phase) {
    phases_[phase] =
        AddHistogram(registry, "skrull_planning_seconds",
                     "Time the daemon spent on one batch, by phase.",
                     SecondsBuckets(), {{"phase", kPhaseNames[phase]}});
  }
  for (Policy policy : AllPolicies()) {
    plans_.push_back(AddCounter(registry, "skrull_plans_total",
                                "Plans made, by policy.",
                                {{"policy", PolicyName(policy)}}));
  }
  planned_sequences_ = AddCounter(registry, "skrull_planned_sequences_total",
                                  "Sequences placed by the plans made.");
  planned_tokens_ = AddCounter(registry, "skrull_planned_tokens_total",
                               "Tokens placed by the plans made.");
  sharded_tokens_ =
      AddCounter(registry, "skrull_sharded_tokens_total",
                 "Tokens of the plans made that are in sequences sharded over "
                 "several ranks.");
  roll_backs_ = AddCounter(registry, "skrull_roll_backs_total",
                           "Roll-backs of the heuristic in the plans made.");
  predicted_seconds_ = AddCounter(registry, "skrull_predicted_seconds_total",
                                  "Predicted time of the plans made.");
  predicted_rank_seconds_ =
      AddCounter(registry, "skrull_predicted_rank_seconds_total",
                 "Predicted time of the plans made, times the ranks of each "
                 "one's pool: planned tokens over it are tokens per second and "
                 "rank, padding not counted.");
  lower_bound_seconds_ =
      AddCounter(registry, "skrull_lower_bound_seconds_total",
                 "Lower bounds of the time of the plans made.");
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
  dp_imbalance_ratio_ = AddHistogram(
      registry, "skrull_plan_dp_imbalance_ratio",
      "Slowest DP rank's time over the mean of all, minus 1.", RatioBuckets());
}

void Metrics::AddLoadMetrics() {
  prometheus::Registry& registry = *registry_;
  queue_wait_ = AddHistogram(registry, "skrull_queue_wait_seconds",
                             "Time a batch waited for a planning thread.",
                             SecondsBuckets());
  queue_depth_ = AddGauge(registry, "skrull_planning_queue_depth",
                          "Batches that wait for a planning thread.");
  queue_limit_ = AddGauge(registry, "skrull_planning_queue_limit",
                          "Most batches that may wait for a planning thread.");
  threads_ = AddGauge(registry, "skrull_planning_threads", "Planning threads.");
  busy_threads_ = AddGauge(registry, "skrull_planning_threads_busy",
                           "Planning threads that work.");
  busy_seconds_ = AddCounter(registry, "skrull_planning_busy_seconds_total",
                             "Time that planning threads worked.");
  cached_plans_ = AddGauge(registry, "skrull_cached_plans",
                           "Committed plans held in memory.");
  cached_bytes_ = AddGauge(registry, "skrull_cached_plan_bytes",
                           "Memory of the committed plans held in memory.");
  cached_bytes_limit_ = AddGauge(registry, "skrull_cached_plan_bytes_limit",
                                 "Most memory that committed plans may take.");
  draining_ = AddGauge(registry, "skrull_draining",
                       "1 while the daemon shuts down, else 0.");
  tls_certificate_expiry_ =
      AddGauge(registry, "skrull_tls_certificate_expiry_timestamp_seconds",
               "When the TLS certificate in use expires, seconds since 1970; "
               "0 without TLS.");
  AddGauge(registry, "skrull_build_info", "Always 1; what is running.",
           {{"version", kSkrullVersion}, {"compiler", kCompiler}})
      ->Set(1);
}

Metrics::~Metrics() = default;

void Metrics::StartRpc(RpcMethod method) {
  in_flight_[static_cast<size_t>(method)]->Increment();
}

void Metrics::CountRpc(RpcMethod method, const absl::Status& status) {
  in_flight_[static_cast<size_t>(method)]->Decrement();
  const int code = std::clamp(status.raw_code(), 0, kCodes - 1);
  rpcs_[static_cast<size_t>(method)][static_cast<size_t>(code)]->Increment();
  if (!status.ok()) CountRefusal(status);
}

void Metrics::ObserveRpc(RpcMethod method, double seconds) {
  rpc_seconds_[static_cast<size_t>(method)]->Observe(seconds);
}

void Metrics::CountRefusal(const absl::Status& status) {
  const ErrorReason reason =
      GetErrorDetail(status).value_or(ErrorDetail{}).reason;
  refusals_[static_cast<size_t>(reason)]->Increment();
}

void Metrics::ObservePhase(PlanningPhase phase, double seconds) {
  phases_[static_cast<size_t>(phase)]->Observe(seconds);
}

void Metrics::CountPlan(const Job& job, const Plan& plan) {
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
  predicted_seconds_->Increment(summary.predicted_seconds);
  predicted_rank_seconds_->Increment(summary.predicted_seconds *
                                     job.pool().ranks());
  lower_bound_seconds_->Increment(summary.lower_bound_seconds);
  if (tokens > 0) {
    sharded_ratio_->Observe(sharded / static_cast<double>(tokens));
  }
  if (summary.lower_bound_seconds > 0) {
    gap_ratio_->Observe(
        summary.predicted_seconds / summary.lower_bound_seconds - 1);
  }
  imbalance_ratio_->Observe(summary.rank_imbalance);
  dp_imbalance_ratio_->Observe(summary.dp_imbalance);
}

void Metrics::CountCoalesced() { coalesced_->Increment(); }
void Metrics::CountDropped() { dropped_->Increment(); }
void Metrics::CountCheckerRejection() { checker_rejections_->Increment(); }

void Metrics::CountStepReport(v1::StepOutcome outcome) {
  reports_[static_cast<size_t>(outcome - v1::StepOutcome_MIN)]->Increment();
}

void Metrics::SetBounds(const Bounds& bounds) {
  threads_->Set(static_cast<double>(bounds.planning_threads));
  queue_limit_->Set(static_cast<double>(bounds.queued_batches));
  waits_limit_->Set(static_cast<double>(bounds.waiting_calls));
  cached_bytes_limit_->Set(static_cast<double>(bounds.cached_plan_bytes));
}

void Metrics::ObserveQueueWait(double seconds) {
  queue_wait_->Observe(seconds);
}
void Metrics::StartPlanning() { busy_threads_->Increment(); }
void Metrics::EndPlanning(double seconds) {
  busy_threads_->Decrement();
  busy_seconds_->Increment(seconds);
}
void Metrics::SetCachedPlans(int64_t plans, int64_t bytes) {
  cached_plans_->Set(static_cast<double>(plans));
  cached_bytes_->Set(static_cast<double>(bytes));
}
void Metrics::SetDraining() { draining_->Set(1); }

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
void Metrics::SetTlsCertificateExpiry(
    std::chrono::system_clock::time_point time) {
  tls_certificate_expiry_->Set(
      std::chrono::duration<double>(time.time_since_epoch()).count());
}

Metrics::Totals Metrics::totals() const {
  const auto sum = [](const std::vector<prometheus::Counter*>& counters) {
    double total = 0;
    for (const prometheus::Counter* counter : counters) {
      total += counter->Value();
    }
    return static_cast<int64_t>(total);
  };
  const auto value = [](const auto* metric) {
    return static_cast<int64_t>(metric->Value());
  };
  const size_t out_of_memory =
      v1::STEP_OUTCOME_OUT_OF_MEMORY - v1::StepOutcome_MIN;
  return {.plans = sum(plans_),
          .refusals = sum(refusals_),
          .reports = sum(reports_),
          .out_of_memory_reports = value(reports_[out_of_memory]),
          .busy_threads = value(busy_threads_),
          .queued_batches = value(queue_depth_),
          .waiting_ranks = value(rank_waits_)};
}

}  // namespace skrull
