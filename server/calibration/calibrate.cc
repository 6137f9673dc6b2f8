#include "skrull/server/calibration/calibrate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "skrull/planner/error.h"
#include "skrull/server/calibration/bucket.h"
#include "skrull/server/calibration/holding.h"
#include "skrull/server/calibration/limits.h"
#include "skrull/server/calibration/memory_fit.h"
#include "skrull/server/calibration/numbers.h"
#include "skrull/server/calibration/step_parts.h"
#include "skrull/server/calibration/time_fit.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

using calibration::AddLongest;
using calibration::BucketEvidence;
using calibration::Epoch;
using calibration::kEpochFactor;
using calibration::kEpochSteps;
using calibration::Longest;
using calibration::MakeEpoch;
using calibration::MemoryFit;
using calibration::PeakLoad;
using calibration::ReportedStep;
using calibration::SmallestBucket;
using calibration::TimeFit;

// To six significant digits.
double Rounded(double value) {
  double rounded = value;
  return absl::SimpleAtod(absl::StrCat(value), &rounded) ? rounded : value;
}

std::string Percent(double share) {
  return absl::StrCat(0.1 * std::round(1000 * share), " %");
}

std::string Change(const char* name, double before, double after) {
  return absl::StrCat(name, " ", before, " -> ", after);
}

// The steps to look at, in order, with reports by rank.
std::vector<ReportedStep> Window(std::vector<ReportedStep> steps) {
  std::sort(steps.begin(), steps.end(),
            [](const ReportedStep& a, const ReportedStep& b) {
              return a.plan.key < b.plan.key;
            });
  const auto excess = std::ssize(steps) - calibration::kWindowSteps;
  if (excess > 0) steps.erase(steps.begin(), steps.begin() + excess);
  for (ReportedStep& step : steps) {
    std::sort(step.reports.begin(), step.reports.end(),
              [](const v1::StepReport& a, const v1::StepReport& b) {
                return a.rank() < b.rank();
              });
  }
  return steps;
}

// A job, its epoch and the steps to look at.
struct Situation {
  Job spec_job;
  Epoch standing;
  std::vector<ReportedStep> steps;

  int64_t ranks() const { return spec_job.pool().ranks(); }
  bool IsComplete(const ReportedStep& step) const {
    return calibration::IsComplete(step, ranks());
  }
  // Complete, and later than the epoch in force.
  bool IsNew(const ReportedStep& step) const {
    return IsComplete(step) && (standing.record.epoch() == 0 ||
                                step.plan.key.step > standing.record.step());
  }
};

absl::StatusOr<Situation> MakeSituation(const CalibrationInput& input) {
  absl::StatusOr<Job> spec_job = JobFromProto(input.spec);
  if (!spec_job.ok()) return spec_job.status();
  absl::StatusOr<Epoch> standing = MakeEpoch(input.spec, input.standing);
  if (!standing.ok()) return standing.status();
  return Situation{.spec_job = *std::move(spec_job),
                   .standing = *std::move(standing),
                   .steps = Window(input.steps)};
}

BucketEvidence EvidenceOf(const Situation& now) {
  const Epoch& standing = now.standing;
  BucketEvidence evidence = {
      .spec_bucket = now.spec_job.bucket_size(),
      .bucket = standing.job.bucket_size(),
      .fit = calibration::FitMemory(now.spec_job, standing, now.steps)};
  if (standing.record.has_out_of_memory_tokens()) {
    evidence.out_of_memory_rows = standing.record.out_of_memory_tokens();
  }
  if (standing.models_memory()) {
    evidence.fitted_bytes =
        calibration::FittedByteLimit(standing.job.spec().memory);
  }
  const double full =
      calibration::kNearBucket * static_cast<double>(evidence.bucket);
  for (const ReportedStep& step : now.steps) {
    for (const v1::StepReport& report : step.reports) {
      evidence.measures_memory |=
          standing.models_memory() && report.peak_bytes() > 0;
    }
    if (step.plan.calibration_epoch == standing.record.epoch() &&
        now.IsComplete(step) &&
        static_cast<double>(step.plan.summary.max_rank_tokens) >= full) {
      ++evidence.full_steps;
    }
  }
  return evidence;
}

bool IsMaterial(double before, double after) {
  return before - after >= std::max(calibration::kLeastGain,
                                    calibration::kLeastGainShare * before);
}

// The epoch after `standing`, with its numbers and nothing else.
v1::Calibration NextEpoch(const v1::Calibration& standing) {
  v1::Calibration next = standing;
  next.set_epoch(standing.epoch() + 1);
  next.clear_error_before();
  next.clear_error_after();
  next.clear_text();
  return next;
}

// Takes over a fit of times if it predicts materially better.
void RefitTimes(const CalibrationInput& input, const Situation& now,
                v1::Calibration* next, std::vector<std::string>* changes) {
  const std::optional<TimeFit> fit =
      calibration::FitTimes(input.spec, now.spec_job, now.standing, now.steps);
  if (!fit) return;
  next->set_error_before(Rounded(fit->error_before));
  next->set_error_after(Rounded(fit->error_before));
  if (!IsMaterial(fit->size_before, fit->size_after)) return;
  next->set_error_after(Rounded(fit->error_after));
  const CostSpec& cost = now.standing.job.cost();
  next->set_seconds_per_flop(Rounded(fit->numbers.seconds_per_flop));
  next->set_seconds_per_micro_batch(
      Rounded(fit->numbers.seconds_per_micro_batch));
  next->set_link_scale(Rounded(fit->numbers.link_scale));
  changes->push_back(absl::StrCat(
      "measured times: ",
      Change("seconds_per_flop", cost.seconds_per_flop,
             next->seconds_per_flop()),
      ", ",
      Change("seconds_per_micro_batch", cost.seconds_per_micro_batch,
             next->seconds_per_micro_batch()),
      ", ", Change("link_scale", now.standing.link_scale(), next->link_scale()),
      "; mean error ", Percent(fit->error_before), " -> ",
      Percent(fit->error_after)));
}

// Takes over a fit of peaks, within the bounds of one epoch. The bucket stays,
// also one that is derived from these numbers.
void SetMemory(const Situation& now, const MemoryFit& fit,
               v1::Calibration* next, std::vector<std::string>* changes) {
  const Job& job = now.standing.job;
  const double before = job.bytes_per_token();
  next->set_bytes_per_token(Rounded(std::clamp(
      fit.bytes_per_token, before / kEpochFactor, before * kEpochFactor)));
  next->set_static_bytes(std::llround(Rounded(fit.static_bytes)));
  next->set_bucket_size_tokens(job.bucket_size());
  changes->push_back(absl::StrCat(
      "measured peaks: ",
      Change("bytes_per_token", before, next->bytes_per_token()),
      ", static_bytes ", job.spec().memory.static_bytes, " -> ",
      next->static_bytes(), "; mean error ", Percent(fit.error_before), " -> ",
      Percent(fit.error_after)));
}

// What the next epoch must hold, too.
Longest LongestOf(const Situation& now) {
  Longest longest;
  for (const ReportedStep& step : now.steps) AddLongest(step.plan, &longest);
  return longest;
}

// Memory numbers and bucket. Leaves `next` as it was where what the reports ask
// for would not hold a sequence that ran.
void RefitMemory(const CalibrationInput& input, const Situation& now,
                 v1::Calibration* next, std::vector<std::string>* changes) {
  const BucketEvidence evidence = EvidenceOf(now);
  std::optional<int64_t> moved = BucketByPrediction(evidence);
  if (!moved) moved = RecoveredBucket(evidence);
  const int64_t wanted = moved.value_or(evidence.bucket);
  const std::optional<MemoryFit>& fit = evidence.fit;
  v1::Calibration draft = *next;
  std::vector<std::string> drafted = *changes;
  if (fit && (moved || IsMaterial(fit->size_before, fit->size_after))) {
    SetMemory(now, *fit, &draft, &drafted);
  }
  const Longest longest = LongestOf(now);
  const std::optional<int64_t> bucket = SmallestBucket(
      input.spec, draft, longest, wanted, std::max(wanted, evidence.bucket));
  if (!bucket) return;
  if (*bucket != evidence.bucket) {
    const bool larger = *bucket > evidence.bucket;
    draft.set_bucket_size_tokens(*bucket);
    drafted.push_back(
        absl::StrCat("bucket ", evidence.bucket, " -> ", *bucket, " tokens",
                     larger ? ", after loads near it left room"
                            : ", as more is predicted not to fit the device"));
    if (larger) draft.set_cause(v1::CALIBRATION_CAUSE_RECOVERY);
  }
  *next = draft;
  *changes = drafted;
}

absl::Status Exhausted(const Plan& failed, int32_t rank, int64_t rows,
                       const std::string& why) {
  return MakeError(
      {.reason = ErrorReason::kAttemptsExhausted},
      absl::StrCat("job ", failed.key.job, ", step ", failed.key.step,
                   ", attempt ", failed.key.attempt, ": rank ", rank,
                   " ran out of memory with ", rows, " rows; ", why));
}

}  // namespace

bool EndsStretch(int64_t newest, int64_t step) {
  return newest < StretchEnd(step);
}

int64_t StretchEnd(int64_t step) { return step - step % kEpochSteps; }

std::optional<v1::Calibration> Refit(const CalibrationInput& input) {
  if (input.spec.calibration().has_refit() &&
      !input.spec.calibration().refit()) {
    return std::nullopt;
  }
  const absl::StatusOr<Situation> now = MakeSituation(input);
  if (!now.ok()) return std::nullopt;
  const auto count =
      std::count_if(now->steps.begin(), now->steps.end(),
                    [&](const ReportedStep& step) { return now->IsNew(step); });
  if (count < kEpochSteps) return std::nullopt;
  const auto last =
      std::find_if(now->steps.rbegin(), now->steps.rend(),
                   [&](const ReportedStep& step) { return now->IsNew(step); });
  v1::Calibration next = NextEpoch(now->standing.record);
  next.set_cause(v1::CALIBRATION_CAUSE_REFIT);
  next.set_step(last->plan.key.step);
  next.set_attempt(last->plan.key.attempt);
  std::vector<std::string> changes;
  RefitTimes(input, *now, &next, &changes);
  RefitMemory(input, *now, &next, &changes);
  if (changes.empty() || !MakeEpoch(input.spec, next).ok()) return std::nullopt;
  next.set_text(absl::StrJoin(changes, "; "));
  return next;
}

int64_t MostRowsOf(const Job& job, const Plan& plan, int32_t rank) {
  const std::vector<PeakLoad> peaks = calibration::PeakLoadsOf(job, plan);
  const auto r = static_cast<size_t>(rank);
  return rank < 0 || r >= peaks.size() ? 0 : peaks[r].rows;
}

absl::StatusOr<v1::Calibration> CalibrateOutOfMemory(
    const CalibrationInput& input, const Plan& failed, int32_t rank) {
  const absl::StatusOr<Situation> now = MakeSituation(input);
  if (!now.ok()) return now.status();
  const int64_t rows = MostRowsOf(now->standing.job, failed, rank);
  const BucketEvidence evidence = EvidenceOf(*now);
  const std::optional<int64_t> wanted = BucketAfterOutOfMemory(evidence, rows);
  if (!wanted) {
    const int64_t floor = calibration::BucketFloor(evidence.spec_bucket);
    return Exhausted(
        failed, rank, rows,
        absl::StrCat("no bucket below ", floor, " tokens, 1/",
                     calibration::kBucketFloorShare,
                     " of the spec's, is tried. Something else takes the "
                     "memory, or memory.bucket_size_tokens is far too large"));
  }
  Longest longest;
  AddLongest(failed, &longest);
  v1::Calibration next = NextEpoch(now->standing.record);
  const std::optional<int64_t> bucket =
      SmallestBucket(input.spec, next, longest, *wanted, rows - 1);
  if (!bucket) {
    return Exhausted(failed, rank, rows,
                     absl::StrCat("no smaller bucket holds the batch's longest "
                                  "sequence, ",
                                  longest[failed.policy],
                                  " tokens: a wider block_scope or a larger "
                                  "cp_size would shard it further"));
  }
  next.set_cause(v1::CALIBRATION_CAUSE_OUT_OF_MEMORY);
  next.set_step(failed.key.step);
  next.set_attempt(failed.key.attempt);
  next.set_bucket_size_tokens(*bucket);
  next.set_out_of_memory_tokens(
      evidence.out_of_memory_rows ? std::min(*evidence.out_of_memory_rows, rows)
                                  : rows);
  next.set_text(absl::StrCat("rank ", rank, " ran out of memory with ", rows,
                             " rows in step ", failed.key.step, ", attempt ",
                             failed.key.attempt, ": bucket ", evidence.bucket,
                             " -> ", *bucket, " tokens"));
  return next;
}

std::optional<v1::Calibration> CalibrateForBatch(
    const v1::JobSpec& spec, const v1::Calibration& standing, int64_t step,
    Policy policy, std::span<const int64_t> lengths) {
  const absl::StatusOr<Job> spec_job = JobFromProto(spec);
  const absl::StatusOr<Epoch> epoch = MakeEpoch(spec, standing);
  if (!spec_job.ok() || !epoch.ok() || lengths.empty()) return std::nullopt;
  int64_t most = spec_job->bucket_size();
  if (standing.has_out_of_memory_tokens()) {
    most = std::min(most, standing.out_of_memory_tokens() - 1);
  }
  const int64_t bucket = epoch->job.bucket_size();
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  v1::Calibration next = NextEpoch(standing);
  const std::optional<int64_t> holds =
      SmallestBucket(spec, next, {{policy, longest}}, bucket, most);
  if (!holds || *holds == bucket) return std::nullopt;
  next.set_cause(v1::CALIBRATION_CAUSE_RECOVERY);
  next.set_bucket_size_tokens(*holds);
  next.set_text(absl::StrCat("a sequence of ", longest, " tokens in step ",
                             step, " needs bucket ", bucket, " -> ", *holds,
                             " tokens"));
  return next;
}

}  // namespace skrull
