// The daemon without its wire: what the handlers call.
//
// `who` makes the call, and was admitted; what he may do with a job is checked
// here, before anything else about the job. A handler's thread only checks,
// looks up and queues; what plans runs in the planning pool, what touches the
// store in a pool of its own.
#ifndef SKRULL_SERVER_BACKEND_H_
#define SKRULL_SERVER_BACKEND_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/auth/caller.h"
#include "skrull/server/batch_planner.h"
#include "skrull/server/calibrator.h"
#include "skrull/server/clock.h"
#include "skrull/server/job_directory.h"
#include "skrull/server/length_quota.h"
#include "skrull/server/log.h"
#include "skrull/server/metrics.h"
#include "skrull/server/options.h"
#include "skrull/server/plan_client.h"
#include "skrull/server/plan_directory.h"
#include "skrull/server/planning_pool.h"
#include "skrull/server/rendezvous.h"
#include "skrull/server/status/status_board.h"
#include "skrull/server/store.h"
#include "skrull/server/worker_pool.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull {

// Thread-safe.
class Backend {
 public:
  // Reads the jobs of `store`. All but the store must outlive the backend.
  // Errors: kStoreFailed.
  static absl::StatusOr<std::unique_ptr<Backend>> Create(
      const ServerOptions& options, std::unique_ptr<Store> store,
      const Clock* clock, const Logger* logger, Metrics* metrics);
  ~Backend();

  const ServerOptions& options() const { return options_; }
  const Clock& clock() const { return *clock_; }
  Metrics* metrics() const { return metrics_; }

  // The door that every call passes before it reads jobs() or plans: calls
  // `then` once this daemon knows of all jobs as they were when WhenCurrent was
  // called; at once, on this thread, where no other daemon changes them.
  // Otherwise `then` may get kStoreFailed. The functions below that take
  // requests pass it themselves, CreateJob excepted: the store decides that.
  void WhenCurrent(std::function<void(const absl::Status&)> then) {
    store_->WhenCurrent(std::move(then));
  }

  // Larger requests go to PlanUnread: what a handler reads itself, it reads in
  // about a millisecond (8,000 lengths), so that it holds up no other call.
  static constexpr int64_t kMaxInlineBytes = 16 << 10;

  // Answers `caller` with the plan of a request of `request_bytes` bytes: at
  // once if it is in memory or cannot be planned, else from the planning pool.
  void PlanBatch(const PlanOrigin& origin, v1::PlanBatchRequest request,
                 int64_t request_bytes, std::shared_ptr<PlanCaller> caller);

  // A request that is still to be read.
  struct UnreadBatch {
    int64_t request_bytes = 0;
    // The job that it names; empty without one, or if it is not known yet.
    std::string job;
    // Called at most once, on a planning thread. Errors go to the caller.
    std::function<absl::StatusOr<v1::PlanBatchRequest>()> read;
  };
  // The same; the request is read when it is planned. What can be refused
  // without reading it is refused here.
  void PlanUnread(const PlanOrigin& origin, UnreadBatch unread,
                  std::shared_ptr<PlanCaller> caller);

  // To be called when the caller of either has gone away, after it was
  // completed.
  void ForgetCaller(const std::shared_ptr<PlanCaller>& caller) {
    planning_pool_.Forget(caller);
  }

  // Has the wait answered with the committed plan. Looks into the store if it
  // is the first for its step.
  void WaitForPlan(const std::shared_ptr<RegisteredJob>& job,
                   const StepKey& step_key, const PlanKey& plan_key,
                   const std::shared_ptr<PlanWait>& wait);
  // The committed plan if it is in memory.
  std::shared_ptr<const CommittedPlan> FindPlan(const StepKey& key) {
    return plans_.Find(key);
  }
  void CancelWait(const std::shared_ptr<PlanWait>& wait) {
    plans_.Cancel(wait);
  }

  JobDirectory& jobs() { return jobs_; }
  Rendezvous& rendezvous() { return rendezvous_; }

  // `done` is called once, here or on a thread of the store's pool.
  void CreateJob(const Caller& who, const v1::CreateJobRequest& request,
                 std::function<void(const absl::StatusOr<JobRecord>&)> done);
  void DeleteJob(const Caller& who, const v1::DeleteJobRequest& request,
                 std::function<void(const absl::Status&)> done);
  // Stores the report and learns from it (calibrator.h). `done` may also be
  // called on a planning thread.
  void ReportStep(const Caller& who, const v1::ReportStepRequest& request,
                  Calibrator::Done done);
  void ListCalibrations(
      const Caller& who, const v1::ListCalibrationsRequest& request,
      std::function<void(const absl::StatusOr<std::vector<v1::Calibration>>&)>
          done);

  // The jobs and plans that a caller may see.
  using MaySee = std::function<bool(const JobRecord&)>;
  // Answers, from the store's pool, with what the daemon is doing. Errors:
  // INVALID_ARGUMENT naming the field out of range.
  void GetStatus(
      const v1::GetStatusRequest& request, MaySee may_see,
      std::function<void(const absl::StatusOr<v1::ServerStatus>&)> done);
  // The same at once, with at most that many jobs and plans. O(jobs): not on a
  // gRPC thread.
  v1::ServerStatus Status(int64_t max_jobs, int64_t max_plans,
                          const MaySee& may_see);
  // The jobs that have metrics of their own: at most options.job_metrics, those
  // that were active last and within options.job_metrics_expiry_seconds.
  std::vector<StatusBoard::JobActivity> MeasuredJobs();

  // Refuses new work, and all that waits for a commit or for other ranks, with
  // kDraining.
  void StartDrain();
  bool draining() const { return draining_; }
  // Answers what no thread has begun with kDraining. Does not wait for what is
  // under way; the destructor does. Idempotent.
  void Close();

 private:
  Backend(const ServerOptions& options, std::unique_ptr<Store> store,
          const Clock* clock, const Logger* logger, Metrics* metrics);

  void PlanCurrent(const PlanOrigin& origin,
                   const v1::PlanBatchRequest& request, int64_t request_bytes,
                   std::shared_ptr<PlanCaller> caller);
  void QueueUnread(const PlanOrigin& origin, UnreadBatch unread,
                   std::shared_ptr<PlanCaller> caller);
  void ReportCurrent(const Caller& who, const v1::ReportStepRequest& request,
                     const Calibrator::Done& done);
  // The answer to a batch, in a later epoch where only that one holds it;
  // published if it is committed. On a planning thread.
  PlanOutcome PlanNow(const BatchRequest& batch);
  // Queues a batch that an earlier plan of its job failed, on its owner's turn.
  void PlanAgain(std::shared_ptr<const BatchRequest> batch,
                 std::function<void(const PlanOutcome&)> done);
  // What plans and commits a request, and has it known.
  PlanTask TaskFor(std::shared_ptr<const BatchRequest> batch);
  // Runs a task on the store's pool; here if that is full or closed.
  void RunSoon(std::function<void()> task);
  void FindInStore(const std::shared_ptr<RegisteredJob>& job,
                   const StepKey& step_key, const PlanKey& plan_key);

  const ServerOptions options_;
  const std::unique_ptr<Store> store_;
  const Clock* const clock_;
  Metrics* const metrics_;
  const std::chrono::system_clock::time_point start_time_;
  std::atomic<bool> draining_ = false;
  StatusBoard board_;
  LengthQuota length_quota_;
  const BatchPlanner planner_;
  PlanDirectory plans_;
  Rendezvous rendezvous_;
  Calibrator calibrator_;  // what jobs_ tells of ends, as the two above
  JobDirectory jobs_;
  WorkerPool store_pool_;  // these last: their threads use the rest
  PlanningPool planning_pool_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_BACKEND_H_
