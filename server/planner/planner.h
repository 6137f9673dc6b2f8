// The planner's one entry: (job, lengths, policy) -> plan.
//
// Pure: no clock, log, file, thread or random number; the same input gives the
// same plan on every machine. Safe from any thread.
//
// Example:
//   absl::StatusOr<Job> job = Job::Create(spec);
//   std::vector<int64_t> lengths = {512, 70000, 33};
//   absl::StatusOr<Plan> plan = MakePlan(*job, lengths, {.key = {"run7", 12}});
#ifndef SKRULL_SERVER_PLANNER_PLANNER_H_
#define SKRULL_SERVER_PLANNER_PLANNER_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

// Longest sequence a batch may hold, tokens.
inline constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;
// Most sequences in a batch.
inline constexpr int64_t kMaxSequences = int64_t{1} << 30;

// Most micro-batches times ranks of a plan: bounds the time and memory that a
// job with a tiny bucket on a huge pool can cost. A million sequences under
// POLICY_STATIC_CP fit on 65,536 ranks.
inline constexpr int64_t kMaxSlots = int64_t{1} << 27;

// Most micro-batches (or chunks) times dp_size times pp_size of a plan with
// pp_size > 1: bounds what its pipeline can cost.
inline constexpr int64_t kMaxStagePasses = int64_t{1} << 22;

// Most chunks of a plan of POLICY_CHUNK_FLOW.
inline constexpr int64_t kMaxChunks = int64_t{1} << 21;

struct PlanOptions {
  PlanKey key;                    // copied into the plan
  std::optional<Policy> policy;   // nullopt = the job's
  int64_t calibration_epoch = 0;  // copied into the plan
};

// OK if the batch can be planned for `job` under `policy` (nullopt: the job's).
// Errors:
//  - INVALID_ARGUMENT: empty batch (kEmptyBatch), or a length outside
//    1 .. kMaxTokens (kFieldInvalid, field "lengths", every such index);
//  - FAILED_PRECONDITION: kSequenceTooLong, field "lengths", with every index
//    that no allowed block can hold, its length, the limit, and what would hold
//    it. A batch whose sequences can each be placed alone is never refused.
// POLICY_CHUNK_FLOW has no blocks to hold sequences: its rule is what chunks
// hold, and it plans no uniform jobs (chunk_flow/check_chunks.h).
// O(K).
absl::Status CheckBatch(const Job& job, std::span<const int64_t> lengths,
                        std::optional<Policy> policy = std::nullopt);

// Plans a global batch. Errors: those of CheckBatch; RESOURCE_EXHAUSTED
// (kLimitExceeded) if the plan would exceed kMaxSlots, kMaxStagePasses or
// kMaxChunks; where the job's heuristic.roll_back is false, FAILED_PRECONDITION
// (kSimulatedOom) if the policy then runs out of memory; INVALID_ARGUMENT if
// chunks of a sequence far beyond what blocks hold make the cost overflow.
// O(K log K + ranks * micro-batches) for every policy; memory O(K + ranks).
absl::StatusOr<Plan> MakePlan(const Job& job, std::span<const int64_t> lengths,
                              const PlanOptions& options);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_PLANNER_H_
