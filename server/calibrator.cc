#include "skrull/server/calibrator.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/calibration/limits.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

constexpr int32_t kDefaultMaxAttempts = 8;
// Steps that a trainer may have planned ahead of those it reports, with a
// window behind them.
constexpr int64_t kReadSteps = 1024 + calibration::kWindowSteps;
// Epochs that others may start while one of ours is made. Each takes a report
// of its own, so that this many in a row are no accident.
constexpr int kMaxRaces = 16;

v1::ReportStepResponse Response(const RegisteredJob& job, int32_t attempt) {
  v1::ReportStepResponse response;
  response.set_attempt(attempt);
  response.set_calibration_epoch(job.calibrated()->calibration.epoch());
  return response;
}

std::string Describe(const PlanKey& key) {
  return absl::StrCat("job ", key.job, ", step ", key.step, ", attempt ",
                      key.attempt);
}

ErrorReason ReasonOf(const absl::Status& status) {
  return GetErrorDetail(status).value_or(ErrorDetail{}).reason;
}

// True if planning the same again fails again.
bool IsFinal(const absl::Status& status) {
  const ErrorReason reason = ReasonOf(status);
  return reason == ErrorReason::kSequenceTooLong ||
         reason == ErrorReason::kSimulatedOom ||
         reason == ErrorReason::kLimitExceeded;
}

// An epoch that began because of this very plan.
bool Answers(const v1::Calibration& calibration, const PlanKey& key) {
  return calibration.cause() == v1::CALIBRATION_CAUSE_OUT_OF_MEMORY &&
         calibration.step() == key.step && calibration.attempt() == key.attempt;
}

int32_t MaxAttempts(const v1::JobSpec& spec) {
  return spec.calibration().has_max_attempts()
             ? spec.calibration().max_attempts()
             : kDefaultMaxAttempts;
}

bool RollsBack(const v1::JobSpec& spec) {
  return !spec.calibration().has_roll_back_out_of_memory() ||
         spec.calibration().roll_back_out_of_memory();
}

bool Refits(const v1::JobSpec& spec) {
  return !spec.calibration().has_refit() || spec.calibration().refit();
}

// Predicted over measured time of the steps from `begin` on that were measured.
void ObserveStepTimes(const CalibrationInput& input, int64_t ranks,
                      int64_t begin, Metrics* metrics) {
  for (const calibration::ReportedStep& step : input.steps) {
    if (step.plan.key.step < begin) continue;
    const auto measured = calibration::MeasuredSeconds(step, ranks);
    const PlanSummary& summary = step.plan.summary;
    const double predicted = summary.pipeline_seconds > 0
                                 ? summary.pipeline_seconds
                                 : summary.predicted_seconds;
    if (measured) metrics->calibration().ObserveStep(predicted / *measured);
  }
}

}  // namespace

Calibrator::Calibrator(Store* store, const BatchPlanner* planner,
                       PlanDirectory* plans, JobDirectory* jobs,
                       Planning planning, const Logger* logger,
                       Metrics* metrics)
    : store_(store),
      planner_(planner),
      plans_(plans),
      jobs_(jobs),
      planning_(std::move(planning)),
      logger_(logger),
      metrics_(metrics) {}

void Calibrator::Learn(const std::shared_ptr<RegisteredJob>& job,
                       const v1::StepReport& report, const Done& done) {
  const PlanKey key{job->record().name, report.step(), report.attempt()};
  const absl::StatusOr<std::optional<int32_t>> latest =
      LatestAttempt(*job, key);
  if (!latest.ok()) return done(latest.status());
  if (!*latest) return done(Response(*job, 0));
  if (report.outcome() == v1::STEP_OUTCOME_OUT_OF_MEMORY) {
    if (**latest == key.attempt && RollsBack(job->record().spec)) {
      return RollBack(job, report, done);
    }
  } else {
    EndStretch(job, key.step);
  }
  done(Response(*job, **latest));
}

absl::StatusOr<std::optional<int32_t>> Calibrator::LatestAttempt(
    const RegisteredJob& job, const PlanKey& key) {
  std::optional<int32_t> latest;
  for (PlanKey probe = key; probe.attempt <= kMaxAttempt; ++probe.attempt) {
    if (plans_->Find({job.id(), probe.step, probe.attempt}) == nullptr) {
      const absl::StatusOr<std::optional<PlanRecord>> record =
          store_->Find(probe, job.record().generation);
      if (!record.ok()) return record.status();
      if (!record->has_value()) break;
    }
    latest = probe.attempt;
  }
  return latest;
}

absl::StatusOr<std::shared_ptr<const CommittedPlan>> Calibrator::FindPlan(
    const RegisteredJob& job, const PlanKey& key) {
  if (auto plan = plans_->Find({job.id(), key.step, key.attempt})) return plan;
  return planner_->FindCommitted(key, job.record().generation);
}

absl::StatusOr<CalibrationInput> Calibrator::ReadSteps(
    const RegisteredJob& job, const v1::Calibration& standing, int64_t end) {
  const JobRecord& record = job.record();
  absl::StatusOr<std::vector<PlanKey>> keys =
      store_->LatestSteps(record.name, record.generation, kReadSteps);
  if (!keys.ok()) return keys.status();
  std::erase_if(*keys, [end](const PlanKey& key) { return key.step >= end; });
  std::sort(keys->begin(), keys->end(),
            [](const PlanKey& a, const PlanKey& b) { return b < a; });
  if (std::ssize(*keys) > calibration::kWindowSteps) {
    keys->resize(calibration::kWindowSteps);
  }
  CalibrationInput input = {
      .spec = record.spec, .standing = standing, .steps = {}};
  for (const PlanKey& key : *keys) {
    const auto plan = FindPlan(job, key);
    if (!plan.ok()) return plan.status();
    if (*plan == nullptr) continue;  // forgotten meanwhile
    absl::StatusOr<std::vector<v1::StepReport>> reports =
        store_->Reports(key, record.generation, calibration::kMaxReports);
    if (!reports.ok()) return reports.status();
    input.steps.push_back(
        {.plan = (*plan)->plan(), .reports = *std::move(reports)});
  }
  return input;
}

bool Calibrator::IsFirstAfterStretch(const RegisteredJob& job, int64_t step) {
  MutexLock lock(&mutex_);
  if (!job.ended().ok()) return false;  // Forget has come, or comes
  int64_t& newest = newest_.try_emplace(job.id(), -1).first->second;
  const bool ends = EndsStretch(newest, step);
  newest = std::max(newest, step);
  return ends;
}

void Calibrator::EndStretch(const std::shared_ptr<RegisteredJob>& job,
                            int64_t step) {
  if (!Refits(job->record().spec) || !IsFirstAfterStretch(*job, step)) return;
  const std::shared_ptr<const CalibratedJob> now = job->calibrated();
  const int64_t end = StretchEnd(step);
  const absl::StatusOr<CalibrationInput> input =
      ReadSteps(*job, now->calibration, end);
  if (!input.ok()) return;  // the store's own metrics and log tell
  ObserveStepTimes(*input, job->job().pool().ranks(),
                   end - calibration::kEpochSteps, metrics_);
  const std::optional<v1::Calibration> next = Refit(*input);
  if (!next) return;
  const absl::Status advanced = Advance(job, *next);
  if (!advanced.ok()) {
    logger_->Error("calibration_failed",
                   {{"job", job->record().name},
                    {"epoch", next->epoch()},
                    {"problem", std::string(advanced.message())}});
  }
}

void Calibrator::Refuse(const RegisteredJob& job, const PlanKey& key,
                        const absl::Status& refusal, const Done& done) {
  metrics_->calibration().CountExhausted();
  logger_->Error("attempts_exhausted",
                 {{"job", key.job},
                  {"step", key.step},
                  {"attempt", key.attempt},
                  {"problem", std::string(refusal.message())}});
  v1::ReportStepResponse response = Response(job, key.attempt);
  *response.mutable_refusal() = StatusToProto(refusal);
  done(response);
}

void Calibrator::RollBack(const std::shared_ptr<RegisteredJob>& job,
                          const v1::StepReport& report, const Done& done) {
  const PlanKey key{job->record().name, report.step(), report.attempt()};
  const auto failed = FindPlan(*job, key);
  if (!failed.ok()) return done(failed.status());
  if (*failed == nullptr) return done(Response(*job, 0));
  const Plan& plan = (*failed)->plan();
  const int64_t rows = MostRowsOf(job->job(), plan, report.rank());
  const std::string what =
      absl::StrCat(Describe(key), ": rank ", report.rank(),
                   " ran out of memory with ", rows, " rows");
  const int32_t attempts = MaxAttempts(job->record().spec);
  if (key.attempt + 1 >= attempts || key.attempt >= kMaxAttempt) {
    return Refuse(
        *job, key,
        MakeError(
            {.reason = ErrorReason::kAttemptsExhausted, .limit = attempts},
            absl::StrCat(what, " on the last of ", attempts,
                         " attempts (calibration.max_attempts). Something "
                         "else takes the memory, or "
                         "memory.bucket_size_tokens is far too large")),
        done);
  }
  absl::StatusOr<std::shared_ptr<const CalibratedJob>> smaller =
      SmallerEpoch(job, plan, report.rank());
  if (!smaller.ok()) {
    if (ReasonOf(smaller.status()) == ErrorReason::kAttemptsExhausted) {
      return Refuse(*job, key, smaller.status(), done);
    }
    return done(smaller.status());
  }
  auto batch = std::make_shared<BatchRequest>();
  batch->registered = job;
  batch->calibrated = *std::move(smaller);
  batch->key = {key.job, key.step, key.attempt + 1};
  batch->lengths = calibration::LengthsOf(plan);
  batch->policy = plan.policy;
  batch->commit = true;
  batch->digest = (*failed)->record().request_digest;
  const int64_t bucket = batch->calibrated->job.bucket_size();
  planning_(batch, [this, job, key, what, bucket,
                    done](const PlanOutcome& outcome) {
    if (outcome.ok()) {
      metrics_->calibration().CountAttempt();
      return done(Response(*job, key.attempt + 1));
    }
    if (!IsFinal(outcome.status())) return done(outcome.status());
    Refuse(
        *job, key,
        MakeError({.reason = ErrorReason::kAttemptsExhausted},
                  absl::StrCat(what, "; with a bucket of ", bucket, " tokens, ",
                               std::string(outcome.status().message()))),
        done);
  });
}

absl::StatusOr<std::shared_ptr<const CalibratedJob>> Calibrator::SmallerEpoch(
    const std::shared_ptr<RegisteredJob>& job, const Plan& failed,
    int32_t rank) {
  for (int race = 0; race < kMaxRaces; ++race) {
    std::shared_ptr<const CalibratedJob> now = job->calibrated();
    // Another rank was faster, or the plan was made in an epoch that has
    // passed.
    if (Answers(now->calibration, failed.key) ||
        now->job.bucket_size() < MostRowsOf(now->job, failed, rank)) {
      return now;
    }
    const absl::StatusOr<CalibrationInput> input =
        ReadSteps(*job, now->calibration, failed.key.step + 1);
    if (!input.ok()) return input.status();
    const absl::StatusOr<v1::Calibration> next =
        CalibrateOutOfMemory(*input, failed, rank);
    if (!next.ok()) return next.status();
    const absl::Status advanced = Advance(job, *next);
    if (!advanced.ok()) return advanced;
  }
  return MakeError(
      {.reason = ErrorReason::kStoreFailed},
      absl::StrCat(Describe(failed.key), ": the job's epoch changed ",
                   kMaxRaces, " times while one was made; report again"));
}

absl::Status Calibrator::Advance(const std::shared_ptr<RegisteredJob>& job,
                                 const v1::Calibration& next) {
  const absl::StatusOr<JobRecord> record = jobs_->Advance(job, next);
  if (!record.ok()) return record.status();
  if (CanonicalBytes(record->calibration) != CanonicalBytes(next)) {
    return absl::OkStatus();  // another epoch was first
  }
  metrics_->calibration().CountEpoch(next.cause());
  logger_->Info("calibration_epoch",
                {{"job", job->record().name},
                 {"epoch", next.epoch()},
                 {"cause", v1::CalibrationCause_Name(next.cause())},
                 {"change", next.text()}});
  return absl::OkStatus();
}

std::shared_ptr<const CalibratedJob> Calibrator::MakeRoom(
    const BatchRequest& batch) {
  const std::optional<v1::Calibration> next = CalibrateForBatch(
      batch.registered->record().spec, batch.calibrated->calibration,
      batch.key.step, batch.policy, batch.lengths);
  if (next && !Advance(batch.registered, *next).ok()) return nullptr;
  std::shared_ptr<const CalibratedJob> now = batch.registered->calibrated();
  return now->calibration.epoch() == batch.calibration_epoch() ? nullptr : now;
}

void Calibrator::Forget(const RegisteredJob& job) {
  MutexLock lock(&mutex_);
  newest_.erase(job.id());
}

}  // namespace skrull
