// What step reports lead to, through a real daemon: next attempts, epochs and
// refusals.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "skrull/server/store.h"
#include "skrull/server/tsan.h"
#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

v1::StepReport Report(int64_t step, int attempt, int rank,
                      v1::StepOutcome outcome) {
  v1::StepReport report;
  report.set_step(step);
  report.set_attempt(attempt);
  report.set_rank(rank);
  report.set_outcome(outcome);
  return report;
}

v1::StepReport OutOfMemory(int64_t step, int attempt, int rank) {
  return Report(step, attempt, rank, v1::STEP_OUTCOME_OUT_OF_MEMORY);
}

v1::StepReport Ran(int64_t step, int rank, double seconds) {
  v1::StepReport report = Report(step, 0, rank, v1::STEP_OUTCOME_OK);
  report.mutable_step_time()->set_seconds(static_cast<int64_t>(seconds));
  report.mutable_step_time()->set_nanos(static_cast<int32_t>(
      1e9 * (seconds - static_cast<double>(static_cast<int64_t>(seconds)))));
  return report;
}

grpc::Status Send(Client& client, const v1::StepReport& report,
                  v1::ReportStepResponse* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::minutes(2));
  v1::ReportStepRequest request;
  request.set_job("run");
  *request.mutable_report() = report;
  response->Clear();
  return client.stub().ReportStep(&context, request, response);
}

v1::ReportStepResponse MustSend(Client& client, const v1::StepReport& report) {
  v1::ReportStepResponse response;
  const grpc::Status status = Send(client, report, &response);
  INFO(status.error_message());
  REQUIRE(status.ok());
  return response;
}

std::vector<v1::Calibration> Epochs(Client& client) {
  grpc::ClientContext context;
  v1::ListCalibrationsRequest request;
  request.set_job("run");
  v1::ListCalibrationsResponse response;
  const grpc::Status status =
      client.stub().ListCalibrations(&context, request, &response);
  INFO(status.error_message());
  REQUIRE(status.ok());
  return {response.calibrations().begin(), response.calibrations().end()};
}

v1::Job GetJob(Client& client) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name("run");
  v1::Job job;
  REQUIRE(client.stub().GetJob(&context, request, &job).ok());
  return job;
}

grpc::Status RankPlanOf(Client& client, int64_t step, int attempt, int rank,
                        v1::RankPlan* share) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::minutes(2));
  v1::GetRankPlanRequest request;
  request.set_job("run");
  request.set_step(step);
  request.set_attempt(attempt);
  request.set_rank(rank);
  return client.stub().GetRankPlan(&context, request, share);
}

// Three at a time fill a rank of 100 tokens.
const std::vector<int64_t> kLengths(24, 30);

v1::Plan MustPlan(Client& client, int64_t step,
                  const std::vector<int64_t>& lengths = kLengths) {
  v1::PlanBatchResponse response;
  const grpc::Status status =
      client.Plan(Batch("run", step, lengths), &response);
  INFO(status.error_message());
  REQUIRE(status.ok());
  return response.plan();
}

// Rows of the rank in its fullest micro-batch.
int64_t RowsOf(Client& client, int64_t step, int attempt, int rank) {
  v1::RankPlan share;
  REQUIRE(RankPlanOf(client, step, attempt, rank, &share).ok());
  int64_t rows = 0;
  for (const v1::RankMicroBatch& micro_batch : share.micro_batches()) {
    rows = std::max(rows, micro_batch.row_count());
  }
  return rows;
}

TEST_CASE(
    "Calibration: one rank's out-of-memory gives all ranks one smaller "
    "plan, and later steps keep it",
    "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  MustPlan(client, 0);
  const int64_t rows = RowsOf(client, 0, 0, 1);
  REQUIRE(rows > 26);

  // Ranks may wait for the next attempt before it is planned.
  v1::RankPlan waited;
  std::future<grpc::Status> waiting = std::async(std::launch::async, [&] {
    Client other(daemon.address());
    return RankPlanOf(other, 0, 1, 3, &waited);
  });
  const v1::ReportStepResponse answer = MustSend(client, OutOfMemory(0, 0, 1));
  CHECK(waiting.get().ok());
  CHECK(answer.attempt() == 1);
  CHECK(answer.calibration_epoch() == 1);
  CHECK_FALSE(answer.has_refusal());

  std::set<std::string> digests = {waited.digest()};
  for (int rank = 0; rank < 4; ++rank) {
    v1::RankPlan share;
    REQUIRE(RankPlanOf(client, 0, 1, rank, &share).ok());
    digests.insert(share.digest());
    CHECK(RowsOf(client, 0, 1, rank) <= rows / 2);
  }
  CHECK(digests.size() == 1);
  // The same batch by its lengths, too.
  v1::PlanBatchRequest again = Batch("run", 0, kLengths);
  again.set_attempt(1);
  v1::PlanBatchResponse planned;
  REQUIRE(client.Plan(again, &planned).ok());
  CHECK(planned.plan().digest() == *digests.begin());
  CHECK(planned.plan().calibration_epoch() == 1);

  // Whatever the others report of the old attempt, they are sent to the new.
  for (const auto outcome : {v1::STEP_OUTCOME_OUT_OF_MEMORY,
                             v1::STEP_OUTCOME_FAILED, v1::STEP_OUTCOME_OK}) {
    const v1::ReportStepResponse other =
        MustSend(client, Report(0, 0, 2, outcome));
    CHECK(other.attempt() == 1);
    CHECK(other.calibration_epoch() == 1);
  }
  const v1::Plan next = MustPlan(client, 1);
  CHECK(next.calibration_epoch() == 1);
  CHECK(next.summary().max_rank_tokens() <= rows / 2);

  const std::vector<v1::Calibration> epochs = Epochs(client);
  REQUIRE(epochs.size() == 2);
  CHECK(epochs[0].cause() == v1::CALIBRATION_CAUSE_REGISTERED);
  CHECK(epochs[1].cause() == v1::CALIBRATION_CAUSE_OUT_OF_MEMORY);
  CHECK(epochs[1].out_of_memory_tokens() == rows);
  CHECK(epochs[1].bucket_size_tokens() == rows / 2);
  const v1::Job job = GetJob(client);
  CHECK(job.calibration_epoch() == 1);
  CHECK(job.calibrated_spec().memory().bucket_size_tokens() == rows / 2);
  CHECK(job.spec().memory().bucket_size_tokens() == 100);
  CHECK(daemon.Metric("skrull_calibration_epochs_total{cause=\"CALIBRATION_"
                      "CAUSE_OUT_OF_MEMORY\"}") == 1);
  CHECK(daemon.Metric("skrull_attempts_total") == 1);
}

TEST_CASE(
    "Calibration: many ranks that run out of memory at once get one "
    "epoch and one plan",
    "[server][service]") {
  constexpr int kRanks = 64;
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(kRanks, 1, 100)).ok());
  std::vector<int64_t> lengths;
  for (int64_t k = 0; k < 800; ++k) lengths.push_back(1 + k * k % 40);
  MustPlan(client, 7, lengths);
  struct Call {
    grpc::ClientContext context;
    v1::ReportStepRequest request;
    v1::ReportStepResponse response;
    std::promise<grpc::Status> promise;
  };
  std::vector<Call> calls(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    Call& call = calls[static_cast<size_t>(rank)];
    call.request.set_job("run");
    *call.request.mutable_report() = OutOfMemory(7, 0, rank);
    client.stub().async()->ReportStep(&call.context, &call.request,
                                      &call.response,
                                      [&call](const grpc::Status& status) {
                                        TsanRelease(&call);
                                        call.promise.set_value(status);
                                      });
  }
  for (Call& call : calls) {
    REQUIRE(call.promise.get_future().get().ok());
    TsanAcquire(&call);
    CHECK(call.response.attempt() == 1);
    CHECK(call.response.calibration_epoch() == 1);
  }
  CHECK(Epochs(client).size() == 2);
  std::set<std::string> digests;
  for (int rank = 0; rank < kRanks; ++rank) {
    v1::RankPlan share;
    REQUIRE(RankPlanOf(client, 7, 1, rank, &share).ok());
    digests.insert(share.digest());
  }
  CHECK(digests.size() == 1);
}

TEST_CASE(
    "Calibration: a batch planned before the epoch is planned anew, not "
    "cut again",
    "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  for (int64_t step = 0; step < 3; ++step) MustPlan(client, step);
  MustSend(client, OutOfMemory(0, 0, 1));
  // Steps 1 and 2 were planned ahead, with the old bucket.
  for (int64_t step = 1; step < 3; ++step) {
    const v1::ReportStepResponse answer =
        MustSend(client, OutOfMemory(step, 0, 1));
    CHECK(answer.attempt() == 1);
    CHECK(answer.calibration_epoch() == 1);
  }
  CHECK(Epochs(client).size() == 2);
}

TEST_CASE(
    "Calibration: an epoch without its plan is completed by the next "
    "report",
    "[server][service]") {
  // What a daemon leaves that dies between the two.
  TempDir directory;
  const std::string uri = "sqlite:" + (directory.path() / "store.db").string();
  int64_t rows = 0;
  {
    Daemon daemon({"--store=" + uri});
    Client client(daemon.address());
    REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
    MustPlan(client, 0);
    rows = RowsOf(client, 0, 0, 1);
    daemon.Kill();
  }
  {
    const auto store = OpenStore(uri);
    REQUIRE(store.ok());
    v1::Calibration next;
    next.set_epoch(1);
    next.set_cause(v1::CALIBRATION_CAUSE_OUT_OF_MEMORY);
    next.set_bucket_size_tokens(rows / 2);
    next.set_out_of_memory_tokens(rows);
    REQUIRE((*store)->Advance({"run", 1}, next).ok());
  }
  Daemon daemon({"--store=" + uri});
  Client client(daemon.address());
  for (int rank = 0; rank < 2; ++rank) {
    const v1::ReportStepResponse answer =
        MustSend(client, OutOfMemory(0, 0, rank));
    CHECK(answer.attempt() == 1);
    CHECK(answer.calibration_epoch() == 1);
  }
  CHECK(Epochs(client).size() == 2);
}

TEST_CASE(
    "Calibration: kill -9 at any moment of a roll-back, and the ranks "
    "still get one plan",
    "[server][service]") {
  TempDir directory;
  const std::string uri = "sqlite:" + (directory.path() / "store.db").string();
  {
    Daemon daemon({"--store=" + uri});
    Client client(daemon.address());
    REQUIRE(client.CreateJob("run", SmallSpec(8, 1, 1000)).ok());
  }
  std::map<int64_t, std::string> digests;
  for (int round = 0; round < 8; ++round) {
    const int64_t step = round;
    const std::vector<int64_t> lengths(60, 100 + round);
    std::unique_ptr<Daemon> daemon =
        std::make_unique<Daemon>(std::vector<std::string>{"--store=" + uri});
    {
      Client client(daemon->address());
      MustPlan(client, step, lengths);
      std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
        daemon->Kill();
      });
      v1::ReportStepResponse lost;
      for (int rank = 0; rank < 8; ++rank) {
        if (!Send(client, OutOfMemory(step, 0, rank), &lost).ok()) break;
      }
      killer.join();
    }
    daemon =
        std::make_unique<Daemon>(std::vector<std::string>{"--store=" + uri});
    Client client(daemon->address());
    for (int rank = 0; rank < 8; ++rank) {
      const v1::ReportStepResponse answer =
          MustSend(client, OutOfMemory(step, 0, rank));
      // At the floor there is no smaller bucket.
      if (answer.has_refusal()) continue;
      CHECK(answer.attempt() == 1);
      v1::RankPlan share;
      REQUIRE(RankPlanOf(client, step, 1, rank, &share).ok());
      digests.try_emplace(step, share.digest());
      CHECK(share.digest() == digests[step]);
    }
    // One epoch after the other, each smaller.
    const std::vector<v1::Calibration> epochs = Epochs(client);
    CHECK(epochs.size() <= static_cast<size_t>(round) + 2);
    for (size_t i = 1; i < epochs.size(); ++i) {
      CHECK(epochs[i].epoch() == epochs[i - 1].epoch() + 1);
    }
  }
  CHECK(digests.size() >= 2);
}

TEST_CASE(
    "Calibration: after the last attempt all ranks are refused, and "
    "nothing changes",
    "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  v1::JobSpec spec = SmallSpec(2, 2, 100);
  spec.mutable_calibration()->set_max_attempts(2);
  REQUIRE(client.CreateJob("run", spec).ok());
  MustPlan(client, 0);
  REQUIRE(MustSend(client, OutOfMemory(0, 0, 1)).attempt() == 1);
  for (int rank = 0; rank < 4; ++rank) {
    const v1::ReportStepResponse answer =
        MustSend(client, OutOfMemory(0, 1, rank));
    CHECK(answer.attempt() == 1);
    CHECK(answer.calibration_epoch() == 1);
    REQUIRE(answer.has_refusal());
    CHECK(answer.refusal().code() ==
          static_cast<int>(grpc::StatusCode::FAILED_PRECONDITION));
    v1::ErrorDetail detail;
    REQUIRE(answer.refusal().details_size() == 1);
    REQUIRE(answer.refusal().details(0).UnpackTo(&detail));
    CHECK(detail.reason() == "ATTEMPTS_EXHAUSTED");
    INFO(answer.refusal().message());
    for (const char* part :
         {"job run, step 0, attempt 1", "rank", "rows", "2 attempts"}) {
      CHECK(answer.refusal().message().find(part) != std::string::npos);
    }
  }
  CHECK(Epochs(client).size() == 2);
  CHECK(daemon.Metric("skrull_attempts_exhausted_total") == 4);
}

TEST_CASE("Calibration: no smaller bucket holds the longest sequence",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  MustPlan(client, 0, {200});
  const v1::ReportStepResponse answer = MustSend(client, OutOfMemory(0, 0, 0));
  CHECK(answer.attempt() == 0);
  CHECK(answer.calibration_epoch() == 0);
  REQUIRE(answer.has_refusal());
  CHECK(answer.refusal().message().find("200 tokens") != std::string::npos);
  CHECK(Epochs(client).size() == 1);
}

TEST_CASE(
    "Calibration: a longer sequence than the smaller bucket holds is "
    "planned with a larger one",
    "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  v1::JobSpec spec = SmallSpec(2, 1, 100);
  spec.mutable_cost()->set_seconds_per_micro_batch(1);  // so: one micro-batch
  REQUIRE(client.CreateJob("run", spec).ok());
  MustPlan(client, 0, {30, 30, 30, 30, 30, 30});
  const int64_t rows = RowsOf(client, 0, 0, 0);
  REQUIRE(rows == 90);
  REQUIRE(MustSend(client, OutOfMemory(0, 0, 0)).attempt() == 1);
  const v1::Plan plan = MustPlan(client, 1, {60, 10});
  CHECK(plan.calibration_epoch() == 2);
  CHECK(Epochs(client)[2].cause() == v1::CALIBRATION_CAUSE_RECOVERY);
  CHECK(Epochs(client)[2].bucket_size_tokens() == 60);
  // Not the rows that ran out of memory.
  const grpc::Status status = client.Plan(Batch("run", 2, {90}));
  CHECK(DetailOf(status).reason() == "SEQUENCE_TOO_LONG");
}

TEST_CASE("Calibration: a spec may ask for none", "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  v1::JobSpec spec = SmallSpec(1, 2, 100);
  spec.mutable_cost()->set_seconds_per_flop(1e-4);
  spec.mutable_calibration()->set_refit(false);
  spec.mutable_calibration()->set_roll_back_out_of_memory(false);
  REQUIRE(client.CreateJob("run", spec).ok());
  for (int64_t step = 0; step < 20; ++step) {
    const v1::Plan plan = MustPlan(client, step);
    for (int rank = 0; rank < 2; ++rank) {
      const v1::ReportStepResponse answer = MustSend(
          client, Ran(step, rank, 3 * plan.summary().predicted_seconds()));
      CHECK(answer.attempt() == 0);
      CHECK(answer.calibration_epoch() == 0);
    }
  }
  const v1::ReportStepResponse answer = MustSend(client, OutOfMemory(19, 0, 0));
  CHECK(answer.attempt() == 0);
  CHECK(answer.calibration_epoch() == 0);
  CHECK_FALSE(answer.has_refusal());
  CHECK(Epochs(client).size() == 1);
}

TEST_CASE(
    "Calibration: times that differ start an epoch at a multiple of 8 "
    "steps",
    "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  v1::JobSpec spec = SmallSpec(1, 2, 100);
  spec.mutable_cost()->set_seconds_per_flop(1e-4);
  REQUIRE(client.CreateJob("run", spec).ok());
  for (int64_t step = 0; step < 18; ++step) {
    const v1::Plan plan = MustPlan(client, step);
    // Of the first 8 steps' plans; the others are of the epoch by then.
    CHECK(plan.calibration_epoch() == (step < 9 ? 0 : 1));
    const double slow = step < 9 ? 3 : 1;
    for (int rank = 0; rank < 2; ++rank) {
      MustSend(client,
               Ran(step, rank, slow * plan.summary().predicted_seconds()));
    }
  }
  const std::vector<v1::Calibration> epochs = Epochs(client);
  REQUIRE(epochs.size() == 2);
  CHECK(epochs[1].cause() == v1::CALIBRATION_CAUSE_REFIT);
  CHECK(epochs[1].step() == 7);
  CHECK(epochs[1].seconds_per_flop() == Approx(3e-4).epsilon(0.05));
  CHECK(daemon.Metric("skrull_step_time_ratio_count") == 16);
}

TEST_CASE("Calibration: reports of steps without a plan teach nothing",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  const v1::ReportStepResponse answer = MustSend(client, OutOfMemory(3, 0, 0));
  CHECK(answer.attempt() == 0);
  CHECK(answer.calibration_epoch() == 0);
  CHECK(Epochs(client).size() == 1);
}

TEST_CASE("Calibration: hostile durations are refused at the door",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  v1::ReportStepResponse response;
  for (const int64_t seconds :
       {int64_t{-1}, int64_t{31 * 86'400}, std::numeric_limits<int64_t>::max(),
        std::numeric_limits<int64_t>::min()}) {
    v1::StepReport report = Ran(0, 0, 1);
    report.mutable_step_time()->set_seconds(seconds);
    const grpc::Status status = Send(client, report, &response);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(DetailOf(status).field() == "report.step_time");
  }
  v1::JobSpec spec = SmallSpec(1, 2, 100);
  for (const int attempts : {0, -1, 33}) {
    spec.mutable_calibration()->set_max_attempts(attempts);
    const grpc::Status status = client.CreateJob("other", spec);
    CHECK(DetailOf(status).field() == "calibration.max_attempts");
  }
}

}  // namespace
}  // namespace skrull::testing
