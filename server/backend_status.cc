// What a Backend tells about itself.
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "skrull/planner/error.h"
#include "skrull/server/backend.h"
#include "skrull/server/version.h"

namespace skrull {
namespace {

constexpr int64_t kDefaultEntries = 20;
constexpr int64_t kMaxEntries = 1000;

absl::Status CheckEntries(const std::string& field, int64_t value) {
  if (value >= 0 && value <= kMaxEntries) return absl::OkStatus();
  return MakeError(
      {.reason = ErrorReason::kFieldInvalid,
       .field = field,
       .limit = kMaxEntries},
      absl::StrCat(field, ": must be in 0 .. ", kMaxEntries, ", is ", value));
}

google::protobuf::Timestamp ToTimestamp(
    std::chrono::system_clock::time_point time) {
  return google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(
      std::chrono::duration_cast<std::chrono::microseconds>(
          time.time_since_epoch())
          .count());
}

v1::JobStatus StatusOfJob(const RegisteredJob& job,
                          const StatusBoard::JobActivity& activity) {
  const JobRecord& record = job.record();
  const std::shared_ptr<const CalibratedJob> calibrated = job.calibrated();
  v1::JobStatus status;
  status.set_name(record.name);
  status.set_owner(record.owner);
  status.set_generation(record.generation);
  status.set_calibration_epoch(calibrated->calibration.epoch());
  status.set_rank_count(calibrated->job.pool().ranks());
  status.set_bucket_size_tokens(calibrated->job.bucket_size());
  status.set_plan_count(activity.plan_count);
  status.set_report_count(activity.report_count);
  status.set_out_of_memory_count(activity.out_of_memory_count);
  if (activity.last_plan != nullptr) {
    *status.mutable_last_plan() = *activity.last_plan;
  }
  return status;
}

// The life of a job that an entry of the board is about; nullptr if it ended.
std::shared_ptr<RegisteredJob> Living(JobDirectory& jobs, uint64_t id,
                                      const std::string& name) {
  const auto job = jobs.Find(name);
  return job.ok() && (*job)->id() == id ? *job : nullptr;
}

// The jobs active last, then those that were not active yet, by name.
void AddJobs(const StatusBoard& board, JobDirectory& jobs, int64_t limit,
             const Backend::MaySee& may_see, v1::ServerStatus* status) {
  std::set<std::string> listed;
  for (const StatusBoard::JobActivity& activity : board.Jobs()) {
    if (status->jobs_size() >= limit) return;
    const auto job = Living(jobs, activity.job_id, activity.name);
    if (job == nullptr || !may_see(job->record())) continue;
    *status->add_jobs() = StatusOfJob(*job, activity);
    listed.insert(activity.name);
  }
  std::string after;
  while (true) {
    const auto page = jobs.List(after, kMaxEntries);
    for (const auto& job : page) {
      if (status->jobs_size() >= limit) return;
      const JobRecord& record = job->record();
      if (listed.contains(record.name) || !may_see(record)) continue;
      *status->add_jobs() = StatusOfJob(*job, {});
    }
    if (std::ssize(page) < kMaxEntries) return;
    after = page.back()->record().name;
  }
}

void AddPlans(const StatusBoard& board, JobDirectory& jobs, int64_t limit,
              const Backend::MaySee& may_see, v1::ServerStatus* status) {
  for (const StatusBoard::PlanEntry& entry : board.Plans()) {
    if (status->plans_size() >= limit) return;
    const auto job = Living(jobs, entry.job_id, entry.plan->job());
    if (job == nullptr || !may_see(job->record())) continue;
    *status->add_plans() = *entry.plan;
  }
}

}  // namespace

void Backend::GetStatus(
    const v1::GetStatusRequest& request, MaySee may_see,
    std::function<void(const absl::StatusOr<v1::ServerStatus>&)> done) {
  absl::Status status = CheckEntries("max_jobs", request.max_jobs());
  if (status.ok()) status = CheckEntries("max_plans", request.max_plans());
  if (!status.ok()) return done(status);
  const int64_t max_jobs =
      request.max_jobs() == 0 ? kDefaultEntries : request.max_jobs();
  const int64_t max_plans =
      request.max_plans() == 0 ? kDefaultEntries : request.max_plans();
  const absl::Status queued = store_pool_.Submit(
      [this, max_jobs, max_plans, may_see = std::move(may_see),
       done](const absl::Status& run) {
        if (!run.ok()) return done(run);
        done(Status(max_jobs, max_plans, may_see));
      });
  if (!queued.ok()) done(queued);
}

v1::ServerStatus Backend::Status(int64_t max_jobs, int64_t max_plans,
                                 const MaySee& may_see) {
  const Metrics::Totals totals = metrics_->totals();
  v1::ServerStatus status;
  status.set_version(kSkrullVersion);
  *status.mutable_start_time() = ToTimestamp(start_time_);
  *status.mutable_now() = ToTimestamp(clock_->Now());
  // What follows the scheme may be an address or a path.
  status.set_store(options_.store.substr(0, options_.store.find(':')));
  status.set_draining(draining_);
  status.set_job_count(jobs_.count());
  status.set_planning_thread_count(options_.planning_threads);
  status.set_busy_thread_count(totals.busy_threads);
  status.set_queued_batch_count(totals.queued_batches);
  status.set_waiting_rank_count(totals.waiting_ranks);
  status.set_plan_count(totals.plans);
  status.set_refusal_count(totals.refusals);
  status.set_report_count(totals.reports);
  status.set_out_of_memory_count(totals.out_of_memory_reports);
  AddJobs(board_, jobs_, max_jobs, may_see, &status);
  AddPlans(board_, jobs_, max_plans, may_see, &status);
  return status;
}

std::vector<StatusBoard::JobActivity> Backend::MeasuredJobs() {
  const auto oldest =
      clock_->MonotonicNow() -
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::duration<double>(options_.job_metrics_expiry_seconds));
  std::vector<StatusBoard::JobActivity> measured;
  for (StatusBoard::JobActivity& activity : board_.Jobs()) {
    if (std::ssize(measured) >= options_.job_metrics ||
        activity.last_active < oldest) {
      break;
    }
    if (Living(jobs_, activity.job_id, activity.name) != nullptr) {
      measured.push_back(std::move(activity));
    }
  }
  return measured;
}

}  // namespace skrull
