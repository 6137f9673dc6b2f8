#include "skrull/server/store_rules.h"

#include <algorithm>

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

}  // namespace

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

absl::Status CheckGeneration(const std::string& name, int64_t standing,
                             int64_t wanted) {
  if (wanted == 0 || wanted == standing) return absl::OkStatus();
  return GenerationMismatch(name, standing, wanted);
}

absl::StatusOr<std::optional<JobRecord>> DecideCreate(
    const std::optional<JobRecord>& standing, const JobRecord& wanted,
    int64_t job_count, int64_t max_jobs) {
  JobRecord record = wanted;
  record.calibration_epoch = 0;
  if (!standing) {
    if (job_count >= max_jobs) {
      ErrorDetail detail;
      detail.reason = ErrorReason::kLimitExceeded;
      detail.limit = max_jobs;
      return MakeError(detail,
                       absl::StrCat(job_count, " jobs are registered, at most ",
                                    max_jobs, " may be (option --max_jobs)"));
    }
    record.generation = std::max<int64_t>(1, wanted.generation);
    return std::optional<JobRecord>(record);
  }
  if (wanted.generation > standing->generation) {
    return std::optional<JobRecord>(record);
  }
  absl::Status generation =
      CheckGeneration(wanted.name, standing->generation, wanted.generation);
  if (!generation.ok()) return generation;
  if (CanonicalBytes(wanted.spec) != CanonicalBytes(standing->spec)) {
    return JobError(
        ErrorReason::kJobExists, "name",
        absl::StrCat("job \"", wanted.name, "\" exists at generation ",
                     standing->generation,
                     " with another spec; a higher generation replaces it"));
  }
  return std::optional<JobRecord>();
}

}  // namespace skrull
