// What the daemon did last, in bounded memory: its latest plans, and the jobs
// that were active last. For people and for series by job; nothing here is part
// of any promise about plans.
#ifndef SKRULL_SERVER_STATUS_STATUS_BOARD_H_
#define SKRULL_SERVER_STATUS_STATUS_BOARD_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"
#include "skrull/server/clock.h"
#include "skrull/server/mutex.h"
#include "skrull/v1/report.pb.h"
#include "skrull/v1/status.pb.h"

namespace skrull {

// Thread-safe. Every call but Jobs and Plans takes O(1) beside the plan itself.
class StatusBoard {
 public:
  struct Limits {
    int64_t max_jobs = 1000;
    int64_t max_plans = 1000;
  };
  // Ranks whose load a plan's status tells.
  static constexpr int32_t kMaxRanks = 64;

  // One life of a job (RegisteredJob::id) since its first plan or report.
  struct JobActivity {
    uint64_t job_id = 0;
    std::string name = {};
    int64_t plan_count = 0;
    int64_t report_count = 0;
    int64_t out_of_memory_count = 0;
    // Of the latest plan; null before the first.
    std::shared_ptr<const v1::PlanStatus> last_plan = nullptr;
    int64_t calibration_epoch = 0;
    int64_t bucket_size_tokens = 0;
    std::chrono::steady_clock::time_point last_active = {};
  };
  struct PlanEntry {
    uint64_t job_id = 0;
    std::shared_ptr<const v1::PlanStatus> plan;
  };

  // REQUIRES: limits >= 1. `clock` must outlive the board.
  StatusBoard(Limits limits, const Clock* clock)
      : limits_(limits), clock_(clock) {}

  // A plan was made and committed for `job`, the life `job_id`, in
  // `planning_seconds`. O(placements).
  void AddPlan(uint64_t job_id, const Job& job,
               std::span<const int64_t> lengths, const Plan& plan,
               double planning_seconds) SKRULL_EXCLUDES(mutex_);
  // A report of the job `name` was stored.
  void AddReport(uint64_t job_id, const std::string& name,
                 v1::StepOutcome outcome) SKRULL_EXCLUDES(mutex_);
  // The job ended. (What is added for it later is for the reader to leave out:
  // its life is over.)
  void Forget(uint64_t job_id) SKRULL_EXCLUDES(mutex_);

  // The jobs active last, latest first; O(max_jobs).
  std::vector<JobActivity> Jobs() const SKRULL_EXCLUDES(mutex_);
  // The latest plans, latest first; O(max_plans).
  std::vector<PlanEntry> Plans() const SKRULL_EXCLUDES(mutex_);

 private:
  // Moves the job to the front, making it if there is none; the longest idle
  // one goes when there are too many.
  JobActivity& Touch(uint64_t job_id, const std::string& name)
      SKRULL_REQUIRES(mutex_);

  const Limits limits_;
  const Clock* const clock_;

  mutable Mutex mutex_;
  std::deque<PlanEntry> plans_ SKRULL_GUARDED_BY(mutex_);  // latest first
  std::list<JobActivity> jobs_ SKRULL_GUARDED_BY(mutex_);  // latest first
  // Every job of jobs_, by job_id.
  std::unordered_map<uint64_t, std::list<JobActivity>::iterator> by_id_
      SKRULL_GUARDED_BY(mutex_);
};

}  // namespace skrull

#endif  // SKRULL_SERVER_STATUS_STATUS_BOARD_H_
