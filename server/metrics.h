// Every metric of the daemon. docs/runbook.md says what to look at when.
//
// Labels are of closed sets alone: never a job, a step or a sequence. Thread-
// safe; every call is a few atomic additions or one short lock.
#ifndef SKRULL_SERVER_METRICS_H_
#define SKRULL_SERVER_METRICS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "skrull/planner/error.h"
#include "skrull/planner/plan.h"
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
  kRendezvous,
};
inline constexpr int kRpcMethods = 9;

// "PlanBatch" for kPlanBatch, and so on.
const char* RpcMethodName(RpcMethod method);

// What the daemon does for one batch: label `phase`.
enum class PlanningPhase : int8_t { kDecode, kPlan, kCheck, kEncode, kCommit };
inline constexpr int kPlanningPhases = 5;

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // What an exposer serves; owned by this object.
  const std::shared_ptr<prometheus::Registry>& registry() const {
    return registry_;
  }

  // An RPC was answered. A refusal's reason is counted as well.
  void CountRpc(RpcMethod method, const absl::Status& status);
  // A request was refused: by an RPC, or within a stream.
  void CountRefusal(const absl::Status& status);

  void ObservePhase(PlanningPhase phase, double seconds);
  // A plan was made, checked and answered.
  void CountPlan(const Plan& plan);
  // A request was answered by the planning of an identical one.
  void CountCoalesced();
  // A request was dropped before it was planned: nobody waited any more.
  void CountDropped();
  // The checker refused a plan of ours.
  void CountCheckerRejection();
  void CountStepReport(v1::StepOutcome outcome);

  void AddQueueDepth(int64_t tasks);
  void SetJobs(int64_t jobs);
  void SetRankWaits(int64_t waits);
  void SetRendezvousWaits(int64_t waits);

 private:
  static constexpr int kCodes = 17;  // of absl::StatusCode

  const std::shared_ptr<prometheus::Registry> registry_;
  std::array<std::array<prometheus::Counter*, kCodes>, kRpcMethods> rpcs_;
  std::array<prometheus::Histogram*, kPlanningPhases> phases_;
  std::vector<prometheus::Counter*> refusals_;  // by ErrorReason
  std::vector<prometheus::Counter*> plans_;     // by Policy
  std::vector<prometheus::Counter*> reports_;   // by StepOutcome
  prometheus::Counter* planned_sequences_;
  prometheus::Counter* planned_tokens_;
  prometheus::Counter* sharded_tokens_;
  prometheus::Counter* roll_backs_;
  prometheus::Counter* coalesced_;
  prometheus::Counter* dropped_;
  prometheus::Counter* checker_rejections_;
  prometheus::Histogram* sharded_ratio_;
  prometheus::Histogram* gap_ratio_;
  prometheus::Histogram* imbalance_ratio_;
  prometheus::Gauge* queue_depth_;
  prometheus::Gauge* jobs_;
  prometheus::Gauge* rank_waits_;
  prometheus::Gauge* rendezvous_waits_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_H_
