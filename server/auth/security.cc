#include "skrull/server/auth/security.h"

#include <chrono>
#include <utility>

#include "skrull/planner/error.h"
#include "skrull/server/auth/watched_files.h"

namespace skrull {

absl::StatusOr<std::unique_ptr<Security>> Security::Create(
    const ServerOptions& options, const Clock* clock, const Logger* logger,
    Metrics* metrics) {
  std::unique_ptr<Security> security(new Security(options, clock, metrics));
  Security* const self = security.get();
  std::vector<std::unique_ptr<WatchedFiles>> files;
  if (!options.auth_file.empty()) {
    files.push_back(std::make_unique<WatchedFiles>(
        std::vector<std::string>{options.auth_file},
        [self](const std::vector<std::string>& contents) {
          return self->UseAuthFile(contents[0]);
        }));
  }
  if (!options.tls_cert_file.empty()) {
    std::vector<std::string> paths = {options.tls_cert_file,
                                      options.tls_key_file};
    if (security->takes_certificates_) {
      paths.push_back(options.tls_client_ca_file);
    }
    files.push_back(std::make_unique<WatchedFiles>(
        std::move(paths), [self](const std::vector<std::string>& contents) {
          return self->UseTlsFiles(contents);
        }));
  }
  for (const auto& set : files) {
    const absl::Status loaded = set->Load();
    if (!loaded.ok()) return loaded;
  }
  if (!files.empty()) {
    security->reloader_.emplace(std::move(files), clock, logger);
  }
  return security;
}

Security::Security(const ServerOptions& options, const Clock* clock,
                   Metrics* metrics)
    : auth_file_(options.auth_file),
      takes_certificates_(!options.tls_client_ca_file.empty()),
      clock_(clock),
      metrics_(metrics) {}

std::shared_ptr<const AuthTable> Security::auth_table() const {
  MutexLock lock(&mutex_);
  return auth_table_;
}

std::shared_ptr<const TlsMaterial> Security::tls_material() const {
  MutexLock lock(&mutex_);
  return tls_material_;
}

absl::Status Security::UseAuthFile(const std::string& text) {
  absl::StatusOr<AuthTable> table = AuthTable::Parse(text, auth_file_);
  if (!table.ok()) return table.status();
  if (table->has_certificates() && !takes_certificates_) {
    return FieldError("tls_client_ca_file",
                      "is empty, and " + auth_file_ +
                          " has callers who are known by certificate");
  }
  const auto next = std::make_shared<const AuthTable>(*std::move(table));
  MutexLock lock(&mutex_);
  auth_table_ = next;
  return absl::OkStatus();
}

absl::Status Security::UseTlsFiles(const std::vector<std::string>& contents) {
  TlsMaterial material{.cert_chain = contents[0], .key = contents[1]};
  if (takes_certificates_) material.client_ca = contents[2];
  const auto expiry = CheckTlsMaterial(material, clock_->Now());
  if (!expiry.ok()) return expiry.status();
  metrics_->SetTlsCertificateExpiry(*expiry);
  const auto next = std::make_shared<const TlsMaterial>(std::move(material));
  MutexLock lock(&mutex_);
  tls_material_ = next;
  return absl::OkStatus();
}

}  // namespace skrull
