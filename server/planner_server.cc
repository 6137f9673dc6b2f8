#include "skrull/server/planner_server.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "prometheus/registry.h"
#include "skrull/server/auth/grpc_security.h"
#include "skrull/server/measured_store.h"
#include "skrull/server/metrics/job_series.h"
#include "skrull/server/metrics/process_metrics.h"
#include "skrull/server/metrics/store_size.h"
#include "skrull/server/planner_service.h"
#include "skrull/server/security_options.h"
#include "skrull/server/store.h"

namespace skrull {
namespace {

constexpr char kServiceName[] = "skrull.v1.PlannerService";
// A trailer of ours stays below half of it.
constexpr int kMaxMetadataBytes = 16 << 10;
// A peer that connects and says nothing is disconnected after it.
constexpr int kHandshakeMillis = 20'000;
// gRPC itself cuts a request off only at this multiple of our own limit, so
// that the client sees our error, which says what the limit is.
constexpr int64_t kHardLimitFactor = 4;
// For streams that never end by themselves, such as health watches.
constexpr std::chrono::milliseconds kCutOff{200};

int Milliseconds(double seconds) {
  return static_cast<int>(std::min<double>(std::ceil(seconds * 1000),
                                           std::numeric_limits<int>::max()));
}

// Linking gRPC's reflection adds it to every server; this takes it out again.
class NoReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return plugin->name() == "proto_server_reflection";
    });
  }
};

void Configure(const ServerOptions& options, grpc::ServerBuilder* builder) {
  // Two daemons on one port would each see half of the calls.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              kHandshakeMillis);
  // Calls that arrive faster than their handlers run wait inside gRPC, where
  // nothing refuses them: past this many, the client keeps them.
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              static_cast<int>(options.max_connection_calls));
  // Trainers hold idle connections for as long as a step takes: both sides may
  // ping without calls.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              Milliseconds(options.keepalive_seconds));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Milliseconds(options.keepalive_timeout_seconds));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(options.min_ping_seconds));
  builder->SetMaxReceiveMessageSize(static_cast<int>(
      std::min<int64_t>(kHardLimitFactor * options.max_request_bytes,
                        std::numeric_limits<int>::max())));
  builder->SetMaxSendMessageSize(-1);
  if (!ServesReflection(options)) {
    builder->SetOption(std::make_unique<NoReflection>());
  }
}

// For the log: how callers are told apart.
std::string CallersText(const Security& security) {
  const std::shared_ptr<const AuthTable> table = security.auth_table();
  return table == nullptr ? "everyone is admin"
                          : std::to_string(table->size()) + " known";
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlannerServer>> PlannerServer::Create(
    const ServerOptions& options, const Clock* clock) {
  std::unique_ptr<PlannerServer> server(new PlannerServer(options, clock));
  absl::StatusOr<std::unique_ptr<Security>> security =
      Security::Create(options, clock, &server->logger_, &server->metrics_);
  if (!security.ok()) return security.status();
  server->security_ = *std::move(security);
  absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(
      options.store, {.etcd_timeout_seconds = options.etcd_timeout_seconds,
                      .etcd_ca_file = options.etcd_ca_file,
                      .etcd_cert_file = options.etcd_cert_file,
                      .etcd_key_file = options.etcd_key_file});
  if (!store.ok()) return store.status();
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      Backend::Create(options,
                      std::make_unique<MeasuredStore>(
                          *std::move(store), clock, &server->metrics_.store()),
                      clock, &server->logger_, &server->metrics_);
  if (!backend.ok()) return backend.status();
  server->backend_ = *std::move(backend);
  if (!options.metrics_address.empty()) {
    const absl::Status serves = server->ServeMetrics();
    if (!serves.ok()) return serves;
  }
  return server;
}

PlannerServer::PlannerServer(const ServerOptions& options, const Clock* clock)
    : options_(options),
      clock_(clock),
      logger_(options.log_level, clock, options.log_format),
      grpc_log_(&logger_, clock),
      address_(options.listen_address) {}

absl::Status PlannerServer::ServeMetrics() {
  // As many as fit a page that one can still read.
  constexpr int64_t kPageEntries = 50;
  MetricsEndpoint::Sources sources;
  sources.metrics = {metrics_.registry(), std::make_shared<ProcessMetrics>(),
                     std::make_shared<StoreSize>(options_.store)};
  if (options_.job_metrics > 0) {
    sources.metrics.push_back(std::make_shared<JobSeries>(
        [backend = backend_.get()] { return backend->MeasuredJobs(); }));
  }
  sources.state = [this] { return state_.load(); };
  if (options_.status_page) {
    sources.status = [backend = backend_.get()] {
      return backend->Status(kPageEntries, kPageEntries,
                             [](const JobRecord&) { return true; });
    };
  }
  absl::StatusOr<std::unique_ptr<MetricsEndpoint>> endpoint =
      MetricsEndpoint::Create(options_.metrics_address, sources);
  if (!endpoint.ok()) return endpoint.status();
  metrics_endpoint_ = *std::move(endpoint);
  return absl::OkStatus();
}

PlannerServer::~PlannerServer() { Stop(); }

absl::Status PlannerServer::Start() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  service_ = std::make_unique<PlannerService>(backend_.get(), security_.get(),
                                              &logger_);
  credentials_ =
      MakeServerCredentials(security_.get(), options_.tls_client_certificates);
  grpc::ServerBuilder builder;
  Configure(options_, &builder);
  int port = 0;
  builder.AddListeningPort(options_.listen_address, credentials_, &port);
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    server_.reset();
    return absl::UnavailableError("cannot listen on " +
                                  options_.listen_address + " (is it in use?)");
  }
  address_ = WithPort(options_.listen_address, port);
  server_->GetHealthCheckService()->SetServingStatus(kServiceName, true);
  state_ = ServingState::kServing;
  logger_.Info("started", {{"address", address_},
                           {"metrics", metrics_address()},
                           {"tls", security_->tls_material() ? "on" : "off"},
                           {"callers", CallersText(*security_)},
                           {"store", options_.store},
                           {"jobs", backend_->jobs().count()}});
  return absl::OkStatus();
}

std::string PlannerServer::metrics_address() const {
  return metrics_endpoint_ == nullptr ? "none" : metrics_endpoint_->address();
}

bool PlannerServer::Stop() {
  if (server_ == nullptr) return true;
  const auto limit =
      clock_->MonotonicNow() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::duration<double>(options_.drain_seconds));
  logger_.Info("draining");
  server_->GetHealthCheckService()->SetServingStatus(false);
  state_ = ServingState::kDraining;
  backend_->StartDrain();
  service_->StartDrain();
  bool answered = service_->WaitForCalls(limit);
  if (!answered) {
    backend_->Close();
    answered = service_->WaitForCalls(clock_->MonotonicNow() + kCutOff);
  }
  server_->Shutdown(std::chrono::system_clock::now() + kCutOff);
  server_->Wait();
  server_.reset();
  backend_->Close();
  service_.reset();
  logger_.Info("stopped", {{"cut_off", answered ? "no" : "yes"}});
  return answered;
}

}  // namespace skrull
