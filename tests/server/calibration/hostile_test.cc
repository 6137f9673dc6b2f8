// Reporters that lie: one rank of many moves nothing, and all together nothing
// beyond the bounds of calibration/limits.h.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "skrull/planner/planner.h"
#include "skrull/server/calibration/limits.h"
#include "skrull/tests/server/calibration/simulated_job.h"

namespace skrull::testing {
namespace {

using calibration::kEpochFactor;
using calibration::kTotalFactor;

// Sets a report's every number to something a message can hold.
void Scramble(std::mt19937_64& random, v1::StepReport* report) {
  const auto seconds = [&](google::protobuf::Duration* duration) {
    const int64_t values[] = {-1,
                              0,
                              1,
                              1'000'000,
                              315'576'000'000,
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()};
    const int32_t nanos[] = {-1,
                             0,
                             1,
                             999'999'999,
                             std::numeric_limits<int32_t>::max(),
                             std::numeric_limits<int32_t>::min()};
    duration->set_seconds(values[random() % std::size(values)]);
    duration->set_nanos(nanos[random() % std::size(nanos)]);
  };
  seconds(report->mutable_step_time());
  seconds(report->mutable_attention_time());
  seconds(report->mutable_exchange_time());
  const int64_t bytes[] = {-1, 0, 1, 80'000'000'000,
                           std::numeric_limits<int64_t>::max()};
  report->set_peak_bytes(bytes[random() % std::size(bytes)]);
}

// Every epoch within kEpochFactor of the one before, and kTotalFactor of the
// spec; its job valid.
void CheckBounds(const v1::JobSpec& spec, const SimulatedJob& job) {
  const Job first = CalibratedJob(spec, {});
  Job before = first;
  double link_before = 1;
  const double slack = 1 + 1e-5;  // of rounding to six digits
  const auto within = [&](double value, double last, double of_spec,
                          double least) {
    const double most = kEpochFactor * std::max(last, least);
    CHECK(value <= slack * most);
    CHECK(value <= slack * kTotalFactor * std::max(of_spec, least));
    CHECK(slack * value >= last / kEpochFactor);
    CHECK(slack * value >= of_spec / kTotalFactor);
  };
  for (const v1::Calibration& epoch : job.epochs()) {
    INFO(epoch.ShortDebugString());
    const Job now = CalibratedJob(spec, epoch);
    within(now.cost().seconds_per_flop, before.cost().seconds_per_flop,
           first.cost().seconds_per_flop, 0);
    within(now.cost().seconds_per_micro_batch,
           before.cost().seconds_per_micro_batch,
           first.cost().seconds_per_micro_batch,
           calibration::kLeastOverheadSeconds);
    const double link = epoch.has_link_scale() ? epoch.link_scale() : 1;
    within(link, link_before, 1, 0);
    within(now.bytes_per_token(), before.bytes_per_token(),
           first.bytes_per_token(), 0);
    CHECK(now.spec().memory.static_bytes >= 0);
    CHECK(now.spec().memory.static_bytes <= *first.spec().memory.device_bytes);
    CHECK(now.bucket_size() <= first.bucket_size());
    CHECK(calibration::kBucketFloorShare * now.bucket_size() >=
          first.bucket_size());
    before = now;
    link_before = link;
  }
}

TEST_CASE("Hostile: one rank of eight moves neither times nor memory",
          "[calibration]") {
  const v1::JobSpec truth = TrueSpec(2, 4);
  const v1::JobSpec spec = WrongSpec(truth, {.seconds_per_flop = 3});
  std::mt19937_64 random(7);
  SimulatedJob honest(spec, truth, 1);
  SimulatedJob job(spec, truth, 1);
  job.set_tamper([&](std::vector<v1::StepReport>* reports) {
    Scramble(random, &(*reports)[3]);
  });
  honest.RunSteps(50, 64, 40000);
  job.RunSteps(50, 64, 40000);
  CheckBounds(spec, job);
  CHECK(job.MeanError(10) < 0.05);
  CHECK(job.out_of_memory_steps().empty());
  CHECK(job.bucket() == Approx(honest.bucket()).epsilon(0.02));
  CHECK(job.calibration().seconds_per_flop() ==
        Approx(honest.calibration().seconds_per_flop()).epsilon(0.05));
}

TEST_CASE("Hostile: all ranks together stay within the bounds",
          "[calibration]") {
  const auto seed = GENERATE(range(1, 9));
  CAPTURE(seed);
  const v1::JobSpec truth = TrueSpec(2, 2);
  v1::JobSpec spec = truth;
  if (seed % 2 == 0) spec.mutable_cost()->clear_seconds_per_micro_batch();
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  SimulatedJob job(spec, truth, static_cast<uint64_t>(seed));
  // The same lie for long enough to be believed, then another.
  v1::StepReport lie;
  int steps = 0;
  job.set_tamper([&](std::vector<v1::StepReport>* reports) {
    if (steps++ % 40 == 0) Scramble(random, &lie);
    for (v1::StepReport& report : *reports) {
      const v1::StepReport honest = report;
      report = lie;
      report.set_step(honest.step());
      report.set_attempt(honest.attempt());
      report.set_rank(honest.rank());
      report.set_outcome(honest.outcome());
    }
  });
  job.RunSteps(200, 32, 10000);
  CheckBounds(spec, job);
}

TEST_CASE("Hostile: all ranks that drift for ever end at the bounds",
          "[calibration]") {
  const double factor = GENERATE(1e-3, 1e3);
  const v1::JobSpec spec = TrueSpec(2, 2);
  SimulatedJob job(spec, spec, 5);
  job.set_tamper([&](std::vector<v1::StepReport>* reports) {
    for (v1::StepReport& report : *reports) {
      const double seconds =
          static_cast<double>(report.step_time().seconds()) +
          1e-9 * static_cast<double>(report.step_time().nanos());
      const double told = factor * seconds;
      report.mutable_step_time()->set_seconds(static_cast<int64_t>(told));
      report.mutable_step_time()->set_nanos(
          static_cast<int32_t>(1e9 * (told - std::floor(told))) | 1);
    }
  });
  job.RunSteps(120, 32, 10000);
  CheckBounds(spec, job);
  const double reached =
      job.calibration().seconds_per_flop() / spec.cost().seconds_per_flop();
  CHECK(reached == Approx(factor < 1 ? 1 / kTotalFactor : kTotalFactor));
}

TEST_CASE("Hostile: a rank that always runs out of memory stops at the floor",
          "[calibration]") {
  const v1::JobSpec spec = TrueSpec(1, 4);
  const Job first = CalibratedJob(spec, {});
  v1::Calibration standing;
  const std::vector<int64_t> lengths(64, 4000);
  int epochs = 0;
  for (;; ++epochs) {
    REQUIRE(epochs < 10);
    const Job job = CalibratedJob(spec, standing);
    const auto plan = MakePlan(
        job, lengths,
        {.key = {.job = "run", .attempt = epochs}, .policy = std::nullopt});
    REQUIRE(plan.ok());
    const auto next = CalibrateOutOfMemory(
        {.spec = spec, .standing = standing, .steps = {}}, *plan, 2);
    if (!next.ok()) {
      CHECK(next.status().code() == absl::StatusCode::kFailedPrecondition);
      break;
    }
    CHECK(next->bucket_size_tokens() < job.bucket_size());
    standing = *next;
  }
  CHECK(epochs >= 2);
  CHECK(8 * standing.bucket_size_tokens() >= first.bucket_size());
}

}  // namespace
}  // namespace skrull::testing
