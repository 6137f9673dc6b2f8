// A job's plans from the daemon or, while it cannot be reached, from the
// planner in process.
//
// Example, on every rank of a job:
//   absl::StatusOr<JobInfo> job = client->CreateJob("run7", spec_text);
//   if (!job.ok()) return job.status();
//   absl::StatusOr<std::unique_ptr<FallbackPlanner>> planner =
//       FallbackPlanner::Create(client.get(), *job);
//   if (!planner.ok()) return planner.status();
//   for (int64_t step = 0; step < num_steps; ++step) {
//     absl::StatusOr<FallbackPlan> got = (*planner)->PlanBatch(
//         {.step = step, .lengths = LengthsOfStep(step)});
//     // Whoever made the plan: no collective of the step comes before this.
//     absl::Status agreed =
//         AgreeOnDigest(got.ok() ? got->plan.digest : "", my_all_gather);
//     if (!agreed.ok()) return agreed;  // on all ranks alike
//     absl::StatusOr<RankPlan> mine = RankPlanOf(got->plan, rank);
//     ...
//   }
//
// Why ranks never mix two plans: a plan's bytes depend on the job, the epoch of
// its calibration, the lengths, the policy and (job, step, attempt) alone. Of
// ranks that ask alike, those that plan in process hold what the daemon answers
// the others, if all know the epoch that is in force; and a plan holds its
// epoch, so that plans of two epochs have two digests. Then AgreeOnDigest, or
// the executor's Prepare, fails on every rank before anything is exchanged, and
// all stop. A rank must neither skip that comparison nor take its share from
// GetRankPlan, which waits for a plan that the daemon may never get to commit.
//
// The epoch is that of the newest answer of the daemon, whose numbers are
// fetched as soon as an answer shows it, by one call an epoch. A planner that
// has seen an epoch and not its numbers does not plan in process.
//
// When the daemon is back: it is found by itself, see FallbackOptions. What was
// planned in process is committed nowhere. A step that is asked for again, by
// this or another rank, is planned anew, to the same bytes at the same epoch;
// at a later one the digests differ, and the ranks stop. A daemon that came
// back without the job, from a store in memory, refuses with NOT_FOUND: that is
// an answer, and no reason to plan in process.
#ifndef SKRULL_CLIENT_CPP_FALLBACK_PLANNER_H_
#define SKRULL_CLIENT_CPP_FALLBACK_PLANNER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/client/plan_types.h"
#include "skrull/client/planner_client.h"

namespace skrull {

struct FallbackOptions {
  // A daemon that was not reached is not asked for first_pause, and after each
  // further time that it was not for twice as long, up to longest_pause: steps
  // meanwhile are planned in process at once. Range: 1 ms .. 24 h,
  // first <= longest.
  std::chrono::milliseconds first_pause{2'000};
  std::chrono::milliseconds longest_pause{60'000};
  // Longest question whether the daemon is back, and for the numbers of a new
  // epoch. Range: 1 ms .. 24 h. By default an absent daemon costs a job one
  // second in sixty in the end.
  std::chrono::milliseconds probe_timeout{1'000};
};

// One global batch of the planner's job.
struct FallbackBatch {
  int64_t step = 0;     // >= 0
  int32_t attempt = 0;  // 0 .. 1000
  // Lengths of the batch's sequences in tokens, each 1 .. 2^31 - 1.
  std::vector<int64_t> lengths = {};
  // Name of a policy, e.g. "POLICY_SKRULL"; empty = the job's.
  std::string policy = {};
};

struct FallbackPlan {
  PlanResult plan;
  // Planned here; then `daemon` is how the daemon failed last, for the log.
  bool in_process = false;
  absl::Status daemon = {};
};

// Thread-safe.
class FallbackPlanner {
 public:
  // `job` is what CreateJob or GetJob returned, now or, if the daemon is away
  // already, earlier in the run. Does not call the daemon. `client` must
  // outlive the planner; its unreachable_after is how long the first call waits
  // for a daemon that has gone. Errors: INVALID_ARGUMENT naming the option out
  // of range, or for a calibrated_spec_text that is no job.
  static absl::StatusOr<std::unique_ptr<FallbackPlanner>> Create(
      PlannerClient* client, const JobInfo& job,
      const FallbackOptions& options = {});

  ~FallbackPlanner();

  FallbackPlanner(const FallbackPlanner&) = delete;
  FallbackPlanner& operator=(const FallbackPlanner&) = delete;

  // PlannerClient::PlanBatch of the job at its generation. Plans in process
  // where that fails with UNAVAILABLE, or with DEADLINE_EXCEEDED and the daemon
  // does not answer a probe either. Takes at most the call's time, two probes
  // and the planning. Errors: every other one of the daemon's,
  // as it is; those of LocalPlanner::PlanBatch; the daemon's UNAVAILABLE or
  // DEADLINE_EXCEEDED, with the reason, where the epoch in force is not known.
  absl::StatusOr<FallbackPlan> PlanBatch(const FallbackBatch& batch,
                                         const CallOptions& call = {});

  // PlannerClient::ReportStep of the job at its generation, whose answer also
  // shows the epoch. Nothing replaces it while the daemon is away: its error is
  // the caller's to pass over, but for a step that ran out of memory, which has
  // no next attempt without the daemon.
  absl::StatusOr<ReportAnswer> ReportStep(const StepReport& report,
                                          const CallOptions& call = {});

  // The epoch that plans made in process have.
  int64_t calibration_epoch() const;

 private:
  class Impl;
  explicit FallbackPlanner(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace skrull

#endif  // SKRULL_CLIENT_CPP_FALLBACK_PLANNER_H_
