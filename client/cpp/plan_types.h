// Requests and results of the planner's clients, as plain data. Fields have the
// meaning, unit and range of those of the same name in proto/skrull/v1.
#ifndef SKRULL_CLIENT_CPP_PLAN_TYPES_H_
#define SKRULL_CLIENT_CPP_PLAN_TYPES_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/planner/rank_plan.h"

namespace skrull {

// One calibration epoch of a job: skrull.v1.Calibration. What is nullopt is the
// spec's.
struct CalibrationInfo {
  int64_t epoch = 0;
  // Why it began, e.g. "CALIBRATION_CAUSE_REFIT".
  std::string cause = {};
  // The step and attempt whose reports led to it.
  int64_t step = 0;
  int32_t attempt = 0;
  std::optional<double> seconds_per_flop = {};
  std::optional<double> seconds_per_micro_batch = {};
  std::optional<double> link_scale = {};
  std::optional<double> bytes_per_token = {};
  std::optional<int64_t> static_bytes = {};
  std::optional<int64_t> bucket_size_tokens = {};
  std::optional<int64_t> out_of_memory_tokens = {};
  // Mean of |predicted / measured - 1| with the numbers before it, and with its
  // own.
  std::optional<double> error_before = {};
  std::optional<double> error_after = {};
  std::string text = {};
};

// A registered job.
struct JobInfo {
  std::string name = {};
  // Text form of skrull.v1.JobSpec, as CreateJob reads it.
  std::string job_spec_text = {};
  int64_t generation = 0;  // from 1
  int64_t calibration_epoch = 0;
  std::chrono::system_clock::time_point create_time = {};
  std::string owner = {};  // empty where callers are not told apart
  // The epoch in force, and the spec with its numbers: with both, a
  // LocalPlanner gives the daemon's plans.
  CalibrationInfo calibration = {};
  std::string calibrated_spec_text = {};
};

// One global batch to plan.
struct PlanRequest {
  // A registered job. Exactly one of `job` and `job_spec_text`.
  std::string job = {};
  // Plan for this spec, in text form: nothing is committed.
  std::string job_spec_text = {};
  // Refuse when the job has another generation; 0 = any.
  int64_t generation = 0;
  int64_t step = 0;     // >= 0
  int32_t attempt = 0;  // 0 .. 1000
  // Lengths of the batch's sequences in tokens, each 1 .. 2^31 - 1.
  std::vector<int64_t> lengths = {};
  // Name of a policy, e.g. "POLICY_SKRULL"; empty = the job's.
  std::string policy = {};
  // Plan and check, commit nothing.
  bool validate_only = false;
};

// What a plan costs: skrull.v1.PlanSummary.
struct PlanFigures {
  double predicted_seconds = 0;
  double lower_bound_seconds = 0;
  int64_t roll_back_count = 0;
  int64_t sharded_sequence_count = 0;
  int64_t sharded_token_count = 0;
  int64_t micro_batch_count = 0;
  int64_t max_rank_tokens = 0;
  double dp_imbalance = 0;
  double rank_imbalance = 0;
  double pipeline_seconds = 0;
  double pipeline_bubble = 0;

  friend bool operator==(const PlanFigures&, const PlanFigures&) = default;
};

// A plan of one global batch.
struct PlanResult {
  std::string job = {};  // empty when planned from a spec alone
  int64_t step = 0;
  int32_t attempt = 0;
  // SHA-256 of the plan, lower-case hexadecimal.
  std::string digest = {};
  // Name of the policy that made it, e.g. "POLICY_SKRULL".
  std::string policy = {};
  int64_t calibration_epoch = 0;
  PlanFigures figures = {};
  // The whole plan: deterministic serialization of skrull.v1.Plan. Equal for
  // every caller, replica and in-process planner.
  std::string plan_bytes = {};
  // Time it took to plan; nullopt when the plan was committed earlier.
  std::optional<double> planning_seconds = {};
  // The plan stands committed under (job, step, attempt).
  bool committed = false;
};

// The share of `rank`, without asking the daemon; equal to what GetRankPlan
// returns. A rank outside the pool has no segments. Errors: INVALID_ARGUMENT
// for a negative rank, or plan_bytes that hold no plan. O(placements).
absl::StatusOr<RankPlan> RankPlanOf(const PlanResult& plan, int32_t rank);

// Which share GetRankPlan returns.
struct RankPlanRequest {
  std::string job = {};
  // Refuse when the job has another generation; 0 = any.
  int64_t generation = 0;
  int64_t step = 0;     // >= 0
  int32_t attempt = 0;  // 0 .. 1000
  int32_t rank = 0;     // 0 .. dp_size * cp_size - 1
};

// One rank's part in a meeting of the ranks of a job.
struct RendezvousRequest {
  std::string job = {};
  // Refuse when the job has another generation; 0 = any.
  int64_t generation = 0;
  // What the ranks meet for: 1 .. 128 characters, as of a job's name. It may be
  // used again once they have met or failed to.
  std::string key = {};
  int32_t size = 1;  // ranks that meet, 1 .. dp_size * cp_size
  int32_t rank = 0;  // 0 .. size - 1
  // Rank 0: 1 .. 4096 bytes. Other ranks: empty.
  std::string offer = {};
};

// How a step ended on a rank.
enum class StepOutcome : int8_t {
  kOk,
  kOutOfMemory,  // of device memory
  kFailed,       // any other failure
};

// What one rank observed when it ran a step. Seconds are >= 0 and finite;
// nullopt = not measured.
struct StepReport {
  int64_t step = 0;
  int32_t attempt = 0;
  int32_t rank = 0;
  StepOutcome outcome = StepOutcome::kOk;
  std::optional<double> step_seconds = {};       // wall time of the step
  std::optional<double> attention_seconds = {};  // in attention
  std::optional<double> exchange_seconds = {};   // in K/V exchange nothing hid
  int64_t peak_bytes = 0;  // highest device memory in use; 0 = not measured
};

// What a rank must do after its report.
struct ReportAnswer {
  // The latest committed attempt of the step; 0 for a step without a plan.
  // Above the report's own: a rank ran out of memory, and every rank must run
  // this attempt instead.
  int32_t attempt = 0;
  int64_t calibration_epoch = 0;  // of the job, now
  // Not OK: a rank ran out of memory and there is no further attempt; says why.
  // GetRefusalDetail tells the typed part.
  absl::Status refusal = {};
};

}  // namespace skrull

#endif  // SKRULL_CLIENT_CPP_PLAN_TYPES_H_
