// A simulated trainer against a real daemon: ranks as threads that plan, run by
// a true model that the spec is wrong about, report and obey the answers; and
// what skrullctl shows of it afterwards.
#include <algorithm>
#include <barrier>
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "skrull/client/planner_client.h"
#include "skrull/planner/cost_model.h"
#include "skrull/server/convert.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using testing::CliResult;
using testing::Daemon;
using testing::RunCli;

constexpr int kRanks = 4;
constexpr int kSteps = 50;

// 80 GB, of which the true model takes 16 for weights and 1.4 MB a token.
std::string SpecText(double seconds_per_flop, double overhead,
                     double bytes_per_token) {
  return "model { hidden_size: 896 layer_count: 24 attention_head_count: 14 "
         "kv_head_count: 2 } parallelism { dp_size: 2 cp_size: 2 } "
         "memory { device_bytes: 80000000000 static_bytes: 16000000000 "
         "bytes_per_token: " +
         std::to_string(bytes_per_token) + " } cost { seconds_per_flop: " +
         std::to_string(1e15 * seconds_per_flop) +
         "e-15 seconds_per_micro_batch: " + std::to_string(overhead) +
         " intra_node { seconds_per_collective: 8e-5 seconds_per_byte: "
         "2.5e-11 } } optimizer { search_steps: 200 }";
}

// Catch's assertions are not for many threads at once.
void Demand(bool holds, const absl::Status& why) {
  if (holds) return;
  std::cerr << "a rank cannot go on: " << why << std::endl;
  std::abort();
}

// What all ranks of the pool meet in.
class Pool {
 public:
  explicit Pool(const std::string& true_spec)
      : job_(*JobFromProto(*ParseJobSpecText(true_spec))), random_(20261130) {}

  // What a plan really takes, with noise; which rank runs out of memory, -1 for
  // none.
  struct Truth {
    double seconds = 0;
    std::vector<int64_t> peak_bytes;
    int out_of_memory = -1;
  };
  Truth Run(const PlanResult& planned) {
    v1::Plan wire;
    Demand(wire.ParseFromString(planned.plan_bytes), absl::OkStatus());
    const absl::StatusOr<Plan> native = PlanFromProto(wire);
    Demand(native.ok(), native.status());
    const CostModel cost(job_);
    StepClock clock(job_, cost);
    std::vector<int64_t> rows(kRanks, 0);
    for (const MicroBatchPlan& mb : native->micro_batches) {
      clock.Run(mb.placements);
      for (size_t r = 0; r < rows.size(); ++r) {
        rows[r] = std::max(rows[r], clock.loads()[r].tokens);
      }
    }
    Truth result;
    std::normal_distribution<double> normal;
    result.seconds = clock.seconds() * std::exp(0.02 * normal(random_));
    for (int r = 0; r < kRanks; ++r) {
      const double bytes =
          16e9 + 1.4e6 * static_cast<double>(rows[static_cast<size_t>(r)]);
      result.peak_bytes.push_back(static_cast<int64_t>(std::min(bytes, 80e9)));
      if (bytes > 80e9 && result.out_of_memory < 0) result.out_of_memory = r;
    }
    return result;
  }

  std::barrier<> meet{kRanks};
  PlanResult plan;  // of the attempt under way; written by rank 0
  Truth truth;      // of it
  std::vector<double> errors;
  int out_of_memory_attempts = 0;

 private:
  const Job job_;
  std::mt19937_64 random_;
};

std::vector<int64_t> LengthsOf(int step) {
  std::mt19937_64 random(static_cast<uint64_t>(step));
  std::vector<int64_t> lengths;
  std::lognormal_distribution<double> body(7, 1.2);
  for (int k = 0; k < 100; ++k) {
    lengths.push_back(std::clamp(static_cast<int64_t>(body(random)),
                                 int64_t{16}, int64_t{40000}));
  }
  return lengths;
}

// One rank's training loop.
void Train(const std::string& address, int rank, Pool* pool) {
  const auto client = *PlannerClient::Create({.address = address});
  for (int step = 0; step < kSteps; ++step) {
    for (int attempt = 0;;) {
      if (rank == 0) {
        const absl::StatusOr<PlanResult> plan =
            client->PlanBatch({.job = "run",
                               .step = step,
                               .attempt = attempt,
                               .lengths = LengthsOf(step)});
        Demand(plan.ok(), plan.status());
        pool->plan = *plan;
        pool->truth = pool->Run(*plan);
        if (pool->truth.out_of_memory >= 0) {
          ++pool->out_of_memory_attempts;
        } else {
          pool->errors.push_back(std::abs(
              plan->figures.predicted_seconds / pool->truth.seconds - 1));
        }
      }
      const absl::StatusOr<RankPlan> share = client->GetRankPlan(
          {.job = "run", .step = step, .attempt = attempt, .rank = rank});
      pool->meet.arrive_and_wait();
      const Pool::Truth truth = pool->truth;
      const bool agreed = share.ok() && share->digest == pool->plan.digest;
      pool->meet.arrive_and_wait();
      const bool failed = truth.out_of_memory >= 0;
      StepReport report = {
          .step = step,
          .attempt = attempt,
          .rank = rank,
          .outcome = !failed                       ? StepOutcome::kOk
                     : truth.out_of_memory == rank ? StepOutcome::kOutOfMemory
                                                   : StepOutcome::kFailed,
          .step_seconds = truth.seconds,
          .peak_bytes = truth.peak_bytes[static_cast<size_t>(rank)]};
      // The others learn of the failure from a collective that it aborts.
      if (failed && truth.out_of_memory != rank) pool->meet.arrive_and_wait();
      const absl::StatusOr<ReportAnswer> answer =
          client->ReportStep("run", 0, report);
      if (failed && truth.out_of_memory == rank) pool->meet.arrive_and_wait();
      Demand(agreed, share.status());
      Demand(answer.ok(), answer.status());
      Demand(answer->refusal.ok(), answer->refusal);
      pool->meet.arrive_and_wait();
      if (answer->attempt == attempt) break;
      attempt = answer->attempt;
    }
  }
}

TEST_CASE(
    "A trainer with a wrong spec: predictions converge, one attempt runs "
    "out of memory",
    "[client][daemon][calibration]") {
  testing::TempDir directory;
  Daemon daemon({"--store=sqlite:" + (directory.path() / "store.db").string()});
  const auto client = *PlannerClient::Create({.address = daemon.address()});
  // 3 times too fast, a third of the overhead, a third of the memory.
  REQUIRE(client->CreateJob("run", SpecText(5e-15 / 3, 0.007, 0.45e6)).ok());
  Pool pool(SpecText(5e-15, 0.02, 1.4e6));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(Train, daemon.address(), rank, &pool);
  }
  for (std::thread& rank : ranks) rank.join();
  double error = 0;
  REQUIRE(pool.errors.size() == kSteps);
  for (int i = kSteps - 10; i < kSteps; ++i) {
    error += pool.errors[static_cast<size_t>(i)] / 10;
  }
  CHECK(error < 0.05);
  CHECK(pool.errors[0] > 0.5);
  CHECK(pool.out_of_memory_attempts == 1);

  // What people see.
  const std::vector<std::string> server = {"--server", daemon.address()};
  const auto cli = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), server.begin(), server.end());
    const CliResult result = RunCli(arguments);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return result.out;
  };
  const absl::StatusOr<JobInfo> job = client->GetJob("run");
  REQUIRE(job.ok());
  CHECK(job->calibration_epoch > 0);
  CHECK(job->calibration.epoch == job->calibration_epoch);
  const std::string got = cli({"job", "get", "run"});
  CHECK(got.find("calibration epoch " +
                 std::to_string(job->calibration_epoch)) != std::string::npos);
  CHECK(got.find("# calibrated: cost.seconds_per_flop ") != std::string::npos);
  const std::vector<std::string> table =
      testing::Lines(cli({"job", "calibrations", "run"}));
  CHECK(table.size() == static_cast<size_t>(job->calibration_epoch) + 2);
  CHECK(table[2].find("OUT_OF_MEMORY") != std::string::npos);
  const std::vector<std::string> rows =
      testing::Lines(cli({"job", "calibrations", "run", "--format", "json"}));
  REQUIRE(rows.size() == static_cast<size_t>(job->calibration_epoch) + 1);
  const auto last = nlohmann::json::parse(rows.back());
  CHECK(last["epoch"] == job->calibration_epoch);
  CHECK(last["seconds_per_flop"].get<double>() == Approx(5e-15).epsilon(0.2));

  // The calibrated spec and the epoch give the daemon's bytes anywhere.
  const std::string spec = directory.path() / "calibrated.textproto";
  testing::WriteFile(spec, cli({"job", "get", "run", "--calibrated"}));
  std::string lengths;
  for (const int64_t length : LengthsOf(3)) {
    lengths += std::to_string(length) + "\n";
  }
  const CliResult offline =
      RunCli({"plan", "--offline", "--job-spec", spec, "--calibration-epoch",
              std::to_string(job->calibration_epoch), "--name", "run",
              "--lengths", "-", "--step", "1000", "--format", "json"},
             lengths);
  CHECK(offline.exit_code == 0);
  const CliResult online =
      RunCli({"plan", "--job", "run", "--lengths", "-", "--step", "1000",
              "--format", "json", "--server", daemon.address()},
             lengths);
  CHECK(online.exit_code == 0);
  CHECK(offline.out == online.out);
  CHECK(RunCli({"plan", "--job", "run", "--calibration-epoch", "1", "--lengths",
                "-", "--server", daemon.address()},
               lengths)
            .exit_code == 2);
}

}  // namespace
}  // namespace skrull
