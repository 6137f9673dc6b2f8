// Client of skrulld, the planning daemon, for C++ trainers.
//
// One object serves a whole process: every method is thread-safe. Messages of
// the wire stay inside; what goes in and comes out is plain data.
//
// Example, on every rank of a job:
//   absl::StatusOr<std::unique_ptr<PlannerClient>> client =
//       PlannerClient::Create({.address = "127.0.0.1:7419"});
//   if (!client.ok()) return client.status();
//   absl::StatusOr<JobInfo> job = (*client)->CreateJob("run7", spec_text);
//   if (!job.ok()) return job.status();
//   absl::StatusOr<PlanResult> plan = (*client)->PlanBatch(
//       {.job = "run7", .generation = job->generation, .step = 12,
//        .lengths = {512, 70000, 33}});
//   // A rank that got no plan passes "", so that no other rank waits for it.
//   absl::Status agreed =
//       AgreeOnDigest(plan.ok() ? plan->digest : "", my_all_gather);
//   if (!agreed.ok()) return agreed;  // on all ranks alike
//   absl::StatusOr<RankPlan> mine = RankPlanOf(*plan, rank);
//
// Deadlines: every call has one, ClientOptions::timeout unless CallOptions
// gives another. A call returns DEADLINE_EXCEEDED when it passes.
//
// Retries: within its deadline a call retries UNAVAILABLE, and
// RESOURCE_EXHAUSTED that names a time to try again, with exponential, jittered
// back-off. Nothing else is retried. Repeating a call is safe: plans commit
// once, and registering the same job twice is no change. A daemon that restarts
// is found again by the next attempt; one that stays away fails a call with
// UNAVAILABLE after ClientOptions::unreachable_after.
//
// Errors: canonical codes, with the daemon's message and, at its end,
// "(request ID)": the id that the daemon's log has for the call. Attempts of
// one call have one id, batches of a stream that of the stream.
// GetRefusalDetail (skrull/client/refusal.h) returns the typed part: reason,
// field, indices, limit. INVALID_ARGUMENT: malformed. FAILED_PRECONDITION: the
// batch can never fit the job, or its key is committed for another request, or
// the job has another generation. NOT_FOUND, ALREADY_EXISTS: about the job.
// RESOURCE_EXHAUSTED: over a limit of the daemon. UNAUTHENTICATED: no token or
// certificate that it knows. PERMISSION_DENIED: not this caller's to do.
//
// Fork: gRPC's threads do not survive fork(). A client, or a stream, used in a
// child of the process that made it fails every call at once with
// FAILED_PRECONDITION, as does Create() in a child of a process that already
// made a client. Give DataLoader workers the "spawn" start method, or talk to
// the daemon from the parent only. Destroying an inherited object is safe.
//
// Replicas: daemons that share one store answer alike. Give all their
// addresses, and calls go to each in turn; one that is gone or cut off costs an
// attempt at another. The ranks of a Rendezvous have to meet at one of them:
// give all ranks the same addresses, in any order, and not a name that stands
// for several.
//
// Connections ignore http_proxy and the like.
#ifndef SKRULL_CLIENT_CPP_PLANNER_CLIENT_H_
#define SKRULL_CLIENT_CPP_PLANNER_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/client/daemon_status.h"
#include "skrull/client/digest_agreement.h"
#include "skrull/client/plan_stream.h"
#include "skrull/client/plan_types.h"
#include "skrull/client/refusal.h"
#include "skrull/planner/rank_plan.h"

namespace skrull {

struct ClientOptions {
  // "host:port", "dns:///name:port", "ipv6:[::1]:port" or "unix:/path"; several
  // with commas between them are replicas. Required.
  std::string address = {};

  // Parameters that affect behaviour:

  // Deadline of a call that names none. Range: 1 ms .. 24 h.
  std::chrono::milliseconds timeout{30'000};
  // A call gives up with UNAVAILABLE when the daemon has not been reached for
  // this long. Range: 0 .. 24 h; 0 = after the first attempt. More rides out
  // longer restarts; less reports a wrong address sooner.
  std::chrono::milliseconds unreachable_after{10'000};
  // Most batches a PlanStream holds that Next() has not returned yet.
  // Range: 1 .. 1024. More hides longer stalls of the daemon, for one batch of
  // memory each.
  int prefetch_depth = 8;

  // Parameters that affect the connection:

  // First and longest wait between two attempts. Range: 1 ms .. 5 s,
  // first <= longest.
  std::chrono::milliseconds initial_backoff{50};
  std::chrono::milliseconds max_backoff{1'000};
  // Ping a silent connection that has calls in flight after this long, to
  // notice a machine that vanished. Range: 20 s .. 24 h; skrulld drops
  // connections that ping much more often.
  std::chrono::milliseconds keepalive{30'000};
  // Ping also while no call is in flight. Only for daemons that were told to
  // permit it; others drop the connection.
  bool keepalive_without_calls = false;

  // Parameters of security (docs/security.md):

  // Authorities, PEM, of which the daemon's certificate must be; turns TLS on.
  // Empty = plaintext. The TLS files are read when the client is made.
  std::string tls_ca_file = {};
  // Certificate and key, PEM, that this client shows. Both or neither.
  std::string tls_cert_file = {};
  std::string tls_key_file = {};
  // Name that the daemon's certificate must have, where it is not the host of
  // the address.
  std::string tls_server_name = {};
  // Shown with every call. At most one of the two; a file is read again when
  // it changes. Neither is ever logged, nor part of an error.
  std::string token = {};
  std::string token_file = {};
  // Show the token without TLS to a daemon beyond this machine, too: whoever
  // listens in on the network then has it.
  bool allow_plaintext_token = false;
};

struct CallOptions {
  // Deadline of this call, from now. Range: > 0. Default:
  // ClientOptions::timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
  // The caller's trace context, a W3C `traceparent`, which the daemon's log
  // then names. At most 512 printable characters of ASCII; empty = none.
  std::string traceparent = {};
};

// Thread-safe. Owns its connection, which it opens at the first call.
class PlannerClient {
 public:
  // Does not connect. Errors: INVALID_ARGUMENT naming the option out of range,
  // the one that another needs, or whose file cannot be read;
  // FAILED_PRECONDITION after a fork, see above.
  static absl::StatusOr<std::unique_ptr<PlannerClient>> Create(
      const ClientOptions& options);

  // REQUIRES: no call is running. Streams may outlive the client.
  ~PlannerClient();

  PlannerClient(const PlannerClient&) = delete;
  PlannerClient& operator=(const PlannerClient&) = delete;

  // OK if the daemon takes calls. Asks its health service, once and without
  // retries, which needs no identity. Errors: UNAVAILABLE when the daemon
  // cannot be reached, or drains; DEADLINE_EXCEEDED; NOT_FOUND or UNIMPLEMENTED
  // when what listens there is no skrulld.
  absl::Status CheckHealth(const CallOptions& call = {});

  // Registers a job from the text form of skrull.v1.JobSpec, or joins the one
  // of that name when its spec is the same. `generation` 0 joins or creates;
  // higher than the job's replaces it and forgets its plans. Errors:
  // INVALID_ARGUMENT with line and column for text that does not parse, or
  // naming the field; ALREADY_EXISTS for another spec; FAILED_PRECONDITION for
  // a generation below the job's.
  absl::StatusOr<JobInfo> CreateJob(const std::string& name,
                                    const std::string& job_spec_text,
                                    int64_t generation = 0,
                                    const CallOptions& call = {});

  // Errors: NOT_FOUND.
  absl::StatusOr<JobInfo> GetJob(const std::string& name,
                                 const CallOptions& call = {});

  // All jobs, by name; fetched page by page within one deadline.
  absl::StatusOr<std::vector<JobInfo>> ListJobs(const CallOptions& call = {});

  // Forgets the job, its plans and its reports. `generation` 0 = any. Errors:
  // NOT_FOUND; FAILED_PRECONDITION when the job has another generation. OK,
  // too, when an attempt whose answer was lost had already deleted it.
  absl::Status DeleteJob(const std::string& name, int64_t generation = 0,
                         const CallOptions& call = {});

  // Plans one global batch and, for a registered job, commits the plan under
  // (job, step, attempt): every later caller gets the same bytes.
  absl::StatusOr<PlanResult> PlanBatch(const PlanRequest& request,
                                       const CallOptions& call = {});

  // One rank's share of a plan that any rank had committed; waits for the
  // commit. Errors: DEADLINE_EXCEEDED when none came in time.
  absl::StatusOr<RankPlan> GetRankPlan(const RankPlanRequest& request,
                                       const CallOptions& call = {});

  // Waits for all ranks of a job and returns what rank 0 offered, such as an
  // NCCL unique id, on every rank. All or none: when the first rank's deadline
  // passes, all get DEADLINE_EXCEEDED, which names the ranks that did not come.
  // A daemon that restarts meanwhile forgets who waited; the calls come again
  // by themselves. An answer that was lost on its way is the one exception:
  // that rank waits on while the others have theirs, so what they set up with
  // it needs a deadline too. Errors: FAILED_PRECONDITION for another
  // generation, another size than the other ranks', or a second, different
  // offer.
  absl::StatusOr<std::string> Rendezvous(const RendezvousRequest& request,
                                         const CallOptions& call = {});

  // Tells the daemon how a step went on one rank. `generation` 0 = any. On
  // StepOutcome::kOutOfMemory it waits for the next attempt to be planned, with
  // smaller micro-batches; every rank's later report of the older attempt is
  // answered with the same. docs/calibration.md shows the loop.
  absl::StatusOr<ReportAnswer> ReportStep(const std::string& job,
                                          int64_t generation,
                                          const StepReport& report,
                                          const CallOptions& call = {});

  // The job's calibration epochs, oldest first, the latest 256 of them.
  // `generation` 0 = any. Errors: NOT_FOUND; UNIMPLEMENTED by a daemon that is
  // too old to have any.
  absl::StatusOr<std::vector<CalibrationInfo>> ListCalibrations(
      const std::string& job, int64_t generation = 0,
      const CallOptions& call = {});

  // Opens a stream that plans the next steps ahead, see plan_stream.h. Does not
  // wait for the daemon. Errors: INVALID_ARGUMENT for an unknown policy name or
  // no job.
  absl::StatusOr<std::unique_ptr<PlanStream>> StreamPlans(
      const StreamOptions& options);

  // What the daemon is doing, with at most so many of the jobs and plans that
  // came last (1 .. 1000 each). Errors: UNIMPLEMENTED by a daemon that is too
  // old to say.
  absl::StatusOr<DaemonStatus> GetStatus(int32_t max_jobs, int32_t max_plans,
                                         const CallOptions& call = {});

  // One answer of the daemon, whole, for people and reports of problems: the
  // JSON form of its message, indented, with the names of proto/skrull/v1.
  // Errors: the daemon's; NOT_FOUND without such a job; INTERNAL for an answer
  // that has no JSON form.
  absl::StatusOr<std::string> Inspect(const Inspection& inspection,
                                      const CallOptions& call = {});

 private:
  class Impl;
  explicit PlannerClient(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace skrull

#endif  // SKRULL_CLIENT_CPP_PLANNER_CLIENT_H_
