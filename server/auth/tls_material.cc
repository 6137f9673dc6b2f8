#include "skrull/server/auth/tls_material.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

using std::chrono::system_clock;

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Deleter<&BIO_free_all>>;
using CertPtr = std::unique_ptr<X509, Deleter<&X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Deleter<&EVP_PKEY_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Deleter<&SSL_CTX_free>>;

// Else OpenSSL would ask for a passphrase on the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/,
                 void* /*data*/) {
  return -1;
}

BioPtr Reader(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Every certificate in `pem`, of which there is at least one.
absl::StatusOr<std::vector<CertPtr>> ReadCertificates(const std::string& field,
                                                      const std::string& pem) {
  std::vector<CertPtr> certificates;
  const BioPtr reader = Reader(pem);
  ERR_clear_error();
  while (CertPtr certificate{
      PEM_read_bio_X509(reader.get(), nullptr, NoPassphrase, nullptr)}) {
    certificates.push_back(std::move(certificate));
  }
  const bool at_end =
      ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) {
    return FieldError(field,
                      absl::StrCat("certificate ", certificates.size() + 1,
                                   " in it is not a PEM certificate"));
  }
  if (certificates.empty()) {
    return FieldError(field, "holds no PEM certificate");
  }
  return certificates;
}

system_clock::time_point TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return system_clock::time_point();
  return system_clock::from_time_t(::timegm(&parts));
}

absl::Status CheckKey(X509* certificate, const std::string& pem) {
  const BioPtr reader = Reader(pem);
  const KeyPtr key(
      PEM_read_bio_PrivateKey(reader.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return FieldError("tls_key_file",
                      "holds no PEM private key that can be read without a "
                      "passphrase");
  }
  if (X509_check_private_key(certificate, key.get()) != 1) {
    return FieldError("tls_key_file",
                      "its key is not that of the first certificate of "
                      "tls_cert_file");
  }
  const ContextPtr context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr ||
      SSL_CTX_use_certificate(context.get(), certificate) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return FieldError("tls_cert_file",
                      "OpenSSL does not take its first certificate for TLS; "
                      "its key or signature may be too weak");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<system_clock::time_point> CheckTlsMaterial(
    const TlsMaterial& material, system_clock::time_point now) {
  const absl::StatusOr<std::vector<CertPtr>> chain =
      ReadCertificates("tls_cert_file", material.cert_chain);
  if (!chain.ok()) return chain.status();
  X509* const certificate = chain->front().get();
  const absl::Status key = CheckKey(certificate, material.key);
  ERR_clear_error();
  if (!key.ok()) return key;
  if (now < TimeOf(X509_get0_notBefore(certificate))) {
    return FieldError("tls_cert_file", "its certificate is not valid yet");
  }
  const auto expiry = TimeOf(X509_get0_notAfter(certificate));
  if (now > expiry) {
    return FieldError("tls_cert_file", "its certificate has expired");
  }
  if (material.client_ca) {
    const auto authorities =
        ReadCertificates("tls_client_ca_file", *material.client_ca);
    if (!authorities.ok()) return authorities.status();
  }
  return expiry;
}

}  // namespace skrull
