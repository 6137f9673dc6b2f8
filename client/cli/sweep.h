// The combinations that `skrullctl simulate` tries: a job as it is, and with
// other values of a few fields. Pure.
#ifndef SKRULL_CLIENT_CLI_SWEEP_H_
#define SKRULL_CLIENT_CLI_SWEEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/planner/job.h"
#include "skrull/v1/job.pb.h"

namespace skrull::cli {

// Values to try; none = as it is.
struct Sweep {
  std::vector<int64_t> batch_sizes;   // each >= 1
  std::vector<int64_t> bucket_sizes;  // tokens
  std::vector<int32_t> cp_sizes;
  std::vector<std::string> scopes;    // names after "BLOCK_SCOPE_"
  std::vector<std::string> policies;  // names of Policy
};

struct Change {
  std::string field;  // path in JobSpec
  std::string value;

  friend bool operator==(const Change&, const Change&) = default;
};

struct Variant {
  v1::JobSpec spec;
  Job job;                 // of `spec`
  int64_t batch_size = 0;  // 0 = the whole list
  // What differs from the job as it is, in the order of Sweep; empty for that.
  std::vector<Change> changes;
};

// First the job as it is, with the first batch size; then all combinations, the
// last of Sweep's fields fastest, without those that are there already. A
// cp_size changes dp_size as well, so that dp_size * cp_size stays the same.
// Errors: INVALID_ARGUMENT for a cp_size that does not divide the ranks, an
// unknown name, and for a combination that is no job, naming it.
absl::StatusOr<std::vector<Variant>> MakeVariants(const v1::JobSpec& spec,
                                                  const Sweep& sweep);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_SWEEP_H_
