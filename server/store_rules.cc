#include "skrull/server/store_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

absl::Status JobError(ErrorReason reason, const std::string& field,
                      const std::string& message) {
  ErrorDetail detail;
  detail.reason = reason;
  detail.field = field;
  return MakeError(detail, message);
}

// Whether a job may be stored that does not stand yet.
absl::Status CheckLimits(const std::optional<JobRecord>& standing,
                         const JobRecord& wanted, const JobCounts& counts,
                         const CreateTerms& terms) {
  if (!standing && counts.all >= terms.max_jobs) {
    return MakeError(
        {.reason = ErrorReason::kLimitExceeded, .limit = terms.max_jobs},
        absl::StrCat(counts.all, " jobs are registered, at most ",
                     terms.max_jobs, " may be (option --max_jobs)"));
  }
  const bool adds_one = !standing || standing->owner != wanted.owner;
  if (adds_one && counts.of_owner >= terms.max_owner_jobs) {
    return MakeError(
        {.reason = ErrorReason::kQuotaExceeded,
         .field = "name",
         .limit = terms.max_owner_jobs},
        absl::StrCat("owner \"", wanted.owner, "\" has ", counts.of_owner,
                     " jobs, at most ", terms.max_owner_jobs, " are allowed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StoreFailed(const std::string& where, const std::string& problem) {
  return MakeError({.reason = ErrorReason::kStoreFailed},
                   absl::StrCat("store ", where, ": ", problem));
}

absl::Status JobNotFound(const std::string& name) {
  return JobError(ErrorReason::kJobNotFound, "job",
                  absl::StrCat("no job \"", name, "\""));
}

absl::Status GenerationMismatch(const std::string& name, int64_t standing,
                                int64_t wanted) {
  return JobError(ErrorReason::kGenerationMismatch, "generation",
                  absl::StrCat("job \"", name, "\" is at generation ", standing,
                               ", not ", wanted));
}

absl::Status CheckBirth(const std::string& name, int64_t standing,
                        int64_t wanted) {
  if (wanted == 0 || wanted == standing) return absl::OkStatus();
  return JobError(ErrorReason::kGenerationMismatch, "generation",
                  absl::StrCat("job \"", name,
                               "\" was deleted and registered anew meanwhile"));
}

absl::Status CheckLife(const JobRecord& standing, const JobLife& life) {
  if (life.generation != 0 && life.generation != standing.generation) {
    return GenerationMismatch(life.name, standing.generation, life.generation);
  }
  return CheckBirth(life.name, standing.birth, life.birth);
}

v1::Calibration RegisteredCalibration() {
  v1::Calibration calibration;
  calibration.set_cause(v1::CALIBRATION_CAUSE_REGISTERED);
  return calibration;
}

absl::StatusOr<std::optional<JobRecord>> DecideCreate(
    const std::optional<JobRecord>& standing, const JobRecord& wanted,
    const JobCounts& counts, const CreateTerms& terms) {
  if (standing && !terms.any_owner && standing->owner != wanted.owner) {
    return JobError(
        ErrorReason::kPermissionDenied, "name",
        absl::StrCat("job \"", wanted.name, "\" belongs to another owner"));
  }
  if (standing && wanted.generation <= standing->generation) {
    absl::Status same = CheckLife(
        *standing, {.name = wanted.name, .generation = wanted.generation});
    if (!same.ok()) return same;
    if (CanonicalBytes(wanted.spec) != CanonicalBytes(standing->spec)) {
      return JobError(
          ErrorReason::kJobExists, "name",
          absl::StrCat("job \"", wanted.name, "\" exists at generation ",
                       standing->generation,
                       " with another spec; a higher generation replaces it"));
    }
    return std::optional<JobRecord>();
  }
  absl::Status limits = CheckLimits(standing, wanted, counts, terms);
  if (!limits.ok()) return limits;
  JobRecord record = wanted;
  record.generation = std::max<int64_t>(1, wanted.generation);
  record.calibration = RegisteredCalibration();
  return std::optional<JobRecord>(std::move(record));
}

bool AdvancesTo(const JobRecord& standing, const v1::Calibration& next) {
  return next.epoch() > 0 && next.epoch() - 1 == standing.calibration.epoch();
}

}  // namespace skrull
