// The client against a real daemon: same bytes as in process, restarts, errors.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <thread>

#include "skrull/client/local_planner.h"
#include "skrull/client/planner_client.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"
#include "skrull/v1/plan.pb.h"

namespace skrull {
namespace {

using std::chrono::seconds;
using testing::Daemon;
using testing::TempDir;

std::string SpecText() {
  return testing::ReadFile(testing::ExampleJob("qwen2.5-0.5b"));
}

std::unique_ptr<PlannerClient> ClientOf(const std::string& address) {
  auto client = PlannerClient::Create({.address = address});
  REQUIRE(client.ok());
  return *std::move(client);
}

std::vector<int64_t> LengthsOf(int64_t step) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 64; ++i) {
    lengths.push_back(1 + (i * 7919 + step * 104729) % 4000);
  }
  lengths[static_cast<size_t>(step % 64)] = 78'000;
  return lengths;
}

PlanResult InProcess(int64_t step) {
  const auto planner = LocalPlanner::Create(SpecText());
  REQUIRE(planner.ok());
  const auto plan = (*planner)->PlanBatch(
      {.job = "run7", .step = step, .lengths = LengthsOf(step)});
  REQUIRE(plan.ok());
  return *plan;
}

TEST_CASE("PlannerClient: a daemon's plan is the one made in process",
          "[client][daemon]") {
  Daemon daemon;
  const auto client = ClientOf(daemon.address());
  const absl::StatusOr<JobInfo> job = client->CreateJob("run7", SpecText());
  REQUIRE(job.ok());
  CHECK(job->generation == 1);
  // The text it prints is the same job.
  CHECK(client->CreateJob("run7", job->job_spec_text).ok());

  for (int64_t step = 0; step < 3; ++step) {
    const absl::StatusOr<PlanResult> plan = client->PlanBatch(
        {.job = "run7", .step = step, .lengths = LengthsOf(step)});
    REQUIRE(plan.ok());
    const PlanResult local = InProcess(step);
    CHECK(plan->plan_bytes == local.plan_bytes);
    CHECK(plan->digest == local.digest);
    CHECK(plan->figures == local.figures);
    CHECK(plan->committed);
    CHECK_FALSE(local.committed);
    CHECK(plan->planning_seconds);

    for (int32_t rank = 0; rank < 32; ++rank) {
      const absl::StatusOr<RankPlan> asked =
          client->GetRankPlan({.job = "run7", .step = step, .rank = rank});
      const absl::StatusOr<RankPlan> derived = RankPlanOf(*plan, rank);
      REQUIRE(asked.ok());
      REQUIRE(derived.ok());
      REQUIRE(*asked == *derived);
    }
  }
}

TEST_CASE("PlannerClient: a daemon's chunks are those made in process",
          "[client][daemon]") {
  Daemon daemon;
  const auto client = ClientOf(daemon.address());
  REQUIRE(client->CreateJob("run7", SpecText()).ok());
  // No block of the job holds the longest.
  std::vector<int64_t> lengths = LengthsOf(0);
  lengths.push_back(1'643'000);
  CHECK(absl::IsFailedPrecondition(
      client->PlanBatch({.job = "run7", .lengths = lengths}).status()));
  const std::string policy = "POLICY_CHUNK_FLOW";
  const absl::StatusOr<PlanResult> plan =
      client->PlanBatch({.job = "run7", .lengths = lengths, .policy = policy});
  REQUIRE(plan.ok());
  CHECK(plan->policy == policy);
  CHECK(plan->committed);
  const auto planner = LocalPlanner::Create(SpecText());
  REQUIRE(planner.ok());
  const absl::StatusOr<PlanResult> local = (*planner)->PlanBatch(
      {.job = "run7", .lengths = lengths, .policy = policy});
  REQUIRE(local.ok());
  CHECK(plan->plan_bytes == local->plan_bytes);
  CHECK(plan->figures == local->figures);
  int64_t rows = 0;
  for (int32_t rank = 0; rank < 32; ++rank) {
    const absl::StatusOr<RankPlan> asked =
        client->GetRankPlan({.job = "run7", .rank = rank});
    const absl::StatusOr<RankPlan> derived = RankPlanOf(*local, rank);
    REQUIRE(asked.ok());
    REQUIRE(derived.ok());
    REQUIRE(*asked == *derived);
    REQUIRE(asked->chunk_plan.has_value());
    CHECK(asked->micro_batches.empty());
    // A DP rank may have no chunk at all.
    CHECK(asked->chunk_plan->operations.size() >=
          2 * asked->chunk_plan->chunks.size());
    for (const RankChunk& chunk : asked->chunk_plan->chunks) {
      rows += chunk.row_count;
    }
  }
  CHECK(rows == std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
}

TEST_CASE("PlannerClient: a daemon's refusals are those made in process",
          "[client][daemon]") {
  Daemon daemon;
  const auto client = ClientOf(daemon.address());
  const auto local = LocalPlanner::Create(SpecText());
  REQUIRE(local.ok());
  struct Row {
    std::vector<int64_t> lengths;
    int64_t step = 0;
    int32_t attempt = 0;
  };
  const std::vector<Row> rows = {{{}},
                                 {{5, 0, 7, -3}},
                                 {{int64_t{1} << 31}},
                                 {{1, 212'993, 5, 300'000}},
                                 {{1}, -1},
                                 {{1}, 0, 1001},
                                 {{1}, 0, -1}};
  for (const Row& row : rows) {
    const absl::Status asked = client
                                   ->PlanBatch({.job_spec_text = SpecText(),
                                                .step = row.step,
                                                .attempt = row.attempt,
                                                .lengths = row.lengths})
                                   .status();
    const absl::Status made = (*local)
                                  ->PlanBatch({.step = row.step,
                                               .attempt = row.attempt,
                                               .lengths = row.lengths})
                                  .status();
    INFO(asked << "\n" << made);
    CHECK_FALSE(asked.ok());
    CHECK(asked.code() == made.code());
    // The daemon's has the request's id at its end.
    CHECK_THAT(std::string(asked.message()),
               Catch::StartsWith(std::string(made.message()) + " (request "));
    CHECK(GetRefusalDetail(asked));
    CHECK(GetRefusalDetail(asked) == GetRefusalDetail(made));
  }
}

TEST_CASE("PlannerClient: errors about jobs and keys have their detail",
          "[client][daemon]") {
  Daemon daemon;
  const auto client = ClientOf(daemon.address());
  const auto reason = [](const absl::Status& status) {
    const auto detail = GetRefusalDetail(status);
    return detail ? detail->reason : "none";
  };
  CHECK(reason(client->GetJob("run7").status()) == "JOB_NOT_FOUND");
  REQUIRE(client->CreateJob("run7", SpecText()).ok());
  const absl::Status exists =
      client->CreateJob("run7", SpecText() + "labels { key: 'a' value: 'b' }")
          .status();
  CHECK(absl::IsAlreadyExists(exists));
  CHECK(reason(exists) == "JOB_EXISTS");
  REQUIRE(client->PlanBatch({.job = "run7", .lengths = {1, 2}}).ok());
  const absl::Status conflict =
      client->PlanBatch({.job = "run7", .lengths = {1, 3}}).status();
  CHECK(absl::IsFailedPrecondition(conflict));
  CHECK(reason(conflict) == "PLAN_CONFLICT");
  CHECK(
      reason(
          client->PlanBatch({.job = "run7", .generation = 9, .lengths = {1, 2}})
              .status()) == "GENERATION_MISMATCH");
  CHECK(absl::IsDeadlineExceeded(
      client
          ->GetRankPlan({.job = "run7", .step = 99},
                        {.timeout = std::chrono::milliseconds(50)})
          .status()));
  CHECK(client->ReportStep("run7", 1, {.step = 0, .step_seconds = 0.5}).ok());
  CHECK(client->ListJobs()->size() == 1);
  CHECK(client->DeleteJob("run7", 1).ok());
  CHECK(reason(client->DeleteJob("run7")) == "JOB_NOT_FOUND");
}

TEST_CASE("PlannerClient: survives a daemon that is killed and restarted",
          "[client][daemon]") {
  const TempDir directory;
  const std::string store =
      "--store=sqlite:" + (directory.path() / "skrull.db").string();
  auto daemon = std::make_unique<Daemon>(std::vector<std::string>{store});
  const std::string address = daemon->address();
  const auto client = ClientOf(address);
  REQUIRE(client->CreateJob("run7", SpecText()).ok());
  const auto stream = client->StreamPlans({.job = "run7", .generation = 1});
  REQUIRE(stream.ok());

  for (int64_t round = 0; round < 3; ++round) {
    const absl::StatusOr<PlanResult> before = client->PlanBatch(
        {.job = "run7", .step = round, .lengths = LengthsOf(round)});
    REQUIRE(before.ok());
    // Some batches are in flight when it dies, some are sent while it is away.
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t step = 100 + 10 * round + i;
      REQUIRE((*stream)->Send(step, LengthsOf(step)).ok());
    }
    daemon->Kill();
    for (int64_t i = 4; i < 8; ++i) {
      const int64_t step = 100 + 10 * round + i;
      REQUIRE((*stream)->Send(step, LengthsOf(step)).ok());
    }
    daemon = std::make_unique<Daemon>(
        std::vector<std::string>{store, "--listen_address=" + address});

    const absl::StatusOr<PlanResult> after = client->PlanBatch(
        {.job = "run7", .step = round, .lengths = LengthsOf(round)},
        {.timeout = seconds(5)});
    INFO(after.status());
    REQUIRE(after.ok());
    CHECK(after->plan_bytes == before->plan_bytes);
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t step = 100 + 10 * round + i;
      const absl::StatusOr<StreamedPlan> next = (*stream)->Next();
      INFO("step " << step << ": " << next.status());
      REQUIRE(next.ok());
      REQUIRE(next->step == step);
      INFO(next->plan.status());
      REQUIRE(next->plan.ok());
      CHECK(next->plan->plan_bytes == InProcess(step).plan_bytes);
    }
    CHECK((*stream)->pending() == 0);
  }
}

TEST_CASE("PlanStream: finds a restarted daemon without another call",
          "[client][daemon]") {
  const TempDir directory;
  const std::string store =
      "--store=sqlite:" + (directory.path() / "skrull.db").string();
  auto daemon = std::make_unique<Daemon>(std::vector<std::string>{store});
  const std::string address = daemon->address();
  const auto client = ClientOf(address);
  REQUIRE(client->CreateJob("run7", SpecText()).ok());
  const auto stream = client->StreamPlans({.job = "run7"});
  REQUIRE(stream.ok());
  for (int64_t step = 0; step < 3; ++step) {
    daemon->Kill();
    REQUIRE((*stream)->Send(step, LengthsOf(step)).ok());
    daemon = std::make_unique<Daemon>(
        std::vector<std::string>{store, "--listen_address=" + address});
    const absl::StatusOr<StreamedPlan> next = (*stream)->Next(seconds(5));
    INFO(next.status());
    REQUIRE(next.ok());
    CHECK(next->plan.ok());
  }
}

TEST_CASE("PlannerClient: waits through a restart that is under way",
          "[client][daemon]") {
  const TempDir directory;
  const std::string store =
      "--store=sqlite:" + (directory.path() / "skrull.db").string();
  auto daemon = std::make_unique<Daemon>(std::vector<std::string>{store});
  const std::string address = daemon->address();
  const auto client = ClientOf(address);
  REQUIRE(client->CreateJob("run7", SpecText()).ok());
  daemon->Kill();

  absl::Status status;
  std::jthread caller([&] {
    status = client->GetJob("run7", {.timeout = seconds(60)}).status();
  });
  daemon = std::make_unique<Daemon>(
      std::vector<std::string>{store, "--listen_address=" + address});
  caller.join();
  INFO(status);
  CHECK(status.ok());
}

TEST_CASE("LocalPlanner: refuses a spec that is none", "[client]") {
  CHECK(absl::IsInvalidArgument(LocalPlanner::Create("model {").status()));
  const absl::Status field =
      LocalPlanner::Create("parallelism { cp_size: 0 }").status();
  CHECK(absl::IsInvalidArgument(field));
  CHECK(GetRefusalDetail(field));
  CHECK(absl::IsInvalidArgument(LocalPlanner::Create(SpecText(), -1).status()));
  const auto planner = LocalPlanner::Create(SpecText(), 4);
  REQUIRE(planner.ok());
  CHECK((*planner)->PlanBatch({.lengths = {1}})->calibration_epoch == 4);
  const absl::Status policy =
      (*planner)->PlanBatch({.lengths = {1}, .policy = "FAST"}).status();
  CHECK(absl::IsInvalidArgument(policy));
  CHECK(GetRefusalDetail(policy)->field == "policy");
  CHECK(absl::IsInvalidArgument(
      (*planner)->PlanBatch({.job = "no/name", .lengths = {1}}).status()));
}

TEST_CASE("RankPlanOf: refuses what is no plan", "[client]") {
  PlanResult plan = InProcess(0);
  CHECK(absl::IsInvalidArgument(RankPlanOf(plan, -1).status()));
  CHECK(RankPlanOf(plan, 1'000'000)->micro_batches[0].segments.empty());
  plan.plan_bytes = "no plan";
  CHECK(absl::IsInvalidArgument(RankPlanOf(plan, 0).status()));
  plan.plan_bytes = "";
  CHECK(absl::IsInvalidArgument(RankPlanOf(plan, 0).status()));

  // Chunks without ranks to share them; an operation of a newer daemon.
  v1::Plan wire;
  wire.mutable_chunk_plan()->set_cp_size(2);
  plan.plan_bytes = wire.SerializeAsString();
  CHECK(RankPlanOf(plan, 0)->chunk_plan->chunks.empty());
  wire.mutable_chunk_plan()->set_cp_size(0);
  plan.plan_bytes = wire.SerializeAsString();
  CHECK(absl::IsInvalidArgument(RankPlanOf(plan, 0).status()));
  wire.mutable_chunk_plan()->set_cp_size(2);
  wire.mutable_chunk_plan()->add_schedules()->add_operations()->set_pass(
      static_cast<v1::ChunkPass>(9));
  plan.plan_bytes = wire.SerializeAsString();
  CHECK(absl::IsInvalidArgument(RankPlanOf(plan, 0).status()));
}

}  // namespace
}  // namespace skrull
