// What step reports lead to: calibration epochs, and new attempts of steps that
// ran out of memory.
//
// What is learnt from which reports is server/calibration's, pure; here is when
// it is asked, how an epoch is put in force and how a step is planned anew. All
// of it may be repeated: an epoch is put in force only right after the one it
// was made from, and a plan commits once, so that ranks that report at the same
// time, other daemons on the same store, and a daemon that died half-way and is
// asked again, all end at one epoch and one plan.
#ifndef SKRULL_SERVER_CALIBRATOR_H_
#define SKRULL_SERVER_CALIBRATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/batch_planner.h"
#include "skrull/server/batch_request.h"
#include "skrull/server/calibration/calibrate.h"
#include "skrull/server/job_directory.h"
#include "skrull/server/log.h"
#include "skrull/server/metrics.h"
#include "skrull/server/mutex.h"
#include "skrull/server/plan_directory.h"
#include "skrull/server/store.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull {

// Thread-safe.
class Calibrator {
 public:
  using Done =
      std::function<void(const absl::StatusOr<v1::ReportStepResponse>&)>;
  // Plans and commits a batch, publishes the plan, and calls back once, on any
  // thread.
  using Planning =
      std::function<void(std::shared_ptr<const BatchRequest> batch,
                         std::function<void(const PlanOutcome&)> done)>;

  // All must outlive the calibrator; `planning` is called by Learn.
  Calibrator(Store* store, const BatchPlanner* planner, PlanDirectory* plans,
             JobDirectory* jobs, Planning planning, const Logger* logger,
             Metrics* metrics);

  // Learns from a report that is stored, and answers it: `done` is called
  // once, here or on a planning thread. A report of another outcome than
  // out-of-memory, the first of its step, may end a stretch of steps, and start
  // an epoch before it is answered. One of out-of-memory on the latest attempt
  // starts an epoch with a smaller bucket, unless there is one since that plan,
  // and has the batch planned as the next attempt. Errors, after which the same
  // report may be made again: kStoreFailed, why the job ended, and those of
  // planning that pass, such as kQueueFull. Blocks on storage: never on a gRPC
  // thread.
  void Learn(const std::shared_ptr<RegisteredJob>& job,
             const v1::StepReport& report, const Done& done)
      SKRULL_EXCLUDES(mutex_);

  // The job in an epoch that may hold a batch that was refused for its bucket:
  // the one in force if it is not the batch's any more, or a new one with a
  // larger bucket (CalibrateForBatch). nullptr if there is none. Blocks on
  // storage. REQUIRES: batch.registered.
  std::shared_ptr<const CalibratedJob> MakeRoom(const BatchRequest& batch);

  // Forgets a job that ended.
  void Forget(const RegisteredJob& job) SKRULL_EXCLUDES(mutex_);

 private:
  // The highest committed attempt of the key's step that is not below the
  // key's; nullopt if the key itself is not committed.
  absl::StatusOr<std::optional<int32_t>> LatestAttempt(const RegisteredJob& job,
                                                       const PlanKey& key);
  // The committed plan, or nullptr.
  absl::StatusOr<std::shared_ptr<const CommittedPlan>> FindPlan(
      const RegisteredJob& job, const PlanKey& key);
  // The steps committed last of those before `end`, with their reports.
  absl::StatusOr<CalibrationInput> ReadSteps(const RegisteredJob& job,
                                             const v1::Calibration& standing,
                                             int64_t end);
  // Takes note of a report of `step`, and refits if it is the first after a
  // stretch of steps.
  void EndStretch(const std::shared_ptr<RegisteredJob>& job, int64_t step)
      SKRULL_EXCLUDES(mutex_);
  // True for that first report.
  bool IsFirstAfterStretch(const RegisteredJob& job, int64_t step)
      SKRULL_EXCLUDES(mutex_);
  void RollBack(const std::shared_ptr<RegisteredJob>& job,
                const v1::StepReport& report, const Done& done);
  // Answers a report of out-of-memory that gets no further attempt.
  void Refuse(const RegisteredJob& job, const PlanKey& key,
              const absl::Status& refusal, const Done& done);
  // The job in an epoch that answers the rank's running out of memory. Errors:
  // those of CalibrateOutOfMemory, ReadSteps and Advance.
  absl::StatusOr<std::shared_ptr<const CalibratedJob>> SmallerEpoch(
      const std::shared_ptr<RegisteredJob>& job, const Plan& failed,
      int32_t rank);
  // Puts `next` in force if the epoch before it still is. Errors: those of
  // JobDirectory::Advance.
  absl::Status Advance(const std::shared_ptr<RegisteredJob>& job,
                       const v1::Calibration& next);

  Store* const store_;
  const BatchPlanner* const planner_;
  PlanDirectory* const plans_;
  JobDirectory* const jobs_;
  const Planning planning_;
  const Logger* const logger_;
  Metrics* const metrics_;

  Mutex mutex_;
  // By RegisteredJob::id(): the highest planned step that was reported, so that
  // one report of a stretch and not each one reads the store.
  std::map<uint64_t, int64_t> newest_ SKRULL_GUARDED_BY(mutex_);
};

}  // namespace skrull

#endif  // SKRULL_SERVER_CALIBRATOR_H_
