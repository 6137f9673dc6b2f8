// TLS through a real daemon, with certificates of the test's own.
#include <openssl/ssl.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "skrull/tests/server/security/secure_client.h"
#include "skrull/tests/server/service_test_util.h"
#include "skrull/tests/support/certificates.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::testing {
namespace {

using Catch::Matchers::Contains;
using grpc::StatusCode;

// The TLS files of a daemon.
struct TlsFiles {
  TlsFiles() = default;
  explicit TlsFiles(const Issued& server) { Replace(server); }

  // One after the other, as tools do.
  void Replace(const Issued& server) const {
    ReplaceFile(cert, server.cert);
    ReplaceFile(key, server.key);
  }
  std::vector<std::string> Flags(
      const std::vector<std::string>& more = {}) const {
    std::vector<std::string> flags = {"--tls_cert_file=" + cert.string(),
                                      "--tls_key_file=" + key.string()};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  std::vector<std::string> FlagsWithClients(
      const std::string& authorities,
      const std::vector<std::string>& more = {}) const {
    ReplaceFile(client_ca, authorities);
    std::vector<std::string> flags = Flags(more);
    flags.push_back("--tls_client_ca_file=" + client_ca.string());
    return flags;
  }

  TempDir directory;
  const std::filesystem::path cert = directory.path() / "tls.crt";
  const std::filesystem::path key = directory.path() / "tls.key";
  const std::filesystem::path client_ca = directory.path() / "ca.crt";
};

grpc::Status PingAs(const Daemon& daemon, const Identity& identity) {
  return SecureClient(daemon.address(), identity).Ping();
}

TEST_CASE("TLS: a client that trusts the daemon's authority plans",
          "[server][security]") {
  CertificateAuthority ca("ca");
  CertificateAuthority other("ca");  // the same name, another key
  const TlsFiles files(ca.IssueServer());
  const Daemon daemon(files.Flags());
  SecureClient client(daemon.address(), {.ca = ca.cert()});
  v1::CreateJobRequest create;
  create.set_name("run");
  *create.mutable_spec() = SmallSpec(2, 2, 1000);
  REQUIRE(client.Call("CreateJob", create).ok());
  CHECK(client.Call("PlanBatch", Batch("run", 1, {1, 2, 3})).ok());
  CHECK(client.StreamOne(Batch("run", 2, {1, 2, 3})).ok());

  // Nobody else's word is taken for it, nor its word for another name.
  CHECK(PingAs(daemon, {}).error_code() == StatusCode::UNAVAILABLE);
  CHECK(PingAs(daemon, {.ca = other.cert()}).error_code() ==
        StatusCode::UNAVAILABLE);
  CHECK(PingAs(daemon, {.ca = ca.cert(), .server_name = "elsewhere"})
            .error_code() == StatusCode::UNAVAILABLE);
  CHECK(PingAs(daemon, {.ca = ca.cert(), .server_name = "localhost"}).ok());
  // What gRPC has to say of failed handshakes is a line of the log, too.
  CHECK(Eventually([&] {
    return daemon.Output().find(" warning grpc message=") != std::string::npos;
  }));
  CHECK_THAT(daemon.Output(), !Contains("\nE"));
  const double expiry =
      daemon.Metric("skrull_tls_certificate_expiry_timestamp_seconds");
  const auto now = static_cast<double>(::time(nullptr));
  CHECK(expiry > now + 3600.0 * 23);
  CHECK(expiry < now + 3600.0 * 25);
}

TEST_CASE("TLS: clients show certificates where they are asked for",
          "[server][security]") {
  CertificateAuthority ca("servers");
  CertificateAuthority clients("clients");
  CertificateAuthority strangers("clients");
  const TlsFiles files(ca.IssueServer());
  const Issued good = clients.Issue({.common_name = "alice"});
  const Issued strange = strangers.Issue({.common_name = "alice"});
  const Issued expired = clients.Issue(
      {.common_name = "alice", .ends = std::chrono::seconds(-60)});
  const Issued early = clients.Issue(
      {.common_name = "alice", .begins = std::chrono::seconds(3600)});
  for (const std::string mode : {"required", "optional"}) {
    CAPTURE(mode);
    const Daemon daemon(files.FlagsWithClients(
        clients.cert(), {"--tls_client_certificates=" + mode}));
    const auto with = [&](const Issued& issued) {
      return PingAs(daemon,
                    {.ca = ca.cert(), .cert = issued.cert, .key = issued.key});
    };
    CHECK(with(good).ok());
    CHECK(with(strange).error_code() == StatusCode::UNAVAILABLE);
    CHECK(with(expired).error_code() == StatusCode::UNAVAILABLE);
    CHECK(with(early).error_code() == StatusCode::UNAVAILABLE);
    CHECK(PingAs(daemon, {.ca = ca.cert()}).ok() == (mode == "optional"));
  }
}

TEST_CASE("TLS: callers are told apart by certificate or by token",
          "[server][security]") {
  CertificateAuthority ca("servers");
  CertificateAuthority clients("clients");
  const TlsFiles files(ca.IssueServer());
  const std::string token = "alice-0123456789-token";
  const auto auth = files.directory.path() / "auth";
  ReplaceFile(auth, AuthLine("alice", "owner", token) +
                        "spiffe://ml/train owner cert\n"
                        "trainer.example owner cert\n"
                        "ops reader cert\n");
  const Daemon daemon(files.FlagsWithClients(
      clients.cert(),
      {"--tls_client_certificates=optional", "--auth_file=" + auth.string()}));
  int jobs = 0;
  // The owner of a job that this caller makes; what the refusal is, if not.
  const auto owner = [&](const Issued& issued, const std::string& shown) {
    SecureClient client(daemon.address(), {.ca = ca.cert(),
                                           .cert = issued.cert,
                                           .key = issued.key,
                                           .token = shown});
    v1::CreateJobRequest create;
    create.set_name("run" + std::to_string(++jobs));
    *create.mutable_spec() = SmallSpec(1, 1, 1000);
    v1::Job job;
    const grpc::Status status = client.Call("CreateJob", create, &job);
    return status.ok() ? job.owner() : DetailOf(status).reason();
  };
  const auto issue = [&](const std::string& name, const std::string& more) {
    return clients.Issue({.common_name = name, .alternative_names = more});
  };
  CHECK(owner({}, token) == "alice");
  CHECK(owner({}, "") == "UNAUTHENTICATED");
  CHECK(owner(issue("ops", ""), "") == "PERMISSION_DENIED");
  CHECK(owner(issue("ops", ""), token) == "alice");
  CHECK(owner(issue("x", "URI:spiffe://ml/train"), "") == "spiffe://ml/train");
  CHECK(owner(issue("x", "DNS:trainer.example"), "") == "trainer.example");
  // URIs come before DNS names, and those before the common name.
  CHECK(owner(issue("ops", "DNS:trainer.example,URI:spiffe://ml/train"), "") ==
        "spiffe://ml/train");
  CHECK(owner(issue("ops", "DNS:trainer.example"), "") == "trainer.example");
  // Known by token alone; not known; a name of another kind.
  CHECK(owner(issue("alice", ""), "") == "UNAUTHENTICATED");
  CHECK(owner(issue("mallory", ""), "") == "UNAUTHENTICATED");
  CHECK(owner(issue("x", "email:ops@example.org"), "") == "UNAUTHENTICATED");
  CHECK(owner(issue("ops", ""), "unknown-0123456789-token") ==
        "UNAUTHENTICATED");
}

TEST_CASE("TLS: files change under load, and no call fails",
          "[server][security]") {
  CertificateAuthority first("first");
  CertificateAuthority second("second");
  const TlsFiles files(first.IssueServer());
  const Daemon daemon(files.Flags());
  const Identity both{.ca = first.cert() + second.cert()};

  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  std::atomic<int> failures = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      SecureClient lasting(daemon.address(), both);
      while (!stop) {
        // A handshake a call, or a connection that lasts.
        const grpc::Status status =
            i == 0 ? lasting.Ping() : PingAs(daemon, both);
        ++calls;
        if (!status.ok()) ++failures;
      }
    });
  }
  const auto serves = [&](const CertificateAuthority& ca) {
    return PingAs(daemon, {.ca = ca.cert()}).ok();
  };
  CHECK(serves(first));
  CHECK_FALSE(serves(second));
  for (int round = 0; round < 2; ++round) {
    CertificateAuthority& next = round % 2 == 0 ? second : first;
    files.Replace(next.IssueServer());
    CHECK(Eventually([&] { return serves(next); }));
    CHECK_FALSE(serves(round % 2 == 0 ? first : second));
  }
  // Files that do not fit together, or are no certificates, are told of and
  // change nothing.
  const auto output_has = [&](const std::string& text) {
    return Eventually(
        [&] { return daemon.Output().find(text) != std::string::npos; });
  };
  const Issued renewed = first.IssueServer();
  ReplaceFile(files.cert, renewed.cert);
  CHECK(output_has("its key is not that of the first certificate"));
  CHECK(serves(first));
  ReplaceFile(files.cert, renewed.cert.substr(0, renewed.cert.size() / 2));
  CHECK(output_has("is not a PEM certificate"));
  std::filesystem::remove(files.key);
  CHECK(output_has("cannot be read: No such file"));
  CHECK(serves(first));
  files.Replace(first.Issue({.common_name = "skrulld",
                             .alternative_names = "IP:127.0.0.1",
                             .ends = std::chrono::seconds(-60)}));
  CHECK(output_has("its certificate has expired"));
  CHECK(serves(first));

  const int before = calls;
  CHECK(Eventually([&] { return calls > before + 20; }));
  stop = true;
  threads.clear();
  CHECK(failures == 0);
}

TEST_CASE("TLS: whom to trust changes without a restart",
          "[server][security]") {
  CertificateAuthority ca("ca");
  CertificateAuthority old_clients("old");
  CertificateAuthority new_clients("new");
  const TlsFiles files(ca.IssueServer());
  const Daemon daemon(files.FlagsWithClients(old_clients.cert()));
  const Issued before = old_clients.Issue({.common_name = "alice"});
  const Issued after = new_clients.Issue({.common_name = "alice"});
  const auto let_in = [&](const Issued& issued) {
    return PingAs(daemon,
                  {.ca = ca.cert(), .cert = issued.cert, .key = issued.key})
        .ok();
  };
  CHECK(let_in(before));
  CHECK_FALSE(let_in(after));
  ReplaceFile(files.client_ca, new_clients.cert());
  CHECK(Eventually([&] { return let_in(after); }));
  CHECK_FALSE(let_in(before));
  // An empty file does not open the door.
  ReplaceFile(files.client_ca, "");
  CHECK(Eventually([&] {
    return daemon.Output().find("tls_client_ca_file: holds no PEM") !=
           std::string::npos;
  }));
  CHECK(let_in(after));
  CHECK_FALSE(PingAs(daemon, {.ca = ca.cert()}).ok());
}

TEST_CASE("TLS: nothing older than TLS 1.2", "[server][security]") {
  CertificateAuthority ca("ca");
  const TlsFiles files(ca.IssueServer());
  const Daemon daemon(files.Flags());
  const auto connects = [&](int version) {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0);  // or OpenSSL itself refuses 1.1
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    const unsigned char http2[] = {2, 'h', '2'};
    SSL_CTX_set_alpn_protos(context, http2, sizeof http2);
    BIO* const bio = BIO_new_ssl_connect(context);
    BIO_set_conn_hostname(bio, daemon.address().c_str());
    const bool done = BIO_do_connect(bio) == 1 && BIO_do_handshake(bio) == 1;
    BIO_free_all(bio);
    SSL_CTX_free(context);
    return done;
  };
  CHECK(connects(TLS1_3_VERSION));
  CHECK(connects(TLS1_2_VERSION));
  CHECK_FALSE(connects(TLS1_1_VERSION));
}

TEST_CASE("TLS: what cannot be served stops the start, and says why",
          "[server][security]") {
  CertificateAuthority ca("ca");
  const Issued server = ca.IssueServer();
  const TlsFiles files(server);
  const auto refusal = [&](const std::vector<std::string>& flags,
                           int exit_status) {
    std::vector<std::string> argv = {DaemonPath(),
                                     "--listen_address=127.0.0.1:0",
                                     "--metrics_address=127.0.0.1:0"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    Process process(argv);
    CHECK(process.Wait() == exit_status);
    CHECK_THAT(process.Output(), !Contains("listening on"));
    CHECK_THAT(process.Output(), !Contains("PRIVATE"));
    return process.Output();
  };
  CHECK_THAT(refusal({"--listen_address=0.0.0.0:0"}, 2),
             Contains("listen_address: ") && Contains("allow_plaintext"));
  CHECK_THAT(refusal({"--listen_address=[::]:0", "--auth_file=x",
                      "--allow_plaintext=true"},
                     2),
             Contains("auth_file: "));
  CHECK_THAT(refusal({"--tls_cert_file=x"}, 2), Contains("tls_key_file"));
  CHECK_THAT(refusal({"--tls_cert_file=/no/such", "--tls_key_file=x"}, 1),
             Contains("/no/such: cannot be read"));
  CHECK_THAT(refusal({"--auth_file=/no/such"}, 1),
             Contains("/no/such: cannot be read"));
  ReplaceFile(files.key, ca.IssueServer().key);
  CHECK_THAT(refusal(files.Flags(), 1), Contains("tls_key_file: its key"));
  ReplaceFile(files.key, WithPassphrase(server.key, "sesame"));
  CHECK_THAT(refusal(files.Flags(), 1), Contains("passphrase"));
  files.Replace(
      ca.Issue({.common_name = "x", .ends = std::chrono::seconds(-60)}));
  CHECK_THAT(refusal(files.Flags(), 1), Contains("expired"));
  files.Replace(server);
  CHECK_THAT(refusal(files.FlagsWithClients("nothing"), 1),
             Contains("tls_client_ca_file: "));
  const auto auth = files.directory.path() / "auth";
  ReplaceFile(auth, "ops admin cert\n");
  CHECK_THAT(refusal(files.Flags({"--auth_file=" + auth.string()}), 1),
             Contains("tls_client_ca_file: is empty"));
  ReplaceFile(auth, "ops admin sesame\n");
  CHECK_THAT(refusal({"--auth_file=" + auth.string()}, 1),
             Contains("auth line 1") && !Contains("sesame"));
}

// An address that reaches this machine alone, though the daemon cannot tell.
TEST_CASE("TLS: plaintext beyond what is known to be local has to be asked for",
          "[server][security]") {
  const Daemon daemon({"--listen_address=127.1:0", "--allow_plaintext=true"});
  const std::string port = daemon.address().substr(daemon.address().rfind(':'));
  CHECK(SecureClient("127.0.0.1" + port, {}).Ping().ok());
}

}  // namespace
}  // namespace skrull::testing
