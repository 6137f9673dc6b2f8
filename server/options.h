// What a daemon can be told: ServerOptions, and the ways to set it.
//
// server/option_registry.cc is the one list of names, ranges, defaults and
// help; the command line, the configuration file, --help and
// docs/configuration.md all come from it.
#ifndef SKRULL_SERVER_OPTIONS_H_
#define SKRULL_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skrull {

enum class LogLevel : int8_t { kError, kWarning, kInfo, kDebug };
enum class LogFormat : int8_t { kText, kJson };

enum class Reflection : int8_t { kAuto, kOn, kOff };

enum class ClientCertificates : int8_t { kRequired, kOptional };

// Plain data. The registry documents each member, under the same name, and
// states its range; values made by ParseServerCommandLine are in range.
struct ServerOptions {
  // Where to listen.
  std::string listen_address = "127.0.0.1:7419";
  std::string metrics_address = "127.0.0.1:7420";  // empty = no metrics
  Reflection reflection = Reflection::kAuto;

  // Who may call, and who can listen in: see security_options.h.
  std::string tls_cert_file;  // PEM; empty = no TLS
  std::string tls_key_file;
  std::string tls_client_ca_file;  // empty = no client certificates
  ClientCertificates tls_client_certificates = ClientCertificates::kRequired;
  std::string auth_file;  // see auth/auth_table.h; empty = everyone is admin
  bool allow_plaintext = false;

  // What is kept, and where.
  std::string store = "memory";  // see server/store.h
  int64_t kept_steps = 1024;     // per job

  // An etcd store: StoreOptions (server/store.h).
  double etcd_timeout_seconds = 5;
  std::string etcd_ca_file;
  std::string etcd_cert_file;
  std::string etcd_key_file;

  // Limits on what clients ask for.
  int64_t max_jobs = 10000;
  int64_t max_ranks = 65536;  // dp_size * cp_size of a job
  int64_t max_lengths = 1048576;
  int64_t max_request_bytes = int64_t{16} << 20;

  // Work in progress.
  int64_t planning_threads = 2;
  int64_t planning_queue = 1024;  // batches waiting for a planning thread
  // GetRankPlan calls waiting for a commit, and Rendezvous calls for ranks
  int64_t max_waiting_calls = 65536;
  double max_wait_seconds = 600;  // of one such call

  // Overload: what is refused before it waits.
  double max_queue_seconds = 1;
  int64_t planning_queue_bytes = int64_t{256} << 20;

  // Quotas of each client; 0 = none.
  int64_t quota_jobs = 0;
  int64_t quota_lengths_per_second = 0;
  int64_t quota_concurrent_plans = 0;

  // Connections.
  int64_t max_connection_calls = 2048;    // of one connection, under way
  double keepalive_seconds = 60;          // idle time before the daemon pings
  double keepalive_timeout_seconds = 20;  // wait for the answer to a ping
  double min_ping_seconds = 10;  // shortest time between a client's pings

  // The process.
  double drain_seconds = 20;
  LogLevel log_level = LogLevel::kInfo;

  // What it tells about itself.
  LogFormat log_format = LogFormat::kText;
  double slow_call_seconds = 2;  // 0 = no call is slow
  bool status_page = true;
  int64_t job_metrics = 0;  // jobs with series of their own
  double job_metrics_expiry_seconds = 3600;

  friend bool operator==(const ServerOptions&, const ServerOptions&) = default;
};

// What a command line asks for.
struct ServerCommand {
  enum class Action : int8_t {
    kRun,
    kHelp,
    kVersion,
    kOptionsMarkdown,
    kMetricsMarkdown,
  };

  Action action = Action::kRun;
  ServerOptions options;
};

// Reads the arguments after the program's name. Later sources win: built-in
// defaults, the file of `--config FILE`, then flags `--name=value` (or `--name
// value`), wherever --config stands among them. Errors: INVALID_ARGUMENT naming
// the option, with file and line where it is the file's; those of CheckSecurity
// (security_options.h).
absl::StatusOr<ServerCommand> ParseServerCommandLine(
    const std::vector<std::string>& arguments);

// Applies the text of a configuration file to `options`: lines `name = value`;
// blank lines and comments, from a # that starts a line or follows a space, are
// skipped. Errors: INVALID_ARGUMENT naming `file` and the line of an unknown or
// repeated name, a bad value or a line of another form; `options` is then
// unchanged.
absl::Status ApplyConfigText(const std::string& text, const std::string& file,
                             ServerOptions* options);

// For `--help`: usage and every option with range and default.
std::string ServerHelpText();

// The whole of docs/configuration.md.
std::string OptionsMarkdown();

}  // namespace skrull

#endif  // SKRULL_SERVER_OPTIONS_H_
