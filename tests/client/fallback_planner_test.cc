// Plans while real daemons are killed, frozen, restarted and at another epoch.
#include "skrull/client/fallback_planner.h"

#include <signal.h>

#include <barrier>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "skrull/client/local_planner.h"
#include "skrull/tests/client/fake_planner.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using testing::Daemon;
using testing::FakePlanner;
using testing::QuickOptions;
using testing::RefusalStatus;

constexpr char kSpec[] =
    "model { hidden_size: 896 layer_count: 24 attention_head_count: 14 "
    "kv_head_count: 2 } parallelism { dp_size: 2 cp_size: 2 } "
    "memory { bucket_size_tokens: 20000 }";

std::vector<int64_t> LengthsOf(int64_t step) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 48; ++i) {
    lengths.push_back(1 + (i * 7919 + step * 104729) % 4000);
  }
  return lengths;
}

// Of an epoch without evidence: what the spec says.
std::string DigestOf(int64_t step) {
  const auto planner = LocalPlanner::Create(kSpec);
  REQUIRE(planner.ok());
  const auto plan = (*planner)->PlanBatch(
      {.job = "run7", .step = step, .lengths = LengthsOf(step)});
  REQUIRE(plan.ok());
  return plan->digest;
}

// True once `condition` holds; false if it does not within a minute.
bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

// A daemon's address and file, over its lives.
class Restarts {
 public:
  Restarts()
      : store_("--store=sqlite:" + (directory_.path() / "skrull.db").string()),
        daemon_(std::make_unique<Daemon>(std::vector<std::string>{store_})),
        address_(daemon_->address()) {}

  Daemon& daemon() { return *daemon_; }
  const std::string& address() const { return address_; }
  void Kill() { daemon_->Kill(); }
  void Restart() {
    daemon_ = std::make_unique<Daemon>(
        std::vector<std::string>{store_, "--listen_address=" + address_});
  }

 private:
  const testing::TempDir directory_;
  const std::string store_;
  std::unique_ptr<Daemon> daemon_;
  const std::string address_;
};

// One rank of a trainer.
struct Rank {
  // `again`: how long it does without a daemon that was away.
  Rank(const std::string& address, milliseconds again) {
    client = *PlannerClient::Create(QuickOptions(address));
    const absl::StatusOr<JobInfo> job = client->CreateJob("run7", kSpec);
    INFO(job.status());
    REQUIRE(job.ok());
    auto made = FallbackPlanner::Create(client.get(), *job,
                                        {.first_pause = again,
                                         .longest_pause = again,
                                         .probe_timeout = milliseconds(200)});
    INFO(made.status());
    REQUIRE(made.ok());
    planner = *std::move(made);
  }

  FallbackPlan Plan(int64_t step) {
    absl::StatusOr<FallbackPlan> plan =
        planner->PlanBatch({.step = step, .lengths = LengthsOf(step)});
    INFO("step " << step << ": " << plan.status());
    REQUIRE(plan.ok());
    return *std::move(plan);
  }

  std::unique_ptr<PlannerClient> client;
  std::unique_ptr<FallbackPlanner> planner;
};

// What AgreeOnDigest says on each of the ranks that hold these.
std::vector<absl::Status> Agreements(const std::vector<std::string>& digests) {
  std::vector<absl::Status> statuses(digests.size());
  std::vector<DigestBytes> all(digests.size());
  std::barrier<> meet(std::ssize(digests));
  {
    std::vector<std::jthread> ranks;
    for (size_t rank = 0; rank < digests.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        statuses[rank] =
            AgreeOnDigest(digests[rank],
                          [&](const DigestBytes& mine)
                              -> absl::StatusOr<std::vector<DigestBytes>> {
                            all[rank] = mine;
                            meet.arrive_and_wait();
                            return all;
                          });
      });
    }
  }
  return statuses;
}

TEST_CASE("FallbackPlanner: same digests before, during and after an outage",
          "[client][daemon]") {
  Restarts restarts;
  Rank a(restarts.address(), milliseconds(20));
  Rank b(restarts.address(), milliseconds(20));
  const auto agree = [&](int64_t step) {
    const FallbackPlan of_a = a.Plan(step);
    const FallbackPlan of_b = b.Plan(step);
    CHECK(of_a.plan.digest == DigestOf(step));
    for (const absl::Status& agreed :
         Agreements({of_a.plan.digest, of_b.plan.digest})) {
      CHECK(agreed.ok());
    }
    CHECK(of_a.plan.plan_bytes == of_b.plan.plan_bytes);
    return std::pair(of_a.in_process, of_b.in_process);
  };
  int64_t step = 0;
  for (; step < 3; ++step) CHECK(agree(step) == std::pair(false, false));
  restarts.Kill();
  for (; step < 6; ++step) CHECK(agree(step) == std::pair(true, true));
  const FallbackPlan away = a.Plan(5);
  CHECK_FALSE(away.daemon.ok());
  CHECK_FALSE(away.plan.committed);
  restarts.Restart();
  // They find it by themselves, not at the same step.
  REQUIRE(Eventually([&] { return agree(step++) == std::pair(false, false); }));
  // A step that was planned without it, and one from before.
  for (const int64_t earlier : {4, 1}) {
    const FallbackPlan again = a.Plan(earlier);
    CHECK_FALSE(again.in_process);
    CHECK(again.daemon.ok());
    CHECK(again.plan.committed);
    CHECK(again.plan.digest == DigestOf(earlier));
  }
}

TEST_CASE("FallbackPlanner: a rank that missed an epoch stops all ranks",
          "[client][daemon]") {
  Restarts restarts;
  Rank connected(restarts.address(), milliseconds(20));
  Rank cut_off(restarts.address(), std::chrono::hours(1));
  REQUIRE(connected.Plan(0).plan.digest == cut_off.Plan(0).plan.digest);
  restarts.Kill();
  REQUIRE(connected.Plan(1).in_process);
  REQUIRE(cut_off.Plan(1).in_process);
  restarts.Restart();
  REQUIRE(Eventually([&] { return !connected.Plan(1).in_process; }));
  const absl::StatusOr<ReportAnswer> report = connected.planner->ReportStep(
      {.step = 1, .outcome = StepOutcome::kOutOfMemory});
  INFO(report.status());
  REQUIRE(report.ok());
  REQUIRE(report->calibration_epoch == 1);
  CHECK(connected.planner->calibration_epoch() == 1);
  CHECK(cut_off.planner->calibration_epoch() == 0);

  const FallbackPlan of_daemon = connected.Plan(2);
  const FallbackPlan in_process = cut_off.Plan(2);
  CHECK_FALSE(of_daemon.in_process);
  CHECK(in_process.in_process);
  CHECK(of_daemon.plan.calibration_epoch == 1);
  CHECK(in_process.plan.calibration_epoch == 0);
  for (const absl::Status& agreed :
       Agreements({of_daemon.plan.digest, in_process.plan.digest})) {
    CHECK(absl::IsFailedPrecondition(agreed));
    CHECK(GetRefusalDetail(agreed)->reason == "DIGEST_MISMATCH");
  }
  // The daemon is lost for good: what it taught is not.
  restarts.Kill();
  const FallbackPlan again = connected.Plan(2);
  CHECK(again.in_process);
  CHECK(again.plan.plan_bytes == of_daemon.plan.plan_bytes);
}

TEST_CASE("FallbackPlanner: does not ask an absent daemon at each step",
          "[client][daemon]") {
  Restarts restarts;
  Rank rank(restarts.address(), std::chrono::hours(1));
  restarts.Kill();
  CHECK(rank.Plan(0).in_process);
  restarts.Restart();
  for (int64_t step = 0; step < 50; ++step) CHECK(rank.Plan(step).in_process);
  for (const char* method : {"GetJob", "PlanBatch"}) {
    CHECK(restarts.daemon().Metric("skrull_rpcs_total{code=\"OK\",method=\"" +
                                   std::string(method) + "\"}") == 0);
  }
}

TEST_CASE("FallbackPlanner: refusals are answers", "[client][daemon]") {
  Daemon daemon;
  Rank rank(daemon.address(), milliseconds(20));
  const auto reason_of = [&](const FallbackBatch& batch,
                             const CallOptions& call = {}) {
    const absl::Status status = rank.planner->PlanBatch(batch, call).status();
    const auto detail = GetRefusalDetail(status);
    return detail ? detail->reason : std::string(status.message());
  };
  REQUIRE(rank.Plan(0).plan.committed);
  CHECK(reason_of({.step = 0, .lengths = {1}}) == "PLAN_CONFLICT");
  CHECK(reason_of({.step = 1}) == "EMPTY_BATCH");
  // Slow is not away.
  const FallbackBatch large = {.step = 2,
                               .lengths = std::vector<int64_t>(200'000, 50)};
  CHECK(absl::IsDeadlineExceeded(
      rank.planner->PlanBatch(large, {.timeout = milliseconds(1)}).status()));
  REQUIRE(rank.client->DeleteJob("run7").ok());
  CHECK(reason_of({.step = 3, .lengths = {1}}) == "JOB_NOT_FOUND");
  REQUIRE(rank.client->CreateJob("run7", kSpec, 2).ok());
  CHECK(reason_of({.step = 3, .lengths = {1}}) == "GENERATION_MISMATCH");
}

TEST_CASE(
    "FallbackPlanner: a daemon that lost its jobs refuses when it is back",
    "[client][daemon]") {
  auto daemon = std::make_unique<Daemon>();
  const std::string address = daemon->address();
  Rank rank(address, milliseconds(20));
  daemon->Kill();
  REQUIRE(rank.Plan(0).in_process);
  daemon = std::make_unique<Daemon>(
      std::vector<std::string>{"--listen_address=" + address});
  absl::Status answer;
  REQUIRE(Eventually([&] {
    answer = rank.planner->PlanBatch({.lengths = LengthsOf(0)}).status();
    return !answer.ok();
  }));
  CHECK(absl::IsNotFound(answer));
}

TEST_CASE("FallbackPlanner: plans in process while the daemon is frozen",
          "[client][daemon]") {
  Daemon daemon;
  const auto client = *PlannerClient::Create(QuickOptions(daemon.address()));
  const absl::StatusOr<JobInfo> job = client->CreateJob("run7", kSpec);
  REQUIRE(job.ok());
  const auto planner = *FallbackPlanner::Create(
      client.get(), *job, {.probe_timeout = milliseconds(50)});
  REQUIRE(::kill(daemon.pid(), SIGSTOP) == 0);
  const absl::StatusOr<FallbackPlan> plan = planner->PlanBatch(
      {.step = 3, .lengths = LengthsOf(3)}, {.timeout = milliseconds(50)});
  REQUIRE(::kill(daemon.pid(), SIGCONT) == 0);
  INFO(plan.status());
  REQUIRE(plan.ok());
  CHECK(plan->in_process);
  CHECK(absl::IsDeadlineExceeded(plan->daemon));
  CHECK(plan->plan.digest == DigestOf(3));
}

TEST_CASE(
    "FallbackPlanner: an epoch without its numbers is no epoch to plan at",
    "[client]") {
  FakePlanner fake;
  bool down = false;
  int64_t job_epoch = 0;
  int asked = 0;
  fake.get_job = [&](v1::Job* job) {
    ++asked;
    if (job_epoch == 0)
      return RefusalStatus(grpc::StatusCode::INTERNAL, "", "");
    job->set_generation(1);
    job->set_calibration_epoch(job_epoch);
    job->mutable_calibrated_spec()->mutable_model()->set_hidden_size(896);
    job->mutable_calibrated_spec()->mutable_model()->set_layer_count(24);
    job->mutable_calibrated_spec()->mutable_model()->set_attention_head_count(
        14);
    job->mutable_calibrated_spec()->mutable_memory()->set_bucket_size_tokens(
        10000);
    return grpc::Status::OK;
  };
  fake.plan_batch = [&](auto*, const auto& request, auto* response) {
    if (down) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "down");
    *response = testing::AnswerTo(request);
    response->mutable_plan()->set_calibration_epoch(2);
    return grpc::Status::OK;
  };
  ClientOptions quick = QuickOptions(fake.address());
  quick.unreachable_after = milliseconds(0);
  const auto client = *PlannerClient::Create(quick);
  const auto planner = *FallbackPlanner::Create(
      client.get(),
      {.name = "run7", .generation = 1, .calibrated_spec_text = kSpec},
      {.first_pause = milliseconds(1), .longest_pause = milliseconds(1)});
  const auto set = [&](bool is_down, int64_t epoch) {
    const std::lock_guard<std::mutex> lock(fake.mutex());
    down = is_down;
    job_epoch = epoch;
    asked = 0;
  };
  const FallbackBatch batch = {.lengths = {100}};
  REQUIRE(planner->PlanBatch(batch).ok());
  set(true, 0);
  const absl::Status unknown = planner->PlanBatch(batch).status();
  CHECK(absl::IsUnavailable(unknown));
  CHECK_THAT(std::string(unknown.message()),
             Catch::Contains("\"run7\" is at calibration epoch 2"));
  // Another answer, and its numbers can be had: one question.
  set(false, 2);
  REQUIRE(Eventually([&] { return planner->PlanBatch(batch).ok(); }));
  for (int i = 0; i < 10; ++i) REQUIRE(planner->PlanBatch(batch).ok());
  CHECK(planner->calibration_epoch() == 2);
  {
    const std::lock_guard<std::mutex> lock(fake.mutex());
    CHECK(asked == 1);
  }
  set(true, 2);
  const absl::StatusOr<FallbackPlan> plan = planner->PlanBatch(batch);
  INFO(plan.status());
  REQUIRE(plan.ok());
  CHECK(plan->in_process);
  CHECK(plan->plan.calibration_epoch == 2);
}

TEST_CASE("FallbackPlanner: refuses options out of range, and no job",
          "[client]") {
  const auto client = *PlannerClient::Create(QuickOptions("127.0.0.1:1"));
  const JobInfo job = {
      .name = "run7", .generation = 1, .calibrated_spec_text = kSpec};
  const auto field_of = [&](const FallbackOptions& options) {
    const absl::Status status =
        FallbackPlanner::Create(client.get(), job, options).status();
    REQUIRE(absl::IsInvalidArgument(status));
    return GetRefusalDetail(status)->field;
  };
  CHECK(field_of({.first_pause = milliseconds(0)}) == "first_pause");
  CHECK(field_of({.first_pause = milliseconds(2),
                  .longest_pause = milliseconds(1)}) == "first_pause");
  CHECK(field_of({.longest_pause = std::chrono::hours(25)}) == "longest_pause");
  CHECK(field_of({.probe_timeout = milliseconds(0)}) == "probe_timeout");
  CHECK(absl::IsInvalidArgument(
      FallbackPlanner::Create(client.get(), {.name = "run7"}).status()));
  // The job of an earlier life of this trainer serves as well.
  const auto planner = *FallbackPlanner::Create(client.get(), job);
  CHECK(planner->PlanBatch({.lengths = {1}})->in_process);
}

}  // namespace
}  // namespace skrull
