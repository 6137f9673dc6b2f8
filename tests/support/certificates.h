// Certificate authorities of a test's own, and certificates that they issue.
#ifndef SKRULL_TESTS_SUPPORT_CERTIFICATES_H_
#define SKRULL_TESTS_SUPPORT_CERTIFICATES_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace skrull::testing {

// A certificate and its key, PEM.
struct Issued {
  std::string cert;
  std::string key;
};

struct CertificateTerms {
  std::string common_name;
  // As OpenSSL writes them, e.g. "DNS:localhost,IP:127.0.0.1,URI:spiffe://a";
  // empty = none.
  std::string alternative_names = {};
  // Relative to now.
  std::chrono::seconds begins{-3600};
  std::chrono::seconds ends{3600 * 24};
};

// Not thread-safe. Failures throw std::runtime_error.
class CertificateAuthority {
 public:
  explicit CertificateAuthority(const std::string& name);
  ~CertificateAuthority();

  // Its own certificate, PEM: what those who trust it are given.
  const std::string& cert() const;

  Issued Issue(const CertificateTerms& terms);
  // For a daemon on 127.0.0.1 and localhost.
  Issued IssueServer() {
    return Issue({.common_name = "skrulld",
                  .alternative_names = "DNS:localhost,IP:127.0.0.1"});
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `pem`'s key, locked with a passphrase.
std::string WithPassphrase(const std::string& pem, const std::string& phrase);

// Puts a file in place at once, as a careful writer does.
void ReplaceFile(const std::filesystem::path& path, const std::string& text);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SUPPORT_CERTIFICATES_H_
