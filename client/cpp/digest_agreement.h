// Do all ranks hold the same plan? Asked before a step's first collective, so
// that ranks that disagree raise an error instead of hanging in it.
#ifndef SKRULL_CLIENT_CPP_DIGEST_AGREEMENT_H_
#define SKRULL_CLIENT_CPP_DIGEST_AGREEMENT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/planner/plan_digest.h"

namespace skrull {

// The trainer's own all-gather: contributes this rank's bytes and returns those
// of all ranks, in rank order. Its errors are passed through.
using DigestAllGather =
    std::function<absl::StatusOr<std::vector<DigestBytes>>(const DigestBytes&)>;

// OK if all ranks called this with the same digest (PlanResult::digest or
// RankPlan::digest). Every rank of the job must call it; each calls
// `all_gather` exactly once, whatever its digest, so that none waits for
// another. A rank that has no plan passes "".
//
// Errors, when it must not go on to any collective of the step:
//  - FAILED_PRECONDITION, on every rank with the same message: lists the ranks
//    whose digest differs from the most common one (ties: from the one that
//    appears at the lowest rank), also as `indices` of the RefusalDetail with
//    reason "DIGEST_MISMATCH";
//  - INVALID_ARGUMENT: all ranks agree on having no digest, or this rank's is
//    not 64 hexadecimal digits while none differs;
//  - what `all_gather` returned; INTERNAL if it returned nothing.
absl::Status AgreeOnDigest(const std::string& digest,
                           const DigestAllGather& all_gather);

}  // namespace skrull

#endif  // SKRULL_CLIENT_CPP_DIGEST_AGREEMENT_H_
