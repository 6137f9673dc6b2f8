// Where `skrullctl plan` gets its plans: a daemon, or this process.
#ifndef SKRULL_CLIENT_CLI_PLAN_SOURCE_H_
#define SKRULL_CLIENT_CLI_PLAN_SOURCE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "skrull/client/plan_types.h"
#include "skrull/client/planner_client.h"

namespace CLI {
class App;
}

namespace skrull::cli {

// What every command that may call a daemon is told about it.
struct ServerFlags {
  std::string address = {};  // empty = not given
  double timeout_seconds = 30;
  std::string tls_ca = {};  // paths; empty = none, see ClientOptions
  std::string tls_cert = {};
  std::string tls_key = {};
  std::string tls_server_name = {};
  std::string token_file = {};
};

// $SKRULL_SERVER; empty when unset.
std::string ServerFromEnvironment();

// `address` if it is given, else $SKRULL_SERVER, else the daemon's own default.
std::string ServerOrDefault(const std::string& address);

// Adds --tls-ca, --tls-cert, --tls-key, --tls-server-name and --token-file,
// with their environment variables, to a command. `server` must outlive it.
void AddSecurityOptions(CLI::App* command, ServerFlags* server);

// Adds --server, with that help, --offline, --timeout and those of security to
// a command that asks a daemon or plans in this process. `server` and `offline`
// must outlive it.
void AddSourceOptions(CLI::App* command, const std::string& server_help,
                      ServerFlags* server, bool* offline);

// Adds --server, --timeout and those of security to a command that always asks
// a daemon. `server` must outlive the command.
void AddServerOptions(CLI::App* command, ServerFlags* server);

// To the daemon at ServerOrDefault(server.address). Errors: INVALID_ARGUMENT.
absl::StatusOr<std::unique_ptr<PlannerClient>> Connect(
    const ServerFlags& server);

class PlanSource {
 public:
  virtual ~PlanSource() = default;

  // Errors: why this batch is refused, or UNAVAILABLE.
  virtual absl::StatusOr<PlanResult> Plan(int64_t step,
                                          std::span<const int64_t> lengths) = 0;
};

// Plans in this process. `name` and `calibration_epoch` are copied into plans.
// Errors: INVALID_ARGUMENT about the spec.
absl::StatusOr<std::unique_ptr<PlanSource>> OfflineSource(
    const std::string& job_spec_text, const std::string& name,
    const std::string& policy, int64_t calibration_epoch = 0);

// Asks a daemon: for the registered job `job`, committing every plan, or, when
// that is empty, for the spec, committing nothing.
std::unique_ptr<PlanSource> ServerSource(std::unique_ptr<PlannerClient> client,
                                         const std::string& job,
                                         const std::string& job_spec_text,
                                         const std::string& policy);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_PLAN_SOURCE_H_
