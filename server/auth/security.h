// What the daemon's files say about who may call and how connections are
// secured, kept up to date while it runs.
#ifndef SKRULL_SERVER_AUTH_SECURITY_H_
#define SKRULL_SERVER_AUTH_SECURITY_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/auth/auth_table.h"
#include "skrull/server/auth/reloader.h"
#include "skrull/server/auth/tls_material.h"
#include "skrull/server/clock.h"
#include "skrull/server/log.h"
#include "skrull/server/metrics.h"
#include "skrull/server/mutex.h"
#include "skrull/server/options.h"

namespace skrull {

// Thread-safe. What it hands out is immutable, and stays valid when a newer one
// takes its place.
class Security {
 public:
  // Reads the files that `options` name. All arguments but the options must
  // outlive the object. Errors: INVALID_ARGUMENT naming the file or option at
  // fault: those of WatchedFiles, AuthTable and CheckTlsMaterial; an auth file
  // that names certificates where tls_client_ca_file is empty.
  static absl::StatusOr<std::unique_ptr<Security>> Create(
      const ServerOptions& options, const Clock* clock, const Logger* logger,
      Metrics* metrics);

  // The callers; nullptr where they are not told apart.
  std::shared_ptr<const AuthTable> auth_table() const SKRULL_EXCLUDES(mutex_);
  // nullptr where there is no TLS.
  std::shared_ptr<const TlsMaterial> tls_material() const
      SKRULL_EXCLUDES(mutex_);

 private:
  Security(const ServerOptions& options, const Clock* clock, Metrics* metrics);

  absl::Status UseAuthFile(const std::string& text) SKRULL_EXCLUDES(mutex_);
  absl::Status UseTlsFiles(const std::vector<std::string>& contents)
      SKRULL_EXCLUDES(mutex_);

  const std::string auth_file_;
  const bool takes_certificates_;
  const Clock* const clock_;
  Metrics* const metrics_;

  mutable Mutex mutex_;
  std::shared_ptr<const AuthTable> auth_table_ SKRULL_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsMaterial> tls_material_ SKRULL_GUARDED_BY(mutex_);

  std::optional<Reloader> reloader_;  // last: its thread uses the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_AUTH_SECURITY_H_
