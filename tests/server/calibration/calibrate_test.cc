// When an epoch begins, and what its record says.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "skrull/planner/error.h"
#include "skrull/planner/planner.h"
#include "skrull/server/calibration/limits.h"
#include "skrull/server/convert.h"
#include "skrull/tests/server/calibration/simulated_job.h"

namespace skrull::testing {
namespace {

using calibration::kEpochSteps;
using calibration::ReportedStep;

v1::StepReport Report(const Plan& plan, int rank, double seconds) {
  v1::StepReport report;
  report.set_step(plan.key.step);
  report.set_attempt(plan.key.attempt);
  report.set_rank(rank);
  report.set_outcome(v1::STEP_OUTCOME_OK);
  report.mutable_step_time()->set_seconds(static_cast<int64_t>(seconds));
  report.mutable_step_time()->set_nanos(static_cast<int32_t>(
      1e9 * (seconds - static_cast<double>(static_cast<int64_t>(seconds)))));
  return report;
}

Plan PlanOf(const Job& job, const std::vector<int64_t>& lengths,
            const PlanKey& key) {
  return *MakePlan(job, lengths, {.key = key, .policy = std::nullopt});
}

// `count` steps from `first` on of random batches on the spec's job, each of
// which took `slow` times what it was predicted to, on every rank.
std::vector<ReportedStep> Steps(const v1::JobSpec& spec,
                                const v1::Calibration& standing, int64_t first,
                                int count, double slow,
                                Policy policy = Policy::kOptimized) {
  std::mt19937_64 random(11);
  const Job job = CalibratedJob(spec, standing);
  std::vector<ReportedStep> steps;
  for (int i = 0; i < count; ++i) {
    std::vector<int64_t> lengths(20 + random() % 40);
    for (int64_t& length : lengths) {
      length = 100 + static_cast<int64_t>(random() % 5000);
    }
    ReportedStep step = {
        .plan = *MakePlan(job, lengths,
                          {.key = {.job = "run", .step = first + i},
                           .policy = policy,
                           .calibration_epoch = standing.epoch()}),
        .reports = {}};
    for (int rank = 0; rank < job.pool().ranks(); ++rank) {
      step.reports.push_back(
          Report(step.plan, rank, slow * step.plan.summary.predicted_seconds));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

TEST_CASE("Refit: the same bytes in whatever order steps and reports come",
          "[calibration]") {
  const v1::JobSpec spec = TrueSpec(2, 2);
  CalibrationInput input = {
      .spec = spec, .standing = {}, .steps = Steps(spec, {}, 0, 20, 1.7)};
  std::mt19937_64 random(3);
  for (ReportedStep& step : input.steps) {
    for (v1::StepReport& report : step.reports) {
      report.set_peak_bytes(20'000'000'000 +
                            static_cast<int64_t>(random() % 30'000'000'000));
    }
  }
  const auto first = Refit(input);
  REQUIRE(first);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(input.steps.begin(), input.steps.end(), random);
    for (ReportedStep& step : input.steps) {
      std::shuffle(step.reports.begin(), step.reports.end(), random);
    }
    const auto again = Refit(input);
    REQUIRE(again);
    CHECK(CanonicalBytes(*again) == CanonicalBytes(*first));
  }
}

TEST_CASE("Refit: the record says what it learnt from which step",
          "[calibration]") {
  const v1::JobSpec spec = TrueSpec(2, 2);
  const auto next =
      Refit({.spec = spec, .standing = {}, .steps = Steps(spec, {}, 4, 9, 2)});
  REQUIRE(next);
  CHECK(next->epoch() == 1);
  CHECK(next->cause() == v1::CALIBRATION_CAUSE_REFIT);
  CHECK(next->step() == 12);
  CHECK(next->error_before() == Approx(0.5));
  CHECK(next->error_after() < 0.01);
  CHECK(next->seconds_per_flop() ==
        Approx(2 * spec.cost().seconds_per_flop()).epsilon(0.02));
  CHECK_FALSE(next->has_bucket_size_tokens());
  CHECK(next->text().find("mean error 50 % -> 0") != std::string::npos);
}

TEST_CASE("Refit: needs so many complete steps after the epoch in force",
          "[calibration]") {
  const v1::JobSpec spec = TrueSpec(2, 2);
  v1::Calibration standing;
  CHECK_FALSE(Refit({.spec = spec,
                     .standing = standing,
                     .steps = Steps(spec, standing, 0, kEpochSteps - 1, 2)}));
  CHECK(Refit({.spec = spec,
               .standing = standing,
               .steps = Steps(spec, standing, 0, kEpochSteps, 2)}));
  standing.set_epoch(3);
  standing.set_step(7);
  CHECK_FALSE(Refit({.spec = spec,
                     .standing = standing,
                     .steps = Steps(spec, standing, 1, kEpochSteps + 6, 2)}));
  CHECK(Refit({.spec = spec,
               .standing = standing,
               .steps = Steps(spec, standing, 1, kEpochSteps + 7, 2)}));
}

TEST_CASE("Refit: a step counts when half of its ranks ran it",
          "[calibration]") {
  const v1::JobSpec spec = TrueSpec(2, 2);
  std::vector<ReportedStep> steps = Steps(spec, {}, 0, kEpochSteps, 2);
  const auto refits = [&] {
    return Refit({.spec = spec, .standing = {}, .steps = steps}).has_value();
  };
  REQUIRE(refits());
  steps[5].reports[0].set_outcome(v1::STEP_OUTCOME_FAILED);
  CHECK(refits());
  steps[5].reports[0].set_outcome(v1::STEP_OUTCOME_OK);
  steps[5].reports.resize(2);
  CHECK(refits());
  steps[5].reports[1].set_outcome(v1::STEP_OUTCOME_FAILED);
  CHECK_FALSE(refits());
  steps[5].reports[1].set_outcome(v1::STEP_OUTCOME_OUT_OF_MEMORY);
  CHECK_FALSE(refits());
  steps[5].reports.resize(1);
  CHECK_FALSE(refits());
}

TEST_CASE("Refit: not without a material gain, nor when the spec says no",
          "[calibration]") {
  v1::JobSpec spec = TrueSpec(2, 2);
  CHECK_FALSE(Refit(
      {.spec = spec, .standing = {}, .steps = Steps(spec, {}, 0, 16, 1.003)}));
  CHECK(Refit(
      {.spec = spec, .standing = {}, .steps = Steps(spec, {}, 0, 16, 1.03)}));
  const std::vector<ReportedStep> steps = Steps(spec, {}, 0, 16, 2);
  spec.mutable_calibration()->set_refit(false);
  CHECK_FALSE(Refit({.spec = spec, .standing = {}, .steps = steps}));
}

TEST_CASE("Refit: times of chunk plans teach nothing, their peaks do",
          "[calibration]") {
  const v1::JobSpec truth = TrueSpec(2, 2);
  const v1::JobSpec spec = WrongSpec(truth, {.bytes_per_token = 0.5});
  std::vector<ReportedStep> steps =
      Steps(spec, {}, 0, 16, 2, Policy::kChunkFlow);
  CHECK_FALSE(Refit({.spec = spec, .standing = {}, .steps = steps}));
  const Job job = CalibratedJob(spec, {});
  for (ReportedStep& step : steps) {
    for (v1::StepReport& report : step.reports) {
      report.set_peak_bytes(16'000'000'000 +
                            1'400'000 *
                                MostRowsOf(job, step.plan, report.rank()));
    }
  }
  const auto next = Refit({.spec = spec, .standing = {}, .steps = steps});
  REQUIRE(next);
  CHECK_FALSE(next->has_seconds_per_flop());
  CHECK_FALSE(next->has_error_before());
  CHECK(next->bytes_per_token() == Approx(1.4e6).epsilon(0.02));
  CHECK(next->bucket_size_tokens() == Approx(42857).epsilon(0.02));
}

TEST_CASE("Refit: a predicted bucket still holds every sequence that ran",
          "[calibration]") {
  v1::JobSpec spec = TrueSpec(1, 1);
  const Job job = CalibratedJob(spec, {});
  std::vector<ReportedStep> steps = Steps(spec, {}, 0, 16, 1);
  const std::vector<int64_t> lengths = {40000, 30};
  steps[3].plan = PlanOf(job, lengths, steps[3].plan.key);
  for (ReportedStep& step : steps) {
    const double rows = static_cast<double>(MostRowsOf(job, step.plan, 0));
    step.reports[0].set_peak_bytes(static_cast<int64_t>(16e9 + 2.8e6 * rows));
  }
  const auto next = Refit({.spec = spec, .standing = {}, .steps = steps});
  REQUIRE(next);
  CHECK(next->bucket_size_tokens() == 40000);  // not 21428
}

TEST_CASE("Stretch: ends where a multiple of the epoch's steps is reached",
          "[calibration]") {
  CHECK(EndsStretch(-1, 0));
  CHECK(EndsStretch(7, 8));
  CHECK_FALSE(EndsStretch(8, 9));
  CHECK_FALSE(EndsStretch(9, 15));
  CHECK(EndsStretch(9, 16));
  CHECK(EndsStretch(9, 1000));
  CHECK_FALSE(EndsStretch(9, 3));
  CHECK(StretchEnd(15) == 8);
  CHECK(StretchEnd(16) == 16);
}

TEST_CASE("OutOfMemory: the record names rank, rows and step",
          "[calibration]") {
  const v1::JobSpec spec = TrueSpec(1, 2);
  const Job job = CalibratedJob(spec, {});
  const std::vector<int64_t> lengths(40, 3000);
  const Plan plan =
      PlanOf(job, lengths, {.job = "run", .step = 12, .attempt = 2});
  const int64_t rows = MostRowsOf(job, plan, 1);
  v1::Calibration standing;
  standing.set_epoch(4);
  standing.set_seconds_per_flop(4e-15);
  standing.set_error_before(0.5);
  standing.set_text("before");
  const auto next = CalibrateOutOfMemory(
      {.spec = spec, .standing = standing, .steps = {}}, plan, 1);
  REQUIRE(next.ok());
  CHECK(next->epoch() == 5);
  CHECK(next->cause() == v1::CALIBRATION_CAUSE_OUT_OF_MEMORY);
  CHECK(next->step() == 12);
  CHECK(next->attempt() == 2);
  CHECK(next->out_of_memory_tokens() == rows);
  CHECK(next->bucket_size_tokens() == rows / 2);
  CHECK(next->seconds_per_flop() == 4e-15);
  CHECK_FALSE(next->has_error_before());
  CHECK(next->text() == "rank 1 ran out of memory with " +
                            std::to_string(rows) +
                            " rows in step 12, attempt 2: bucket " +
                            std::to_string(job.bucket_size()) + " -> " +
                            std::to_string(rows / 2) + " tokens");
  // The fewest rows of all stay remembered.
  standing.set_out_of_memory_tokens(rows - 1);
  const auto fewer = CalibrateOutOfMemory(
      {.spec = spec, .standing = standing, .steps = {}}, plan, 1);
  CHECK(fewer->out_of_memory_tokens() == rows - 1);
}

TEST_CASE("OutOfMemory: the bucket still holds the batch, or it is refused",
          "[calibration]") {
  const v1::JobSpec spec = TrueSpec(1, 2);
  const Job job = CalibratedJob(spec, {});
  // 40,000 rows of the long one on each rank, and some more on one.
  const std::vector<int64_t> lengths = {80000, 2000, 500};
  const Plan plan = PlanOf(job, lengths, {.job = "run"});
  const int64_t rows =
      std::max(MostRowsOf(job, plan, 0), MostRowsOf(job, plan, 1));
  const int rank = MostRowsOf(job, plan, 0) == rows ? 0 : 1;
  REQUIRE(rows > 40000);
  const CalibrationInput input = {.spec = spec, .standing = {}, .steps = {}};
  const auto next = CalibrateOutOfMemory(input, plan, rank);
  REQUIRE(next.ok());
  CHECK(next->bucket_size_tokens() == 40000);  // not half of the rows

  const std::vector<int64_t> alone = {80000};
  const Plan whole = PlanOf(job, alone, {.job = "run"});
  const auto refused = CalibrateOutOfMemory(input, whole, 0);
  REQUIRE_FALSE(refused.ok());
  CHECK(GetErrorDetail(refused.status())->reason ==
        ErrorReason::kAttemptsExhausted);
  const std::string message(refused.status().message());
  CHECK(message.find("rank 0 ran out of memory with 40000 rows") !=
        std::string::npos);
  CHECK(message.find("80000 tokens") != std::string::npos);
}

TEST_CASE("OutOfMemory: a rank without rows is refused", "[calibration]") {
  const v1::JobSpec spec = TrueSpec(2, 1);
  const std::vector<int64_t> lengths = {5000};
  const Plan plan = *MakePlan(CalibratedJob(spec, {}), lengths, {});
  for (const int32_t rank : {1, -1, 2, 1 << 30}) {
    CHECK(CalibrateOutOfMemory({.spec = spec, .standing = {}, .steps = {}},
                               plan, rank)
              .status()
              .code() == absl::StatusCode::kFailedPrecondition);
  }
}

TEST_CASE("ForBatch: a longer sequence than the smaller bucket holds raises it",
          "[calibration]") {
  const v1::JobSpec spec = TrueSpec(1, 2);
  v1::Calibration standing;
  standing.set_epoch(1);
  standing.set_step(4);
  standing.set_bucket_size_tokens(6000);
  const auto raised = [&](int64_t length) {
    const std::vector<int64_t> lengths = {10, length};
    return CalibrateForBatch(spec, standing, 9, Policy::kOptimized, lengths);
  };
  CHECK_FALSE(raised(12000));
  const auto next = raised(12001);
  REQUIRE(next);
  CHECK(next->epoch() == 2);
  CHECK(next->cause() == v1::CALIBRATION_CAUSE_RECOVERY);
  CHECK(next->step() == 4);
  CHECK(next->text() ==
        "a sequence of 12001 tokens in step 9 needs bucket "
        "6000 -> 6001 tokens");
  CHECK(next->bucket_size_tokens() == 6001);
  // Never what is known to run out of memory, nor beyond the spec.
  standing.set_out_of_memory_tokens(8000);
  CHECK(raised(15998)->bucket_size_tokens() == 7999);
  CHECK_FALSE(raised(15999));
  standing.clear_out_of_memory_tokens();
  const int64_t most = 2 * CalibratedJob(spec, {}).bucket_size();
  CHECK(raised(most));
  CHECK_FALSE(raised(most + 1));
  CHECK_FALSE(CalibrateForBatch(spec, standing, 9, Policy::kOptimized, {}));
}

}  // namespace
}  // namespace skrull::testing
