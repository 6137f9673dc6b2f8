// The pages that a daemon serves over HTTP, for Prometheus, for probes and for
// people:
//
//   /metrics   text format of Prometheus
//   /healthz   200, or 503 once the daemon drains
//   /readyz    200 while it accepts calls, else 503
//   /          what it is doing (status/status_page), if asked for
#ifndef SKRULL_SERVER_METRICS_ENDPOINT_H_
#define SKRULL_SERVER_METRICS_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/server/http_server.h"
#include "skrull/v1/status.pb.h"

namespace prometheus {
class Collectable;
}  // namespace prometheus

namespace skrull {

// Where a daemon is in its life.
enum class ServingState : int8_t { kStarting, kServing, kDraining };

// Serves the pages, on threads of its own, for as long as it lives.
class MetricsEndpoint {
 public:
  // What the pages are made of. The functions are called by several threads at
  // once, and not after the endpoint is gone.
  struct Sources {
    // Names of metrics are distinct over all of them.
    std::vector<std::shared_ptr<const prometheus::Collectable>> metrics;
    std::function<ServingState()> state;
    std::function<v1::ServerStatus()> status;  // null = no status page
  };

  // Listens on `address`, HOST:PORT; port 0 picks a free one. Errors: those of
  // HttpServer::Create.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Create(
      const std::string& address, const Sources& sources);

  // HOST:PORT, with the port that was picked.
  const std::string& address() const { return server_->address(); }

 private:
  explicit MetricsEndpoint(std::unique_ptr<HttpServer> server)
      : server_(std::move(server)) {}

  const std::unique_ptr<HttpServer> server_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_ENDPOINT_H_
