#include "skrull/tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <fstream>
#include <stdexcept>

namespace skrull::testing {
namespace {

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
using ExtensionPtr =
    std::unique_ptr<X509_EXTENSION, Deleter<&X509_EXTENSION_free>>;

void Require(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string("OpenSSL: ") + what);
}

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

KeyPtr NewKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  Require(key != nullptr, "EVP_EC_gen");
  return key;
}

std::string CertPem(X509* cert) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  Require(PEM_write_bio_X509(bio.get(), cert) == 1, "PEM_write_bio_X509");
  return Text(bio.get());
}

std::string KeyPem(EVP_PKEY* key, const std::string& phrase = "") {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  const bool is_locked = !phrase.empty();
  Require(PEM_write_bio_PKCS8PrivateKey(
              bio.get(), key, is_locked ? EVP_aes_256_cbc() : nullptr,
              is_locked ? phrase.data() : nullptr,
              static_cast<int>(phrase.size()), nullptr, nullptr) == 1,
          "PEM_write_bio_PKCS8PrivateKey");
  return Text(bio.get());
}

void AddExtension(X509* cert, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  const ExtensionPtr extension(
      X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  Require(extension != nullptr, value.c_str());
  Require(X509_add_ext(cert, extension.get(), -1) == 1, "X509_add_ext");
}

// Everything but extensions and signature. `issuer` nullptr = itself.
CertPtr NewCert(const CertificateTerms& terms, int64_t serial, EVP_PKEY* key,
                X509* issuer) {
  CertPtr cert(X509_new());
  Require(cert != nullptr && X509_set_version(cert.get(), 2) == 1, "X509_new");
  ASN1_INTEGER_set_int64(X509_get_serialNumber(cert.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(cert.get()), terms.begins.count());
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), terms.ends.count());
  X509_NAME* const name = X509_get_subject_name(cert.get());
  Require(X509_NAME_add_entry_by_txt(
              name, "CN", MBSTRING_UTF8,
              reinterpret_cast<const unsigned char*>(terms.common_name.c_str()),
              -1, -1, 0) == 1,
          "X509_NAME_add_entry_by_txt");
  X509_set_issuer_name(
      cert.get(), issuer == nullptr ? name : X509_get_subject_name(issuer));
  Require(X509_set_pubkey(cert.get(), key) == 1, "X509_set_pubkey");
  return cert;
}

void Sign(X509* cert, EVP_PKEY* key) {
  Require(X509_sign(cert, key, EVP_sha256()) > 0, "X509_sign");
}

}  // namespace

struct CertificateAuthority::State {
  KeyPtr key;
  CertPtr cert;
  std::string pem;
  int64_t serial = 1;
};

CertificateAuthority::CertificateAuthority(const std::string& name)
    : state_(std::make_unique<State>()) {
  state_->key = NewKey();
  state_->cert = NewCert({.common_name = name}, state_->serial,
                         state_->key.get(), nullptr);
  X509* const cert = state_->cert.get();
  AddExtension(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign");
  Sign(cert, state_->key.get());
  state_->pem = CertPem(cert);
}

CertificateAuthority::~CertificateAuthority() = default;

const std::string& CertificateAuthority::cert() const { return state_->pem; }

Issued CertificateAuthority::Issue(const CertificateTerms& terms) {
  const KeyPtr key = NewKey();
  const CertPtr cert =
      NewCert(terms, ++state_->serial, key.get(), state_->cert.get());
  if (!terms.alternative_names.empty()) {
    AddExtension(cert.get(), state_->cert.get(), NID_subject_alt_name,
                 terms.alternative_names);
  }
  Sign(cert.get(), state_->key.get());
  return {.cert = CertPem(cert.get()), .key = KeyPem(key.get())};
}

std::string WithPassphrase(const std::string& pem, const std::string& phrase) {
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const KeyPtr key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  Require(key != nullptr, "PEM_read_bio_PrivateKey");
  return KeyPem(key.get(), phrase);
}

void ReplaceFile(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path next = path.string() + ".next";
  std::ofstream(next, std::ios::binary) << text;
  std::filesystem::rename(next, path);
}

}  // namespace skrull::testing
