#include "skrull/server/metrics_endpoint.h"

#include <map>
#include <utility>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "skrull/server/status/status_page.h"

namespace skrull {
namespace {

HttpResponse MetricsPage(
    const std::vector<std::shared_ptr<const prometheus::Collectable>>& all) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collectable : all) {
    for (prometheus::MetricFamily& family : collectable->Collect()) {
      families.push_back(std::move(family));
    }
  }
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = prometheus::TextSerializer().Serialize(families)};
}

HttpResponse Probe(bool ok, ServingState state) {
  const char* const name = state == ServingState::kStarting  ? "starting"
                           : state == ServingState::kServing ? "serving"
                                                             : "draining";
  return {.status = ok ? 200 : 503,
          .content_type = "text/plain; charset=utf-8",
          .body = std::string(name) + "\n"};
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Create(
    const std::string& address, const Sources& sources) {
  std::map<std::string, HttpServer::Page> pages;
  pages["/metrics"] = [metrics = sources.metrics] {
    return MetricsPage(metrics);
  };
  pages["/healthz"] = [state_of = sources.state] {
    const ServingState state = state_of();
    return Probe(state != ServingState::kDraining, state);
  };
  pages["/readyz"] = [state_of = sources.state] {
    const ServingState state = state_of();
    return Probe(state == ServingState::kServing, state);
  };
  if (sources.status) {
    pages["/"] = [status = sources.status] {
      return HttpResponse{.content_type = "text/html; charset=utf-8",
                          .body = StatusPage(status()),
                          .headers = StatusPageHeaders()};
    };
  }
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Create(address, std::move(pages));
  if (!server.ok()) return server.status();
  return std::unique_ptr<MetricsEndpoint>(
      new MetricsEndpoint(*std::move(server)));
}

}  // namespace skrull
