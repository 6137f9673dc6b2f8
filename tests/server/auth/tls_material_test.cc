#include "skrull/server/auth/tls_material.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "skrull/planner/error.h"
#include "skrull/tests/support/certificates.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using std::chrono::hours;
using std::chrono::system_clock;
using testing::CertificateAuthority;
using testing::Issued;

void CheckRefused(const TlsMaterial& material, const std::string& option,
                  const std::string& problem,
                  system_clock::time_point now = system_clock::now()) {
  CAPTURE(option, problem);
  const absl::Status status = CheckTlsMaterial(material, now).status();
  REQUIRE(GetErrorDetail(status).has_value());
  const std::string message(status.message());
  CHECK_THAT(message, StartsWith(option + ": ") && Contains(problem));
  CHECK_THAT(message, !Contains("BEGIN"));
}

TEST_CASE("CheckTlsMaterial: takes what a server can use, and says until when",
          "[server][auth]") {
  CertificateAuthority ca("ca");
  CertificateAuthority clients("clients");
  const Issued server = ca.IssueServer();
  const auto now = system_clock::now();
  const auto expiry =
      CheckTlsMaterial({.cert_chain = server.cert, .key = server.key}, now);
  REQUIRE(expiry.ok());
  CHECK(*expiry > now + hours(23));
  CHECK(*expiry < now + hours(25));
  // With the issuer behind it, text between, and two authorities of clients.
  CHECK(CheckTlsMaterial(
            {.cert_chain = "skrulld\n" + server.cert + "issuer\n" + ca.cert(),
             .key = server.key,
             .client_ca = clients.cert() + ca.cert()},
            now)
            .ok());
}

TEST_CASE("CheckTlsMaterial: names the part at fault", "[server][auth]") {
  CertificateAuthority ca("ca");
  const Issued server = ca.IssueServer();
  const Issued other = ca.IssueServer();
  const std::string half = server.cert.substr(0, server.cert.size() / 2);
  CheckRefused({.cert_chain = "", .key = server.key}, "tls_cert_file",
               "no PEM certificate");
  CheckRefused({.cert_chain = server.key, .key = server.key}, "tls_cert_file",
               "certificate");
  CheckRefused({.cert_chain = half, .key = server.key}, "tls_cert_file",
               "certificate 1");
  CheckRefused({.cert_chain = server.cert + half, .key = server.key},
               "tls_cert_file", "certificate 2");
  CheckRefused({.cert_chain = server.cert, .key = ""}, "tls_key_file",
               "no PEM private key");
  CheckRefused({.cert_chain = server.cert, .key = server.cert}, "tls_key_file",
               "no PEM private key");
  CheckRefused({.cert_chain = server.cert,
                .key = server.key.substr(0, server.key.size() / 2)},
               "tls_key_file", "no PEM private key");
  // Nobody is asked for the passphrase.
  CheckRefused({.cert_chain = server.cert,
                .key = testing::WithPassphrase(server.key, "sesame")},
               "tls_key_file", "passphrase");
  CheckRefused({.cert_chain = server.cert, .key = other.key}, "tls_key_file",
               "not that of");
  CheckRefused({.cert_chain = ca.cert() + server.cert, .key = server.key},
               "tls_key_file", "first certificate");
  // An empty file of authorities must not mean that none is asked for.
  CheckRefused({.cert_chain = server.cert, .key = server.key, .client_ca = ""},
               "tls_client_ca_file", "no PEM certificate");
  CheckRefused(
      {.cert_chain = server.cert, .key = server.key, .client_ca = half},
      "tls_client_ca_file", "certificate 1");
}

TEST_CASE("CheckTlsMaterial: certificates out of their time are refused",
          "[server][auth]") {
  CertificateAuthority ca("ca");
  const Issued server = ca.IssueServer();
  const TlsMaterial material{.cert_chain = server.cert, .key = server.key};
  const auto now = system_clock::now();
  CHECK(CheckTlsMaterial(material, now + hours(23)).ok());
  CheckRefused(material, "tls_cert_file", "expired", now + hours(25));
  CheckRefused(material, "tls_cert_file", "not valid yet", now - hours(2));
}

}  // namespace
}  // namespace skrull
