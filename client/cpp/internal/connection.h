// The connection to a daemon or its replicas, and how calls over it are
// retried. Not for users of the client.
#ifndef SKRULL_CLIENT_CPP_INTERNAL_CONNECTION_H_
#define SKRULL_CLIENT_CPP_INTERNAL_CONNECTION_H_

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/client/internal/credentials.h"
#include "skrull/client/internal/replica_set.h"
#include "skrull/client/planner_client.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::client_internal {

using SteadyTime = std::chrono::steady_clock::time_point;

// Longest time that any option or deadline may name.
inline constexpr std::chrono::hours kMaxTimeout{24};

// Waits between attempts: doubling from the first to the longest, each times a
// random factor in [0.5, 1), so that the ranks of a job do not return together.
// Not thread-safe.
class Backoff {
 public:
  explicit Backoff(const ClientOptions& options);

  // The next wait.
  std::chrono::milliseconds Next();
  // Starts over, after a success.
  void Reset();

 private:
  const std::chrono::milliseconds initial_;
  const std::chrono::milliseconds max_;
  std::chrono::milliseconds base_;
  std::minstd_rand random_;
};

// What a failed call comes to: code, message and detail. Errors without detail
// come from the connection and not from the daemon; their message gets `what`
// put before it.
absl::Status StatusFromGrpc(const grpc::Status& status,
                            const std::string& what);

// What ties a call to the daemon's log and to the caller's trace.
struct CallIdentity {
  std::string request_id;
  std::string traceparent;  // empty = none

  // Sends it along with a call.
  void AddTo(grpc::ClientContext* context) const;
  // The error of such a call with the request id in its message; OK stays OK.
  absl::Status Name(const absl::Status& status) const;
};

// A new id, with the caller's trace context. Errors: INVALID_ARGUMENT,
// traceparent.
absl::StatusOr<CallIdentity> NewIdentity(const std::string& traceparent);

// How long to wait, at least, before the call that failed so is tried again;
// nullopt = do not.
std::optional<std::chrono::milliseconds> RetryDelay(const absl::Status& status);

// Thread-safe; shared by a client and its streams.
class Connection {
 public:
  // Errors: INVALID_ARGUMENT, FAILED_PRECONDITION after a fork.
  static absl::StatusOr<std::shared_ptr<Connection>> Create(
      const ClientOptions& options);

  const ClientOptions& options() const { return options_; }
  // Of one of the replicas, in turn: take it anew for each attempt.
  v1::PlannerService::Stub& stub() { return replicas_.Next(); }
  ReplicaSet& replicas() { return replicas_; }
  // Likewise.
  const std::shared_ptr<grpc::Channel>& channel() {
    return replicas_.NextChannel();
  }

  // FAILED_PRECONDITION in a child of the process that made the connection.
  // Takes no lock, so that it works in such a child.
  absl::Status CheckProcess() const;

  // When a call made now ends. Errors: INVALID_ARGUMENT.
  absl::StatusOr<SteadyTime> Deadline(
      std::optional<std::chrono::milliseconds> timeout) const;

  // Runs `attempt` until it succeeds, fails for good, or `deadline` or
  // ClientOptions::unreachable_after ends it. `name` is for messages. Errors:
  // those of NewIdentity; that of the last attempt.
  absl::Status Call(
      const std::string& name, SteadyTime deadline,
      const std::string& traceparent,
      const std::function<grpc::Status(grpc::ClientContext*)>& attempt);

  // Adds the client's token, if it has one, to a call.
  void AddToken(grpc::ClientContext* context);

  // See ReplicaSet.
  bool IsConnected() { return replicas_.IsConnected(); }
  bool WaitConnected(SteadyTime until) {
    return replicas_.WaitConnected(until);
  }

 private:
  Connection(const ClientOptions& options, pid_t owner,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials,
             std::unique_ptr<TokenSource> tokens);

  const ClientOptions options_;
  const pid_t owner_;
  const std::unique_ptr<TokenSource> tokens_;
  ReplicaSet replicas_;
};

}  // namespace skrull::client_internal

#endif  // SKRULL_CLIENT_CPP_INTERNAL_CONNECTION_H_
