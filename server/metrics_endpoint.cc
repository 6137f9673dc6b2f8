#include "skrull/server/metrics_endpoint.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "prometheus/exposer.h"
#include "prometheus/registry.h"

namespace skrull {
namespace {

// Connects to `address` and hangs up.
void Knock(const std::string& address) {
  const size_t colon = address.rfind(':');
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.substr(0, colon).c_str(),
                    address.substr(colon + 1).c_str(), &hints, &found) != 0) {
    return;
  }
  const int fd =
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    [[maybe_unused]] const int ignored =
        ::connect(fd, found->ai_addr, found->ai_addrlen);
    ::close(fd);
  }
  ::freeaddrinfo(found);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Create(
    const std::string& address,
    const std::shared_ptr<prometheus::Registry>& registry) {
  constexpr size_t kThreads = 2;
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address, kThreads);
    exposer->RegisterCollectable(registry);
    const std::vector<int> ports = exposer->GetListeningPorts();
    const std::string bound =
        ports.empty() ? address : WithPort(address, ports.front());
    return std::unique_ptr<MetricsEndpoint>(
        new MetricsEndpoint(std::move(exposer), bound));
  } catch (const std::exception& exception) {
    return absl::UnavailableError("cannot serve metrics on " + address +
                                  " (is it in use?): " + exception.what());
  }
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<prometheus::Exposer> exposer,
                                 std::string address)
    : exposer_(std::move(exposer)), address_(std::move(address)) {}

MetricsEndpoint::~MetricsEndpoint() {
  // The exposer's listener looks up only every 2 s, or when someone connects.
  std::atomic<bool> stopped = false;
  std::thread stopper([&] {
    exposer_.reset();
    stopped = true;
  });
  while (!stopped) {
    Knock(address_);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stopper.join();
}

std::string WithPort(const std::string& address, int port) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.starts_with("unix:")) {
    return address;
  }
  return address.substr(0, colon + 1) + std::to_string(port);
}

}  // namespace skrull
