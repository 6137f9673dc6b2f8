// Who may do what, through a real daemon: every RPC, every kind of caller.
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "skrull/tests/server/security/secure_client.h"
#include "skrull/tests/server/service_test_util.h"
#include "skrull/tests/support/certificates.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::testing {
namespace {

constexpr char kAlice[] = "alice-0123456789-token";
constexpr char kBob[] = "bob-0123456789-token";
constexpr char kCarol[] = "carol-0123456789-token";
constexpr char kRoot[] = "root-0123456789-token";

std::string EveryoneText() {
  return AuthLine("alice", "owner", kAlice) + AuthLine("bob", "owner", kBob) +
         AuthLine("carol", "reader", kCarol) + AuthLine("root", "admin", kRoot);
}

// A daemon that knows everyone, with an auth file that can be changed.
struct Guarded {
  explicit Guarded(std::vector<std::string> flags = {}) {
    ReplaceFile(auth_file, EveryoneText());
    flags.push_back("--auth_file=" + auth_file.string());
    daemon = std::make_unique<Daemon>(flags);
  }

  std::unique_ptr<SecureClient> As(const std::string& token) const {
    return std::make_unique<SecureClient>(daemon->address(),
                                          Identity{.token = token});
  }

  TempDir directory;
  const std::filesystem::path auth_file = directory.path() / "auth";
  std::unique_ptr<Daemon> daemon;
};

v1::CreateJobRequest CreateRequest(const std::string& job) {
  v1::CreateJobRequest request;
  request.set_name(job);
  *request.mutable_spec() = SmallSpec(1, 2, 100);
  return request;
}

v1::PlanBatchRequest SpecBatch() {
  v1::PlanBatchRequest request = Batch("", 1, {1, 2});
  *request.mutable_job_spec() = SmallSpec(1, 2, 100);
  return request;
}

v1::ReportStepRequest Report(const std::string& job) {
  v1::ReportStepRequest request;
  request.set_job(job);
  request.mutable_report()->set_step(1);
  request.mutable_report()->set_outcome(v1::STEP_OUTCOME_OK);
  return request;
}

v1::RendezvousRequest Meeting(const std::string& job) {
  v1::RendezvousRequest request;
  request.set_job(job);
  request.set_key("nccl");
  request.set_size(1);
  request.set_offer("id");
  return request;
}

template <typename Request>
Request OfJob(const std::string& job) {
  Request request;
  request.set_job(job);
  return request;
}

template <typename Request>
Request Named(const std::string& job) {
  Request request;
  request.set_name(job);
  return request;
}

v1::GetRankPlanRequest Share(const std::string& job) {
  auto request = OfJob<v1::GetRankPlanRequest>(job);
  request.set_step(1);
  return request;
}

// 'U' and 'P' for the two refusals of this page, 'N' for a method that the
// daemon does not have, '+' for any other answer.
char Verdict(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    return DetailOf(status).reason() == "UNAUTHENTICATED" ? 'U' : '?';
  }
  if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
    return DetailOf(status).reason() == "PERMISSION_DENIED" ? 'P' : '?';
  }
  return status.error_code() == grpc::StatusCode::UNIMPLEMENTED ? 'N' : '+';
}

struct Row {
  std::string method;
  // Of callers without a token, with an unknown one, of the reader, of the
  // job's owner, of another owner, of the admin.
  std::string verdicts;
  std::function<grpc::Status(SecureClient*)> call;
};

std::vector<Row> RowsOf(const std::string& job) {
  const auto unary = [](const std::string& method, const auto& request) {
    return [method, request](SecureClient* client) {
      return client->Call(method, request);
    };
  };
  return {
      {"CreateJob", "UUP+P+", unary("CreateJob", CreateRequest(job))},
      {"GetJob", "UU++P+", unary("GetJob", Named<v1::GetJobRequest>(job))},
      {"ListJobs", "UU++++", unary("ListJobs", v1::ListJobsRequest())},
      {"PlanBatch", "UUP+P+", unary("PlanBatch", Batch(job, 1, {1, 2}))},
      {"PlanBatch", "UUP+++", unary("PlanBatch", SpecBatch())},
      {"StreamPlans", "UUP+P+",
       [job](SecureClient* client) {
         return client->StreamOne(Batch(job, 1, {1, 2}));
       }},
      {"StreamPlans", "UUP+++",
       [](SecureClient* client) { return client->StreamOne(SpecBatch()); }},
      {"GetRankPlan", "UUP+P+", unary("GetRankPlan", Share(job))},
      {"ReportStep", "UUP+P+", unary("ReportStep", Report(job))},
      {"Rendezvous", "UUP+P+", unary("Rendezvous", Meeting(job))},
      {"ListCalibrations", "UU++P+",
       unary("ListCalibrations", OfJob<v1::ListCalibrationsRequest>(job))},
      {"GetStatus", "UU++++", unary("GetStatus", v1::GetStatusRequest())},
      {"DeleteJob", "UUP+P+",
       unary("DeleteJob", Named<v1::DeleteJobRequest>(job))},
  };
}

TEST_CASE("Roles: every RPC asks who calls, and what he may do",
          "[server][security]") {
  const Guarded guarded;
  // What the admin made has an owner, too.
  const auto alice = guarded.As(kAlice);
  const auto root = guarded.As(kRoot);
  REQUIRE(root->Call("CreateJob", CreateRequest("roots")).ok());
  std::set<std::string> covered;
  for (const Row& row : RowsOf("alices")) {
    // The row before may have been that of a deletion.
    REQUIRE(alice->Call("CreateJob", CreateRequest("alices")).ok());
    REQUIRE(alice->Call("PlanBatch", Batch("alices", 1, {1, 2})).ok());
    covered.insert(row.method);
    std::string verdicts;
    std::string messages;
    // Owner and admin last: they may delete the job.
    for (const size_t i : {0U, 1U, 2U, 4U, 3U, 5U}) {
      const std::string tokens[] = {
          "", "unknown-0123456789-token", kCarol, kAlice, kBob, kRoot};
      verdicts.resize(6, '?');
      const grpc::Status status = row.call(guarded.As(tokens[i]).get());
      verdicts[i] = Verdict(status);
      messages += status.error_message() + "\n";
    }
    CAPTURE(row.method, messages);
    CHECK(verdicts == row.verdicts);
  }
  // An owner has no rights in an admin's job either.
  for (const Row& row : RowsOf("roots")) {
    if (row.verdicts[4] != 'P') continue;
    CAPTURE(row.method);
    CHECK(Verdict(row.call(alice.get())) == 'P');
  }
  // A method that is new has a row here, or fails this test.
  const auto* service =
      v1::CreateJobRequest::descriptor()->file()->FindServiceByName(
          "PlannerService");
  for (int i = 0; i < service->method_count(); ++i) {
    CAPTURE(service->method(i)->name());
    CHECK(covered.contains(service->method(i)->name()));
  }
}

TEST_CASE("Roles: jobs know their owner, and lists show what one may see",
          "[server][security]") {
  const Guarded guarded;
  const auto alice = guarded.As(kAlice);
  const auto bob = guarded.As(kBob);
  const auto root = guarded.As(kRoot);
  const auto names = [&](SecureClient* client) {
    std::vector<std::string> all;
    v1::ListJobsRequest request;
    request.set_page_size(1);
    v1::ListJobsResponse page;
    do {
      REQUIRE(client->Call("ListJobs", request, &page).ok());
      for (const v1::Job& job : page.jobs()) {
        all.push_back(job.owner() + "/" + job.name());
      }
      request.set_page_token(page.next_page_token());
    } while (!page.next_page_token().empty());
    return all;
  };
  v1::Job job;
  REQUIRE(alice->Call("CreateJob", CreateRequest("a1"), &job).ok());
  CHECK(job.owner() == "alice");
  REQUIRE(bob->Call("CreateJob", CreateRequest("b1")).ok());
  REQUIRE(bob->Call("CreateJob", CreateRequest("b2")).ok());
  REQUIRE(alice->Call("CreateJob", CreateRequest("c1")).ok());
  using Names = std::vector<std::string>;
  CHECK(names(alice.get()) == Names{"alice/a1", "alice/c1"});
  CHECK(names(bob.get()) == Names{"bob/b1", "bob/b2"});
  const Names all = {"alice/a1", "bob/b1", "bob/b2", "alice/c1"};
  CHECK(names(root.get()) == all);
  CHECK(names(guarded.As(kCarol).get()) == all);

  // The name of another's job is taken, whatever spec and generation are asked
  // for; an admin may join it, which changes no owner, or replace it.
  v1::CreateJobRequest other = CreateRequest("a1");
  other.mutable_spec()->mutable_parallelism()->set_dp_size(2);
  other.set_generation(7);
  CHECK(Verdict(bob->Call("CreateJob", other)) == 'P');
  REQUIRE(root->Call("CreateJob", CreateRequest("a1"), &job).ok());
  CHECK(job.owner() == "alice");
  REQUIRE(root->Call("CreateJob", other, &job).ok());
  CHECK(job.owner() == "root");
  CHECK(Verdict(alice->Call("GetJob", Named<v1::GetJobRequest>("a1"))) == 'P');
}

TEST_CASE("Roles: without an auth file everyone is admin, and nobody an owner",
          "[server][security]") {
  Daemon daemon;
  SecureClient client(daemon.address(), {});
  SecureClient other(daemon.address(),
                     {.authorization = {"Bearer whatever", "Basic x"}});
  v1::Job job;
  REQUIRE(client.Call("CreateJob", CreateRequest("run"), &job).ok());
  CHECK(job.owner().empty());
  CHECK(other.Call("PlanBatch", Batch("run", 1, {1, 2})).ok());
  CHECK(other.Call("DeleteJob", Named<v1::DeleteJobRequest>("run")).ok());
}

TEST_CASE("Roles: jobs from before the auth file are the admins' alone",
          "[server][security]") {
  TempDir directory;
  const std::string store =
      "--store=sqlite:" + (directory.path() / "store.db").string();
  {
    Daemon daemon({store});
    REQUIRE(SecureClient(daemon.address(), {})
                .Call("CreateJob", CreateRequest("old"))
                .ok());
    daemon.Terminate();
    REQUIRE(daemon.Wait() == 0);
  }
  const Guarded guarded({store});
  REQUIRE(guarded.As(kAlice)->Call("CreateJob", CreateRequest("new")).ok());
  const auto get = [&](const std::string& token, const std::string& job) {
    return Verdict(
        guarded.As(token)->Call("GetJob", Named<v1::GetJobRequest>(job)));
  };
  CHECK(get(kAlice, "old") == 'P');
  CHECK(get(kCarol, "old") == '+');
  CHECK(get(kRoot, "old") == '+');
  CHECK(get(kAlice, "new") == '+');
}

TEST_CASE("Roles: no shape of authorization lets a stranger in",
          "[server][security]") {
  const Guarded guarded;
  const std::string good = std::string("Bearer ") + kRoot;
  for (const std::vector<std::string>& values :
       std::vector<std::vector<std::string>>{
           {""},
           {"Bearer"},
           {"Bearer "},
           {kRoot},
           {std::string("Basic ") + kRoot},
           {std::string("Bearer,") + kRoot},
           {good + "x"},
           {good.substr(0, good.size() - 1)},
           {good + "," + good},
           {good, good},
           {good, "Bearer other-0123456789-token"},
           {std::string("Bearer ") + std::string(8000, 'a')}}) {
    SecureClient client(guarded.daemon->address(), {.authorization = values});
    INFO(values.front());
    CHECK(Verdict(client.Ping()) == 'U');
    CHECK(Verdict(client.StreamOne(SpecBatch())) == 'U');
  }
  // Refused before the request is looked at, whatever its size and form.
  SecureClient stranger(guarded.daemon->address(), {});
  v1::PlanBatchRequest batch = SpecBatch();
  batch.mutable_lengths()->Resize(1 << 20, 7);
  CHECK(Verdict(stranger.Call("PlanBatch", batch)) == 'U');
  CHECK(Verdict(stranger.Call("PlanBatch", CreateRequest("run"))) == 'U');
  SecureClient owner(guarded.daemon->address(), {.authorization = {good}});
  CHECK(owner.Ping().ok());
}

TEST_CASE("Roles: a changed auth file takes effect, a wrong one does not",
          "[server][security]") {
  const Guarded guarded;
  const auto alice = guarded.As(kAlice);
  REQUIRE(alice->Call("CreateJob", CreateRequest("run")).ok());
  grpc::ClientContext context;
  alice->Prepare(&context);
  const auto stream = alice->stub().StreamPlans(&context);
  const auto stream_code = [&](int64_t step) {
    v1::StreamPlansRequest request;
    *request.mutable_batch() = Batch("run", step, {1, 2});
    v1::StreamPlansResponse response;
    REQUIRE(stream->Write(request));
    REQUIRE(stream->Read(&response));
    return response.status().code();
  };
  CHECK(stream_code(1) == 0);

  // Mistakes change nothing, and are told once.
  const auto refusals = [&] {
    const std::string output = guarded.daemon->Output();
    size_t count = 0;
    for (size_t at = 0;
         (at = output.find(" error reload_refused ", at)) != std::string::npos;
         ++at) {
      ++count;
    }
    return count;
  };
  ReplaceFile(guarded.auth_file, EveryoneText() + "dave owner " + kBob + "\n");
  REQUIRE(Eventually([&] { return refusals() == 1; }));
  CHECK_THAT(guarded.daemon->Output(), Catch::Matchers::Contains("line 5"));
  CHECK(alice->Ping().ok());
  std::filesystem::remove(guarded.auth_file);
  REQUIRE(Eventually([&] { return refusals() == 2; }));
  CHECK(alice->Ping().ok());

  // A new token beside the old one, then the new one alone: rotation.
  const std::string next = "alice-9876543210-token";
  ReplaceFile(guarded.auth_file,
              EveryoneText() + AuthLine("alice", "owner", next));
  const auto renewed = guarded.As(next);
  REQUIRE(Eventually([&] { return renewed->Ping().ok(); }));
  CHECK(alice->Ping().ok());
  CHECK(renewed->Call("PlanBatch", Batch("run", 9, {1, 2})).ok());
  ReplaceFile(guarded.auth_file, AuthLine("alice", "owner", next) +
                                     AuthLine("bob", "reader", kBob));
  REQUIRE(Eventually([&] { return Verdict(alice->Ping()) == 'U'; }));
  CHECK(renewed->Ping().ok());
  // The stream that was opened with the old token goes no further, and a role
  // that changed holds.
  CHECK(stream_code(2) == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(Verdict(guarded.As(kBob)->Call("CreateJob", CreateRequest("b"))) ==
        'P');
  CHECK(refusals() == 2);
}

TEST_CASE("Roles: tokens work over a Unix socket", "[server][security]") {
  TempDir directory;
  const std::string socket = "unix:" + (directory.path() / "s").string();
  const Guarded guarded({"--listen_address=" + socket});
  CHECK(guarded.daemon->address() == socket);
  CHECK(guarded.As(kAlice)->Ping().ok());
  CHECK(Verdict(guarded.As("")->Ping()) == 'U');
}

TEST_CASE("Roles: health needs no token", "[server][security]") {
  const Guarded guarded;
  // An empty HealthCheckRequest asks for the whole daemon.
  CHECK(guarded.As("")
            ->Call("/grpc.health.v1.Health/Check", v1::ListJobsRequest())
            .ok());
}

}  // namespace
}  // namespace skrull::testing
