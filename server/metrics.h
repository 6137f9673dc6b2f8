// Every metric of the daemon. docs/runbook.md says what to look at when.
//
// Labels are of closed sets alone: never a job, a step or a sequence. (Series
// by job, where asked for, are made by metrics/job_metrics.) Thread-safe; every
// call is a few atomic additions or one short lock.
#ifndef SKRULL_SERVER_METRICS_H_
#define SKRULL_SERVER_METRICS_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "skrull/planner/error.h"
#include "skrull/planner/plan.h"
#include "skrull/server/metrics/calibration_metrics.h"
#include "skrull/server/metrics/store_metrics.h"
#include "skrull/v1/report.pb.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace skrull {

// The service's RPCs: label `method`.
enum class RpcMethod : int8_t {
  kCreateJob,
  kGetJob,
  kListJobs,
  kDeleteJob,
  kPlanBatch,
  kStreamPlans,
  kGetRankPlan,
  kReportStep,
  kListCalibrations,
  kRendezvous,
  kGetStatus,
};
inline constexpr int kRpcMethods = 11;

// "PlanBatch" for kPlanBatch, and so on.
const char* RpcMethodName(RpcMethod method);

// What the daemon does for one batch: label `phase`.
enum class PlanningPhase : int8_t { kDecode, kPlan, kCheck, kEncode, kCommit };
inline constexpr int kPlanningPhases = 5;

class Metrics {
 public:
  // What gauges may rise to, so that dashboards need not know the options.
  struct Bounds {
    int64_t planning_threads = 0;
    int64_t queued_batches = 0;
    int64_t waiting_calls = 0;  // GetRankPlan and Rendezvous, each
    int64_t cached_plan_bytes = 0;
  };

  Metrics();
  ~Metrics();

  // What an exposer serves; owned by this object.
  const std::shared_ptr<prometheus::Registry>& registry() const {
    return registry_;
  }

  StoreMetrics& store() { return store_; }
  CalibrationMetrics& calibration() { return calibration_; }

  // An RPC came in.
  void StartRpc(RpcMethod method);
  // It was answered: once for each StartRpc. A refusal's reason is counted as
  // well.
  void CountRpc(RpcMethod method, const absl::Status& status);
  // How long it took to answer a call; of StreamPlans, a batch.
  void ObserveRpc(RpcMethod method, double seconds);
  // A request was refused: by an RPC, or within a stream.
  void CountRefusal(const absl::Status& status);

  void ObservePhase(PlanningPhase phase, double seconds);
  // A plan was made, checked and answered.
  void CountPlan(const Job& job, const Plan& plan);
  // A request was answered by the planning of an identical one.
  void CountCoalesced();
  // A request was dropped before it was planned: nobody waited any more.
  void CountDropped();
  // The checker refused a plan of ours.
  void CountCheckerRejection();
  void CountStepReport(v1::StepOutcome outcome);

  void SetBounds(const Bounds& bounds);
  void AddQueueDepth(int64_t tasks);
  // A batch waited so long for a planning thread, or to be dropped.
  void ObserveQueueWait(double seconds);
  // A planning thread begins to work, and has worked for `seconds`.
  void StartPlanning();
  void EndPlanning(double seconds);
  void SetCachedPlans(int64_t plans, int64_t bytes);
  void SetDraining();
  void SetJobs(int64_t jobs);
  void SetRankWaits(int64_t waits);
  void SetRendezvousWaits(int64_t waits);
  // When the certificate in use expires.
  void SetTlsCertificateExpiry(std::chrono::system_clock::time_point time);

  // What was counted so far.
  struct Totals {
    int64_t plans = 0;
    int64_t refusals = 0;
    int64_t reports = 0;
    int64_t out_of_memory_reports = 0;
    int64_t busy_threads = 0;
    int64_t queued_batches = 0;
    int64_t waiting_ranks = 0;
  };
  Totals totals() const;

 private:
  static constexpr int kCodes = 17;  // of absl::StatusCode

  void AddCallMetrics();
  void AddPlanMetrics();
  void AddLoadMetrics();

  const std::shared_ptr<prometheus::Registry> registry_;
  std::array<std::array<prometheus::Counter*, kCodes>, kRpcMethods> rpcs_;
  std::array<prometheus::Gauge*, kRpcMethods> in_flight_;
  std::array<prometheus::Histogram*, kRpcMethods> rpc_seconds_;
  std::array<prometheus::Histogram*, kPlanningPhases> phases_;
  std::vector<prometheus::Counter*> refusals_;  // by ErrorReason
  std::vector<prometheus::Counter*> plans_;     // by Policy
  std::vector<prometheus::Counter*> reports_;   // by StepOutcome
  prometheus::Counter* planned_sequences_;
  prometheus::Counter* planned_tokens_;
  prometheus::Counter* sharded_tokens_;
  prometheus::Counter* roll_backs_;
  prometheus::Counter* predicted_seconds_;
  prometheus::Counter* predicted_rank_seconds_;
  prometheus::Counter* lower_bound_seconds_;
  prometheus::Counter* coalesced_;
  prometheus::Counter* dropped_;
  prometheus::Counter* checker_rejections_;
  prometheus::Histogram* sharded_ratio_;
  prometheus::Histogram* gap_ratio_;
  prometheus::Histogram* imbalance_ratio_;
  prometheus::Histogram* dp_imbalance_ratio_;
  prometheus::Histogram* queue_wait_;
  prometheus::Gauge* queue_depth_;
  prometheus::Gauge* queue_limit_;
  prometheus::Gauge* threads_;
  prometheus::Gauge* busy_threads_;
  prometheus::Counter* busy_seconds_;
  prometheus::Gauge* cached_plans_;
  prometheus::Gauge* cached_bytes_;
  prometheus::Gauge* cached_bytes_limit_;
  prometheus::Gauge* draining_;
  prometheus::Gauge* jobs_;
  prometheus::Gauge* rank_waits_;
  prometheus::Gauge* rendezvous_waits_;
  prometheus::Gauge* waits_limit_;
  prometheus::Gauge* tls_certificate_expiry_;
  StoreMetrics store_;
  CalibrationMetrics calibration_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_H_
