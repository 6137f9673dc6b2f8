// The HTTP page that Prometheus reads.
#ifndef SKRULL_SERVER_METRICS_ENDPOINT_H_
#define SKRULL_SERVER_METRICS_ENDPOINT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace prometheus {
class Exposer;
class Registry;
}  // namespace prometheus

namespace skrull {

// Serves /metrics, on threads of its own, for as long as it lives.
class MetricsEndpoint {
 public:
  // Listens on `address`, HOST:PORT; port 0 picks a free one. Errors:
  // UNAVAILABLE, naming the address, when it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Create(
      const std::string& address,
      const std::shared_ptr<prometheus::Registry>& registry);
  ~MetricsEndpoint();

  // HOST:PORT, with the port that was picked.
  const std::string& address() const { return address_; }

 private:
  MetricsEndpoint(std::unique_ptr<prometheus::Exposer> exposer,
                  std::string address);

  std::unique_ptr<prometheus::Exposer> exposer_;
  const std::string address_;
};

// `address` with its port replaced.
std::string WithPort(const std::string& address, int port);

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_ENDPOINT_H_
