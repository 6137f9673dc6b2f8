// Plans of a job's next steps, made while the current step trains.
//
// Example:
//   absl::StatusOr<std::unique_ptr<PlanStream>> stream =
//       client->StreamPlans({.job = "run7", .generation = generation});
//   for (int64_t ahead = 0; ahead < 4; ++ahead) {
//     absl::Status sent = (*stream)->Send(ahead, LengthsOfStep(ahead));
//   }
//   for (int64_t step = 0; step < num_steps; ++step) {
//     absl::StatusOr<StreamedPlan> next = (*stream)->Next();
//     if (!next.ok()) return next.status();                // no answer yet
//     if (!next->plan.ok()) return next->plan.status();    // batch refused
//     absl::Status sent = (*stream)->Send(step + 4, LengthsOfStep(step + 4));
//     Train(*next->plan);
//   }
#ifndef SKRULL_CLIENT_CPP_PLAN_STREAM_H_
#define SKRULL_CLIENT_CPP_PLAN_STREAM_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/client/plan_types.h"

namespace skrull {

// What all batches of a stream have in common.
struct StreamOptions {
  // A registered job. Required.
  std::string job = {};
  // Refuse when the job has another generation; 0 = any.
  int64_t generation = 0;
  // Name of a policy, e.g. "POLICY_SKRULL"; empty = the job's.
  std::string policy = {};
  // See CallOptions.
  std::string traceparent = {};
};

// The answer to one Send().
struct StreamedPlan {
  int64_t step = 0;
  int32_t attempt = 0;
  // The plan, committed, or why the daemon refused this batch.
  absl::StatusOr<PlanResult> plan;
};

// A pipeline of batches: Send() in, Next() out, in the same order.
//
// Behind it one stream to the daemon is kept open. When it breaks it is opened
// again, for as long as the object lives, and what is unanswered is sent again;
// that is safe because a plan commits once per (job, step, attempt). A batch is
// never lost and never answered twice.
//
// Thread-safe; two threads in Next() share the answers. Owns two threads, and
// its part of the client's connection.
class PlanStream {
 public:
  // Cancels what is unanswered. REQUIRES: no method is running.
  ~PlanStream();

  PlanStream(const PlanStream&) = delete;
  PlanStream& operator=(const PlanStream&) = delete;

  // Queues a batch and returns at once. Errors: RESOURCE_EXHAUSTED when
  // ClientOptions::prefetch_depth batches wait for Next() already; nothing is
  // queued then. FAILED_PRECONDITION after a fork.
  absl::Status Send(int64_t step, const std::vector<int64_t>& lengths,
                    int32_t attempt = 0);

  // Waits for the answer to the oldest batch that Next() has not returned yet,
  // at most `timeout` (> 0; default ClientOptions::timeout). Errors, after
  // which the batch still waits and Next() may be called again:
  //  - FAILED_PRECONDITION: no batch waits, or after a fork;
  //  - UNAVAILABLE: the daemon has not been reached for
  //    ClientOptions::unreachable_after of this call;
  //  - DEADLINE_EXCEEDED: it was reached and did not answer; the stream is then
  //    opened anew.
  absl::StatusOr<StreamedPlan> Next(
      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  // Batches sent that Next() has not returned yet.
  int pending() const;

 private:
  friend class PlannerClient;
  class Impl;
  explicit PlanStream(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace skrull

#endif  // SKRULL_CLIENT_CPP_PLAN_STREAM_H_
