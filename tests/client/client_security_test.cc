// The client and skrullctl, and a real daemon that asks who calls.
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "skrull/client/planner_client.h"
#include "skrull/server/auth/auth_table.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/certificates.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using testing::CertificateAuthority;
using testing::CliResult;
using testing::Daemon;
using testing::Issued;
using testing::ReplaceFile;
using testing::RunCli;
using testing::TempDir;

// What `skrullctl token new` made.
struct NewToken {
  std::string token;  // the file that holds it
  std::string line;   // of the auth file
};

NewToken TokenOf(const TempDir& directory, const std::string& subject,
                 const std::string& role) {
  const std::string path = (directory.path() / (subject + ".token")).string();
  const CliResult made = RunCli({"token", "new", subject, role, "--out", path});
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  return {.token = path, .line = made.out};
}

// A daemon with TLS that asks for tokens; certificates of clients it takes.
struct Secured {
  Secured() {
    const Issued server = ca.Issue(
        {.common_name = "skrulld", .alternative_names = "DNS:planner.example"});
    const Issued client = clients.Issue({.common_name = "bob"});
    ReplaceFile(path("ca.crt"), ca.cert());
    ReplaceFile(path("tls.crt"), server.cert);
    ReplaceFile(path("tls.key"), server.key);
    ReplaceFile(path("clients.crt"), clients.cert());
    ReplaceFile(path("bob.crt"), client.cert);
    ReplaceFile(path("bob.key"), client.key);
    ReplaceFile(path("auth"), alice.line + "bob owner cert\n");
    daemon = std::make_unique<Daemon>(std::vector<std::string>{
        "--tls_cert_file=" + path("tls.crt"),
        "--tls_key_file=" + path("tls.key"),
        "--tls_client_ca_file=" + path("clients.crt"),
        "--tls_client_certificates=optional", "--auth_file=" + path("auth")});
  }

  std::string path(const std::string& name) const {
    return (directory.path() / name).string();
  }
  // Options that let alice in.
  ClientOptions AliceOptions() const {
    ClientOptions options{.address = daemon->address()};
    options.tls_ca_file = path("ca.crt");
    options.tls_server_name = "planner.example";
    options.token_file = alice.token;
    return options;
  }

  TempDir directory;
  CertificateAuthority ca{"ca"};
  CertificateAuthority clients{"clients"};
  const NewToken alice = TokenOf(directory, "alice", "owner");
  std::unique_ptr<Daemon> daemon;
};

constexpr char kSpec[] =
    "model { hidden_size: 64 layer_count: 2 attention_head_count: 4 }"
    "parallelism { dp_size: 1 cp_size: 2 }"
    "memory { bucket_size_tokens: 1000 }";

std::unique_ptr<PlannerClient> ClientOf(const ClientOptions& options) {
  absl::StatusOr<std::unique_ptr<PlannerClient>> client =
      PlannerClient::Create(options);
  INFO(client.status());
  REQUIRE(client.ok());
  return *std::move(client);
}

TEST_CASE("PlannerClient: plans over TLS, known by token or certificate",
          "[client][security]") {
  const Secured secured;
  const auto alice = ClientOf(secured.AliceOptions());
  REQUIRE(alice->CreateJob("run", kSpec).ok());
  CHECK(alice->PlanBatch({.job = "run", .step = 1, .lengths = {1, 2}}).ok());
  const auto stream = alice->StreamPlans({.job = "run"});
  REQUIRE(stream.ok());
  REQUIRE((*stream)->Send(2, {3, 4}).ok());
  const auto streamed = (*stream)->Next();
  REQUIRE(streamed.ok());
  CHECK(streamed->plan.ok());

  ClientOptions options = secured.AliceOptions();
  options.token_file.clear();
  options.tls_cert_file = secured.path("bob.crt");
  options.tls_key_file = secured.path("bob.key");
  const auto bob = ClientOf(options);
  CHECK(bob->CreateJob("bobs", kSpec).ok());
  const absl::Status denied =
      bob->PlanBatch({.job = "run", .step = 1, .lengths = {1, 2}}).status();
  CHECK(denied.code() == absl::StatusCode::kPermissionDenied);
  REQUIRE(GetRefusalDetail(denied).has_value());
  CHECK(GetRefusalDetail(denied)->reason == "PERMISSION_DENIED");
}

TEST_CASE("PlannerClient: trusts no other daemon, and tells no secret",
          "[client][security]") {
  const Secured secured;
  ClientOptions options = secured.AliceOptions();
  options.unreachable_after = std::chrono::milliseconds(0);
  options.tls_server_name = "elsewhere.example";
  CHECK(absl::IsUnavailable(ClientOf(options)->ListJobs().status()));
  // The daemon speaks TLS, so plaintext gets nowhere.
  ClientOptions plain{.address = secured.daemon->address()};
  plain.unreachable_after = options.unreachable_after;
  CHECK(absl::IsUnavailable(ClientOf(plain)->ListJobs().status()));

  options = secured.AliceOptions();
  options.token_file.clear();
  options.token = "wrong-0123456789-token";
  const absl::Status refused = ClientOf(options)->ListJobs().status();
  CHECK(refused.code() == absl::StatusCode::kUnauthenticated);
  CHECK_THAT(std::string(refused.message()), !Contains("wrong"));
}

TEST_CASE("PlannerClient: reads its token again when the file changes",
          "[client][security]") {
  const Secured secured;
  const auto alice = ClientOf(secured.AliceOptions());
  REQUIRE(alice->ListJobs().ok());
  const std::string good = testing::ReadFile(secured.alice.token);
  ReplaceFile(secured.alice.token, "another-0123456789-token\n");
  CHECK(alice->ListJobs().status().code() ==
        absl::StatusCode::kUnauthenticated);
  ReplaceFile(secured.alice.token, good);
  CHECK(alice->ListJobs().ok());
  // While there is no token in it, the last one stands.
  ReplaceFile(secured.alice.token, "\n");
  CHECK(alice->ListJobs().ok());
  std::filesystem::remove(secured.alice.token);
  CHECK(alice->ListJobs().ok());
}

TEST_CASE("PlannerClient: names the option of security that is wrong",
          "[client][security]") {
  TempDir directory;
  const std::string empty = (directory.path() / "empty").string();
  const std::string blank = (directory.path() / "blank").string();
  ReplaceFile(empty, "");
  ReplaceFile(blank, "two words");
  const auto refusal = [](const ClientOptions& options) {
    const absl::Status status = PlannerClient::Create(options).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto far = [] { return ClientOptions{.address = "planner.example:1"}; };
  ClientOptions options = far();
  options.token = "sesame-0123456789-token";
  CHECK_THAT(refusal(options), StartsWith("tls_ca_file: ") &&
                                   Contains("planner.example:1") &&
                                   !Contains("sesame"));
  options.allow_plaintext_token = true;
  CHECK(PlannerClient::Create(options).ok());
  options.allow_plaintext_token = false;
  options.address = "127.0.0.1:1";
  CHECK(PlannerClient::Create(options).ok());
  options.token = "sesame\nsesame";
  CHECK_THAT(refusal(options), StartsWith("token: ") && !Contains("sesame"));
  options.token = "a";
  options.token_file = "b";
  CHECK_THAT(refusal(options), StartsWith("token_file: "));
  options.token.clear();
  CHECK_THAT(refusal(options), StartsWith("token_file: cannot read b"));
  options.token_file = empty;
  CHECK_THAT(refusal(options), StartsWith("token_file: "));
  options.token_file = blank;
  CHECK_THAT(refusal(options), StartsWith("token_file: ") && !Contains("two"));
  options = far();
  options.tls_cert_file = "c";
  CHECK_THAT(refusal(options), StartsWith("tls_key_file: "));
  options.tls_key_file = "k";
  CHECK_THAT(refusal(options), StartsWith("tls_ca_file: "));
  options = far();
  options.tls_server_name = "n";
  CHECK_THAT(refusal(options), StartsWith("tls_ca_file: "));
  options.tls_ca_file = "/no/such";
  CHECK_THAT(refusal(options), StartsWith("tls_ca_file: cannot read /no/such"));
  // gRPC would trust whom the system trusts.
  options.tls_ca_file = empty;
  CHECK_THAT(refusal(options), StartsWith("tls_ca_file: "));
}

TEST_CASE("skrullctl: shows the token and the certificate it is given",
          "[cli][security]") {
  const Secured secured;
  const std::vector<std::string> list = {"job",
                                         "list",
                                         "--server",
                                         secured.daemon->address(),
                                         "--tls-ca",
                                         secured.path("ca.crt"),
                                         "--tls-server-name",
                                         "planner.example"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = list;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  CHECK(RunCli(with({"--token-file", secured.alice.token})).exit_code == 0);
  CHECK(RunCli(with({"--tls-cert", secured.path("bob.crt"), "--tls-key",
                     secured.path("bob.key")}))
            .exit_code == 0);
  const CliResult nobody = RunCli(list);
  CHECK(nobody.exit_code == 1);
  CHECK_THAT(nobody.err, Contains("UNAUTHENTICATED"));
  CHECK(RunCli({"job", "list", "--tls-server-name", "planner.example"}, "",
               {{"SKRULL_SERVER", secured.daemon->address()},
                {"SKRULL_TLS_CA", secured.path("ca.crt")},
                {"SKRULL_TOKEN_FILE", secured.alice.token}})
            .exit_code == 0);
  const CliResult missing = RunCli(with({"--token-file", "/no/such"}));
  CHECK(missing.exit_code == 2);
  CHECK_THAT(missing.err, Contains("/no/such"));
}

TEST_CASE("skrullctl token new: a token, and the line that lets it in",
          "[cli][security]") {
  const CliResult shown = RunCli({"token", "new", "alice", "owner"});
  REQUIRE(shown.exit_code == 0);
  const std::vector<std::string> lines = testing::Lines(shown.out);
  REQUIRE(lines.size() == 4);
  CHECK_THAT(lines[1], StartsWith("skrull_"));
  CHECK(lines[1].size() >= 7 + 43);  // 256 bits
  const AuthTable table = AuthTable::Parse(lines[3], "auth").value();
  CHECK(table.FindToken(lines[1]) ==
        Caller{.subject = "alice", .role = Role::kOwner});
  CHECK(RunCli({"token", "new", "alice", "owner"}).out != shown.out);

  TempDir directory;
  const NewToken made = TokenOf(directory, "bob", "reader");
  namespace fs = std::filesystem;
  CHECK(fs::status(made.token).permissions() ==
        (fs::perms::owner_read | fs::perms::owner_write));
  const std::string token = testing::Lines(testing::ReadFile(made.token))[0];
  CHECK(
      AuthTable::Parse(made.line, "auth").value().FindToken(token).has_value());
  CHECK_THAT(made.line, !Contains(token));
  // A token that is in use is not written over.
  const CliResult again =
      RunCli({"token", "new", "bob", "reader", "--out", made.token});
  CHECK(again.exit_code == 2);
  CHECK(again.out.empty());
  CHECK_THAT(again.err, Contains("File exists"));
  CHECK(RunCli({"token", "new", "al ice", "owner"}).exit_code == 2);
  CHECK(RunCli({"token", "new", "alice", "king"}).exit_code == 2);
}

}  // namespace
}  // namespace skrull
