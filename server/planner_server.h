// The daemon: store, backend, gRPC server and metrics page, and their life from
// start to stop.
//
// Example:
//   auto server = PlannerServer::Create(options, Clock::Real());
//   if (!server.ok()) ...
//   absl::Status status = (*server)->Start();
//   ...                                  // wait for a signal
//   (*server)->Stop();
#ifndef SKRULL_SERVER_PLANNER_SERVER_H_
#define SKRULL_SERVER_PLANNER_SERVER_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/auth/security.h"
#include "skrull/server/backend.h"
#include "skrull/server/clock.h"
#include "skrull/server/grpc_log.h"
#include "skrull/server/log.h"
#include "skrull/server/metrics.h"
#include "skrull/server/metrics_endpoint.h"
#include "skrull/server/options.h"

namespace grpc {
class Server;
class ServerCredentials;
}  // namespace grpc

namespace skrull {

class PlannerService;

// Not thread-safe: create, start and stop it on one thread.
class PlannerServer {
 public:
  // Reads the files of certificates and callers. Opens the store, reads its
  // jobs and serves metrics. `clock` must outlive the server. Errors: those of
  // OpenStore; UNAVAILABLE when the metrics address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<PlannerServer>> Create(
      const ServerOptions& options, const Clock* clock);
  // Stops it, if it runs, and waits for its threads.
  ~PlannerServer();

  // Accepts calls from here on. Errors: UNAVAILABLE when the address cannot be
  // listened on. REQUIRES: called once.
  absl::Status Start();

  // Where it listens, with the ports that were picked; "none" without metrics.
  const std::string& address() const { return address_; }
  std::string metrics_address() const;

  // Drains and stops: health says NOT_SERVING, new work is refused and waiting
  // calls are answered with UNAVAILABLE, and calls in progress are finished,
  // for up to options.drain_seconds; what is left then is cut off with
  // UNAVAILABLE or CANCELLED. True if nothing was; else a thread may still
  // plan, and the destructor waits for it. Idempotent.
  bool Stop();

 private:
  PlannerServer(const ServerOptions& options, const Clock* clock);

  absl::Status ServeMetrics();

  const ServerOptions options_;
  const Clock* const clock_;
  const Logger logger_;
  const GrpcLog grpc_log_;
  Metrics metrics_;
  std::atomic<ServingState> state_ = ServingState::kStarting;
  std::unique_ptr<Security> security_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<PlannerService> service_;
  std::unique_ptr<grpc::Server> server_;  // null before Start and after Stop
  std::string address_;
  std::unique_ptr<MetricsEndpoint> metrics_endpoint_;  // last: it uses the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_SERVER_H_
