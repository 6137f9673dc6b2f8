#include "skrull/server/backend.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

constexpr int64_t kStoreThreads = 2;
// Beside one task for each call that may wait: job changes and reports.
constexpr int64_t kStoreQueue = 4096;
// For the next attempt of a step, which its ranks wait for: queues are bounded,
// so this is never the limit that tells.
constexpr std::chrono::hours kRollBackDeadline{1};
// Jobs and plans that the status board remembers: as many as one answer of
// GetStatus may hold.
constexpr int64_t kBoardJobs = 1000;
constexpr int64_t kBoardPlans = 1000;

absl::Status DrainingError() {
  return MakeError({.reason = ErrorReason::kDraining},
                   "the daemon is shutting down");
}

// Longest time that a report may tell: a month.
constexpr int64_t kMaxReportedSeconds = 31 * 86'400;

absl::Status CheckDuration(const google::protobuf::Duration& duration,
                           const std::string& field) {
  if (duration.seconds() < 0 || duration.nanos() < 0 ||
      duration.nanos() > 999'999'999) {
    return FieldError(field, "must be a duration of at least 0");
  }
  if (duration.seconds() >= kMaxReportedSeconds) {
    return MakeError(
        {.reason = ErrorReason::kFieldInvalid,
         .field = field,
         .limit = kMaxReportedSeconds},
        absl::StrCat(field, ": must be below ", kMaxReportedSeconds,
                     " seconds, is ", duration.seconds()));
  }
  return absl::OkStatus();
}

absl::Status CheckReport(const v1::StepReport& report, int64_t ranks) {
  absl::Status status = CheckStep(report.step(), report.attempt(), "report.");
  if (!status.ok()) return status;
  if (report.rank() < 0 || report.rank() >= ranks) {
    return MakeError({.reason = ErrorReason::kFieldInvalid,
                      .field = "report.rank",
                      .limit = ranks - 1},
                     absl::StrCat("report.rank: must be in 0 .. ", ranks - 1,
                                  ", is ", report.rank()));
  }
  if (!v1::StepOutcome_IsValid(report.outcome()) ||
      report.outcome() == v1::STEP_OUTCOME_UNSPECIFIED) {
    return FieldError("report.outcome", "must be a known outcome");
  }
  status = CheckDuration(report.step_time(), "report.step_time");
  if (!status.ok()) return status;
  status = CheckDuration(report.attention_time(), "report.attention_time");
  if (!status.ok()) return status;
  status = CheckDuration(report.exchange_time(), "report.exchange_time");
  if (!status.ok()) return status;
  if (report.peak_bytes() < 0) {
    return FieldError("report.peak_bytes", "must be at least 0");
  }
  return absl::OkStatus();
}

// Refused for the bucket, which an epoch may have made smaller.
bool IsTooLong(const absl::Status& status) {
  return !status.ok() &&
         GetErrorDetail(status).value_or(ErrorDetail{}).reason ==
             ErrorReason::kSequenceTooLong;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> Backend::Create(
    const ServerOptions& options, std::unique_ptr<Store> store,
    const Clock* clock, const Logger* logger, Metrics* metrics) {
  std::unique_ptr<Backend> backend(
      new Backend(options, std::move(store), clock, logger, metrics));
  const absl::Status status = backend->jobs_.LoadAll();
  if (!status.ok()) return status;
  return backend;
}

Backend::Backend(const ServerOptions& options, std::unique_ptr<Store> store,
                 const Clock* clock, const Logger* logger, Metrics* metrics)
    : options_(options),
      store_(std::move(store)),
      clock_(clock),
      metrics_(metrics),
      start_time_(clock->Now()),
      board_({.max_jobs = std::max(kBoardJobs, options.job_metrics),
              .max_plans = kBoardPlans},
             clock),
      length_quota_(options.quota_lengths_per_second, clock),
      planner_(store_.get(), options.kept_steps, clock, logger, metrics),
      plans_(
          {.max_waits = options.max_waiting_calls},
          [this](std::function<void()> task) { RunSoon(std::move(task)); },
          clock, metrics),
      rendezvous_(
          {.max_waits = options.max_waiting_calls},
          [this](std::function<void()> task) { RunSoon(std::move(task)); },
          clock, metrics),
      calibrator_(
          store_.get(), &planner_, &plans_, &jobs_,
          [this](std::shared_ptr<const BatchRequest> batch,
                 std::function<void(const PlanOutcome&)> done) {
            PlanAgain(std::move(batch), std::move(done));
          },
          logger, metrics),
      jobs_(store_.get(), logger, metrics,
            [this](const RegisteredJob& job) {
              plans_.EndJob(job);
              rendezvous_.EndJob(job);
              board_.Forget(job.id());
              calibrator_.Forget(job);
            }),
      store_pool_("store", kStoreThreads,
                  kStoreQueue + options.max_waiting_calls, clock),
      planning_pool_({.threads = options.planning_threads,
                      .max_queued = options.planning_queue,
                      .max_queued_bytes = options.planning_queue_bytes,
                      .max_queue_seconds = options.max_queue_seconds,
                      .max_client_plans = options.quota_concurrent_plans},
                     clock, metrics) {
  metrics_->SetBounds(
      {.planning_threads = options.planning_threads,
       .queued_batches = options.planning_queue,
       .waiting_calls = options.max_waiting_calls,
       .cached_plan_bytes = PlanDirectory::Limits{}.max_cached_bytes});
}

Backend::~Backend() {
  StartDrain();
  Close();
}

void Backend::PlanBatch(const PlanOrigin& origin, v1::PlanBatchRequest request,
                        int64_t request_bytes,
                        std::shared_ptr<PlanCaller> caller) {
  if (draining_) return caller->Complete(DrainingError());
  if (request.job().empty()) {  // no registered job: nothing to be current with
    return PlanCurrent(origin, request, request_bytes, std::move(caller));
  }
  const auto shared =
      std::make_shared<const v1::PlanBatchRequest>(std::move(request));
  WhenCurrent([this, origin, shared, request_bytes,
               caller = std::move(caller)](const absl::Status& current) {
    if (!current.ok()) return caller->Complete(current);
    PlanCurrent(origin, *shared, request_bytes, caller);
  });
}

void Backend::PlanCurrent(const PlanOrigin& origin,
                          const v1::PlanBatchRequest& request,
                          int64_t request_bytes,
                          std::shared_ptr<PlanCaller> caller) {
  const auto start = clock_->MonotonicNow();
  absl::StatusOr<BatchRequest> read =
      ReadBatchRequest(origin.who, request, request_bytes, options_, &jobs_);
  if (!read.ok()) return caller->Complete(read.status());
  const auto flight = std::make_shared<PlanFlight>();
  flight->share = ShareOf(origin, request.job());
  flight->client = ClientOf(origin, request.job());
  flight->lengths = std::ssize(read->lengths);
  flight->bytes = std::max(
      request_bytes, flight->lengths * static_cast<int64_t>(sizeof(int64_t)));
  const absl::Status quota = length_quota_.Check(flight->client);
  if (!quota.ok()) return caller->Complete(quota);
  const auto batch = std::make_shared<const BatchRequest>(*std::move(read));
  if (batch->commit) {
    if (auto plan = plans_.Find(batch->step_key())) {
      length_quota_.Charge(flight->client, flight->lengths);
      return caller->Complete(BatchPlanner::Standing(*batch, std::move(plan)));
    }
  }
  flight->task = TaskFor(batch);
  flight->callers.push_back(std::move(caller));
  const std::chrono::duration<double> spent = clock_->MonotonicNow() - start;
  metrics_->ObservePhase(PlanningPhase::kDecode, spent.count());
  if (planning_pool_.Submit(flight)) {
    length_quota_.Charge(flight->client, flight->lengths);
  }
}

PlanOutcome Backend::PlanNow(const BatchRequest& batch) {
  PlanOutcome result = planner_.Answer(batch);
  if (batch.commit && IsTooLong(result.status())) {
    if (auto room = calibrator_.MakeRoom(batch)) {
      BatchRequest again = batch;
      again.calibrated = std::move(room);
      result = planner_.Answer(again);
    }
  }
  if (result.ok() && result->committed) {
    plans_.Publish(batch.step_key(), result->plan);
    if (result->planning_seconds) {
      board_.AddPlan(batch.registered->id(), batch.job(), batch.lengths,
                     result->plan->plan(), *result->planning_seconds);
    }
  }
  return result;
}

void Backend::PlanAgain(std::shared_ptr<const BatchRequest> batch,
                        std::function<void(const PlanOutcome&)> done) {
  const JobRecord& record = batch->registered->record();
  const PlanOrigin origin{.who = {.subject = record.owner}};
  const auto flight = std::make_shared<PlanFlight>();
  flight->share = ShareOf(origin, record.name);
  flight->client = ClientOf(origin, record.name);
  flight->lengths = std::ssize(batch->lengths);
  flight->bytes = flight->lengths * static_cast<int64_t>(sizeof(int64_t));
  flight->task = TaskFor(std::move(batch));
  flight->callers.push_back(std::make_shared<PlanCaller>(
      clock_->MonotonicNow() + kRollBackDeadline, std::move(done)));
  planning_pool_.Submit(flight);
}

void Backend::PlanUnread(const PlanOrigin& origin, UnreadBatch unread,
                         std::shared_ptr<PlanCaller> caller) {
  if (draining_) return caller->Complete(DrainingError());
  absl::Status status = CheckRequestBytes(unread.request_bytes, options_);
  if (status.ok() && !unread.job.empty()) {
    status = ValidateJobName(unread.job, "job");
  }
  if (!status.ok()) return caller->Complete(status);
  // Always: the request may name a job that is not known yet.
  WhenCurrent([this, origin, unread = std::move(unread),
               caller = std::move(caller)](const absl::Status& current) {
    if (!current.ok()) return caller->Complete(current);
    QueueUnread(origin, unread, caller);
  });
}

void Backend::QueueUnread(const PlanOrigin& origin, UnreadBatch unread,
                          std::shared_ptr<PlanCaller> caller) {
  absl::Status status;
  if (!unread.job.empty()) {
    status = jobs_.FindFor(origin.who, Access::kUse, unread.job).status();
  }
  const std::string client = ClientOf(origin, unread.job);
  if (status.ok()) status = length_quota_.Check(client);
  if (!status.ok()) return caller->Complete(status);
  const auto flight = std::make_shared<PlanFlight>();
  flight->share = ShareOf(origin, unread.job);
  flight->client = client;
  // A length below 16,384 takes two bytes.
  flight->lengths = unread.request_bytes / 2;
  flight->bytes = unread.request_bytes;
  flight->callers.push_back(std::move(caller));
  flight->read = [this, who = origin.who, client, bytes = unread.request_bytes,
                  read = std::move(unread.read)]() -> absl::StatusOr<PlanTask> {
    const auto start = clock_->MonotonicNow();
    const absl::StatusOr<v1::PlanBatchRequest> request = read();
    if (!request.ok()) return request.status();
    absl::StatusOr<BatchRequest> batch =
        ReadBatchRequest(who, *request, bytes, options_, &jobs_);
    if (!batch.ok()) return batch.status();
    length_quota_.Charge(client, std::ssize(batch->lengths));
    const std::chrono::duration<double> spent = clock_->MonotonicNow() - start;
    metrics_->ObservePhase(PlanningPhase::kDecode, spent.count());
    return TaskFor(std::make_shared<const BatchRequest>(*std::move(batch)));
  };
  planning_pool_.Submit(flight);
}

PlanTask Backend::TaskFor(std::shared_ptr<const BatchRequest> batch) {
  std::string key = batch->flight_key();
  return {.key = std::move(key),
          .plan = [this, batch = std::move(batch)] { return PlanNow(*batch); }};
}

void Backend::WaitForPlan(const std::shared_ptr<RegisteredJob>& job,
                          const StepKey& step_key, const PlanKey& plan_key,
                          const std::shared_ptr<PlanWait>& wait) {
  if (!plans_.Wait(wait)) return;
  const absl::Status queued = store_pool_.Submit(
      [this, job, step_key, plan_key](const absl::Status& run) {
        if (run.ok()) {
          FindInStore(job, step_key, plan_key);
        } else {
          plans_.Fail(step_key, run);
        }
      });
  if (!queued.ok()) plans_.Fail(step_key, queued);
}

void Backend::RunSoon(std::function<void()> task) {
  const absl::Status queued =
      store_pool_.Submit([task](const absl::Status&) { task(); });
  if (!queued.ok()) task();
}

void Backend::FindInStore(const std::shared_ptr<RegisteredJob>& job,
                          const StepKey& step_key, const PlanKey& plan_key) {
  absl::StatusOr<std::shared_ptr<const CommittedPlan>> plan =
      planner_.FindCommitted(plan_key, job->record().generation);
  // A job of the same name and generation may have taken this one's place.
  if (!job->ended().ok()) return;
  if (!plan.ok()) {
    plans_.Fail(step_key, plan.status());
  } else if (*plan != nullptr) {
    plans_.Publish(step_key, *std::move(plan));
  }
}

void Backend::CreateJob(
    const Caller& who, const v1::CreateJobRequest& request,
    std::function<void(const absl::StatusOr<JobRecord>&)> done) {
  if (draining_) return done(DrainingError());
  const absl::Status named = ValidateJobName(request.name(), "name");
  if (!named.ok()) return done(named);
  if (request.generation() < 0) {
    return done(FieldError("generation", "must be at least 0"));
  }
  const absl::StatusOr<Job> job = JobFromProto(request.spec());
  if (!job.ok()) return done(job.status());
  const absl::Status fits = CheckRanks(*job, options_.max_ranks);
  if (!fits.ok()) return done(fits);

  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      clock_->Now().time_since_epoch());
  JobRecord wanted{.name = request.name(),
                   .spec = request.spec(),
                   .generation = request.generation(),
                   .owner = who.subject,
                   .create_time_micros = now.count()};
  CreateTerms terms{.max_jobs = options_.max_jobs,
                    .any_owner = who.role == Role::kAdmin};
  // Where callers are not told apart, jobs have no owner, and no quota.
  if (options_.quota_jobs > 0 && !who.subject.empty()) {
    terms.max_owner_jobs = options_.quota_jobs;
  }
  const absl::Status queued = store_pool_.Submit(
      [this, wanted = std::move(wanted), terms, done](const absl::Status& run) {
        if (!run.ok()) return done(run);
        done(jobs_.Create(wanted, terms));
      });
  if (!queued.ok()) done(queued);
}

void Backend::DeleteJob(const Caller& who, const v1::DeleteJobRequest& request,
                        std::function<void(const absl::Status&)> done) {
  if (draining_) return done(DrainingError());
  const absl::Status named = ValidateJobName(request.name(), "name");
  if (!named.ok()) return done(named);
  WhenCurrent([this, who, name = request.name(),
               generation = request.generation(),
               done = std::move(done)](const absl::Status& current) {
    if (!current.ok()) return done(current);
    const absl::Status queued = store_pool_.Submit(
        [this, who, name, generation, done](const absl::Status& run) {
          if (!run.ok()) return done(run);
          done(jobs_.Delete(name, generation, who));
        });
    if (!queued.ok()) done(queued);
  });
}

void Backend::ReportStep(const Caller& who,
                         const v1::ReportStepRequest& request,
                         Calibrator::Done done) {
  if (draining_) return done(DrainingError());
  const absl::Status named = ValidateJobName(request.job(), "job");
  if (!named.ok()) return done(named);
  WhenCurrent([this, who, request,
               done = std::move(done)](const absl::Status& current) {
    if (!current.ok()) return done(current);
    ReportCurrent(who, request, done);
  });
}

void Backend::ReportCurrent(const Caller& who,
                            const v1::ReportStepRequest& request,
                            const Calibrator::Done& done) {
  const absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
      jobs_.FindFor(who, Access::kUse, request.job());
  if (!job.ok()) return done(job.status());
  absl::Status status = (*job)->CheckGeneration(request.generation());
  if (!status.ok()) return done(status);
  status = CheckReport(request.report(), (*job)->job().pool().ranks());
  if (!status.ok()) return done(status);
  const absl::Status queued =
      store_pool_.Submit([this, job = *job, report = request.report(),
                          done](const absl::Status& run) {
        if (!run.ok()) return done(run);
        const absl::Status stored = job->Write([&] {
          return store_->PutReport(LifeOf(job->record()), report,
                                   options_.kept_steps);
        });
        if (!stored.ok()) return done(stored);
        metrics_->CountStepReport(report.outcome());
        board_.AddReport(job->id(), job->record().name, report.outcome());
        calibrator_.Learn(job, report, done);
      });
  if (!queued.ok()) done(queued);
}

void Backend::ListCalibrations(
    const Caller& who, const v1::ListCalibrationsRequest& request,
    std::function<void(const absl::StatusOr<std::vector<v1::Calibration>>&)>
        done) {
  if (draining_) return done(DrainingError());
  const absl::Status named = ValidateJobName(request.job(), "job");
  if (!named.ok()) return done(named);
  WhenCurrent([this, who, request,
               done = std::move(done)](const absl::Status& current) {
    if (!current.ok()) return done(current);
    const absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
        jobs_.FindFor(who, Access::kLook, request.job());
    if (!job.ok()) return done(job.status());
    const absl::Status same = (*job)->CheckGeneration(request.generation());
    if (!same.ok()) return done(same);
    const absl::Status queued =
        store_pool_.Submit([this, job = *job, done](const absl::Status& run) {
          if (!run.ok()) return done(run);
          done(store_->Calibrations(job->record().name,
                                    job->record().generation));
        });
    if (!queued.ok()) done(queued);
  });
}

void Backend::StartDrain() {
  draining_ = true;
  metrics_->SetDraining();
  plans_.Drain();
  rendezvous_.Drain();
}

void Backend::Close() {
  planning_pool_.Close();
  store_pool_.Close();
}

}  // namespace skrull
