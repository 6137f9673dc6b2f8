#include "skrull/cli/plan_source.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "skrull/client/local_planner.h"

namespace skrull::cli {
namespace {

// The daemon's own default.
constexpr char kDefaultServer[] = "127.0.0.1:7419";

class Offline : public PlanSource {
 public:
  Offline(std::unique_ptr<LocalPlanner> planner, const std::string& name,
          const std::string& policy)
      : planner_(std::move(planner)), name_(name), policy_(policy) {}

  absl::StatusOr<PlanResult> Plan(int64_t step,
                                  std::span<const int64_t> lengths) override {
    return planner_->PlanBatch({.job = name_,
                                .step = step,
                                .lengths = {lengths.begin(), lengths.end()},
                                .policy = policy_});
  }

 private:
  const std::unique_ptr<LocalPlanner> planner_;
  const std::string name_;
  const std::string policy_;
};

class Server : public PlanSource {
 public:
  Server(std::unique_ptr<PlannerClient> client, const std::string& job,
         const std::string& job_spec_text, const std::string& policy)
      : client_(std::move(client)),
        job_(job),
        job_spec_text_(job_spec_text),
        policy_(policy) {}

  absl::StatusOr<PlanResult> Plan(int64_t step,
                                  std::span<const int64_t> lengths) override {
    // Once the daemon is gone the other batches are not held up by waiting for
    // it again.
    if (!unreachable_.ok()) return unreachable_;
    absl::StatusOr<PlanResult> plan =
        client_->PlanBatch({.job = job_,
                            .job_spec_text = job_.empty() ? job_spec_text_ : "",
                            .step = step,
                            .lengths = {lengths.begin(), lengths.end()},
                            .policy = policy_});
    if (absl::IsUnavailable(plan.status())) unreachable_ = plan.status();
    return plan;
  }

 private:
  const std::unique_ptr<PlannerClient> client_;
  const std::string job_;
  const std::string job_spec_text_;
  const std::string policy_;
  absl::Status unreachable_;
};

}  // namespace

std::string ServerFromEnvironment() {
  const char* const address = std::getenv("SKRULL_SERVER");
  return address != nullptr ? address : "";
}

std::string ServerOrDefault(const std::string& address) {
  if (!address.empty()) return address;
  const std::string from_environment = ServerFromEnvironment();
  return from_environment.empty() ? kDefaultServer : from_environment;
}

void AddSecurityOptions(CLI::App* command, ServerFlags* server) {
  command
      ->add_option("--tls-ca", server->tls_ca,
                   "Use TLS; the daemon's certificate must come from one of "
                   "these authorities (PEM). Default: $SKRULL_TLS_CA")
      ->type_name("FILE")
      ->envname("SKRULL_TLS_CA");
  command
      ->add_option("--tls-cert", server->tls_cert,
                   "Certificate to show to the daemon (PEM). Default: "
                   "$SKRULL_TLS_CERT")
      ->type_name("FILE")
      ->envname("SKRULL_TLS_CERT");
  command
      ->add_option("--tls-key", server->tls_key,
                   "Its private key (PEM). Default: $SKRULL_TLS_KEY")
      ->type_name("FILE")
      ->envname("SKRULL_TLS_KEY");
  command
      ->add_option("--tls-server-name", server->tls_server_name,
                   "Name that the daemon's certificate must have. Default: the "
                   "host of --server")
      ->type_name("NAME");
  command
      ->add_option("--token-file", server->token_file,
                   "File with the token to show to the daemon. Default: "
                   "$SKRULL_TOKEN_FILE")
      ->type_name("FILE")
      ->envname("SKRULL_TOKEN_FILE");
}

void AddSourceOptions(CLI::App* command, const std::string& server_help,
                      ServerFlags* server, bool* offline) {
  CLI::Option* option =
      command->add_option("--server", server->address, server_help)
          ->type_name("HOST:PORT");
  command
      ->add_flag("--offline", *offline,
                 "Plan in this process, whatever $SKRULL_SERVER says")
      ->excludes(option);
  command
      ->add_option("--timeout", server->timeout_seconds,
                   "Longest wait for the daemon's answer to one batch. "
                   "Default: 30")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 86400.0));
  AddSecurityOptions(command, server);
}

void AddServerOptions(CLI::App* command, ServerFlags* server) {
  command
      ->add_option("--server", server->address,
                   absl::StrCat("Daemon to ask. Default: $SKRULL_SERVER, else ",
                                kDefaultServer))
      ->type_name("HOST:PORT");
  command
      ->add_option("--timeout", server->timeout_seconds,
                   absl::StrCat("Longest wait for the daemon. Default: ",
                                server->timeout_seconds))
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 86400.0));
  AddSecurityOptions(command, server);
}

absl::StatusOr<std::unique_ptr<PlannerClient>> Connect(
    const ServerFlags& server) {
  ClientOptions options;
  options.address = ServerOrDefault(server.address);
  options.timeout = std::chrono::milliseconds(
      static_cast<int64_t>(1e3 * server.timeout_seconds));
  // A person waits: rides out a restart, reports a wrong address soon.
  options.unreachable_after = std::chrono::seconds(5);
  options.tls_ca_file = server.tls_ca;
  options.tls_cert_file = server.tls_cert;
  options.tls_key_file = server.tls_key;
  options.tls_server_name = server.tls_server_name;
  options.token_file = server.token_file;
  return PlannerClient::Create(options);
}

absl::StatusOr<std::unique_ptr<PlanSource>> OfflineSource(
    const std::string& job_spec_text, const std::string& name,
    const std::string& policy, int64_t calibration_epoch) {
  absl::StatusOr<std::unique_ptr<LocalPlanner>> planner =
      LocalPlanner::Create(job_spec_text, calibration_epoch);
  if (!planner.ok()) return planner.status();
  return std::make_unique<Offline>(*std::move(planner), name, policy);
}

std::unique_ptr<PlanSource> ServerSource(std::unique_ptr<PlannerClient> client,
                                         const std::string& job,
                                         const std::string& job_spec_text,
                                         const std::string& policy) {
  return std::make_unique<Server>(std::move(client), job, job_spec_text,
                                  policy);
}

}  // namespace skrull::cli
