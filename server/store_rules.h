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

// kJobNotFound.
absl::Status JobNotFound(const std::string& name);

// kGenerationMismatch.
absl::Status GenerationMismatch(const std::string& name, int64_t standing,
                                int64_t wanted);

// OK if `wanted` is 0 or `standing`; else kGenerationMismatch.
absl::Status CheckGeneration(const std::string& name, int64_t standing,
                             int64_t wanted);

// What JobStore::Create does: the record to store in place of what stands;
// nullopt if what stands is the answer; or the refusal. `standing` is the
// record of that name, if there is one, and `job_count` counts all jobs.
absl::StatusOr<std::optional<JobRecord>> DecideCreate(
    const std::optional<JobRecord>& standing, const JobRecord& wanted,
    int64_t job_count, int64_t max_jobs);

}  // namespace skrull

#endif  // SKRULL_SERVER_STORE_RULES_H_
