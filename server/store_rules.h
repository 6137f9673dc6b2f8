// The rules of JobStore and PlanStore that do not depend on a backend, so that
// all backends decide, and say, the same. Pure.
#ifndef SKRULL_SERVER_STORE_RULES_H_
#define SKRULL_SERVER_STORE_RULES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/job_store.h"

namespace skrull {

// kStoreFailed with message "store <where>: <problem>".
absl::Status StoreFailed(const std::string& where, const std::string& problem);

// kJobNotFound.
absl::Status JobNotFound(const std::string& name);

// kGenerationMismatch.
absl::Status GenerationMismatch(const std::string& name, int64_t standing,
                                int64_t wanted);

// Epoch 0 of every job: the spec as it was registered.
v1::Calibration RegisteredCalibration();

// Jobs in a store, all and those of the owner who wants another.
struct JobCounts {
  int64_t all = 0;
  int64_t of_owner = 0;
};

// What JobStore::Create does: the record to store in place of what stands, but
// for its birth and version; nullopt if what stands is the answer; or the
// refusal. `standing` is the record of that name, if there is one.
absl::StatusOr<std::optional<JobRecord>> DecideCreate(
    const std::optional<JobRecord>& standing, const JobRecord& wanted,
    const JobCounts& counts, const CreateTerms& terms);

// Whether JobStore::Advance stores `next`.
bool AdvancesTo(const JobRecord& standing, const v1::Calibration& next);

// OK if a record for the life that began at `wanted` (0 = any) may be stored
// for the job at `standing`; else kGenerationMismatch.
absl::Status CheckBirth(const std::string& name, int64_t standing,
                        int64_t wanted);

// OK if the job that stands is in the life named, whose generation and birth
// may be 0 = any; else kGenerationMismatch.
absl::Status CheckLife(const JobRecord& standing, const JobLife& life);

}  // namespace skrull

#endif  // SKRULL_SERVER_STORE_RULES_H_
