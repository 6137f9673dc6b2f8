// What a daemon writes, and shows, holds no secret.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "skrull/server/convert.h"
#include "skrull/tests/server/security/secure_client.h"
#include "skrull/tests/server/service_test_util.h"
#include "skrull/tests/support/certificates.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::testing {
namespace {

using Catch::Matchers::Contains;

// Lines of a PEM block, without its frame.
std::vector<std::string> PemLines(const std::string& pem) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end = 0; begin < pem.size(); begin = end + 1) {
    end = std::min(pem.find('\n', begin), pem.size());
    const std::string line = pem.substr(begin, end - begin);
    if (line.size() > 8 && !line.starts_with("-----")) lines.push_back(line);
  }
  return lines;
}

TEST_CASE("Secrets: none in logs, errors and metrics, whatever is called",
          "[server][security]") {
  CertificateAuthority ca("servers");
  CertificateAuthority clients("clients");
  const Issued server = ca.IssueServer();
  const Issued client = clients.Issue({.common_name = "alice"});
  const std::string token = "skrull_alice-0123456789-token";
  const std::string wrong = "skrull_wrong-0123456789-token";
  TempDir directory;
  const auto path = [&](const std::string& name, const std::string& text) {
    ReplaceFile(directory.path() / name, text);
    return (directory.path() / name).string();
  };
  const std::string auth = path("auth", AuthLine("alice", "owner", token));
  Daemon daemon({"--log_level=debug", "--auth_file=" + auth,
                 "--tls_cert_file=" + path("crt", server.cert),
                 "--tls_key_file=" + path("key", server.key),
                 "--tls_client_ca_file=" + path("ca", clients.cert())});
  std::string errors;
  const auto client_with = [&](const std::vector<std::string>& authorization) {
    return SecureClient(daemon.address(), {.ca = ca.cert(),
                                           .cert = client.cert,
                                           .key = client.key,
                                           .authorization = authorization});
  };
  for (const std::vector<std::string>& shown :
       std::vector<std::vector<std::string>>{{"Bearer " + token},
                                             {"Bearer " + wrong},
                                             {"Basic " + wrong},
                                             {wrong},
                                             {"Bearer " + token, wrong},
                                             {}}) {
    SecureClient caller = client_with(shown);
    v1::CreateJobRequest create;
    create.set_name("run");
    *create.mutable_spec() = SmallSpec(1, 2, 100);
    v1::GetJobRequest get;
    get.set_name("run");
    v1::ReportStepRequest report;
    report.set_job("run");
    report.mutable_report()->set_outcome(v1::STEP_OUTCOME_OUT_OF_MEMORY);
    v1::GetRankPlanRequest share;
    share.set_job("run");
    share.set_step(1);
    v1::PlanBatchRequest bad = Batch("run", 2, {1, 0, 1000});
    for (const grpc::Status& status :
         {caller.Call("CreateJob", create), caller.Call("GetJob", get),
          caller.Ping(), caller.Call("PlanBatch", Batch("run", 1, {1, 2})),
          caller.Call("PlanBatch", bad), caller.StreamOne(bad),
          caller.Call("ReportStep", report),
          caller.Call("GetStatus", v1::GetStatusRequest()),
          caller.Call("GetRankPlan", share)}) {
      errors += status.error_message() + status.error_details();
    }
  }
  // Files with mistakes, of which one holds a token where its hash should be.
  ReplaceFile(auth, "alice owner " + token + "\n");
  ReplaceFile(directory.path() / "key", server.key + wrong);
  ReplaceFile(directory.path() / "crt", server.key);
  REQUIRE(Eventually([&] {
    const std::string output = daemon.Output();
    const size_t first = output.find("reload_refused");
    return first != std::string::npos &&
           output.find("reload_refused", first + 1) != std::string::npos;
  }));
  const std::string page = daemon.Scrape();
  daemon.Terminate();
  CHECK(daemon.Wait() == 0);

  std::vector<std::string> secrets = {token, wrong, Sha256Hex(token),
                                      "PRIVATE"};
  for (const std::string& line : PemLines(server.key)) secrets.push_back(line);
  REQUIRE(secrets.size() >= 6);
  // The log is there, and tells who calls at most by name.
  CHECK_THAT(daemon.Output(), Contains("started"));
  for (const std::string& secret : secrets) {
    CAPTURE(secret);
    CHECK(daemon.Output().find(secret) == std::string::npos);
    CHECK(page.find(secret) == std::string::npos);
    CHECK(errors.find(secret) == std::string::npos);
  }
}

}  // namespace
}  // namespace skrull::testing
