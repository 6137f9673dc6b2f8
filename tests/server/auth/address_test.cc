#include "skrull/server/address.h"

#include <catch2/catch.hpp>
#include <string>

#include "skrull/server/options.h"
#include "skrull/server/security_options.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("IsLocalAddress: loopback and Unix sockets alone", "[server][auth]") {
  for (const std::string address :
       {"127.0.0.1:7419", "127.9.8.7:1", "127.0.0.1", "localhost:7419",
        "localhost", "[::1]:7419", "[::1]", "::1", "[::ffff:127.0.0.1]:7419",
        "unix:/run/skrull.sock", "unix:run.sock", "unix-abstract:skrull",
        "ipv4:127.0.0.1:7419", "ipv6:[::1]:7419",
        "ipv4:127.0.0.1:1,127.0.0.2:2", "127.0.0.1:1,[::1]:2"}) {
    CAPTURE(address);
    CHECK(IsLocalAddress(address));
  }
  for (const std::string address : {"0.0.0.0:7419",
                                    "[::]:7419",
                                    "10.0.0.5:7419",
                                    "128.0.0.1:1",
                                    "[fe80::1]:7419",
                                    "[::ffff:10.0.0.5]:1",
                                    "node-3.local:7419",
                                    "localhost.evil.example:7419",
                                    "localhosts:7419",
                                    "127.1:7419",
                                    "127.0.0.1.evil.example:7419",
                                    "dns:///localhost:7419",
                                    "",
                                    ":7419",
                                    "[::1",
                                    "[::1]x:7419",
                                    "ipv4:10.0.0.5:1,127.0.0.1:1",
                                    "127.0.0.1:1,10.0.0.5:2",
                                    "127.0.0.1:1,",
                                    "vsock:1:2"}) {
    CAPTURE(address);
    CHECK_FALSE(IsLocalAddress(address));
  }
}

std::string Refusal(const std::vector<std::string>& flags) {
  const absl::Status status = ParseServerCommandLine(flags).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST_CASE("CheckSecurity: plaintext reaches this machine alone, unless asked",
          "[server][auth]") {
  const std::string far = "--listen_address=10.0.0.5:7419";
  const std::string cert = "--tls_cert_file=c";
  const std::string key = "--tls_key_file=k";
  CHECK_THAT(Refusal({far}),
             StartsWith("listen_address: ") && Contains("10.0.0.5:7419") &&
                 Contains("tls_cert_file") && Contains("allow_plaintext"));
  CHECK(ParseServerCommandLine({far, "--allow_plaintext=true"}).ok());
  CHECK(ParseServerCommandLine({far, cert, key}).ok());
  CHECK(ParseServerCommandLine({"--listen_address=unix:/x"}).ok());
  // Tokens are another matter.
  CHECK_THAT(Refusal({far, "--auth_file=a"}),
             StartsWith("auth_file: ") && Contains("plain text"));
  CHECK_THAT(Refusal({far, "--auth_file=a", "--allow_plaintext=true"}),
             StartsWith("auth_file: "));
  CHECK(ParseServerCommandLine({far, "--auth_file=a", cert, key}).ok());
  CHECK(ParseServerCommandLine({"--auth_file=a"}).ok());
  // A question about the program needs no security.
  CHECK(ParseServerCommandLine({far, "--version"}).ok());
}

TEST_CASE("CheckSecurity: options that need each other", "[server][auth]") {
  CHECK_THAT(Refusal({"--tls_cert_file=c"}), StartsWith("tls_key_file: "));
  CHECK_THAT(Refusal({"--tls_key_file=k"}), StartsWith("tls_cert_file: "));
  CHECK_THAT(Refusal({"--tls_client_ca_file=a"}),
             StartsWith("tls_cert_file: ") && Contains("tls_client_ca_file"));
  CHECK(ParseServerCommandLine(
            {"--tls_client_ca_file=a", "--tls_cert_file=c", "--tls_key_file=k"})
            .ok());
}

TEST_CASE("ServesReflection: where only this machine asks, unless told",
          "[server][auth]") {
  ServerOptions options;
  CHECK(ServesReflection(options));
  options.listen_address = "10.0.0.5:7419";
  CHECK_FALSE(ServesReflection(options));
  options.reflection = Reflection::kOn;
  CHECK(ServesReflection(options));
  options.listen_address = "127.0.0.1:7419";
  options.reflection = Reflection::kOff;
  CHECK_FALSE(ServesReflection(options));
}

}  // namespace
}  // namespace skrull
