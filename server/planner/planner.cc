#include "skrull/planner/planner.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "skrull/planner/baselines/dacp_only.h"
#include "skrull/planner/baselines/static_cp.h"
#include "skrull/planner/chunk_flow/check_chunks.h"
#include "skrull/planner/chunk_flow/chunk_flow.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/error.h"
#include "skrull/planner/gds.h"
#include "skrull/planner/heuristic_schedule.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/optimizer/optimizer.h"

namespace skrull {
namespace {

// The longest sequence any block of `scope` holds.
int64_t LongestInScope(const Job& job, BlockScope scope) {
  int64_t longest = 0;
  for (const int32_t degree : AllowedDegrees(scope, job.pool())) {
    longest = std::max(longest, job.LongestOnDegree(degree));
  }
  return longest;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Changes to the job, each alone enough to hold a sequence of `tokens`.
std::vector<std::string> WhatWouldHold(const Job& job, int64_t tokens) {
  std::vector<std::string> hints;
  const BlockScope scope = job.parallelism().block_scope;
  if (scope != BlockScope::kPool &&
      LongestInScope(job, BlockScope::kPool) >= tokens) {
    hints.push_back("block_scope BLOCK_SCOPE_POOL");
  }
  // The largest block is `groups` CP groups.
  const int64_t groups = scope == BlockScope::kPool ? job.pool().dp_size : 1;
  // A rank of any block large enough holds at least this many rows.
  int64_t rows = job.bucket_size();
  if (job.models_gather()) {
    const double left = job.byte_budget() - static_cast<double>(tokens) *
                                                job.gather_bytes_per_token();
    rows = left < job.bytes_per_token()
               ? 0
               : std::min(rows,
                          static_cast<int64_t>(left / job.bytes_per_token()));
  }
  if (rows > 0) {
    hints.push_back(
        absl::StrCat("cp_size ", CeilDiv(CeilDiv(tokens, rows), groups)));
  }
  const int64_t bucket = CeilDiv(tokens, groups * job.pool().cp_size);
  if (bucket <= rows || !job.models_gather()) {
    hints.push_back(absl::StrCat("bucket_size_tokens ", bucket));
  } else {
    hints.push_back("more device_bytes or fewer gather_bytes_per_token");
  }
  return hints;
}

// FAILED_PRECONDITION naming the sequences of `indices`, at least one.
absl::Status TooLong(const Job& job, std::span<const int64_t> lengths,
                     const std::vector<int64_t>& indices) {
  ErrorDetail detail{.reason = ErrorReason::kSequenceTooLong,
                     .field = "lengths",
                     .limit = job.longest_sequence()};
  std::vector<std::string> named;
  int64_t longest = 0;
  for (const int64_t index : indices) {
    const int64_t tokens = lengths[static_cast<size_t>(index)];
    longest = std::max(longest, tokens);
    if (std::ssize(named) == ErrorDetail::kMaxIndices) continue;
    detail.indices.push_back(index);
    named.push_back(absl::StrCat("index ", index, ": ", tokens, " > ",
                                 job.longest_sequence()));
  }
  const auto unnamed = indices.size() - named.size();
  if (unnamed > 0) named.push_back(absl::StrCat("and ", unnamed, " more"));
  return MakeError(
      detail,
      absl::StrCat("lengths: ", indices.size(),
                   indices.size() == 1 ? " sequence is" : " sequences are",
                   " longer than the ", job.longest_sequence(),
                   " tokens that the largest block holds: ",
                   absl::StrJoin(named, ", "), "; ", longest, " fits with ",
                   absl::StrJoin(WhatWouldHold(job, longest), ", or ")));
}

// What the paper's heuristic of that name makes of the batch; nullopt if that
// needs more than `max_micro_batches`.
std::optional<HeuristicSchedule> RunHeuristic(const Job& job,
                                              std::span<const int64_t> lengths,
                                              Policy policy,
                                              int64_t max_micro_batches) {
  const CostModel cost(job);
  DacpOptions options{.roll_back = job.heuristic().roll_back};
  if (policy == Policy::kDacpOnly) {
    return ScheduleDacpOnly(job, cost, lengths, max_micro_batches, options);
  }
  if (policy == Policy::kRoundRobin) options.local_rule = LocalRule::kEmptiest;
  return RunGds(job, cost, lengths, max_micro_batches, options);
}

// Most micro-batches of a plan.
int64_t MaxMicroBatches(const Job& job) {
  const int64_t by_ranks = kMaxSlots / job.pool().ranks();
  const int64_t stages = job.parallelism().pp_size;
  if (stages == 1) return by_ranks;
  return std::min(by_ranks, kMaxStagePasses / (job.pool().dp_size * stages));
}

absl::Status TooManyMicroBatches(const Job& job, Policy policy) {
  const int64_t limit = MaxMicroBatches(job);
  const int32_t stages = job.parallelism().pp_size;
  return MakeError(
      {.reason = ErrorReason::kLimitExceeded,
       .field = "lengths",
       .limit = limit},
      absl::StrCat("lengths: ", PolicyName(policy), " needs more than ", limit,
                   " micro-batches on ", job.pool().ranks(), " ranks",
                   stages > 1 ? absl::StrCat(" of ", stages, " stages") : "",
                   ", the most that are planned; a smaller batch or a larger "
                   "bucket_size_tokens fits"));
}

// `plan` with the chunks of the batch.
absl::StatusOr<Plan> MakeChunkPlan(const Job& job,
                                   std::span<const int64_t> lengths,
                                   Plan plan) {
  const int64_t stages = job.parallelism().pp_size;
  const int64_t max_chunks =
      stages == 1 ? kMaxChunks : std::min(kMaxChunks, kMaxStagePasses / stages);
  plan.chunk_plan = RunChunkFlow(job, lengths, max_chunks);
  if (!plan.chunk_plan) return TooManyChunks(job, max_chunks);
  FinishPlan(job, lengths, &plan);
  // The job's costs are known to be finite for what its blocks hold; a sequence
  // may be longer.
  if (!std::isfinite(plan.summary.predicted_seconds) ||
      !std::isfinite(plan.summary.pipeline_seconds)) {
    return FieldError("lengths", "make the cost of the step overflow");
  }
  return plan;
}

}  // namespace

absl::Status CheckBatch(const Job& job, std::span<const int64_t> lengths,
                        std::optional<Policy> policy) {
  const bool in_chunks = policy.value_or(job.policy()) == Policy::kChunkFlow;
  if (lengths.empty()) {
    return MakeError({.reason = ErrorReason::kEmptyBatch, .field = "lengths"},
                     "lengths: the batch is empty");
  }
  if (std::ssize(lengths) > kMaxSequences) {
    return FieldError(
        "lengths",
        absl::StrCat(lengths.size(), " sequences exceed ", kMaxSequences));
  }
  std::vector<int64_t> invalid;
  std::vector<int64_t> too_long;
  for (int64_t k = 0; k < std::ssize(lengths); ++k) {
    const int64_t tokens = lengths[static_cast<size_t>(k)];
    if (tokens < 1 || tokens > kMaxTokens) {
      invalid.push_back(k);
    } else if (!in_chunks && tokens > job.longest_sequence()) {
      too_long.push_back(k);
    }
  }
  if (!invalid.empty()) {
    ErrorDetail detail{.reason = ErrorReason::kFieldInvalid,
                       .field = "lengths"};
    std::vector<std::string> named;
    for (const int64_t index : invalid) {
      if (std::ssize(named) == ErrorDetail::kMaxIndices) {
        named.push_back(
            absl::StrCat("and ", invalid.size() - named.size(), " more"));
        break;
      }
      detail.indices.push_back(index);
      named.push_back(absl::StrCat("index ", index, ": ",
                                   lengths[static_cast<size_t>(index)]));
    }
    return MakeError(detail, absl::StrCat("lengths: not in [1, ", kMaxTokens,
                                          "]: ", absl::StrJoin(named, ", ")));
  }
  if (!too_long.empty()) return TooLong(job, lengths, too_long);
  return in_chunks ? CheckChunks(job, lengths) : absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const Job& job, std::span<const int64_t> lengths,
                              const PlanOptions& options) {
  if (absl::Status status = CheckBatch(job, lengths, options.policy);
      !status.ok()) {
    return status;
  }
  Plan plan{.key = options.key,
            .policy = options.policy.value_or(job.policy()),
            .calibration_epoch = options.calibration_epoch,
            .micro_batches = {},
            .blocks = {},
            .summary = {},
            .chunk_plan = {}};
  if (plan.policy == Policy::kChunkFlow) {
    return MakeChunkPlan(job, lengths, std::move(plan));
  }
  const int64_t max_micro_batches = MaxMicroBatches(job);
  if (max_micro_batches < 1) return TooManyMicroBatches(job, plan.policy);
  switch (plan.policy) {
    case Policy::kSkrull:
    case Policy::kDacpOnly:
    case Policy::kRoundRobin: {
      std::optional<HeuristicSchedule> result =
          RunHeuristic(job, lengths, plan.policy, max_micro_batches);
      if (!result) return TooManyMicroBatches(job, plan.policy);
      if (result->overflow) {
        return SimulatedOutOfMemory(job, plan.policy, *result->overflow);
      }
      plan.micro_batches = std::move(result->micro_batches);
      plan.summary.roll_back_count = result->roll_back_count;
      break;
    }
    case Policy::kStaticCp:
    case Policy::kSorted:
      if (CeilDiv(std::ssize(lengths), job.pool().dp_size) >
          max_micro_batches) {
        return TooManyMicroBatches(job, plan.policy);
      }
      plan.micro_batches = plan.policy == Policy::kSorted
                               ? ScheduleSortedStaticCp(job, lengths)
                               : ScheduleStaticCp(job, lengths);
      break;
    case Policy::kPackedStaticCp:
      plan.micro_batches = SchedulePackedStaticCp(job, lengths);
      break;
    case Policy::kOptimized: {
      OptimizerResult result =
          RunOptimizer(job, CostModel(job), lengths, max_micro_batches);
      plan.micro_batches = std::move(result.micro_batches);
      plan.summary.roll_back_count = result.roll_back_count;
      break;
    }
    case Policy::kChunkFlow:  // returned above
      break;
  }
  if (plan.micro_batches.empty() ||
      std::ssize(plan.micro_batches) > max_micro_batches) {
    return TooManyMicroBatches(job, plan.policy);
  }
  FinishPlan(job, lengths, &plan);
  return plan;
}

}  // namespace skrull
