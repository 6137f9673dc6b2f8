#include "skrull/server/auth/grpc_security.h"

#include <string>
#include <utility>
#include <vector>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "skrull/server/auth/identify.h"
#include "skrull/server/mutex.h"

namespace skrull {
namespace {

// gRPC asks for the certificate before every handshake, and goes on with the
// one it has when it cannot use what it is given. Its other way to reload
// files, FileWatcherCertificateProvider, lets a wrong file take the place of a
// right one.
class ReloadingCredentials final : public grpc::ServerCredentials {
 public:
  ReloadingCredentials(const Security* security,
                       ClientCertificates client_certificates)
      : security_(security) {
    const auto request =
        security_->tls_material()->client_ca == std::nullopt
            ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
        : client_certificates == ClientCertificates::kOptional
            ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
            : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            request, &ReloadingCredentials::Fetch, this));
  }
  ~ReloadingCredentials() override {
    grpc_server_credentials_release(credentials_);
  }

  // Callers are told apart call by call, without gRPC's help.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/)
      override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* credentials, grpc_ssl_server_certificate_config** config) {
    return static_cast<ReloadingCredentials*>(credentials)->FetchNew(config);
  }

  grpc_ssl_certificate_config_reload_status FetchNew(
      grpc_ssl_server_certificate_config** config) SKRULL_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    std::shared_ptr<const TlsMaterial> material = security_->tls_material();
    if (material == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    given_ = std::move(material);
    const grpc_ssl_pem_key_cert_pair pair = {given_->key.c_str(),
                                             given_->cert_chain.c_str()};
    // gRPC wants authorities even where it asks clients for no certificate,
    // and then does not use them.
    const std::string& authorities =
        given_->client_ca ? *given_->client_ca : given_->cert_chain;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(),
                                                        &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const Security* const security_;
  grpc_server_credentials* credentials_ = nullptr;
  Mutex mutex_;
  std::shared_ptr<const TlsMaterial> given_ SKRULL_GUARDED_BY(mutex_);
};

std::string ToString(grpc::string_ref text) {
  return std::string(text.data(), text.size());
}

// See ShownCredentials. Empty unless the client showed a certificate, which
// gRPC has then verified.
std::vector<std::string> CertificateNames(
    const grpc::ServerContextBase& context) {
  std::vector<std::string> names;
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer == nullptr) return names;
  for (const char* property :
       {GRPC_PEER_URI_PROPERTY_NAME, GRPC_PEER_DNS_PROPERTY_NAME,
        GRPC_X509_CN_PROPERTY_NAME}) {
    for (grpc::string_ref name : peer->FindPropertyValues(property)) {
      names.push_back(ToString(name));
    }
  }
  return names;
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const Security* security, ClientCertificates client_certificates) {
  if (security->tls_material() == nullptr) {
    return grpc::InsecureServerCredentials();
  }
  return std::make_shared<ReloadingCredentials>(security, client_certificates);
}

absl::StatusOr<Caller> AdmitCall(const Security& security,
                                 const grpc::ServerContextBase& context,
                                 Access access) {
  const std::shared_ptr<const AuthTable> table = security.auth_table();
  if (table == nullptr) return Caller();
  ShownCredentials shown;
  const auto [begin, end] =
      context.client_metadata().equal_range("authorization");
  for (auto value = begin; value != end; ++value) {
    shown.authorization.push_back(ToString(value->second));
  }
  if (shown.authorization.empty() && table->has_certificates()) {
    shown.certificate_names = CertificateNames(context);
  }
  absl::StatusOr<Caller> caller = IdentifyCaller(*table, shown);
  if (!caller.ok()) return caller;
  absl::Status allowed = AuthorizeCall(*caller, access);
  if (!allowed.ok()) return allowed;
  return caller;
}

}  // namespace skrull
